"""What do two banks gain while a network runs in the caller? The same loop with and without ``batch_size=num_envs // 2``.

Every loop runs with torch on one thread and on all cores, and what counts is the best of each against the best of the others: two
banks get into the way of torch's threads, and a loop without banks has a core idle if torch has one thread.

The loop is ``actions = network(observations); observations = envs.step(actions)``: preprocessed Atari, and the network of Mnih et
al. (2015) in torch on the CPU. "one helper" leaves stepping to one helper in either loop, so that the caller's core is free for the
network: a machine with cores to spare, as far as two cores can show it. "all cores" gives the plain loop every core (the caller
steps too), and the banks as many helpers as there are cores. The C++ rivals take turns too, by their own ``send`` and ``recv``, but
return whichever environments are done first.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from common import Contender, arguments, benchmark, compared, cores, summary
from showing import print_table, rate_rows

OURS = "reactor_rl two banks"
CASES = {"pong x 32, all cores": None, "pong x 32, one helper": 1}
N = 32
THREADS = {"torch on one thread": 1, "torch on all cores": cores()}


def network(outputs: int) -> Callable[[Any], Any]:
    """Greedy actions of an untrained convolutional network, by batch of uint8 observations."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers = nn.Sequential(
        nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1), nn.ReLU(), nn.Flatten(),
        nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, outputs),
    ).eval()  # fmt: skip

    def act(observations: Any) -> Any:
        with torch.inference_mode():
            return layers(torch.from_numpy(observations).float().div_(255.0)).argmax(1).numpy()

    return act


class Loop(Contender):
    """The loop. ``batch`` environments are stepped at a time, with ``threads`` of torch."""

    def __init__(self, venv: Any, act: Callable[[Any], Any], batch: int, threads: int, dtype: Any = np.int64) -> None:
        self.venv, self.act, self.batch, self.threads, self.dtype = venv, act, batch, threads, dtype
        self.observations = venv.reset()[0]

    def timed(self, count: int) -> tuple[float, float]:
        import torch

        torch.set_num_threads(self.threads)
        return super().timed(count)

    def go(self, count: int) -> float:
        act, step, observations = self.act, self.venv.step, self.observations
        for _ in range(count):
            observations = step(act(observations).astype(self.dtype, copy=False))[0]
        self.observations = observations
        return count * self.batch

    def close(self) -> None:
        self.venv.close()


class Asynchronous(Loop):
    """EnvPool's asynchronous mode."""

    def __init__(self, venv: Any, act: Callable[[Any], Any], batch: int, threads: int) -> None:
        self.venv, self.act, self.batch, self.threads = venv, act, batch, threads
        venv.async_reset()

    def go(self, count: int) -> float:
        act, venv = self.act, self.venv
        for _ in range(count):
            observations, _, _, _, infos = venv.recv()
            venv.send(act(observations).astype(np.int32), infos["env_id"])
        return count * self.batch


def measure(case: str, options: argparse.Namespace) -> dict[str, Any]:
    workers, act = CASES[case], network(6)

    def plain(threads: int) -> Contender:
        from reactor_gymnasium import AtariVectorEnv

        return Loop(AtariVectorEnv("pong", N, workers=workers, executor="processes", caller_works=workers is None), act, N, threads)

    def banks(threads: int) -> Contender:
        from reactor_gymnasium import AtariVectorEnv

        return Loop(AtariVectorEnv("pong", N, batch_size=N // 2, workers=workers, executor="processes"), act, N // 2, threads)

    def ale(batch: int, threads: int) -> Contender:
        import ale_py

        return Loop(ale_py.AtariVectorEnv("pong", N, batch_size=batch, num_threads=workers or cores()), act, batch, threads)

    def pool(batch: int, threads: int) -> Contender:
        import envpool

        venv = envpool.make_gymnasium("Pong-v5", num_envs=N, batch_size=batch, num_threads=workers or cores(), reward_clip=True)
        return Loop(venv, act, batch, threads, np.int32) if batch == N else Asynchronous(venv, act, batch, threads)

    kinds: dict[str, Callable[[int], Contender]] = {
        OURS: banks,
        "reactor_rl one bank": plain,
        "ale_py AtariVectorEnv (C++), in step": partial(ale, N),
        "ale_py AtariVectorEnv (C++), asynchronous": partial(ale, N // 2),
        "EnvPool (C++), in step": partial(pool, N),
        "EnvPool (C++), asynchronous": partial(pool, N // 2),
    }
    figures = compared(
        {f"{name}, {said}": partial(make, threads) for name, make in kinds.items() for said, threads in THREADS.items()}, options
    )
    medians = {name: summary(rates)["median"] for name, rates in figures.rates.items()}
    best = {
        kind: max((name for name in medians if name.startswith(f"{kind}, torch")), key=medians.__getitem__)
        for kind in kinds
        if any(name.startswith(f"{kind}, torch") for name in medians)
    }
    found = figures.as_json(best[OURS])
    found["best"] = best
    found["best_ratios"] = {kind: figures.ratio(best[OURS], name) for kind, name in best.items() if kind != OURS}
    return found


def show(name: str, found: dict[str, Any]) -> None:
    ours = found["best"][OURS]
    print_table(name, ["contender", "steps", "our best is", "min-max"], rate_rows(found, ours))
    rows = [[kind, f"{r['median']:.2f}x", f"{r['min']:.2f}-{r['max']:.2f}"] for kind, r in found["best_ratios"].items()]
    print_table("best against best", ["contender", "ours is", "min-max"], rows)


def main() -> None:
    benchmark(__file__, arguments(__doc__).parse_args(), list(CASES), measure, show, "A network in the caller")


if __name__ == "__main__":
    main()
