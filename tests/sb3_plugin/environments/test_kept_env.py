"""Environments of actors: what is called is looked up at every step, though wrappers are left out."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit
from stable_baselines3.common.monitor import Monitor

from reactor_rl.serialise import encode
from reactor_sb3.environments.kept_env import KeptEnv
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

    kept = KeptEnv(encode(lambda: Monitor(wrapped())), 0, Purpose.EPISODES, 0)
    assert isinstance(kept.env, TimeLimit)
    for makes in (Other, partial(Monitor, info_keywords=("a",)), partial(Monitor, filename=str(tmp_path / "log"))):
        kept = KeptEnv(encode(lambda makes=makes: makes(wrapped())), 0, Purpose.EPISODES, 0)
        assert isinstance(kept.env, Monitor)
        kept.env.close()
    assert isinstance(KeptEnv(encode(lambda: Monitor(wrapped())), 0, Purpose.EVALUATION, 0).env, Monitor)


def rewards_of(kept: KeptEnv, rounds: int) -> list[float]:
    found = []
    for _ in range(rounds):
        kept.begin_round(False)
        for step in range(4):
            _, reward, terminated, truncated, _ = kept.inner.step(0)
            kept.length += 1
            found.append(reward)
            if terminated or truncated or kept.length >= kept.limit:
                kept.reset(step + 1)
        kept.end_round(np.zeros(4, np.int64))
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
    kept = KeptEnv(encode(Spoils), 0, Purpose.EPISODES, 0)
    taken, record = np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 4, 2), np.zeros((4, 2), np.float32)
    for of_round in taken:
        record[...] = of_round  # the memory of every round
        kept.begin_round(False)
        for action in of_round:
            kept.observation = kept.inner.step(action.copy())[0]
        kept.end_round(record)
    saved = kept.saved()
    for _ in range(2):  # what was put back can be saved again
        assert saved["way"] == "replay"
        np.testing.assert_array_equal(saved["actions"], np.concatenate(taken))
        other = KeptEnv(encode(Spoils), 0, Purpose.EPISODES, 0)
        other.put_back(saved)
        assert other.observation == kept.observation
        saved = other.saved()


def test_an_environment_may_change_its_step() -> None:
    kept = KeptEnv(encode(wrapped), 0, Purpose.EPISODES, 0)
    found = rewards_of(kept, 10)
    assert kept.folded
    assert found == [1.0, 1.0, 10.0, 10.0, 10.0] * 8


def test_a_wrappers_class_may_change_its_step() -> None:
    kept = KeptEnv(encode(wrapped), 0, Purpose.EPISODES, 0)
    rewards_of(kept, 5)
    assert kept.folded
    plain = TimeLimit.step
    TimeLimit.step = lambda self, action: (*plain(self, action)[:1], 7.0, *plain(self, action)[2:])  # type: ignore[method-assign]
    try:
        assert rewards_of(kept, 1) == [7.0] * 4
        assert not kept.folded
    finally:
        TimeLimit.step = plain  # type: ignore[method-assign]
