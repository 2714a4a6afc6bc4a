"""A log of what happens in some copies of an environment: kept as columns while they play, and summed up afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reactor_pettingzoo.runner.inference import PolicyGroup
from reactor_rl.plugin import Failure, new_hash

__all__ = ["EpisodeRecord", "ShardLog", "ShardResults"]

Array = npt.NDArray[Any]

STEPS = 256
"""Steps that are summed up together: a call of numpy costs more than many numbers. Their arrays are the price, for each copy and
agent. Chosen.
"""


@dataclass(frozen=True)
class EpisodeRecord:
    """An episode that has ended: in which copy, at which step of the run; of each agent whether it took part, its return, and the
    steps in which it acted.
    """

    copy: int
    step: int
    present: tuple[bool, ...]
    returns: tuple[float, ...]
    lengths: tuple[int, ...]


@dataclass(frozen=True)
class ShardResults:
    """The events in a shard since its results were last collected.

    Attributes:
        episodes: Episodes that have ended.
        steps: Steps taken in all copies together.
        busy: How many copies go on.
        digests: For each copy a hash of all that has happened in it.
        log: Arrays that are kept if asked for, by name, each ``(steps, copies, ...)``.
        frames: What was rendered.
        failed: The first exception, and what it is ordered by: the step, whether in a policy (0) or an environment (1), which.
    """

    episodes: list[EpisodeRecord]
    steps: int
    busy: int
    digests: list[bytes]
    log: dict[str, Array]
    frames: list[Any]
    failed: tuple[tuple[int, int, int], Failure] | None = None


class ShardLog:
    """Keeps account of a run in some copies.

    Args:
        first: Index of the first copy.
        count: How many they are.
        agents: How many agents each has.
        groups: The groups of policies, for the shapes of their actions.
    """

    def __init__(self, first: int, count: int, agents: int, groups: Sequence[PolicyGroup]) -> None:
        self.first, self.count, self.agents = first, count, agents
        self._acted: Array = np.zeros((STEPS, count * agents), np.bool_)
        self._playing: Array = np.zeros((STEPS, count), np.bool_)
        self._actions: list[Array] = [np.zeros((STEPS, count, *group.shape), group.dtype) for group in groups]
        self._slots = [[of_group[step] for of_group in self._actions] for step in range(STEPS)]

    def begin(self, keep: bool) -> None:
        """Begin a run; what was seen and done is kept if that is wanted."""
        self.keep = keep
        self._summed = 0  # how many steps of the run are summed up
        # Of each copy's episode, up to the last time that steps were summed up.
        self._returns: Array = np.zeros((self.count, self.agents))
        self._lengths: Array = np.zeros((self.count, self.agents), np.int64)
        self._hashes = [[new_hash() for _ in range(2 + len(self._actions))] for _ in range(self.count)]
        self._empty()
        self._forget()

    def _empty(self) -> None:
        self._rewards: list[float] = []  # of all agents in those steps that are not summed up yet
        self._ends: list[tuple[int, int, tuple[bool, ...]]] = []  # step, copy, and who took part
        self._at = 0  # how many steps these are

    def _forget(self) -> None:
        self._episodes: list[EpisodeRecord] = []
        self._steps = 0
        self._kept: dict[str, list[Array]] = {}
        self._seen: list[Array] = []

    # ------------------------------------------------------------------ a step

    def begin_step(self, acting: Array, playing: Array, seen: Array) -> list[Array]:
        """Begin a step.

        Args:
            acting: Who acts, of all agents of all copies, bool.
            playing: Which copies go on, ``(copies,)``, bool.
            seen: What the policies see.

        Returns:
            For each group where its actions are to be written, ``(copies, rows, ...)``.
        """
        if self._at == STEPS:
            self._sum_up()
        at = self._at
        self._acted[at], self._playing[at] = acting, playing
        if self.keep:
            self._seen.append(seen.copy())
        return self._slots[at]

    def ended(self, copy: int, present: tuple[bool, ...]) -> None:
        """A copy's episode has ended with the step."""
        self._ends.append((self._at, copy, present))

    def end_step(self, rewards: Sequence[Any]) -> None:
        """End a step: the rewards of all agents of all copies."""
        self._rewards += rewards
        self._at += 1

    # ------------------------------------------------------------------ what came of it

    def _sum_up(self) -> None:
        count, shape = self._at, (self._at, self.count, self.agents)
        rewards, acted = np.array(self._rewards, np.float64).reshape(shape), self._acted[:count].reshape(shape)
        playing = self._playing[:count]
        columns = {"acted": acted, "rewards": rewards}
        columns |= {f"actions.{number}": of_group[:count] for number, of_group in enumerate(self._actions)}
        always: list[bool] = np.all(playing, 0).tolist()
        for number, hashes in enumerate(self._hashes):
            for column, one in zip(columns.values(), hashes, strict=True):
                of_copy = column[:, number] if always[number] else column[playing[:, number], number]
                one.update(of_copy.tobytes())
        since = [0] * self.count
        for at, copy, present in [*self._ends, *((count - 1, copy, None) for copy in range(self.count))]:
            steps = slice(since[copy], at + 1)
            # One after the other, as a sum over all of them would not be.
            self._returns[copy] = np.add.accumulate(np.concatenate([self._returns[copy : copy + 1], rewards[steps, copy]]))[-1]
            self._lengths[copy] += acted[steps, copy].sum(0)
            since[copy] = at + 1
            if present is not None:
                told = tuple(self._returns[copy].tolist()), tuple(self._lengths[copy].tolist())
                self._episodes.append(EpisodeRecord(self.first + copy, self._summed + at + 1, present, *told))
                self._returns[copy], self._lengths[copy] = 0, 0
        self._summed += count
        self._steps += int(playing.sum())
        if self.keep:
            ends: Array = np.zeros((count, self.count), np.bool_)
            for at, copy, _ in self._ends:
                ends[at, copy] = True
            for name, column in (columns | {"ends": ends}).items():
                self._kept.setdefault(name, []).append(column.copy())
        self._empty()

    def collect(self, busy: int, frames: list[Any], failed: tuple[tuple[int, int, int], Failure] | None = None) -> ShardResults:
        """The events since this was last called."""
        if self._at:
            self._sum_up()
        log = {name: np.concatenate(parts) for name, parts in self._kept.items()}
        if self._seen:
            log["seen"] = np.array(self._seen)
        digests = [b"".join(one.digest() for one in hashes) for hashes in self._hashes]
        results = ShardResults(self._episodes, self._steps, busy, digests, log, frames, failed)
        self._forget()
        return results
