"""Whoever steps a copy is told the same of it: who is there, when an episode is over, and what the environment does wrong."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import ParallelEnv
from pettingzoo.classic.tictactoe import tictactoe
from runner_envs import message, ran

from reactor_pettingzoo import ParallelVectorEnv, RandomPolicy, evaluate
from reactor_pettingzoo.agents import probe_agents
from reactor_pettingzoo.learning.seated_unit import JointMaker
from reactor_pettingzoo.learning.seats import seats_of
from reactor_pettingzoo.runner.probe import RecordProbe

STEPS = 3


class Lingering(ParallelEnv[str, Any, Any]):
    """Agents whose episodes end with the third step, and who stay in ``agents`` nevertheless.

    Args:
        ending: How many of the three end.
        raising: The seed of the copy that raises in its second step.

    Attributes:
        log: Seed and number of each step, of all copies in this process.
    """

    log: list[Any] = []
    metadata: dict[str, Any] = {"name": "lingering", "render_modes": []}
    render_mode = None

    def __init__(self, ending: int = 3, raising: int = -1) -> None:
        self.possible_agents = ["ant", "bee", "cat"]
        self.ending, self.raising = ending, raising

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0, 9, (2,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)

    def _seen(self) -> dict[str, Any]:
        return {agent: np.full(2, self.t, np.float32) for agent in self.agents}

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents, self.t, self.seed = list(self.possible_agents), 0, seed
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        self.t += 1
        self.log.append((self.seed, self.t))
        if self.seed == self.raising and self.t == 2:
            raise ZeroDivisionError("the second step")
        ends = dict.fromkeys(self.agents[: self.ending], self.t == STEPS)
        truncations = {agent: ends.get(agent, False) for agent in self.agents}
        never = dict.fromkeys(self.agents, False)
        return self._seen(), dict.fromkeys(self.agents, 1.0), never, truncations, {agent: {} for agent in self.agents}


def by_vector_env(env_fn: Any) -> int:
    """The steps of the first episode."""
    with ParallelVectorEnv(env_fn, 1, executor="inline") as envs:
        envs.reset(seed=0)
        for length in range(1, 9):
            _, _, _, truncations, _ = envs.step(np.zeros(3, np.int64))
            if truncations.any():
                return length
    return 0


def by_runner(env_fn: Any) -> int:
    return ran(env_fn, RandomPolicy(), 2, steps=8 * STEPS).episodes[0].lengths["ant"]


def by_evaluation(env_fn: Any) -> int:
    return int(evaluate(RandomPolicy(), env_fn, episodes=2, executor="inline", max_steps=9).lengths[0])


def by_trainer(env_fn: Any) -> int:
    specs = probe_agents(env_fn)
    env = JointMaker(env_fn, seats_of(specs, dict.fromkeys(specs.agents, "all")))()
    env.reset(seed=0)
    for length in range(1, 9):
        _, _, _, truncated, info = env.step(env.action_space.sample())
        if truncated:
            assert info["episode"]["l"] == length
            return length
    return 0


STEPPERS = {"vector": by_vector_env, "runner": by_runner, "evaluation": by_evaluation, "trainer": by_trainer}


@pytest.mark.parametrize("played", STEPPERS.values(), ids=STEPPERS)
def test_an_episode_is_over_when_all_have_ended(played: Callable[[Any], int]) -> None:
    assert played(Lingering) == STEPS


@pytest.mark.filterwarnings("ignore:.*ERROR")
@pytest.mark.parametrize("played", STEPPERS.values(), ids=STEPPERS)
def test_one_that_stays_among_others_is_a_mistake(played: Callable[[Any], int]) -> None:
    with pytest.raises((ValueError, RuntimeError)) as caught:
        played(partial(Lingering, 1))
    assert "agent 'ant' was terminated or truncated, and step() left it in env.agents" in message(caught.value)


def test_one_that_raises_leaves_the_others_their_step() -> None:
    Lingering.log.clear()
    with pytest.raises(ZeroDivisionError) as caught:
        ran(partial(Lingering, raising=1), RandomPolicy(), 3, steps=60)
    assert "in environment 1" in message(caught.value)
    assert Lingering.log[-6:] == [(seed, step) for step in (1, 2) for seed in (0, 1, 2)]


def test_copies_that_have_played_their_share_take_no_steps() -> None:
    """Of five episodes the first copy plays three, and the second one two."""
    Lingering.log.clear()
    report = ran(Lingering, RandomPolicy(), 2, episodes=5)
    assert [episode.copy for episode in report.episodes] == [0, 1, 0, 1, 0]
    assert len(Lingering.log) == 5 * STEPS


def test_wrappers_that_only_check_are_left_out_of_turns() -> None:
    assert (
        ran(tictactoe.env, RandomPolicy(), 2, episodes=8).fingerprint
        == ran(tictactoe.raw_env, RandomPolicy(), 2, episodes=8).fingerprint
    )
    probe = RecordProbe(tictactoe.env(), probe_agents(tictactoe.env))
    probe.reset(seed=0)
    assert type(probe.unit.copy.inner) is tictactoe.raw_env  # type: ignore[attr-defined]
