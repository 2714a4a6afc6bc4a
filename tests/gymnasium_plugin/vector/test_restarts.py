"""Vector environments whose workers are killed: the same trajectories, and a word of warning."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import ale_py
import gymnasium
import numpy as np
import pytest
from compare import assert_same
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

from reactor_gymnasium import AtariVectorEnv, ReactorVectorEnv, make_vec
from reactor_gymnasium.plugin import AtariGame
from reactor_rl import RecoveryWarning, WorkerHungError
from reactor_rl.runtime import recovery

pytestmark = pytest.mark.faults

gymnasium.register_envs(ale_py)


class Unruly(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Draws from the process's generator."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))

    def step(self, action: Any) -> Any:
        observation, _, *others = super().step(action)
        return observation, random.random(), *others


def trajectory(envs: Any, steps: int, kills: int = 0, seed: int | None = 3) -> list[Any]:
    """Everything that so many steps give; a helper dies before or in some of them."""
    random_ = random.Random(steps)
    deadly = set(random_.sample(range(steps), kills))
    envs.action_space.seed(0)
    seen: list[Any] = [envs.reset(seed=seed)]
    for step in range(steps):
        child = random_.choice(envs._run._executor._processes) if step in deadly else None
        if child is not None and random_.random() < 0.5:
            os.kill(child.pid, signal.SIGKILL)
        envs.step_async(envs.action_space.sample())
        if child is not None:
            with contextlib.suppress(ProcessLookupError):  # it may be dead already
                os.kill(child.pid, signal.SIGKILL)
        seen.append(envs.step_wait())
        if step % 10 == 5:
            seen.append(envs.get_attr("lives" if isinstance(envs, AtariVectorEnv) else "render_mode"))
    return seen


MAKERS: dict[str, Any] = {
    "CartPole": partial(make_vec, "CartPole-v1", 6),
    "HalfCheetah": partial(make_vec, "HalfCheetah-v5", 3),
    "sticky Pong": partial(make_vec, "ALE/Pong-v5", 3),
    "games": partial(AtariVectorEnv, "pong", 3, repeat_action_probability=0.25),
    "shards": partial(make_vec, "CartPole-v1", 6, shards=3),
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", MAKERS)
def test_killed_workers_change_nothing(name: str) -> None:
    steps = 60 if name in ("CartPole", "shards") else 20
    with MAKERS[name](executor="inline") as envs:
        expected = trajectory(envs, steps)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with MAKERS[name](executor="processes", workers=3, restarts=9) as envs:
            assert_same(trajectory(envs, steps, kills=2), expected)
    assert sum(one.category is RecoveryWarning for one in said) == 2


def test_a_reset_without_a_seed_is_brought_back_too() -> None:
    with make_vec("Blackjack-v1", 3, executor="processes", workers=2, restarts=1) as envs:
        before, _ = envs.reset()
        child = envs._run._executor._processes[0]
        os.kill(child.pid, signal.SIGKILL)
        while not child.ended:
            pass
        with pytest.warns(RecoveryWarning, match="worker 1"):
            observations = envs.step(np.array([1, 1, 1]))[0]
        assert all(observations[1] == before[1])  # the dealer's card
        # And one more of one's own. An ace is worth 10 more as long as that is not too much.
        assert all(observations[0] - 10 * observations[2] > before[0] - 10 * before[2])


class Unseeded(CartPoleVectorEnv):
    """Shows what no seed can bring back."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=None, options=options)


def test_shards_that_could_not_be_brought_back_are_refused() -> None:
    with pytest.raises(ValueError, match=r"restarts=1: shard 0 could not be brought back, .*the same seed and actions"):
        ReactorVectorEnv.of([partial(Unseeded, 2)] * 2, executor="processes", workers=2, restarts=1)
    with pytest.raises(ValueError, match="a thread cannot be replaced"):
        make_vec("CartPole-v1", 2, shards=2, executor="threads", workers=2, restarts=1)


def test_shards_go_on_from_what_was_saved_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "SHORTEST_PAUSE", 0.0)
    monkeypatch.setattr(recovery, "PAUSE_FACTOR", 0)
    make = partial(make_vec, "CartPole-v1", 6, shards=3)
    with make(executor="inline") as envs:
        expected = trajectory(envs, 20)
    with (  # one tick, if it dies when it has ended its part of it and is asked for its state
        pytest.warns(RecoveryWarning, match=r" [01] tick\(s\) were replayed"),
        make(executor="processes", workers=2, restarts=9) as envs,
    ):
        assert_same(trajectory(envs, 20, kills=2), expected)


