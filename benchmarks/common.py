"""What every benchmark shares: contenders that are timed in turn, ratios per round, the machine, JSON, tables and plots.

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
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from machine import cores, is_much, load, machine

RESULTS = Path(__file__).parent / "results"
OURS = "reactor_rl"

_began: dict[str, Any] = {}
"""When this run began, and how busy the machine was then."""


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
        builders: Makes each contender, by name. One whose package is missing (ImportError) is skipped, and said so.
        rounds: Slices of each contender.
        seconds: Length of a slice.
        warm_up: Seconds that a contender runs before anything is timed; they also tell how much fits into a slice.
        rebuild: Build and close each contender in every round: for those that do not fit into memory together.
        fixed: Units of work per slice, instead of as many as fit.
    """
    figures = Figures()
    live: dict[str, Contender] = {}
    counts: dict[str, int] = {}

    def build(name: str) -> bool:
        try:
            live[name] = builders[name]()
        except (ImportError, NotImplementedError) as error:
            figures.skipped[name] = f"{type(error).__name__}: {error}"
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
            for name in names:
                warm(name)
        for number in range(rounds):
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:  # nobody is always the first
                if name in figures.skipped:
                    continue
                if not rebuild:
                    slice_of(name)
                    continue
                if build(name):
                    try:
                        warm(name)
                        slice_of(name)
                    finally:
                        live.pop(name).close()
    finally:
        for contender in live.values():
            contender.close()
    return figures


# ---------------------------------------------------------------------- one process per case


def arguments(description: str, **extra: Any) -> argparse.ArgumentParser:
    """The options that all benchmarks have. ``extra`` sets other defaults."""
    parser = _Parser(description=description)
    parser.add_argument("--quick", action="store_true", help="short slices and few rounds: to see that it works")
    rounds = extra.get("rounds", 7)
    parser.add_argument("--rounds", type=int, default=None, help=f"slices of each contender (default {rounds}, quick 3)")
    parser.add_argument("--only", default="", help="only cases whose name contains one of these, separated by commas")
    parser.add_argument("--rivals", default="", help="only contenders whose name contains one of these; ours always takes part")
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
    return not only or any(part.strip().lower() in name.lower() for part in only.split(",") if part.strip())


def chosen(builders: Mapping[str, Callable[[], Contender]], options: argparse.Namespace) -> dict[str, Callable[[], Contender]]:
    """The contenders that ``--rivals`` asks for; ours in any case."""
    return {name: make for name, make in builders.items() if name.lower().startswith("reactor") or wanted(name, options.rivals)}


def run_cases(
    script: str, options: argparse.Namespace, names: Sequence[str], measure: Callable[[str, argparse.Namespace], dict[str, Any]],
    *, limit: float = 900.0, show: Callable[[str, dict[str, Any]], None] | None = None,
) -> dict[str, dict[str, Any]] | None:  # fmt: skip
    """Measure each case in a fresh interpreter, so that no case sees another's processes, threads or memory.

    In the fresh interpreter (``--case``) this prints the case's JSON and returns None; in the caller it returns all cases.
    """
    if options.case is not None:
        try:
            found = measure(options.case, options)
        finally:
            end_children()
        print("\n@@" + json.dumps(found), flush=True)
        return None
    cases: dict[str, dict[str, Any]] = {}
    for name in names:
        if not wanted(name, options.only):
            continue
        command = [sys.executable, script, *_passed_on(), "--case", name]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            said, _ = process.communicate(timeout=limit)
        except BaseException as error:
            _end_tree(process.pid)
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            cases[name] = {"error": f"took longer than {limit:.0f} s"}
            print(f"{name}: {cases[name]['error']}")
            continue
        lines = [line for line in said.splitlines() if line.startswith("@@")]
        if process.returncode or not lines:
            cases[name] = {"error": f"exit status {process.returncode}"}
            print(f"{name}: {cases[name]['error']}\n{said}")
            continue
        cases[name] = json.loads(lines[-1][2:])
        if show:
            show(name, cases[name])
    return cases


def _passed_on() -> list[str]:
    return [argument for argument in sys.argv[1:] if argument != "--case"]


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


def _end_tree(pid: int) -> None:
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


# ---------------------------------------------------------------------- showing


