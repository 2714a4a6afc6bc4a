"""The state of the model, what happens in a scenario, and the pieces that all steps are made of.

A state is a tuple; a step gives it a label and the next state. Steps are as fine as the shared accesses of the code: each word,
each token, each message, both ends of each reaction. Reactions carry numbers only: for how many passes they have done their part
(`mem`, lost with a helper), and the pass that they have written last (`val`, in the arena). So a reaction that runs too early,
twice or with an old input shows.

Times are left out: a parked worker may look around at any moment (SLICE), a deadline may pass at any wait. Killing after a grace
period is left out on purpose, too: helpers must end by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from reactor_rl.runtime.executor import HelperCommand

__all__ = [
    "ABORT", "AGAIN", "CLOSES", "COMMAND", "DEATHS", "DONE", "EXEC", "FAILED", "FAULT", "FIRST", "INTERRUPTS", "MESSAGE", "MORE",
    "NEXT", "PASS", "QUIT", "REQUESTED", "RESTORES", "SAVES", "SIGNAL", "START", "STOP", "STOPPED", "TIME", "TIMEOUTS", "WAIT",
    "Notes", "Pieces", "Scenario", "State", "Steps", "ViolationError", "up",
]  # fmt: skip

START, FIRST, AGAIN = HelperCommand.START, HelperCommand.FIRST, HelperCommand.AGAIN
STOP, MESSAGE, QUIT = HelperCommand.STOP, HelperCommand.MESSAGE, HelperCommand.QUIT
COMMAND, PASS, TIME, STOPPED, FAILED, MORE, ABORT, NEXT = range(8)
"""Shared words; NEXT of worker w is at NEXT + w."""
EXEC, WAIT, SIGNAL = "exec", "wait", "signal"
REQUESTED, DONE = 1, 2
"""Values of the word STOPPED."""
NEVER = 99
FAULT = "! "
"""Begins the label of a step that is a fault: nothing may depend on its happening."""

Op = tuple[str, int]


class ViolationError(Exception):
    """The protocol has gone wrong."""


@dataclass(frozen=True)
class Scenario:
    """A program, what its reactions do, and how much may go wrong.

    Attributes:
        lists: The list of each worker, as compiled: worker 0's begins with a SIGNAL for each helper, a helper's with a WAIT.
        before: For each reaction those that it must come after.
        home: The worker of each reaction.
        ticks: How many ticks the user wants.
        again, fails, stops: Pairs of a reaction and the pass, counted from 1 with the startup, in which it asks for another
            microstep, raises, or requests a stop.
        due: For each reaction the ticks at which it has something to do, each with the tick at which that becomes known;
            ``None``: at every tick.
        deaths, interrupts, timeouts: How many helpers die, how often Ctrl-C is pressed and a wait times out, at any moment.
        closes: How often another thread closes the run, at any moment.
        saves: How often the state of all helpers is saved at the end of a pass.
        restore: The tick before which a snapshot is taken, and the one before which it is restored, once.
        recover: Whether helpers that die are replaced.
        broken: What is wrong with the protocol; empty for the real one.
    """

    lists: tuple[tuple[Op, ...], ...]
    before: tuple[tuple[int, ...], ...]
    home: tuple[int, ...]
    ticks: int = 2
    again: frozenset[tuple[int, int]] = frozenset()
    fails: frozenset[tuple[int, int]] = frozenset()
    stops: frozenset[tuple[int, int]] = frozenset()
    due: tuple[tuple[tuple[int, int], ...] | None, ...] = ()
    deaths: int = 0
    interrupts: int = 0
    timeouts: int = 0
    closes: int = 0
    saves: int = 0
    restore: tuple[int, int] | None = None
    recover: bool = False
    broken: str = ""


class Notes(NamedTuple):
    """The caller's own memory.

    Attributes:
        tick, number: The coming or running tick, and the number of the pass.
        base: The number less the passes that count: those of what was restored, and since.
        known: The passes that the log of inputs has.
        given, taken: Tokens of this pass, by helper.
        phase: What the caller is doing: "start", "tick", "stop" (a reaction requests it), "last tick" and "close" (in close()).
        died: For each worker when it died last: the pass and the number of questions asked by then.
        questions, question: How many questions have been asked, and the last one.
        saved: The snapshot: its passes and its tick.
    """

    tick: int
    number: int
    base: int
    known: int
    given: tuple[int, ...]
    taken: tuple[int, ...]
    phase: str
    died: tuple[Any, ...]
    questions: int = 0
    question: str = ""
    saved: tuple[int, int] | None = None


class State(NamedTuple):
    """Everything, between two steps.

    Attributes:
        ch: Tokens in each channel.
        w: The words.
        mem, val, run: By reaction, passes done (-1: lost) and the pass last written (-1: torn); those that are running.
        c: Where the caller is, with what it needs there.
        h: Where each helper is, its pass, its place in the list, and its tick (-1: not a tick's first pass).
        q: For each helper the requests and the replies in its pipe.
        k: The caller's notes.
        b: How many deaths, interrupts, timeouts, closes, saves and restores there may still be.
        x: Where the other thread is that closes the run, ``None`` before.
        u: Helpers to which the caller has only the channel of their dead predecessor, in a broken protocol.
    """

    ch: tuple[int, ...]
    w: tuple[int, ...]
    mem: tuple[int, ...]
    val: tuple[int, ...]
    run: frozenset[int]
    c: tuple[Any, ...]
    h: tuple[tuple[Any, ...], ...]
    q: tuple[tuple[Any, ...], ...]
    k: Notes
    b: tuple[int, ...]
    x: tuple[Any, ...] | None = None
    u: frozenset[int] = frozenset()


DEATHS, INTERRUPTS, TIMEOUTS, CLOSES, SAVES, RESTORES = range(6)

Steps = Iterator[tuple[str, State]]


def up(values: tuple[Any, ...], index: int, value: Any) -> tuple[Any, ...]:
    """Return the tuple with another value in one place."""
    return (*values[:index], value, *values[index + 1 :])


class Pieces:
    """Pieces of the steps of the caller, of helpers and of other threads."""

    def __init__(self, scenario: Scenario) -> None:
        self.sc, self.broken = scenario, scenario.broken
        lists = scenario.lists
        self.n = n = len(lists)
        self.helpers = range(1, n)
        self.pairs = [(a, b) for a in range(n) for b in range(n) if a != b]
        self.at = {pair: index for index, pair in enumerate(self.pairs)}
        assert all(op[0] == SIGNAL for op in lists[0][: n - 1]) and all(lists[h][0] == (WAIT, 0) for h in self.helpers)
        # What begins a pass is not taken from the lists: begin() gives the tokens, and a helper waits for its command.
        self.ops = [lists[0][n - 1 :], *(lists[h][1:] for h in self.helpers)]
        after: list[set[int]] = [set() for _ in scenario.before]
        for reaction, earlier in enumerate(scenario.before):
            for one in earlier:
                after[one].add(reaction)
        self.near = [set(scenario.before[r]) | after[r] for r in range(len(after))]
        self.of = [tuple(r for r, home in enumerate(scenario.home) if home == w) for w in range(n)]
        signals = [(a, op[1]) for a, ops in enumerate(lists) for op in ops if op[0] == SIGNAL]
        self.alone = all(0 in pair and signals.count(pair) == 1 for pair in signals)  # whether a dead helper is replaced alone

    def initial(self) -> State:
        """The state before the startup reactions."""
        sc, n = self.sc, self.n
        zero, reactions = (0,) * n, (0,) * len(sc.home)
        words = (0,) * NEXT + tuple(self.next_of(worker, -1) for worker in range(n))
        notes = Notes(0, 1, 0, 0, zero, zero, "start", (None,) * n)
        budget = (sc.deaths, sc.interrupts, sc.timeouts, sc.closes, sc.saves, int(sc.restore is not None))
        helpers = (("s", 0, 0, -1),) * (n - 1)
        pipes: tuple[tuple[Any, ...], ...] = (((), ()),) * (n - 1)
        return State((0,) * len(self.pairs), words, reactions, reactions, frozenset(), ("b", START), helpers, pipes, notes, budget)

    # ------------------------------------------------------------------ tokens and words

    def give(self, s: State, a: int, b: int) -> State:
        if a == 0 and b in s.u:
            return s  # into a channel that nobody looks at any more
        i = self.at[a, b]
        return s._replace(ch=up(s.ch, i, s.ch[i] + 1))

    def refuse(self, s: State) -> State:
        """No helper is started from now on, and each has a token to quit, also one that was started a moment ago."""
        if self.broken != "who is started meanwhile is not told to quit":
            for h in self.helpers[: -1 if self.broken == "no token at the end" else None]:
                s = self.give(s, 0, h)
        return s

    def tokens(self, s: State, a: int, b: int) -> int:
        return s.ch[self.at[a, b]]

    def take(self, s: State, a: int, b: int) -> State:
        i = self.at[a, b]
        return s._replace(ch=up(s.ch, i, s.ch[i] - 1))

    def write(self, s: State, word: int, value: int) -> State:
        return s if s.w[word] == value else s._replace(w=up(s.w, word, value))

    def ended(self, s: State) -> list[int]:
        """The helpers whose processes have ended, for whatever reason."""
        return [h for h in self.helpers if s.h[h - 1][0] in ("dead", "gone")]

    # ------------------------------------------------------------------ reactions

    def next_of(self, worker: int, time: int, begins: bool = False) -> int:
        """When a worker has something to do next, as far as it knows that at the end, or at the beginning, of tick ``time``."""
        due = self.sc.due
        if not due:
            return 0
        found = [NEVER]
        for r in self.of[worker]:
            if (dates := due[r]) is None:
                return 0
            found += [date for date, known in dates if known <= time - begins and time < date]
        return min(found)

    def is_due(self, r: int, time: int) -> bool:
        """Whether a reaction has something to do at a tick; startup, shutdown and further microsteps have always."""
        due = self.sc.due
        return time < 0 or not due or (dates := due[r]) is None or any(date == time for date, _ in dates)

    def begin_exec(self, s: State, r: int, p: int) -> State:
        """A reaction begins in pass ``p``."""
        for other in self.near[r] & s.run:
            raise ViolationError(f"reactions {r} and {other} run at the same time")
        for e in self.sc.before[r]:
            if s.val[e] != p:
                raise ViolationError(f"reaction {r} of pass {p} reads what {e} wrote in pass {s.val[e]}")
        if s.mem[r] != p - s.k.base - 1:
            raise ViolationError(f"reaction {r} runs in pass {p - s.k.base} having done its part in {s.mem[r]}")
        return s._replace(run=s.run | {r}, val=up(s.val, r, -1))

    def end_exec(self, s: State, r: int, p: int, time: int) -> State:
        """A reaction ends in pass ``p``, of tick ``time`` or none (-1)."""
        sc, n = self.sc, p - s.k.base
        s = self.skip_exec(s, r, p)._replace(run=s.run - {r})
        if (r, n) in sc.again:
            s = self.write(s, MORE, p)
        if (r, n) in sc.fails:
            s = self.write(s, FAILED, 1)
        if (r, n) in sc.stops and s.w[STOPPED] == 0:
            s = self.write(s, STOPPED, REQUESTED)
        if sc.due and time >= 0 and self.broken != "NEXT is written after the last signal":
            s = self.write(s, NEXT + sc.home[r], self.next_of(sc.home[r], time))
        return s

    def skip_exec(self, s: State, r: int, p: int) -> State:
        """A reaction that is not triggered has done its part of pass ``p``."""
        return s._replace(val=up(s.val, r, p), mem=up(s.mem, r, p - s.k.base))

    def remember(self, s: State, workers: tuple[int, ...], passes: int) -> tuple[int, ...]:
        """The memory of reactions, with that of some workers after so many passes."""
        return tuple(passes if home in workers else m for home, m in zip(self.sc.home, s.mem, strict=True))

    def failed(self, s: State, worker: int) -> bool:
        """Whether a worker holds a failure of a reaction in the last pass."""
        return any((r, s.mem[r]) in self.sc.fails for r in self.of[worker])

    # ------------------------------------------------------------------ the caller's memory

    def note(self, s: State, **changed: Any) -> State:
        return s._replace(k=s.k._replace(**changed))

    def spend(self, s: State, what: int) -> State:
        return s._replace(b=up(s.b, what, s.b[what] - 1))

    def raised(self, s: State) -> State:
        """An error has ended the run: the user closes it, or another thread does so already."""
        return s._replace(c=("left",) if s.x is not None else ("d0",))
