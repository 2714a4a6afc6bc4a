"""Records when a worker ran which reaction and when it waited."""

from __future__ import annotations

from time import perf_counter_ns

from reactor_rl.runtime.worker.kernel import Kernel, Observer
from reactor_rl.trace import Slice

__all__ = ["Timeline"]


class Timeline(Observer):
    """The slices of one worker since it was attached."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.slices: list[Slice] = []
        self._began = 0

    def before_reaction(self, bit: int) -> None:
        self._began = perf_counter_ns()

    def after_reaction(self, bit: int) -> None:
        end, kernel = perf_counter_ns(), self._kernel
        self.slices.append(("reaction", kernel.names[bit], self._began, end, kernel.time, kernel.microstep))

    def before_wait(self) -> None:
        self._began = perf_counter_ns()

    def after_wait(self, whom: str) -> None:
        end, kernel = perf_counter_ns(), self._kernel
        self.slices.append(("wait", f"wait for {whom}", self._began, end, kernel.time, kernel.microstep))
