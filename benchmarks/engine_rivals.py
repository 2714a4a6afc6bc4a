"""The programs of ``engine.py`` in the idioms of xronos, Pykka and Ray."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from common import Contender, start_ray

RING = 100
RAY_RING = 8
"""A ring of 100 actors would be 100 processes; what a hop costs does not depend on it."""


# ---------------------------------------------------------------------- xronos


class Xronos(Contender):
    """Builds and executes an environment for each slice; timed is what lies between the first reaction and the last."""

    def __init__(self, build: Callable[[Any, int, list[float]], None], items: int = 1) -> None:
        import xronos

        self._environment, self._build, self._items = xronos.Environment, build, items

    def timed(self, count: int) -> tuple[float, float]:
        environment = self._environment(fast=True)
        stamps: list[float] = []
        self._build(environment, count, stamps)
        environment.execute()
        return count * self._items, stamps[-1] - stamps[0]


def xronos_ping_pong() -> Contender:
    import xronos

    class XPing(xronos.Reactor):
        ping = xronos.OutputPortDeclaration[int]()
        pong = xronos.InputPortDeclaration[int]()
        serve = xronos.ProgrammableTimerDeclaration[None]()

        def __init__(self, count: int, stamps: list[float]) -> None:
            super().__init__()
            self.left, self.stamps = count, stamps

        @xronos.reaction
        def start(self, context: xronos.ReactionContext) -> Callable[[], None]:
            context.add_trigger(self.startup)
            serve = context.add_effect(self.serve)

            def handler() -> None:
                self.stamps.append(time.perf_counter())
                serve.schedule(None)

            return handler

        @xronos.reaction
        def hit(self, context: xronos.ReactionContext) -> Callable[[], None]:
            context.add_trigger(self.serve)
            ping = context.add_effect(self.ping)

            def handler() -> None:
                ping.set(self.left)

            return handler

        @xronos.reaction
        def receive(self, context: xronos.ReactionContext) -> Callable[[], None]:
            context.add_trigger(self.pong)
            serve = context.add_effect(self.serve)

            def handler() -> None:
                self.left -= 1
                if self.left:
                    serve.schedule(None)
                else:
                    self.stamps.append(time.perf_counter())

            return handler

    class XPong(xronos.Reactor):
        ping = xronos.InputPortDeclaration[int]()
        pong = xronos.OutputPortDeclaration[int]()

        @xronos.reaction
        def answer(self, context: xronos.ReactionContext) -> Callable[[], None]:
            ping = context.add_trigger(self.ping)
            pong = context.add_effect(self.pong)
            return lambda: pong.set(ping.get())

    def build(environment: Any, count: int, stamps: list[float]) -> None:
        ping = environment.create_reactor("ping", XPing, count, stamps)
        pong = environment.create_reactor("pong", XPong)
        environment.connect(ping.ping, pong.ping)
        environment.connect(pong.pong, ping.pong)

    return Xronos(build)


def xronos_fan_out(targets: int, work: Callable[[int], Any]) -> Contender:
    """A producer that sends ``count`` messages, each to all targets."""
    import xronos

    class XProducer(xronos.Reactor):
        out = xronos.OutputPortDeclaration[int]()
        again = xronos.ProgrammableTimerDeclaration[None]()

        def __init__(self, count: int, stamps: list[float]) -> None:
            super().__init__()
            self.left, self.stamps = count, stamps

        @xronos.reaction
        def start(self, context: xronos.ReactionContext) -> Callable[[], None]:
            context.add_trigger(self.startup)
            again = context.add_effect(self.again)

            def handler() -> None:
                self.stamps.append(time.perf_counter())
                again.schedule(None)

            return handler

        @xronos.reaction
        def produce(self, context: xronos.ReactionContext) -> Callable[[], None]:
            context.add_trigger(self.again)
            again, out = context.add_effect(self.again), context.add_effect(self.out)

            def handler() -> None:
                out.set(self.left)
                self.left -= 1
                if self.left:
                    again.schedule(None)
                else:
                    self.stamps.append(time.perf_counter())

            return handler

    class XTarget(xronos.Reactor):
        inp = xronos.InputPortDeclaration[int]()

        def __init__(self) -> None:
            super().__init__()
            self.count = 0

        @xronos.reaction
        def receive(self, context: xronos.ReactionContext) -> Callable[[], None]:
            inp = context.add_trigger(self.inp)

            def handler() -> None:
                if work(inp.get()):
                    self.count += 1

            return handler

    def build(environment: Any, count: int, stamps: list[float]) -> None:
        producer = environment.create_reactor("producer", XProducer, count, stamps)
        for i in range(targets):
            target = environment.create_reactor(f"target{i}", XTarget)
            environment.connect(producer.out, target.inp)

    return Xronos(build, targets)


def xronos_ring(by_timer: bool, delays: int = RING) -> Contender:
    """``by_timer``: every member has a programmable timer; else: the last ``delays`` connections have a delay of zero."""
    import xronos

    class XMember(xronos.Reactor):
        inp = xronos.InputPortDeclaration[int]()
        out = xronos.OutputPortDeclaration[int]()
        token = xronos.ProgrammableTimerDeclaration[int]()

        def __init__(self, first: int, stamps: list[float]) -> None:
            super().__init__()
            self.first, self.stamps = first, stamps

        @xronos.reaction
        def start(self, context: xronos.ReactionContext) -> Callable[[], None]:
            context.add_trigger(self.startup)
            token = context.add_effect(self.token)

            def handler() -> None:
                if self.first:
                    self.stamps.append(time.perf_counter())
                    token.schedule(self.first)

            return handler

        @xronos.reaction
        def send(self, context: xronos.ReactionContext) -> Callable[[], None]:
            token = context.add_trigger(self.token)
            out = context.add_effect(self.out)

            def handler() -> None:
                left = token.get()
                if left:
                    out.set(left - 1)
                else:
                    self.stamps.append(time.perf_counter())

            return handler

        @xronos.reaction
        def receive(self, context: xronos.ReactionContext) -> Callable[[], None]:
            inp = context.add_trigger(self.inp)
            if by_timer:
                token = context.add_effect(self.token)
                return lambda: token.schedule(inp.get())
            out = context.add_effect(self.out)

            def handler() -> None:
                left = inp.get()
                if left:
                    out.set(left - 1)
                else:
                    self.stamps.append(time.perf_counter())

            return handler

    def build(environment: Any, count: int, stamps: list[float]) -> None:
        ring = [environment.create_reactor(f"member{i}", XMember, 0 if i else count, stamps) for i in range(RING)]
        for i in range(RING):
            if by_timer or i < RING - delays:
                environment.connect(ring[i].out, ring[(i + 1) % RING].inp)
            else:
                environment.connect(ring[i].out, ring[(i + 1) % RING].inp, delay=timedelta(0))

    return Xronos(build)


# ---------------------------------------------------------------------- Pykka


class Pykka(Contender):
    """Actors in threads that ``tell`` each other; ``done`` is set when the last message has arrived."""

    def __init__(self, actors: list[Any], send: Callable[[list[Any], int], float], done: threading.Event) -> None:
        self._actors, self._send, self._done = actors, send, done

    def go(self, count: int) -> float:
        self._done.clear()
        items = self._send(self._actors, count)
        self._done.wait()
        return items

    def close(self) -> None:
        for actor in self._actors:
            actor.stop()


def pykka_ring(size: int, per_item: int = 1) -> Contender:
    """A ring of actors; ping-pong is a ring of two."""
    import pykka

    done = threading.Event()

    class Node(pykka.ThreadingActor):
        following: Any = None

        def on_receive(self, message: Any) -> None:
            if type(message) is int:
                if message:
                    self.following.tell(message - 1)
                else:
                    done.set()
            else:
                self.following = message

    actors = [Node.start() for _ in range(size)]
    for i, actor in enumerate(actors):
        actor.tell(actors[(i + 1) % size])

    def send(actors: list[Any], count: int) -> float:
        actors[0].tell(count * per_item)
        return count

    return Pykka(actors, send, done)


def pykka_ask() -> Contender:
    import pykka

    class Echo(pykka.ThreadingActor):
        def on_receive(self, message: Any) -> Any:
            return message

    class Asking(Pykka):
        def go(self, count: int) -> float:
            ask = self._actors[0].ask
            for left in range(count):
                ask(left)
            return count

    return Asking([Echo.start()], lambda actors, count: 0.0, threading.Event())


def pykka_fan_out(targets: int, work: Callable[[int], Any]) -> Contender:
    import pykka

    done = threading.Event()
    finished: list[int] = []

    class Target(pykka.ThreadingActor):
        count = 0

        def on_receive(self, message: Any) -> None:
            if message:
                if work(message):
                    self.count += 1
            else:
                finished.append(1)
                if len(finished) == targets:
                    done.set()

    def send(actors: list[Any], count: int) -> float:
        finished.clear()
        tells = [actor.tell for actor in actors]
        for left in range(count, -1, -1):
            for tell in tells:
                tell(left)
        return count * targets

    return Pykka([Target.start() for _ in range(targets)], send, done)


# ---------------------------------------------------------------------- Ray


class Ray(Contender):
    def __init__(self, actors: list[Any], go: Callable[[Any, list[Any], int], float]) -> None:
        self._ray, self._actors, self._go = start_ray(), actors, go

    def go(self, count: int) -> float:
        return self._go(self._ray, self._actors, count)

    def close(self) -> None:
        self._ray.shutdown()


def ray_ping_pong() -> Contender:
    ray = start_ray()

    @ray.remote(num_cpus=0)
    class RPong:
        def answer(self, value: int) -> int:
            return value

    @ray.remote(num_cpus=0)
    class RPing:
        def __init__(self, pong: Any) -> None:
            self.pong = pong

        def play(self, count: int) -> int:
            for left in range(count):
                ray.get(self.pong.answer.remote(left))
            return count

    pong = RPong.remote()
    return Ray([RPing.remote(pong), pong], lambda ray, actors, count: float(ray.get(actors[0].play.remote(count))))


def ray_fan_out(targets: int, work: Callable[[int], Any]) -> Contender:
    ray = start_ray()

    @ray.remote(num_cpus=0)
    class RTarget:
        def __init__(self) -> None:
            self.count = 0

        def receive(self, value: int) -> None:
            if work(value):
                self.count += 1

        def result(self) -> int:
            return self.count

    def go(ray: Any, actors: list[Any], count: int) -> float:
        for left in range(count):
            for actor in actors:
                actor.receive.remote(left)
        ray.get([actor.result.remote() for actor in actors])
        return count * targets

    return Ray([RTarget.remote() for _ in range(targets)], go)


def ray_ring() -> Contender:
    ray = start_ray()

    @ray.remote(num_cpus=0)
    class Done:
        def __init__(self) -> None:
            import asyncio

            self.event = asyncio.Event()

        def set(self) -> None:
            self.event.set()

        async def wait(self) -> None:
            await self.event.wait()
            self.event.clear()

    @ray.remote(num_cpus=0)
    class RMember:
        def follow(self, following: Any, done: Any) -> None:
            self.following, self.done = following, done

        def receive(self, left: int) -> None:
            if left:
                self.following.receive.remote(left - 1)
            else:
                self.done.set.remote()

    done = Done.remote()
    ring = [RMember.remote() for _ in range(RAY_RING)]
    ray.get([member.follow.remote(ring[(i + 1) % RAY_RING], done) for i, member in enumerate(ring)])

    def go(ray: Any, actors: list[Any], count: int) -> float:
        actors[0].receive.remote(count)
        ray.get(actors[-1].wait.remote())
        return count

    return Ray([*ring, done], go)
