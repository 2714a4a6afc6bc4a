"""How much does the engine itself cost? Savina's small programs on reactor_rl, xronos, Pykka and Ray.

Every contender is written in its own idiom. Items are messages: a round of ping-pong counts as one (two messages and, in the two
reactor frameworks, three reactions and one microstep).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

from common import OURS, Contender, arguments, benchmark, compared
from engine_rivals import (
    RAY_RING,
    RING,
    pykka_ask,
    pykka_fan_out,
    pykka_ring,
    ray_fan_out,
    ray_ping_pong,
    ray_ring,
    xronos_fan_out,
    xronos_ping_pong,
    xronos_ring,
)
from showing import print_table, rate_rows

from reactor_rl import Input, LogicalAction, Output, Program, Reactor, Timer, reaction

FORKS = 16
TICKS = "reactor_rl, one message a tick"


# ---------------------------------------------------------------------- reactor_rl


class Ours(Contender):
    """A program whose boundary input ``go`` says how many messages one tick exchanges, each at a microstep of its own."""

    def __init__(self, program: Program) -> None:
        self.run = program.start(executor="inline", fingerprint="off")

    def go(self, count: int) -> float:
        self.run.set(go=count)
        self.run.tick()
        return count

    def close(self) -> None:
        self.run.close()


class OursByTicks(Ours):
    """A program that exchanges one message every tick."""

    def go(self, count: int) -> float:
        return self.run.run(count)


class Ping(Reactor):
    go = Input()
    pong = Input()
    ping = Output()
    serve = LogicalAction()

    def __init__(self) -> None:
        self.left = 0

    @reaction(go, effects=serve)
    def start(self) -> None:
        self.left = self.go.value
        self.serve.schedule(0)

    @reaction(serve, effects=ping)
    def hit(self) -> None:
        self.ping.set(self.left)

    @reaction(pong, effects=serve)
    def receive(self) -> None:
        self.left -= 1
        if self.left:
            self.serve.schedule(0)


class Pong(Reactor):
    ping = Input()
    pong = Output()

    @reaction(ping, effects=pong)
    def answer(self) -> None:
        self.pong.set(self.ping.value)


def our_ping_pong() -> Contender:
    program = Program("ping_pong")
    ping, pong = program.add(Ping), program.add(Pong)
    program.connect(program.input("go"), ping.go)
    program.connect(ping.ping, pong.ping)
    program.connect(pong.pong, ping.pong)
    return Ours(program)


class Producer(Reactor):
    go = Input()
    out = Output()
    again = LogicalAction()

    def __init__(self) -> None:
        self.left = 0

    @reaction(go, effects=again)
    def start(self) -> None:
        self.left = self.go.value
        self.again.schedule(0)

    @reaction(again, effects=(out, again))
    def produce(self) -> None:
        self.out.set(self.left)
        self.left -= 1
        if self.left:
            self.again.schedule(0)


class Metronome(Reactor):
    beat = Timer(period=1)
    out = Output()

    def __init__(self) -> None:
        self.sent = 0

    @reaction(beat, effects=out)
    def produce(self) -> None:
        self.sent += 1
        self.out.set(self.sent)


class Target(Reactor):
    inp = Input()

    def __init__(self, work: Callable[[int], Any], bank_index: int = 0) -> None:
        self.work, self.count = work, 0

    @reaction(inp)
    def receive(self) -> None:
        if self.work(self.inp.value):
            self.count += 1


def our_counting(by_ticks: bool) -> Contender:
    program = Program("counting")
    producer = program.add(Metronome if by_ticks else Producer)
    if not by_ticks:
        program.connect(program.input("go"), producer.go)
    program.connect(producer.out, program.add(Target, work=bool).inp)
    return OursByTicks(program) if by_ticks else Ours(program)


class OursForkJoin(Ours):
    def go(self, count: int) -> float:
        return super().go(count) * FORKS


def our_fork_join() -> Contender:
    program = Program("fork_join")
    producer, workers = program.add(Producer), program.bank(Target, FORKS, work=math.sin)
    program.connect(program.input("go"), producer.go)
    program.connect(producer.out, workers.inp)
    return OursForkJoin(program)


class Member(Reactor):
    """A member of the ring that passes the token on at the next microstep."""

    go = Input()
    inp = Input()
    out = Output()
    token = LogicalAction()

    @reaction(token, effects=out)
    def send(self) -> None:
        left = self.token.value
        if left:
            self.out.set(left - 1)

    @reaction(go, effects=token)
    def start(self) -> None:
        self.token.schedule(0, self.go.value)

    @reaction(inp, effects=token)
    def receive(self) -> None:
        self.token.schedule(0, self.inp.value)


class DelayedMember(Reactor):
    """A member of a ring of delayed connections: the token is at one member each tick."""

    inp = Input()
    out = Output()

    @reaction(inp, effects=out)
    def receive(self) -> None:
        self.out.set(self.inp.value + 1)


def our_ring() -> Contender:
    program = Program("ring")
    ring = program.bank(Member, RING)
    program.connect(program.input("go"), ring[0].go)
    for i in range(RING):
        program.connect(ring[i].out, ring[(i + 1) % RING].inp)
    return Ours(program)


def our_delayed_ring() -> Contender:
    program = Program("delayed_ring")
    ring = program.bank(DelayedMember, RING)
    program.connect(ring[RING - 1].out, ring[0].inp, after=1, initial=0)
    for i in range(RING - 1):
        program.connect(ring[i].out, ring[i + 1].inp, after=1)
    return OursByTicks(program)


class ChainMember(Reactor):
    """A member of a ring with one delayed connection: the token goes all the way round in one tick."""

    inp = Input()
    out = Output()

    @reaction(inp, effects=out)
    def receive(self) -> None:
        self.out.set(self.inp.value + 1)


class OursByRounds(Ours):
    """A program in which the token goes round once every tick."""

    def go(self, count: int) -> float:
        return self.run.run(count) * RING


def our_chain_ring() -> Contender:
    program = Program("chain_ring")
    ring = program.bank(ChainMember, RING)
    for i in range(RING - 1):
        program.connect(ring[i].out, ring[i + 1].inp)
    program.connect(ring[RING - 1].out, ring[0].inp, after=1, initial=0)
    return OursByRounds(program)


# ---------------------------------------------------------------------- the cases

CASES: dict[str, dict[str, Callable[[], Contender]]] = {
    "ping-pong": {
        OURS: our_ping_pong,
        "xronos": xronos_ping_pong,
        "Pykka (tell)": lambda: pykka_ring(2, per_item=2),
        "Pykka (ask)": pykka_ask,
        "Ray": ray_ping_pong,
    },
    "counting": {
        OURS: lambda: our_counting(by_ticks=False),
        TICKS: lambda: our_counting(by_ticks=True),
        "xronos": lambda: xronos_fan_out(1, bool),
        "Pykka (tell)": lambda: pykka_fan_out(1, bool),
        "Ray": lambda: ray_fan_out(1, bool),
    },
    f"fork-join to {FORKS}": {
        OURS: our_fork_join,
        "xronos": lambda: xronos_fan_out(FORKS, math.sin),
        "Pykka (tell)": lambda: pykka_fan_out(FORKS, math.sin),
        "Ray": lambda: ray_fan_out(FORKS, math.sin),
    },
    f"ring of {RING}": {
        OURS: our_ring,
        "reactor_rl (after=1)": our_delayed_ring,
        "reactor_rl (one after=1)": our_chain_ring,
        "xronos (timers)": lambda: xronos_ring(by_timer=True),
        "xronos (delay 0)": lambda: xronos_ring(by_timer=False),
        "xronos (one delay 0)": lambda: xronos_ring(by_timer=False, delays=1),
        "Pykka (tell)": lambda: pykka_ring(RING),
        f"Ray (ring of {RAY_RING})": ray_ring,
    },
}


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    return compared(CASES[name], options).as_json(OURS)


def show(name: str, found: dict[str, Any]) -> None:
    head = ["contender", "per message", "ours is", "min-max"]
    print_table(name, head, rate_rows(found, OURS, per_item=True))


def main() -> None:
    options, label = arguments(__doc__).parse_args(), "us per message, shorter is better"
    benchmark(__file__, options, list(CASES), measure, show, "The engine itself", label, bar=lambda rate: 1e6 / rate)


if __name__ == "__main__":
    main()
