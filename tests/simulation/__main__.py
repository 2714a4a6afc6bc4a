"""Repeat one seed of the simulation (``python -m tests.simulation 12345``), or run many (``--seconds 3600 --merge``).

One seed prints what happened, and exits with 1 if that should not have happened. Many print those that fail. Their figures go to
``benchmarks/results/simulation.json``; with ``--merge`` they are added to those that are there, and the seeds go on from there.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from recording import print_machine, write_json
from simulated_runs import KINDS, Outcome, run_seed

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
PIECE = 200
"""Seeds that a process runs before it is given others."""
COUNTED = ("schedules", "points", "switches", "kills", "ctrl_c", "failures")


def repeat(seed: int, last: int) -> int:
    """Run one seed and print what happened."""
    log: list[tuple[Any, ...]] = []
    outcome = run_seed(seed, log)
    if len(log) > last:
        print(f"... {len(log) - last} lines before ...")
    for points, now, who, what in log[-last:]:
        print(f"{points:7} {1e3 * now:12.4f} ms  {who:20} {what}")
    print(outcome.settings)
    if outcome.simulation is None:
        print("all reactors are on one worker: nothing to simulate")
        return 0
    for task in outcome.simulation.tasks:
        print(f"  {task.name}: {task.state()}")
    if outcome.error is None:
        print(f"as it should be, after {outcome.simulation.points} points and {outcome.simulation.switches} switches")
        return 0
    print(outcome.text, end="")
    return 1


Found = tuple[dict[str, Counter[str]], list[tuple[int, str]]]
"""Figures by kind, and seeds that failed with their errors."""


def some(seeds: range) -> Found:
    """Run seeds one after the other."""
    found = {kind: Counter(dict.fromkeys(COUNTED, 0)) for kind in KINDS}
    failed: list[tuple[int, str]] = []
    for seed in seeds:
        outcome = run_seed(seed)
        _count(outcome, found[outcome.settings.kind])
        if outcome.error is not None:
            failed.append((outcome.settings.seed, f"{type(outcome.error).__name__}: {outcome.error}"))
            print(f"{outcome.settings}\n  {failed[-1][1]}", flush=True)
    return found, failed


def many(first: int, seconds: float, most: int | None, jobs: int) -> Iterator[tuple[Found, int]]:
    """Run seeds from ``first`` on, in pieces, in as many processes as there are jobs.

    Yields:
        Figures of each piece in the order of its seeds, and the seed to go on with. A signal to end begins no other piece.
    """
    ends = time.monotonic() + seconds
    after = None if most is None else first + most

    def stop(*_: Any) -> None:
        nonlocal ends
        ends = 0.0

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    with ProcessPoolExecutor(jobs, mp_context=get_context("fork"), initializer=_ignore_interrupts) as pool:
        under_way: deque[tuple[Future[Found], int]] = deque()
        while True:
            while len(under_way) < 2 * jobs and time.monotonic() < ends and first != after:
                seeds = range(first, first + PIECE if after is None else min(first + PIECE, after))
                under_way.append((pool.submit(some, seeds), seeds.stop))
                first = seeds.stop
            if not under_way:
                return
            piece, following = under_way.popleft()
            yield piece.result(), following


def _ignore_interrupts() -> None:
    """Ctrl-C of a terminal reaches every process of it; who gives out the pieces is the one to end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _count(outcome: Outcome, found: Counter[str]) -> None:
    simulation = outcome.simulation
    if simulation is not None:
        numbers = (
            1,
            simulation.points,
            simulation.switches,
            simulation.killed,
            simulation.interrupted,
            int(outcome.error is not None),
        )
        found.update(dict(zip(COUNTED, numbers, strict=True)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seed", type=int, nargs="?", help="repeat this one and print what happens")
    parser.add_argument("--last", type=int, default=200, help="how many of the last lines of its log are printed (200)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to run seeds (60)")
    parser.add_argument("--first", type=int, help="the seed to begin with; by default 0, or where the results to merge with end")
    parser.add_argument("--most", type=int, help="how many seeds at most")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes run seeds (1)")
    parser.add_argument("--merge", action="store_true", help="add the figures to those of earlier runs")
    parser.add_argument("--output", type=Path, help="the folder of the result file; without it and --merge nothing is written")
    parser.set_defaults(quick=False)
    options = parser.parse_args()
    if options.seed is not None:
        return repeat(options.seed, options.last)
    writes = options.merge or options.output is not None
    options.output = options.output or RESULTS
    file = options.output / "simulation.json"
    before = (
        json.loads(file.read_text())
        if options.merge and file.exists()
        else {"cases": {}, "next": 0, "failed": [], "core_seconds": 0.0}
    )
    if writes:
        print_machine()
    first, began = before["next"] if options.first is None else options.first, time.monotonic()
    found = {kind: Counter(dict.fromkeys(COUNTED, 0)) for kind in KINDS}
    failed: list[tuple[int, str]] = []
    after = first
    for (counts, failures), following in many(first, options.seconds, options.most, options.jobs):
        after = following
        for kind, count in counts.items():
            found[kind].update(count)
        failed += failures
    took = time.monotonic() - began
    whole: Counter[str] = sum(found.values(), Counter())
    print(
        f"seeds {first} to {after - 1} in {took:.1f} s: {whole['schedules']} schedules, {whole['points']} points, "
        f"{whole['switches']} switches, {whole['kills']} kills, {whole['ctrl_c']} Ctrl-C, {whole['failures']} failures"
    )
    if writes:
        cases = {
            kind: {name: figures[name] + before["cases"].get(kind, {}).get(name, 0) for name in COUNTED}
            for kind, figures in found.items()
        }
        cases["all"] = {name: sum(figures[name] for figures in cases.values()) for name in COUNTED}
        every = [*before["failed"], *([seed, error] for seed, error in failed)]
        core_seconds = before["core_seconds"] + took * options.jobs
        write_json(options, "simulation", cases, next=after, failed=every, core_seconds=round(core_seconds, 1))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
