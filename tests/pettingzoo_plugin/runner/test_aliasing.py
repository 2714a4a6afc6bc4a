"""Environments that use their arrays again, keep what they are given and change it: the runner gives what a plain loop gives."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from aliasing_envs import ACTIONS, OBSERVATIONS, Hoarders, Players, answer
from every_other import in_turn
from runner_envs import Herd, mlp, ran

from reactor_pettingzoo import MultiAgentRunner, RandomPolicy

# Threads cannot share what they write into; processes have one each.
PLACES: list[dict[str, Any]] = [
    {"executor": "inline"},
    {"executor": "threads", "workers": 2},
    {"executor": "processes", "workers": 2},
]
HABITS: list[dict[str, Any]] = [
    {"shared": shared, "views": views, "observations": seen, "actions": done, "masks": masks}
    for shared, views, (seen, done), masks in product((True, False), (True, False), product(OBSERVATIONS, ACTIONS), (False, True))
    if done == "discrete" or not masks
]
Episode = tuple[dict[str, float], dict[str, int]]


class ByRow:
    """A policy whose answer for a row depends on that row alone. What it is given is its own, too."""

    def __init__(self, space: Any) -> None:
        self.space = space

    def __call__(self, observations: Any, masks: Any = None) -> Any:
        parts = observations if isinstance(observations, dict) else {"": observations}
        actions = []
        for row in range(len(next(iter(parts.values())))):
            seen = {key: array[row] for key, array in parts.items()}
            actions.append(answer(self.space, seen.get("", seen), None if masks is None else masks[row]))
        for array in (*parts.values(), *([] if masks is None else [masks])):
            array[...] = 0
        return np.array(actions)


def plain(env: Any, seed: int, episodes: int) -> list[Episode]:
    """Episodes of one environment by itself; agents are given copies."""
    played = []
    for number in range(episodes):
        observations, infos = env.reset(seed=None if number else seed)
        returns = dict.fromkeys(env.agents, 0.0)
        lengths = dict.fromkeys(env.agents, 0)
        while env.agents:
            actions = {a: answer(env.action_space(a), observations[a], infos[a].get("action_mask")) for a in env.agents}
            for agent in env.agents:
                lengths[agent] = lengths.get(agent, 0) + 1
            observations, rewards, _, _, infos = env.step(actions)
            for agent, reward in rewards.items():
                returns[agent] = returns.get(agent, 0.0) + float(np.asarray(reward).item())
                lengths.setdefault(agent, 0)
        played.append((returns, lengths))
    return played


def plain_turns(env: Any, seed: int, episodes: int) -> list[Episode]:
    """The same for agents that take turns."""
    played = []
    for number in range(episodes):
        env.reset(seed=None if number else seed)
        returns, lengths = dict.fromkeys(env.agents, 0.0), dict.fromkeys(env.agents, 0)
        for agent in env.agent_iter():
            if env.terminations[agent]:
                env.step(None)
                continue
            seen, mask = env.observe(agent), env.infos[agent].get("action_mask")
            env.step(answer(env.action_space(agent), seen, mask))
            lengths[agent] += 1
            for one, reward in env.rewards.items():
                returns[one] += float(np.asarray(reward).item())
        played.append((returns, lengths))
    return played


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Hoarders, Players])
@pytest.mark.parametrize("chunk", range(6))
def test_as_a_plain_loop(kind: Any, chunk: int) -> None:
    for number, habits in list(enumerate(HABITS))[chunk::6]:
        make = partial(kind, **habits)
        loop = plain if kind is Hoarders else plain_turns
        wanted = [loop(make(), 7 + copy, 3) for copy in range(4)]
        space = ACTIONS[habits["actions"]]
        prints = set()
        for place in (PLACES[0], PLACES[2 if habits["shared"] else 1 + number % 2]):
            report = ran(make, {"all": ByRow(space)}, 4, 7, record=number % 2 == 0, episodes=12, **place)
            found: list[list[Episode]] = [[], [], [], []]
            for one in report.episodes:
                found[one.copy].append((dict(one.returns), dict(one.lengths)))
            assert found == wanted, (habits, place)
            prints.add(report.fingerprint)
        assert len(prints) == 1


@pytest.mark.parametrize("policy", [mlp(0, 3, 4), RandomPolicy()], ids=["network", "random"])
@in_turn("masks", [False, True], kept=1)
def test_policies_that_workers_ask_themselves(policy: Any, masks: bool) -> None:
    make = partial(Hoarders, shared=True, views=True, observations="box", actions="discrete", masks=masks)
    reports = [
        ran(make, policy, 5, 3, steps=5 * 90, record=record, **place)
        for place in (PLACES[0], *PLACES[2:])
        for record in (False, True)
    ]
    assert len({report.fingerprint for report in reports}) == 1
    alone = [ran(partial(Hoarders, **(make.keywords | {"shared": False})), policy, 5, 3, steps=5 * 90, record=False)]
    assert alone[0].fingerprint == reports[0].fingerprint


@pytest.mark.parametrize(("policy", "most"), [(ByRow(ACTIONS["box"]), 0.75), (RandomPolicy(), 1)], ids=["caller", "workers"])
def test_what_was_seen_is_kept_as_it_was(policy: Any, most: float) -> None:
    make = partial(Hoarders, shared=True, views=False, observations="box", actions="box", masks=False)
    shared, own = (
        ran(partial(Hoarders, **(make.keywords | {"shared": shared})), {"all": policy}, 3, steps=60).trajectories
        for shared in (True, False)
    )
    assert shared.keys() == own.keys()
    for name, array in own.items():
        assert np.array_equal(shared[name], array), name
    assert np.abs(own["actions.0"]).max() <= most  # the environment doubles those that it is given


class Drawn(Herd):
    """Draws every picture into the same array."""

    canvas = np.zeros((8, 8, 3), np.uint8)

    def render(self) -> Any:
        self.canvas.fill(20 * self.t)
        return self.canvas


def test_pictures_that_are_drawn_into_one_array(tmp_path: Any) -> None:
    frames = []
    for kind in (Herd, Drawn):
        with MultiAgentRunner(partial(kind, render_mode="rgb_array"), RandomPolicy(), executor="inline") as runner:
            runner.render(tmp_path / f"{kind.__name__}.gif", seed=3)
        frames.append((tmp_path / f"{kind.__name__}.gif").read_bytes())
    assert frames[0] == frames[1]
