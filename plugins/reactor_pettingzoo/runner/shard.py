"""What shards of copies have in common, whoever asks the policies: they make them, begin runs, step and close them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reactor_gymnasium.plugin import close_all
from reactor_pettingzoo.runner.account import Account
from reactor_pettingzoo.runner.copies import Copy, Together, Turns
from reactor_pettingzoo.runner.groups import Group
from reactor_pettingzoo.runner.roster import Roster
from reactor_rl import Input, Output, Reactor, RunError, reaction, shutdown, startup
from reactor_rl.plugin import decode

__all__ = ["BEGIN", "Resets", "RunnerShard"]

Array = npt.NDArray[Any]

BEGIN = np.dtype([("seed", np.int64), ("episodes", np.int64), ("copies", np.int64), ("record", np.bool_)])
"""What a run begins with: its seed; how many episodes are wanted in all copies together, 0 for no limit; copies; what is kept."""


class Resets:
    """What the copies of a shard are reset with.

    Args:
        offsets: What each copy adds to a run's seed.
        each: Whether every episode is given a seed, drawn from the run's, the copy's offset and the episode's number. Else the
            first one alone is, the sum of the run's and the offset.
    """

    def __init__(self, offsets: Sequence[int], each: bool = False) -> None:
        self.offsets, self.each = tuple(offsets), each

    def part(self, lo: int, hi: int) -> Resets:
        """The same for some copies."""
        return Resets(self.offsets[lo:hi], self.each)

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
        resets: What they are reset with.
        roster: The agents.
        groups: The groups of policies.
        source: For each copy and agent, the number of the group that acts for it, ``(count, agents)``.
    """

    begin = Input()
    collect = Input()
    """Present when the shard is to hand over its results: whether it is to render its first copy, and how many steps to take."""
    results = Output()
    """What has happened since they were last handed over: :class:`~reactor_pettingzoo.runner.account.ShardResults`."""

    def __init__(self, env_fn: Any, first: int, resets: Resets, roster: Roster, groups: Sequence[Group], source: Array) -> None:
        self.env_fn, self.first, self.resets, self.roster = env_fn, first, resets, roster
        self.count = len(resets.offsets)
        self.groups, self.source = tuple(groups), source
        self.copies: list[Copy] = []

    @reaction(startup)
    def build(self) -> None:
        """Make the environments, here where they will live."""
        kind = Turns if self.roster.turns else Together
        agents = len(self.roster.agents)
        self.seen: Array = np.zeros(self.count, self.roster.record())
        self.none = [0.0] * agents
        self.acting: Array = np.zeros((self.count, agents), np.bool_)
        self.account = Account(self.first, self.count, agents, self.groups)
        for number in range(self.count):
            try:
                env = decode(self.env_fn)()
                source = self.source[number].tolist()
                self.copies.append(kind(env, self.roster, self.seen[number, ...], source, self.acting[number]))
            except Exception as error:
                error.add_note(f"while environment {self.first + number} was constructed")
                raise

    @reaction(shutdown)
    def close(self) -> None:
        """Close every environment, even if closing one fails; the first error is raised."""
        copies, self.copies = self.copies, []
        close_all(((index, copy.env) for index, copy in enumerate(copies, self.first)))

    # ------------------------------------------------------------------ a run

    def _begin(self, order: Any, renders: bool) -> None:
        """Begin a run: its first episodes."""
        self.seed, self.played = int(order["seed"]), [0] * self.count
        self.left: list[float] = []  # episodes that each copy is still to play
        self.account.begin(bool(order["record"]))
        self.working = 0  # the copy that somebody is at
        try:
            for number, copy in enumerate(self.copies):
                self.working, index = number, self.first + number
                wanted, copies = int(order["episodes"]), int(order["copies"])
                self.left.append(wanted // copies + (index < wanted % copies) if wanted else np.inf)
                if self.left[-1]:
                    copy.reset(self.resets.seed(self.seed, number, 0))
                    copy.show()
                else:
                    copy.idle()
        except Exception as error:
            self._blame(error)
            raise
        self.playing: Array = np.array(self.left) > 0
        self.frames: list[Any] = [self.copies[0].env.render()] if renders else []

    def _step(self, actions: Sequence[Sequence[Any]], renders: bool) -> None:
        """Take a step in every copy.

        Args:
            actions: For each copy what its :meth:`Copy.step` wants.
            renders: Whether the first copy is rendered.
        """
        rewards: list[float] = []
        number = 0
        try:
            for number, (copy, left, of_copy) in enumerate(zip(self.copies, self.left, actions, strict=True)):
                if not left:
                    rewards += self.none
                    continue
                rewards += copy.step(of_copy)
                if renders and not number:
                    self.frames.append(copy.env.render())
                if copy.over:
                    self._end(number, copy)
                copy.show()
        except Exception as error:
            self.working = number
            self._blame(error)
            raise
        self.account.close(rewards)

    def _end(self, number: int, copy: Copy) -> None:
        """End the episode of a copy, and begin its next one."""
        self.account.ended(number, copy.took_part())
        self.played[number] += 1
        self.left[number] -= 1
        if self.left[number]:
            copy.reset(self.resets.seed(self.seed, number, self.played[number]))
        else:
            copy.idle()
            self.playing = np.array(self.left) > 0

    def _blame(self, error: Exception) -> None:
        error.add_note(f"in environment {self.first + self.working}")

    def __getstate__(self) -> dict[str, Any]:
        if self.copies:
            raise RunError("the hashes of what has happened in a MultiAgentRunner's environments cannot be saved")
        return self.__dict__.copy()

    def _busy(self) -> int:
        return sum(map(bool, self.left))
