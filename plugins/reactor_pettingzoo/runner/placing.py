"""What the copies of an environment run on: chosen by what a step of a throw-away one costs. Never changes a result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from reactor_gymnasium.plugin import EnvCosts, decide, median_step
from reactor_pettingzoo.runner.copies import Copy, Together, Turns
from reactor_pettingzoo.runner.roster import MASK, EnvFn, Roster
from reactor_rl.plugin import global_random_state, tick_cost

if TYPE_CHECKING:
    from reactor_rl.plugin import ExecutorName

__all__ = ["SPIN", "choose"]

SPIN = 1e-3
"""Seconds that workers stay awake: others evaluate policies meanwhile."""


def choose(
    env_fn: EnvFn, roster: Roster, copies: int, workers: int, executor: ExecutorName, pace: int
) -> tuple[ExecutorName, int, str]:
    """The executor, the number of workers, and why.

    Args:
        env_fn: Makes one environment.
        roster: Its agents.
        copies: How many environments.
        workers: How many workers there may be.
        executor: What the user asked for.
        pace: Steps that a worker takes by itself in a tick; with 1, others ask the policies in between.
    """

    def helper_cost() -> float:
        """Seconds of a step: the way to the policies and back is as long as that to the helpers and back."""
        return tick_cost(SPIN) / pace if pace > 1 else 2.0 * tick_cost(SPIN)

    choice = decide(lambda: _costs(env_fn, roster, copies), copies, workers, executor, True, helper_cost)
    return choice.executor, choice.workers, choice.why


def _costs(env_fn: EnvFn, roster: Roster, copies: int) -> EnvCosts:
    with global_random_state():
        cost = _cost(env_fn(), roster)
    if cost is None:
        return EnvCosts(None, "the environment could not be timed")
    return EnvCosts((cost,) * copies, f"a step takes {cost * 1e6:.1f} us")


def _cost(env: Any, roster: Roster) -> float | None:
    """Seconds of a step of a throw-away copy; its actions are drawn at random, where nobody takes the time."""
    record = np.zeros((), roster.record())
    blocks = [roster.block_of(agent)[0].number for agent in roster.agents]
    kind = Turns if roster.turns else Together
    copy: Copy = kind(env, roster, record, blocks, np.zeros(len(roster.agents), np.bool_))

    def reset(seed: int | None) -> None:
        for block in roster.blocks if seed is not None else ():
            block.action_space.seed(seed)
        copy.reset(seed)
        copy.show()

    def sample() -> list[Any]:
        actions = []
        for block in roster.blocks:
            masks = record[block.field(MASK)] if block.mask else [None] * block.rows
            actions.append([_sample(block.action_space, mask) for mask in masks])
        return actions

    def step(actions: list[Any]) -> bool:
        copy.step(actions)
        copy.show()
        return copy.over

    try:
        return median_step(reset, sample, step)
    finally:
        copy.env.close()


def _sample(space: Any, mask: Any) -> Any:
    if isinstance(space, spaces.Discrete):
        return int(space.sample() if mask is None or not mask.any() else space.sample(mask))
    return space.sample()
