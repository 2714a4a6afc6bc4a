"""What stands in the place of a declaration while a reaction runs.

A handle belongs to one reactor on one worker. Which reactions may touch it is a mask of bits, one for each reaction of the worker;
the kernel keeps the bit of the reaction that is running.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reactor_rl.errors import UndeclaredPortError

if TYPE_CHECKING:
    from reactor_rl.runtime.worker.kernel import Kernel

__all__ = ["Handle"]


class Handle:
    __slots__ = ("_allowed", "_kernel", "name")

    def __init__(self, kernel: Kernel, name: str, allowed: int) -> None:
        self._kernel, self.name, self._allowed = kernel, name, allowed

    def _undeclared(self, what: str) -> UndeclaredPortError:
        return UndeclaredPortError(
            f"reaction {self._kernel.running()} touches {self.name}, which it does not declare; add it to the reaction's {what}"
        )
