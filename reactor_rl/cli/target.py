"""What the command line can verify, draw and trace although it is no program: something that has a program behind it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from reactor_rl.fingerprint import canonical, new_hash

__all__ = ["Target"]

Subject = TypeVar("Subject")


class Target(ABC, Generic[Subject]):
    """Makes something to play with, the same on every executor and number of workers."""

    @abstractmethod
    def make(self, executor: Any = "auto", workers: int | None = None) -> Subject:
        """A context manager with the methods ``draw()`` and ``trace()``."""

    @abstractmethod
    def play(self, subject: Subject, ticks: int) -> Iterator[Any]:
        """Go on for ``ticks`` ticks; yields what comes of it, which may be overwritten by what comes next."""

    def begin(self, subject: Subject) -> Any:
        """What comes before that is traced."""
        for _ in self.play(subject, 1):
            pass

    def outcome(self, subject: Subject, ticks: int) -> Iterator[Any]:
        """All that a fingerprint is taken of, part by part."""
        return self.play(subject, ticks)

    def fingerprint(self, executor: str, workers: int, ticks: int) -> str:
        """A hash over all that comes of ``ticks`` ticks: the same for every executor and number of workers."""
        digest = new_hash()
        subject: Any = self.make(executor, workers)
        with subject:
            for part in self.outcome(subject, ticks):
                canonical(part, digest)
        return str(digest.hexdigest())

    def draw(self, path: str) -> str:
        """Draw the program behind it, as it would run here."""
        subject: Any = self.make()
        with subject:
            return str(subject.draw(path))

    def trace(self, path: str, ticks: int = 100, executor: str = "auto", workers: int | None = None) -> None:
        """Write a trace of ``ticks`` ticks."""
        subject: Any = self.make(executor, workers)
        with subject:
            self.begin(subject)
            with subject.trace(path):
                for _ in self.play(subject, ticks):
                    pass
