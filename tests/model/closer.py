"""The steps of another thread that closes the run while the caller is in the middle of something, and the whole model."""

from __future__ import annotations

from .recovery import RecoverySteps
from .state import ABORT, CLOSES, COMMAND, FAULT, QUIT, State, Steps

__all__ = ["Model"]


class Model(RecoverySteps):
    """All steps.

    The other thread finds the run busy, so it tears it down: ABORT, QUIT, a token for each helper, another one when none can be
    started any more. It waits until the caller has left, but not for ever, and then for the helpers. If it finds the run idle it
    does what the caller's own close() does.
    The caller notices it where it waits, and at the end of a tick or of a question, or misses it there by a moment.
    """

    def steps(self, s: State) -> Steps:
        yield from self.caller_steps(s)
        yield from self.helper_steps(s)
        if self.sc.closes:
            yield from self.closer_steps(s)

    def closer_steps(self, s: State) -> Steps:
        if s.x is None:
            busy = s.k.phase in ("tick", "stop") and s.c[0][0] in "blxeqpv"
            if s.b[CLOSES] and busy:
                yield f"{FAULT}x closes", self.spend(s, CLOSES)._replace(x=("abort",))
            return
        pc, *rest = s.x
        if pc == "abort":
            yield "x writes ABORT", self.write(s, ABORT, 1)._replace(x=("quit",))
        elif pc == "quit":
            yield "x writes QUIT", self.write(s, COMMAND, QUIT)._replace(x=("give", 1))
        elif pc == "give" and rest[0] < self.n:
            yield f"x gives {rest[0]} quit", self.give(s, 0, rest[0])._replace(x=("give", rest[0] + 1))
        elif pc == "give":
            # Under a lock: from now on none are started, and those that were started since are told to quit.
            yield "x refuses", self.refuse(s)._replace(x=("hang up",))
        elif pc == "hang up":
            yield "x hangs up", s._replace(q=tuple(("eof", replies) for _, replies in s.q), x=("wait",))
        elif pc == "wait" and len(self.ended(s)) == self.n - 1:
            yield "x has closed", s._replace(x=("done",))

    def is_over(self, s: State) -> bool:
        """Whether the run is closed, and nobody is in it."""
        return s.c[0] == "closed" or (s.c[0] == "left" and s.x == ("done",))
