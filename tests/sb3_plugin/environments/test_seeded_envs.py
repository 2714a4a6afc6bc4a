"""Environments of actors: which Monitors are left out, and what is noted of actions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import TimeLimit
from stable_baselines3.common.monitor import Monitor

from reactor_gymnasium.environments.rows import StepBuffers
from reactor_rl.pickling import encode
from reactor_sb3.acting.records import Observations
from reactor_sb3.environments.seeded_envs import SeededEnvs
from reactor_sb3.streams import Purpose


def test_a_monitor_that_only_counts_is_left_out(tmp_path: Path) -> None:
    class Other(Monitor[Any, Any]):
        pass

    assert isinstance(made(lambda: Monitor(gymnasium.make("CartPole-v1"))), TimeLimit)
    for makes in (Other, partial(Monitor, info_keywords=("a",)), partial(Monitor, filename=str(tmp_path / "log"))):
        env = made(lambda makes=makes: makes(gymnasium.make("CartPole-v1")))
        assert isinstance(env, Monitor)
        env.close()
    assert isinstance(made(lambda: Monitor(gymnasium.make("CartPole-v1")), Purpose.EVALUATION), Monitor)


def built(env_fn: Callable[[], gymnasium.Env[Any, Any]], purpose: Purpose = Purpose.EPISODES) -> SeededEnvs:
    envs = SeededEnvs((encode(env_fn),), 0, purpose, 0)
    envs.build()
    return envs


def made(env_fn: Callable[[], gymnasium.Env[Any, Any]], purpose: Purpose = Purpose.EPISODES) -> gymnasium.Env[Any, Any]:
    with built(env_fn, purpose).rows.opened() as (env,):
        return env


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
    envs, space = built(Spoils), Spoils.observation_space
    out = StepBuffers(Observations(space, space), {"": np.zeros((1, 1), np.float32)})
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
