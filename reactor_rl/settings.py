"""Settings of a run as the user gives them: the executor by name, and how often workers that die are replaced."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal, get_args

from reactor_rl.errors import ProgramError

__all__ = ["CHOICES", "EXECUTORS", "LOCAL", "ExecutorName", "LocalName", "NamedExecutor", "Recover", "RecoveryWarning", "tell"]

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
