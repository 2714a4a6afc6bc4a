"""Check that a program gives the same results however it is run: run it every way and compare fingerprints.

The determinism contract rules out values that depend on the process, the clock, the order of arrival, or a generator that
reactors share. Draws from a process's global generators are reported even if they have not changed a result this time.

A :class:`Target` is what the command line can verify, draw and trace although it is not a :class:`~reactor_rl.Program` itself:
it has a program behind it, as a vector environment or a trainer has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from reactor_rl.errors import ProgramError
from reactor_rl.fingerprint import canonical, changed_generators, generator_states, new_hash
from reactor_rl.program import Program
from reactor_rl.settings import EXECUTORS, NamedExecutor

__all__ = ["Target", "WORKERS", "Verification", "Factory", "Row", "Verifiable", "verify"]

Subject = TypeVar("Subject")


class Target(ABC, Generic[Subject]):
    """Makes a subject to verify, draw and trace, the same on every executor and number of workers."""

    @abstractmethod
    def make(self, executor: Any = "auto", workers: int | None = None) -> Subject:
        """Make the subject: a context manager with the methods ``draw()`` and ``trace()``."""

    @abstractmethod
    def play(self, subject: Subject, ticks: int) -> Iterator[Any]:
        """Advance by ``ticks`` ticks and yield the results, each valid until the next one."""

    def begin(self, subject: Subject) -> Any:
        """Bring the subject to where a trace begins: reset it, for example."""
        for _ in self.play(subject, 1):
            pass

    def outcome(self, subject: Subject, ticks: int) -> Iterator[Any]:
        """Yield everything that the fingerprint covers, part by part."""
        return self.play(subject, ticks)

    def fingerprint(self, executor: str, workers: int, ticks: int) -> str:
        """Hash the outcome of ``ticks`` ticks: the same for every executor and number of workers."""
        digest = new_hash()
        subject: Any = self.make(executor, workers)
        with subject:
            for part in self.outcome(subject, ticks):
                canonical(part, digest)
        return str(digest.hexdigest())

    def draw(self, path: str) -> str:
        """Draw the program behind a subject, as it would run on this machine."""
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


WORKERS = (1, 2, 3, 4)
"""Numbers of workers that are compared: none, an even and an odd number of helpers, and more than many machines have cores."""


@runtime_checkable
class Verifiable(Protocol):
    """An object that drives a program, such as a vector environment, and can run it by itself."""

    def fingerprint(self, *, executor: str, workers: int, ticks: int) -> str:
        """Run afresh for some ticks on this executor with this many workers, and hash everything that came out."""


Factory = Callable[[], Program | Verifiable]
"""Makes the subject to verify, anew for every way of running it."""


@dataclass(frozen=True)
class Row:
    """One way of running.

    Attributes:
        executor: The executor asked for.
        workers: The number of workers asked for; a program of fewer reactors uses fewer.
        fingerprint: Fingerprint of the run, empty if it failed.
        error: How it failed, empty if it did not.
        ran: The executor it really ran on, if that is another: a program of one reactor needs no helpers.
    """

    executor: str
    workers: int
    fingerprint: str
    error: str = ""
    ran: str = ""

    @property
    def outcome(self) -> str:
        return self.error or self.fingerprint


@dataclass(frozen=True)
class Verification:
    """The report of :func:`verify`: one row for each way of running.

    Attributes:
        rows: The ways of running, in the order in which they ran.
        ticks: Number of ticks of each run.
        generators: Global generators of the process that the inline run drew from (or seeded).
        programs: Whether the subjects are programs, or objects that drive one.
    """

    rows: tuple[Row, ...]
    ticks: int
    generators: tuple[str, ...]
    programs: bool = True

    @property
    def differing(self) -> tuple[Row, ...]:
        """The rows that failed, or whose fingerprint is not that of the first row that has one."""
        reference = next((row.fingerprint for row in self.rows if not row.error), "")
        return tuple(row for row in self.rows if row.error or row.fingerprint != reference)

    @property
    def ok(self) -> bool:
        """Whether every way of running gave the same fingerprint."""
        return not self.differing

    def __str__(self) -> str:
        """Format the report as an aligned table with a verdict."""
        differing = self.differing
        width = max((len(row.executor) for row in self.rows), default=0)
        digits = max((len(str(row.workers)) for row in self.rows), default=0)
        lines = []
        for row in self.rows:
            mark = "" if row not in differing else "   FAILED" if row.error else "   DIFFERS"
            ran = f"   (ran on {row.ran})" if row.ran else ""
            lines.append(f"  {row.executor:{width}}  workers={row.workers:<{digits}}  {row.outcome}{mark}{ran}")
        if self.ok:
            lines.append(f"the same for all {len(self.rows)} after {self.ticks} ticks")
        elif len(failed := [row for row in self.rows if row.error]) == len(self.rows):
            alike = " alike" if len({row.error for row in failed}) == 1 else ""
            lines.append(f"all {len(self.rows)} failed{alike}: nothing to compare")
        else:
            parts = [f"{len(failed)} of {len(self.rows)} failed"] if failed else []
            if len(differing) > len(failed):
                parts.append(f"{len(differing) - len(failed)} of {len(self.rows)} differ")
            lines.append(f"{', '.join(parts)} after {self.ticks} ticks")
        if self.generators:
            whose, advice = (
                ("reactions draw", "give each reactor a generator of its own, keyed by seed and bank_index") if self.programs
                else ("what it runs draws", "environments have np_random, which their reset seeds")
            )  # fmt: skip
            lines.append(
                f"outside the contract: {whose} from (or seed{'' if self.programs else 's'}) {', '.join(self.generators)}, which "
                f"belongs to the process; {advice}"
            )
        return "\n".join(lines)


def verify(
    target: Factory, *, executors: Sequence[NamedExecutor] = EXECUTORS, workers: Sequence[int] = WORKERS, ticks: int = 100
) -> Verification:
    """Run a program on every executor with every number of workers, and compare what was on all of its ports.

    Args:
        target: Makes a :class:`~reactor_rl.Program` (its boundary inputs stay unset) or a :class:`Verifiable`, afresh each time.
        executors: Names of the executors; ``"inline"`` has one worker whatever ``workers`` says.
        workers: Numbers of workers to try.
        ticks: How many ticks each run has.

    Returns:
        A report; ``report.ok`` is the verdict and ``str(report)`` the table.

    Raises:
        ProgramError: If an argument is out of range, or ``target`` makes another kind of object.
        Exception: If ``target`` itself raises. Exceptions of runs are in the report instead.
    """
    unknown = sorted(set(executors) - set(EXECUTORS))
    if unknown or not executors:
        raise ProgramError(f"executors must be among {', '.join(map(repr, EXECUTORS))}, got {tuple(executors)!r}")
    if not workers or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in workers):
        raise ProgramError(f"workers must be integers >= 1, got {tuple(workers)!r}")
    if ticks < 1:
        raise ProgramError(f"ticks must be >= 1, got {ticks}")
    rows: list[Row] = []
    touched: tuple[str, ...] = ()
    for executor, count in _ways(executors, workers):
        subject = target()
        if not isinstance(subject, Program | Verifiable):
            raise ProgramError(f"a target must make a Program, or an object with a method fingerprint(), got {subject!r}")
        before = generator_states()
        rows.append(_run(subject, executor, count, ticks))
        if executor == "inline":
            touched = changed_generators(before)
    return Verification(tuple(rows), ticks, touched, isinstance(subject, Program))


def _ways(executors: Sequence[NamedExecutor], workers: Sequence[int]) -> Iterator[tuple[NamedExecutor, int]]:
    for executor in dict.fromkeys(executors):
        for count in (1,) if executor == "inline" else dict.fromkeys(workers):
            yield executor, count


def _run(subject: Program | Verifiable, executor: NamedExecutor, workers: int, ticks: int) -> Row:
    ran = ""
    try:
        if isinstance(subject, Program):
            with subject.start(executor=executor, workers=workers, fingerprint="all") as run:
                run.run(ticks=ticks)
                fingerprint = run.fingerprint()
                if (run.executor, run.workers) != (executor, workers):
                    ran = run.executor if run.workers == 1 else f"{run.executor}, {run.workers} workers"
        else:
            fingerprint = subject.fingerprint(executor=executor, workers=workers, ticks=ticks)
    except Exception as error:  # one way of running may fail where others do not, which is a finding too
        return Row(executor, workers, "", f"{type(error).__name__}: {' '.join(str(error).split())}")
    return Row(executor, workers, fingerprint, ran=ran)
