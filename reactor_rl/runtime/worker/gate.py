"""Where a part of a program is joined to the others: what a worker has to know of the gateway of its node."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from reactor_rl.reactor import Reactor
from reactor_rl.runtime.worker.kernel import Kernel
from reactor_rl.runtime.worker.outputs import OutputHandle
from reactor_rl.runtime.worker.written import Written

__all__ = ["Gate"]


class Gate(Reactor):
    """A reactor that stands for the other nodes: it reads what leaves this one, and writes what arrives."""

    @abstractmethod
    def attach(self, kernel: Kernel, leaving: Mapping[int, Written], arriving: Mapping[int, OutputHandle]) -> None:
        """Know the worker and, by index, the outputs that are read and those that are written."""

    @abstractmethod
    def wait(self, link: int) -> None:
        """The WAIT before what arrives on a link is taken in. What it raises leaves the pass where it is, to be gone on with."""
