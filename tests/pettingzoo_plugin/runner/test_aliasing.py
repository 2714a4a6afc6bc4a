"""Environments that use their arrays again, keep what they are given and change it: policies and records do not notice."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from aliasing_envs import Hoarders
from every_other import in_turn
from places import PLACES
from runner_envs import Herd, mlp, ran

from reactor_pettingzoo import MultiAgentRunner, RandomPolicy

# Threads cannot share what they write into; processes have one each.


@pytest.mark.slow
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


def erasing(observations: Any) -> Any:
    """What it is given is its own, too."""
    actions = np.sign(observations[:, :2])
    observations[...] = 0
    return actions


def test_what_was_seen_is_kept_as_it_was() -> None:
    make = partial(Hoarders, views=False, observations="box", actions="box", masks=False)
    shared, own = (ran(partial(make, shared=shared), erasing, 3, steps=60).trajectories for shared in (True, False))
    for name, array in own.items():
        assert np.array_equal(shared[name], array), name
    assert own["observations.0"].any() and np.abs(own["actions.0"]).max() == 1  # the environment doubles those that it is given


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
