"""The steps of helpers, as `run_helper`, `_obey` and `wait_for` take them."""

from __future__ import annotations

from typing import Any

from .state import ABORT, COMMAND, DEATHS, EXEC, FAULT, FIRST, MESSAGE, NEXT, PASS, QUIT, SIGNAL, TIME, Pieces, State, Steps, up

__all__ = ["HelperSteps"]


class HelperSteps(Pieces):
    """A helper waits for its command ("s"), reads it ("c"), reads the pass ("r"), goes through its list ("l") and its reactions
    ("x"), looks for ABORT behind a token ("k"); or it reads a request from its pipe ("m"). A new one is being brought back ("new"),
    and an old one is "gone" or "dead"."""

    def helper_steps(self, s: State) -> Steps:
        for h in self.helpers:
            if s.h[h - 1][0] not in ("dead", "gone"):
                yield from self.steps_of(s, h)

    def steps_of(self, s: State, h: int) -> Steps:
        pc, p, i, time = s.h[h - 1]
        me, broken = f"h{h}", self.broken

        def to(s: State, pc: str, p: int = p, i: int = i, time: int = time) -> State:
            return s._replace(h=up(s.h, h - 1, (pc, p, i, time)))

        if s.b[DEATHS]:
            yield f"{FAULT}{me} dies", self.die(self.spend(s, DEATHS), h)
        if pc == "s":
            if self.tokens(s, 0, h):
                yield f"{me} takes 0 command", to(self.take(s, 0, h), "c")
        elif pc == "c":
            command = s.w[COMMAND]
            if command == QUIT or (s.w[ABORT] and broken != "ABORT is not looked at between two passes"):
                yield f"{me} quits", to(s, "gone", 0, 0, -1)
            elif command == MESSAGE:
                yield f"{me} reads MESSAGE", to(s, "m", 0, 0, -1)
            else:
                yield f"{me} reads command", to(s, "r", 0, 0, 0 if command == FIRST else -1)
        elif pc == "r":
            if time >= 0:
                time = s.w[TIME]
                s = self.write(s, NEXT + h, self.next_of(h, time, True)) if self.sc.due else s
            yield f"{me} reads pass", to(s, "l", s.w[PASS], 0, time if self.sc.due else -1)
        elif pc == "m":
            asked, replies = s.q[h - 1]
            if asked == "eof":
                yield f"{me} eof", to(s, "gone")
            elif asked:
                s, value = self.answer(s, h, asked[0])
                yield f"{me} replies", to(s, "s")._replace(q=up(s.q, h - 1, (asked[1:], (*replies, (asked[0], value)))))
        elif pc == "new":
            yield f"{me} revived", to(s, "s", 0, 0, -1)
        elif pc == "x":
            r = self.ops[h][i][1]
            yield f"{me} ends {r}", to(self.end_exec(s, r, p, time), "l", p, i + 1)
        elif pc == "k":
            if s.w[ABORT] and broken != "ABORT is not looked at behind a token":
                yield f"{me} aborts", to(s, "gone", 0, 0, -1)
            else:
                yield f"{me} goes on", to(s, "l", p, i + 1)
        elif i == len(self.ops[h]):
            if broken == "NEXT is written after the last signal" and time >= 0:
                s = self.write(s, NEXT + h, self.next_of(h, time))
            yield f"{me} end of list", to(s, "s", 0, 0, -1)
        else:
            kind, arg = self.ops[h][i]
            if kind == EXEC and not self.is_due(arg, time):
                yield f"{me} skips {arg}", to(self.skip_exec(s, arg, p), "l", p, i + 1)
            elif kind == EXEC:
                yield f"{me} begins {arg}", to(self.begin_exec(s, arg, p), "x")
            elif kind == SIGNAL:
                lost = broken == "a helper leaves out its last signal" and i == len(self.ops[h]) - 1 and h == 1
                yield f"{me} gives {arg}", to(s if lost else self.give(s, h, arg), "l", p, i + 1)
            elif broken == ("a helper leaves out a wait for another" if arg else "a helper leaves out a wait for the caller"):
                yield f"{me} leaves out {arg}", to(s, "l", p, i + 1)
            elif self.tokens(s, arg, h):
                yield f"{me} takes {arg}", to(self.take(s, arg, h), "k")
            elif s.w[ABORT] and broken != "parked helpers do not look for ABORT":
                yield f"{me} aborts", to(s, "gone", 0, 0, -1)

    def answer(self, s: State, worker: int, question: str) -> tuple[State, Any]:
        """A worker answers a question between two passes."""
        if question == "restore":
            saved = s.k.saved
            assert saved is not None
            return s._replace(mem=self.remember(s, (worker,), saved[0])), None
        if question == "failures":
            return s, self.failed(s, worker)
        return s, tuple(s.mem[r] for r in self.of[worker])

    def die(self, s: State, h: int) -> State:
        q = s.q if s.q[h - 1][0] == "eof" else up(s.q, h - 1, ((), ()))
        return s._replace(
            h=up(s.h, h - 1, ("dead", 0, 0, -1)), mem=self.remember(s, (h,), -1), run=s.run.difference(self.of[h]), q=q
        )
