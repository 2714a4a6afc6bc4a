"""What stands in the place of a declaration while a reaction runs.

A handle belongs to one reactor on one worker. Which reactions may touch it is a mask of bits, one for each reaction of the worker;
the kernel keeps the bit of the reaction that is running.
"""

from __future__ import annotations

from reactor_rl.errors import UndeclaredPortError
from reactor_rl.runtime.worker.moment import Moment

__all__ = ["Handle"]


class Handle:
    __slots__ = ("_allowed", "_kernel", "name")

    def __init__(self, kernel: Moment, name: str, allowed: int) -> None:
        self._kernel, self.name, self._allowed = kernel, name, allowed

    def _undeclared(self, what: str) -> UndeclaredPortError:
        return UndeclaredPortError(
            f"reaction {self._kernel.running()} touches {self.name}, which it does not declare; add it to the reaction's {what}"
        )
