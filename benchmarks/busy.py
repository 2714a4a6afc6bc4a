"""How much is left beside programs that never sleep, and of several copies of one training at once?

Beside hogs (loops that want a core each) the limit is the scheduler's fair share, so ours is compared with what has a single
process: Gymnasium's SyncVectorEnv, SB3's DummyVecEnv, ourselves on one worker. With copies, as many trainings run at the same time
as there are cores, and what is compared is what all of them do together. ``named`` is ``executor="processes"``, which is also what
a vector environment has that was made while the machine was quiet; ``auto`` was made with the hogs there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from common import Contender, arguments, benchmark, compared, cores
from showing import print_table, rate_rows
from vector_env import Gymnasium, action_batches, make_env

OURS = "reactor_rl, named"
AUTO = "reactor_rl, auto"
HOGS = (0, 1, 2, 4)
ENV = "CartPole-v1"
STEPS = 64
"""Steps of each environment in a round of a training."""


class Hogs:
    """Processes that never sleep."""

    def __init__(self, count: int) -> None:
        self.processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]

    def __enter__(self) -> None:
        time.sleep(0.5 if self.processes else 0.0)  # until they have started in earnest

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


# ---------------------------------------------------------------------- what is done


def stepping(num_envs: int, kind: str) -> Contender:
    """Nothing but stepping."""
    fns = [partial(make_env, ENV)] * num_envs
    batches = action_batches(ENV, num_envs)
    if kind in (OURS, AUTO):
        from reactor_gymnasium import ReactorVectorEnv

        return Gymnasium(ReactorVectorEnv(fns, executor="processes" if kind == OURS else "auto"), batches)
    from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

    return Gymnasium({"SyncVectorEnv": SyncVectorEnv, "AsyncVectorEnv": AsyncVectorEnv}[kind](fns), batches)


class Learns(Contender):
    """An SB3 algorithm; a unit is ``STEPS`` steps of each environment."""

    def __init__(self, model: Any, num_envs: int) -> None:
        self.model, self.size = model, STEPS * num_envs

    def go(self, count: int) -> float:
        self.model.learn(count * self.size, reset_num_timesteps=False, log_interval=None)
        return count * self.size

    def close(self) -> None:
        self.model.close() if hasattr(self.model, "close") else self.model.env.close()


def ppo(num_envs: int, kind: str) -> Contender:
    """SB3's PPO, with its networks and its batches."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import DummyVecEnv

    from reactor_sb3 import ReactorVecEnv

    ours = kind in (OURS, AUTO)
    kwargs = {"executor": "processes" if kind == OURS else "auto"} if ours else {}
    venv = make_vec_env(ENV, num_envs, seed=0, vec_env_cls=ReactorVecEnv if ours else DummyVecEnv, vec_env_kwargs=kwargs)
    return Learns(PPO("MlpPolicy", venv, n_steps=STEPS, batch_size=256, n_epochs=4, seed=0, device="cpu"), num_envs)


def trained(algorithm: str, num_envs: int, kind: str) -> Contender:
    """One of our own trainers."""
    import reactor_sb3

    executor = {OURS: "processes", AUTO: "auto"}.get(kind, "inline")
    length = "n_steps" if algorithm == "PQN" else "train_freq"
    settings = {"n_actors": num_envs, length: 16, "seed": 0, "executor": executor}
    return Learns(getattr(reactor_sb3, algorithm)("MlpPolicy", ENV, **settings), num_envs)


def playing(agents: int, copies: int, kind: str) -> Contender:
    """Multi-agent inference."""
    import multi_agent

    executor = {OURS: "processes", AUTO: "auto"}.get(kind, "inline")
    return multi_agent.Ours(multi_agent.Work("junction", agents, copies), executor=executor)