def test_environments_that_do_otherwise_are_refused() -> None:
    with pytest.raises(ValueError, match=r"restarts=1: environment 0 could not be brought back"):
        ReactorVectorEnv([Unruly] * 2, executor="processes", workers=2, restarts=1)
    with pytest.raises(ValueError, match="a thread cannot be replaced"):
        AtariVectorEnv("pong", 2, executor="threads", workers=2, restarts=1)
    with pytest.raises(ValueError, match="restarts"):
        make_vec("CartPole-v1", 2, restarts=-1)


class Sleepy(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Does not return from a step that the file speaks of, which is gone then unless it is to sleep again."""

    def __init__(self, path: Path, again: bool) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self.path, self.again = path, again

    def step(self, action: Any) -> Any:
        if self.path.exists() and action == 1:
            if not self.again:
                self.path.unlink()
            time.sleep(100)
        return super().step(action)


def sleepy(path: Path, again: bool, **how: Any) -> ReactorVectorEnv:
    return ReactorVectorEnv([partial(Sleepy, path, again)] * 6, executor="processes", workers=2, timeout=0.5, **how)


LAST = np.array([0, 0, 0, 0, 1, 0])


@pytest.mark.timeout(60)
def test_an_environment_that_does_not_return_is_named(tmp_path: Path) -> None:
    with sleepy(tmp_path / "sleep", True) as envs:
        envs.reset(seed=0)
        envs.step(LAST)
        (tmp_path / "sleep").touch()
        with pytest.raises(WorkerHungError, match=r"worker 1 has not ended its part of tick 2 in 0.5 s; it is in environment 4\."):
            envs.step(LAST)


class SleepyShard(CartPoleVectorEnv):
    """Does not return when it is told to go to the left and there is a file."""

    def __init__(self, path: Path) -> None:
        super().__init__(2)
        self.path = path

    def step(self, action: Any) -> Any:
        if self.path.exists() and action.any():
            time.sleep(100)
        return super().step(action)


@pytest.mark.timeout(60)
def test_a_shard_that_does_not_return_is_named(tmp_path: Path) -> None:
    make = partial(SleepyShard, tmp_path / "sleep")
    with ReactorVectorEnv.of([make] * 3, executor="processes", workers=2, timeout=0.5) as envs:
        envs.reset(seed=0)
        (tmp_path / "sleep").touch()
        with pytest.raises(WorkerHungError, match=r"worker 1 has not ended its part of tick 1 in 0.5 s; it is in shard 2\."):
            envs.step(LAST)


@pytest.mark.timeout(60)
def test_a_game_that_does_not_return_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    play, here = AtariGame.step, os.getpid()

    def step(self: AtariGame, action: int, strength: float) -> None:
        if os.getpid() != here and action == 1:
            time.sleep(100)
        play(self, action, strength)

    monkeypatch.setattr(AtariGame, "step", step)
    with AtariVectorEnv("pong", 4, executor="processes", workers=2, context="fork", timeout=0.5) as envs:
        envs.reset(seed=0)
        with pytest.raises(WorkerHungError, match=r"worker 1 has not ended its part of tick 1 in 0.5 s; it is in environment 3\."):
            envs.step(np.array([0, 0, 0, 1]))


@pytest.mark.timeout(60)
def test_a_worker_that_does_not_return_is_replaced(tmp_path: Path) -> None:
    with sleepy(tmp_path / "sleep", False, restarts=2) as envs:
        envs.reset(seed=0)
        (tmp_path / "sleep").touch()
        with pytest.warns(
            RecoveryWarning, match=r"worker 1 was ended because it did not return for 0.5 s \(it is in environment 4\)"
        ):
            seen = envs.step(LAST)
    with ReactorVectorEnv([partial(gymnasium.make, "CartPole-v1")] * 6, executor="inline") as envs:
        envs.reset(seed=0)
        assert_same(seen, envs.step(LAST))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("make", [partial(make_vec, "CartPole-v1", 4), partial(AtariVectorEnv, "pong", 4)], ids=["envs", "games"])
def test_a_stopped_worker_is_reported_as_such(make: Any) -> None:
    with make(executor="processes", workers=2, timeout=0.5) as envs:
        envs.reset(seed=0)
        os.kill(envs._run._executor._processes[0].pid, signal.SIGSTOP)
        with pytest.raises(WorkerHungError, match="its process is stopped, as by SIGSTOP") as hung:
            envs.step(np.zeros(4, np.int64))
    assert hung.value.stopped and hung.value.worker == 1
