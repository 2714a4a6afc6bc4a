"""Whether something that runs a program can go on after what happened to it."""

from __future__ import annotations

from types import TracebackType

__all__ = ["INTERRUPTED", "Life"]

INTERRUPTED = "a call was interrupted, or another thread is in the middle of one"


class Life:
    """Whether a vector environment, or a runner, can go on: ``with life:`` around whatever it is in the middle of.

    Until that comes to its end nothing but closing is left, whatever interrupts it, at whatever line. An ordinary error says
    itself what is left, by default everything.

    Attributes:
        over: Why it cannot, empty if it can.
    """

    __slots__ = ("over",)

    def __init__(self) -> None:
        self.over = ""

    def __enter__(self) -> None:
        self.over = INTERRUPTED

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        if kind is None or issubclass(kind, Exception):
            self.survive()

    def survive(self) -> None:
        """It came to its end, or an ordinary error did, which has said if it leaves nothing."""
        if self.over is INTERRUPTED:
            self.over = ""
