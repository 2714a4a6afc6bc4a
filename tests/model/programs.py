"""The programs, faults and broken protocols that are searched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from .state import EXEC, SIGNAL, WAIT, Scenario

__all__ = ["BROKEN", "FAULTS", "PROGRAMS", "Broken", "scenarios"]

Program = tuple[tuple[tuple[tuple[str, int], ...], ...], tuple[tuple[int, ...], ...], tuple[int, ...]]
"""Lists, what comes before what, and the worker of each reaction."""


def star(helpers: int, caller_works: bool = True, collector: bool = False) -> Program:
    """A vector environment: one reaction on each worker; with ``collector`` one of the caller's that reads all the others."""
    lists: list[list[tuple[str, int]]] = [[(SIGNAL, h) for h in range(1, helpers + 1)], *([(WAIT, 0)] for _ in range(helpers))]
    home: list[int] = []
    before: list[tuple[int, ...]] = []
    if caller_works:
        home.append(0)
        before.append(())
        lists[0].append((EXEC, 0))
    for h in range(1, helpers + 1):
        lists[h] += [(EXEC, len(home)), (SIGNAL, 0)]
        lists[0].append((WAIT, h))
        home.append(h)
        before.append(())
    if collector:
        lists[0].append((EXEC, len(home)))
        before.append(tuple(range(len(home))))
        home.append(0)
    return tuple(map(tuple, lists)), tuple(before), tuple(home)


def crossing() -> Program:
    """Two workers, there and back twice in a pass: a0 -> b1 -> a2 -> b3."""
    caller = ((SIGNAL, 1), (EXEC, 0), (SIGNAL, 1), (WAIT, 1), (EXEC, 2), (SIGNAL, 1), (WAIT, 1))
    helper = ((WAIT, 0), (WAIT, 0), (EXEC, 1), (SIGNAL, 0), (WAIT, 0), (EXEC, 3), (SIGNAL, 0))
    return (caller, helper), ((), (0,), (1,), (2,)), (0, 1, 0, 1)


def ring() -> Program:
    """Three workers: a0 -> b1 -> c2 -> a3; helpers wait for each other."""
    caller = ((SIGNAL, 1), (SIGNAL, 2), (EXEC, 0), (SIGNAL, 1), (WAIT, 2), (EXEC, 3), (WAIT, 1))
    one = ((WAIT, 0), (WAIT, 0), (EXEC, 1), (SIGNAL, 2), (SIGNAL, 0))
    two = ((WAIT, 0), (WAIT, 1), (EXEC, 2), (SIGNAL, 0))
    return (caller, one, two), ((), (0,), (1,), (2,)), (0, 1, 2, 0)


PROGRAMS: dict[str, Program] = {
    "star 2": star(1),
    "star 2, collector": star(1, collector=True),
    "crossing 2": crossing(),
    "star 3": star(2),
    "star 3, collector": star(2, collector=True),
    "ring 3": ring(),
}

FAULTS: dict[str, dict[str, Any]] = {
    "nothing wrong": {},
    "Ctrl-C twice": {"interrupts": 2},
    "time-outs": {"timeouts": 2},
    "time-out, Ctrl-C": {"timeouts": 1, "interrupts": 1},
    "close by another thread": {"closes": 1},
    "close by another thread, Ctrl-C": {"closes": 1, "interrupts": 1},
    "death": {"deaths": 1},
    "death, Ctrl-C": {"deaths": 1, "interrupts": 1},
    "death, close by another thread": {"deaths": 1, "closes": 1},
    "death, replaced": {"deaths": 1, "recover": True},
    "2 deaths, replaced": {"deaths": 2, "recover": True},
    "death, replaced, time-out": {"deaths": 1, "recover": True, "timeouts": 1},
    "death, replaced, Ctrl-C": {"deaths": 1, "recover": True, "interrupts": 1},
    "death, replaced, close by another thread": {"deaths": 1, "recover": True, "closes": 1},
    "death, replaced, saved": {"deaths": 1, "recover": True, "saves": 1},
    "2 deaths, replaced, saved": {"deaths": 2, "recover": True, "saves": 1},
    "death, replaced, saved, Ctrl-C": {"deaths": 1, "recover": True, "saves": 1, "interrupts": 1},
    "death, replaced, restored": {"deaths": 1, "recover": True, "restore": (1, 2)},
    "restored, close by another thread": {"restore": (1, 2), "closes": 1, "recover": True},
    "death, replaced, skipped ticks": {"deaths": 1, "recover": True, "skips": True},
    "skipped ticks, restored": {"restore": (1, 4), "skips": True},
}
"""Things that may go wrong, and ways in which a run is used."""


