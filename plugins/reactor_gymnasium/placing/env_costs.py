"""What a step of each environment costs, from throw-away instances of each kind, so that unlike ones can be placed well.

Functions whose pickles are equal make environments of one kind. One that closes over a rank or a seed makes every environment a
kind of its own: that is why there is a limit on time, and why a few that cost the same stand for all.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reactor_gymnasium.placing.step_cost import step_cost
from reactor_gymnasium.vector.arguments import thrown_away
from reactor_rl.plugin import Pickled, decode, global_random_state

__all__ = ["EnvCosts", "env_costs"]

SECONDS = 1.0
ENOUGH = 8
ALIKE = 1.5
"""``ENOUGH`` kinds stand for all if they cost the same within this ratio."""


@dataclass(frozen=True)
class EnvCosts:
    """Seconds that a step of each environment takes, ``None`` if they are not known, and where they come from.

    ``infos`` is how much longer the infos of an environment take from a helper than in the caller's own process.
    """

    seconds: tuple[float, ...] | None
    why: str
    infos: float = 0.0


def env_costs(
    dummy: Any,
    encoded: Sequence[Any],
    workers: int,
    cost: Callable[[Any], float | None] | None = None,
    infos: Callable[[Any], float] | None = None,
) -> EnvCosts:
    """Time one environment of each kind; none is begun after a second. Global random generators are put back.

    What has not been timed counts as the median of what has been: kinds that there was no time for, those that cannot be made or
    stepped (which is for their construction proper to say), and functions that cannot be pickled. Those are never called,
    because a call may change what the next one makes; of the others it is a copy that is called.

    Args:
        dummy: A throw-away instance of environment 0.
        encoded: What makes each environment; see :func:`~reactor_gymnasium.vector.arguments.encoded`.
        workers: How many workers there are. For a single one nothing is timed.
        cost: Times one that is thrown away; seconds, or ``None`` if it will not be stepped. By default
            :func:`~reactor_gymnasium.placing.step_cost.step_cost`.
        infos: Times the infos of one that is thrown away; by default they are taken to cost nothing.
    """
    if workers == 1:
        return EnvCosts(None, "one worker")
    kinds = [one.data if type(one) is Pickled else id(one) for one in encoded]
    makers = dict(zip(kinds, encoded, strict=True))
    costs = _timed(dummy, list(makers.values()), cost or step_cost)
    if not costs:
        return EnvCosts(None, "the environments could not be timed")
    low, median, high = min(costs.values()), statistics.median(costs.values()), max(costs.values())
    why = f"a step takes {low * 1e6:.1f} us" + (f" to {high * 1e6:.1f} us" if len(costs) > 1 else "")
    if len(costs) < len(makers):
        why += f", timed {len(costs)} of {len(makers)} kinds"
    if _enough(costs):
        costs = {}
    by_kind = {kind: costs.get(number, median) for number, kind in enumerate(makers)}
    return EnvCosts(tuple(by_kind[kind] for kind in kinds), why, infos(dummy) if infos else 0.0)


def _timed(dummy: Any, makers: Sequence[Any], cost: Callable[[Any], float | None]) -> dict[int, float]:
    """Seconds by number of the kind, of those that could be timed; ``dummy`` is of kind 0."""
    costs: dict[int, float] = {}
    until = time.perf_counter() + SECONDS
    for number in _spread(len(makers)):
        if time.perf_counter() > until or _enough(costs):
            break
        seconds = cost(dummy) if number == 0 else _cost_of_another(makers[number], cost)
        if seconds is not None:
            costs[number] = seconds
    return costs


def _cost_of_another(maker: Any, cost: Callable[[Any], float | None]) -> float | None:
    seconds = None
    if type(maker) is Pickled:
        with global_random_state(), contextlib.suppress(Exception, SystemExit):
            env = thrown_away(decode(maker))
            try:
                seconds = cost(env)
            finally:
                env.close()
    return seconds


def _enough(costs: Mapping[int, float]) -> bool:
    return len(costs) >= ENOUGH and max(costs.values()) <= ALIKE * min(costs.values())


def _spread(n: int) -> Iterator[int]:
    """Every index below ``n``: 0, the middle, the quarters, the eighths, ..."""
    parts, seen = 1, set[int]()
    while len(seen) < n:
        for part in range(parts):
            index = n * part // parts
            if index not in seen:
                seen.add(index)
                yield index
        parts *= 2
