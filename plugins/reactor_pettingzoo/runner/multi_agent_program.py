"""Copies and policies as a program."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from reactor_gymnasium.plugin import (
    StepCosts,
    choose_executor,
    median_step,
    no_traces,
    progress,
    recover_for,
)
from reactor_pettingzoo.agents import AgentSpecs, EnvFn, travelling
from reactor_pettingzoo.reading import AgentID
from reactor_pettingzoo.runner.inference import PolicyReactor, groups_of
from reactor_pettingzoo.runner.probe import RecordProbe
from reactor_pettingzoo.runner.shard_log import EpisodeRecord, ShardResults
from reactor_pettingzoo.runner.shards import BEGIN, PACE, ActingShard, ObservingShard, RunSeeds
from reactor_pettingzoo.runner.streams import normals_kept
from reactor_rl import Program, RunError
from reactor_rl.plugin import (
    FORKED,
    Execution,
    InterruptGuard,
    RunOwner,
    encode,
    new_hash,
    spread_workers,
    tick_cost,
    transport_for,
    usable_cores,
)

if TYPE_CHECKING:
    from reactor_rl import Run

__all__ = ["MultiAgentProgram", "RunLog"]

SPIN = 1e-3
"""Seconds that workers stay awake: others evaluate policies meanwhile. Five times as long as usual, as a small network takes some
tenths of a millisecond. Chosen.
"""
STRETCH = 0.2
"""Seconds after which the results of the shards are collected: seldom enough to cost nothing, soon enough for Ctrl-C and for
progress that is told.
"""
MOST_STEPS = 4096
"""Steps between two collections at most, so that results of fast games that are kept do not fill the memory."""


class RunLog:
    """The results of a run.

    Attributes:
        stretches: For each stretch of steps the results of every shard, in the order of the environments.
        seconds: How long it took.
    """

    def __init__(self, stretches: list[list[ShardResults]], seconds: float) -> None:
        self.stretches, self.seconds = stretches, seconds

    @property
    def steps(self) -> int:
        """Steps taken in all environments together."""
        return sum(shard.steps for stretch in self.stretches for shard in stretch)

    @property
    def episodes(self) -> list[EpisodeRecord]:
        """Episodes by their ends; at one tick, by environment."""
        episodes = (one for stretch in self.stretches for shard in stretch for one in shard.episodes)
        return sorted(episodes, key=lambda one: (one.step, one.copy))

    @property
    def fingerprint(self) -> str:
        """A hash of everything that has happened in every environment."""
        total = new_hash()
        for shard in self.stretches[-1]:
            for digest in shard.digests:
                total.update(digest)
        return str(total.hexdigest())

    def log(self, name: str) -> Any:
        """The records under a name, ``(steps, environments, ...)``, up to the last step that anybody took."""
        entries = np.concatenate(
            [np.concatenate([shard.log[name] for shard in stretch], 1) for stretch in self.stretches if stretch[0].log]
        )
        over = not any(shard.busy for shard in self.stretches[-1])
        return entries[: self.episodes[-1].step] if over else entries


class MultiAgentProgram(RunOwner):
    """Copies of an environment in shards on the workers, which ask the policies themselves if that changes no result; else a
    reactor asks each group of policies for all of them.

    Args:
        env_fn: Function that makes one environment.
        specs: Its agents.
        policies: Policies by name.
        acts: For each copy the name of every agent's policy.
        seeds: What the copies are reset with.
        deterministic: Whether the best action is taken, or one drawn.
        execution: Where it runs, as the user asked for.
    """

    def __init__(
        self,
        env_fn: EnvFn,
        specs: AgentSpecs,
        policies: Mapping[str, Any],
        acts: Sequence[dict[AgentID, str]],
        seeds: RunSeeds,
        deterministic: bool,
        execution: Execution,
    ) -> None:
        self._guard = InterruptGuard()
        self.specs, self.num_envs = specs, len(acts)
        self._groups = groups_of(specs, dict(policies), list(acts), deterministic)
        alone = all(group.by_row for group in self._groups)
        self._pace = PACE if alone else 1  # steps of a tick
        transport = transport_for(execution.executor, execution.nodes, execution.workers)
        most = min((execution.workers or usable_cores()) if transport is None else sum(transport.workers), len(acts))

        def costs() -> StepCosts:
            with no_traces(), contextlib.closing(RecordProbe(env_fn(), specs)) as copy:
                return StepCosts.alike(median_step(lambda seed: copy.reset(seed=seed), copy.sample, copy.act), len(acts))

        def helper_cost(work: float) -> float:
            """Seconds of a step: the way to the policies and back is as long as that to the helpers and back."""
            return tick_cost(SPIN) / PACE if alone else 2.0 * tick_cost(SPIN)

        choice = choose_executor(costs, len(acts), most, execution.executor, True, helper_cost, execution.restarts, 1e-6)
        chosen, count, self._why = choice.executor, choice.workers, choice.why
        made = travelling(env_fn, "tournament" if type(self) is MultiAgentProgram else type(self).__name__)
        program = Program(f"{specs.name} x {len(acts)}")
        placement = self._build(program, made, seeds, count, alone)
        # Shards come first; the policies that they ask are at home, where there are several machines.
        on = None if transport is None else dict(zip(placement, spread_workers(transport.workers, count), strict=False))
        self._run = program.start(
            executor=chosen if transport is None else transport, workers=count if transport is None else None,
            start_method=execution.start_method, placement=placement if transport is None else None, on=on, fingerprint="off",
            spin=SPIN, timeout=execution.timeout,
            recover=recover_for(execution.restarts, chosen, map(encode, [partial(RecordProbe.of, made, specs)])),
        )  # fmt: skip

    def _build(self, program: Program, env_fn: Any, seeds: RunSeeds, count: int, alone: bool) -> dict[str, int]:
        """Add shards, one for each worker, which ask the policies themselves; or shards of copies -> a reactor for each group of
        policies -> the shards, a tick later.

        Returns:
            The worker of each reactor, by name.
        """
        groups, copies = self._groups, self.num_envs
        begin, collect, results = program.input("begin", (), BEGIN), program.input("collect"), program.output("results")
        suffix = "".join(f" policies[{group.title}]" for group in groups) if alone else ""
        placement: dict[str, int] = {}
        shards: list[tuple[int, int, Any]] = []
        # Before the policies, so that an environment's error comes before that of a policy that gets no observations then.
        for worker, (lo, hi) in enumerate(pairwise(copies * worker // count for worker in range(count + 1))):
            name = f"environments[{lo}:{hi}]{suffix}"
            kind = ActingShard if alone else ObservingShard
            shard: Any = program.add(kind, env_fn, lo, seeds.part(lo, hi), self.specs, groups, name=name)
            program.connect(begin, shard.begin)
            program.connect(collect, shard.collect)
            program.connect(shard.results, results.rows[worker])
            shards.append((lo, hi, shard))
            placement[name] = worker
        width = -(-max(group.width for group in groups) // 8) * 8
        for number, group in enumerate([] if alone else groups):
            name = f"policies[{group.title}]"
            if name in placement:  # of 0 and "0"
                name += f" ({number})"
            inference = program.add(PolicyReactor, group, self.specs, width, name=name)
            placement[name] = number % count
            program.connect(begin, inference.begin)
            for lo, hi, shard in shards:
                program.connect(shard.observations, inference.observations.rows[lo:hi])
                program.connect(inference.actions, shard.actions.rows[number], after=1)
        return placement

    # ------------------------------------------------------------------ playing

    def _play(self, steps: float, episodes: int, seed: int, record: bool, progress_bar: bool | None, total: int) -> RunLog:
        """Take steps in stretches, after each of which results are collected. How long those are changes nothing."""
        self._running()  # before there is a bar
        began, stretches = time.perf_counter(), []
        with self._guard, progress(total, "episode" if episodes else "step", shown=progress_bar) as advance:
            for results in self._ticks(episodes, seed, record, _stretches(steps)):
                stretches.append(results)
                advance(sum(len(one.episodes) for one in results) if episodes else sum(one.steps for one in results))
                if not sum(one.busy for one in results):
                    break
        return RunLog(stretches, time.perf_counter() - began)

    def _ticks(
        self, episodes: int, seed: int, record: bool, stretches: Iterable[int], render: bool = False
    ) -> Iterator[list[ShardResults]]:
        """Begin a run, and give the results of each shard after every stretch of steps."""
        run = self._run
        assert run is not None
        run.set(begin=np.array((seed, episodes, self.num_envs, record), BEGIN))
        for steps in chain((1,), stretches):  # the first tick resets
            ticks, last = divmod(steps - 1, self._pace)
            with normals_kept():
                if ticks:
                    run.run(ticks=ticks)
                run.set(collect=(render, last + 1))
                run.tick()
            results: list[ShardResults] = run.values("results")
            failures = [one.failed for one in results if one.failed is not None]
            if failures:
                _, failure = min(failures, key=lambda failed: failed[0])
                self._guard.unusable = f"{type(failure.error).__name__} was raised"
                raise failure.raised()
            yield results

    # ------------------------------------------------------------------ looking at it, and the end

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
        if self._run.foreign:
            raise RunError(f"cannot use this {type(self).__name__}, for {FORKED}")
        if self._guard.unusable:
            raise RunError(f"cannot go on because {self._guard.unusable}; close() it and make a new one")
        return self._run

    def __del__(self) -> None:
        run = getattr(self, "_run", None)
        if run is not None and not run.foreign:
            run.close(terminate=True)

    def __reduce__(self) -> Any:
        raise TypeError(f"a {type(self).__name__} holds running workers and cannot be copied or pickled; make another one")

    def __repr__(self) -> str:
        how = "closed" if self._run is None else f"executor={self._run.executor!r}, workers={self._run.workers}"
        why = f" [{self._why}]" if self._why else ""
        agents = f"{len(self.specs.agents)} agents"
        return f"{type(self).__name__}({self.specs.name}, {agents}, num_envs={self.num_envs}, {how}{why})"


def _stretches(steps: float) -> Iterator[int]:
    """Numbers of steps that add up to ``steps``, so many at a time as take about :data:`STRETCH` seconds."""
    some = 16
    while steps > 0:
        some = int(min(some, steps))
        began = time.perf_counter()
        yield some
        steps -= some
        if time.perf_counter() - began < STRETCH / 2:
            some = min(2 * some, MOST_STEPS)
