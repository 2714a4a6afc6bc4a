"""From a program to a run: compile it, choose where it runs, reserve what it needs, start the workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from reactor_rl import graph as graphs
from reactor_rl.autotune import choose, usable_cores
from reactor_rl.errors import ProgramError
from reactor_rl.runtime.arena import lay_out
from reactor_rl.runtime.executor import Executor, Reactors
from reactor_rl.runtime.inline import Inline
from reactor_rl.runtime.launch import may_start_processes
from reactor_rl.runtime.plan import Options, Plan
from reactor_rl.runtime.processes import Processes
from reactor_rl.runtime.run import Run
from reactor_rl.runtime.threads import Threads
from reactor_rl.schedule import compile_schedule

if TYPE_CHECKING:
    from reactor_rl.program import ExecutorName, Program

__all__ = ["start"]

SPIN = 200e-6
"""Seconds that a worker spins before it parks: about what waking it up costs, several times over."""
LONGEST_SPIN = 0.1


def start(
    program: Program,
    *,
    executor: ExecutorName,
    workers: int | None,
    context: str | None,
    caller_works: bool,
    debug: bool,
    fingerprint: Literal["boundary", "all", "off"],
    costs: Mapping[str, float] | None,
    placement: Mapping[str, int] | None = None,
    spin: float | None = None,
) -> Run:
    """Compile and start a program; see :meth:`Program.start`."""
    if executor not in ("auto", "inline", "threads", "processes"):
        raise ProgramError(f"executor={executor!r}: choose 'auto', 'inline', 'threads' or 'processes'")
    if fingerprint not in ("boundary", "all", "off"):
        raise ProgramError(f"fingerprint={fingerprint!r}: choose 'boundary', 'all' or 'off'")
    if spin is not None and not 0.0 <= spin <= LONGEST_SPIN:
        raise ProgramError(f"spin={spin!r}: seconds between 0 and {LONGEST_SPIN}; a worker that waits longer had better park")
    topology = program.topology()
    graph = graphs.build(topology)
    cores = usable_cores()
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise ProgramError(
            f"workers={workers!r}: a program needs at least one worker (workers=None takes the cores of this process)"
        )
    choice = ""
    if executor == "auto" and placement is not None:
        raise ProgramError("placement says which worker gets what, and so would executor='auto': name the executor")
    if executor == "auto":
        chosen = choose(program, graph, workers or cores, caller_works=caller_works, costs=costs)
        executor, workers, costs, choice = chosen.executor, chosen.workers, chosen.costs, chosen.why
    if executor == "inline":
        workers, caller_works = 1, True
        placement = None if placement is None else dict.fromkeys(placement, 0)
    schedule = compile_schedule(
        topology, graph, workers or cores, costs=costs, caller_works=caller_works, placement=placement
    )  # fmt: skip
    if schedule.workers == 1:
        executor = "inline"
    plan = Plan(topology, schedule, lay_out(topology, schedule), Options(debug, fingerprint))
    pickled = program.pickled_reactors(by_reference=context == "fork" and executor == "processes")
    reactors: list[Reactors] = [{index: pickled[index] for index in plan.reactors_of(w)} for w in range(schedule.workers)]
    if spin is None:
        spin = SPIN
    if schedule.workers > cores:
        spin = 0.0
    carrier: Executor
    match executor:
        case "inline":
            carrier = Inline(plan)
        case "threads":
            for function in program.setup_functions():
                function()
            carrier = Threads(plan, spin)
        case _:
            if not may_start_processes():
                raise ProgramError(
                    "executor='processes': this process is daemonic, as workers of multiprocessing.Pool and of torch's DataLoader "
                    "are, and may not start others; use executor='auto' or 'inline' in it"
                )
            carrier = Processes(plan, spin, context, program.setup_functions())
    return Run(plan, carrier, reactors, choice)
