"""Repeat one seed of the simulation (``python -m tests.simulation 12345``), or run many (``--seconds 3600 --merge``).

One seed prints what happened, and exits with 1 if that should not have happened. Many print those that fail. Their figures go to
``benchmarks/results/simulation.json``; with ``--merge`` they are added to those that are there, and the seeds go on from there.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from recording import print_machine, write_json
from simulated_runs import KINDS, Outcome, run_seed

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
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


def many(first: int, seconds: float, most: int | None) -> tuple[dict[str, Counter[str]], list[tuple[int, str]], int]:
    """Run seeds from ``first`` on.

    Returns:
        Figures by kind, seeds that failed with their errors, and the seed to go on with.
    """
    found = {kind: Counter(dict.fromkeys(COUNTED, 0)) for kind in KINDS}
    failed: list[tuple[int, str]] = []
    end = time.monotonic() + seconds
    seed = first
    while time.monotonic() < end and (most is None or seed < first + most):
        outcome = run_seed(seed)
        seed += 1
        _count(outcome, found[outcome.settings.kind])
        if outcome.error is not None:
            failed.append((outcome.settings.seed, f"{type(outcome.error).__name__}: {outcome.error}"))
            print(f"{outcome.settings}\n  {failed[-1][1]}", flush=True)
    return found, failed, seed


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
        json.loads(file.read_text()) if options.merge and file.exists() else {"cases": {}, "next": 0, "failed": [], "seconds": 0.0}
    )
    if writes:
        print_machine()
    first, began = before["next"] if options.first is None else options.first, time.monotonic()
    found, failed, after = many(first, options.seconds, options.most)
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
        failures = [*before["failed"], *([seed, error] for seed, error in failed)]
        write_json(
            options, "simulation", cases, next=after, failed=failures, seconds=round(before["seconds"] + took, 1)
        )  # fmt: skip
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
