"""A tick on any number of cores, on paper: the compiled schedule is walked through op by op, each with the time that it takes.

The lists of WAIT, EXEC and SIGNAL are the real ones of :mod:`reactor_rl.schedule`; what an op costs was measured. Every worker has
a core of its own. What cores share (memory, caches, the clock) is not in it, so what comes out is a bound.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reactor_rl.schedule import Exec, Op, Signal, Wait

__all__ = ["Costs", "Tick", "Work", "tree", "walk", "with_work"]

TICKS = 4
"""Ticks that are walked through. The last one counts: it begins with everybody where a tick leaves them."""


@dataclass(frozen=True)
class Costs:
    """What the ops of a list cost, in seconds.

    Attributes:
        signal: A SIGNAL to a worker that spins or is busy.
        wake: A SIGNAL to a worker that is parked.
        wait: A WAIT whose token is there.
        hop: From the end of a SIGNAL until a worker that spins goes on.
        rise: From the end of a SIGNAL until a worker that is parked goes on.
        begin: What a helper does at a tick besides its list.
        spin: How long a worker spins before it parks.
    """

    signal: float
    wake: float
    wait: float
    hop: float
    rise: float
    begin: float
    spin: float


@dataclass(frozen=True)
class Work:
    """What a worker does besides its reactions, for some seconds."""

    seconds: float


@dataclass(frozen=True)
class Tick:
    """What came of a tick.

    Attributes:
        seconds: How long it takes.
        own: For how much of that the caller is at what nobody shares with it: its work, its signals, its waits.
    """

    seconds: float
    own: float


Lists = Sequence[Sequence[Op | Work]]
"""What each worker does in a tick; worker 0 is the caller."""


def walk(lists: Lists, reaction: Callable[[int], float], costs: Costs) -> Tick:
    """Walk through ticks of a schedule, the worker that is behind the others first.

    Args:
        lists: Of each worker.
        reaction: Seconds of a reaction, by its index.
        costs: Of everything else.
    """
    at, ticks = [0] * len(lists), [0] * len(lists)
    waiting: dict[int, tuple[int, float]] = {}  # who waits: for whom, and since when
    tokens: defaultdict[tuple[int, int], deque[float]] = defaultdict(deque)
    own, marks = 0.0, [(0.0, 0.0)]
    ready = [(0.0, worker) for worker in range(len(lists))]
    while ready:
        now, worker = heapq.heappop(ready)
        if at[worker] == len(lists[worker]):
            if worker == 0:
                marks.append((now, own))
            at[worker], ticks[worker] = 0, ticks[worker] + 1
            if ticks[worker] == TICKS:
                continue
        op, began = lists[worker][at[worker]], now
        match op:
            case Exec():
                now += reaction(op.reaction)
            case Work():
                now += op.seconds
            case Signal():
                source, since = waiting.get(op.worker, (-1, 0.0))
                parked = source == worker and now - since > costs.spin
                now += costs.wake if parked else costs.signal
                if source == worker:
                    del waiting[op.worker]
                    at[op.worker] += 1
                    heapq.heappush(ready, (now + (costs.rise if parked else costs.hop), op.worker))
                else:
                    tokens[worker, op.worker].append(now)
            case Wait():
                there = tokens[op.worker, worker]
                if not there:
                    waiting[worker] = (op.worker, now)
                    continue
                now = max(now, there.popleft()) + costs.wait
        if worker == 0 and not isinstance(op, Exec):
            own += now - began
        at[worker] += 1
        heapq.heappush(ready, (now, worker))
    (last, own_before), (end, own_after) = marks[-2:]
    return Tick(end - last, own_after - own_before)


def with_work(
    lists: Sequence[Sequence[Op]], costs: Costs, *, before: float = 0.0, within: float = 0.0, after: float = 0.0
) -> list[list[Op | Work]]:
    """Lists with what workers do besides them.

    Args:
        lists: Of a schedule.
        costs: Of which helpers' ``begin`` is put behind their first WAIT.
        before: Seconds of the caller's before its list.
        within: Seconds of the caller's once its first signals are given, while helpers are at work.
        after: Seconds of the caller's after its list.
    """
    caller, *helpers = lists
    signals = next((count for count, op in enumerate(caller) if not isinstance(op, Signal)), len(caller))
    return [
        [Work(before), *caller[:signals], Work(within), *caller[signals:], Work(after)],
        *([ops[0], Work(costs.begin), *ops[1:]] for ops in helpers),
    ]


def tree(lists: Sequence[Sequence[Op]], fan: int) -> list[list[Op]]:
    """The same with the first signals and the last waits handed down and up a tree, of which the caller is the root.

    Args:
        lists: Of a schedule in which helpers wait for the caller, do their share, and signal the caller.
        fan: How many workers each one signals.

    Raises:
        ValueError: If helpers wait for each other.
    """
    caller, *helpers = lists
    children = [range(fan * worker + 1, min(fan * (worker + 1) + 1, len(lists))) for worker in range(len(lists))]
    share = [op for op in caller if isinstance(op, Exec)]
    made: list[list[Op]] = [[*(Signal(c) for c in children[0]), *share, *(Wait(c) for c in children[0])]]
    for worker, ops in enumerate(helpers, 1):
        if [op for op in ops if not isinstance(op, Exec)] != [Wait(0), Signal(0)]:
            raise ValueError("a tree takes the place of the caller's own signals and waits, and there are others in this schedule")
        parent = (worker - 1) // fan
        below = children[worker]
        made.append([Wait(parent), *(Signal(c) for c in below), *ops[1:-1], *(Wait(c) for c in below), Signal(parent)])
    return made
