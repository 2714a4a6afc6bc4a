"""What the environments run on: chosen by what their steps cost. Never changes a result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reactor_gymnasium.placing.env_costs import EnvCosts
from reactor_gymnasium.placing.placement import makespan, place
from reactor_rl.plugin import DAEMONIC, may_start_processes, parallel_executor, tick_cost

if TYPE_CHECKING:
    from reactor_rl.plugin import ExecutorName

__all__ = ["AWAY", "EnvChoice", "decide", "late_helpers"]


WORTH_IT = 0.9
"""With helpers a step must take less than this share of the time: costs are not known any better."""
LEAST, CERTAIN = 40e-6, 20e-3
"""The cost of helpers is not measured where they would save fewer seconds of a step than the first, or more than the second: to
wake a helper takes longer than the first, and beside other programs a step may take some time slices longer.
"""
AWAY = 1.5e-3
"""Seconds for which a policy may well be evaluated between two steps: helpers have gone to sleep meanwhile."""


@dataclass(frozen=True)
class EnvChoice:
    """Executor, number of workers, what a step of each environment costs in seconds if that is known, and why it is so."""

    executor: ExecutorName
    workers: int
    seconds: tuple[float, ...] | None
    why: str


def late_helpers(context: str | None, spin: float | None = None) -> Callable[[float], float]:
    """Measures what helpers cost in a step of a caller who was away before it, by the seconds that the share of each takes.

    Args:
        context: How helper processes start.
        spin: Seconds that they wait awake.
    """
    return lambda work: tick_cost(spin, away=AWAY, context=context, work=work)


def decide(
    costs: Callable[[], EnvCosts],
    batch_size: int,
    workers: int,
    executor: ExecutorName,
    caller_works: bool,
    helper_cost: Callable[[float], float],
    restarts: int = 0,
    least: float = LEAST,
) -> EnvChoice:
    """Decide what to run on. With the GIL, threads are only used on request: Python environments hold it.

    Who names an executor has no throw-away instances stepped, and environments placed evenly.

    Args:
        costs: Times throw-away instances.
        batch_size: How many environments step together.
        workers: How many workers there may be.
        executor: What the user asked for.
        caller_works: Whether the calling thread takes its share.
        helper_cost: Measures the seconds that a step with helpers costs beyond its share of the environments, which takes so many
            seconds; see :func:`late_helpers`.
        restarts: How often workers may be replaced.
        least: Seconds of a step that helpers cost in any case.
    """
    if executor == "inline":
        return EnvChoice("inline", 1, None, "")
    if executor != "auto":
        return EnvChoice(executor, workers, None, "")
    if workers == 1 and caller_works:
        return EnvChoice("inline", 1, None, "one worker")
    parallel = parallel_executor(replaced=bool(restarts))
    if parallel == "processes" and not may_start_processes():
        return EnvChoice("inline", 1, None, DAEMONIC)
    measured = costs()
    seconds = measured.seconds
    if seconds is None:
        return EnvChoice(parallel, workers, None, measured.why)
    batches = [(lo, lo + batch_size) for lo in range(0, len(seconds), batch_size)]
    alone = sum(makespan(place(seconds, lo, hi, 1)) for lo, hi in batches)
    shared = sum(makespan(place(seconds, lo, hi, workers)) for lo, hi in batches)
    gain = (WORTH_IT * alone - shared) / len(batches) - measured.infos * batch_size  # of a step
    if caller_works and gain < CERTAIN and (gain < least or gain < helper_cost(shared / len(batches))):
        return EnvChoice("inline", 1, None, f"{measured.why}, too little to share")
    return EnvChoice(parallel, workers, seconds, measured.why)
