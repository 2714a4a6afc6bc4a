"""What does distance cost a program on several machines?

Home and two further nodes of a Ray cluster, each in a network namespace of this machine, with links that delay every packet. So
the nodes have no more cores than federation.py's, whose cases these are, and the network is that of machines which are far apart.
Linux only, and only as root.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from common import Contender, arguments, compared, end_tree, run_cases, summary
from far_apart import Network, address, network, round_trip
from federation import ENVS, HOME, MADE, NODES, OURS, QUICK, SLOW, TRAINING, Rounds, Steps, on, prediction, trained
from recording import write_json
from showing import print_table

from reactor_gymnasium import ReactorVectorEnv

DELAYS = {"no delay": 0.0, "1 ms": 1e-3, "10 ms": 1e-2}
"""Seconds that a packet takes from one node to another. A round trip takes two of them."""
NUMBER_OF_NODES, PORT, MEMORY = 3, 6379, 100_000_000
FOLDER = "REACTOR_RL_FAR_FOLDER"
"""Names a folder for those of the nodes, which a case that takes too long does not remove."""
PATIENCE = 90.0
"""Seconds within which the nodes have to be there."""


@contextmanager
def cluster(delay: float) -> Iterator[None]:
    """Nodes that are far apart, the first of which this process has joined."""
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_AUTH_MODE"] = "disabled"  # nobody else is in these namespaces, and not all nodes would find a user's token
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112  # on machines of their own, workers have the cores to themselves
    import ray

    started: list[subprocess.Popen[bytes]] = []
    with network(delay) as net:
        try:
            for number in range(NUMBER_OF_NODES):
                started.append(start_node(net, number))
                until(listens, "the first node listens")
            join()
            yield
        finally:
            ray.shutdown()
            for node in reversed(started):
                end(node)


def start_node(net: Network, number: int) -> subprocess.Popen[bytes]:
    """A raylet; the first, which is at home, has the cluster's tables too."""
    where = ["--head", f"--port={PORT}", "--include-dashboard=false"] if number == 0 else [f"--address={address(0)}:{PORT}"]
    command = [
        sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *where, f"--node-ip-address={address(number)}",
        f"--temp-dir={os.environ[FOLDER]}/{number}", f"--object-store-memory={MEMORY}",
        f"--num-cpus={3 if number else 1}",
    ]  # fmt: skip
    if number == 0:
        return subprocess.Popen(command, stdout=subprocess.DEVNULL)
    return net.start(number, command, stdout=subprocess.DEVNULL)


def join() -> None:
    """Become a process of the first node, and wait for the others."""
    import ray

    ray.init(address=f"{address(0)}:{PORT}", _node_ip_address=address(0), log_to_driver=False, configure_logging=False)
    until(lambda: sum(node["Alive"] for node in ray.nodes()) == NUMBER_OF_NODES, "all nodes have joined")


def listens() -> bool:
    """Whether the first node can be joined."""
    with socket.socket() as asking:
        return asking.connect_ex((address(0), PORT)) == 0


def until(true: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > end:
            raise TimeoutError(f"{PATIENCE:.0f} s, and it is not so that {what}")
        time.sleep(0.1)


def end(node: subprocess.Popen[bytes]) -> None:
    node.terminate()
    try:
        node.wait(30.0)
    except subprocess.TimeoutExpired:
        end_tree(node.pid)
        node.wait()


class Trained(Rounds):
    """Rounds of a training. Before they are timed its fingerprint is taken, and calls are counted for ten of them."""

    def __init__(self, note: Callable[[str, float], None], count: int, **how: Any) -> None:
        from reactor_ray.transport import RayTransport

        self.model = trained(**how)
        self.model.learn(3000)
        fingerprint, send, calls = str(self.model.fingerprint()), RayTransport.send, 0

        def counted(transport: Any, *arguments: Any) -> None:
            nonlocal calls
            calls += 1
            send(transport, *arguments)

        RayTransport.send = counted  # type: ignore[method-assign]
        try:
            self.go(10)
        finally:
            RayTransport.send = send  # type: ignore[method-assign]
        note(fingerprint, calls / 10 / max(1, count - 1))


def contenders(case: str, note: Callable[[str, str, float], None]) -> dict[str, Callable[[], Contender]]:
    where = {HOME: (1, {"executor": "inline"})} | {name: (nodes, on(nodes)) for name, nodes in NODES.items()}
    if case == TRAINING:
        return {name: partial(Trained, partial(note, name), nodes, **how) for name, (nodes, how) in where.items()}
    return {name: lambda how=how: Steps(ReactorVectorEnv([MADE[case]] * ENVS, **how)) for name, (_, how) in where.items()}


def measure(case: str, options: argparse.Namespace) -> dict[str, Any]:
    with cluster(DELAYS[case]):
        found: dict[str, Any] = {"delay": DELAYS[case], "fingerprints": {}, "calls": {}}
        found["round_trip"] = summary([round_trip(number) for _ in range(20) for number in range(1, NUMBER_OF_NODES)])

        def note(name: str, fingerprint: str, calls: float) -> None:
            found["fingerprints"][name], found["calls"][name] = fingerprint, calls

        # CartPole gives the model its costs, which are those without a delay.
        for what in (SLOW, TRAINING) if DELAYS[case] else (SLOW, TRAINING, QUICK):
            found[what] = compared(contenders(what, note), options, seconds=0.4).as_json(OURS)
        return found


def predict(cases: dict[str, Any]) -> dict[str, Any]:
    """Seconds of a step of slow environments by the model of the guide, whose costs are those of CartPole without a delay.

    A node's share of the work, what a tick costs at all, what home does for each node in turn, and the delay's round trip.
    """
    near = cases["no delay"]
    costs = prediction(near)
    seconds = {}
    for case, found in cases.items():
        work = ENVS / found[SLOW]["rates"][HOME]["median"]
        away = found["round_trip"]["median"] - near["round_trip"]["median"]
        seconds[case] = {
            name: work / nodes + costs["fixed"] + costs["per_node"] * (nodes - 1) + away for name, nodes in NODES.items()
        }
    return {"fixed": costs["fixed"], "per_node": costs["per_node"], "seconds": seconds}


def show(name: str, found: dict[str, Any]) -> None:
    rows = [
        [what, one, f"{1e3 * (ENVS if what != TRAINING else 1) / rate['median']:.2f} ms"]
        for what in found
        if what in (SLOW, QUICK, TRAINING)
        for one, rate in found[what]["rates"].items()
    ]
    print_table(name, ["", "", "a step or a round"], rows)
    print(found["round_trip"], found["fingerprints"], found["calls"])


def main() -> None:
    options = arguments(__doc__, rounds=3).parse_args()
    with tempfile.TemporaryDirectory(prefix="far-", dir=os.environ.get(FOLDER), ignore_cleanup_errors=True) as folder:
        os.environ[FOLDER] = folder
        cases = run_cases(__file__, options, list(DELAYS), measure, show=show, limit=240.0)
    if cases is None:
        return
    complete = len(cases) == len(DELAYS) and not any("error" in found for found in cases.values())
    more = {"predicted": predict(cases)} if complete else {}
    print(more)
    write_json(options, "federation_delays", cases, **more)


if __name__ == "__main__":
    main()
