"""``python -m reactor_rl demo``: CartPole and Atari on all cores, beside Gymnasium's own vector environments."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv
from tqdm import tqdm

from reactor_gymnasium.cli.targets import RolloutTarget, without_banner
from reactor_gymnasium.vector.vector_env import ReactorVectorEnv
from reactor_rl.plugin import usable_cores

__all__ = ["Progress", "Timed", "print_fingerprints", "print_lines", "print_table", "main"]

EVERY = 5.0
"""Seconds after which somebody who sees no progress bar is told how far it is: soon enough to see that something goes on, seldom
enough for a log file.
"""


@dataclass
class Timed:
    """Steps per second of each vector environment, by round, and what ours has chosen to run on."""

    speeds: dict[str, list[float]]
    chosen: str


class Progress:
    """A progress bar, or where there is no terminal for one, a line every five seconds."""

    def __init__(self, total: int) -> None:
        self._bar = tqdm(total=total, unit="run", leave=False, disable=None)
        self._total, self._done, self._doing, self._said = total, 0, "", time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def begin(self, what: str) -> None:
        """Say what is done next."""
        self._doing = what
        self._bar.set_description(what)
        self._say()

    def update(self) -> None:
        """A run is over."""
        self._done += 1
        self._bar.update()
        self._say()

    def _say(self) -> None:
        if self._bar.disable and time.monotonic() - self._said >= EVERY:
            self._said = time.monotonic()
            print_lines(f"{self._done} of {self._total} runs: {self._doing}")


def print_lines(*lines: str) -> None:
    """Print some lines, at once also where nobody sits before a terminal."""
    for line in lines:
        print(line, flush=True)


def print_table(job: RolloutTarget, timed: Timed) -> None:
    """Print steps per second, lowest and highest, how many times as fast ReactorVectorEnv is, and what it runs on."""
    ours = timed.speeds["ReactorVectorEnv"]
    print_lines(f"\n{job.num_envs} x {job.id:<22} steps/s   {'lowest to highest':<22}  ReactorVectorEnv is")
    for name, speeds in timed.speeds.items():
        ratio = statistics.median(mine / its for mine, its in zip(ours, speeds, strict=True))
        said = "" if name == "ReactorVectorEnv" else f"{ratio:8.2f} x as fast"
        between = f"{min(speeds):,.0f} to {max(speeds):,.0f}"
        print_lines(f"  {name:<22} {statistics.median(speeds):>12,.0f}   {between:<22}  {said}".rstrip())
    print_lines(f"  ReactorVectorEnv has chosen {timed.chosen}")


def print_fingerprints(job: RolloutTarget, fingerprints: dict[int, str]) -> bool:
    """Print one fingerprint per number of workers. Returns whether they are the same."""
    print_lines(f"\n{job.num_envs} x {job.id}: fingerprint of 100 steps")
    for workers, fingerprint in fingerprints.items():
        print_lines(f"  {workers} worker(s)  {fingerprint}")
    same = len(set(fingerprints.values())) == 1
    print_lines("  all the same" if same else "  THEY DIFFER")
    return same


WORKERS = (1, 2, 3, 4)
"""Numbers of workers whose fingerprints are compared: none, an even and an odd number of helpers."""
ROUNDS = 5
"""Turns in which every loop is timed, after one that is not; the spread of five is shown."""


def main(argv: list[str]) -> int:
    """CartPole and Pong on all cores, beside Gymnasium's AsyncVectorEnv and SyncVectorEnv."""
    parser = argparse.ArgumentParser(prog="python -m reactor_rl demo", description=main.__doc__)
    parser.add_argument("--seconds", type=_seconds, default=0.6, help="seconds per measurement (default 0.6; there are 5 of each)")
    parser.add_argument("--out", default="reactor_rl_demo", help="folder for the drawing and the trace (default reactor_rl_demo)")
    arguments = parser.parse_args(argv)
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    jobs: list[RolloutTarget] = [_Job("CartPole-v1", 64), _Job("CartPole-v1", 8)]
    if importlib.util.find_spec("ale_py") is not None:
        import ale_py  # noqa: F401  (registers its environments)

        jobs.append(_Job("ALE/Pong-v5", 8))
    else:
        print_lines("ale-py is not installed (the extra [atari] brings it): no Pong in this demo")
    cores = usable_cores()
    if (busy := _busy(cores)) is not None:
        print_lines(f"other programs are busy on this machine (load {busy:.1f}): what follows is slower than it could be")
    print_lines(f"{cores} cores, Python {sys.version.split()[0]}, Gymnasium {gymnasium.__version__}")
    with Progress(len(jobs) * (ROUNDS + 1) * 3 + len(jobs) * len(WORKERS)) as bar:
        tables = [_measure(job, arguments.seconds, bar) for job in jobs]
        prints = [_fingerprints(job, bar) for job in jobs]
    for job, table in zip(jobs, tables, strict=True):
        print_table(job, table)
    matches = [print_fingerprints(job, fingerprints) for job, fingerprints in zip(jobs, prints, strict=True)]
    drawing, trace = out / "cartpole.svg", out / "cartpole-trace.json"
    jobs[0].draw(str(drawing))
    jobs[0].trace(str(trace), ticks=50)
    print_lines(f"drawing: {drawing}", f"trace:   {trace} (open it at https://ui.perfetto.dev)")
    return 0 if all(matches) else 1


