"""The caller's steps when a helper has died: it gives up, or puts others in the place of it, as `RecoveringHelpers` does."""

from __future__ import annotations

from typing import Any

from .caller import CallerSteps
from .helper import HelperSteps
from .state import ABORT, State, Steps, ViolationError, up

__all__ = ["RecoverySteps"]


class RecoverySteps(HelperSteps, CallerSteps):
    """Kill ("v0"), new channels and new processes ("v1"), wait until they are where the old ones were ("v2"), give tokens again
    ("v3"), take them again ("v4")."""

    def look(self, s: State, back: tuple[Any, ...]) -> Steps:
        """A caller that has waited for a while looks around."""
        if s.w[ABORT] and not (back[0] == "p" and self.broken == "who waits for a reply does not look for ABORT"):
            yield "c finds it closed", s._replace(c=("left",))
            return
        ended = self.ended(s)
        if back[0] == "p" and self.sc.recover:  # who has answered is not needed before the next tick
            ended = [h for h in ended if h in back[1]]
        if ended and self.sc.recover:
            yield self.count(s, ended, back)
        elif ended:
            yield "c finds a death", self.raised(s)

    def count(self, s: State, ended: list[int], back: tuple[Any, ...]) -> tuple[str, State]:
        """Replace workers, unless one of them has died in this pass, or at this question, before."""
        moment, died = (s.k.number, s.k.questions), s.k.died
        if any(died[h] == moment for h in ended):
            return "c finds a second death", self.raised(s)
        if any(s.h[h - 1][0] == "gone" for h in ended):
            raise ViolationError(f"helpers of {ended} were told to quit, and would be replaced")
        for h in ended:
            died = up(died, h, moment)
        some = self.alone or self.broken == "only the dead one is replaced"
        workers = tuple(ended if some else self.helpers)
        return "c kills " + ",".join(map(str, workers)), self.note(s, died=died)._replace(c=("v0", workers, back))

    def recovery_steps(self, s: State) -> Steps:
        pc, workers, back, *rest = s.c
        ended = [h for h in self.ended(s) if h in workers]
        if s.w[ABORT] and (pc in ("v2", "v4")) and self.broken != "who replaces helpers does not look for ABORT":
            yield "c finds it closed", s._replace(c=("left",))
        elif pc == "v0":
            for h in workers:
                if s.h[h - 1][0] != "dead":
                    s = self.die(s, h)
            yield "c has killed", s._replace(c=("v1", workers, back))
        elif (
            pc == "v1"
            and s.x is not None
            and s.x[0] in ("hang up", "wait", "done")
            and self.broken != "helpers are started at any time"
        ):
            yield "c finds it closed", s._replace(c=("left",))
        elif pc == "v1":
            yield "c starts others", self.start(s, workers)._replace(c=("v2", workers, back))
        elif pc == "v2":
            if ended and not self.alone:
                yield self.count(s, ended, back)
            if all(s.h[h - 1][0] != "new" for h in workers):  # a death may be noticed later
                for alive in {workers, tuple(h for h in workers if h not in ended)}:
                    if alive == workers or self.alone:
                        tokens = tuple((h, first) for h in alive for first in self.tokens_again(s, h))
                        yield "c rewires", s._replace(u=s.u.difference(alive), c=("v3", workers, back, tokens, alive))
        elif pc == "v3":
            left, alive = rest
            if left:
                yield f"c gives {left[0][0]} again", self.give_again(s, *left[0], left[1:])
            else:
                tokens = tuple(h for h in alive for _ in range(s.k.taken[h]))
                yield "c has given again", s._replace(c=("v4", workers, back, tokens))
        else:
            left = rest[0]
            if ended:
                yield self.count(s, ended, back)
            if not left or self.broken == "taken tokens are not taken again":
                yield "c goes on", s._replace(c=back)
            elif self.tokens(s, left[0], 0):
                yield f"c takes {left[0]} again", self.take(s, left[0], 0)._replace(c=("v4", workers, back, left[1:]))

    def start(self, s: State, workers: tuple[int, ...]) -> State:
        """New channels, and new processes with their history."""
        known = max(0, s.k.known - (self.broken == "the log lacks its last pass"))
        ch = s.ch
        for i, pair in enumerate(self.pairs):
            if not set(workers).isdisjoint(pair) and self.broken != "old channels are kept":
                ch = up(ch, i, 0)
        h = tuple(("new", 0, 0, -1) if w in workers else one for w, one in enumerate(s.h, 1))
        q = tuple(((), ()) if w in workers and one[0] != "eof" else one for w, one in enumerate(s.q, 1))
        u = s.u | set(workers) if self.broken == "QUIT goes to the channels of the dead" else s.u
        return s._replace(mem=self.remember(s, workers, known), ch=ch, h=h, q=q, u=u)

    def tokens_again(self, s: State, h: int) -> tuple[bool, ...]:
        """The tokens that a new helper gets: that of the command, with which the question comes, and those given in this pass."""
        return (True,) if self.broken == "given tokens are not given again" else (True, *(False,) * s.k.given[h])

    def give_again(self, s: State, h: int, first: bool, left: tuple[tuple[int, bool], ...]) -> State:
        _, workers, back, _, alive = s.c
        s = self.give(s, 0, h)
        if first and back[0] == "p" and self.broken != "the question is not asked again":
            asked, replies = s.q[h - 1]
            if s.h[h - 1][0] not in ("dead", "gone") and asked != "eof":
                s = s._replace(q=up(s.q, h - 1, ((*asked, s.k.question), replies)))
            back = ("p", tuple(sorted({*back[1], h})), *back[2:])
        return s._replace(c=("v3", workers, back, left, alive))
