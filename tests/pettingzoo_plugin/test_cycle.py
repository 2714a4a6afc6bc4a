"""A cycle without wrappers makes the calls that one with them makes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils import seeding
from pettingzoo import AECEnv
from pettingzoo.classic.tictactoe import tictactoe
from pettingzoo.utils import agent_selector, wrappers
from pettingzoo.utils.conversions import aec_to_parallel
from runner_envs import ran

from reactor_pettingzoo import RandomPolicy
from reactor_pettingzoo.agents import probe_agents
from reactor_pettingzoo.copies import step_parallel
from reactor_pettingzoo.runner.probe import RecordProbe

AGENTS = ["ant", "bee", "cat"]


class Turns(AECEnv):
    """Agents act in a cycle and end at drawn times; every observation is a random number, and every call is noted."""

    metadata = {"name": "turns", "is_parallelizable": True}
    render_mode = None

    def __init__(self) -> None:
        super().__init__()
        self.possible_agents = list(AGENTS)
        self.calls: list[Any] = []

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0, 1, (1,), np.float64)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(4)

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.np_random, _ = seeding.np_random(seed)
        self.agents = list(AGENTS)
        self.end = {agent: int(self.np_random.integers(1, 6)) for agent in AGENTS}
        self.rewards, self._cumulative_rewards = dict.fromkeys(AGENTS, 0.0), dict.fromkeys(AGENTS, 0.0)
        self.terminations, self.truncations = dict.fromkeys(AGENTS, False), dict.fromkeys(AGENTS, False)
        self.infos: dict[str, Any] = {agent: {} for agent in AGENTS}
        self.t, self.turns = 0, agent_selector.AgentSelector(self.agents)
        self.agent_selection = self.turns.reset()

    def observe(self, agent: str) -> Any:
        self.calls.append(("observe", agent))
        return self.np_random.random(1)

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        self.calls.append(("step", agent, action))
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            if self.agents:
                self.turns.reinit(self.agents)
                if not any(self.terminations[one] or self.truncations[one] for one in self.agents):
                    self.agent_selection = self.turns.reset()
            return
        self.rewards = {one: (action + self.t if one == agent else 0.0) for one in self.agents}
        if self.turns.is_last():
            self.t += 1
            for one in self.agents:
                self.terminations[one], self.truncations[one] = self.end[one] == self.t, self.t == 4
                self.infos[one] = {"t": self.t}
        self.agent_selection = self.turns.next()
        ended = [one for one in self.agents if self.terminations[one] or self.truncations[one]]
        if self.turns.is_first() and ended:
            self.agent_selection = ended[0]


@pytest.mark.parametrize(
    "wrapped", [(), (wrappers.AssertOutOfBoundsWrapper, wrappers.OrderEnforcingWrapper)], ids=["bare", "wrapped"]
)
def test_a_cycle_is_what_pettingzoo_makes_of_it(wrapped: Any) -> None:
    def made() -> tuple[Turns, Any]:
        inner = env = Turns()
        for wrapper in wrapped:
            env = wrapper(env)
        return inner, aec_to_parallel(env)

    (ours, one), (theirs, other) = made(), made()
    for seed in range(12):
        assert repr(one.reset(seed=seed)) == repr(other.reset(seed=seed))
        while other.agents:
            actions = {agent: (seed + number) % 4 for number, agent in enumerate(other.agents)}
            assert repr(step_parallel(one, actions)) == repr(other.step(actions))
            assert one.agents == other.agents
    assert ours.calls == theirs.calls and len(ours.calls) > 200


def test_actions_are_checked_where_a_wrapper_checks_them() -> None:
    env = aec_to_parallel(wrappers.OrderEnforcingWrapper(wrappers.AssertOutOfBoundsWrapper(Turns())))
    env.reset(seed=0)
    with pytest.raises(AssertionError, match="not in action space"):
        step_parallel(env, dict.fromkeys(AGENTS, 4))
    unchecked = aec_to_parallel(wrappers.OrderEnforcingWrapper(Turns()))
    unchecked.reset(seed=0)
    step_parallel(unchecked, dict.fromkeys(AGENTS, 4))


def test_wrappers_that_only_check_are_left_out_of_turns() -> None:
    one, other = (ran(env_fn, RandomPolicy(), 2, episodes=8) for env_fn in (tictactoe.env, tictactoe.raw_env))
    assert one.fingerprint == other.fingerprint
    probe = RecordProbe(tictactoe.env(), probe_agents(tictactoe.env))
    probe.reset(seed=0)
    assert type(probe.unit.copy.inner) is tictactoe.raw_env  # type: ignore[attr-defined]
