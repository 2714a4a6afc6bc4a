"""A shard that asks the policies itself, for its own copies, and so needs nobody else while it plays.

That changes no result where a policy's answer for a row depends on nothing but that row: compiled networks, actions at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from reactor_pettingzoo.runner.account import ShardResults
from reactor_pettingzoo.runner.copies import Copy
from reactor_pettingzoo.runner.inference import Asking
from reactor_pettingzoo.runner.roster import Roster
from reactor_pettingzoo.runner.shard import Shard
from reactor_rl import Timer, reaction, startup
from reactor_rl.plugin import Failure

__all__ = ["PACE", "ActingShard"]

Array = npt.NDArray[Any]

PACE = 16
"""Steps of a tick: nobody waits for anybody within it."""


class ActingShard(Shard):
    """A shard that takes :data:`PACE` steps at each tick; see :class:`Shard`.

    What is raised goes into the results and is not raised: which of several comes first depends on the steps, and not on the ticks.
    """

    every = Timer(period=1)

    @reaction(startup)
    def prepare(self) -> None:
        """Build the networks, here where they will be used."""
        self.asked: list[tuple[int, Asking]] = []
        for group in self.groups:
            part = group.part(self.first, self.first + self.count)
            if part is not None:
                self.asked.append((group.number, Asking(part, self.roster)))
        self.straight: Straight | None = None
        if len(self.groups) == 1 and len(self.asked) == 1 and Straight.possible(self.asked[0][1]):
            self.straight = Straight(self.asked[0][1], self.roster)
        self.failed: tuple[tuple[int, int, int], Failure] | None = None

    @reaction(Shard.begin, every, uses=Shard.collect, effects=Shard.results)
    def play(self) -> None:
        """Take some steps in every copy, or begin a run."""
        collects = self.collect.present
        renders, steps = self.collect.value if collects else (False, PACE)
        if self.failed is None:
            self.group = -1  # the one that is asked
            try:
                if self.begin.present:
                    order, self.now = self.begin.value, 0
                    for _, asking in self.asked:
                        asking.begin(int(order["seed"]))
                    self._begin(order, renders)
                    self.direct = self._filled()
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
        if self.direct:
            assert self.straight is not None
            self.straight.choose(actions[0])
        else:
            for self.group, asking in self.asked:  # noqa: B020
                asking(self.seen, actions[self.group])
            self.group = -1
        if len(actions) == 1 and actions[0].ndim == 2:
            of_copies: Any = [(of_copy,) for of_copy in actions[0].tolist()]  # plain numbers are what most environments expect
        else:
            columns = [of_group.tolist() if of_group.ndim == 2 else list(of_group.copy()) for of_group in actions]
            of_copies = list(zip(*columns, strict=True))
        self._step(of_copies, renders)
        self.direct = self._filled()
        if not self.direct:
            self._show(self.copies)

    def _filled(self) -> bool:
        """Whether the networks have got the observations straight from the environments."""
        straight = self.straight
        return straight is not None and not self.account.keep and straight.fill(self.copies)

    def _results(self) -> ShardResults:
        if self.failed is not None:
            return ShardResults([], 0, 0, [], {}, [], self.failed)
        results = self.account.collect(self._busy(), self.frames)
        self.frames = []
        return results


class Straight:
    """The way from environments to networks without a record in between, while all agents of all copies are there.

    Args:
        asking: The policies.
        roster: The agents.
    """

    def __init__(self, asking: Asking, roster: Roster) -> None:
        assert asking.stacked is not None
        group, agents, self.asking = asking.group, roster.agents, asking
        self.of_agents = itemgetter(*agents) if len(agents) > 1 else lambda of_all: (of_all[agents[0]],)
        order = [copy * len(agents) + row for copy, row in group.seats.reshape(-1, 2).tolist()]
        self.order = itemgetter(*order) if len(order) > 1 else None
        self.inputs = asking.stacked.inputs.reshape(-1)
        self.lengths = [asking.stacked.inputs.shape[2]] * len(order)

    @staticmethod
    def possible(asking: Asking) -> bool:
        """Whether there may be such a way: best actions by stacked networks for observations that are vectors of float32."""
        block = asking.group.block
        plain = asking.stacked is not None and asking.draws is None and not block.mask and asking.answers is not None
        return plain and block.space.dtype == np.float32 and len(block.space.shape or ()) == 1

    def fill(self, copies: Sequence[Copy]) -> bool:
        """Give the networks what all agents see; ``False`` if that is not possible."""
        for copy in copies:
            if not copy.full:
                return False
        try:
            rows = list(chain.from_iterable([self.of_agents(copy.observations) for copy in copies]))
            if self.order is not None:
                rows = self.order(rows)
            if list(map(len, rows)) != self.lengths:
                return False
            np.concatenate(rows, out=self.inputs)
        except (KeyError, TypeError, ValueError):  # something is wrong, or unusual: what it is, is found out as a record is filled
            return False
        return True

    def choose(self, out: Array) -> None:
        """Write the best actions, ``(copies, rows)``."""
        asking = self.asking
        assert asking.stacked is not None
        asking.stacked()
        best = asking.stacked.best
        out[...] = best.T if asking.regular else best.reshape(-1)[asking.answers]
        if asking.start:
            out += asking.start
