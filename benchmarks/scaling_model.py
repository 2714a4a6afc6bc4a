"""How fast would a vector environment step on 1 to 256 cores? On paper: from what its parts cost, checked on the cores there are.

What a signal, a wait, a wake-up, a copy and a reaction cost is measured by itself (``scaling_costs.py``). With that, the schedule
that is compiled for so many workers is walked through (``simulation.py``), and so is a step with a pipe for each environment, or
with actors (``simulated_rivals.py``). No constant is fitted: where prediction and measurement differ, the table says by how much.

A tree of signals is what it would be if helpers passed the caller's signals on; the compiler makes none.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from common import Contender, arguments, chosen, interleaved, rounds_of, run_cases, seconds_of, start_ray, write_json
from machine import cores, machine
from scaling_costs import Busy, BusyBlock, actors, compiled, of_caller_and_shards, pipes, step_seconds, tokens, turns_for
from showing import print_table
from simulated_rivals import Actors, Pipes, actors_step, pipes_step
from simulation import Costs, Tick, tree, walk, with_work
from vector_env import BATCHES, Gymnasium, RayActors

ENVIRONMENTS = {"5 us": 5e-6, "200 us": 200e-6, "5 ms": 5e-3}
CORES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
ON_PAPER, HERE = (64, 256, 1024), (8, 64)
"""Numbers of environments that are predicted, and that are measured."""
FAN = 4
"""How many workers each one signals in a tree."""
NETWORK = 1e-6
"""Seconds that the caller's network is taken to need for each environment, where it is said to have one."""
TWICE = 2.0
"""The caller is the bottleneck where so many times as many steps would be taken if it cost nothing."""

OURS, TREE, BANKS = "ReactorVectorEnv", "with a tree of signals", "with two banks"
ASYNC, SUBPROC, RAY = "AsyncVectorEnv", "SubprocVecEnv (SB3)", "Ray actors"
COSTS, ONE, ALL, OF_RAY = "costs", "one core", "all cores", "Ray"
BARE = "the bare step"


CostsFound = Mapping[str, Mapping[str, float]]


# ---------------------------------------------------------------------- on paper


def ours(found: CostsFound, how: str, environment: float, num_envs: int, count: int, network: float) -> Tick | None:
    """A step of as many environments as step together; None where it cannot be."""
    costs, parts = Costs(**found["tokens"]), found["parts"]
    banks = how == BANKS
    if banks and (count < 2 or num_envs < 2):
        return None
    batch = num_envs // 2 if banks else num_envs
    _, schedule, rows = compiled(num_envs, min(count - banks, batch), batch if banks else None, not banks)
    row = parts["row"] - parts["idle"] + environment
    before = parts["before"] + batch * (parts["before_row"] + network)
    after = parts["after"] + batch * parts["after_row"] + parts["tick"]
    lists = tree(schedule.lists, FAN) if how == TREE else schedule.lists
    work = {"within": before + after} if banks else {"before": before, "after": after}
    shard = {index: parts["shard"] + count * row for index, count in rows.items()}
    return walk(with_work(lists, costs, **work), lambda index: shard.get(index, 0.0), costs)


