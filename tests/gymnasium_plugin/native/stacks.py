"""Random stacks of wrappers, of Gymnasium's and of a user's own, and all that they have for a state."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium import wrappers as gym_wrappers
from gymnasium.wrappers.utils import RunningMeanStd

Array = npt.NDArray[Any]
Env = gymnasium.Env[Any, Any]


class Robot(gymnasium.Env[Any, Any]):
    """Shows one array all the time, in float64 where its space says float32; its rewards are of several types."""

    observation_space = spaces.Box(-np.inf, np.inf, (6,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.state, self.steps = self.np_random.normal(size=6), 0
        return self.state, {"start": int(self.np_random.integers(9))}

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.state *= 0.9
        self.state += self.np_random.normal(size=6)
        self.state[:2] += action
        total = self.state.sum()
        reward: Any = total if self.steps % 7 else 3 if self.steps % 2 else float(total)
        if self.steps % 31 == 0:
            reward = np.float32(total)
        return self.state, reward, bool(self.state[0] > 3), False, {"steps": self.steps} if self.steps % 3 else {}


class Parts(gymnasium.Env[Any, Any]):
    """Shows a dict; its rewards are ints."""

    observation_space = spaces.Dict({
        "near": spaces.Box(-9, 9, (2, 2), np.float32), "far": spaces.Box(-9, 9, (3,), np.float64), "kind": spaces.Discrete(4)
    })  # fmt: skip
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._shown(), {}

    def _shown(self) -> Any:
        draw = self.np_random
        return {"near": draw.normal(size=(2, 2)).astype(np.float32), "far": draw.normal(size=3), "kind": np.int64(draw.integers(4))}

    def step(self, action: Any) -> Any:
        return self._shown(), int(action) - 1, bool(self.np_random.random() < 0.05), False, {}


ENVS: dict[str, Callable[[], Env]] = {
    "Pendulum": lambda: gymnasium.make("Pendulum-v1", max_episode_steps=23),
    "CartPole": lambda: gymnasium.make("CartPole-v1", max_episode_steps=40),
    "MountainCarContinuous": lambda: gymnasium.make("MountainCarContinuous-v0", max_episode_steps=30),
    "FrozenLake": lambda: gymnasium.make("FrozenLake-v1", max_episode_steps=12),
    "Blackjack": lambda: gymnasium.make("Blackjack-v1"),
    "InvertedPendulum": lambda: gymnasium.make("InvertedPendulum-v5", max_episode_steps=15),
    "Robot": lambda: made(Robot(), 17),
    "Parts": lambda: made(Parts(), 60),
}


def made(env: Env, limit: int) -> Env:
    """As ``gymnasium.make`` would make it."""
    return gym_wrappers.TimeLimit(gym_wrappers.OrderEnforcing(gym_wrappers.PassiveEnvChecker(env)), limit)


def shifted(reward: Any) -> Any:
    return reward * 0.5 - 0.25


class Tanh(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Writes into what it is given, which may be the environment's own state."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.calls = 0

    def observation(self, observation: Any) -> Any:
        self.calls += 1
        shown = np.tanh(observation)
        observation *= 0.5
        return shown


class Reused(Tanh):
    """Shows an array of its own again and again."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.buffer: Any = np.zeros((), np.float32)

    def observation(self, observation: Any) -> Any:
        if self.buffer.shape != observation.shape or self.buffer.dtype != observation.dtype:
            self.buffer = np.zeros_like(observation)
        np.sin(observation, out=self.buffer)
        return self.buffer


