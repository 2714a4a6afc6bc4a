"""What do several machines gain, and what does a tick on them cost?

Home and up to two further nodes of a Ray cluster, all on this machine, each with one worker. Environments that sleep for a
millisecond leave the cores alone, so that nodes do not take them from each other; CartPole shows what a tick costs that has hardly
any work in it. Besides: calls and bytes that cross, the same weights everywhere, and how soon a dead node is noticed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from common import Contender, arguments, compared, run_cases, summary
from recording import write_json
from showing import bar_plot, print_table, rate_rows

from reactor_gymnasium import ReactorVectorEnv
from reactor_ray import RayNodes
from reactor_rl import NodeDiedError

SYNC, HOME = "SyncVectorEnv", "reactor_rl, home alone"
NODES = {"reactor_rl, home and 1 node": 2, "reactor_rl, home and 2 nodes": 3}
OURS = "reactor_rl, home and 2 nodes"
ENVS = 48
SLOW, QUICK, TRAINING = f"{ENVS} environments of 1 ms", f"{ENVS} CartPole-v1", "SyncDQN, 6 actors of 32 steps"
TRAFFIC, SAME, DEATH = "traffic", "same bits", "death"
MEMORY = 200_000_000


class Sleeper(gymnasium.Env[Any, Any]):
    """CartPole's spaces, and steps that take a millisecond of nobody's core."""

    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        time.sleep(1e-3)
        return np.full(4, action, np.float32), 1.0, False, False, {}


MADE = {SLOW: Sleeper, QUICK: partial(gymnasium.make, "CartPole-v1")}


@contextmanager
def cluster() -> Iterator[Any]:
    """Three raylets, which this process has joined."""
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": MEMORY}
    found = Cluster(initialize_head=True, head_node_args=head)
    try:
        # Two CPUs, so that contenders hold theirs beside each other; each takes one of a node.
        found.others = [found.add_node(wait=False, num_cpus=2, object_store_memory=MEMORY) for _ in range(2)]
        found.wait_for_nodes()
        ray.init(address=found.address, log_to_driver=False, configure_logging=False)
        yield found
    finally:
        ray.shutdown()
        found.shutdown()


class Steps(Contender):
    """Steps of a vector environment, in environment steps."""

    def __init__(self, envs: Any) -> None:
        self.envs, draw = envs, np.random.default_rng(0)
        self.actions = [draw.integers(0, 2, ENVS) for _ in range(100)]
        self.envs.reset(seed=0)

    def go(self, count: int) -> float:
        for number in range(count):
            self.envs.step(self.actions[number % 100])
        return count * ENVS

    def close(self) -> None:
        self.envs.close()


def on(nodes: int) -> dict[str, Any]:
    """How something is run on so many nodes."""
    return {"executor": "ray", "nodes": RayNodes(nodes, num_cpus=1), "workers": 1}


def on_nodes(case: str, nodes: int) -> Any:
    return ReactorVectorEnv([MADE[case]] * ENVS, **on(nodes))


def trained(**how: Any) -> Any:
    from reactor_sb3 import SyncDQN

    return SyncDQN(
        "MlpPolicy", "CartPole-v1", n_actors=6, train_freq=32, gradient_steps=8, learning_starts=500, buffer_size=20_000,
        batch_size=64, target_update_interval=500, seed=3, **how,
    )  # fmt: skip


class Rounds(Contender):
    """Rounds of a training."""

    def __init__(self, **how: Any) -> None:
        self.model = trained(**how)
        self.model.learn(576)

    def go(self, count: int) -> float:
        self.model.learn(192 * count, reset_num_timesteps=False)
        return count

    def close(self) -> None:
        self.model.close()


def rates(case: str, options: argparse.Namespace) -> dict[str, Any]:
    if case == TRAINING:
        builders: dict[str, Any] = {HOME: partial(Rounds, executor="inline")}
        builders |= {name: partial(Rounds, **on(nodes)) for name, nodes in NODES.items()}
    else:
        make = [MADE[case]] * ENVS
        builders = {SYNC: lambda: Steps(gymnasium.vector.SyncVectorEnv(make))}
        builders[HOME] = lambda: Steps(ReactorVectorEnv(make, executor="inline"))
        builders |= {name: lambda nodes=nodes: Steps(on_nodes(case, nodes)) for name, nodes in NODES.items()}
    return compared(builders, options).as_json(OURS)


def traffic(ticks: int) -> dict[str, Any]:
    """Calls and bytes of a tick, for each node beside home, of the vector environment and of the training."""
    from reactor_ray import transport

    counted = {"calls": 0, "out": 0, "in": 0}
    pack, whole = transport.Store.pack, transport.join_chunks

    def packed(store: Any, message: Any) -> Any:
        message_in_pieces = pack(store, message)
        counted["calls"] += 1
        counted["out"] += sum(map(len, message_in_pieces.pieces))
        return message_in_pieces

    def joined(pieces: Any) -> bytes:
        data = whole(pieces)
        counted["in"] += len(data)
        return data

    transport.Store.pack, transport.join_chunks = packed, joined  # type: ignore[method-assign]
    found = {}
    try:
        for name, make in {
            QUICK: lambda: Steps(on_nodes(QUICK, 3)), TRAINING: lambda: Rounds(**on(3)),
        }.items():  # fmt: skip
            contender = make()
            contender.go(3)
            counted.update(dict.fromkeys(counted, 0))
            contender.go(ticks)
            found[name] = {what: count / ticks / 2 for what, count in counted.items()}
            contender.close()
    finally:
        transport.Store.pack, transport.join_chunks = pack, whole  # type: ignore[method-assign]
    return found


def trajectory(**how: Any) -> str:
    seen, draw = hashlib.blake2b(digest_size=16), np.random.default_rng(0)
    with ReactorVectorEnv([MADE[QUICK]] * ENVS, **how) as envs:
        seen.update(envs.reset(seed=1)[0].tobytes())
        for _ in range(200):
            for part in envs.step(draw.integers(0, 2, ENVS))[:4]:
                seen.update(np.ascontiguousarray(part).tobytes())
    return seen.hexdigest()


def training(pipeline: int, **how: Any) -> str:
    with trained(pipeline=pipeline, **how) as model:
        model.learn(3000)
        return str(model.fingerprint())


def same() -> dict[str, Any]:
    """The fingerprint inline, and on how many nodes it is the same."""
    runs = {"ReactorVectorEnv": trajectory, "SyncDQN": partial(training, 0), "SyncDQN, pipeline=1": partial(training, 1)}
    found = {}
    for name, run in runs.items():
        expected = run(executor="inline")
        found[name] = {"fingerprint": expected} | {f"{nodes} nodes": run(**on(nodes)) == expected for nodes in (1, 2, 3)}
    return found


def deaths(there: Any, times: int) -> dict[str, Any]:
    """Seconds from a kill to the error."""
    import ray

    def after(kill: Any) -> float:
        envs = on_nodes(QUICK, 3)
        try:
            envs.reset(seed=0)
            kill(envs._transport)
            begin = time.perf_counter()
            try:
                while True:
                    envs.step(np.zeros(ENVS, np.int64))
            except NodeDiedError:
                return time.perf_counter() - begin
        finally:
            envs.close()

    def process(transport: Any) -> None:
        os.kill(ray.get(transport._actors[1].__ray_call__.remote(lambda _: os.getpid())), signal.SIGKILL)

    def machine(transport: Any) -> None:
        (found,) = [one for one in there.others if one.node_id == transport._machines[1]]
        there.remove_node(found, allow_graceful=False)

    return {"process": summary([after(process) for _ in range(times)]), "machine": summary([after(machine)])}


def measure(case: str, options: argparse.Namespace) -> dict[str, Any]:
    with cluster() as there:
        if case == TRAFFIC:
            return traffic(10 if options.quick else 100)
        if case == SAME:
            return same()
        if case == DEATH:
            return deaths(there, 2 if options.quick else 7)
        return rates(case, options)


def prediction(cases: dict[str, Any]) -> dict[str, Any]:
    """What a tick takes on more nodes: the work's share, what a tick costs at all, and what home does for each node in turn."""
    one, two = (1 / cases[QUICK]["rates"][name]["median"] * ENVS for name in NODES)
    per_node = max(two - one, 0.0)
    fixed = max(one - per_node, 0.0)
    counts = (1, 2, 4, 8, 16, 32, 64)
    seconds = {
        work: {str(n): work / n + (fixed + per_node * (n - 1) if n > 1 else 0.0) for n in counts} for work in (0.1, 1.0, 10.0)
    }
    return {
        "fixed": fixed,
        "per_node": per_node,
        "speed": {str(work): {n: work / found for n, found in row.items()} for work, row in seconds.items()},
        "most_nodes": {str(work): (work / per_node) ** 0.5 if per_node else None for work in seconds},
    }


def show(name: str, found: dict[str, Any]) -> None:
    if "rates" in found:
        print_table(name, ["contender", "per item", "ours is", "min-max"], rate_rows(found, OURS, per_item=True))
    else:
        print(name, found)


def main() -> None:
    options = arguments(__doc__).parse_args()
    cases = run_cases(__file__, options, [SLOW, QUICK, TRAINING, TRAFFIC, SAME, DEATH], measure, show=show)
    if cases is None:
        return
    if all("rates" in cases.get(name, {}) for name in (SLOW, QUICK)):
        cases["prediction"] = prediction(cases)
        show("prediction", cases["prediction"])
    write_json(options, "federation", cases)
    shown = {name: found for name, found in cases.items() if "rates" in found}
    groups = {name: {one: rate["median"] for one, rate in found["rates"].items()} for name, found in shown.items()}
    bar_plot(options.output / "federation.png", "Several machines", groups, "per second, longer is better")


if __name__ == "__main__":
    main()
