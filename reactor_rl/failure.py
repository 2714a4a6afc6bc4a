"""An exception on its way from where it was raised to whom it concerns."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Any

from reactor_rl.by_value import own_class
from reactor_rl.errors import WorkerTraceback
from reactor_rl.serialise import dumps, loads

__all__ = ["Failure", "ordinary"]


def ordinary(error: BaseException) -> Exception:
    """An exception that can be told to others: itself, or what stands for ``SystemExit`` and its like, which end their worker."""
    if isinstance(error, Exception):
        return error
    said = str(error)
    stands = RuntimeError(f"{type(error).__name__} was raised" + (f": {said}" if said else ""))
    stands.__cause__ = error
    return stands


@dataclass
class Failure:
    """An exception that left a reaction, and where: comparable by program order."""

    reaction: int
    where: str
    tag: tuple[int, int]
    error: BaseException
    text: str

    @classmethod
    def of(cls, reaction: int, where: str, tag: tuple[int, int], error: BaseException) -> Failure:
        return cls(reaction, where, tag, error, "".join(traceback.format_exception(error)))

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        try:
            error = dumps(self.error)
            loads(error)
        except Exception:  # an exception that cannot travel is replaced by one that can
            error = dumps(RuntimeError(f"{type(self.error).__name__}: {self.error}"))
        state["error"] = error
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        error = loads(state["error"])
        error.__cause__ = WorkerTraceback(state["text"])
        self.__dict__.update(state, error=error)

    def raised(self) -> BaseException:
        """The exception, with a note that says where it was raised."""
        own_class(self.error)
        note = f"in reaction {self.where} at tag {self.tag}"
        if note not in getattr(self.error, "__notes__", ()):
            self.error.add_note(note)
        return self.error
