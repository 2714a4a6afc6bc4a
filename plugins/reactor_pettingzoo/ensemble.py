"""Copies of an environment and the policies that act in them, as a reactor program."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain, pairwise
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from reactor_gymnasium.arguments import checked_executor, checked_number
from reactor_gymnasium.numeric_threads import one_numeric_thread
from reactor_pettingzoo.census import Agent, Census, EnvFn
from reactor_pettingzoo.choice import SPIN, choose
from reactor_pettingzoo.copy_shard import BEGIN, CopyShard, Ended, Told
from reactor_pettingzoo.inference import Group, Inference, groups_of
from reactor_pettingzoo.progress import progress
from reactor_rl import Program
from reactor_rl.autotune import usable_cores
from reactor_rl.fingerprint import new_hash
from reactor_rl.serialise import encode

if TYPE_CHECKING:
    from reactor_rl.program import ExecutorName
    from reactor_rl.runtime.run import Run
    from reactor_rl.trace import Tracing

__all__ = ["Ensemble", "Played"]

STRETCH = 0.2
"""Seconds after which the shards tell what has happened."""
MOST_TICKS = 4096


class Played:
    """What the shards have told of a run: a list for each stretch of ticks, in the order of the environments.

    Attributes:
        told: All of it.
    """

    def __init__(self, told: list[list[Told]]) -> None:
        self.told = told

    @property
    def steps(self) -> int:
        """Steps taken in all environments together."""
        return sum(shard.steps for stretch in self.told for shard in stretch)

    @property
    def episodes(self) -> list[Ended]:
        """Episodes by their ends; at one tick, by environment."""
        found = (one for stretch in self.told for shard in stretch for one in shard.episodes)
        return sorted(found, key=lambda one: (one.tick, one.copy))

    @property
    def fingerprint(self) -> str:
        """A hash of everything that has happened in every environment."""
        total = new_hash()
        for shard in self.told[-1]:
            for digest in shard.digests:
                total.update(digest)
        return str(total.hexdigest())

    def log(self, name: str) -> Any:
        """What was kept under a name, ``(ticks, environments, ...)``."""
        return np.concatenate(
            [np.concatenate([shard.log[name] for shard in stretch], 1) for stretch in self.told if stretch[0].log]
        )


class Ensemble:
    """Copies of an environment in shards on the workers, and a reactor for each group of policies.

    Args:
        env_fn: Makes one environment.
        census: Its agents.
        policies: By name.
        acts: For each copy the name of every agent's policy.
        offsets: What each copy adds to a run's seed for its first reset.
        workers: Number of workers, the calling thread included; ``None`` for the cores that this process may use.
        executor: ``"inline"``, ``"threads"``, ``"processes"``, or ``"auto"``.
        deterministic: Whether the best action is taken, or one drawn.
        start_method: How helper processes start.
    """

    def __init__(
        self,
        env_fn: EnvFn,
        census: Census,
        policies: Mapping[str, Any],
        acts: Sequence[dict[Agent, str]],
        offsets: Sequence[int],
        workers: int | None,
        executor: ExecutorName,
        deterministic: bool,
        start_method: str | None,
    ) -> None:
        self._run: Run | None = None
        checked_executor(executor)
        if workers is not None:
            checked_number("workers", workers, 1)
        self.census, self.num_envs = census, len(acts)
        self._groups = groups_of(census, len(acts), dict(policies), list(acts), deterministic)
        most = min(workers or usable_cores(), len(acts))
        chosen, count, self._why = choose(env_fn, census, len(acts), most, executor)
        program, placement = self._program(encode(env_fn), offsets, self._groups, count)
        self._run = program.start(
            executor=chosen, workers=count, context=start_method, placement=placement, fingerprint="off", spin=SPIN
        )

    def _program(self, env_fn: Any, offsets: Sequence[int], groups: list[Group], workers: int) -> tuple[Program, dict[str, int]]:
        """Shards of copies -> a reactor for each group of policies -> the shards, a tick later."""
        census, copies = self.census, self.num_envs
        program = Program(f"{census.name} x {copies}")
        placement = {}
        width = -(-max(group.width for group in groups) // 8) * 8
        begin, report = program.input("begin", (), BEGIN), program.input("report")
        source = np.full((copies, len(census.agents)), -1, np.int64)
        for number, group in enumerate(groups):
            source[group.answers >= 0] = number
        cuts = [copies * worker // workers for worker in range(workers + 1)]
        told = program.output("told")
        shards = []
        # Before the policies, so that an environment's error comes before that of a policy that gets no observations then.
        for worker, (lo, hi) in enumerate(pairwise(cuts)):
            name = f"environments[{lo}:{hi}]"
            shard = program.add(CopyShard, env_fn, lo, offsets[lo:hi], census, groups, source[lo:hi], name=name)
            placement[name] = worker
            program.connect(begin, shard.begin)
            program.connect(report, shard.report)
            program.connect(shard.told, told.rows[worker])
            shards.append(shard)
        for number, group in enumerate(groups):
            name = f"policies[{', '.join(group.names)}]"
            inference = program.add(Inference, group, census, width, name=name)
            placement[name] = number % workers
            program.connect(begin, inference.begin)
            for shard, (lo, hi) in zip(shards, pairwise(cuts), strict=True):
                program.connect(shard.observations, inference.observations.rows[lo:hi])
                program.connect(inference.actions, shard.actions.rows[number], after=1)
        return program, placement

    # ------------------------------------------------------------------ playing

    def _play(self, ticks: float, episodes: int, seed: int, record: bool, progress_bar: bool, total: int) -> Played:
        """Run ticks in stretches, after each of which the shards tell what has happened. How long those are changes nothing."""
        self._running()  # before there is a bar
        found = []
        with one_numeric_thread(), progress(total, "episode" if episodes else "step", shown=progress_bar) as advance:
            for told in self._ticks(episodes, seed, record, _stretches(ticks)):
                found.append(told)
                advance(sum(len(one.episodes) for one in told) if episodes else sum(one.steps for one in told))
                if not sum(one.busy for one in told):
                    break
        return Played(found)

    def _ticks(
        self, episodes: int, seed: int, record: bool, stretches: Iterable[int], render: bool = False
    ) -> Iterator[list[Told]]:
        """Begin a run, and give what each shard tells after every stretch of ticks."""
        run = self._running()
        run.set(begin=np.array((seed, episodes, self.num_envs, record), BEGIN))
        for ticks in chain((1,), stretches):  # the first tick resets
            if ticks > 1:
                run.run(ticks=ticks - 1)
            run.set(report=render)
            run.tick()
            yield run.values("told")

    # ------------------------------------------------------------------ looking at it, and the end

    def draw(self, path: str | None = None, *, format: Literal["mermaid", "dot", "svg"] | None = None) -> str:
        """The program behind it as a picture; see :meth:`reactor_rl.Program.draw`."""
        return self._running().draw(path, format=format)

    def trace(self, path: str) -> AbstractContextManager[Tracing]:
        """Record what each worker does: ``with runner.trace("trace.json"): runner.run(...)`` writes a file for Perfetto."""
        return self._running().trace(path)

    @property
    def workers(self) -> int:
        """Number of workers, the calling thread included."""
        return self._running().workers

    @property
    def executor(self) -> str:
        """Name of the executor."""
        return self._running().executor

    def _running(self) -> Run:
        if self._run is None:
            raise RuntimeError("this MultiAgentRunner has been closed; make a new one")
        return self._run

    def close(self) -> None:
        """Close the environments and end the workers. May be called again."""
        run, self._run = self._run, None
        if run is not None:
            run.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        run = getattr(self, "_run", None)
        if run is not None and not run.foreign:
            run.close(terminate=True)

    def __repr__(self) -> str:
        how = "closed" if self._run is None else f"executor={self.executor!r}, workers={self.workers}"
        why = f" [{self._why}]" if self._why else ""
        agents = f"{len(self.census.agents)} agents"
        return f"{type(self).__name__}({self.census.name}, {agents}, num_envs={self.num_envs}, {how}{why})"


def _stretches(ticks: float) -> Iterator[int]:
    """Numbers of ticks that add up to ``ticks``, so many at a time as take about :data:`STRETCH` seconds."""
    some = 16
    while ticks > 0:
        some = int(min(some, ticks))
        began = time.perf_counter()
        yield some
        ticks -= some
        if time.perf_counter() - began < STRETCH / 2:
            some = min(2 * some, MOST_TICKS)
