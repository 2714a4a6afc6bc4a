"""Runs the benchmarks, one after the other, and makes a report of them: ``python -m reactor_rl bench [--quick] [SUITE...]``.

A suite is a file of this folder. Each runs in a process of its own, writes ``report/results/SUITE.json``, and what it prints goes
to ``report/logs/SUITE.txt``. One that fails or takes too long is shown as such, and the others go on. The report is written after
each of them, so that it holds what was done, whatever happens.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import end_tree
from machine import load, machine
from reporting import Run, write

from reactor_rl.cli.commands import bench_parser

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Suite:
    """A benchmark.

    Attributes:
        name: Of its file.
        quick: What it measures in a quick run, as its ``--only`` has it. Empty: it is not part of one.
        share: Of the time of a quick run, in proportion to the others' shares.
    """

    name: str
    quick: str = ""
    share: float = 1.0

    @property
    def question(self) -> str:
        """The first line of the file."""
        return (ast.get_docstring(ast.parse((HERE / f"{self.name}.py").read_text())) or self.name).partition("\n")[0]


FIRST = (
    Suite("vector_env", "CartPole-v1 x 64, HalfCheetah-v5 x 16", 3.0),
    Suite("atari", "pong x 32"),
    Suite("training", "16 CartPole", 1.5),
    Suite("engine", "ping-pong", 1.2),
    Suite("multi_agent", "4 agents x 1", 1.5),
    Suite("q_learning", "batch 500", 1.5),
    Suite("sb3_vec_env", "PPO on 16 CartPole", 1.2),
    Suite("learner", "DQN 4-64-64"),
    Suite("ticks", "overlap", 0.5),
    Suite("broadcast", "2 actors", 1.2),
)
"""Those of a quick run, in the order in which they matter; the others come after them."""
APART = ("free_threading", "federation_delays")
"""The first needs an interpreter of its own, the other has to be root."""


def _others() -> Iterator[Suite]:
    known = {*APART, *(suite.name for suite in FIRST)}
    for path in sorted(HERE.glob("*.py")):
        if path.stem not in known and re.search(r"arguments\(__doc__", path.read_text()):
            yield Suite(path.stem)


SUITES = (*FIRST, *_others())
QUICK_SECONDS = 270.0
"""For all suites of a quick run together; what they leave is for ending them and for the report, within five minutes."""
GENEROUS = 2.5
"""A suite may take so many times its share of what is left: on a slow machine the first find something, the last have no time."""
GRACE = 1.2
"""A suite that does not keep to that is ended after so many times as much."""
SUITE_SECONDS = 2 * 3600.0
"""After that a suite is ended that has no share to keep to."""


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    suites = "\n".join(f"{'*' if suite.quick else ' '} {suite.name:16} {suite.question}" for suite in SUITES)
    parser = bench_parser(f"suites (* a quick run has some of its cases):\n{suites}")
    options = parser.parse_args(arguments)
    known = {suite.name: suite for suite in SUITES}
    if unknown := [name for name in options.suites if name not in known]:
        parser.error(f"there is no suite {unknown[0]!r}, there are {', '.join(known)}")
    if options.seconds is not None and options.seconds <= 0:
        parser.error("--seconds takes a number above 0")
    options.suites = [known[name] for name in options.suites] or [suite for suite in SUITES if suite.quick or not options.quick]
    return options


def run(suite: Suite, options: argparse.Namespace, seconds: float | None, most: float) -> Run:
    """Run a suite.

    Args:
        suite: Which.
        options: Of the command line.
        seconds: What it is told to keep to, if anything.
        most: When it is ended, if it does not.
    """
    results, log = options.output / "results", options.output / "logs" / f"{suite.name}.txt"
    written = sorted({f"{suite.name}.json", *(["reward_cartpole.json"] if suite.name == "time_to_reward" else [])})
    for name in written:
        (results / name).unlink(missing_ok=True)
    command = [sys.executable, str(HERE / f"{suite.name}.py"), "--output", str(results.resolve())]
    if options.quick:
        command += ["--quick", *(["--only", suite.quick] if suite.quick else [])]
    if seconds is not None:
        command += ["--budget", f"{0.8 * seconds:.1f}"]  # starting Python and looking at the machine's load come on top
    begin = time.monotonic()
    status, why = "done", ""
    with log.open("w") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env={**os.environ, "REACTOR_RL_NO_PLOTS": "1"}
        )
        try:
            if process.wait(most):
                status, why = "failed", _last_line(log) or f"exit status {process.returncode}"
        except subprocess.TimeoutExpired:
            status, why = "over time", f"it was ended after {time.monotonic() - begin:.0f} s"
        except KeyboardInterrupt:
            status, why = "interrupted", "by Ctrl-C"
        finally:
            _end(process)
    files = [results / name for name in written]
    if status == "done" and (errors := _errors(files)):
        status, why = "failed", errors
    return Run(suite.name, suite.question, status, why, time.monotonic() - begin, files)


def _errors(files: Sequence[Path]) -> str:
    """What was wrong with the cases, if there are no others."""
    cases = [case for path in files if path.exists() for case in json.loads(path.read_text())["cases"].values()]
    if any("error" not in case for case in cases):
        return ""
    return ", ".join(dict.fromkeys(case["error"] for case in cases)) or "it has written nothing"


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        end_tree(process.pid)
        process.wait()


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else ""


def main(arguments: Sequence[str]) -> int:
    """The command; exit status 0, 1 if a suite failed or took too long, 130 after Ctrl-C."""
    options = parsed(arguments)
    if importlib.util.find_spec("psutil") is None:
        print('the benchmarks need psutil: pip install -c constraints.txt ".[bench]" brings it and every rival, in the clone')
        return 2
    (options.output / "results").mkdir(parents=True, exist_ok=True)
    (options.output / "logs").mkdir(exist_ok=True)
    budget = options.seconds or (QUICK_SECONDS if options.quick else None)
    begin = time.monotonic()
    state: dict[str, Any] = {"quick": options.quick, "machine": machine(), "began": _now(), "load": {"before": load()}}
    runs: list[Run] = []
    page = options.output / "index.html"
    try:
        for number, suite in enumerate(options.suites):
            seconds, most = None, SUITE_SECONDS
            if budget is not None:
                left = budget - (time.monotonic() - begin)
                seconds = min(left, GENEROUS * left * suite.share / sum(other.share for other in options.suites[number:]))
                most = min(GRACE * seconds, left)
                if seconds < 2:
                    runs.append(Run(suite.name, suite.question, "over time", "no time was left for it", 0.0, []))
                    continue
            print(f"{suite.name:16} {suite.question}", flush=True)
            runs.append(run(suite, options, seconds, most))
            print(f"{'':16} {runs[-1].status}, {runs[-1].seconds:.0f} s {runs[-1].why}", flush=True)
            write(options.output, state, runs)
            if runs[-1].status == "interrupted":
                break
    except KeyboardInterrupt:  # not while a suite ran, or only just
        begun = options.suites[min(len(runs), len(options.suites) - 1)]
        if begun.name not in [one.name for one in runs]:
            runs.append(Run(begun.name, begun.question, "interrupted", "by Ctrl-C", 0.0, []))
    state["load"]["after"] = load()
    state["ended"] = _now()
    write(options.output, state, runs)
    print(f"wrote {page} and {options.output / 'results.json'}")
    for one in runs:
        if one.status != "done":
            print(f"not done: {one.name}, {one.status}: {one.why}")
    if len(runs) < len(options.suites) or any(one.status == "interrupted" for one in runs):
        return 130
    return int(any(one.status != "done" for one in runs))


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
