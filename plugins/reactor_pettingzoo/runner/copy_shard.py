"""A shard whose policies are asked elsewhere: what it sees goes to them, what they answer comes back at the next tick."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reactor_pettingzoo.runner.shard import RunnerShard
from reactor_rl import Input, Output, reaction, startup

__all__ = ["CopyShard"]

Array = npt.NDArray[Any]


class CopyShard(RunnerShard):
    """A shard that takes a step at each tick; see :class:`RunnerShard`."""

    actions = Input()
    """A row for each group: actions of every copy, also of those elsewhere, as bytes, ``(groups, copies, width)``."""
    observations = Output((0,), np.uint8)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.observations = Output((self.count,), self.roster.record())

    @reaction(startup)
    def prepare(self) -> None:
        """Make what every step uses."""
        self.bytes = self.seen.view(np.uint8)
        self.slots: dict[int, tuple[Array, Array]] = {}
        self.views: dict[int, tuple[Array, list[Array]]] = {}

    @reaction(RunnerShard.begin, actions, uses=RunnerShard.collect, effects=(observations, RunnerShard.results))
    def step(self) -> None:
        """Take a step in every copy, or begin a run."""
        renders = self.collect.present and self.collect.value[0]
        if self.begin.present:
            self._begin(self.begin.value, renders)
        else:
            self._act(renders)
        buffer = self.observations.buffer
        slot = self.slots.get(id(buffer))
        if slot is None:
            slot = self.slots[id(buffer)] = buffer, buffer.view(np.uint8)
        slot[1][...] = self.bytes  # field by field takes ten times as long
        if self.collect.present:
            self.results.set(self.account.collect(self._busy(), self.frames))
            self.frames = []

    def _act(self, renders: bool) -> None:
        actions = self.account.open(self.acting, self.playing, self.seen)
        for of_group, answered in zip(actions, self._views(self.actions.value), strict=True):
            of_group[...] = answered
        # Plain numbers are what most environments expect; arrays are theirs to keep.
        columns = [of_group.tolist() if of_group.ndim == 2 else list(of_group.copy()) for of_group in actions]
        self._step(list(zip(*columns, strict=True)), renders)

    def _views(self, actions: Array) -> list[Array]:
        """This shard's part of each group's actions, as what they are."""
        kept = self.views.get(id(actions))
        if kept is None:
            mine = actions[:, self.first : self.first + self.count]
            views = [group.view(mine[number]) for number, group in enumerate(self.groups)]
            kept = self.views[id(actions)] = actions, views
        return kept[1]