ONE_WORKER = "reactor_rl, one worker"
WORK: dict[str, tuple[Callable[[str], Contender], tuple[str, ...]]] = {
    "8 CartPole": (partial(stepping, 8), ("AsyncVectorEnv", "SyncVectorEnv")),
    "64 CartPole": (partial(stepping, 64), ("AsyncVectorEnv", "SyncVectorEnv")),
    "PPO on 8 CartPole": (partial(ppo, 8), ("DummyVecEnv",)),
    "SyncDQN with 8 actors": (partial(trained, "SyncDQN", 8), (ONE_WORKER,)),
    "PQN with 8 actors": (partial(trained, "PQN", 8), (ONE_WORKER,)),
    "MultiAgentRunner of 4 agents x 16": (partial(playing, 4, 16), (ONE_WORKER,)),
}


# ---------------------------------------------------------------------- several copies at once


class Copies(Contender):
    """The same work in several processes at the same time, each told by a line how much to do."""

    def __init__(self, work: str, kind: str, count: int) -> None:
        command = [sys.executable, __file__, "--copy", json.dumps([work, kind])]
        self.processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(count)]
        self.answers()  # they have been built

    def answers(self) -> list[float]:
        """The next answer of each copy; what the copies print besides is skipped."""
        found = []
        for process in self.processes:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("@@"):
                    found.append(float(line[2:]))
                    break
            else:
                raise RuntimeError(f"a copy ended with exit status {process.wait()}")
        return found

    def go(self, count: int) -> float:
        for process in self.processes:
            assert process.stdin is not None
            print(count, file=process.stdin, flush=True)
        return sum(self.answers())

    def close(self) -> None:
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self.processes:
            process.wait()


def be_a_copy(work: str, kind: str) -> None:
    """What a copy does: build, then work as much as each line of standard input says, and tell how many items that were."""
    limit_torch()
    contender = WORK[work][0](kind)
    try:
        print("@@0", flush=True)
        for line in sys.stdin:
            print(f"@@{contender.go(int(line))}", flush=True)
    finally:
        contender.close()


# ---------------------------------------------------------------------- cases


def limit_torch() -> None:
    """One thread, for everybody: with more, SB3's algorithms are many times as slow on a busy machine."""
    import torch

    torch.set_num_threads(1)


def cases() -> dict[str, tuple[str, int, int]]:
    """Work, hogs and copies of each case, by its name."""
    found = {}
    for work in WORK:
        hogs = HOGS if "CartPole" in work and "PPO" not in work else (cores(),)
        found |= {f"{work} beside {n} hogs": (work, n, 1) for n in hogs}
    for work in WORK:
        found[f"{cores()} copies of {work}"] = (work, 0, cores())
    return found


def measure(case: str, options: argparse.Namespace) -> dict[str, Any]:
    limit_torch()
    work, hogs, copies = cases()[case]
    build, rivals = WORK[work]
    builders: dict[str, Callable[[], Contender]] = {}
    for kind in (*rivals, OURS, AUTO):  # those that fork first, before anything has started threads
        if copies > 1 and kind == "AsyncVectorEnv":
            continue
        builders[kind] = partial(build, kind) if copies == 1 else partial(Copies, work, kind, copies)
    with Hogs(hogs):
        figures = compared(builders, options, seconds=2.0)
    found = figures.as_json(OURS)
    if AUTO in figures.rates:
        found["ratios_of_auto"] = {name: figures.ratio(AUTO, name) for name in figures.rates if name != AUTO}
    return found


def show(name: str, found: dict[str, Any]) -> None:
    auto = found.get("ratios_of_auto", {})
    rows = [[*row, f"{auto[row[0]]['median']:.2f}x" if row[0] in auto else ""] for row in rate_rows(found, OURS)]
    print_table(name, ["contender", "items", "named is", "min-max", "auto is"], rows)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--copy", default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.copy is not None:
        be_a_copy(*json.loads(options.copy))
        return
    label = "steps per second"
    panels = [name for name in cases() if name.endswith("beside 2 hogs")]
    benchmark(__file__, options, list(cases()), measure, show, "On a busy machine", label, panels=panels)


if __name__ == "__main__":
    main()
