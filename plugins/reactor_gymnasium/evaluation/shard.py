"""The reactors of an evaluation: rows that play episodes, and ask the policy themselves or are told what to do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from reactor_gymnasium.environments.gym_rows import GymRows
from reactor_gymnasium.environments.player import EndedEpisode
from reactor_gymnasium.environments.rows import StepBuffers
from reactor_gymnasium.environments.storage import ObservationLayout
from reactor_gymnasium.evaluation.asking import seed_of
from reactor_gymnasium.evaluation.episodes import NumberedPlayer, played
from reactor_rl import Input, Output, Reactor, reaction, shutdown, startup
from reactor_rl.plugin import Pickled, decode

__all__ = ["STEPS", "AskingShard", "EpisodeShard", "ToldShard"]

STEPS = 16
"""Steps that a shard takes at a tick, where it asks the policy itself. A tick costs some microseconds, and what is told to the
caller at its end comes later the more steps there are. Chosen, not measured.
"""


class EpisodeShard(Reactor, ABC):
    """A block of environments that play episodes, each of which begins where another one has ended.

    Args:
        makers: What makes each environment, encoded.
        first: Index of the first one.
        layout: Of an observation.
        action_space: Of each.
        max_steps: After how many steps an episode is cut off; ``None`` for never.
    """

    begin = Input()
    """At the first tick of an evaluation: its seed, the policy with the rows of a batch where it is asked here, and whether it is
    told which choices are allowed."""
    episodes = Input()
    """Numbers of episodes that are to begin as soon as there is a row for them."""
    done = Output()
    """Episodes that have ended, a list of :class:`~reactor_gymnasium.environments.player.EndedEpisode`."""

    def __init__(
        self,
        makers: Sequence[Pickled],
        first: int,
        layout: ObservationLayout,
        action_space: gymnasium.Space[Any],
        max_steps: int | None,
    ) -> None:
        self.makers, self.layout, self.action_space, self.max_steps = makers, layout, action_space, max_steps
        self.rows = GymRows(first, AutoresetMode.SAME_STEP)

    @reaction(startup)
    def build(self) -> None:
        """Make the environments, here where they will live."""
        self.player = NumberedPlayer(self.rows, self.makers, self.layout, self.action_space, self.max_steps)

    @reaction(shutdown)
    def close(self) -> None:
        """Close every environment, even if closing one fails; the first error is raised."""
        self.rows.close()

    @reaction(episodes, uses=begin, effects=done)
    @abstractmethod
    def play(self) -> None:
        """Play on."""


class AskingShard(EpisodeShard):
    """Asks its own copy of the policy; takes several steps at a tick."""

    def play(self) -> None:
        player = self.player
        if self.begin.present:
            seed, policy, batch, _ = self.begin.value
            player.ask(decode(policy), batch, seed)
        player.queue.extend(self.episodes.value)
        player.begin(player.out)
        ended: list[EndedEpisode] = []
        for _ in range(STEPS):
            if player.idle:
                break
            ended += player.step(player.actions(), player.out)
        player.log.settle()
        self.done.set(list(map(played, ended)))


class ToldShard(EpisodeShard):
    """Is told actions by the caller, and takes a step at each tick."""

    actions = Input()
    """An action for each row: an array, or a list where the space is not one of arrays."""
    observations = Output((0,), np.uint8)
    objects = Output()
    masks = Output()
    playing = Output((0,), np.int64)
    """The number of each row's episode, -1 where it is idle."""

    def __init__(self, makers: Sequence[Pickled], *arguments: Any) -> None:
        super().__init__(makers, *arguments)
        self.masked = False
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
            seed, _, _, self.masked = self.begin.value
            player.seeds.seed_of = partial(seed_of, seed)
        if self.layout.arrays:
            memory = self.observations.buffer
            if player.out is None or player.out.observations is not memory:
                player.out = StepBuffers(self.layout, memory)
        ended = player.step(self.actions.value, player.out) if self.actions.present else []
        player.queue.extend(self.episodes.value)
        player.begin(player.out)
        if self.layout.objects:
            self.objects.set(player.objects())
        if self.masked:
            self.masks.set(player.allowed())
        self.playing.buffer[...] = [-1 if number is None else number for number in player.playing]
        player.log.settle()
        self.done.set(list(map(played, ended)))
