"""The reactors that hold copies of an environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from reactor_gymnasium.plugin import IDLE, UnitRows
from reactor_pettingzoo.agent_record import AgentRecord
from reactor_pettingzoo.agents import AgentSpecs
from reactor_pettingzoo.copies import Copy, copy_of
from reactor_pettingzoo.rows import AGENT_COLUMNS, AgentsUnit
from reactor_pettingzoo.runner.inference import GroupPolicies, PolicyGroup
from reactor_pettingzoo.runner.shard_log import ShardLog, ShardResults
from reactor_rl import Input, Output, Reactor, RunError, Timer, reaction, shutdown, startup
from reactor_rl.plugin import Failure

__all__ = ["BEGIN", "RunSeeds", "RunnerShard", "ObservingShard", "PACE", "ActingShard"]

Array = npt.NDArray[Any]

BEGIN = np.dtype([("seed", np.int64), ("episodes", np.int64), ("copies", np.int64), ("record", np.bool_)])
"""The start of a run: its seed; how many episodes are wanted in all copies together, 0 for no limit; copies; what is kept."""


class RunSeeds:
    """The arguments that the copies of a shard are reset with.

    Args:
        offsets: What each copy adds to a run's seed.
        each: Whether every episode is given a seed, drawn from the run's, the copy's offset and the episode's number. Else the
            first one alone is, the sum of the run's and the offset.
    """

    def __init__(self, offsets: Sequence[int], each: bool = False) -> None:
        self.offsets, self.each = tuple(offsets), each

    def part(self, lo: int, hi: int) -> RunSeeds:
        """The same for some copies."""
        return RunSeeds(self.offsets[lo:hi], self.each)

    def seed(self, run: int, copy: int, episode: int) -> int | None:
        """The seed of an episode of a copy, both from 0; ``None`` if it is to go on with what it has."""
        if self.each:
            key = self.offsets[copy], episode
            return int(np.random.SeedSequence(run, spawn_key=key).generate_state(1)[0]) & 0x7FFFFFFF
        return None if episode else run + self.offsets[copy]


class RunnerShard(Reactor):
    """Copies ``first``, ``first + 1``, ... of the environment.

    Args:
        env_fn: Function that makes one, encoded.
        first: Index of the first one.
        seeds: What they are reset with.
        specs: The agents.
        groups: The groups of policies.
    """

    begin = Input()
    collect = Input()
    """Present when the shard is to hand over its results: whether it is to render its first copy, and how many steps to take."""
    results = Output()
    """The events since they were last handed over: :class:`~reactor_pettingzoo.runner.shard_log.ShardResults`."""

    def __init__(self, env_fn: Any, first: int, seeds: RunSeeds, specs: AgentSpecs, groups: Sequence[PolicyGroup]) -> None:
        self.env_fn, self.first, self.seeds, self.specs, self.groups = env_fn, first, seeds, specs, tuple(groups)
        self.count = len(seeds.offsets)
        self.copies: list[Copy] = []
        columns = {"acting": AGENT_COLUMNS["acting"]}
        self.rows = UnitRows(first, AutoresetMode.SAME_STEP, self._unit, AgentRecord(specs), columns, seeds=self._next)
        self.rows.keep_infos = self.rows.keep_finals = False

    def _unit(self, env: Any, index: int) -> AgentsUnit:
        specs = self.specs
        acting = {at: group.number for group in self.groups for at in np.flatnonzero(group.agent_rows[index] >= 0).tolist()}
        places = [(acting[at], specs.group_of(agent)[1]) for at, agent in enumerate(specs.agents)]
        copy = copy_of(env, specs.agents, specs.turns)
        self.copies.append(copy)
        return AgentsUnit(copy, places)

    @reaction(startup)
    def build(self) -> None:
        """Make the environments, here where they will live."""
        agents = len(self.specs.agents)
        self.log = ShardLog(self.first, self.count, agents, self.groups)
        self.rows.build([self.env_fn] * self.count)
        self.seen: Array = self.rows.shown.observations
        self.acting: Array = self.rows.shown.columns["acting"]

    @reaction(shutdown)
    def close(self) -> None:
        """Close every environment, even if closing one fails; the first error is raised."""
        self.copies.clear()
        self.rows.close()

    # ------------------------------------------------------------------ a run

    def _begin(self, order: Any, renders: bool) -> None:
        """Begin a run: its first episodes."""
        wanted, copies = int(order["episodes"]), int(order["copies"])
        indices = range(self.first, self.first + self.count)
        self.wanted = [wanted // copies + (index < wanted % copies) if wanted else np.inf for index in indices]
        self.seed, self.begun = int(order["seed"]), [0] * self.count
        self.log.begin(bool(order["record"]))
        self.rows.pending[:] = [IDLE] * self.count
        for copy, unit, lo in zip(self.copies, self.rows.units, self.rows.bounds, strict=False):
            copy.leave()  # whoever plays no episode shows nothing
            unit.show(self.rows.shown, lo)
        self.playing: Array = np.zeros(self.count, np.bool_)
        firsts = {number: self._episode(number) for number in range(self.count)}
        self.rows.reset({number: kwargs for number, kwargs in firsts.items() if kwargs is not None}, None)
        self.rows.raise_failure()
        self.frames: list[Any] = []
        if renders:
            self._render()

    def _episode(self, number: int) -> Mapping[str, Any] | None:
        """The arguments of a copy's next reset; ``None`` if it has no episodes left to play."""
        episode = self.begun[number]
        goes_on = self.playing[number] = episode < self.wanted[number]
        if not goes_on:
            return None
        self.begun[number] += 1
        return {"seed": self.seeds.seed(self.seed, number, episode)}

    def _step(self, actions: Sequence[Array], renders: bool) -> None:
        """Take a step in every copy."""
        self.renders, rows = renders, self.rows
        # Plain numbers are what most environments expect; arrays are theirs to keep.
        columns = [of_group.tolist() if of_group.ndim == 2 else list(of_group.copy()) for of_group in actions]
        rows.step(list(zip(*columns, strict=True)), None)
        if rows.failures:
            rows.raise_failure()
        if renders and 0 not in rows.over:
            self._render()
        self.log.end_step(rows.rewards)

    def _next(self, number: int) -> Mapping[str, Any] | None:
        """Take down that a copy's episode has ended; the arguments of its reset, ``None`` if that was its last one."""
        present = self.copies[number].present
        self.log.ended(number, tuple([agent in present for agent in self.specs.agents]))
        if self.renders and not number:
            self._render()
        return self._episode(number)

    def _render(self) -> None:
        """Keep a picture of the first copy."""
        with self.rows.opened(changes=False) as envs:
            self.frames.append(envs[0].render())

    def __getstate__(self) -> dict[str, Any]:
        if self.rows.units:
            raise RunError("the hashes of what has happened in a MultiAgentRunner's environments cannot be saved")
        return self.__dict__.copy()

    def _collected(self) -> ShardResults:
        """The results since this was last called."""
        frames, self.frames = self.frames, []
        return self.log.collect(int(np.count_nonzero(self.playing)), frames)


