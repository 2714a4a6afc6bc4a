"""Episodes of ``evaluate`` are whole games where an ``EpisodicLifeEnv`` ends an episode with each life."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest
from games import Game
from gymnasium.wrappers import TimeLimit
from stable_baselines3.common.atari_wrappers import EpisodicLifeEnv
from stable_baselines3.common.monitor import Monitor

from reactor_gymnasium import EvaluationReport, evaluate

Array = npt.NDArray[Any]


class Drawn(Game):
    """Steps of lives, rewards and a part of observations are drawn."""

    observation_space = gymnasium.spaces.Box(-10, 10, (2,), np.float32)

    def drawn(self) -> list[int]:
        return self.np_random.integers(3, 9, 3).tolist()  # type: ignore[no-any-return]

    def seen(self) -> Array:
        return np.array([len(self.left), self.np_random.normal()], np.float32)

    def step(self, action: np.int64) -> Any:
        observation, _, over, _, _ = super().step(action)
        return observation, float(self.np_random.normal() + action), over, False, {"left": len(self.left)}


def upright(observations: Array) -> Array:
    return (observations[:, 1] > 0).astype(np.int64)


def lives() -> gymnasium.Env[Any, Any]:
    return EpisodicLifeEnv(Drawn())


def counted_lives() -> gymnasium.Env[Any, Any]:
    return EpisodicLifeEnv(Monitor(Drawn()))


class Fires(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Takes a step within each reset, as SB3's ``FireResetEnv`` does: afterwards nobody can tell that a game was over."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.env.reset(seed=seed, options=options)
        observation, _, _, _, info = self.env.step(np.int64(1))
        return observation, info


def fired_lives() -> gymnasium.Env[Any, Any]:
    return Fires(EpisodicLifeEnv(Drawn()))


def limited_lives() -> gymnasium.Env[Any, Any]:
    return TimeLimit(EpisodicLifeEnv(Drawn()), 5)


def report(env: Any, max_steps: int | None = None, n: int = 1, workers: int = 1, executor: Any = "inline") -> EvaluationReport:
    return evaluate(upright, env, episodes=9, seed=2, num_envs=n, workers=workers, executor=executor, max_steps=max_steps)


@pytest.mark.slow
@pytest.mark.parametrize(("env", "max_steps"), [(lives, 7), (counted_lives, None), (fired_lives, 7), (limited_lives, None)])
def test_one_report_on_any_number_of_environments(env: Any, max_steps: int | None) -> None:
    ways: list[tuple[Any, ...]] = [(1,), (2,), (3,), (4,), (4, 2, "threads"), (5, 3, "processes")]
    found = [report(env, max_steps, *way) for way in ways]
    assert len({one.fingerprint() for one in found}) == 1 and len(set(found[0].returns.tolist())) == 9


def by_hand(env: gymnasium.Env[Any, Any], seed: int) -> tuple[float, int]:
    """Return and length of a game, life by life."""
    observation, _ = env.reset(seed=seed)
    total, length = 0.0, 0
    while True:
        observation, reward, over, _, _ = env.step(upright(observation[None])[0])
        total, length = total + float(reward), length + 1
        if over and env.get_wrapper_attr("was_real_done"):
            return total, length
        if over:
            observation, _ = env.reset()


@pytest.mark.parametrize("env", [lives, fired_lives])
def test_it_is_what_a_loop_gives(env: Any) -> None:
    found = report(env)
    seeds = [int(np.random.SeedSequence(2, spawn_key=(0, k)).generate_state(1)[0]) >> 1 for k in range(9)]
    assert list(zip(found.returns.tolist(), found.lengths.tolist(), strict=True)) == [by_hand(env(), seed) for seed in seeds]
    assert found.terminated.all() and not found.infos["left"].any()


def test_a_limit_ends_a_game() -> None:
    found = report(lives, max_steps=7)
    assert found.lengths.tolist() == [7] * 9 and not found.terminated.any()
    assert not report(limited_lives).terminated.all()


def test_a_monitor_tells_of_the_whole_game() -> None:
    found, alone = report(counted_lives), report(lives)
    assert (found.lengths == alone.lengths + 2).all()  # with the two steps that nobody took
