"""What the parts of a vector environment's step cost here, each measured by itself: for the scaling model."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from simulated_rivals import Actors, Pipes
from simulation import Costs
from vector_env import Block

from reactor_gymnasium import ReactorVectorEnv
from reactor_gymnasium.environments.gym_rows import GymRows
from reactor_gymnasium.environments.storage import ObservationLayout
from reactor_gymnasium.vector.env_program import EnvProgram
from reactor_gymnasium.vector.shard import VectorShard
from reactor_rl import Instance, Program
from reactor_rl.cli.doctor import round_trips
from reactor_rl.graph import build
from reactor_rl.plugin import encode, tick_cost
from reactor_rl.runtime.channel import Channel
from reactor_rl.runtime.helpers import Helpers
from reactor_rl.runtime.plan import Plan, WorkerOptions, lay_out
from reactor_rl.runtime.supervisor import SPIN
from reactor_rl.schedule import Schedule, compile_schedule
from reactor_rl.topology import Topology

ROUNDS = 15
FEW, MANY, SHARDS = 16, 256, 16
"""Numbers of environments, and of shards, between which a cost for each one is the slope."""

clock = time.perf_counter


class Busy(gymnasium.Env[Any, Any]):
    """Observes four numbers, and computes for a fixed number of turns of a loop. Its episodes have no end."""

    observation_space = spaces.Box(-1, 1, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, turns: int = 0) -> None:
        self.turns, self.seen = turns, np.zeros(4, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self.seen, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        for _ in range(self.turns):
            pass
        return self.seen, 0.0, False, False, {}


class BusyBlock(Block):
    """Some of them, stepped one after the other: what an actor holds."""

    def __init__(self, turns: int, count: int) -> None:
        self.envs = [Busy(turns) for _ in range(count)]
        self.over = [False] * count


def timed(work: Callable[[], object], count: int) -> float:
    """Seconds of a call: the median of a few batches of ``count``."""
    taken = []
    for _ in range(ROUNDS):
        begin = clock()
        for _ in range(count):
            work()
        taken.append((clock() - begin) / count)
    return statistics.median(taken)


def step_seconds(turns: int) -> float:
    """A bare step of :class:`Busy`."""
    env = Busy(turns)
    return timed(partial(env.step, 0), max(1, 30_000 // (turns + 20)))


def turns_for(seconds: float) -> int:
    """How many turns of the loop make a step take so long.

    It is sought near there: a turn costs more in a long loop, which counts beyond the integers that Python keeps.
    """
    few, many = 0, 64
    while step_seconds(many) < seconds:
        few, many = many, 2 * many
    while many - few > max(1, few // 50):
        middle = (few + many) // 2
        few, many = (middle, many) if step_seconds(middle) < seconds else (few, middle)
    return many


def slope(work: Callable[[int], float]) -> tuple[float, float]:
    """What a step of so many environments takes: seconds in any case, and for each environment."""
    few, many = work(FEW), work(MANY)
    each = max(0.0, (many - few) / (MANY - FEW))
    return max(0.0, few - FEW * each), each


# ---------------------------------------------------------------------- reactor_rl


def program(num_envs: int, workers: int, batch_size: int | None = None) -> tuple[Program, dict[str, int], dict[str, int]]:
    """The program of a ``ReactorVectorEnv`` of so many environments; the worker of each shard by name, and its rows."""
    made, encoded, batch, rows = Program("on paper"), encode(Busy), batch_size or num_envs, dict[str, int]()
    layout, bounds = ObservationLayout(Busy.observation_space), range(num_envs + 1)

    def add(name: str, lo: int, hi: int, worker: int, row: int) -> Instance:
        rows[name] = hi - lo
        return made.add(
            VectorShard, name=name, make_rows=partial(GymRows, autoreset=AutoresetMode.NEXT_STEP), makers=[encoded] * (hi - lo),
            count=hi - lo, layout=layout, first=lo, row=row, owner="ReactorVectorEnv",
        )  # fmt: skip

    wired = EnvProgram(made, add, None, workers, ((batch,), np.int64), layout, bounds=bounds, batch_size=batch)
    return made, wired.placement, rows


class Compiled(NamedTuple):
    """A compiled ``ReactorVectorEnv``, and the rows that each of its reactions steps when the first batch's actions are there."""

    topology: Topology
    schedule: Schedule
    rows: dict[int, int]