def steps_per_second(
    found: CostsFound, kind: str, environment: float, num_envs: int, count: int, network: float = 0.0
) -> float | None:
    """Steps of environments; None where nothing is known.

    Args:
        found: What was measured of costs.
        kind: Of vector environment.
        environment: Seconds of a step of one environment.
        num_envs: How many there are.
        count: Cores.
        network: Seconds that the caller's network needs for each environment.
    """
    if kind in (OURS, TREE, BANKS):
        tick = ours(found, kind, environment, num_envs, count, network)
        return None if tick is None else (num_envs // 2 if kind == BANKS else num_envs) / tick.seconds
    if kind not in found:
        return None
    if kind == RAY:
        tick = actors_step(Actors(**found[kind]), environment, num_envs, count)
    else:
        tick = pipes_step(Pipes(**found[kind]), environment, num_envs, count)
    return num_envs / (tick.seconds + num_envs * network)


def relieved(found: CostsFound) -> dict[str, Any]:
    """The same costs, with a caller that costs nothing."""
    parts = ("before", "before_row", "after", "after_row", "tick", "signal", "wake", "wait", "fixed", "send", "take", "call")
    return {name: {part: 0.0 if part in parts else cost for part, cost in costs.items()} for name, costs in found.items()}


def predictions(found: CostsFound) -> dict[str, Any]:
    """By environment and number of them: every kind on every number of cores, and from how many on the caller is the bottleneck."""
    made: dict[str, Any] = {}
    free = relieved(found)
    for name, environment in ENVIRONMENTS.items():
        for num_envs, network in (*((size, 0.0) for size in ON_PAPER), (ON_PAPER[-1], NETWORK)):
            kinds: dict[str, Any] = {}
            for kind in (OURS, TREE, BANKS, ASYNC, SUBPROC, RAY):
                rates = {
                    count: rate for count in CORES if (rate := steps_per_second(found, kind, environment, num_envs, count, network))
                }
                if rates:
                    bounds = {count: steps_per_second(free, kind, environment, num_envs, count) or 0.0 for count in rates}
                    full = next((count for count, rate in rates.items() if bounds[count] >= TWICE * rate), None)
                    kinds[kind] = {"rates": rates, "caller_from": full}
            made[f"{name} x {num_envs}{', network' if network else ''}"] = kinds
    return made


# ---------------------------------------------------------------------- measured


class Banks(Gymnasium):
    """Two banks. While others are timed the one that comes next gets ready: a step that is not timed sets it to work."""

    def __init__(self, venv: Any, batches: list[Any]) -> None:
        super().__init__(venv, batches)
        self.go(2)  # the first results are those of the reset

    def timed(self, count: int) -> tuple[float, float]:
        self.go(1)
        return super().timed(count)


class BareStep(Contender):
    """One environment, stepped by a plain loop: what a step takes while the others are timed."""

    def __init__(self, turns: int) -> None:
        self.env = Busy(turns)

    def go(self, count: int) -> float:
        for _ in range(count):
            self.env.step(0)
        return count


class BusyActors(RayActors):
    """One actor on each core; Ray stays up for the next ones."""

    def __init__(self, turns: int, num_envs: int, batches: list[Any]) -> None:
        self.ray, count = start_ray(), min(cores(), num_envs)
        bounds = [num_envs * index // count for index in range(count + 1)]
        self.spans = list(pairwise(bounds))
        self.batches, self.num_envs, self.large = batches, num_envs, False
        self.actors = [self.ray.remote(num_cpus=1)(BusyBlock).remote(turns, hi - lo) for lo, hi in self.spans]

    def close(self) -> None:
        for actor in self.actors:
            self.ray.kill(actor)


def async_env(turns: int, num_envs: int) -> Any:
    from gymnasium.vector import AsyncVectorEnv

    return AsyncVectorEnv([partial(Busy, turns)] * num_envs, shared_memory=True)


def subproc_env(turns: int, num_envs: int) -> Any:
    from stable_baselines3.common.vec_env import SubprocVecEnv

    return SubprocVecEnv([partial(Busy, turns)] * num_envs, start_method="fork")


def our_env(turns: int, num_envs: int, **how: Any) -> Any:
    from reactor_gymnasium import ReactorVectorEnv

    return ReactorVectorEnv([partial(Busy, turns)] * num_envs, **how)


def builders_of(case: str, turns: int, num_envs: int) -> dict[str, Callable[[], Any]]:
    batches, half = ([np.zeros(count, np.int64)] * BATCHES for count in (num_envs, num_envs // 2))
    if case == OF_RAY:
        return {RAY: partial(BusyActors, turns, num_envs, batches)}
    # Those that fork come first, before anything has started threads.
    made: dict[str, Callable[[], Any]] = {
        ASYNC: lambda: Gymnasium(async_env(turns, num_envs), batches),
        SUBPROC: lambda: Gymnasium(subproc_env(turns, num_envs), batches, seed=False),
    }
    if case == ONE:
        return {**made, OURS: lambda: Gymnasium(our_env(turns, num_envs, executor="inline"), batches)}
    processes = {"executor": "processes", "workers": cores()}
    banks = {**processes, "workers": cores() - 1, "batch_size": num_envs // 2}
    return {
        **made,
        OURS: lambda: Gymnasium(our_env(turns, num_envs, **processes), batches),
        f"{OURS} {BANKS}": lambda: Banks(our_env(turns, num_envs, **banks), half),
    }


def measure(case: str, options: argparse.Namespace) -> dict[str, Any]:
    if case == COSTS:
        forked = {ASYNC: pipes(partial(async_env, 0)), SUBPROC: pipes(partial(subproc_env, 0))}  # before there are threads
        found = {"tokens": asdict(tokens()), "parts": of_caller_and_shards(), **{kind: asdict(one) for kind, one in forked.items()}}
        try:
            found[RAY] = asdict(actors(start_ray()))
        except ImportError as error:
            print(f"{RAY}: {error}")
        return found
    if case == ONE and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    found = {"cores": cores(), "measured": {}}
    for name, seconds in ENVIRONMENTS.items():
        turns = turns_for(seconds)
        for num_envs in HERE:
            figures = interleaved(
                {**chosen(builders_of(case, turns, num_envs), options), BARE: partial(BareStep, turns)},
                rounds=rounds_of(options), seconds=seconds_of(options, 0.4), warm_up=0.15,
            )  # fmt: skip
            bare = figures.rates.pop(BARE, None)  # none where the budget is spent
            found["measured"][f"{name} x {num_envs}"] = {
                "environment": 1 / statistics.median(bare) if bare else step_seconds(turns),
                "num_envs": num_envs, **figures.as_json(""),
            }  # fmt: skip
    return found


def checked(cases: Mapping[str, Any]) -> dict[str, Any]:
    """The costs, and what was measured by number of cores and of environments, beside what is predicted for it.

    Predicted are steps per second, for the bare step that was measured beside them. Their ratio to the median, the highest and the
    lowest round is ``predicted_of_measured``.
    """
    made: dict[str, Any] = {}
    for name, case in cases.items():
        if "measured" not in case:
            made[name] = case
            continue
        for what, one in case["measured"].items():
            found = made.setdefault(f"{what}, {case['cores']} core{'s' if case['cores'] > 1 else ''}", {
                "what": what, "cores": case["cores"], "environment": one["environment"], "rates": {}, "skipped": {},
                "predicted": {}, "predicted_of_measured": {},
            })  # fmt: skip
            found["skipped"] |= one["skipped"]
            for kind, rate in one["rates"].items():
                found["rates"][kind] = rate
                paper = BANKS if kind.endswith(BANKS) else kind
                said = steps_per_second(cases[COSTS], paper, one["environment"], one["num_envs"], case["cores"])
                if said is not None:
                    of = {"median": said / rate["median"], "min": said / rate["max"], "max": said / rate["min"]}
                    found["predicted"][kind], found["predicted_of_measured"][kind] = said, of
    return made


# ---------------------------------------------------------------------- shown


def show(cases: Mapping[str, Any], predicted: Mapping[str, Any]) -> None:
    rows = [
        [
            f"{what}: {kind}",
            f"{1e6 * one['environment']:,.1f} us",
            f"{one['rates'][kind]['median']:,.0f}/s",
            f"{rate:,.0f}/s",
            f"{of['median']:.2f}",
            f"{of['min']:.2f}-{of['max']:.2f}",
        ]
        for what, one in cases.items()
        for kind, rate in one.get("predicted", {}).items()
        for of in [one["predicted_of_measured"][kind]]
    ]
    print_table(
        "Predicted beside measured", ["", "a bare step", "measured", "predicted for it", "predicted / measured", "min-max"], rows
    )
    for what, kinds in predicted.items():
        rows = [
            [
                kind,
                *(f"{made['rates'][count]:,.0f}" if count in made["rates"] else "-" for count in CORES),
                str(made["caller_from"] or "-"),
            ]
            for kind, made in kinds.items()
        ]
        print_table(f"{what}: steps/s on paper", ["cores", *map(str, CORES), "caller from"], rows)


COLOURS = {OURS: "#c44e52", TREE: "#dd8452", BANKS: "#8172b3", ASYNC: "#4c72b0", SUBPROC: "#64b5cd", RAY: "#55a868"}


def plot(path: Path, cases: Mapping[str, Any], predicted: Mapping[str, Any]) -> None:
    """Predictions as lines, what was measured as points; a ring is where the caller becomes the bottleneck."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import EngFormatter, ScalarFormatter

    sizes = (ON_PAPER[0], ON_PAPER[-1])
    figure, axes = plt.subplots(len(sizes), len(ENVIRONMENTS), figsize=(12, 6.4), squeeze=False, layout="constrained", sharex=True)
    for line, num_envs in zip(axes, sizes, strict=True):
        for axis, (name, environment) in zip(line, ENVIRONMENTS.items(), strict=True):
            what = f"{name} x {num_envs}"
            axis.plot(CORES, [count / environment for count in CORES], ":", color="grey", label="cores x environment")
            for kind, made in predicted[what].items():
                rates, full = made["rates"], made["caller_from"]
                axis.plot(list(rates), list(rates.values()), color=COLOURS[kind], label=kind, linewidth=1.2)
                if full is not None:
                    axis.plot(full, rates[full], "o", color=COLOURS[kind], fillstyle="none", markersize=8)
            for case in cases.values():
                for kind, rate in case["rates"].items() if case.get("what") == what else ():
                    colour = COLOURS[BANKS if kind.endswith(BANKS) else kind]
                    axis.plot(case["cores"], rate["median"], "o", color=colour, markersize=4)
            axis.set(xscale="log", yscale="log", title=f"{num_envs} environments of {name}")
            axis.set_xticks(CORES, minor=False)
            axis.xaxis.set_major_formatter(ScalarFormatter())
            axis.yaxis.set_major_formatter(EngFormatter(sep=""))
            axis.minorticks_off()
            axis.grid(alpha=0.3)
        line[0].set_ylabel("steps/s")
    for axis in axes[-1]:
        axis.set_xlabel("cores")
    axes.flat[0].legend(fontsize=7)
    figure.suptitle(
        f"On paper (lines), measured (points), the caller is the bottleneck from there on (rings); {machine()['cpu']}", fontsize=10
    )
    figure.savefig(path, dpi=110)
    plt.close(figure)
    print(f"wrote {path.name}")


def main() -> None:
    options = arguments(__doc__, rounds=3).parse_args()
    cases = run_cases(__file__, options, [COSTS, ONE, *([ALL, OF_RAY] if cores() > 1 else [])], measure)
    if cases is None:
        return
    costs = cases.get(COSTS, {"error": "not measured"})
    if "error" in costs:
        raise SystemExit(f"nothing can be predicted: the costs are missing ({costs['error']}); leave out --only")
    cases, predicted = checked(cases), predictions(costs)
    show(cases, predicted)
    write_json(options, "scaling_model", cases, predicted=predicted)
    plot(options.output / "scaling_model.png", cases, predicted)


if __name__ == "__main__":
    main()
