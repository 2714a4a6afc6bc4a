"""The steps of the caller: passes, microsteps, questions, snapshots, what is skipped, time-outs, Ctrl-C, and the end of the run."""

from __future__ import annotations

from .state import (
    ABORT,
    AGAIN,
    COMMAND,
    DONE,
    EXEC,
    FAILED,
    FAULT,
    FIRST,
    INTERRUPTS,
    MESSAGE,
    MORE,
    NEXT,
    PASS,
    QUIT,
    REQUESTED,
    RESTORES,
    SAVES,
    SIGNAL,
    STOP,
    STOPPED,
    TIME,
    TIMEOUTS,
    Pieces,
    State,
    Steps,
    ViolationError,
    up,
)

__all__ = ["CallerSteps"]

JUMP = 3
"""How far restoring a snapshot moves the number of the pass."""


class CallerSteps(Pieces):
    """The caller is idle between two calls of the user ("i"), or the run is over but not closed ("o"). It begins a pass ("b", "b1",
    "b2"), goes through its list ("l") and its reactions ("x"), and decides what comes next ("e"); it asks ("q") and hears ("p"); a
    tick has timed out ("t"); it replaces helpers ("v0" to "v4"); it tears the run down ("d0" to "d4")."""

    def look(self, s: State, back: tuple[object, ...]) -> Steps:
        raise NotImplementedError

    def recovery_steps(self, s: State) -> Steps:
        raise NotImplementedError

    def answer(self, s: State, worker: int, question: str) -> tuple[State, object]:
        raise NotImplementedError

    def caller_steps(self, s: State) -> Steps:
        pc = s.c[0]
        if pc in ("closed", "left"):
            return
        if s.b[INTERRUPTS]:  # the run is torn down, or its tearing down begins anew
            yield f"{FAULT}Ctrl-C", self.raised(self.spend(s, INTERRUPTS))
        if pc == "i":
            yield from self.idle_steps(s)
        elif pc == "o":
            yield "c closes", self.close(s)
        elif pc[0] == "b":
            yield from self.begin_steps(s)
        elif pc in ("l", "x", "t"):
            yield from self.list_steps(s)
        elif pc == "e":
            yield from self.ended_pass(s)
        elif pc in ("q", "p"):
            yield from self.question_steps(s)
        elif pc[0] == "v":
            yield from self.recovery_steps(s)
        else:
            yield from self.end_steps(s)

    # ------------------------------------------------------------------ a pass

    def begin_steps(self, s: State) -> Steps:
        pc, command, *rest = s.c
        early = self.broken == "tokens come before the command"
        if pc == "b":
            s = self.write(s, PASS, s.k.number)
            s = self.write(s, TIME, s.k.tick) if self.sc.due else s
            yield "c writes PASS", s._replace(c=("b2" if early else "b1", command, 1))
        elif pc == "b1":
            after = ("q", 1) if command == MESSAGE else ("l", 0)
            yield "c writes COMMAND", self.write(s, COMMAND, command)._replace(c=after if early else ("b2", command, 1))
        elif rest[0] == self.n:
            yield "c has begun", s._replace(c=("b1", command) if early else ("q", 1) if command == MESSAGE else ("l", 0))
        else:
            yield f"c gives {rest[0]} command", self.give(s, 0, rest[0])._replace(c=("b2", command, rest[0] + 1))

    def list_steps(self, s: State) -> Steps:
        pc, i = s.c
        k, ops, p = s.k, self.ops[0], s.k.number
        time = k.tick if self.sc.due and s.w[COMMAND] == FIRST else -1
        if pc == "t":  # the user holds a tick that is not done: waits on, or closes, which waits on too
            yield "c waits on", s._replace(c=("l", i))
            if k.phase == "tick":
                yield "c closes in a tick", self.note(s, phase="last tick")._replace(c=("l", i))
        elif pc == "x":
            r = ops[i][1]
            yield f"c ends {r}", self.end_exec(s, r, p, time)._replace(c=("l", i + 1))
        elif i == len(ops):
            yield "c has passed", self.passed(s)
        else:
            kind, arg = ops[i]
            if kind == EXEC and not self.is_due(arg, time):
                yield f"c skips {arg}", self.skip_exec(s, arg, p)._replace(c=("l", i + 1))
            elif kind == EXEC:
                yield f"c begins {arg}", self.begin_exec(s, arg, p)._replace(c=("x", i))
            elif kind == SIGNAL:
                s = self.note(s, given=up(k.given, arg, k.given[arg] + 1))
                yield f"c gives {arg}", self.give(s, 0, arg)._replace(c=("l", i + 1))
            elif self.broken == "the caller leaves out a wait" and arg == self.n - 1:
                yield f"c leaves out {arg}", s._replace(c=("l", i + 1))
            else:
                if self.tokens(s, arg, 0):
                    noted = self.note(s, taken=up(k.taken, arg, k.taken[arg] + 1))
                    yield f"c takes {arg}", self.take(noted, arg, 0)._replace(c=("l", i + 1))
                yield from self.look(s, ("l", i))  # it came a moment after the last try
                if s.b[TIMEOUTS] and k.phase in ("tick", "last tick"):
                    yield f"{FAULT}c times out", self.spend(s, TIMEOUTS)._replace(c=("t", i))

    def passed(self, s: State) -> State:
        """All have ended their part: what crossed is logged."""
        k = s.k
        if s.x is None:  # else there are tokens with which another thread ends the run
            for i, (a, b) in enumerate(self.pairs):
                if s.ch[i]:
                    raise ViolationError(f"at the end of pass {k.number} there are {s.ch[i]} tokens from {a} to {b}")
        if self.sc.due and s.w[COMMAND] == FIRST:
            s = self.write(s, NEXT, self.next_of(0, k.tick))
        known = k.known if s.w[COMMAND] == STOP or not self.sc.recover else k.number - k.base
        if self.broken != "tokens are not forgotten at the end of a pass":
            s = self.note(s, given=(0,) * self.n, taken=(0,) * self.n)
        return self.note(s, known=known)._replace(c=("e", True))

    def ended_pass(self, s: State) -> Steps:
        sc, k = self.sc, s.k
        more = s.w[MORE] == k.number and self.broken != "microsteps are forgotten"
        if s.c[1] and s.b[SAVES] and k.phase in ("tick", "last tick") and not (more or s.w[FAILED] or s.w[STOPPED]):
            yield "c saves", self.ask(self.spend(s, SAVES), "checkpoint")
        if k.phase in ("stop", "close"):
            if s.w[FAILED]:
                yield "c asks why", self.ask(s, "failures")
            else:
                yield "c has stopped", s._replace(c=("o",) if k.phase == "stop" else ("d0",))
        elif k.phase == "start":
            yield "c has started", self.ask(s, "failures") if s.w[FAILED] else self.between(self.note(s, number=k.number + 1))
        elif more:
            yield "c again", self.note(s, number=k.number + 1)._replace(c=("b", AGAIN))
        elif any((r, k.number - k.base) in sc.again for r in range(len(sc.home))):
            raise ViolationError(f"the microstep after pass {k.number} is lost")
        elif s.x is not None:
            yield "c finds it closed", s._replace(c=("left",))
            if not (s.w[FAILED] or s.w[STOPPED]):  # the other thread has begun a moment later
                yield "c ends the tick", self.between(self.note(s, tick=k.tick + 1, number=k.number + 1))
        elif s.w[FAILED]:
            yield "c asks why", self.ask(s, "failures")
        elif k.phase == "last tick":
            yield "c closes on", self.close(s)
        elif s.w[STOPPED] == REQUESTED:
            yield "c stops", self.shut_down(s, "stop")
        else:
            yield "c ends the tick", self.between(self.note(s, tick=k.tick + 1, number=k.number + 1))

    # ------------------------------------------------------------------ between two ticks

    def between(self, s: State) -> State:
        return self.note(s, phase="tick")._replace(c=("i",))

    def idle_steps(self, s: State) -> Steps:
        """The user's choice."""
        sc, k = self.sc, s.k
        if s.x is not None:
            yield "c waits for who closes", s._replace(c=("left",))
        else:
            yield "c closes", self.close(s)
        if s.b[RESTORES] and sc.restore is not None:
            first, second = sc.restore
            if k.tick == first and k.saved is None:
                yield "c takes a snapshot", self.ask(s, "snapshot")
                return
            if k.tick == second and k.saved is not None:
                yield "c restores", self.ask(self.spend(s, RESTORES), "restore")
                return
        tick = k.tick
        if sc.due and tick:  # what is skipped, but never tick 0
            tick = max(tick, min(s.w[NEXT : NEXT + self.n]))
            for r, dates in enumerate(sc.due):
                for time in range(k.tick, min(tick, sc.ticks)):
                    if dates is None or any(date == time for date, _ in dates):
                        raise ViolationError(f"tick {time} is skipped, at which reaction {r} is due")
        if tick < sc.ticks:
            yield "c begins a tick", self.note(s, tick=tick)._replace(c=("b", FIRST))

    def close(self, s: State) -> State:
        """Begin what close() does with a run that is whole."""
        return self.note(s, phase="close")._replace(c=("d0",)) if s.w[STOPPED] == DONE else self.shut_down(s, "close")

    def shut_down(self, s: State, phase: str) -> State:
        """The shutdown reactions are the next pass. Between two ticks its number is the caller's already."""
        k = s.k
        number = k.number if s.c[0] == "i" else k.number + 1
        return self.note(self.write(s, STOPPED, DONE), number=number, phase=phase)._replace(c=("b", STOP))

    # ------------------------------------------------------------------ questions

    def ask(self, s: State, question: str) -> State:
        return self.note(s, question=question, questions=s.k.questions + 1)._replace(c=("b", MESSAGE))

    def question_steps(self, s: State) -> Steps:
        pc, at, *rest = s.c
        if pc == "q" and at == self.n:
            s, value = self.answer(s, 0, s.k.question)
            self.agree(s, value)
            yield "c has asked", s._replace(c=("p", tuple(self.helpers), value is True))
        elif pc == "q":
            asked, replies = s.q[at - 1]
            if s.h[at - 1][0] not in ("dead", "gone") and asked != "eof":
                s = s._replace(q=up(s.q, at - 1, ((*asked, s.k.question), replies)))
            yield f"c asks {at}", s._replace(c=("q", at + 1))
        elif not at:
            yield "c has all replies", self.answered(s, rest[0])
        else:
            h = at[0]
            asked, replies = s.q[h - 1]
            if replies:
                question, value = replies[0]
                if question != s.k.question:
                    raise ViolationError(f"{s.k.question} was asked, and {h} answers {question}")
                self.agree(s, value)
                heard = s._replace(q=up(s.q, h - 1, (asked, replies[1:])))
                yield f"c hears {h}", heard._replace(c=("p", at[1:], rest[0] or value is True))
            yield from self.look(s, s.c)

    def agree(self, s: State, value: object) -> None:
        """Check that a worker says what its state is after the pass that all are in."""
        k = s.k
        passes = k.number - k.base - (k.question == "snapshot")
        if isinstance(value, tuple) and any(one != passes for one in value):
            raise ViolationError(f"{k.question} after pass {passes} holds reactions after passes {value}")

    def answered(self, s: State, failed: bool) -> State:
        """All have answered."""
        k = s.k
        if s.x is not None and k.question != "checkpoint":
            return s._replace(c=("left",))
        if k.question == "checkpoint":
            return s._replace(c=("e", False))
        if k.question == "snapshot":
            return self.note(s, saved=(k.number - k.base - 1, k.tick))._replace(c=("i",))
        if k.question == "restore":
            assert k.saved is not None
            passes, tick = k.saved
            number = k.number + JUMP
            known = k.known if self.broken == "restoring leaves the log" else passes
            s = self.note(s, number=number, base=number - passes - 1, tick=tick, known=known)
            for worker in range(self.n) if self.sc.due else ():
                s = self.write(s, NEXT + worker, self.next_of(worker, tick - 1))
            return s._replace(c=("i",))
        if not failed and not self.is_excused(s):
            raise ViolationError("a reaction has failed, and nobody knows which")
        s = self.write(s, FAILED, 0)
        if k.phase == "close":
            return s._replace(c=("d0",))
        return self.close(s) if k.phase == "last tick" else s._replace(c=("o",))

    def is_excused(self, s: State) -> bool:
        """Whether the failure of a shutdown reaction may have died with its worker: that pass is not logged. An error says so."""
        k = s.k
        died = any(died is not None and died[1] == k.questions for died in k.died)
        return died and k.phase in ("stop", "close") and self.broken != "a failure that has died with its worker is looked for"

    # ------------------------------------------------------------------ the end

    def end_steps(self, s: State) -> Steps:
        """Tear down."""
        pc, *rest = s.c
        late = self.broken == "ABORT comes after the tokens"
        if pc == "d0":
            yield "c writes ABORT", (s if late else self.write(s, ABORT, 1))._replace(c=("d1",))
        elif pc == "d1":
            yield "c writes QUIT", self.write(s, COMMAND, QUIT)._replace(c=("d2", 1))
        elif pc == "d2" and rest[0] == self.n:
            yield "c refuses", self.refuse(self.write(s, ABORT, 1))._replace(c=("d3",))
        elif pc == "d3":
            yield "c hangs up", s._replace(q=tuple(("eof", replies) for _, replies in s.q), c=("d4",))
        elif pc == "d2":
            h = rest[0]
            left_out = self.broken == "no token at the end" and h == self.n - 1
            yield f"c gives {h} quit", (s if left_out else self.give(s, 0, h))._replace(c=("d2", h + 1))
        elif len(self.ended(s)) == self.n - 1:
            yield "c has closed", s._replace(c=("closed",))