def scenarios(name: str, ticks: int = 2, skips: bool = False, **more: Any) -> Iterator[tuple[str, Scenario]]:
    """Scenarios of a program: plain, and with a microstep, a failure or a request to stop in the first, second and last reaction.

    Args:
        name: Of the program.
        ticks: How many ticks the user wants.
        skips: Whether the last reaction has nothing to do at most ticks, and all others only at tick 0.
        more: Of the scenarios.
    """
    lists, before, home = PROGRAMS[name]
    last = len(home) - 1
    if skips:
        for known in (0, -1):
            due = ((0, -1),) * 1
            later = (*due, (2, known), (3, known))
            yield f"due later, known at {known}", Scenario(lists, before, home, 5, due=(due,) * last + (later,), **more)
            yield f"first due later, known at {known}", Scenario(lists, before, home, 5, due=(later, *(due,) * last), **more)
        return
    yield "plain", Scenario(lists, before, home, ticks, **more)
    for r in sorted({0, last, min(1, last)}):
        yield f"again {r}", Scenario(lists, before, home, ticks, again=frozenset({(r, 2)}), **more)
        yield f"fail {r}", Scenario(lists, before, home, ticks, fails=frozenset({(r, 2)}), **more)
        yield f"stop {r}", Scenario(lists, before, home, ticks, stops=frozenset({(r, 2)}), **more)
    yield "fail at start", Scenario(lists, before, home, ticks, fails=frozenset({(last, 1)}), **more)
    yield "fail at stop", Scenario(lists, before, home, ticks, fails=frozenset({(last, ticks + 2)}), **more)


class Broken(NamedTuple):
    """A protocol with a mistake.

    Attributes:
        program: The program in which it shows.
        how: What has to go wrong.
    """

    program: str
    how: dict[str, Any] = {}


_DIES: dict[str, Any] = {"deaths": 1, "recover": True}
BROKEN: dict[str, Broken] = {
    "a helper leaves out its last signal": Broken("star 3"),
    "a helper leaves out a wait for another": Broken("ring 3"),
    "a helper leaves out a wait for the caller": Broken("crossing 2"),
    "the caller leaves out a wait": Broken("star 3, collector"),
    "tokens come before the command": Broken("star 2"),
    "microsteps are forgotten": Broken("star 2"),
    "NEXT is written after the last signal": Broken("star 2", {"skips": True}),
    "no token at the end": Broken("star 2"),
    "ABORT is not looked at behind a token": Broken("crossing 2", {"interrupts": 1}),
    "ABORT is not looked at between two passes": Broken("star 2", {"closes": 1}),
    "ABORT comes after the tokens": Broken("crossing 2", {"interrupts": 1}),
    "parked helpers do not look for ABORT": Broken("ring 3", {"interrupts": 1}),
    "who waits for a reply does not look for ABORT": Broken("star 2", {"closes": 1, "recover": True, "restore": (1, 2)}),
    "who replaces helpers does not look for ABORT": Broken("ring 3", {**_DIES, "closes": 1}),
    "QUIT goes to the channels of the dead": Broken("star 2", {**_DIES, "interrupts": 1}),
    "who is started meanwhile is not told to quit": Broken("crossing 2", {**_DIES, "closes": 1}),
    "helpers are started at any time": Broken("crossing 2", {**_DIES, "closes": 1}),
    "tokens are not forgotten at the end of a pass": Broken("crossing 2", _DIES),
    "only the dead one is replaced": Broken("ring 3", _DIES),
    "the log lacks its last pass": Broken("star 2", _DIES),
    "old channels are kept": Broken("crossing 2", _DIES),
    "given tokens are not given again": Broken("crossing 2", _DIES),
    "taken tokens are not taken again": Broken("crossing 2", _DIES),
    "the question is not asked again": Broken("star 2", {**_DIES, "saves": 1}),
    "a failure that has died with its worker is looked for": Broken("star 2", _DIES),
    "restoring leaves the log": Broken("star 2", {**_DIES, "restore": (1, 2)}),
}
"""Mistakes that a search must find: the first four of lists, as the compiler of schedules makes them, the others of the runtime."""
