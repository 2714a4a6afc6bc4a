"""``python -m reactor_rl doctor``: report what this machine offers to reactor programs, and warn of what slows them down."""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import platform
import shutil
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, entry_points, version
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from reactor_rl import __version__
from reactor_rl.cli.commands import UsageError, registered_targets
from reactor_rl.runtime.channel import Channel, SpinControl
from reactor_rl.runtime.launch import context_named, new_process, start_process
from reactor_rl.runtime.limits import usable_cores
from reactor_rl.runtime.shared_memory import available_memory
from reactor_rl.runtime.supervisor import SPIN

__all__ = ["RoundTrip", "doctor_command", "round_trips"]

LIBRARIES = (
    "numpy", "cloudpickle", "gymnasium", "ale-py", "mujoco", "stable-baselines3", "torch", "pettingzoo", "supersuit", "ray",
)  # fmt: skip
"""Distributions whose versions are reported; nothing is imported."""

TORCH = (
    "torch uses a thread for each core by default. On busy cores these threads wait for each other, and an update takes many times "
    "as long. The trainers and MultiAgentRunner use one thread; in code of your own call torch.set_num_threads(1) or set "
    "OMP_NUM_THREADS=1"
)
"""The warning about torch's threads on a busy machine."""

ROUNDS, BATCH = 20, 50
"""Measurements, of which the median counts, and round trips in each: one trip of a microsecond is too short for the clock."""
PATIENCE = 20.0
"""Seconds within which the other process must answer. It may have to start a fork server first, on a busy machine."""
SLOW_PARKED = 200e-6
"""Seconds of a round trip between parked processes that is worth a warning: some fifteen times the 13 us of two cores at rest (see
``runtime/channel.py``).
"""
LITTLE_MEMORY = 1_000_000_000
"""Bytes: a worker that has imported torch takes some hundred megabytes, so two or three of them fill what is left. Chosen."""


SUBJECTS = "reactor_rl.doctor_of"
"""Entry points for functions that examine a subject by its name. They yield the same tuples as those for the machine."""
FACTS = ("cores", "load")
"""Facts about the machine that the report on an environment repeats."""


def doctor_command(argv: list[str]) -> int:
    """Report what this machine offers, measure its channels and warn of problems; or examine an environment or a saved model."""
    parser = argparse.ArgumentParser(prog="python -m reactor_rl doctor", description=doctor_command.__doc__)
    what = "examine this environment: costs, what helpers gain, determinism; or this MODEL.zip: who evaluates its policy, and why"
    parser.add_argument("id", metavar="ENV_ID", nargs="?", help=what)
    parser.add_argument("--no-measure", action="store_true", help="do not start a process to measure channels")
    options = parser.parse_args(argv)
    warnings: list[str] = []
    if options.id is not None:
        if options.no_measure:
            raise UsageError(f"--no-measure is for the report on this machine, and cannot be used with {options.id!r}")
        facts = (fact for fact in _facts(warnings) if fact[0] in FACTS)
        for label, value in chain(_of_subject(options.id, warnings), facts):
            print(f"{label:20}{value}", flush=True)
        return _verdict(warnings)
    for label, value in _facts(warnings):
        print(f"{label:20}{value}")
    if not options.no_measure:
        for label, value in _measured(warnings):
            print(f"{label:20}{value}", flush=True)
    for label, value in _of_plugins(warnings):
        print(f"{label:20}{value}")
    commands = sorted(entry.name for entry in entry_points(group="reactor_rl.commands"))
    for what, names in (("commands", commands), ("verify targets", [one.name for one in registered_targets()])):
        print(f"{what:20}{', '.join(names) or 'none'} (from plugins)")
    return _verdict(warnings)


def _verdict(warnings: Sequence[str]) -> int:
    for warning in warnings:
        print(f"warning: {warning}")
    if not warnings:
        print("no problems found")
    return 0


def _facts(warnings: list[str]) -> Iterator[tuple[str, str]]:
    yield "reactor_rl", __version__
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    yield "Python", f"{platform.python_version()} ({platform.python_implementation()}), GIL {'on' if gil else 'off'}"
    yield "system", f"{platform.system()} {platform.release()} {platform.machine()}"
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    usable, quota = usable_cores(), _quota()
    yield "cores", f"{usable} usable ({os.cpu_count()} in the machine, {affinity} by affinity, quota {quota})"
    if usable < affinity:
        warnings.append(f"the control group's quota allows {usable} of {affinity} cores; more workers than that only take turns")
    if usable == 1:
        warnings.append("one core: processes cannot be faster than one worker here")
    with contextlib.suppress(OSError, AttributeError):
        load = os.getloadavg()[0]
        yield "load", f"{load:.1f}"
        if load > max(1.0, 0.5 * (os.cpu_count() or 1)):
            warnings.append(f"other programs are busy on this machine (load {load:.1f}); timings will not repeat well")
            if _version("torch") and os.environ.get("OMP_NUM_THREADS") != "1":
                warnings.append(TORCH)
    memory = available_memory()
    yield "memory", "unknown" if memory is None else f"{memory / 1e9:.1f} GB available"
    if memory is not None and memory < LITTLE_MEMORY:
        warnings.append(f"only {memory / 1e6:.0f} MB of memory are available")
    memfd = sys.platform == "linux"
    yield "shared memory", "anonymous memory files (memfd), no name and no limit but memory" if memfd else "temporary files"
    with contextlib.suppress(OSError):
        total, _, free = shutil.disk_usage("/dev/shm")
        yield (
            "/dev/shm",
            f"{total / 1e6:.0f} MB, {free / 1e6:.0f} MB free" + (" (only semaphores need it, a few kB)" if memfd else ""),
        )
        if free < 1_000_000:
            warnings.append("/dev/shm is full: channels need a few kB of it while workers start")
    methods = multiprocessing.get_all_start_methods()
    used = context_named(None).get_start_method()
    yield "start methods", ", ".join(f"{method} (used)" if method == used else method for method in methods)
    threads = os.environ.get("OMP_NUM_THREADS")
    yield "OMP_NUM_THREADS", "unset: torch takes a thread for each core" if threads is None else f"{threads} here"
    versions = [f"{name} {_version(name) or '-'}" for name in LIBRARIES]
    yield "libraries", ", ".join(versions)
    if sys.platform == "linux" and not _has_pidfd():
        warnings.append("this kernel has no pidfd_open: a worker notices only through the fork server that its caller was killed")