@lru_cache
def compiled(num_envs: int, workers: int, batch_size: int | None = None, caller_works: bool = True) -> Compiled:
    """What it is compiled to for so many workers."""
    made, placement, rows = program(num_envs, workers, batch_size)
    topology = made.topology()
    schedule = compile_schedule(topology, build(topology), workers, placement=placement, caller_works=caller_works)
    shards = {reactor.index: rows[reactor.name] for reactor in topology.reactors}
    first = list(shards)[: workers if batch_size else None]
    steps = {node.index: shards[node.reactor] for node in topology.reactions if node.name == "step" and node.reactor in first}
    return Compiled(topology, schedule, steps)


def tokens() -> Costs:
    """Signals, waits and ways between two processes, and what a helper does at a tick of a program that does nothing."""
    signal, wait = _of_caller(64)
    hop = max(0.0, round_trips(SPIN).seconds / 2 - signal)
    parked = round_trips(0.0)
    rise = max(0.0, parked.seconds / 2 - parked.signal)
    return Costs(signal, parked.signal, wait, hop, rise, max(0.0, tick_cost() - 2 * (signal + hop)), SPIN)


def _of_caller(helpers: int) -> tuple[float, float]:
    """Seconds of a SIGNAL, and of a WAIT whose token is there, of a caller with many helpers; nobody is at the other ends."""
    topology, schedule, _ = compiled(helpers + 1, helpers + 1)
    layout = lay_out(topology, schedule)
    channels = {pair: Channel() for pair in schedule.signals()}
    executor: Any = SimpleNamespace(spin=SPIN, memory=memoryview(bytearray(layout.size)), channels=channels)
    caller = Helpers(Plan(topology, schedule, layout, WorkerOptions()), executor)
    caller.loop = SimpleNamespace(observers=())  # type: ignore[assignment]
    signal = timed(lambda: caller.begin(0, 0), 20) / helpers
    waits = []
    for _ in range(ROUNDS * 20):
        for worker in range(1, helpers + 1):
            channels[worker, 0].signal()
        begin = clock()
        for worker in range(1, helpers + 1):
            caller.wait(worker)
        waits.append((clock() - begin) / helpers)
    for channel in channels.values():
        channel.unlink()
    return signal, statistics.median(waits)


def of_caller_and_shards() -> dict[str, float]:
    """What a step costs besides environments: the caller's before and after the tick, a tick, a shard, a row; in seconds.

    It is found from ticks and steps of few and many idle environments, timed in turn. Shards are several on one worker, so that
    nothing of this is waiting.
    """
    sizes = {"few": (FEW, 1), "many": (MANY, 1), "shards": (MANY, SHARDS)}
    with ExitStack() as closing:
        works = {name: closing.enter_context(_ticks(*size)) for name, size in sizes.items()}
        works |= {f"step of {name}": closing.enter_context(_steps(sizes[name][0])) for name in ("few", "many")}
        rounds: list[dict[str, float]] = []
        for _ in range(3 * ROUNDS):
            taken = {}
            for name, work in works.items():
                begin = clock()
                for _ in range(10):
                    work()
                taken[name] = (clock() - begin) / 10
            rounds.append(taken)
        put = {size: timed(partial(_putting, np.zeros(size, np.int64), np.zeros(size, np.int64)), 100) for size in (FEW, MANY)}

    def median(of: Callable[[dict[str, float]], float]) -> float:
        return max(0.0, statistics.median(map(of, rounds)))

    row = median(lambda one: one["many"] - one["few"]) / (MANY - FEW)
    shard = median(lambda one: one["shards"] - one["many"]) / (SHARDS - 1)
    few, many = (median(lambda one, name=name: one[f"step of {name}"] - one[name]) for name in ("few", "many"))
    after, after_row = slope({FEW: few, MANY: many}.__getitem__)
    before, before_row = slope(put.__getitem__)
    tick = max(0.0, median(lambda one: one["few"]) - FEW * (row + before_row) - shard - before)
    return {
        "before": before, "before_row": before_row, "after": after, "after_row": after_row,
        "tick": tick, "shard": shard, "row": max(0.0, row - before_row), "idle": step_seconds(0),
    }  # fmt: skip


def _putting(view: Any, actions: Any) -> None:
    view[...] = actions


