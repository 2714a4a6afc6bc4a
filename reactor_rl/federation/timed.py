"""A carrier that gives a node up when home has waited for it too long."""

from __future__ import annotations

from reactor_rl.federation.around import Around
from reactor_rl.federation.carrier import Answer, Call, Carrier, LostError

__all__ = ["TimedCarrier"]


class TimedCarrier(Around):
    """Another carrier, whose nodes have to answer within some seconds, but for their startup reactions, which take their time.

    Only what home spends waiting counts. A node that has an answer ready while home does something else is not late.

    Args:
        carrier: That one.
        limit: Seconds.
    """

    def __init__(self, carrier: Carrier, limit: float) -> None:
        super().__init__(carrier)
        self._limit = limit
        self._starting: set[int] = set()
        self._waited: dict[int, float] = {}  # seconds, for each node that is called

    def send(self, node: int, call: Call) -> None:
        """Give a node a call."""
        if call.command == "start":
            self._starting.add(node)
        elif call.command != "on":
            self._starting.discard(node)
        self._waited[node] = 0.0
        super().send(node, call)

    def receive(self, timeout: float) -> tuple[int, Answer]:
        """The next answer of any node that has been called.

        Raises:
            LostError: Also if one has not answered in time.
        """
        try:
            node, answer = super().receive(timeout)
        except TimeoutError:
            for node in self._waited.keys() - self._starting:
                self._waited[node] += timeout  # and no more: that a node is started anew may take longer than was asked for
                if self._waited[node] > self._limit:
                    raise LostError(node, f"has not answered for {self._limit} s", hung=True) from None
            raise
        del self._waited[node]
        return node, answer

    def replace(self, node: int) -> None:
        """Make a node anew."""
        self._waited.pop(node, None)
        super().replace(node)
