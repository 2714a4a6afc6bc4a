"""The reactors of an evaluation: rows that play episodes, and ask the policy themselves or are told what to do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from reactor_gymnasium.environments.gym_rows import GymRows
from reactor_gymnasium.environments.player import Numbered
from reactor_gymnasium.environments.rows import StepBuffers
from reactor_gymnasium.environments.storage import ObservationLayout
from reactor_gymnasium.evaluation.asking import Asking, seed_of
from reactor_gymnasium.evaluation.episodes import Played, allowed_by, numbered_player, objects_of, played
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
        self.makers, self.action_space, self.max_steps = makers, action_space, max_steps
        self.layout = ObservationLayout(observation_space, "unsafe")
        self.rows = GymRows(first, AutoresetMode.SAME_STEP)

    @reaction(startup)
    def build(self) -> None:
        """Make the environments, here where they will live."""
        self.seeds = Numbered(len(self.makers), partial(seed_of, 0))
        self.player = numbered_player(self.rows, self.seeds, self.makers, self.action_space, self.max_steps)
        self.ended: list[Played] = []

    @reaction(shutdown)
    def close(self) -> None:
        """Close every environment, even if closing one fails; the first error is raised."""
        self.rows.close()

    @reaction(episodes, uses=begin, effects=done)
    @abstractmethod
    def play(self) -> None:
        """Play on."""

    def _wake(self, out: StepBuffers | None) -> None:
        """Begin episodes where a row is idle."""
        self.seeds.queue.extend(self.episodes.value)
        self.player.begin(out)

    def _step(self, actions: Any, out: StepBuffers | None) -> None:
        self.ended += map(played, self.player.step(actions, out))

    def _finish(self) -> None:
        """Send what has ended."""
        self.player.log.settle()
        ended, self.ended = self.ended, []
        self.done.set(ended)


class AskingShard(EpisodeShard):
    """Asks its own copy of the policy; takes several steps at a tick."""

    asking: Asking | None = None
    masked = False

    def play(self) -> None:
        rows, playing = self.rows, self.seeds.playing
        if self.begin.present:
            seed, policy, batch, self.masked = self.begin.value
            self.seeds.seed_of = partial(seed_of, seed)
            memory = self.layout.memory(len(playing))
            self.out = None if memory is None else StepBuffers(self.layout, memory)
            self.asking = Asking(decode(policy), batch, self.layout, memory, len(playing), self.action_space, seed)
        asking = self.asking
        assert asking is not None
        self._wake(self.out)
        for _ in range(STEPS):
            if self.player.idle:
                break
            asking.follow(playing)
            objects, masks = objects_of(rows, playing, self.layout), allowed_by(rows, playing) if self.masked else None
            self._step(asking(objects, masks), self.out)
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
        self.memory: npt.NDArray[Any] | None = None  # the buffer that `out` writes to
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
        rows, playing = self.rows, self.seeds.playing
        if self.begin.present:
            seed, _, _, self.masked = self.begin.value
            self.seeds.seed_of = partial(seed_of, seed)
        if self.layout.arrays:
            memory = self.observations.buffer
            if memory is not self.memory:
                self.memory, self.out = memory, StepBuffers(self.layout, memory)
        if self.actions.present:
            self._step(self.actions.value, self.out)
        self._wake(self.out)
        if self.layout.objects:
            self.objects.set(objects_of(rows, playing, self.layout))
        if self.masked:
            self.masks.set(allowed_by(rows, playing))
        self.playing.buffer[...] = [-1 if number is None else number for number in playing]
        self._finish()
