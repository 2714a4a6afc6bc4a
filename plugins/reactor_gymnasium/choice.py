"""What the environments run on: chosen by what their steps cost. Never changes a result."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reactor_gymnasium.costs import EnvCosts
from reactor_gymnasium.placement import makespan, place
from reactor_rl.autotune import SYNC_COST

if TYPE_CHECKING:
    from reactor_rl.program import ExecutorName

__all__ = ["EnvChoice", "decide"]


@dataclass(frozen=True)
class EnvChoice:
    """Executor, number of workers, what a step of each environment costs in seconds if that is known, and why it is so."""

    executor: ExecutorName
    workers: int
    seconds: tuple[float, ...] | None
    why: str


def decide(
    costs: Callable[[], EnvCosts],
    batch_size: int,
    workers: int,
    executor: ExecutorName,
    caller_works: bool,
    sync_cost: float = SYNC_COST,
) -> EnvChoice:
    """Decide what to run on. With the GIL, threads are only used on request: Python environments hold it.

    Who names an executor has no throw-away instances stepped, and environments placed evenly.

    Args:
        costs: Times throw-away instances.
        batch_size: How many environments step together.
        workers: How many workers there may be.
        executor: What the user asked for.
        caller_works: Whether the calling thread takes its share.
        sync_cost: Seconds that a step with helpers costs beyond its share of the environments.
    """
    if executor == "inline":
        return EnvChoice("inline", 1, None, "")
    if executor != "auto":
        return EnvChoice(executor, workers, None, "")
    if workers == 1 and caller_works:
        return EnvChoice("inline", 1, None, "one worker")
    found = costs()
    parallel: ExecutorName = "processes" if getattr(sys, "_is_gil_enabled", lambda: True)() else "threads"
    seconds = found.seconds
    if seconds is None:
        return EnvChoice(parallel, workers, None, found.why)
    banks = [(lo, lo + batch_size) for lo in range(0, len(seconds), batch_size)]
    alone = sum(makespan(place(seconds, lo, hi, 1)) for lo, hi in banks)
    shared = sum(makespan(place(seconds, lo, hi, workers)) + sync_cost for lo, hi in banks)
    if caller_works and shared > 0.9 * alone:
        return EnvChoice("inline", 1, None, f"{found.why}, too little to share")
    return EnvChoice(parallel, workers, seconds, found.why)
