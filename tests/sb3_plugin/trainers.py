"""The trainers that the tests make, small and quick, and the environment they learn in."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import cache, partial
from typing import Any, get_args, get_type_hints

import gymnasium
import numpy as np
import pytest
import torch
from every_other import in_turn
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.vec_env import VecEnv

import reactor_sb3
from reactor_sb3 import Algorithm
from reactor_sb3.streams import drawing_from, restore, state_of

ROWS: dict[str, Algorithm] = {row.module.removeprefix("sync_"): row for row in reactor_sb3.ALGORITHMS.values()}
"""The table of algorithms, by the names that the tests have for them."""
ALGORITHMS: dict[str, tuple[Any, dict[str, Any]]] = {
    name: (row.cls, dict(row.settings)) for name, row in ROWS.items() if row.extra == "sb3"
}
"""SB3's, and our own; sb3-contrib's are in ``contrib_trainers.py``."""
CONTINUOUS = tuple(name for name, row in ROWS.items() if row.actions == ("Box",))
"""All that have no other actions."""
STEPWISE = sorted(name for name, row in ROWS.items() if row.kind != "search")
"""Those that learn from single steps, and have a policy with a features extractor."""
INLINE: dict[str, Any] = {"executor": "inline"}
THREADS: dict[str, Any] = {"executor": "threads", "workers": 2}
PROCESSES: dict[str, Any] = {"executor": "processes", "workers": 2}
PLACES = [INLINE, THREADS, PROCESSES]
"""Other numbers of workers are the engine's matter: see tests/test_oracle.py."""
BOX, CHOICE = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(3)
SPACES: dict[str, tuple[str, gymnasium.Space[Any]]] = {
    "box": ("MlpPolicy", BOX),
    "image": ("CnnPolicy", spaces.Box(0, 255, (36, 36, 1), np.uint8)),
    "dict": ("MultiInputPolicy", spaces.Dict(vector=BOX, kind=spaces.Discrete(3))),
    "discrete": ("MlpPolicy", spaces.Discrete(5)),
}
each = in_turn("algorithm", sorted(ALGORITHMS), kept=1)
"""All of them; one in the default set, which one depends on the test."""
most = in_turn("algorithm", sorted(set(ALGORITHMS) - {"ppo"}))
"""Those whose tests have no file of their own."""
discrete = pytest.mark.parametrize("algorithm", sorted(set(ALGORITHMS) - set(CONTINUOUS)))
"""Those that can have discrete actions."""
both = pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if ROWS[name].actions == ("Discrete",)])
"""Those that learn Q-networks, and explore."""


