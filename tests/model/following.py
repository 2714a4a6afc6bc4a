"""Whether what a real run did is a run of the model.

All states are kept in which the model may be. An event is a step with its label; between two events there may be steps that leave
none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from reactor_rl import graph as graphs
from reactor_rl.runtime.channel import ControlBlock
from reactor_rl.runtime.plan import Plan
from reactor_rl.schedule import Exec, Signal, Wait

from .closer import Model
from .state import (
    AGAIN,
    COMMAND,
    EXEC,
    FIRST,
    MESSAGE,
    PASS,
    QUIT,
    SIGNAL,
    START,
    STOP,
    WAIT,
    Scenario,
    State,
    Steps,
    ViolationError,
    up,
)

__all__ = ["Followed", "follow", "scenario_of"]

Event = tuple[str, tuple[int, ...]]

_OPS = {Exec: lambda op: (EXEC, op.reaction), Signal: lambda op: (SIGNAL, op.worker), Wait: lambda op: (WAIT, op.worker)}
_WORDS = {"PASS": ControlBlock.PASS, "COMMAND": ControlBlock.COMMAND, "QUIT": ControlBlock.COMMAND, "ABORT": ControlBlock.ABORT}
_VALUES = {"PASS": PASS, "COMMAND": COMMAND, "QUIT": COMMAND}


def scenario_of(plan: Plan, recover: bool) -> Scenario:
    """A compiled program, as the model has it."""
    lists = tuple(tuple(_OPS[type(op)](op) for op in ops) for ops in plan.schedule.lists)
    before = tuple(tuple(sorted(earlier)) for earlier in graphs.build(plan.topology).before)
    return Scenario(lists, before, tuple(plan.worker_of(one.reactor) for one in plan.topology.reactions), recover=recover)


class Observed(Model):
    """The model without what a recording does not tell: which reactions are triggered, what they ask for, what the user does next.

    In the notes ``number`` is that of the last pass, ``phase`` the last command, and ``question`` says whether one came after it.
    """

    number = 0
    """Of the pass that the recording names next."""

    def begin_exec(self, s: State, r: int, p: int) -> State:
        for other in self.near[r] & s.run:
            raise ViolationError(f"reactions {r} and {other} run at the same time")
        for e in self.sc.before[r]:
            if s.val[e] != p:
                raise ViolationError(f"reaction {r} of pass {p} before {e}")
        return s._replace(run=s.run | {r})

    def end_exec(self, s: State, r: int, p: int, time: int) -> State:
        return s._replace(run=s.run - {r}, val=up(s.val, r, p))

    def skip_exec(self, s: State, r: int, p: int) -> State:
        return s._replace(val=up(s.val, r, p))

    def answer(self, s: State, worker: int, question: str) -> tuple[State, object]:
        return s, None

    def start(self, s: State, workers: tuple[int, ...]) -> State:
        s = super().start(s, workers)
        zero = (0,) * len(s.mem)
        val = tuple(0 if home in workers else value for home, value in zip(self.sc.home, s.val, strict=True))
        return s._replace(h=tuple(("s", *one[1:]) if one[0] == "new" else one for one in s.h), mem=zero, val=val)

    def give_again(self, s: State, h: int, first: bool, left: tuple[tuple[int, bool], ...]) -> State:
        return super().give_again(s, h, first, left)._replace(q=s.q)

    # ------------------------------------------------------------------ the caller's steps

    def caller_steps(self, s: State) -> Steps:
        pc = s.c[0]
        if pc == "i":
            yield from self.choices(s)
        elif pc == "q":  # questions and replies leave no event
            yield "c has asked", s._replace(c=("p", tuple(self.helpers), False))
        elif pc == "p":
            yield "c has all replies", s._replace(c=("i",))
            yield from self.look(s, s.c)
        else:
            yield from super().caller_steps(s)
            if pc == "l" and s.c[1] < len(self.ops[0]) and self.ops[0][s.c[1]][0] == EXEC:
                r = self.ops[0][s.c[1]][1]
                yield f"c skips {r}", self.skip_exec(s, r, s.k.number)._replace(c=("l", s.c[1] + 1))
        if pc in ("d3", "d4"):  # the executor tells them again
            for h in self.helpers:
                yield f"c gives {h} quit", self.give(s, 0, h)
        elif pc[0] != "d" and pc != "closed":
            yield "c gives up", s._replace(c=("d0",))

    def refuse(self, s: State) -> State:
        return s

    def choices(self, s: State) -> Steps:
        k, next_one = s.k, s.k.number + 1
        asked = k.question == "any"
        if k.phase != "stop":
            if k.phase == "tick" and not asked:
                yield "c then again", self.begin(s, AGAIN, next_one, "tick")
            # Startup and tick 0 are one pass, and restoring a snapshot begins with a later number.
            later = {self.number} if asked and self.number > next_one else set()
            for number in {next_one} | later | ({k.number} if k.phase == "start" else set()):
                yield "c then a tick", self.begin(s, FIRST, number, "tick")
                yield "c then stops", self.begin(s, STOP, number, "stop")
        for number in {k.number, max(k.number, self.number if asked else 0)}:
            asks = self.note(s, number=number, question="any", questions=k.questions + 1)
            yield "c then asks", asks._replace(c=("b", MESSAGE))

    def begin(self, s: State, command: int, number: int, phase: str) -> State:
        return self.note(s, number=number, phase=phase, question="")._replace(c=("b", command))

    def passed(self, s: State) -> State:
        for i, (a, b) in enumerate(self.pairs):
            if s.ch[i]:
                raise ViolationError(f"at the end of pass {s.k.number} there are {s.ch[i]} tokens from {a} to {b}")
        zero = (0,) * self.n
        val = (0,) * len(s.val) if s.k.phase == "start" else s.val  # tick 0 has the same number
        return self.note(s._replace(val=val), given=zero, taken=zero)._replace(c=("i",))

    # ------------------------------------------------------------------ helpers' steps

    def steps_of(self, s: State, h: int) -> Steps:
        pc, p, i, time = s.h[h - 1]
        if pc == "m":
            yield f"h{h} replies", s._replace(h=up(s.h, h - 1, ("s", 0, 0, -1)))
        elif pc == "c" and s.w[COMMAND] not in (QUIT, MESSAGE):
            yield f"h{h} reads command", s._replace(h=up(s.h, h - 1, ("r", 0, 0, -1)))
        elif pc == "l" and i < len(self.ops[h]) and self.ops[h][i][0] == EXEC:
            yield (
                f"h{h} skips {self.ops[h][i][1]}",
                self.skip_exec(s, self.ops[h][i][1], p)._replace(h=up(s.h, h - 1, (pc, p, i + 1, time))),
            )
        if pc not in ("dead", "gone", "m"):
            yield from super().steps_of(s, h)


def event_of(label: str) -> tuple[Any, ...] | None:
    """Return the event that a step leaves in a recording, or ``None``."""
    who, verb, *rest = label.split()
    me = 0 if who == "c" else int(who[1:]) if who[0] == "h" else -1
    if verb == "gives" and rest[0] != "up":
        return "give", me, int(rest[0])
    if verb == "takes":
        return "take", int(rest[0]), me
    if verb in ("begins", "ends"):
        return (verb[:-1], me, int(rest[0])) if rest[0].isdigit() else None
    if verb == "writes":
        return "wrote", rest[0]
    if label == "c has killed":
        return ("killed",)
    if label == "c starts others":
        return ("replace",)
    return ("kill", *map(int, rest[0].split(","))) if verb == "kills" else None


@dataclass
class Followed:
    """How far a recording was followed.

    Attributes:
        events: How many of its events were steps of the model.
        widest: In how many states the model may have been at most.
        why: Why the next event is no step of it; empty at the end.
    """

    events: int = 0
    widest: int = 1
    why: str = ""


class _Follower:
    def __init__(self, scenario: Scenario) -> None:
        self.model = Observed(scenario)
        first = self.model.initial()
        self.states = {self.model.note(first, number=1, phase="start")._replace(c=("b", START))}
        self.dying: frozenset[int] = frozenset()
        self.writes: Event | None = None  # the word that the caller is writing: it may have, or not
        self.why: set[str] = set()

    def steps(self, s: State, who: int) -> Steps:
        try:
            yield from self.model.caller_steps(s) if who == 0 else self.model.steps_of(s, who)
        except ViolationError as error:
            self.why.add(str(error))

    def take(self, event: Event) -> bool:
        """Take the step of an event, and return whether any state has it."""
        what, numbers = event
        self.why = set()
        if what == "die":
            self.states = {self.model.die(s, numbers[0]) for s in self.states}
            return True
        who = {"give": 0, "take": 1, "begin": 0, "end": 0}.get(what)
        who = 0 if who is None else numbers[who]
        if who in self.dying:  # until it is dead, and then all that it did is forgotten
            return True
        if what == "write":
            self.model.number = numbers[1] if numbers[0] == ControlBlock.PASS else 0
            written = self.found(event, 0)
            self.writes = event
            self.states |= written
            return bool(written)
        if what == "wrote":
            self.writes = None
            value = [(_VALUES[name], numbers[1]) for name, word in _WORDS.items() if word == numbers[0] and name in _VALUES][:1]
            done = {s for s in self.states if self.has_written(s, numbers[0], value)}
            self.states = self.read_early(done)
            return bool(done)
        found = self.found(event, who)
        self.dying = frozenset(numbers) if what == "kill" else frozenset() if what == "killed" else self.dying
        self.states = found
        if self.writes is not None:
            self.states |= self.found(self.writes, 0)
        self.states = self.read_early(self.states)
        return bool(self.states)

    def has_written(self, s: State, word: int, value: Sequence[tuple[int, int]]) -> bool:
        """Whether the caller has done it, and nothing since."""
        at = {ControlBlock.PASS: ("b1",), ControlBlock.COMMAND: ("b2", "d2"), ControlBlock.ABORT: ("d1",)}[word]
        return s.c[0] in at and all(s.w[one] == number for one, number in value)

    def found(self, event: Event, who: int) -> set[State]:
        """The states behind the step of an event, with any steps before it that leave none."""
        what, numbers = event
        found: set[State] = set()
        seen, todo = set(self.states), list(self.states)
        while todo:
            s = todo.pop()
            for label, after in self.steps(s, who):
                left = event_of(label)
                if left is None:
                    if after not in seen:
                        seen.add(after)
                        todo.append(after)
                elif left[0] == "wrote":
                    value = [(_VALUES[left[1]], numbers[1])] if left[1] in _VALUES and what == "write" else []
                    if what == "write" and _WORDS[left[1]] == numbers[0] and all(after.w[one] == number for one, number in value):
                        found.add(after)
                elif left in ((what, *numbers), (what,)):
                    found.add(after)
        return found

    def read_early(self, found: set[State]) -> set[State]:
        """Add what helpers may have read before the caller writes the next word."""
        todo, found = list(found), set(found)
        while todo:
            s = todo.pop()
            for h, (pc, *_) in enumerate(s.h, 1):
                if pc in ("c", "r"):
                    for label, after in self.steps(s, h):
                        if event_of(label) is None and after not in found:
                            found.add(after)
                            todo.append(after)
        return found


def follow(scenario: Scenario, events: Iterable[Event]) -> Followed:
    """Follow a recording with all states that the model may be in."""
    follower, followed = _Follower(scenario), Followed()
    for event in events:
        before = follower.states
        if not follower.take(event):
            where = sorted({(s.c[:2], tuple(one[0] for one in s.h)) for s in before}, key=str)[:3]
            followed.why = f"event {followed.events}, {event}, is no step; {'; '.join(sorted(follower.why))} {where}"
            return followed
        followed.events += 1
        followed.widest = max(followed.widest, len(follower.states))
    return followed