class ObservingShard(RunnerShard):
    """A shard that takes a step at each tick; see :class:`RunnerShard`."""

    actions = Input()
    """A row for each group: actions of every copy, also of those elsewhere, as bytes, ``(groups, copies, width)``."""
    observations = Output((0,), np.uint8)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.observations = Output((self.count,), self.specs.record())

    @reaction(startup)
    def prepare(self) -> None:
        """Make what every step uses."""
        self.bytes = self.seen.view(np.uint8)
        self.views: dict[int, tuple[Array, list[Array]]] = {}

    @reaction(RunnerShard.begin, actions, uses=RunnerShard.collect, effects=(observations, RunnerShard.results))
    def step(self) -> None:
        """Take a step in every copy, or begin a run."""
        renders = self.collect.present and self.collect.value[0]
        if self.begin.present:
            self._begin(self.begin.value, renders)
        else:
            self._act(renders)
        self.observations.buffer.view(np.uint8)[...] = self.bytes  # field by field takes ten times as long
        if self.collect.present:
            self.results.set(self._collected())

    def _act(self, renders: bool) -> None:
        actions = self.log.begin_step(self.acting, self.playing, self.seen)
        for of_group, answered in zip(actions, self._views(self.actions.value), strict=True):
            of_group[...] = answered
        self._step(actions, renders)

    def _views(self, actions: Array) -> list[Array]:
        """This shard's part of each group's actions, as what they are."""
        kept = self.views.get(id(actions))
        if kept is None:
            mine = actions[:, self.first : self.first + self.count]
            views = [group.view(mine[number]) for number, group in enumerate(self.groups)]
            kept = self.views[id(actions)] = actions, views
        return kept[1]


PACE = 16
"""Steps of a tick: nobody waits for anybody within it. A tick's cost is spread over them; a worker's death is noticed, and its
ticks are replayed, in units of so many. Chosen.
"""


class ActingShard(RunnerShard):
    """A shard that takes :data:`PACE` steps at each tick; see :class:`RunnerShard`.

    What is raised goes into the results and is not raised: which of several comes first depends on the steps, and not on the ticks.
    """

    every = Timer(period=1)

    @reaction(startup)
    def prepare(self) -> None:
        """Build the networks, here where they will be used."""
        parts = [group.part(self.first, self.first + self.count) for group in self.groups]
        self.policies = [(part.number, GroupPolicies(part, self.specs)) for part in parts if part is not None]
        self.failed: tuple[tuple[int, int, int], Failure] | None = None

    @reaction(RunnerShard.begin, every, uses=RunnerShard.collect, effects=RunnerShard.results)
    def play(self) -> None:
        """Take some steps in every copy, or begin a run."""
        collects = self.collect.present
        renders, steps = self.collect.value if collects else (False, PACE)
        if self.failed is None:
            self.group = -1  # the one that is asked
            try:
                if self.begin.present:
                    order, self.now = self.begin.value, 0
                    for _, policies in self.policies:
                        policies.begin(int(order["seed"]))
                    self._begin(order, renders)
                else:
                    for _ in range(steps):
                        self._play(renders)
            except Exception as error:
                where = (1, self.first) if self.group < 0 else (0, self.group)
                name = f"environments[{self.first}:{self.first + self.count}]"
                self.failed = (self.now, *where), Failure.of(0, name, (self.now, 0), error)
        if collects:
            self.results.set(self._collected() if self.failed is None else ShardResults([], 0, 0, [], {}, [], self.failed))

    def _play(self, renders: bool) -> None:
        """Take a step in every copy."""
        self.now += 1
        actions = self.log.begin_step(self.acting, self.playing, self.seen)
        for self.group, policies in self.policies:  # noqa: B020
            policies(self.seen, actions[self.group])
        self.group = -1
        self._step(actions, renders)