class Pushed(gymnasium.ActionWrapper[Any, Any, Any]):
    """Choices as a number: each has a part of an interval."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.action_space = spaces.Box(-2, 1, (1,), np.float32)

    def action(self, action: Any) -> Any:
        choices: Any = self.env.action_space
        return min(int((action[0] + 2) / 3 * choices.n), int(choices.n) - 1)


def _pushed(make: Any) -> gymnasium.Env[Any, Any]:
    env = make()
    return Pushed(env) if isinstance(env.action_space, spaces.Discrete) else env


def suited(algorithm: str, env: Any) -> Any:
    """The environment, with actions that the algorithm can have."""
    if algorithm not in CONTINUOUS or isinstance(env, VecEnv):
        return env
    if isinstance(env, str):
        env = partial(gymnasium.make, env)
    if isinstance(env, gymnasium.Env):
        return _pushed(lambda: env)
    return partial(_pushed, env) if callable(env) else env


class Toy(gymnasium.Env[Any, Any]):
    """Random observations of any space, rewards that depend on actions; episodes of a few steps, which end in both ways."""

    def __init__(
        self, space: gymnasium.Space[Any] = BOX, actions: gymnasium.Space[Any] = CHOICE, length: int = 7, rate: float = 0.1
    ) -> None:
        self.observation_space, self.action_space = deepcopy(space), deepcopy(actions)
        self.length, self.rate = length, rate

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert np.isscalar(action) or self.action_space.contains(action), action
        self.t += 1
        reward = float(self.np_random.normal() + np.sum(action))
        truncated = self.t >= self.length
        terminated = bool(self.np_random.random() < (0.5 if truncated else self.rate))  # sometimes both
        return self.observation_space.sample(), reward, terminated, truncated, self.info()

    def info(self) -> dict[str, Any]:
        return {"t": self.t, "pid": os.getpid()}


def new(algorithm: str, env: Any = "CartPole-v1", policy: str = "MlpPolicy", **changed: Any) -> Any:
    cls, arguments = ALGORITHMS[algorithm]
    network: dict[str, Any] = {"net_arch": [32]}
    if policy == "CnnPolicy":
        network = {"net_arch": [], "features_extractor_kwargs": {"features_dim": 16}}
    if "rollout_steps" in changed:
        changed["n_steps" if "n_steps" in arguments else "train_freq"] = changed.pop("rollout_steps")
    return cls(
        policy, suited(algorithm, env), **{"n_actors": 4, "seed": 0, "policy_kwargs": network, **INLINE, **arguments, **changed}
    )


def outcome(model: Any) -> dict[str, Any]:
    return {
        "weights": model.fingerprint(),
        "evaluations": [(one.timesteps, one.returns, one.lengths) for one in model.evaluations],
        "counters": (model.num_timesteps, model.n_episodes, model.n_updates),
        "episodes": [(info["r"], info["l"]) for info in model.ep_info_buffer],
    }


class Grainy(FlattenExtractor):
    """Features with noise, also where nobody learns."""

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = super().forward(observations)
        return features + 0.2 * torch.rand_like(features)


@contextmanager
def same_draws(model: Any, random: np.random.Generator) -> Iterator[None]:
    """Ours draws from its own generators what SB3's draws from ``np.random`` and torch's: it gets their numbers."""
    drawing = model.session.streams["replay"]
    kept, kept_of_torch = state_of(drawing), model.generator.get_state()
    restore(drawing, state_of(random))
    model.generator.set_state(torch.random.get_rng_state())
    try:
        with drawing_from(random):
            yield
    finally:
        restore(drawing, kept)
        model.generator.set_state(kept_of_torch)


# ---------------------------------------------------------------------- determinism

EVALUATED: dict[str, Any] = {"evaluate_every": 3, "evaluate_episodes": 2, "evaluate_steps": 200}


@cache
def alone(algorithm: str, pipeline: int, seed: int = 0, env: Any = "CartPole-v1") -> dict[str, Any]:
    """What comes out without any parallelism."""
    with new(algorithm, env, pipeline=pipeline, seed=seed, **EVALUATED) as model:
        return outcome(model.learn(640))


BUFFERS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("box", {}),
    "image": ("image", {}),
    "discrete": ("discrete", {}),
    "no timeouts": ("box", {"replay_buffer_kwargs": {"handle_timeout_termination": False}}),
    "one array": ("box", {"optimize_memory_usage": True, "replay_buffer_kwargs": {"handle_timeout_termination": False}}),
    "dict": ("dict", {}),
    "3 steps": ("box", {"n_steps": 3}),
}


class Remembering(ReplayBuffer):
    """Keeps the infos, which the actors have to send for it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.infos: list[list[dict[str, Any]]] = []

    def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: list[dict[str, Any]]) -> None:
        self.infos.append([dict(info) for info in infos])
        super().add(obs, next_obs, action, reward, done, infos)


class Again(Toy):
    """Returns the same info all the time, with other contents."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, Any] = {}

    def info(self) -> dict[str, Any]:
        assert self.kept.keys() <= {"t"}, "somebody has written into the environment's own info"
        self.kept["t"] = self.t
        return self.kept


class AfterRounds(BaseCallback):
    """Keeps what a function makes of the model after each round."""

    def __init__(self, look: Any) -> None:
        super().__init__()
        self.look, self.found = look, []  # type: ignore[var-annotated]

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self.found.append(self.look(self.model))


# ---------------------------------------------------------------------- SB3's surface


def hints_of(trainer: type[Any]) -> dict[str, Any]:
    """Types of a constructor's arguments, those of its options included."""
    hints = get_type_hints(inspect.unwrap(trainer.__init__))  # type: ignore[misc]
    return {**hints, **get_type_hints(get_args(hints["options"])[0])}


class Seen(BaseCallback):
    """What a callback gets to see."""

    def __init__(self, stop_at: int | None = None) -> None:
        super().__init__()
        self.stop_at, self.rows, self.events = stop_at, [], []  # type: ignore[var-annotated]

    def _on_training_start(self) -> None:
        self.events.append("start")

    def _on_rollout_start(self) -> None:
        self.events.append("rollout")

    def _on_step(self) -> bool:
        names = ("new_obs", "actions", "rewards", "dones", "infos")
        self.rows.append((self.num_timesteps, self.n_calls, *(deepcopy(self.locals[name]) for name in names)))
        return self.n_calls != self.stop_at

    def _on_rollout_end(self) -> None:
        self.events.append("end")

    def _on_training_end(self) -> None:
        self.events.append("stop")
