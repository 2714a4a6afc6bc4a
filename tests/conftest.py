"""What every test is held to: it leaves no process, thread, file descriptor or shared memory behind."""

from __future__ import annotations

import gc
import math
import multiprocessing
import os
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from reactor_rl.runtime.limits import usable_cores

_SERVICES = ("resource_tracker", "forkserver", "semaphore_tracker")
"""Processes that ``multiprocessing`` keeps for as long as the interpreter lives."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """For ``-n logical``: half as many again as there are cores. A third of the time a test waits for what it has started."""
    return math.ceil(1.5 * usable_cores())


def _children() -> set[int]:
    """Children of this process (and of its fork servers: workers are started by those), without the services themselves."""
    parents: dict[int, int] = {}
    service: set[int] = set()
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except FileNotFoundError:  # no /proc: what multiprocessing knows has to do
        return {p.pid for p in multiprocessing.active_children() if p.pid is not None}
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        parents[pid] = int(fields[1])
        if any(name in line for name in _SERVICES):
            service.add(pid)
    me = os.getpid()
    direct = {pid for pid, parent in parents.items() if parent == me}
    # What a fork server forks keeps its command line, so only our direct children can be the services.
    own_services = direct & service
    return (direct - own_services) | {pid for pid, parent in parents.items() if parent in own_services}


def _threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.is_alive()}


def _shared() -> set[str]:
    try:
        mine = f"rrl-{os.getpid():x}-"  # other sessions may run beside this one
        return {name for name in os.listdir("/dev/shm") if mine in name}
    except FileNotFoundError:
        return set()


def _descriptors() -> dict[str, str]:
    found = {}
    try:
        for name in os.listdir("/proc/self/fd"):
            try:
                found[name] = os.readlink(f"/proc/self/fd/{name}")
            except OSError:
                continue
    except FileNotFoundError:
        pass
    return found


def _ours(descriptors: dict[str, str]) -> int:
    """Blocks of memory are what would be left open by a mistake of ours."""
    return sum("memfd:reactor_rl" in target for target in descriptors.values())


_failed = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[_failed] = item.stash.get(_failed, False) or report.failed
    return report


@pytest.fixture(autouse=True)
def nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves something behind."""
    children, threads, shared, open_before = _children(), _threads(), _shared(), _ours(_descriptors())
    yield
    end = time.monotonic() + 3.0
    while True:
        problems = []
        multiprocessing.active_children()  # reaps those that have ended
        if left := _children() - children:
            problems.append(f"processes {sorted(left)}")
        if alive := _threads() - threads:
            problems.append(f"threads {sorted(thread.name for thread in alive)}")
        if names := _shared() - shared:
            problems.append(f"shared memory {sorted(names)}")
        # The traceback of a test that failed keeps views of the memory alive.
        if _ours(_descriptors()) > open_before and not request.node.stash.get(_failed, False):
            problems.append("open blocks of memory")
        if not problems or time.monotonic() > end:
            break
        gc.collect()
        time.sleep(0.02)
    if problems:
        pytest.fail("this test left behind: " + "; ".join(problems))


@pytest.fixture
def one_thread() -> Iterator[None]:
    """One thread of torch, as learners have by default."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
