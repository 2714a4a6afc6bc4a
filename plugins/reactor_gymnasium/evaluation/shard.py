"""The reactors of an evaluation: rows that play episodes, and ask the policy themselves or are told what to do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from reactor_gymnasium.environments.rows import StepBuffers
from reactor_gymnasium.environments.storage import ObservationLayout
from reactor_gymnasium.evaluation.asking import Asking
from reactor_gymnasium.evaluation.episodes import Player
from reactor_rl import Input, Output, Reactor, reaction, shutdown, startup
from reactor_rl.plugin import Pickled, decode

__all__ = ["STEPS", "AskingShard", "EpisodeShard", "ToldShard"]

STEPS = 16
"""Steps that a shard takes at a tick, where it asks the policy itself."""


class EpisodeShard(Reactor, ABC):
    """A block of environments that play episodes, each of which begins where another one has ended.

    Args:
        makers: What makes each environment, encoded.
        first: Index of the first one.
        observation_space: Of each.
        action_space: Of each.
        max_steps: After how many steps an episode is cut off; ``None`` for never.
    """

    begin = Input()
    """At the first tick of an evaluation: its seed, the policy with the rows of a batch where it is asked here, and whether it is
    told which choices are allowed."""
    episodes = Input()
    """Numbers of episodes that are to begin as soon as there is a row for them."""
    done = Output()
    """Episodes that have ended, a list of :class:`~reactor_gymnasium.evaluation.episodes.Played`."""

    def __init__(
        self,
        makers: Sequence[Pickled],
        first: int,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        max_steps: int | None,
    ) -> None:
        self.action_space, self.layout = action_space, ObservationLayout(observation_space, "unsafe")
        self.player = Player(makers, first, self.layout, action_space, max_steps)

    @reaction(startup)
    def build(self) -> None:
        """Make the environments, here where they will live."""
        self.player.build()

    @reaction(shutdown)
    def close(self) -> None:
        """Close every environment, even if closing one fails; the first error is raised."""
        self.player.block.close()

    @reaction(episodes, uses=begin, effects=done)
    @abstractmethod
    def play(self) -> None:
        """Play on."""

    def _finish(self) -> None:
        """Send what has ended."""
        ended, self.player.ended = self.player.ended, []
        self.done.set(ended)


class AskingShard(EpisodeShard):
    """Asks its own copy of the policy; takes several steps at a tick."""

    asking: Asking | None = None
    masked = False

    def play(self) -> None:
        player = self.player
        if self.begin.present:
            seed, policy, batch, self.masked = self.begin.value
            player.seed = seed
            rows = player.rows()
            self.out = None if rows is None else StepBuffers(self.layout, rows)
            self.asking = Asking(decode(policy), batch, self.layout, rows, len(player.playing), self.action_space, seed)
        assert self.asking is not None
        player.queue.extend(self.episodes.value)
        player.wake(self.out)
        for _ in range(STEPS):
            if player.idle:
                break
            self.asking.follow(player.playing, player.begun)
            player.step(self.asking(player.objects(), player.masks() if self.masked else None), self.out)
        player.note()
        self._finish()


class ToldShard(EpisodeShard):
    """Is told actions by the caller, and takes a step at each tick."""

    actions = Input()
    """An action for each row: an array, or a list where the space is not one of arrays."""
    observations = Output((0,), np.uint8)
    objects = Output()
    masks = Output()
    playing = Output((0,), np.int64)
    """The number of each row's episode, -1 where it is idle."""

    def __init__(
        self,
        makers: Sequence[Pickled],
        first: int,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        max_steps: int | None,
    ) -> None:
        super().__init__(makers, first, observation_space, action_space, max_steps)
        self.masked = False
        self.rows: npt.NDArray[Any] | None = None  # the buffer that `out` writes to
        self.out: StepBuffers | None = None
        self.playing = Output((len(makers),), np.int64)
        if self.layout.arrays:
            shape, dtype = self.layout.storage()
            self.observations = Output((len(makers), *shape), dtype)

    @reaction(
        EpisodeShard.episodes,
        uses=(EpisodeShard.begin, actions),
        effects=(EpisodeShard.done, observations, objects, masks, playing),
    )
    def play(self) -> None:
        player = self.player
        if self.begin.present:
            player.seed, self.masked = self.begin.value[0], self.begin.value[3]
        if self.layout.arrays:
            rows = self.observations.buffer
            if rows is not self.rows:
                self.rows, self.out = rows, StepBuffers(self.layout, rows)
        if self.actions.present:
            player.step(self.actions.value, self.out)
            player.note()
        player.queue.extend(self.episodes.value)
        player.wake(self.out)
        if self.layout.objects:
            self.objects.set(player.objects())
        if self.masked:
            self.masks.set(player.masks())
        self.playing.buffer[...] = [-1 if number is None else number for number in player.playing]
        self._finish()