class Numbers(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Three numbers of a tuple, as in the paper's Q-learning."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.observation_space = spaces.Box(0.0, 32.0, (3,), np.float32)

    def observation(self, observation: Any) -> Any:
        return np.array(observation, np.float32)


class Shaped(gymnasium.RewardWrapper[Any, Any]):
    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.paid, self.draws = 0.0, np.random.default_rng(3)

    def reward(self, reward: Any) -> Any:
        self.paid += float(reward)
        return reward + self.draws.normal() * 0.01


class Turned(gymnasium.ActionWrapper[Any, Any, Any]):
    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.given = 0

    def action(self, action: Any) -> Any:
        self.given += 1
        return self.flip(action)

    def flip(self, action: Any) -> Any:
        return -action if isinstance(action, np.ndarray) else action


class Kept(gymnasium.Wrapper[Any, Any, Any, Any]):
    """No form is known for this one."""

    def step(self, action: Any) -> Any:
        observation, reward, *others = self.env.step(action)
        return observation, reward, *others


def stack(name: str, seed: int, reused: bool = True) -> Env:
    """An environment in wrappers that a seed says.

    Args:
        name: Of the environment.
        seed: Of the choices.
        reused: Whether a wrapper may show one array again: ``SyncVectorEnv`` then shows the wrong one in ``final_obs``.
    """
    choices, env = random.Random(seed), ENVS[name]()
    names: set[str] = set()
    for _ in range(choices.randint(1, 7)):
        found = sorted((one, wrap) for one, wrap in fitting(env, names).items() if reused or one != "Reused")
        chosen, wrap = choices.choice(found)
        names.add(chosen)
        env = wrap(env)
    return env


def fitting(env: Env, names: set[str]) -> dict[str, Callable[[Env], Env]]:
    """Wrappers that fit around an environment; each once, but for functions."""
    space, actions = env.observation_space, env.action_space
    found: dict[str, Callable[[Env], Env]] = {
        "RecordEpisodeStatistics": lambda env: gym_wrappers.RecordEpisodeStatistics(env, buffer_length=5),
        "NormalizeReward": lambda env: gym_wrappers.NormalizeReward(env, gamma=0.9),
        "ClipReward": lambda env: gym_wrappers.ClipReward(env, -1, 0.5),
        "Shaped": Shaped,
        "Turned": Turned,
        "FlattenObservation": gym_wrappers.FlattenObservation,
        "TimeAwareObservation": lambda env: gym_wrappers.TimeAwareObservation(env, normalize_time=len(names) % 2 == 0),
    }
    if "Kept" not in names and len(names) == 1:
        found["Kept"] = Kept
    if isinstance(actions, spaces.Box):
        found["ClipAction"] = gym_wrappers.ClipAction
        if np.isfinite(actions.low).all():
            found["RescaleAction"] = lambda env: gym_wrappers.RescaleAction(env, np.float32(-3), np.float32(2))
    if isinstance(space, spaces.Box) and space.shape:
        found |= {
            "NormalizeObservation": gym_wrappers.NormalizeObservation,
            "FrameStackObservation": lambda env: gym_wrappers.FrameStackObservation(
                env, 3, padding_type="zero" if len(names) % 2 else "reset"
            ),
            "DtypeObservation": lambda env: gym_wrappers.DtypeObservation(env, np.float64 if len(names) % 2 else np.float32),
        }
    if isinstance(space, spaces.Box) and space.shape and space.dtype.kind == "f":
        found |= {"Tanh": Tanh, "Reused": Reused}
    if isinstance(space, spaces.Tuple):
        found["Numbers"] = Numbers
    if not any(isinstance(level, gym_wrappers.TimeLimit) for level in levels(env)):
        del found["TimeAwareObservation"]
    if isinstance(space, spaces.Dict):
        found["FilterObservation"] = lambda env: gym_wrappers.FilterObservation(env, [*env.observation_space.spaces][:2])  # type: ignore[attr-defined]
    left = {name: wrap for name, wrap in found.items() if name not in names}
    left["TransformReward, np.clip"] = lambda env: gym_wrappers.TransformReward(env, lambda reward: np.clip(reward, -10, 10))
    left["TransformReward"] = lambda env: gym_wrappers.TransformReward(env, shifted)
    if isinstance(space, spaces.Box) and space.shape and space.dtype.kind == "f":
        left["TransformObservation"] = lambda env: gym_wrappers.TransformObservation(
            env, lambda obs: np.clip(obs, -2, 1.5), env.observation_space
        )
    return left


def levels(env: Env) -> Iterator[Any]:
    """The wrappers from the outermost one, and the environment."""
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env
    yield env


LEFT_OUT = {"episode_start_time", "time_queue", "metadata"}
"""Attributes that are clocks, or that a vector environment writes."""


def state(env: Env) -> list[tuple[str, Any]]:
    """All numbers that the levels of an environment have as attributes, and its generator."""
    found: list[tuple[str, Any]] = []
    for level in levels(env):
        for name, value in sorted(vars(level).items()):
            if name in LEFT_OUT or name.startswith("_saved"):
                continue
            if isinstance(value, RunningMeanStd):
                value = [type(value.mean), value.mean, type(value.var), value.var, value.count]
            if isinstance(value, np.random.Generator):
                value = value.bit_generator.state
            if isinstance(value, deque):
                value = list(value)
            if isinstance(value, (bool, int, float, list, dict, tuple, str, np.ndarray, np.generic, type(None))) and name != "P":
                found.append((f"{type(level).__name__}.{name}", value))
    return found