def write_json(options: argparse.Namespace, name: str, cases: Mapping[str, Any], **more: Any) -> Path:
    """Write the results of this run, with the machine that they were measured on and what else it had to do."""
    options.output.mkdir(parents=True, exist_ok=True)
    path = Path(options.output) / f"{name}.json"
    end = load()
    begin = _began.get("load", end)
    whole = getattr(options, "whole", not options.quick)
    run = {
        "whole": whole,
        "arguments": sys.argv[1:],
        "began": _began.get("at"),
        "ended": time.strftime("%Y-%m-%d %H:%M:%S"),
        "load": {"before": begin, "after": end},
        "under_load": is_much(begin),
    }
    content = {"benchmark": name, "quick": options.quick, "run": run, "machine": machine(), **more, "cases": cases}
    path.write_text(json.dumps(content, indent=1) + "\n")
    print(f"wrote {path.name}" + ("" if whole else f" of a part, to {path.parent.name}"))
    if run["under_load"]:
        print("warning: the machine was busy when this run began; the file says so. Take it again.")
    return path


def print_machine() -> None:
    """Show the machine and what others do on it. A benchmark calls it first."""
    _began.update(at=time.strftime("%Y-%m-%d %H:%M:%S"), load=load())
    found, others = machine(), _began["load"]
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    print(f"{found['cores']} cores, {found['cpu']}, {found['memory_gb']} GB, {found['system']}, Python {found['python']}")
    taken = "unknown" if others["taken"] is None else f"{others['taken']:.0%}"
    print(f"load average {others['average']}, share of the cores that others take: {taken}")
    if is_much(others):
        print("warning: other programs are busy on this machine: ratios wander, and rates are not those of a quiet one")
    print(versions, flush=True)


def print_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """An aligned table: the first column to the left, the others to the right."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    print(f"\n{title}")
    for row in (head, *rows):
        first, *others = (
            cell.rjust(width) if i else cell.ljust(width) for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  " + "  ".join((first, *others)))
    sys.stdout.flush()


def rate_rows(found: Mapping[str, Any], ours: str, *, per_item: bool = False) -> list[list[str]]:
    """Rows of a table: contender, its rate (or time per item), how many times as fast ours is, lowest and highest round."""
    rows = []
    for name, rate in found["rates"].items():
        value = f"{1e6 / rate['median']:,.2f} us" if per_item else f"{rate['median']:,.0f}/s"
        ratio = found.get("ratios", {}).get(name)
        compared = [f"{ratio['median']:.2f}x", f"{ratio['min']:.2f}-{ratio['max']:.2f}"] if ratio else ["", ""]
        rows.append([name, value, *compared])
    rows += [[name, "skipped", why[:50], ""] for name, why in found.get("skipped", {}).items()]
    return rows


def bar_plot(path: Path, title: str, groups: Mapping[str, Mapping[str, float]], label: str, *, log: bool = True) -> None:
    """Grouped horizontal bars: one panel for each group, one bar for each contender."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullFormatter

    groups = {name: bars for name, bars in groups.items() if bars}
    if not groups:
        return
    columns = min(3, len(groups))
    rows = -(-len(groups) // columns)
    height = max(1.2, 0.28 * max(len(bars) for bars in groups.values()) + 0.7)
    figure, axes = plt.subplots(rows, columns, figsize=(5.2 * columns, height * rows + 0.6), squeeze=False, layout="constrained")
    for axis in axes.flat[len(groups) :]:
        axis.axis("off")
    for axis, (name, bars) in zip(axes.flat, groups.items(), strict=False):
        names = list(bars)[::-1]
        values = [bars[one] for one in names]
        colours = ["#c44e52" if one.lower().startswith("reactor") else "#8c9bb5" for one in names]
        labels = [f"{value:,.3g}" if value < 1000 else f"{value:,.0f}" for value in values]
        axis.bar_label(axis.barh(names, values, color=colours), labels=labels, fontsize=7, padding=2)
        axis.set_title(name, fontsize=9)
        axis.tick_params(labelsize=7)
        if log:
            axis.set_xscale("log")
            low, high = min(values), max(values)
            axis.set_xlim(low / 2, high * 4)  # room for the figures beside the bars
            axis.xaxis.set_major_locator(LogLocator(subs=(1.0,) if high > 20 * low else (1.0, 3.0)))
            axis.xaxis.set_minor_formatter(NullFormatter())
        else:
            axis.margins(x=0.25)
            axis.xaxis.set_major_locator(MaxNLocator(4))
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    figure.suptitle(f"{title}\n{label}; {machine()['cores']} cores, {machine()['cpu']}", fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    print(f"wrote {path.name}")


def start_ray(memory: int | None = None) -> Any:
    """Ray on this machine alone, quiet, and with as many CPUs as this process may use."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    if not ray.is_initialized():
        ray.init(
            num_cpus=cores(), include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR,
            configure_logging=True, object_store_memory=memory,
        )  # fmt: skip
    return ray
