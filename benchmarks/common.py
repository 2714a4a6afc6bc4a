"""What every benchmark shares: contenders that are timed in turn, ratios per round, the machine and JSON.

A contender is built once, warmed up, and then timed in slices; the contenders take turns, so that whatever else the machine
does hits all of them alike. A ratio is taken within each round; what is reported is the median over the rounds, with the lowest
and highest.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from machine import cores
from recording import print_machine, write_json
from showing import bar_plot

RESULTS = Path(__file__).parent / "results"
OURS = "reactor_rl"
NOBODY = "(nobody)"
"""What no rival is called."""
ENDS = "REACTOR_RL_CASE_ENDS"
"""Names the time, in seconds since the epoch, after which a case begins nothing more: with ``--budget`` it has a share of that."""


class Contender:
    """Something that is timed. ``go(count)`` does ``count`` units of work and returns how many items that were."""

    def go(self, count: int) -> float:
        raise NotImplementedError

    def timed(self, count: int) -> tuple[float, float]:
        """Items done and seconds taken; overridden by contenders that exclude a part of ``go``."""
        begin = time.perf_counter()
        items = self.go(count)
        return items, time.perf_counter() - begin

    def close(self) -> None:
        """End everything that it started."""


class VectorSteps(Contender):
    """``step`` of a vector environment, with actions drawn before.

    Args:
        envs: The vector environment.
        actions: Batches of actions, which take turns.
        clock: Says how late it is, in seconds: ``time.thread_time`` counts what the calling thread computes.
    """

    def __init__(self, envs: Any, actions: Sequence[Any], clock: Callable[[], float] = time.perf_counter) -> None:
        self.envs, self.actions, self.clock = envs, actions, clock
        envs.reset(seed=0)

    def go(self, count: int) -> float:
        step, actions, many = self.envs.step, self.actions, len(self.actions)
        for number in range(count):
            step(actions[number % many])
        return count * self.envs.num_envs

    def timed(self, count: int) -> tuple[float, float]:
        begin = self.clock()
        rows = self.go(count)
        return rows, self.clock() - begin

    def close(self) -> None:
        self.envs.close()


@dataclass
class Figures:
    """Items per second of each contender, by round."""

    rates: dict[str, list[float]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def ratio(self, ours: str, rival: str) -> dict[str, float]:
        """Ours over a rival, taken within each round."""
        return summary([a / b for a, b in zip(self.rates[ours], self.rates[rival], strict=True)])

    def as_json(self, ours: str) -> dict[str, Any]:
        found: dict[str, Any] = {
            "rates": {name: {**summary(rates), "all": [round(r, 3) for r in rates]} for name, rates in self.rates.items()},
            "skipped": self.skipped,
        }
        if ours in self.rates:
            found["ratios"] = {name: self.ratio(ours, name) for name in self.rates if name != ours}
        return found


def summary(values: Sequence[float]) -> dict[str, float]:
    """Median, lowest and highest."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def interleaved(
    builders: Mapping[str, Callable[[], Contender]],
    *,
    rounds: int,
    seconds: float,
    warm_up: float = 0.3,
    rebuild: bool = False,
    fixed: int | None = None,
) -> Figures:
    """Time contenders in turn.

    Args:
        builders: Makes each contender, by name. One whose package is missing (ImportError) is skipped, and said so; so is a rival
            that fails, whenever it does.
        rounds: Slices of each contender.
        seconds: Length of a slice.
        warm_up: Seconds that a contender runs before anything is timed; they also tell how much fits into a slice.
        rebuild: Build and close each contender in every round: for those that do not fit into memory together.
        fixed: Units of work per slice, instead of as many as fit.
    """
    figures = Figures()
    ends = float(os.environ.get(ENDS, "inf"))
    live: dict[str, Contender] = {}
    counts: dict[str, int] = {}

    def build(name: str) -> bool:
        if time.time() > ends and not is_ours(name):
            figures.skipped[name] = "no time left"
            return False
        try:
            with _until(float("inf") if is_ours(name) else ends):
                live[name] = builders[name]()
        except _TooLateError as error:
            figures.skipped[name] = str(error)
            return False
        except (ImportError, NotImplementedError) as error:
            figures.skipped[name] = f"{type(error).__name__}: {error}"
            return False
        except (Exception, SystemExit) as error:
            fails(name, error)
            return False
        return True

    def fails(name: str, error: BaseException) -> None:
        """Leave out a rival that has failed, and what it has done so far."""
        if is_ours(name):
            raise error
        figures.skipped[name] = f"failed ({type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]})"
        figures.rates.pop(name, None)
        if name in live:
            with suppress(Exception, SystemExit):
                live.pop(name).close()

    def works(name: str, what: Callable[[str], None]) -> bool:
        try:
            what(name)
        except (Exception, SystemExit) as error:
            fails(name, error)
            return False
        return True

    def warm(name: str) -> None:
        if fixed is not None:
            live[name].timed(max(1, fixed // 4))
            counts[name] = fixed
            return
        count, spent, took = 1, 0.0, 0.0
        while spent < warm_up:
            _, took = live[name].timed(count)
            spent += took
            if took < warm_up / 2:
                count = max(count + 1, int(count * min(8.0, warm_up / max(took, 1e-6))))
        counts[name] = max(1, int(count * seconds / max(took, 1e-9)))

    def slice_of(name: str) -> None:
        gc.collect()
        items, took = live[name].timed(counts[name])
        figures.rates.setdefault(name, []).append(items / took)

    names = list(builders)
    try:
        if not rebuild:
            names = [name for name in names if build(name)]
            names = [name for name in names if works(name, warm)]
        for number in range(rounds if names else 0):
            if number and time.time() > ends:
                break
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:  # nobody is always the first
                if name in figures.skipped:
                    continue
                if not rebuild:
                    works(name, slice_of)
                elif build(name) and works(name, warm) and works(name, slice_of):
                    live.pop(name).close()
    finally:
        for name, contender in live.items():
            try:
                contender.close()
            except (Exception, SystemExit):
                if is_ours(name):
                    raise
    return figures


class _TooLateError(Exception):
    """A contender is not there when the time of its case is over."""


@contextmanager
def _until(ends: float) -> Iterator[None]:
    """Raise where the block is at that time, in seconds since the epoch, on systems that have such a timer."""
    if ends == float("inf") or not hasattr(signal, "setitimer"):
        yield
        return

    def late(*_: object) -> None:
        raise _TooLateError("it did not start in time")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, max(0.1, ends - time.time()))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


# ---------------------------------------------------------------------- one process per case


def arguments(doc: str | None, **extra: Any) -> argparse.ArgumentParser:
    """The options that all benchmarks have, under the first line of a docstring. ``extra`` sets other defaults."""
    parser = _Parser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="short slices and few rounds: to see that it works")
    rounds = extra.get("rounds", 7)
    parser.add_argument("--rounds", type=int, default=None, help=f"slices of each contender (default {rounds}, quick 3)")
    parser.add_argument("--only", default="", help="only cases whose name contains one of these, separated by commas")
    parser.add_argument("--rivals", default="", help="only contenders whose name contains one of these; ours always takes part")
    parser.add_argument(
        "--budget", type=float, default=None, help="seconds for all of it: fewer rounds, and what is left is not begun"
    )
    parser.add_argument("--output", type=Path, default=None, help="folder for JSON and plot (default: results, or results/part)")
    parser.add_argument("--case", default=None, help=argparse.SUPPRESS)
    parser.set_defaults(default_rounds=rounds)
    return parser


