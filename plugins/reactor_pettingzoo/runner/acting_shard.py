"""A shard that asks the policies itself, for its own copies, and so needs nobody else while it plays.

That changes no result where a policy's answer for a row depends on nothing but that row: compiled networks, actions at random.
"""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from reactor_pettingzoo.runner.account import ShardResults
from reactor_pettingzoo.runner.inference import GroupPolicies
from reactor_pettingzoo.runner.shard import RunnerShard
from reactor_rl import Timer, reaction, startup
from reactor_rl.plugin import Failure

__all__ = ["PACE", "ActingShard"]

Array = npt.NDArray[Any]

PACE = 16
"""Steps of a tick: nobody waits for anybody within it."""


class ActingShard(RunnerShard):
    """A shard that takes :data:`PACE` steps at each tick; see :class:`RunnerShard`.

    What is raised goes into the results and is not raised: which of several comes first depends on the steps, and not on the ticks.
    """

    every = Timer(period=1)

    @reaction(startup)
    def prepare(self) -> None:
        """Build the networks, here where they will be used."""
        self.policies: list[tuple[int, GroupPolicies]] = []
        for group in self.groups:
            part = group.part(self.first, self.first + self.count)
            if part is not None:
                self.policies.append((group.number, GroupPolicies(part, self.roster)))
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
            self.results.set(self._results())

    def _play(self, renders: bool) -> None:
        """Take a step in every copy."""
        self.now += 1
        actions = self.account.open(self.acting, self.playing, self.seen)
        for self.group, policies in self.policies:  # noqa: B020
            policies(self.seen, actions[self.group])
        self.group = -1
        if len(actions) == 1 and actions[0].ndim == 2:
            of_copies: Any = [(of_copy,) for of_copy in actions[0].tolist()]  # plain numbers are what most environments expect
        else:
            columns = [of_group.tolist() if of_group.ndim == 2 else list(of_group.copy()) for of_group in actions]
            of_copies = list(zip(*columns, strict=True))
        self._step(of_copies, renders)

    def _results(self) -> ShardResults:
        if self.failed is not None:
            return ShardResults([], 0, 0, [], {}, [], self.failed)
        results = self.account.collect(self._busy(), self.frames)
        self.frames = []
        return results
