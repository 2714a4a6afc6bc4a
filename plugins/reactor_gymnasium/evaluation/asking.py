"""Asking a policy about rows: which of them make a batch, what each draws, and whether a row's answer depends on the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from reactor_gymnasium.environments.owning import own
from reactor_gymnasium.environments.storage import ObservationLayout
from reactor_gymnasium.evaluation.policies import (
    AskedPolicy,
    BoundPolicy,
    Noise,
    PolicyContext,
    Seeded,
    Turn,
    adapted,
    has_masks,
    is_plain,
    masks_of,
)
from reactor_rl.plugin import aligned_zeros, changed_generators, generator_states, global_random_state, one_numeric_thread

__all__ = ["BATCH", "Asking", "Chosen", "choose_batch", "noise_of", "seed_of"]

Array = npt.NDArray[Any]

BATCH = 32
"""Rows that are asked together where nothing else is said."""
_SAMPLES = 8
_EPISODE, _NOISE = 0, 1
"""The purpose of a stream of random numbers."""


def seed_of(seed: int, episode: int) -> int:
    """The seed of an episode's reset, below 2**31, which every environment accepts."""
    return int(np.random.SeedSequence(seed, spawn_key=(_EPISODE, episode)).generate_state(1)[0]) >> 1


def noise_of(seed: int, episode: int) -> np.random.Generator:
    """A policy's random numbers in an episode: the same ones at each step, for as many are drawn at each one before it."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(_NOISE, episode))))


class Asking:
    """A policy, and the rows that it acts for.

    Args:
        policy: The policy.
        batch: Rows of one call, unless the policy answers each by itself.
        layout: Of an observation.
        rows: The array leaves of all rows, ``(n, ...)`` as ``layout`` stores them; ``None`` if there are no such leaves.
        count: How many rows.
        space: Of actions.
        seed: Of the evaluation.
    """

    def __init__(
        self,
        policy: AskedPolicy,
        batch: int,
        layout: ObservationLayout,
        rows: Array | None,
        count: int,
        space: gymnasium.Space[Any],
        seed: int,
    ) -> None:
        self.policy, self.layout, self.rows, self.count, self.seed = policy, layout, rows, count, seed
        self.plain = is_plain(space)
        self.playing: list[int | None] = [None] * count
        self.memory: list[Any] = [None] * count
        self.starts = np.ones(count, np.bool_)
        self.generators: list[Any] = [None] * count
        self.noise = policy.noise
        self.whole = policy.by_row and not layout.objects
        self.batch = count if self.whole else 1 if policy.single else batch
        self.given = rows  # what the policy reads
        if not self.whole and layout.arrays:
            shape, dtype = layout.storage()
            self.given = aligned_zeros((self.batch, *shape), dtype)
        self.ask = None if layout.objects else policy.bind(self._assembled(None), self.batch)
        self.actions: Any = None

    def follow(self, playing: Sequence[int | None], begun: Sequence[int]) -> None:
        """Learn what the rows play.

        Args:
            playing: The number of each row's episode, ``None`` where it is idle.
            begun: Rows in which an episode has begun.
        """
        self.playing = list(playing)
        for row in begun:
            self.memory[row], self.starts[row], episode = None, True, playing[row]
            self.generators[row] = None if self.noise is None or episode is None else noise_of(self.seed, episode)

    def __call__(self, objects: Sequence[tuple[Any, ...]] | None = None, masks: Sequence[Array | None] | None = None) -> Any:
        """Actions for all rows: an array, or a list where the space is not one of arrays. Idle rows have any.

        Args:
            objects: The object leaves of each row, if there are some.
            masks: Which choices each row allows, ``(choices,)``, bool, if the policy is told; ``None`` for idle ones.
        """
        active = [row for row, episode in enumerate(self.playing) if episode is not None]
        if self.whole:
            assert self.ask is not None
            return self.ask(Turn(self._noise(range(self.count)), self.memory, _stacked(masks, range(self.count))))
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
        turn = Turn(self._noise(some), memory, _stacked(masks, filled), self.starts[filled])
        answers = ask(turn)
        self.starts[some] = False
        for row, kept in zip(some, turn.memory, strict=False):  # there are more of those where rows were filled up
            self.memory[row] = kept
        return answers

    def _put(self, some: Sequence[int], answers: Any) -> None:
        if not self.plain:
            if self.actions is None:
                self.actions = [None] * self.count
            for row, action in zip(some, answers, strict=False):
                self.actions[row] = action
            return
        if self.actions is None:
            self.actions = np.zeros((self.count, *answers.shape[1:]), answers.dtype)
        elif self.actions.dtype != answers.dtype:  # what other rows have been answered stays
            self.actions = self.actions.astype(np.result_type(self.actions, answers))
        self.actions[some] = answers[: len(some)]

    def _noise(self, rows: Sequence[int]) -> Any:
        """The draws of rows, and as many for those that fill up a batch, which take nothing from them."""
        if self.noise is None:
            return None
        missing = self.batch - len(rows)
        if self.noise.kind == "generator":
            return [*(self.generators[row] for row in rows), *(np.random.default_rng(0) for _ in range(missing))]
        drawn = np.zeros((self.batch, self.noise.width))
        for at, row in enumerate(rows):
            generator = self.generators[row]
            if generator is not None and self.playing[row] is not None:  # idle rows stay what they are
                draw = generator.random if self.noise.kind == "uniform" else generator.standard_normal
                draw(out=drawn[at])
        return drawn

    def _assembled(self, objects: list[tuple[Any, ...]] | None) -> Any:
        return self.layout.batched(self.given, objects, copy=False)


def _stacked(masks: Sequence[Array | None] | None, rows: Sequence[int]) -> Array | None:
    """The masks of some rows, ``(rows, choices)``; idle rows allow everything."""
    if masks is None:
        return None
    known = [masks[row] for row in rows]
    width = next((len(one) for one in known if one is not None), 0)
    return np.array([np.ones(width, np.bool_) if one is None else one for one in known])


class Chosen:
    """A policy, and how it is asked.

    Attributes:
        policy: As it is asked.
        batch: Rows of a call.
        alone: Whether an answer does not depend on the rows beside it, as far as it was tried.
        how: The same in words.
    """

    def __init__(self, policy: AskedPolicy, batch: int, alone: bool, how: str) -> None:
        self.policy, self.batch, self.alone, self.how = policy, batch, alone, how


def choose_batch(policy: Any, context: PolicyContext, env: Any, batch_size: int | None) -> Chosen:
    """Find out how a policy is to be asked, by asking it about some observations of an environment that is thrown away.

    Args:
        policy: As the user has passed it.
        context: What it is to act in.
        env: An environment that is thrown away.
        batch_size: Rows of a call; ``None`` for :data:`BATCH`, if an answer does not depend on the rows beside it, else 1.

    Raises:
        TypeError, ValueError: If it is not a policy, or does not fit.
        Exception: What the policy raises.
    """
    asked = adapted(policy, context)
    if asked.masked and not has_masks(env):
        asked.without_masks(env)
    with one_numeric_thread(), global_random_state():
        trial = _Trial(context, env)
        trial.look_around(asked)
        return _chosen(asked, trial, batch_size)


def _chosen(asked: AskedPolicy, trial: _Trial, batch_size: int | None) -> Chosen:
    if asked.by_row:
        trial.answers(asked, 1, [0])
        return Chosen(asked, 1, True, "every row by itself, by construction")
    before = generator_states()
    for number in range(len(trial.observations)):  # where agents take turns, not all of them are asked about the first one
        trial.answers(asked, 1, [number])
    if changed_generators(before):
        asked = Seeded(asked)
        trial.answers(asked, 1, [0])
        return Chosen(asked, 1, True, "row by row: it draws from the process's generators, which are seeded for each step")
    if trial.remembers:
        return Chosen(asked, 1, True, "row by row: it remembers what it has seen of an episode")
    batch = 1 if asked.single else BATCH if batch_size is None else batch_size
    if batch == 1:
        return Chosen(asked, 1, True, "row by row")
    alone = trial.is_alone(asked, batch)
    if not alone and batch_size is None:
        return Chosen(asked, 1, True, f"row by row: in batches of {batch} its answers depend on the other rows")
    if alone:
        return Chosen(asked, batch, True, f"in batches of {batch} rows, where an answer does not depend on the others (tried)")
    how = f"in batches of {batch} rows, in which answers depend on the other rows: with another num_envs they differ"
    return Chosen(asked, batch, False, how)


class _Trial:
    """Asks a policy about a few observations.

    Args:
        context: What it is to act in.
        env: An environment that is thrown away.
    """

    def __init__(self, context: PolicyContext, env: Any) -> None:
        self.env, self.layout = env, ObservationLayout(context.observation_space, "unsafe")
        self.observations = [own(env.reset(seed=0)[0])]
        self.masks = [masks_of(env)] if has_masks(env) else []
        self.remembers = False

    def look_around(self, policy: AskedPolicy) -> None:
        """Take a few steps with the policy; fewer if the environment fails, which is to be seen later."""
        while len(self.observations) < _SAMPLES:
            before = len(self.observations)
            turn, ask = self._asked(policy, 1, [before - 1])
            action = ask(turn)[0]
            try:
                observation, _, terminated, truncated, _ = self.env.step(action)
                if terminated or truncated:
                    observation, _ = self.env.reset()
            except Exception:
                return
            self.observations.append(own(observation))
            if self.masks:
                self.masks.append(masks_of(self.env))

    def answers(self, policy: AskedPolicy, batch: int, which: Sequence[int]) -> list[Any]:
        """The outputs that it is chosen by, for the observations of these numbers, which fill a batch."""
        turn, ask = self._asked(policy, batch, which, raw=True)
        found = ask(turn)
        self.remembers = self.remembers or any(one is not None for one in turn.memory)
        return [own(one) for one in found]

    def _asked(self, policy: AskedPolicy, batch: int, which: Sequence[int], raw: bool = False) -> tuple[Turn, BoundPolicy]:
        """A turn, and the policy bound to the observations of these numbers."""
        layout, rows = self.layout, None
        if layout.arrays:
            shape, dtype = layout.storage()
            rows = aligned_zeros((batch, *shape), dtype)
            write = layout.writer(rows)
            for row, number in enumerate(which):
                write(row, self.observations[number])
        objects = [layout.take_objects(self.observations[number]) for number in which] if layout.objects else None
        observations = layout.batched(rows, objects, copy=False)
        masks = np.array([self.masks[number] for number in which]) if policy.masked else None
        turn = Turn(_trial_noise(policy.noise, which), [None] * batch, masks)
        return turn, (policy.raw if raw else policy.bind)(observations, batch)

    def is_alone(self, policy: AskedPolicy, batch: int) -> bool:
        """Whether it answers the same for an observation wherever it is in a batch, and beside whichever others."""
        known: dict[int, list[bytes]] = {}
        n = len(self.observations)
        orders = [[(row * step + shift) % n for row in range(batch)] for shift in range(n) for step in (0, 1, 3)]
        for which in orders:
            for number, answer in zip(which, self.answers(policy, batch, which), strict=True):
                known.setdefault(number, []).append(_bytes(answer))
        return all(len(set(answers)) == 1 for answers in known.values())


def _trial_noise(noise: Noise | None, which: Sequence[int]) -> Any:
    if noise is None:
        return None
    generators = [noise_of(0, number) for number in which]
    if noise.kind == "generator":
        return generators
    return np.array(
        [one.random(noise.width) if noise.kind == "uniform" else one.standard_normal(noise.width) for one in generators]
    )


def _bytes(answer: Any) -> bytes:
    return np.asarray(answer).tobytes() if isinstance(answer, np.ndarray | np.generic) else repr(answer).encode()