class _Parser(argparse.ArgumentParser):
    """A result file is one whole run: a quick one, or one of some cases or rivals, goes elsewhere, lest it take another's place."""

    def parse_args(self, *args: Any, **kwargs: Any) -> Any:
        options = super().parse_args(*args, **kwargs)
        options.whole = not (options.quick or options.only or options.rivals)
        if options.output is None:
            options.output = RESULTS if options.whole else RESULTS / "part"
        return options


def rounds_of(options: argparse.Namespace) -> int:
    return int(options.rounds or (3 if options.quick else options.default_rounds))


def seconds_of(options: argparse.Namespace, seconds: float = 1.0) -> float:
    return min(0.25, seconds) if options.quick else seconds


def wanted(name: str, only: str) -> bool:
    """Whether a name contains one of the parts, no number of which may go on in the name: ``x 1`` is not in ``x 16``."""
    parts = (re.escape(part.strip()) for part in only.split(",") if part.strip())
    return not only or any(re.search(rf"(?<!\d){part}(?!\d)", name, re.IGNORECASE) for part in parts)


def is_ours(name: str) -> bool:
    """Whether a contender of this name is ours, or one of ours."""
    return name.lower().startswith("reactor")


def chosen(builders: Mapping[str, Callable[[], Contender]], options: argparse.Namespace) -> dict[str, Callable[[], Contender]]:
    """The contenders that ``--rivals`` asks for; ours in any case."""
    return {name: make for name, make in builders.items() if is_ours(name) or wanted(name, options.rivals)}


def compared(
    builders: Mapping[str, Callable[[], Contender]], options: argparse.Namespace, *, seconds: float = 1.0, **how: Any
) -> Figures:
    """Time the contenders that ``--rivals`` asks for in turn, for as long as the options say.

    Args:
        builders: Makes each contender, by name.
        options: Of the command line.
        seconds: Length of a slice, unless it is to be quick.
        **how: As for :func:`interleaved`.
    """
    return interleaved(chosen(builders, options), **{"rounds": rounds_of(options), "seconds": seconds_of(options, seconds)} | how)