def _of_plugins(warnings: list[str]) -> Iterator[tuple[str, str]]:
    """Collect the reports of plugins: each entry point gives tuples of a label, a value and a warning or None."""
    for entry in sorted(entry_points(group="reactor_rl.doctor"), key=lambda entry: entry.name):
        try:
            lines = list(entry.load()())
        except ImportError as error:
            yield entry.name, f"skipped: {error}"
            continue
        yield from _noted(lines, warnings)


def _of_subject(name: str, warnings: list[str]) -> Iterator[tuple[str, str]]:
    """Examine an environment, or a model in a file, by the plugin that can."""
    kind = "model" if name.endswith(".zip") else "environment"
    for entry in entry_points(group=SUBJECTS, name=kind):
        try:
            examine = entry.load()
        except ImportError as error:
            raise UsageError(f"{name!r} cannot be examined: {error}") from error
        return _noted(examine(name), warnings)
    extra = "sb3" if kind == "model" else "gymnasium"
    raise UsageError(f"{name!r} cannot be examined: no plugin that examines {kind}s is installed (extra [{extra}])")


def _noted(lines: Iterable[tuple[str, str, str | None]], warnings: list[str]) -> Iterator[tuple[str, str]]:
    for label, value, warning in lines:
        yield label, value
        if warning is not None:
            warnings.append(warning)


def _has_pidfd() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (OSError, AttributeError):
        return False
    return True


def _quota() -> str:
    """The quota of the control group, in cores."""
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return "none" if quota == "max" else f"{int(quota) / int(period):.2f}"
    with contextlib.suppress(OSError, ValueError):
        quota_us = int(Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").read_text())
        period_us = int(Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us").read_text())
        return "none" if quota_us <= 0 else f"{quota_us / period_us:.2f}"
    return "none"


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


# ---------------------------------------------------------------------- channels


def _measured(warnings: list[str]) -> Iterator[tuple[str, str]]:
    for label, spin in (("spinning", SPIN), ("parked", 0.0)):
        try:
            seconds = round_trips(spin).seconds
        except Exception as error:
            yield f"channel, {label}", f"failed ({type(error).__name__}: {error})"
            warnings.append("a process could not be started or reached; executor='processes' will not work here")
            return
        yield f"channel, {label}", f"{seconds * 1e6:.1f} us for a round trip between two processes"
        if spin and usable_cores() == 1:
            warnings.append("with one core nothing gains from spinning; runs do not spin when workers outnumber cores")
        if not spin and seconds > SLOW_PARKED:
            warnings.append(
                f"waking a process takes {seconds * 5e5:.0f} us, long for this kernel: a virtual machine, or a busy one?"
            )


class RoundTrip(NamedTuple):
    """Seconds that a token takes to another process and back, and seconds of the SIGNAL alone that sends it."""

    seconds: float
    signal: float


def round_trips(spin: float) -> RoundTrip:
    """Measure how long a token takes to another process and back, as medians of several batches.

    Args:
        spin: Seconds that both ends spin before they park.

    Raises:
        TimeoutError: If the other process does not answer.
    """
    there, back = Channel(), Channel()
    spinning, clock = SpinControl(spin), time.perf_counter
    context = context_named(None)
    process = new_process(context, 1, _echo, (there, back, spin, 2 * ROUNDS * BATCH + 1))
    start_process(context, process)
    try:
        there.signal()
        if not back.poll(True, PATIENCE):
            raise TimeoutError("the other process did not answer")
        trips, signals = [], []
        for _ in range(ROUNDS):
            begin = clock()
            for _ in range(BATCH):
                there.signal()
                _take(back, spinning)
            trips.append((clock() - begin) / BATCH)
            spent = 0.0
            for _ in range(BATCH):
                begin = clock()
                there.signal()
                spent += clock() - begin
                _take(back, spinning)
            signals.append(spent / BATCH)
        process.join(PATIENCE)
        return RoundTrip(statistics.median(trips), statistics.median(signals))
    finally:
        if process.is_alive():
            process.kill()
            process.join()
        there.unlink()
        back.unlink()


def _take(channel: Channel, spinning: SpinControl) -> None:
    # A real WAIT tries once before it parks, so a try that happens to succeed at once belongs to the measurement.
    if not channel.wait(spinning) and not channel.poll(True, PATIENCE):
        raise TimeoutError("the other process did not answer")


def _echo(there: Channel, back: Channel, spin: float, times: int) -> None:
    spinning = SpinControl(spin)
    for _ in range(times):
        _take(there, spinning)
        back.signal()
