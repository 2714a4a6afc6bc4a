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
    """A worker has died and was replaced, or could not be replaced from now on.

    Where a filter makes warnings errors it is shown nevertheless: an exception would end the run that was to be saved.
    """


def tell(what: str) -> None:
    """Warn of what has happened, in the middle of a tick that goes on."""
    try:
        warnings.warn(what, RecoveryWarning, stacklevel=3)
    except RecoveryWarning:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn(what, RecoveryWarning, stacklevel=3)


@dataclass(frozen=True)
class Recover:
    """Replace helper processes that die, and go on as if nothing had happened, every bit.

    What crosses into the helpers' reactors is noted at every tick. When a helper has died, another process makes its reactors
    anew, runs them through what was noted, alone, and takes its place; the tick goes on. When what was noted becomes too much, the
    state of the helpers' reactors is taken between two ticks (their ``__getstate__``, as for :meth:`Run.snapshot`) and notes begin
    anew from there.

    Reactors must be deterministic in what they read, as the contract of determinism says; what they do outside of the program
    (files, servers, devices) happens again.

    Args:
        restarts: How often workers of the run may be replaced in all.
        log_bytes: About how many bytes of notes are kept, in the caller's process; the last state of the helpers comes on top.

    Raises:
        ProgramError: If one of them is no number that makes sense.
    """

    restarts: int = 3
    log_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        for name, least in (("restarts", 1), ("log_bytes", 1)):
            number = getattr(self, name)
            if isinstance(number, bool) or not isinstance(number, int) or number < least:
                raise ProgramError(f"Recover({name}={number!r}): an integer of at least {least}; recover=None recovers nothing")