def benchmark(
    script: str, options: argparse.Namespace, names: Sequence[str], measure: Callable[[str, argparse.Namespace], dict[str, Any]],
    show: Callable[[str, dict[str, Any]], None], title: str, label: str = "steps per second",
    *, bar: Callable[[float], float] = float, hidden: Sequence[str] = (), panels: Sequence[str] = (),
) -> None:  # fmt: skip
    """A whole benchmark: its cases are measured and shown one by one, then written and plotted under the name of the script.

    Args:
        script: Its file.
        options: Of the command line.
        names: Of the cases.
        measure: Gives the figures of a case.
        show: Prints them.
        title: Of the plot.
        label: What its bars show.
        bar: From a rate to the length of its bar.
        hidden: Contenders that have no bar.
        panels: Cases that have a panel, six at most; the first ones by default.
    """
    cases = run_cases(script, options, names, measure, show=show)
    if cases is None:
        return
    name = Path(script).stem
    write_json(options, name, cases)
    groups = {
        case: {one: bar(rate["median"]) for one, rate in figures.get("rates", {}).items() if one not in hidden}
        for case, figures in cases.items()
        if not panels or case in panels
    }
    bar_plot(options.output / f"{name}.png", title, groups, label)


def run_cases(
    script: str, options: argparse.Namespace, names: Sequence[str], measure: Callable[[str, argparse.Namespace], dict[str, Any]],
    *, limit: float = 900.0, show: Callable[[str, dict[str, Any]], None] | None = None,
) -> dict[str, dict[str, Any]] | None:  # fmt: skip
    """Show the machine, and measure each case in a fresh interpreter, so that no case sees another's processes, threads or memory.

    In the fresh interpreter (``--case``) this prints the case's JSON and returns None; in the caller it returns all cases.
    """
    if options.case is not None:
        try:
            found = measure(options.case, options)
        finally:
            end_ray()
            end_children()
        print("\n@@" + json.dumps(found), flush=True)
        return None
    begin = time.monotonic()
    print_machine()
    cases: dict[str, dict[str, Any]] = {}
    names = [name for name in names if wanted(name, options.only)]
    for number, name in enumerate(names):
        allowed, environment = limit, dict(os.environ)
        if options.budget is not None:
            left = options.budget - (time.monotonic() - begin)
            if left < 1.0:
                cases[name] = {"error": "no time left"}
                continue
            allowed = min(limit, left)
            environment[ENDS] = str(time.time() + 0.6 * left / (len(names) - number))  # what has begun takes time to end, too
        command = [sys.executable, script, *_passed_on(), "--case", name]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        try:
            said, _ = process.communicate(timeout=allowed)
        except BaseException as error:
            end_tree(process.pid)
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            cases[name] = {"error": f"took longer than {allowed:.0f} s"}
            print(f"{name}: {cases[name]['error']}")
            continue
        lines = [line for line in said.splitlines() if line.startswith("@@")]
        if (process.returncode or not lines) and (alone := _alone(command, options, environment, allowed, process.returncode)):
            cases[name] = alone
            if show:
                show(name, alone)
            continue
        if process.returncode or not lines:
            cases[name] = {"error": f"exit status {process.returncode}"}
            print(f"{name}: {cases[name]['error']}\n{said}")
            continue
        cases[name] = json.loads(lines[-1][2:])
        if show:
            show(name, cases[name])
    return cases


def _alone(
    command: list[str], options: argparse.Namespace, environment: dict[str, str], allowed: float, status: int
) -> dict[str, Any] | None:
    """What is left of a case whose process has ended: a rival may have ended it, so ours is measured again without any."""
    if options.rivals:
        return None
    process = subprocess.Popen([*command, "--rivals", NOBODY], stdout=subprocess.PIPE, text=True, env=environment)
    try:
        said, _ = process.communicate(timeout=allowed)
    except BaseException as error:
        end_tree(process.pid)
        process.wait()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        return None
    lines = [line for line in said.splitlines() if line.startswith("@@")]
    if process.returncode or not lines:
        return None
    found: dict[str, Any] = json.loads(lines[-1][2:])
    found["skipped"] = {**found.get("skipped", {}), "rivals": f"failed (with them the case ended with exit status {status})"}
    return found


def _passed_on() -> list[str]:
    return [argument for argument in sys.argv[1:] if argument != "--case"]


def end_ray() -> None:
    """End Ray, if it was started, before its servers are: whoever still speaks to them would wait for a minute."""
    if ray := sys.modules.get("ray"):
        ray.shutdown()


def end_children() -> None:
    """End whatever this process has started and not ended; Python's own trackers end by themselves."""
    import psutil

    left = []
    for child in psutil.Process().children(recursive=True):
        try:
            if not any("resource_tracker" in part or "forkserver" in part for part in child.cmdline()):
                left.append(child)
                child.terminate()
        except psutil.NoSuchProcess:
            continue
    _, alive = psutil.wait_procs(left, timeout=3.0)
    for child in alive:
        child.kill()


def end_tree(pid: int) -> None:
    """End a process and all that it has started, at once."""
    import psutil

    try:
        process = psutil.Process(pid)
        tree = [*process.children(recursive=True), process]
    except psutil.NoSuchProcess:
        return
    for member in tree:
        try:
            member.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(tree, timeout=3.0)


def start_ray(memory: int | None = None) -> Any:
    """Ray on this machine alone, quiet, and with as many CPUs as this process may use."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    if not ray.is_initialized():
        ray.init(
            "local", num_cpus=cores(), include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR,
            configure_logging=True, object_store_memory=memory,
        )  # fmt: skip
    return ray
