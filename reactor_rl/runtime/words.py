"""The words that all workers of a run share, by number: what they agree through."""

from __future__ import annotations

__all__ = ["Stop", "Words"]


class Words:
    """Numbers of the words."""

    COMMAND, TIME, PASS, STOP, FAILED, AGAIN, ABORT = range(7)
    NEXT = 8  # the next time at which worker w has something to do, at NEXT + w


class Stop:
    """What the word STOP says of a run: it goes on, a reaction has asked for its end, its shutdown reactions have run."""

    NO, REQUESTED, DONE = range(3)
