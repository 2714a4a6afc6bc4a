"""The cores and memory that this process may use, by its affinity and its control groups, and errors of exhausted limits.

A group's limit holds for all groups below it, so every group from the process's own up to the root counts. In a container, the
process's group may only be known by its name outside; then its limits are those at the root of what is mounted.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from reactor_rl.errors import RunError

try:
    import resource as _resource
except ImportError:  # on Windows
    _resource = None  # type: ignore[assignment]

__all__ = ["group_cores", "group_memory", "shortage", "shortages_named", "usable_cores"]

_SELF = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """Count the cores that this process may use, by its affinity and the quota of its control group."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = group_cores()
    return cores if quota is None else min(cores, quota)


def _groups(controller: str) -> Iterator[Path]:
    """List the directories of this process's groups that may limit a resource, from the innermost to the root."""
    try:
        lines = _SELF.read_text().splitlines()
    except OSError:  # no control groups here
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":  # version 2, alone or beside version 1
            mounts = (_MOUNT, _MOUNT / "unified")
        elif controller in controllers.split(","):
            mounts = (_MOUNT / controllers, _MOUNT / controller)
        else:
            continue
        own = PurePosixPath(path)
        for mount in mounts:
            # A limit of a group holds for all below it, so each one above counts too.
            for group in (own, *own.parents):
                yield mount / group.relative_to("/")


def _numbers(path: Path) -> list[int]:
    """Read the numbers in a file; an empty list if it does not exist or sets no limit."""
    with contextlib.suppress(OSError, ValueError):
        return [int(word) for word in path.read_text().split()]
    return []


def group_cores() -> int | None:
    """Count the cores that the quotas allow this process, rounded up, at least 1. ``None``: no quota."""
    cores = []
    for group in _groups("cpu"):
        match _numbers(group / "cpu.max"), _numbers(group / "cpu.cfs_quota_us"), _numbers(group / "cpu.cfs_period_us"):
            case ([quota, period], _, _) | (_, [quota], [period]) if quota > 0 and period > 0:
                cores.append(max(1, math.ceil(quota / period)))
    return min(cores, default=None)


def group_memory() -> int | None:
    """Count the bytes that the groups' limits leave beyond their present use. ``None``: no limit."""
    free = []
    for group in _groups("memory"):
        for limit, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            match _numbers(group / limit), _numbers(group / used):
                case [most], [now]:
                    free.append(max(0, most - now))
    return min(free, default=None)


def shortage(error: BaseException) -> str | None:
    """Explain an error of exhausted descriptors, processes, threads or memory: which limit it is and what to do. Else ``None``."""
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.EMFILE, errno.ENFILE, errno.ETOOMANYREFS):  # the last one: of those that are on their way to a process
        most = "" if _resource is None else f", here {_resource.getrlimit(_resource.RLIMIT_NOFILE)[0]}"
        return f"This process has reached its limit of open files (ulimit -n{most}); raise it, or use fewer workers"
    if number == errno.EAGAIN or (isinstance(error, RuntimeError) and "can't start new thread" in str(error)):
        return "The limit of processes and threads is reached (ulimit -u, or that of the container); raise it, or use fewer workers"
    if number in (errno.ENOMEM, errno.ENOBUFS):
        return (
            "The memory of this machine or container is used up, or this process may map no more (ulimit -v, vm.max_map_count); "
            "end other programs, raise the limit, or use fewer workers"
        )
    return None


@contextlib.contextmanager
def shortages_named(what: str) -> Iterator[None]:
    """Turn an error in the block that comes from an exhausted limit into one that names the limit.

    Args:
        what: The thing that cannot be done, for the message: "start the workers".

    Raises:
        RunError: In place of the original error.
    """
    try:
        yield
    except (OSError, RuntimeError) as error:
        why = shortage(error)
        if why is None:
            raise
        raise RunError(f"cannot {what}: {getattr(error, 'strerror', None) or error}. {why}") from error
