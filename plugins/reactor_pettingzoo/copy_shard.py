"""The reactor that holds a contiguous block of copies of the environment, and keeps account of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reactor_gymnasium.closing import close_all
from reactor_pettingzoo.census import Census
from reactor_pettingzoo.copies import Copy, Together, Turns
from reactor_pettingzoo.inference import Group
from reactor_rl import Input, Output, Reactor, reaction, shutdown, startup
from reactor_rl.fingerprint import new_hash
from reactor_rl.serialise import decode

__all__ = ["BEGIN", "CopyShard", "Ended", "Told"]

Array = npt.NDArray[Any]

BEGIN = np.dtype([("seed", np.int64), ("episodes", np.int64), ("copies", np.int64), ("record", np.bool_)])
"""What a run begins with: its seed; how many episodes are wanted in all copies together, 0 for no limit; copies; what is kept."""


@dataclass(frozen=True)
class Ended:
    """An episode that has ended: in which copy, at which tick of the run; of each agent whether it took part, its return, and the
    steps in which it acted.
    """

    copy: int
    tick: int
    present: tuple[bool, ...]
    returns: tuple[float, ...]
    lengths: tuple[int, ...]


@dataclass(frozen=True)
class Told:
    """What a shard has to tell since it was last asked.

    Attributes:
        episodes: Those that have ended.
        steps: Taken in all copies together.
        busy: Copies that go on.
        digests: Of each copy, a hash of all that has happened in it.
        log: What is kept if asked for, by name, each ``(ticks, copies, ...)``.
        frames: What was rendered.
    """

    episodes: list[Ended]
    steps: int
    busy: int
    digests: list[bytes]
    log: dict[str, Array]
    frames: list[Any]


class CopyShard(Reactor):
    """Copies ``first``, ``first + 1``, ... of the environment.

    Args:
        env_fn: Makes one; encoded.
        first: Index of the first one.
        offsets: What each of them adds to a run's seed for its first reset.
        census: The agents.
        groups: Of policies, as far as the actions' layout goes.
        source: For each copy and agent, the number of the group that acts for it, ``(count, agents)``.
    """

    begin = Input()
    actions = Input()
    """Of each group a row: actions of every copy, also of those elsewhere, as bytes, ``(groups, copies, width)``."""
    report = Input()
    """Present when the shard is to say what has happened; ``True`` if it is to render its first copy, too."""
    observations = Output((0,), np.uint8)
    told = Output()

    def __init__(
        self, env_fn: Any, first: int, offsets: Sequence[int], census: Census, groups: Sequence[Group], source: Array
    ) -> None:
        self.env_fn, self.first, self.offsets, self.census = env_fn, first, tuple(offsets), census
        self.count = count = len(self.offsets)
        self.shapes = [(group.width, group.dtype, group.shape) for group in groups]
        self.source = source
        self.observations = Output((count,), census.record())
        self.copies: list[Copy] = []

    @reaction(startup)
    def build(self) -> None:
        """Make the environments, here where they will live."""
        kind = Turns if self.census.turns else Together
        self.seen: Array = np.zeros(self.count, self.census.record())
        self.bytes = self.seen.view(np.uint8)
        self.slots: dict[int, tuple[Array, Array]] = {}
        self.views: dict[int, tuple[Array, list[Array]]] = {}
        self.none = [0.0] * len(self.census.agents)
        self.acting: Array = np.zeros((self.count, len(self.census.agents)), np.bool_)
        for number in range(self.count):
            try:
                env = decode(self.env_fn)()
                source = self.source[number].tolist()
                self.copies.append(kind(env, self.census, self.seen[number, ...], source, self.acting[number]))
            except Exception as error:
                error.add_note(f"while environment {self.first + number} was constructed")
                raise

    @reaction(begin, actions, uses=report, effects=(observations, told))
    def step(self) -> None:
        """Take a step in every copy, or begin a run."""
        self.renders = self.report.present and self.report.value
        if self.begin.present:
            self._begin(self.begin.value)
        else:
            self._step()
        buffer = self.observations.buffer
        slot = self.slots.get(id(buffer))
        if slot is None:
            slot = self.slots[id(buffer)] = buffer, buffer.view(np.uint8)
        slot[1][...] = self.bytes  # field by field takes ten times as long
        if self.report.present:
            self.told.set(self._tell())

    def _begin(self, order: Any) -> None:
        agents = len(self.census.agents)
        self.keep = bool(order["record"])
        self.left: list[float] = []  # episodes that each copy is still to play
        self.totals, self.lengths = np.zeros((self.count, agents)), np.zeros((self.count, agents), np.int64)
        self.ticks = 0
        self.episodes: list[Ended] = []
        self.hashes = [[new_hash() for _ in range(2 + len(self.shapes))] for _ in range(self.count)]
        self._forget()
        for number, copy in enumerate(self.copies):
            index = self.first + number
            wanted, copies = int(order["episodes"]), int(order["copies"])
            self.left.append(wanted // copies + (index < wanted % copies) if wanted else np.inf)
            if self.left[-1]:
                self._guarded(number, copy.reset, int(order["seed"]) + self.offsets[number])
            else:
                copy.idle()
        self.playing = np.array(self.left) > 0
        self.frames: list[Any] = [self.copies[0].env.render()] if self.renders else []

    def _forget(self) -> None:
        self.logged: list[tuple[Array, Array, list[Array]]] = []
        self.rewards: list[Array] = []
        self.seen_before: list[Array] = []
        self.ends: list[Array] = []

    def _step(self) -> None:
        actions = [of_group.copy() for of_group in self._views(self.actions.value)]
        acted = self.acting.copy()
        self.logged.append((acted, self.playing, actions))
        if self.keep:
            self.seen_before.append(self.seen.copy())
        # Plain numbers are what most environments expect.
        given = [of_group.tolist() if of_group.ndim == 2 else list(of_group) for of_group in actions]
        rewards: list[list[float]] = []
        ended = []
        number = 0
        try:
            for number, (copy, left, *of_copy) in enumerate(zip(self.copies, self.left, *given, strict=True)):
                if left:
                    rewards.append(copy.step(of_copy))
                    if copy.over:
                        ended.append(number)
                else:
                    rewards.append(self.none)
        except Exception as error:
            error.add_note(f"in environment {self.first + number}")
            raise
        self.ticks += 1
        found = self._as_array(rewards)
        self.rewards.append(found)
        self.totals += found
        self.lengths += acted
        if self.keep:
            ends = np.zeros(self.count, np.bool_)
            ends[ended] = True
            self.ends.append(ends)
        if self.renders:
            self.frames.append(self.copies[0].env.render())
        for number in ended:
            self._end(number)

    def _views(self, actions: Array) -> list[Array]:
        """This shard's part of each group's actions, as what they are."""
        found = self.views.get(id(actions))
        if found is None:
            mine = actions[:, self.first : self.first + self.count]
            views = [
                mine[number, :, :width].view(dtype).reshape(self.count, *shape)
                for number, (width, dtype, shape) in enumerate(self.shapes)
            ]
            found = self.views[id(actions)] = actions, views
        return found[1]

    def _as_array(self, rewards: list[list[float]]) -> Array:
        try:
            return np.array(rewards, np.float64)
        except (TypeError, ValueError):  # an array of one element is a reward too
            return np.array([[np.asarray(reward, np.float64).item() for reward in of_copy] for of_copy in rewards])

    def _end(self, number: int) -> None:
        totals, lengths = self.totals[number], self.lengths[number]
        present = tuple(agent in self.copies[number].present for agent in self.census.agents)
        self.episodes.append(Ended(self.first + number, self.ticks, present, tuple(totals.tolist()), tuple(lengths.tolist())))
        totals.fill(0)
        lengths.fill(0)
        self.left[number] -= 1
        if self.left[number]:
            self._guarded(number, self.copies[number].reset, None)
        else:
            self.copies[number].idle()
            self.playing = np.array(self.left) > 0

    def _guarded(self, number: int, function: Any, argument: Any) -> Any:
        try:
            return function(argument)
        except Exception as error:
            error.add_note(f"in environment {self.first + number}")
            raise

    # ------------------------------------------------------------------ what has happened

    def _tell(self) -> Told:
        log: dict[str, Array] = {}
        taken = 0
        if self.logged:
            acted, playing, actions = zip(*self.logged, strict=True)
            played = np.array(playing)
            taken = int(played.sum())
            log = {"acted": np.array(acted), "rewards": np.array(self.rewards)}
            log |= {f"actions.{number}": np.array(of_group) for number, of_group in enumerate(zip(*actions, strict=True))}
            for number, hashes in enumerate(self.hashes):
                for column, one in zip(log.values(), hashes, strict=True):
                    one.update(column[played[:, number], number].tobytes())
            if self.keep:
                log |= {"seen": np.array(self.seen_before), "ends": np.array(self.ends)}
        self._forget()
        told = Told(
            self.episodes,
            taken,
            sum(map(bool, self.left)),
            [b"".join(one.digest() for one in hashes) for hashes in self.hashes],
            log if self.keep else {},
            self.frames,
        )
        self.episodes, self.frames = [], []
        return told

    @reaction(shutdown)
    def close(self) -> None:
        """Close every environment, even if closing one fails; the first error is raised."""
        copies, self.copies = self.copies, []
        close_all(((index, copy.env) for index, copy in enumerate(copies, self.first)))
