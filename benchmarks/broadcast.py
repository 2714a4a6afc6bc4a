"""How long does it take to hand a large array to many actors, and to gather one of the same size from each? Against Ray.

The paper's experiments (a), 10 MB to 2, 4, 8 and 16 actors, and (b), 10 to 500 MB to 16 actors, without its half second of
sleep. The server writes (Ray: ``ray.put``, once) an array of float64; every actor looks at its first and last element
("broadcast") or, besides, sends the whole array back ("gather"), and the server looks at the last element of every row. Both
sides read without copying.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common import OURS, Contender, arguments, benchmark, compared, cores, rounds_of, start_ray
from showing import print_table, rate_rows

from reactor_rl import Input, Output, Program, Reactor, Timer, reaction

MEGABYTE = 131_072  # float64 elements, the paper's measure: 10 MB are 1,310,720 of them
ACTORS = (2, 4, 8, 16)
SIZES = (10, 100, 300, 500)
TOGETHER = 2.5e9
"""Bytes up to which both sides are alive at once; above, each is started anew for each of its slices."""


class Server(Reactor):
    beat = Timer(period=1)
    array_out = Output()

    def __init__(self, size: int) -> None:
        self.array = np.ones(size)
        self.array_out = Output((size,), np.float64)

    @reaction(beat, effects=array_out)
    def send(self) -> None:
        self.array_out.set(self.array)


class Touch(Reactor):
    array = Input()
    seen = Output((), np.float64)

    @reaction(array, effects=seen)
    def look(self) -> None:
        found = self.array.value
        self.seen.set(found[0] + found[-1])


class SendBack(Reactor):
    array = Input()
    seen = Output()

    def __init__(self, size: int, bank_index: int) -> None:
        self.seen = Output((size,), np.float64)

    @reaction(array, effects=seen)
    def send_back(self) -> None:
        found = self.array.value
        if found[0] + found[-1]:
            self.seen.set(found)


class Gather(Reactor):
    rows = Input()

    def __init__(self) -> None:
        self.total = 0.0

    @reaction(rows)
    def gather(self) -> None:
        self.total += float(self.rows.value[..., -1:].sum())


class OurBroadcast(Contender):
    def __init__(self, actors: int, size: int, gather: bool) -> None:
        program = Program("broadcast")
        server, sink = program.add(Server, size=size), program.add(Gather)
        bank = program.bank(SendBack, actors, size=size) if gather else program.bank(Touch, actors)
        program.connect(server.array_out, bank.array)
        program.connect(bank.seen, sink.rows.rows)
        self.run = program.start(executor="processes", workers=cores(), fingerprint="off")

    def go(self, count: int) -> float:
        for _ in range(count):
            self.run.tick()
        return count

    def close(self) -> None:
        self.run.close()


class RayBroadcast(Contender):
    def __init__(self, actors: int, size: int, gather: bool) -> None:
        needed = int(8 * size * (actors * gather + 1) * 2.2) + 500_000_000
        free = shutil.disk_usage("/dev/shm").free if Path("/dev/shm").exists() else needed
        self.ray = start_ray(memory=min(needed, int(free * 0.95)))

        @self.ray.remote(num_cpus=0)
        class Actor:
            def look(self, array: Any) -> float:
                return float(array[0] + array[-1])

            def send_back(self, array: Any) -> Any:
                return array if array[0] + array[-1] else None

        self.actors = [Actor.remote() for _ in range(actors)]
        self.array, self.gather = np.ones(size), gather

    def go(self, count: int) -> float:
        ray = self.ray
        total = 0.0
        for _ in range(count):
            stored = ray.put(self.array)
            if self.gather:
                found = ray.get([actor.send_back.remote(stored) for actor in self.actors])
                total += float(sum(array[-1] for array in found))
                del found
            else:
                total += sum(ray.get([actor.look.remote(stored) for actor in self.actors]))
            del stored
        return count

    def close(self) -> None:
        self.ray.shutdown()


def names() -> list[str]:
    pairs = [(actors, 10) for actors in ACTORS] + [(16, size) for size in SIZES if size != 10]
    return [f"{what}, {size} MB, {actors} actors" for actors, size in pairs for what in ("broadcast", "gather")]


def measure(case: str, options: argparse.Namespace) -> dict[str, Any]:
    what, megabytes, actors = (part.split()[0] for part in case.split(", "))
    gather = what == "gather"
    count, size = int(actors), int(megabytes) * MEGABYTE
    moved = 8 * size * (1 + gather * count)
    kinds: dict[str, Callable[..., Contender]] = {OURS: OurBroadcast, "Ray": RayBroadcast}
    builders = {name: partial(kind, count, size, gather) for name, kind in kinds.items()}
    room = shutil.disk_usage("/dev/shm").free if Path("/dev/shm").exists() else moved * 4
    if moved * 1.2 > room:
        return {"error": f"needs {moved / 1e9:.1f} GB of shared memory; there are {room / 1e9:.1f}"}
    apart = moved > TOGETHER
    rounds = min(rounds_of(options), 3) if apart else rounds_of(options)
    figures = compared(builders, options, rounds=rounds, rebuild=apart)
    return figures.as_json(OURS)


def show(name: str, found: dict[str, Any]) -> None:
    if "error" in found:
        print(f"{name}: {found['error']}")
        return
    print_table(name, ["contender", "per round", "ours is", "min-max"], rate_rows(found, OURS, per_item=True))


def main() -> None:
    parser = arguments(__doc__, rounds=5)
    parser.add_argument("--largest", type=int, default=300, help="largest array in MB (500 needs 9 GB of shared memory)")
    options = parser.parse_args()
    small = [name for name in names() if int(name.split(", ")[1].split()[0]) <= options.largest]
    label = "ms per round, shorter is better"
    benchmark(
        __file__, options, small, measure, show, "Broadcast and gather", label, bar=lambda rate: 1e3 / rate, panels=small[-6:]
    )


if __name__ == "__main__":
    main()
