"""What every test is held to: it leaves no process, thread, file descriptor or shared memory behind."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from reactor_rl.plugin import preload
from reactor_rl.runtime.limits import usable_cores

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Read when torch is loaded. Else its threads spin between two operations, where four tests share two cores: a fifth of the time.

_HERE = Path(__file__).parent

hypothesis.settings.register_profile("tests", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("tests")

_SERVICES = (b"resource_tracker", b"forkserver", b"semaphore_tracker")
"""Processes that ``multiprocessing`` keeps for as long as the interpreter lives."""

_LIBRARIES = {"ale_py", "cv2", "gymnasium", "hypothesis", "mpe2", "mujoco", "pettingzoo", "pygame", "pymunk", "pytest"}
"""Of environments and of the modules of tests that they are in."""


_MARKED = {"host": "host", "soak": "slow"}
"""Folders whose tests all have a marker. Modules and tests elsewhere name their own."""


@pytest.hookimpl(tryfirst=True)  # before pytest looks at -m
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if mark := _MARKED.get(item.path.relative_to(_HERE).parts[0]):
            item.add_marker(mark)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """For ``-n logical``: twice as many as there are cores. Half of the time a test waits for what it has started."""
    return 2 * usable_cores()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Who has nothing left to do takes over from others, so that the longest tests do not run alone at the end."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Keep the bytecode of test modules: a game of PettingZoo's ends that for all that is imported after it.

    Else most of them would be compiled at each run, and by each worker.
    """
    before = sys.dont_write_bytecode
    try:
        return (yield)
    finally:
        sys.dont_write_bytecode = before


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage among modules and tests, of which there is none."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """What thousands of tests consist of stays: whoever collects garbage need not look at it, for a quarter of a second each.

    And the thousands of helpers that they start find ready what the tests' environments are made of.
    """
    loaded = (name for name in sys.modules if name.partition(".")[0] in _LIBRARIES)
    preload(*loaded, "gymnasium.envs.classic_control", "gymnasium.envs.toy_text")
    gc.collect()
    gc.freeze()


def _children() -> set[int]:
    """Children of this process (and of its fork servers: workers are started by those), without the services themselves."""
    if (direct := _children_of("self")) is None:  # what multiprocessing knows has to do
        return {p.pid for p in multiprocessing.active_children() if p.pid is not None}
    # What a fork server forks keeps its command line, so only our direct children can be the services.
    services = {pid for pid in direct if any(name in _read(f"/proc/{pid}/cmdline") for name in _SERVICES)}
    return (direct - services).union(*(_children_of(pid) or () for pid in services))


def _children_of(process: int | str) -> set[int] | None:
    """Children of any thread of a process; ``None`` if the system does not tell."""
    try:
        threads = os.listdir(f"/proc/{process}/task")
    except OSError:
        return None
    files = [f"/proc/{process}/task/{thread}/children" for thread in threads]
    if not any(map(os.path.exists, files)):
        return None
    return {int(pid) for file in files for pid in _read(file).split()}


def _read(path: str) -> bytes:
    """A file of a process, empty if that has ended. Twice for each test and process, so it is quick."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(descriptor, 4096)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.is_alive()}


def _stack(thread: threading.Thread) -> str:
    """Say where a thread is."""
    frame = sys._current_frames().get(thread.ident or 0)
    return f"{thread.name}:\n" + "".join(traceback.format_stack(frame) if frame else ())


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
    for look in count():
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
        if not problems:
            break
        if time.monotonic() > end and look >= 30:  # a machine that stands still for seconds gives nobody the time to end
            pytest.fail("\n".join(["this test left behind: " + "; ".join(problems), *map(_stack, alive)]))
        gc.collect()
        time.sleep(0.02)


@pytest.fixture(scope="session")
def run_script(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., tuple[int, str]]]:
    """Runs a script with arguments in a folder as users would, and returns its exit status and what it has written.

    Host libraries are imported once for all scripts.
    """
    # Where other programs are busy, threads of torch wait for each other: see the page on training.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    command = [sys.executable, str(_HERE / "script_runner.py")]
    output = tmp_path_factory.mktemp("scripts") / "output.txt"
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True) as runner:
        assert runner.stdin and runner.stdout
        to_runner, from_runner = runner.stdin, runner.stdout

        def run(script: Path, folder: Path, *arguments: str) -> tuple[int, str]:
            print(json.dumps([str(folder), str(output), str(script), *arguments]), file=to_runner, flush=True)
            return int(from_runner.readline()), output.read_text()

        yield run


@pytest.fixture
def one_thread() -> Iterator[None]:
    """One thread of torch, as learners have by default."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
