"""Settings of a run as the user gives them: where it runs, and what happens when workers die or hang."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Mapping
from dataclasses import InitVar, dataclass, fields
from typing import Any, Literal, Self, get_args

import numpy as np

from reactor_rl.errors import ProgramError

__all__ = [
    "CHOICES",
    "EXECUTORS",
    "LOCAL",
    "Execution",
    "ExecutorName",
    "LocalName",
    "NamedExecutor",
    "Recover",
    "RecoveryWarning",
    "check_nodes",
    "check_start_method",
    "check_timeout",
    "checked_number",
    "tell",
    "unknown_executor",
]

NamedExecutor = Literal["inline", "threads", "processes"]
LocalName = Literal["auto", "inline", "threads", "processes"]
ExecutorName = Literal["auto", "inline", "threads", "processes", "federated", "ray"]
"""``"auto"`` stands for the one of this machine that is found to be fastest, ``"ray"`` for the machines of a Ray cluster, and
``"federated"`` for several nodes in this process, with which one can see how a program would be cut."""
EXECUTORS: tuple[NamedExecutor, ...] = get_args(NamedExecutor)
LOCAL: tuple[LocalName, ...] = get_args(LocalName)
CHOICES: tuple[ExecutorName, ...] = get_args(ExecutorName)


class RecoveryWarning(RuntimeWarning):
    """A worker has died and was replaced, or workers cannot be replaced from now on.

    It is shown even if a filter turns warnings into errors: an exception would end the run that recovery is there to save.
    """


def tell(what: str) -> None:
    """Issue a RecoveryWarning in the middle of a tick that goes on."""
    try:
        warnings.warn(what, RecoveryWarning, stacklevel=3)
    except RecoveryWarning:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn(what, RecoveryWarning, stacklevel=3)


@dataclass(frozen=True)
class Recover:
    """Replace helper processes that die, and go on with the same results, bit for bit.

    Values that cross into the helpers' reactors are logged at every tick. When a helper has died, another process makes its
    reactors anew, runs them through the log, alone, and takes its place; the tick goes on. When the log becomes too large, the
    state of the helpers' reactors is saved between two ticks (by their ``__getstate__``, as for :meth:`Run.snapshot`), and the log
    begins anew from there.

    Reactors must be deterministic in what they read, as the contract of determinism says. Their effects outside of the program
    (files, servers, devices) happen again.

    Args:
        restarts: How often workers of the run may be replaced in all.
        log_bytes: About how many bytes the log may have, in the caller's process. The last saved state of the helpers is extra.

    Raises:
        ProgramError: If ``restarts`` or ``log_bytes`` is not an integer of a sensible size.
    """

    restarts: int = 3
    log_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        for name, least in (("restarts", 1), ("log_bytes", 1)):
            number = getattr(self, name)
            if isinstance(number, bool) or not isinstance(number, int) or number < least:
                raise ProgramError(f"{name} must be an integer >= {least}, got {number!r}; recover=None recovers nothing")


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Where something runs, and what happens when its workers die or hang. It never changes a result.

    Public classes and functions have these as keywords, and hand them on together.

    Args:
        workers: Number of workers, of each node if there are several, the calling thread included; ``None`` for the cores that this
            process may use.
        executor: Its name, or a transport between nodes; ``"auto"`` measures and chooses.
        nodes: With ``"ray"``: how many machines, or a description of them; ``None`` for all.
        start_method: How helper processes start; ``None`` for the best that this system has.
        caller_works: Whether the calling thread takes its share; ``None`` where that depends on other arguments.
        restarts: How often worker processes that die are replaced.
        timeout: Seconds that the caller waits for a worker process at most; ``None`` for as long as it takes.
        method_option: What the user calls ``start_method``: Gymnasium says ``context``.

    Raises:
        TypeError: If ``caller_works`` is neither true nor false.
        ValueError: If another one makes no sense.
    """

    workers: int | None = None
    executor: ExecutorName = "auto"
    nodes: Any = None
    start_method: str | None = None
    caller_works: bool | None = True
    restarts: int = 0
    timeout: float | None = None
    method_option: InitVar[str] = "start_method"

    def __post_init__(self, method_option: str) -> None:
        transport = hasattr(self.executor, "nodes") and hasattr(self.executor, "receive")
        if self.executor not in CHOICES and not transport:
            raise unknown_executor(self.executor)
        check_nodes(self.executor, self.nodes)
        if self.workers is not None:
            checked_number("workers", self.workers, 1)
            object.__setattr__(self, "workers", int(self.workers))  # one of numpy's would show in messages
        check_start_method(method_option, self.start_method)
        if self.caller_works not in (None, False, True):
            raise TypeError(f"caller_works must be True or False, got {self.caller_works!r}")
        checked_number("restarts", self.restarts, 0)
        object.__setattr__(self, "restarts", int(self.restarts))
        if self.restarts and self.start_method == "fork":
            raise ValueError(
                f"restarts={self.restarts} cannot be used with {method_option}='fork': a new worker must begin as the first one "
                f"did. Leave {method_option} out, or use 'forkserver' or 'spawn'"
            )
        if isinstance(self.timeout, np.number):
            object.__setattr__(self, "timeout", float(self.timeout))
        check_timeout("timeout", self.timeout)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Those among somebody's attributes or arguments."""
        return cls(**{one.name: given[one.name] for one in fields(cls) if one.name in given})


def checked_number(name: str, number: Any, least: int) -> None:
    """Refuse what is not an integer, or below ``least``.

    Raises:
        ValueError: Naming it.
    """
    if isinstance(number, bool) or not isinstance(number, (int, np.integer)):
        raise ValueError(f"`{name}` must be an integer, got {number!r}.")
    if number < least:
        raise ValueError(f"`{name}` must be {'positive' if least == 1 else f'at least {least}'}, got {number}.")


def unknown_executor(executor: Any) -> ProgramError:
    """Return the error that names all executors that there are."""
    return ProgramError(f"executor must be {', '.join(map(repr, CHOICES[:-1]))} or {CHOICES[-1]!r}, got {executor!r}")


def check_nodes(executor: Any, nodes: Any) -> None:
    """Refuse ``nodes`` for an executor of one machine.

    Raises:
        ProgramError: Naming both.
    """
    if nodes is not None and executor in LOCAL:
        raise ProgramError(f"nodes={nodes!r} needs an executor with several machines: executor='ray'")


def check_start_method(name: str, method: Any) -> None:
    """Refuse a way to start processes that this system does not have.

    Args:
        name: What the user calls it.
        method: ``"forkserver"``, ``"spawn"``, ``"fork"``, or ``None``.

    Raises:
        ValueError: Naming those that it has.
    """
    methods = sorted(multiprocessing.get_all_start_methods())
    if method is not None and method not in methods:
        known = ", ".join(map(repr, methods))
        # It begins with multiprocessing's own words, which SB3's tests of SubprocVecEnv ask for.
        raise ValueError(f"cannot find context for {method!r}: {name} must be one of {known} on this system, got {method!r}")


def check_timeout(name: str, seconds: Any) -> None:
    """Check a time limit.

    Args:
        name: What the user calls it.
        seconds: Its value.

    Raises:
        ProgramError: If it is neither ``None`` nor a positive number.
    """
    if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds > 0.0):
        raise ProgramError(f"{name} must be a positive number of seconds, or None for no limit, got {seconds!r}")
