"""What the runner takes as observations, and agents that have ended and stay."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from aliasing_envs import Players
from gymnasium import spaces
from pettingzoo.utils.conversions import aec_to_parallel
from pettingzoo.utils.wrappers import OrderEnforcingWrapper
from runner_envs import BOX, Herd, Still, message, ran
from torch import nn

from reactor_pettingzoo import ParallelVectorEnv, RandomPolicy
from reactor_pettingzoo.copies import step_parallel

TWO = spaces.Box(-9, 9, (2,), np.float32)


def sees(space: Any, seen: Any, steps: int = 6, together: bool = True, usual: Callable[[], Any] | None = None) -> Any:
    """What is recorded of an environment that shows one thing at its second step, and something right at the others."""
    usual = usual or space.sample

    class Shows(Still):
        def observation_space(self, agent: str) -> Any:
            return space

        def _told(self, what: Any) -> Any:
            if what is self.sight:
                what = seen if self.t == 2 else usual()
            return super()._told(what)

    class Turns(Players):
        def observation_space(self, agent: str) -> Any:
            return space

        def observe(self, agent: str) -> Any:
            return seen if self.t == 2 else usual()

    turns = partial(Turns, shared=False, views=False, observations="box", actions="discrete", masks=False)
    return ran(Shows if together else turns, RandomPolicy(), 2, steps=2 * steps).trajectories


WRONG: dict[str, tuple[Any, Any, type[Exception]]] = {
    "one for many": (BOX, np.ones(1, np.float32), ValueError),
    "a number": (TWO, 3.0, ValueError),
    "a row for rows": (spaces.Box(-9, 9, (3, 4), np.float32), np.ones((1, 4), np.float32), ValueError),
    "a column": (TWO, np.ones((2, 1), np.float32), ValueError),
    "fractions for bytes": (spaces.Box(0, 255, (2,), np.uint8), np.full(2, 300.7), TypeError),
    "fractions for integers": (spaces.Box(-9, 9, (2,), np.int64), np.full(2, 1.9), TypeError),
    "signs for bytes": (spaces.Box(0, 255, (2,), np.uint8), np.full(2, 30), TypeError),
    "integers that are too large": (spaces.Box(-9, 9, (2,), np.int8), np.full(2, 300), ValueError),
    "complex": (TWO, np.full(2, 1 + 2j), TypeError),
    "no bits": (spaces.MultiBinary(2), np.array([2, 3]), ValueError),
    "text": (TWO, "ab", ValueError),
    "nothing": (TWO, None, ValueError),
    "a fraction for a number": (spaces.Discrete(3), 0.5, TypeError),
    "a part": (spaces.Dict(near=TWO, far=BOX), {"near": np.ones(2, np.float32), "far": np.ones(1, np.float32)}, ValueError),
}


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_observation_is_refused(name: str, together: bool) -> None:
    space, seen, kind = WRONG[name]
    with pytest.raises(kind) as caught:
        sees(space, seen, together=together)
    assert "environment 0" in message(caught.value) and "agent '" in message(caught.value)


RIGHT: dict[str, tuple[Any, Any]] = {
    "doubles": (TWO, np.array([0.5, 0.25])),
    "integers": (TWO, np.array([1, 2])),
    "a list": (TWO, [1.0, 2.0]),
    "wide integers": (spaces.Box(-9, 9, (2,), np.int8), np.array([3, -9])),
    "truths": (spaces.MultiBinary(2), np.array([True, False])),
    "a number": (spaces.Discrete(3), 2),
    "a number of another type": (spaces.Discrete(3), np.int32(2)),
    "big-endian": (TWO, np.array([1, 2], ">f4")),
    "every other one": (TWO, np.array([1, 0, 2, 0], np.float32)[::2]),
}


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("name", RIGHT)
def test_what_can_be_written_without_a_loss_is_taken(name: str, together: bool) -> None:
    space, seen = RIGHT[name]
    recorded = sees(space, seen, together=together)["observations.0"][2, 0, 0]
    assert recorded.dtype == space.dtype and np.array_equal(recorded, np.asarray(seen))


def test_a_part_without_a_name() -> None:
    space = spaces.Dict({"": TWO, "far": BOX})

    def policy(seen: Any) -> Any:
        assert seen.keys() == {"", "far"} and seen[""].shape[1:] == (2,)
        return np.zeros(len(seen[""]), int)

    class Module(nn.Module):
        def forward(self, seen: Any) -> Any:
            return seen["far"][:, :1] + seen[""].new_zeros(len(seen[""]), 5)

    class Named(Herd):
        def _observe(self, agent: str) -> Any:
            return {"": np.full(2, self.t, np.float32), "far": np.full(4, -self.t, np.float32)}

    for asked in (policy, Module()):
        found = ran(partial(Named, observations=space), {"all": asked}, 2, steps=20).trajectories
        acted = found["acted"][..., 0]
        assert (found["observations.0."][..., 0, 0] == -found["observations.0.far"][..., 0, 0])[acted].all()


def test_a_dict_beside_a_mask() -> None:
    inner = spaces.Dict(near=TWO, far=BOX)
    space = spaces.Dict(observation=inner, action_mask=spaces.MultiBinary(5))
    mask = np.array([0, 0, 1, 0, 0], np.int8)
    seen = {"observation": {"near": np.ones(2, np.float32), "far": np.zeros(4, np.float32)}, "action_mask": mask}

    def usual() -> Any:  # a mask at random may leave nothing
        return {**space.sample(), "action_mask": np.ones(5, np.int8)}

    found = sees(space, seen, usual=usual)
    assert (found["observations.0.near"][2] == 1).all() and (found["actions.0"][2] == 2).all()


# ---------------------------------------------------------------------- agents that have ended and stay


class Undead(Players):
    """Does nothing with those that have ended."""

    metadata = {"name": "undead", "is_parallelizable": True}

    def __init__(self) -> None:
        super().__init__(shared=False, views=False, observations="box", actions="discrete", masks=False)

    def step(self, action: Any) -> None:
        if not self.terminations[self.agent_selection]:
            super().step(action)


class Wandering(Undead):
    """Gives them a turn after the other."""

    def step(self, action: Any) -> None:
        if self.terminations[self.agent_selection]:
            self.agent_selection = self.agents[1 - self.agents.index(self.agent_selection)]
        super().step(action)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", [Undead, Wandering])
def test_agents_that_have_ended_and_stay(kind: Any) -> None:
    with pytest.raises(ValueError, match="_was_dead_step") as caught:
        ran(kind, RandomPolicy(), 2, steps=60)
    assert "north" in message(caught.value) and "environment 0" in message(caught.value)


@pytest.mark.timeout(60)
@pytest.mark.filterwarnings("ignore:.* raised .*:UserWarning")
def test_agents_that_stay_in_rows() -> None:
    env = aec_to_parallel(OrderEnforcingWrapper(Undead()))
    env.reset(seed=0)
    envs = ParallelVectorEnv(lambda: OrderEnforcingWrapper(Undead()), executor="inline")
    envs.reset(seed=0)
    for step in (lambda: step_parallel(env, dict.fromkeys(env.agents, 0)), lambda: envs.step(np.zeros(2, np.int64))):
        for _ in range(3):
            step()
        with pytest.raises(ValueError, match="_was_dead_step"):
            step()
    envs.close()
