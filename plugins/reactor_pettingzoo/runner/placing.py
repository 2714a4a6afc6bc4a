"""What the copies of an environment run on: chosen by what a step of a throw-away one costs. Never changes a result."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from reactor_gymnasium.plugin import EnvCosts, decide, median_step
from reactor_pettingzoo.runner.roster import EnvFn, Roster
from reactor_pettingzoo.runner.tried_copy import TriedCopy
from reactor_rl.plugin import global_random_state, tick_cost

if TYPE_CHECKING:
    from reactor_rl.plugin import ExecutorName

__all__ = ["SPIN", "choose"]

SPIN = 1e-3
"""Seconds that workers stay awake: others evaluate policies meanwhile."""


def choose(
    env_fn: EnvFn, roster: Roster, copies: int, workers: int, executor: ExecutorName, pace: int, restarts: int
) -> tuple[ExecutorName, int, str]:
    """The executor, the number of workers, and why.

    Args:
        env_fn: Makes one environment.
        roster: Its agents.
        copies: How many environments.
        workers: How many workers there may be.
        executor: What the user asked for.
        pace: Steps that a worker takes by itself in a tick; with 1, others ask the policies in between.
        restarts: How often workers may be replaced.
    """

    def helper_cost(work: float) -> float:
        """Seconds of a step: the way to the policies and back is as long as that to the helpers and back."""
        return tick_cost(SPIN) / pace if pace > 1 else 2.0 * tick_cost(SPIN)

    choice = decide(lambda: _costs(env_fn, roster, copies), copies, workers, executor, True, helper_cost, restarts, 1e-6)
    return choice.executor, choice.workers, choice.why


def _costs(env_fn: EnvFn, roster: Roster, copies: int) -> EnvCosts:
    with global_random_state(), contextlib.closing(TriedCopy(env_fn(), roster)) as copy:

        def step(actions: list[Any]) -> bool:
            copy.act(actions)
            return copy.over

        cost = median_step(lambda seed: copy.reset(seed=seed), copy.sample, step)
    if cost is None:
        return EnvCosts(None, "the environment could not be timed")
    return EnvCosts((cost,) * copies, f"a step takes {cost * 1e6:.1f} us")
