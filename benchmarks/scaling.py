"""How fast would PPO train on 1 to 64 cores? On paper: from costs measured on one core of this machine.

Three kinds of network, 64 environments each. Measured are a round of an actor, the gradients of a whole minibatch and of a slice of
one, a step of the optimiser, what slices cost besides (writing them, adding gradients), and a tick with helpers. From them follows
a round on each number of cores, for ``n_learners=1`` with ``pipeline=0`` and ``pipeline=1``, and for as many learners as cores.

What a round takes on one core beyond these parts is added everywhere, as if no part of it could be shared.

No prediction knows what cores share: memory, caches, and the clock that sinks when all are busy. So these are bounds, and they
are checked on as many cores as there are here.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from common import Contender, arguments, compared, run_cases, write_json
from machine import cores, machine
from showing import print_table

N_ENVS = 64
CORES = [1, 2, 4, 8, 16, 32, 64]
PREDICTED = "predicted"


def cases() -> dict[str, tuple[str, Any, dict[str, Any]]]:
    """Policy, environment and settings."""
    from functools import partial

    from torch import nn

    from reactor_gymnasium import AtariEnv

    wide = {"net_arch": {"pi": [256, 256], "vf": [256, 256]}, "activation_fn": nn.ReLU}
    return {
        "64-64, CartPole": ("MlpPolicy", "CartPole-v1", {"n_steps": 128, "batch_size": 256, "n_epochs": 10}),
        "256-256, HalfCheetah": (
            "MlpPolicy", "HalfCheetah-v5", {"n_steps": 128, "batch_size": 256, "n_epochs": 10, "policy_kwargs": wide},
        ),
        "convolutions, Pong": ("CnnPolicy", partial(AtariEnv, "pong"), {"n_steps": 32, "batch_size": 256, "n_epochs": 4}),
    }  # fmt: skip


def model_of(name: str, **how: Any) -> Any:
    from reactor_sb3 import SyncPPO

    policy, env, settings = cases()[name]
    return SyncPPO(
        policy, env, seed=0, n_actors=how.pop("n_actors", N_ENVS), envs_per_actor=how.pop("envs_per_actor", 1), **settings, **how
    )


def seconds(work: Callable[[], object], least: float) -> float:
    """Median seconds of a call, of as many as take ``least`` seconds, five at least."""
    work()
    taken: list[float] = []
    while len(taken) < 5 or sum(taken) < least:
        begin = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


def sampling(model: Any, least: float) -> float:
    """Seconds of a round of an actor that has begun its episodes."""
    from reactor_sb3.trainers.costs import lone_actor

    given = model.program_config()
    with lone_actor(given, given.actors.steps) as sample:
        return seconds(sample, least)


def costs(name: str, least: float) -> dict[str, Any]:
    """What was measured: seconds."""
    import numpy as np
    import torch

    from reactor_rl.plugin import tick_cost
    from reactor_torch import SlicedGradients, Task

    torch.set_num_threads(1)
    measured: dict[str, Any] = {"actor": {}, "tick": tick_cost(), "slices": {}}
    for envs in sorted({N_ENVS // count for count in CORES}):
        model = model_of(name, n_actors=N_ENVS // envs, envs_per_actor=envs)
        measured["actor"][envs] = sampling(model, least)
    nets, batch = model.nets, model.example()
    model.begin_updates()
    task = Task("policy", batch, slice(0, len(batch)))
    measured["minibatches"] = model.n_epochs * math.ceil(model.n_steps * N_ENVS / model.batch_size)
    measured["step"] = seconds(lambda: nets.step("policy"), least)
    for count in CORES:
        part = batch[0 : math.ceil(len(batch) / count)]
        measured["slices"][count] = seconds(lambda part=part: nets.gradients("policy", part, len(batch)), least)
    measured["besides"] = {1: 0.0}
    for count in CORES[1:]:
        shared = SlicedGradients(nets, batch, count, split=False)
        config = shared.config(1, [torch.device("cpu")])
        shared.begin_round([0] * count)
        shared.compute([task], contextlib.nullcontext)
        weights, slices = np.zeros(config.weights.size, np.float32), np.zeros(count - 1, config.layout.record)
        computed = np.zeros((count - 1, config.computed), np.float32)
        send = seconds(lambda s=shared, w=weights, p=slices: s.send([task], w, p), least)
        measured["besides"][count] = send + seconds(lambda s=shared, c=computed: s.add([task], c), least)
    return measured


def predicted(measured: dict[str, Any], n_cores: int) -> dict[str, float]:
    """Seconds of what was measured of a round, by what the user chooses."""
    sampling, minibatches = measured["actor"][N_ENVS // n_cores], measured["minibatches"]
    tick = measured["tick"] if n_cores > 1 else 0.0
    learning = minibatches * (measured["slices"][1] + measured["step"])
    update = measured["slices"][n_cores] + measured["besides"][n_cores] + measured["step"] + tick
    own = measured["actor"][N_ENVS]  # sampling of all environments on one core
    return {
        "n_learners=1, pipeline=0": tick + sampling + learning,
        "n_learners=1, pipeline=1": tick + max(learning, (own + learning) / n_cores, sampling if n_cores > 1 else 0.0),
        f"n_learners={n_cores}": tick + sampling + minibatches * update,
    }


class Trains(Contender):
    """What is predicted for the cores that are here."""

    def __init__(self, name: str, **how: Any) -> None:
        self.model = model_of(name, **how)
        self.round = self.model.n_steps * N_ENVS
        self.model.learn(self.round)

    def go(self, count: int) -> float:
        self.model.learn(count * self.round, reset_num_timesteps=False, log_interval=None)
        return count * self.round

    def close(self) -> None:
        self.model.close()


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    measured = costs(name, 0.02 if options.quick else 0.3)
    here = max(count for count in CORES if count <= cores())
    width = N_ENVS // here
    ways: dict[str, dict[str, Any]] = {
        "reactor_rl, one core": {"executor": "inline", "n_actors": 1, "envs_per_actor": N_ENVS},
        f"reactor_rl, {here} cores, n_learners=1, pipeline=0": {"workers": here, "n_actors": here, "envs_per_actor": width},
        f"reactor_rl, {here} cores, n_learners={here}": {
            "workers": here, "n_actors": here, "envs_per_actor": width, "n_learners": here, "executor": "processes",
        },
    }  # fmt: skip
    figures = compared({way: lambda how=how: Trains(name, **how) for way, how in ways.items()}, options, fixed=1)
    steps = cases()[name][2]["n_steps"] * N_ENVS
    lone = next(iter(predicted(measured, 1).values()))
    rest = max(0.0, steps / figures.as_json("reactor_rl, one core")["rates"]["reactor_rl, one core"]["median"] - lone)
    measured["rest"] = rest
    rates = {count: {way: steps / (length + rest) for way, length in predicted(measured, count).items()} for count in CORES}
    return {**figures.as_json("reactor_rl, one core"), "costs": measured, PREDICTED: rates}


def show(name: str, found: dict[str, Any]) -> None:
    rows = []
    for count, rates in found[PREDICTED].items():
        best = max(rates, key=rates.__getitem__)
        rows.append(
            [str(count), *(f"{rate:,.0f}" for rate in rates.values()), f"{best.replace(f'n_learners={count}', 'as many learners')}"]
        )
    print_table(f"{name}: predicted steps/s", ["cores", "1 learner", "and pipeline=1", "as many learners", "best"], rows)
    seen = [[way, f"{rate['median']:,.0f}"] for way, rate in found["rates"].items()]
    print_table(f"{name}: measured here", ["", "steps/s"], seen)


def plot(path: Path, found: Mapping[str, dict[str, Any]]) -> None:
    """Predictions as lines, one panel for each case, and what was measured on the cores that are here as points."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import EngFormatter, LogLocator, ScalarFormatter

    figure, axes = plt.subplots(1, len(found), figsize=(4.6 * len(found), 3.2), squeeze=False, layout="constrained")
    for axis, (name, figures) in zip(axes.flat, found.items(), strict=True):
        counts = [int(count) for count in figures[PREDICTED]]
        columns = zip(*(rates.values() for rates in figures[PREDICTED].values()), strict=True)
        labels = ("n_learners=1", "n_learners=1, pipeline=1", "as many learners as cores")
        for label, colour, rates in zip(labels, ("#8c9bb5", "#4c72b0", "#c44e52"), columns, strict=True):
            axis.plot(counts, rates, color=colour, label=label, linewidth=1.2)
        for way, rate in figures["rates"].items():
            lone, sliced = "one core" in way, "n_learners=1" not in way
            colour = "black" if lone else "#c44e52" if sliced else "#8c9bb5"
            axis.plot(1 if lone else cores(), rate["median"], "o", color=colour, markersize=4)
        axis.set(xscale="log", yscale="log", title=name, xlabel="cores")
        axis.set_xticks(counts, minor=False)
        axis.xaxis.set_major_formatter(ScalarFormatter())
        axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.yaxis.set_major_formatter(EngFormatter(sep=""))
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes.flat[0].set_ylabel("steps/s, learning included")
    axes.flat[0].legend(fontsize=7)
    figure.suptitle(f"PPO, 64 environments: predicted (lines), measured (points); {machine()['cpu']}", fontsize=10)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    print(f"wrote {path.name}")


def main() -> None:
    options = arguments(__doc__, rounds=3).parse_args()
    found = run_cases(__file__, options, list(cases()), measure, show=show)
    if found is not None:
        write_json(options, "scaling", found)
        plot(options.output / "scaling.png", found)


if __name__ == "__main__":
    main()
