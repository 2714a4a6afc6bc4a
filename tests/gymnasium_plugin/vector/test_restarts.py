"""Vector environments whose workers are killed: the same trajectories, and a word of warning."""

from __future__ import annotations

import os
import random
import signal
import threading
import warnings
from functools import partial
from typing import Any

import ale_py
import gymnasium
import numpy as np
import pytest
from compare import assert_same

from reactor_gymnasium import AtariVectorEnv, ReactorVectorEnv, make_vec
from reactor_rl import RecoveryWarning

gymnasium.register_envs(ale_py)


class Unruly(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Draws from the process's generator."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))

    def step(self, action: Any) -> Any:
        observation, _, *others = super().step(action)
        return observation, random.random(), *others


def trajectory(envs: Any, steps: int, kills: int = 0, seed: int | None = 3) -> list[Any]:
    """Everything that so many steps give; helpers die at random instants of some of them."""
    random_ = random.Random(steps)
    deadly = set(random_.sample(range(steps), kills))
    envs.action_space.seed(0)
    seen: list[Any] = [envs.reset(seed=seed)]
    for step in range(steps):
        if step in deadly:
            child = random_.choice(envs._run._executor._processes)
            threading.Timer(random_.random() * 0.003, os.kill, (child.pid, signal.SIGKILL)).start()
        seen.append(envs.step(envs.action_space.sample()))
        if step % 10 == 5 and hasattr(envs, "call"):
            seen.append(envs.get_attr("render_mode"))
    return seen


MAKERS: dict[str, Any] = {
    "CartPole": partial(make_vec, "CartPole-v1", 6),
    "HalfCheetah": partial(make_vec, "HalfCheetah-v5", 3),
    "sticky Pong": partial(make_vec, "ALE/Pong-v5", 3),
    "games": partial(AtariVectorEnv, "pong", 3, repeat_action_probability=0.25),
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", MAKERS)
def test_killed_workers_change_nothing(name: str) -> None:
    steps = 60 if name == "CartPole" else 20
    with MAKERS[name](executor="inline") as envs:
        expected = trajectory(envs, steps)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with MAKERS[name](executor="processes", workers=3, restarts=9) as envs:
            assert_same(trajectory(envs, steps, kills=2), expected)
    assert 1 <= sum(one.category is RecoveryWarning for one in said) <= 3


def test_a_reset_without_a_seed_is_brought_back_too() -> None:
    with make_vec("Blackjack-v1", 3, executor="processes", workers=2, restarts=1) as envs:
        before, _ = envs.reset()
        child = envs._run._executor._processes[0]
        os.kill(child.pid, signal.SIGKILL)
        while not child.ended:
            pass
        with pytest.warns(RecoveryWarning, match="worker 1"):
            observations = envs.step(np.array([1, 1, 1]))[0]
        assert all(observations[1] == before[1]) and all(observations[0] >= before[0])  # the dealer's card, and one more


def test_environments_that_do_otherwise_are_refused() -> None:
    with pytest.raises(ValueError, match=r"restarts=1: environment 0 could not be brought back"):
        ReactorVectorEnv([Unruly] * 2, executor="processes", workers=2, restarts=1)
    with pytest.raises(ValueError, match="a thread cannot be replaced"):
        AtariVectorEnv("pong", 2, executor="threads", workers=2, restarts=1)
    with pytest.raises(ValueError, match="restarts"):
        make_vec("CartPole-v1", 2, restarts=-1)
