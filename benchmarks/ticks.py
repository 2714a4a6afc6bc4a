"""What does a tick cost, and do reactors joined by a delayed connection really run at the same time?

``overlap``: A and B each compute for 5 ms. Without a delay B waits for A; with ``after=1`` B works on what A wrote one tick ago
while A works on. ``tick cost``: a fork-join program whose reactions do nothing but pass a number on, as the number of reactors
per worker grows, on two processes and inline.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from typing import Any, Literal

import numpy as np
from common import Contender, arguments, interleaved, rounds_of, run_cases, seconds_of, summary, write_json
from showing import bar_plot, print_table

from reactor_rl import Input, Output, Program, Reactor, Timer, reaction

WORK = 5e-3
PER_WORKER = (1, 2, 4, 8, 16, 32)
WORKERS = 2


def compute(seconds: float) -> None:
    """Use the processor for so long; time in which somebody else has it does not count."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


class A(Reactor):
    beat = Timer(period=1)
    out = Output((), np.int64)

    def __init__(self) -> None:
        self.count = 0

    @reaction(beat, effects=out)
    def work(self) -> None:
        compute(WORK)
        self.count += 1
        self.out.set(self.count)


class B(Reactor):
    inp = Input()

    @reaction(inp)
    def work(self) -> None:
        if self.inp.value >= 0:
            compute(WORK)


class Ticks(Contender):
    def __init__(self, program: Program, executor: Literal["inline", "processes"], workers: int) -> None:
        self.run = program.start(executor=executor, workers=workers, fingerprint="off")

    def go(self, count: int) -> float:
        for _ in range(count):
            self.run.tick()
        return count

    def close(self) -> None:
        self.run.close()


def two(after: int | None, executor: Literal["inline", "processes"]) -> Contender:
    program = Program("overlap")
    a, b = program.add(A), program.add(B)
    if after is None:
        program.connect(a.out, b.inp)
    else:
        program.connect(a.out, b.inp, after=after, initial=0)
    return Ticks(program, executor, WORKERS)


class Source(Reactor):
    beat = Timer(period=1)
    out = Output((), np.int64)

    @reaction(beat, effects=out)
    def send(self) -> None:
        self.out.set(1)


class Pass(Reactor):
    inp = Input()
    out = Output((), np.int64)

    @reaction(inp, effects=out)
    def hand_on(self) -> None:
        self.out.set(self.inp.value)


class Sink(Reactor):
    rows = Input()

    @reaction(rows)
    def take(self) -> None:
        self.rows.value  # noqa: B018


def fork_join(count: int, executor: Literal["inline", "processes"]) -> Contender:
    program = Program("fork_join")
    source, bank, sink = program.add(Source), program.bank(Pass, count), program.add(Sink)
    program.connect(source.out, bank.inp)
    program.connect(bank.out, sink.rows.rows)
    return Ticks(program, executor, WORKERS)


def measure(case: str, options: argparse.Namespace) -> dict[str, Any]:
    rounds, seconds = rounds_of(options), seconds_of(options)
    if case == "overlap":
        figures = interleaved(
            {
                "after=1, two workers": partial(two, 1, "processes"),
                "no delay, two workers": partial(two, None, "processes"),
                "inline": partial(two, 1, "inline"),
            },
            rounds=rounds,
            seconds=seconds,
        )
        found = figures.as_json("after=1, two workers")
    else:
        builders = {
            f"{executor}, {WORKERS} x {k} reactors": partial(fork_join, WORKERS * k, executor)
            for executor in ("processes", "inline")
            for k in PER_WORKER
        }
        figures = interleaved(builders, rounds=rounds, seconds=min(seconds, 0.3), warm_up=0.1)
        found = figures.as_json("")
    found["us_per_tick"] = {name: summary([1e6 / rate for rate in rates]) for name, rates in figures.rates.items()}
    return found


def show(name: str, found: dict[str, Any]) -> None:
    rows = [[one, f"{us['median']:,.1f}", f"{us['min']:,.1f}-{us['max']:,.1f}"] for one, us in found["us_per_tick"].items()]
    print_table(name, ["program", "us per tick", "min-max"], rows)


def main() -> None:
    options = arguments(__doc__).parse_args()
    cases = run_cases(__file__, options, ["overlap", "tick cost"], measure, show=show)
    if cases is None:
        return
    write_json(options, "ticks", cases)
    groups = {name: {one: us["median"] for one, us in found.get("us_per_tick", {}).items()} for name, found in cases.items()}
    bar_plot(options.output / "ticks.png", "Ticks", groups, "us per tick, shorter is better")


if __name__ == "__main__":
    main()