@contextmanager
def _ticks(num_envs: int, shards: int) -> Iterator[Callable[[], None]]:
    """Sets actions and ticks: idle environments in so many shards on one worker."""
    made, _, _ = program(num_envs, shards)
    actions = np.zeros(num_envs, np.int64)
    with made.start(executor="inline", fingerprint="off") as run:
        write = run.writer("actions")
        begun = [("reset", [encode({})] * (num_envs // shards))] * shards
        run.set(**{f"request_{number}": request for number, request in enumerate(begun)})
        run.tick()

        def both() -> None:
            write(actions)
            run.tick()

        yield both


@contextmanager
def _steps(num_envs: int) -> Iterator[Callable[[], object]]:
    """Steps a vector environment of as many."""
    with ReactorVectorEnv([Busy] * num_envs, executor="inline") as envs:
        envs.reset(seed=0)
        yield partial(envs.step, np.zeros(num_envs, np.int64))


# ---------------------------------------------------------------------- a pipe for each environment

STEPS = 400


def pipes(make: Callable[[int], Any]) -> Pipes:
    """What the parts of a step cost with a process for each environment, in processor time; ways, in time.

    Args:
        make: Makes a vector environment of so many, which has ``step_async``, ``step_wait`` and ``processes``.
    """
    found = {num_envs: _processor_times(make(num_envs), num_envs) for num_envs in (2, FEW)}
    each = {part: (found[FEW][part] - found[2][part]) / (FEW - 2) for part in ("send", "take")}
    fixed = sum(max(0.0, found[2][part] - 2 * each[part]) for part in each)
    return Pipes(fixed, each["send"], each["take"], max(0.0, found[FEW]["child"] - step_seconds(0)), _pipe_rise())


def _processor_times(venv: Any, num_envs: int) -> dict[str, float]:
    """Processor seconds of a step: the caller's to send and to take, and those of one of the other processes."""
    venv.reset()
    actions, spent = np.zeros(num_envs, np.int64), {"send": 0.0, "take": 0.0}
    for number in range(STEPS + 20):
        if number == 20:
            before = [_processor_time(process.pid) for process in venv.processes]
            spent = dict.fromkeys(spent, 0.0)
        begin = time.thread_time()
        venv.step_async(actions)
        sent = time.thread_time()
        venv.step_wait()
        spent["send"] += sent - begin
        spent["take"] += time.thread_time() - sent
    after = [_processor_time(process.pid) for process in venv.processes]
    venv.close()
    child = statistics.mean(b - a for a, b in zip(before, after, strict=True))
    return {part: seconds / STEPS for part, seconds in (spent | {"child": child}).items()}


def _processor_time(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) * 1e-9


def _pipe_rise() -> float:
    """Seconds from the end of a write to a pipe until its reader, another process, goes on."""
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe()
    process = context.Process(target=_echo, args=(theirs,), daemon=True)
    process.start()

    def trip() -> None:
        mine.send_bytes(b"1")
        mine.recv_bytes()

    trips = timed(trip, 100)
    mine.send_bytes(b"")
    process.join(10)
    one, other = context.Pipe()

    def both() -> None:
        one.send_bytes(b"1")
        other.recv_bytes()

    return max(0.0, trips / 2 - timed(both, 100))


def _echo(end: Any) -> None:
    while message := end.recv_bytes():
        end.send_bytes(message)


# ---------------------------------------------------------------------- Ray's actors


def actors(ray: Any) -> Actors:
    """What calls of actors cost."""
    _, row = slope(lambda count: timed(lambda: BusyBlock(0, count).batched([0] * count), 20))
    some = [ray.remote(num_cpus=1)(BusyBlock).remote(0, FEW) for _ in range(2)]
    actions = np.zeros(FEW, np.int64)
    calls, takes, answers = [], [], []
    for number in range(220):
        begin = clock()
        sent = [actor.batched.remote(actions) for actor in some]
        called = clock()
        ray.wait(sent, num_returns=len(sent))
        there = clock()
        parts = ray.get(sent)
        for column in range(4):
            np.concatenate([part[column] for part in parts])
        taken = clock()
        one = some[0].batched.remote(actions)
        alone = clock()
        ray.wait([one])
        answered = clock()
        if number >= 20:
            calls.append((called - begin) / len(some))
            takes.append((taken - there) / len(some))
            answers.append(answered - alone)
    answer = statistics.median(answers) - FEW * row
    return Actors(statistics.median(calls), statistics.median(takes), max(0.0, answer), max(0.0, row - step_seconds(0)))
