"""What do two banks gain while a network runs in the caller? The same loop with and without ``batch_size=num_envs // 2``.

The loop is ``actions = network(observations); observations = envs.step(actions)``: preprocessed Atari, and the network of Mnih et
al. (2015) in torch on the CPU. "one helper" leaves stepping to one helper in either loop, so that the caller's core is free for the
network: a machine with cores to spare, as far as two cores can show it. "all cores" gives the plain loop every core (the caller
steps too), and the banks as many helpers as there are cores. The C++ rivals take turns too, by their own ``send`` and ``recv``, but
return whichever environments are done first.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from common import (
    Contender,
    arguments,
    bar_plot,
    chosen,
    cores,
    interleaved,
    print_machine,
    print_table,
    rate_rows,
    rounds_of,
    run_cases,
    seconds_of,
    write_json,
)  # fmt: skip

OURS = "reactor_rl two banks"
CASES = {
    "pong x 32, all cores, torch on one thread": (None, 1),
    "pong x 32, all cores, torch on all cores": (None, cores()),
    "pong x 32, one helper, torch on one thread": (1, 1),
}
N = 32


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
    """The loop. ``batch`` environments are stepped at a time."""

    def __init__(self, venv: Any, act: Callable[[Any], Any], batch: int, dtype: Any = np.int64) -> None:
        self.venv, self.act, self.batch, self.dtype = venv, act, batch, dtype
        found = venv.reset()
        self.observations, self.ids = found[0], None

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

    def __init__(self, venv: Any, act: Callable[[Any], Any], batch: int) -> None:
        self.venv, self.act, self.batch = venv, act, batch
        venv.async_reset()

    def go(self, count: int) -> float:
        act, venv = self.act, self.venv
        for _ in range(count):
            observations, _, _, _, infos = venv.recv()
            venv.send(act(observations).astype(np.int32), infos["env_id"])
        return count * self.batch


def measure(case: str, options: argparse.Namespace) -> dict[str, Any]:
    import torch

    workers, threads = CASES[case]
    torch.set_num_threads(threads)
    act = network(6)

    def plain() -> Contender:
        from reactor_gymnasium import AtariVectorEnv

        return Loop(AtariVectorEnv("pong", N, workers=workers, executor="processes", caller_works=workers is None), act, N)

    def banks() -> Contender:
        from reactor_gymnasium import AtariVectorEnv

        return Loop(AtariVectorEnv("pong", N, batch_size=N // 2, workers=workers, executor="processes"), act, N // 2)

    def ale(batch: int) -> Contender:
        import ale_py

        return Loop(ale_py.AtariVectorEnv("pong", N, batch_size=batch, num_threads=workers or cores()), act, batch)

    def pool(batch: int) -> Contender:
        import envpool

        venv = envpool.make_gymnasium("Pong-v5", num_envs=N, batch_size=batch, num_threads=workers or cores(), reward_clip=True)
        return Loop(venv, act, batch, np.int32) if batch == N else Asynchronous(venv, act, batch)

    builders = chosen(
        {
            OURS: banks,
            "reactor_rl one bank": plain,
            "ale_py AtariVectorEnv (C++), in step": lambda: ale(N),
            "ale_py AtariVectorEnv (C++), asynchronous": lambda: ale(N // 2),
            "EnvPool (C++), in step": lambda: pool(N),
            "EnvPool (C++), asynchronous": lambda: pool(N // 2),
        },
        options,
    )
    return interleaved(builders, rounds=rounds_of(options), seconds=seconds_of(options)).as_json(OURS)


def show(name: str, found: dict[str, Any]) -> None:
    print_table(name, ["contender", "steps", "ours is", "min-max"], rate_rows(found, OURS))


def main() -> None:
    options = arguments(__doc__.splitlines()[0]).parse_args()
    if options.case is None:
        print_machine()
    cases = run_cases(__file__, options, list(CASES), measure, show=show)
    if cases is None:
        return
    write_json(options, "banks", cases)
    groups = {name: {one: rate["median"] for one, rate in found.get("rates", {}).items()} for name, found in cases.items()}
    bar_plot(options.output / "banks.png", "A network in the caller", groups, "steps per second", log=False)


if __name__ == "__main__":
    main()
