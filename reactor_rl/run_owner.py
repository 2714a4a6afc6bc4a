"""The base of host classes that own a run: its picture, its trace and its end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from reactor_rl.drawing.html import html_figure

if TYPE_CHECKING:
    from reactor_rl.runtime.run import Run
    from reactor_rl.trace import Tracing

__all__ = ["RunOwner"]


class RunOwner(ABC):
    """Something that ticks a run of its own; at the end of ``with`` it is closed."""

    _run: Run | None = None

    @abstractmethod
    def _running(self) -> Run:
        """The run, which may be started now.

        Raises:
            RuntimeError: If there is none any more, or none that can go on.
        """

    @property
    def running(self) -> bool:
        """Whether its workers have been started and not been ended since."""
        return self._run is not None and not self._run.stopped

    def draw(self, path: str | None = None, *, format: Literal["mermaid", "dot", "svg"] | None = None) -> str:
        """The program behind it as a picture; see :meth:`reactor_rl.Program.draw`."""
        return self._running().draw(path, format=format)

    def trace(self, path: str) -> Tracing:
        """Record what each worker does within ``with owner.trace("trace.json"):``, and write a file that Perfetto opens."""
        return self._running().trace(path)

    def _repr_html_(self) -> str | None:
        """Its picture, in a notebook, as long as there is a run; looking starts none."""
        return None if self._run is None else html_figure(repr(self), self._run.draw(format="svg"))

    def close(self) -> None:
        """Close the environments and end the workers. May be called again."""
        if self._run is None or self._run.foreign:
            return
        try:
            self._run.close()
        except Exception:
            self._run = None
            raise
        self._run = None  # not if it was interrupted: then it can be closed again

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.close()
