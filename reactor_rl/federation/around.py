"""A carrier around another one, for those that change some of what that does."""

from __future__ import annotations

from collections.abc import Sequence

from reactor_rl.federation.carrier import Answer, Call, Carrier

__all__ = ["Around"]


class Around:
    """A carrier that does everything as another one.

    Args:
        carrier: That one.
    """

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self.name, self.inside = carrier.name, carrier.inside

    @property
    def workers(self) -> tuple[int, ...]:
        return self._carrier.workers

    @property
    def nodes(self) -> int:
        return self._carrier.nodes

    def launch(self, parcels: Sequence[bytes]) -> None:
        self._carrier.launch(parcels)

    def send(self, node: int, call: Call) -> None:
        self._carrier.send(node, call)

    def receive(self, timeout: float) -> tuple[int, Answer]:
        return self._carrier.receive(timeout)

    def replace(self, node: int) -> None:
        self._carrier.replace(node)

    def describe(self, node: int) -> str:
        return self._carrier.describe(node)

    def close(self, timeout: float | None) -> None:
        self._carrier.close(timeout)
