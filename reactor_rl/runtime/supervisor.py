"""From a program to a run: check the settings, compile, reserve memory, start the workers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from reactor_rl import graph as graphs
from reactor_rl.errors import ProgramError
from reactor_rl.reactor import Reactor
from reactor_rl.runtime.executor import Executor, InlineExecutor, Reactors
from reactor_rl.runtime.helpers import Helpers
from reactor_rl.runtime.launch import may_start_processes
from reactor_rl.runtime.limits import usable_cores
from reactor_rl.runtime.module_settings import warn_caller, what_differs
from reactor_rl.runtime.plan import Plan, WorkerOptions, lay_out
from reactor_rl.runtime.processes import ProcessesExecutor
from reactor_rl.runtime.recovery import RecoveringHelpers
from reactor_rl.runtime.run import Run
from reactor_rl.runtime.threads import ThreadsExecutor
from reactor_rl.schedule import Arrivals, compile_schedule
from reactor_rl.settings import ExecutorName, Recover, check_timeout
from reactor_rl.topology import Topology

__all__ = ["SPIN", "RunSettings", "check", "compile_program", "start"]

SPIN = 200e-6
"""Seconds that a worker spins before it parks: several times the cost of waking it up, which is 13 us on two cores at rest. What
comes within that time is met by a worker that spins; with more, workers would keep cores busy in the caller's pauses.
"""
LONGEST_SPIN = 0.1
"""Most seconds that a user may ask for: some thousand times what waking up costs. Beyond it a typing error is likelier
(milliseconds for seconds).
"""


@dataclass(frozen=True)
class RunSettings:
    """Settings of a run; see :meth:`reactor_rl.Program.start`."""

    executor: ExecutorName = "inline"
    workers: int | None = None
    start_method: str | None = None
    caller_works: bool = True
    debug: bool = False
    fingerprint: Literal["boundary", "all", "off"] = "boundary"
    costs: Mapping[str, float] | None = None
    placement: Mapping[str, int] | None = None
    spin: float | None = None
    recover: Recover | None = None
    timeout: float | None = None


def check(settings: RunSettings) -> None:
    """Check settings.

    Raises:
        ProgramError: Naming the setting and its possible values.
    """
    workers, spin = settings.workers, settings.spin
    if settings.fingerprint not in ("boundary", "all", "off"):
        raise ProgramError(f"fingerprint must be 'boundary', 'all' or 'off', got {settings.fingerprint!r}")
    if spin is not None and not 0.0 <= spin <= LONGEST_SPIN:
        raise ProgramError(f"spin must be between 0 and {LONGEST_SPIN} s, got {spin!r}; a worker that waits longer should park")
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise ProgramError(f"workers must be an integer >= 1, or None for the cores of this process, got {workers!r}")
    check_timeout("timeout", settings.timeout)
    if settings.recover is not None:
        _check_recovery(settings)
    if settings.executor == "auto" and settings.placement is not None:
        raise ProgramError("placement cannot be combined with executor='auto', which chooses the workers: name the executor")


def _check_recovery(settings: RunSettings) -> None:
    if not isinstance(settings.recover, Recover):
        raise ProgramError(f"recover must be a Recover, or None to recover nothing, got {settings.recover!r}")
    why = None
    if settings.executor == "threads":
        why = "executor='threads': a thread can be neither killed nor replaced; use executor='processes'"
    elif settings.start_method == "fork":
        why = "start_method='fork': a new worker must begin as the first one did; use 'forkserver' or 'spawn'"
    elif settings.debug:
        why = "debug=True: the pattern in the slots hides their content; use one of the two"
    elif settings.fingerprint == "all":
        why = "fingerprint='all': the hashes of a worker die with it; use fingerprint='boundary'"
    elif os.name != "posix":
        why = "this system: it needs POSIX, which can exchange pages of memory"
    if why is not None:
        raise ProgramError(f"recover= cannot be used with {why}")


def start(
    topology: Topology,
    reactors: Callable[[bool], Sequence[bytes | Reactor]],
    setup: Sequence[Callable[[], None]],
    settings: RunSettings,
    why: str = "",
) -> Run:
    """Compile a program and start it.

    Args:
        topology: The program.
        reactors: Its reactors, pickled; called with whether those that cannot be pickled may be given as they are.
        setup: Functions that every helper runs before its reactors are built.
        settings: How to run it, with a named executor.
        why: The reason for these settings, for :attr:`Run.choice`.
    """
    plan, executor = compile_program(topology, setup, settings)
    pickled = reactors(settings.start_method == "fork" and executor.name == "processes")
    shares: list[Reactors] = [{index: pickled[index] for index in plan.reactors_of(w)} for w in range(plan.schedule.workers)]
    helpers = (
        RecoveringHelpers(plan, executor, settings.recover, shares)
        if settings.recover is not None and isinstance(executor, ProcessesExecutor)
        else Helpers(plan, executor)
    )
    run = Run(plan, executor, shares, why, helpers, settings.timeout)
    if isinstance(executor, ProcessesExecutor):
        try:
            found = [one for part in run._ask("settings", None) for one in part]
            if told := what_differs(found):
                warn_caller(told)
        except BaseException:
            run.close()
            raise
    return run


def compile_program(
    topology: Topology, setup: Sequence[Callable[[], None]], settings: RunSettings, arrivals: Arrivals | None = None
) -> tuple[Plan, Executor]:
    """Compile a program and make its executor.

    Args:
        topology: The program.
        setup: Functions that every helper runs before its reactors are built.
        settings: How to run it, with a named executor.
        arrivals: Links that arrive from other nodes.
    """
    executor, workers, placement = settings.executor, settings.workers, settings.placement
    cores, caller_works = usable_cores(), settings.caller_works
    if executor == "inline":
        workers, caller_works = 1, True
        placement = None if placement is None else dict.fromkeys(placement, 0)
    schedule = compile_schedule(
        topology, graphs.build(topology), workers or cores, costs=settings.costs, caller_works=caller_works, placement=placement,
        arrivals=arrivals,
    )  # fmt: skip
    if schedule.workers == 1:
        executor = "inline"
    plan = Plan(topology, schedule, lay_out(topology, schedule), WorkerOptions(settings.debug, settings.fingerprint))
    spin = SPIN if settings.spin is None else settings.spin
    if schedule.workers > cores:
        spin = 0.0
    return plan, _executor(executor, plan, spin, settings.start_method, setup)


def _executor(
    executor: ExecutorName, plan: Plan, spin: float, start_method: str | None, setup: Sequence[Callable[[], None]]
) -> Executor:
    match executor:
        case "inline":
            return InlineExecutor(plan)
        case "threads":
            for function in setup:
                function()
            return ThreadsExecutor(plan, spin)
        case _:
            if not may_start_processes():
                raise ProgramError(
                    "executor='processes': this process is daemonic, as workers of multiprocessing.Pool and of torch's DataLoader "
                    "are, and may not start others; use executor='auto' or 'inline' in it"
                )
            return ProcessesExecutor(plan, spin, start_method, setup)
