"""Asking a policy about rows: which of them make a batch, what each draws, and what each has been answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reactor_gymnasium.environments.storage import ObservationLayout
from reactor_gymnasium.evaluation.policies import AskedPolicy, PolicyCall, PolicyNoise, draws_of
from reactor_rl.plugin import draw_rows, drawn_noise

__all__ = ["Asking", "noise_of", "seed_of"]

Array = npt.NDArray[Any]

_EPISODE, _NOISE = 0, 1
"""The purpose of a stream of random numbers."""


def seed_of(seed: int, episode: int) -> int:
    """The seed of an episode's reset, below 2**31, which every environment accepts."""
    return int(np.random.SeedSequence(seed, spawn_key=(_EPISODE, episode)).generate_state(1)[0]) >> 1


def noise_of(seed: int, episode: int) -> np.random.Generator:
    """A policy's random numbers in an episode: the same ones at each step, for as many are drawn at each one before it."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(_NOISE, episode))))


class EpisodeStreams:
    """Noise for rows, each of whose episodes has a stream of its own.

    It is drawn for some steps at once, which takes a third of the time, and is the same as if it was drawn for each step.

    Args:
        noise: What a policy needs of it for an action.
        count: How many rows.
    """

    def __init__(self, noise: PolicyNoise, count: int) -> None:
        assert noise.kind != "generator"
        self.kind, self.ahead = noise.kind, max(1, min(16, 1024 // noise.width))
        self.generators: list[Any] = [None] * count
        self.drawn = draw_rows(noise.kind, self.generators, (count, self.ahead, noise.width))
        self.used = np.zeros(count, np.intp)

    def begin(self, row: int, generator: np.random.Generator) -> None:
        """A row begins an episode."""
        self.generators[row], self.used[row] = generator, self.ahead

    def take(self, rows: Sequence[int]) -> Array:
        """The next noise of some rows, ``(rows, width)``."""
        used = self.used[rows]
        if used.max(initial=0) == self.ahead:
            for place in np.flatnonzero(used == self.ahead).tolist():
                row = rows[place]
                self.drawn[row] = drawn_noise(self.kind, self.generators[row], self.drawn.shape[1:])
            used %= self.ahead
        self.used[rows] = used + 1
        taken: Array = self.drawn[rows, used]
        return taken


class Asking:
    """A policy, and the rows that it acts for.

    Args:
        policy: The policy.
        batch: Rows of one call, unless the policy answers each by itself.
        layout: Of an observation.
        count: How many rows.
        seed: Of the evaluation.

    Attributes:
        rows: The array leaves of all rows, ``(n, ...)`` as ``layout`` stores them; ``None`` if there are no such leaves.
    """

    def __init__(self, policy: AskedPolicy, batch: int, layout: ObservationLayout, count: int, seed: int) -> None:
        self.policy, self.layout, self.rows, self.count, self.seed = policy, layout, layout.memory(count), count, seed
        self.playing: list[int | None] = [None] * count
        self.memory: list[Any] = [None] * count
        self.starts = np.ones(count, np.bool_)
        self.generators: list[Any] = [None] * count
        self.noise = policy.noise
        self.streams = None if self.noise is None or self.noise.kind == "generator" else EpisodeStreams(self.noise, count)
        self.whole = policy.by_row and not layout.objects
        self.batch = count if self.whole else 1 if policy.single else batch
        self.given = self.rows if self.whole else layout.memory(self.batch)  # what the policy reads
        self.ask = None if layout.objects else policy.bind(self._assembled(None), self.batch)
        self.actions: Any = None

    def follow(self, playing: Sequence[int | None], begun: Sequence[int] | None = None) -> None:
        """Learn what the rows play.

        Args:
            playing: The number of each row's episode, ``None`` where it is idle.
            begun: Rows in which an episode has begun; by default those that play another one than before.
        """
        if begun is None:
            begun = [row for row, (before, now) in enumerate(zip(self.playing, playing, strict=True)) if now not in (before, None)]
        self.playing = list(playing)
        for row in begun:
            self.memory[row], self.starts[row], episode = None, True, playing[row]
            self.generators[row] = None if self.noise is None or episode is None else noise_of(self.seed, episode)
            if self.streams is not None:
                self.streams.begin(row, self.generators[row])

    def __call__(self, objects: Sequence[tuple[Any, ...]] | None = None, masks: Sequence[Array | None] | None = None) -> Any:
        """Actions for all rows: an array; a list if the space is not one of arrays, or dtypes differ. Idle rows have any.

        Args:
            objects: The object leaves of each row, if there are some.
            masks: Which choices each row allows, ``(choices,)``, bool, if the policy is told; ``None`` for idle ones.
        """
        active = [row for row, episode in enumerate(self.playing) if episode is not None]
        if self.whole:
            assert self.ask is not None
            return self.ask(PolicyCall(self._noise(active, active), self.memory, _stacked(masks, range(self.count))))
        for lo in range(0, len(active), self.batch):
            some = active[lo : lo + self.batch]
            self._put(some, self._answers(some, objects, masks))
        return self.actions

    def _answers(self, some: Sequence[int], objects: Sequence[tuple[Any, ...]] | None, masks: Sequence[Array | None] | None) -> Any:
        """The policy's answer for some rows, at most a batch of them; further ones are copies of the first."""
        filled = [*some, *[some[0]] * (self.batch - len(some))]
        if self.given is not None:
            assert self.rows is not None
            np.take(self.rows, filled, axis=0, out=self.given, mode="clip")
        ask = self.ask
        if ask is None:
            assert objects is not None
            ask = self.policy.bind(self._assembled([objects[row] for row in filled]), self.batch)
        memory = [self.memory[row] for row in filled]
        turn = PolicyCall(self._noise(range(len(some)), some), memory, _stacked(masks, filled), self.starts[filled])
        answers = ask(turn)
        self.starts[some] = False
        for row, kept in zip(some, turn.memory, strict=False):  # there are more of those where rows were filled up
            self.memory[row] = kept
        return answers

    def _put(self, some: Sequence[int], answers: Any) -> None:
        """Keep the answers for some rows; each has the dtype that the policy gave it, whatever others have been answered."""
        if isinstance(answers, np.ndarray):
            if self.actions is None:
                self.actions = np.zeros((self.count, *answers.shape[1:]), answers.dtype)
            if isinstance(self.actions, np.ndarray) and self.actions.dtype == answers.dtype:
                self.actions[some] = answers[: len(some)]
                return
            answers = answers.copy()
        if not isinstance(self.actions, list):
            self.actions = [None] * self.count if self.actions is None else list(self.actions.copy())
        for row, action in zip(some, answers, strict=False):
            self.actions[row] = action

    def _noise(self, places: Sequence[int], rows: Sequence[int]) -> Any:
        """The draws of rows, which have these places in a batch; what else is in it takes nothing from a generator."""
        if self.noise is None:
            return None
        if self.streams is not None:
            found = np.zeros((self.batch, self.noise.width), self.streams.drawn.dtype)
            found[places] = self.streams.take(rows)
            return found
        generators: list[Any] = [None] * self.batch
        for place, row in zip(places, rows, strict=True):
            generators[place] = self.generators[row]
        return draws_of(self.noise, generators)

    def _assembled(self, objects: list[tuple[Any, ...]] | None) -> Any:
        return self.layout.batched(self.given, objects, copy=False)


def _stacked(masks: Sequence[Array | None] | None, rows: Sequence[int]) -> Array | None:
    """The masks of some rows, ``(rows, choices)``; idle rows allow everything."""
    if masks is None:
        return None
    known = [masks[row] for row in rows]
    width = next((len(one) for one in known if one is not None), 0)
    return np.array([np.ones(width, np.bool_) if one is None else one for one in known])
