"""Does anything grow? Millions of steps on one ReactorVectorEnv, watching memory, descriptors, threads and shared memory.

With ``--seconds`` it steps for so long instead.

The first fifth of the samples is the warm-up. After it, resident memory may end at most ``--slack`` MB above where it was, in
the caller and in every helper; descriptors, threads, processes and the names in ``/dev/shm`` may not grow at all. Exits 1 if
something did.
"""

from __future__ import annotations

import statistics
import sys
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common import arguments, print_machine, write_json
from machine import machine
from showing import print_table
from vector_env import BATCHES, action_batches, make_env

SAMPLES = 200
SHARED = Path("/dev/shm")


def sample(caller: Any, step: int, begin: float) -> dict[str, Any]:
    import psutil

    found: dict[str, Any] = {"step": step, "seconds": round(time.perf_counter() - begin, 2), "rss_mb": {}, "fds": 0, "threads": 0}
    processes = [caller, *sorted(caller.children(recursive=True), key=lambda p: p.pid)]
    for number, process in enumerate(processes):
        try:
            with process.oneshot():
                found["rss_mb"]["caller" if number == 0 else f"child {number}"] = round(process.memory_info().rss / 1e6, 3)
                found["fds"] += process.num_fds() if hasattr(process, "num_fds") else process.num_handles()
                found["threads"] += process.num_threads()
        except psutil.NoSuchProcess:
            continue
    found["processes"] = len(processes)
    mine = f"rrl-{caller.pid:x}-"  # other programs use the folder too
    found["shm"] = sum(mine in entry.name for entry in SHARED.iterdir()) if SHARED.exists() else 0
    return found


def growth(samples: list[dict[str, Any]], slack: float) -> list[str]:
    """What grew, in words."""
    warm = samples[len(samples) // 5 :]
    third = max(1, len(warm) // 3)
    found = []
    for name in warm[0]["rss_mb"]:
        values = [one["rss_mb"].get(name, 0.0) for one in warm]
        early, late = statistics.median(values[:third]), statistics.median(values[-third:])
        if late - early > slack:
            found.append(f"resident memory of {name}: {early:.1f} to {late:.1f} MB")
    counts = ("fds", "threads", "processes", "shm")
    return found + [f"{name}: {warm[0][name]} to {warm[-1][name]}" for name in counts if warm[-1][name] > warm[0][name]]


def plot(path: Path, samples: list[dict[str, Any]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    steps = [one["step"] / 1e6 for one in samples]
    figure, (memory, counts) = plt.subplots(2, 1, figsize=(7, 5.5), sharex=True)
    for name in samples[-1]["rss_mb"]:
        memory.plot(steps, [one["rss_mb"].get(name) for one in samples], label=name)
    memory.set_ylabel("resident memory, MB")
    memory.set_ylim(bottom=0)
    for name in ("fds", "threads", "processes", "shm"):
        counts.plot(steps, [one[name] for one in samples], label=name, drawstyle="steps-post")
    counts.set_ylabel("count, all processes")
    counts.set_xlabel("million steps")
    for axis in (memory, counts):
        axis.legend(fontsize=7, ncols=4)
    figure.suptitle(f"Soak; {machine()['cores']} cores, {machine()['cpu']}", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--steps", type=int, default=None, help="environment steps in all (default 10,000,000; quick 300,000)")
    parser.add_argument("--seconds", type=float, default=None, help="step for so long, however many steps that are")
    parser.add_argument("--envs", type=int, default=64)
    parser.add_argument("--slack", type=float, default=2.0, help="MB of resident memory that count as noise")
    options = parser.parse_args()
    steps = options.steps or (300_000 if options.quick else 10_000_000)
    import psutil

    from reactor_gymnasium import ReactorVectorEnv

    print_machine()
    caller = psutil.Process()
    batches = action_batches("CartPole-v1", options.envs)
    samples = []
    calls = max(1, steps // options.envs)
    shm_before = sample(caller, 0, time.perf_counter())["shm"]
    with closing(ReactorVectorEnv([partial(make_env, "CartPole-v1")] * options.envs)) as envs:
        envs.reset(seed=0)
        checksum, call, done = 0.0, 0, 0.0  # done: the share of all that there is to do
        begin = time.perf_counter()
        while done < 1.0:
            observations, *_ = envs.step(batches[call % BATCHES])
            if done * SAMPLES >= len(samples):
                checksum += float(np.sum(observations))
                samples.append(sample(caller, call * options.envs, begin))
            call += 1
            done = (time.perf_counter() - begin) / options.seconds if options.seconds else call / calls
        seconds = time.perf_counter() - begin
    grew = growth(samples, options.slack)
    left = sample(caller, steps, begin)["shm"] - shm_before
    if left > 0:
        grew.append(f"{left} names left in /dev/shm")
    first, last = samples[len(samples) // 5], samples[-1]
    memory = (first["rss_mb"], last["rss_mb"])
    rows = [[f"memory of {name}, MB", f"{memory[0].get(name, 0):.1f}", f"{memory[1][name]:.1f}"] for name in memory[1]]
    rows += [[name, str(first[name]), str(last[name])] for name in ("fds", "threads", "processes", "shm")]
    stepped = call * options.envs
    print_table(f"{stepped:,} steps, {stepped / seconds:,.0f}/s", ["", "after warm-up", "at the end"], rows)
    write_json(options, "soak", {"samples": samples}, steps=stepped, seconds=seconds, grew=grew, checksum=checksum)
    plot(options.output / "soak.png", samples)
    print("grew: " + "; ".join(grew) if grew else "nothing grew")
    return 1 if grew else 0


if __name__ == "__main__":
    sys.exit(main())
