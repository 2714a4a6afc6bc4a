"""Environments of actors: what is called is looked up at every step, though wrappers are left out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit
from stable_baselines3.common.monitor import Monitor

from reactor_gymnasium.environments.rows import StepBuffers
from reactor_rl.pickling import encode
from reactor_sb3.acting.records import Observations
from reactor_sb3.environments.seeded_envs import SeededEnvs
from reactor_sb3.streams import Purpose


class Phases(gymnasium.Env[Any, Any]):
    """Has another step from the third one of an episode on."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t, self.step = 0, self.first  # type: ignore[method-assign]
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        raise RuntimeError("reset first")

    def first(self, action: Any) -> Any:
        self.t += 1
        if self.t == 2:
            self.step = self.second  # type: ignore[method-assign]
        return np.zeros(1, np.float32), 1.0, False, False, {}

    def second(self, action: Any) -> Any:
        self.t += 1
        return np.zeros(1, np.float32), 10.0, self.t >= 5, False, {}


def wrapped() -> gymnasium.Env[Any, Any]:
    return TimeLimit(OrderEnforcing(PassiveEnvChecker(Phases())), 9)


def test_a_monitor_that_only_counts_is_left_out(tmp_path: Path) -> None:
    class Other(Monitor[Any, Any]):
        pass

    assert isinstance(made(lambda: Monitor(wrapped())), TimeLimit)
    for makes in (Other, partial(Monitor, info_keywords=("a",)), partial(Monitor, filename=str(tmp_path / "log"))):
        env = made(lambda makes=makes: makes(wrapped()))
        assert isinstance(env, Monitor)
        env.close()
    assert isinstance(made(lambda: Monitor(wrapped()), Purpose.EVALUATION), Monitor)


def built(env_fn: Callable[[], gymnasium.Env[Any, Any]], purpose: Purpose = Purpose.EPISODES) -> SeededEnvs:
    envs = SeededEnvs((encode(env_fn),), 0, purpose, 0)
    envs.build()
    return envs


def made(env_fn: Callable[[], gymnasium.Env[Any, Any]], purpose: Purpose = Purpose.EPISODES) -> gymnasium.Env[Any, Any]:
    with built(env_fn, purpose).rows.opened() as (env,):
        return env


def rows() -> StepBuffers:
    space = Phases.observation_space
    return StepBuffers(Observations(space, space), {"": np.zeros((1, 1), np.float32)})


def rewards_of(envs: SeededEnvs, rounds: int) -> list[float]:
    found = []
    out = rows()
    for _ in range(rounds):
        envs.begin_round(False)
        for _ in range(4):
            envs.player.step(np.zeros(1, np.int64), out)
        found += envs.log.noted
        envs.end_round(np.zeros((4, 1), np.int64))
    return found


class Spoils(gymnasium.Env[Any, Any]):
    """Writes into the actions that it is given, and cannot be pickled."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("cannot be pickled")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = np.zeros(1, np.float32)
        return self.place, {}

    def step(self, action: Any) -> Any:
        self.place += action.sum()
        action[...] = 0
        return self.place, 0.0, False, False, {}


def test_what_is_noted_of_actions_is_nobody_elses() -> None:
    envs, out = built(Spoils), rows()
    taken, record = np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 4, 1, 2), np.zeros((4, 1, 2), np.float32)
    for of_round in taken:
        record[...] = of_round  # the memory of every round
        envs.begin_round(False)
        for actions in record:
            envs.player.step(actions, out)
        envs.end_round(record)
    saved = envs.saved()
    for _ in range(2):  # what was put back can be saved again
        assert saved[0]["way"] == "replay"
        np.testing.assert_array_equal(saved[0]["actions"], np.concatenate(taken)[:, 0])
        other = built(Spoils)
        other.put_back(saved)
        assert other.rows.observations == envs.rows.observations
        saved = other.saved()


def test_an_environment_may_change_its_step() -> None:
    envs = built(wrapped)
    found = rewards_of(envs, 10)
    assert envs.rows.bypassed == [True]
    assert found == [1.0, 1.0, 10.0, 10.0, 10.0] * 8


def test_a_wrappers_class_may_change_its_step() -> None:
    envs = built(wrapped)
    rewards_of(envs, 5)
    assert envs.rows.bypassed == [True]
    plain = TimeLimit.step
    TimeLimit.step = lambda self, action: (*plain(self, action)[:1], 7.0, *plain(self, action)[2:])  # type: ignore[method-assign]
    try:
        assert rewards_of(envs, 1) == [7.0] * 4
        assert envs.rows.bypassed == [False]
    finally:
        TimeLimit.step = plain  # type: ignore[method-assign]