class _Job(RolloutTarget):
    """Environments that print nothing: it would break the progress bar."""

    def make(self, executor: Any = "auto", workers: int | None = None) -> ReactorVectorEnv:
        return ReactorVectorEnv([partial(without_banner, self.id)] * self.num_envs, executor=executor, workers=workers)


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < (seconds := float(text)) < float("inf"):
            return seconds
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds greater than 0")


def _busy(cores: int) -> float | None:
    """The load average, if it says that others keep cores busy."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return load if load > max(1.0, 0.5 * cores) else None


def _measure(job: RolloutTarget, seconds: float, bar: Progress) -> Timed:
    """Steps per second of the three vector environments, timed in turn so that all see the same machine."""
    make = partial(without_banner, job.id)
    rivals: dict[str, Callable[[], VectorEnv[Any, Any, Any]]] = {
        "SyncVectorEnv": lambda: SyncVectorEnv([make] * job.num_envs),
        "AsyncVectorEnv": lambda: AsyncVectorEnv([make] * job.num_envs),
        "ReactorVectorEnv": job.make,
    }
    speeds: dict[str, list[float]] = {name: [] for name in rivals}
    with contextlib.ExitStack() as open_envs:
        envs: dict[str, Any] = {}
        for name, build in rivals.items():
            bar.begin(f"{job.num_envs} x {job.id}: {name} is made")
            envs[name] = open_envs.enter_context(contextlib.closing(build()))
        chosen = _choice(envs["ReactorVectorEnv"])
        loops = {name: _loop(env, job) for name, env in envs.items()}
        for turn in range(ROUNDS + 1):
            for name, loop in loops.items():
                bar.begin(f"{job.num_envs} x {job.id}: {name}")
                speed = _speed(loop, job.num_envs, seconds if turn else seconds / 3)
                if turn:  # the first turn warms up
                    speeds[name].append(speed)
                bar.update()
    return Timed(speeds, chosen)


def _choice(env: ReactorVectorEnv) -> str:
    """The executor, the number of workers, and the reason for them."""
    on = "one core" if env.workers == 1 else f"{env.workers} workers, {env.executor}"
    why = repr(env).partition("[")[2].rpartition("]")[0]
    return f"{on}: {why}" if why else on


def _loop(env: VectorEnv[Any, Any, Any], job: RolloutTarget) -> Iterator[None]:
    env.action_space.seed(job.seed)
    actions = [np.asarray(env.action_space.sample()) for _ in range(100)]
    env.reset(seed=job.seed)
    while True:
        for action in actions:
            env.step(action)
            yield


def _speed(loop: Iterator[None], num_envs: int, seconds: float) -> float:
    begin = time.perf_counter()
    steps = 0
    while (now := time.perf_counter()) < begin + seconds:
        next(loop)
        steps += 1
    return steps * num_envs / (now - begin)


def _fingerprints(job: RolloutTarget, bar: Progress) -> dict[int, str]:
    fingerprints = {}
    for workers in WORKERS:
        bar.begin(f"{job.num_envs} x {job.id}: fingerprint of {workers} worker(s)")
        fingerprints[workers] = job.fingerprint("processes", workers, ticks=100)
        bar.update()
    return fingerprints
