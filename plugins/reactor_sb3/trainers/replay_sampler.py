"""Minibatches from SB3's replay buffers, gathered into tensors that are made once: one pass over memory for each field."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.common.vec_env import VecNormalize

from reactor_torch import drawing_nothing, gather

__all__ = ["ReplaySampler"]

Array = npt.NDArray[Any]


class ReplaySampler:
    """Gives what ``buffer.sample(batch_size, env)`` gives, bit for bit, and draws from a generator of its own.

    The buffer's own method draws from ``np.random``, which another thread of the program may draw from, too.

    Args:
        buffer: Of a class in :data:`reactor_sb3.trainers.replay.BLOCKWISE`.
        batch_size: Rows of a minibatch.
        random: Where the rows come from.
        normalizer: What normalises observations and rewards, if anything does.

    Attributes:
        arrays: Number of the arrays that it was made of, see :class:`reactor_sb3.trainers.replay.KeptArrays`.
    """

    arrays = 0

    def __init__(
        self, buffer: ReplayBuffer, batch_size: int, random: np.random.Generator, normalizer: VecNormalize | None = None
    ) -> None:
        self.buffer, self.batch_size, self.normalizer = buffer, batch_size, normalizer
        self._generator = random
        self._random = np.random.RandomState(random.bit_generator)  # whose numbers are those of np.random's functions
        n_steps = buffer.n_steps if isinstance(buffer, NStepReplayBuffer) else 1
        self._observations = _Observations(buffer.observations, batch_size, buffer.device)
        following = buffer.observations if buffer.optimize_memory_usage else buffer.next_observations
        self._next_observations = _Observations(following, batch_size, buffer.device)
        self._actions = _Column(buffer.actions, batch_size)
        self._rewards, self._dones, self._timeouts = (
            _Column(column, batch_size, n_steps) for column in (buffer.rewards, buffer.dones, buffer.timeouts)
        )
        now, later = [*self._observations.columns.values(), self._actions], [*self._next_observations.columns.values()]
        ends = [self._rewards, self._dones, self._timeouts]
        # With n steps each of these is taken from other rows; else as many as possible from the same.
        self._now, self._next, self._ends = _Columns(now), _Columns(later), _Columns(ends)
        self._ended, self._all = _Columns(now + ends), _Columns(now + ends + later)

    def begin(self) -> None:
        """To be called before the first of some minibatches that nothing is stored between."""

    def sample(self) -> ReplayBufferSamples:
        """A minibatch, valid until the next one is sampled; see SB3's ``ReplayBuffer.sample``."""
        with drawing_nothing():  # from torch's generator
            return self._sampled()

    def _sampled(self) -> ReplayBufferSamples:
        buffer = self.buffer
        steps, envs = self._drawn()
        rows = steps * buffer.n_envs + envs
        if isinstance(buffer, NStepReplayBuffer):
            last, *of_n_steps = self._of_n_steps(buffer, steps, envs)
            self._now.take(rows)
            self._next.take(last)
            return self._given(*map(torch.from_numpy, of_n_steps))
        if buffer.optimize_memory_usage:
            self._ended.take(rows)
            self._next.take((steps + 1) % buffer.buffer_size * buffer.n_envs + envs)
        else:
            self._all.take(rows)
        return self._given(*self._one_step())

    def _one_step(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Whether nothing follows the transitions that were taken, and their rewards."""
        # In place, as these rows are the sampler's own. A time limit ends an episode, but something would have followed.
        self._dones.rows *= 1 - self._timeouts.rows
        if self.normalizer is None:
            return self._dones.tensor, self._rewards.tensor
        return self._dones.tensor, torch.as_tensor(self._normalized_rewards(self._rewards.rows))

    def _given(self, dones: torch.Tensor, rewards: torch.Tensor, discounts: torch.Tensor | None = None) -> ReplayBufferSamples:
        device = self.buffer.device
        return ReplayBufferSamples(
            self._observations.taken(self.normalizer),
            _on(device, self._actions.tensor),
            self._next_observations.taken(self.normalizer),
            _on(device, dones),
            _on(device, rewards),
            None if discounts is None else _on(device, discounts),
        )

    def _normalized_rewards(self, rewards: Array) -> Array:
        return rewards if self.normalizer is None else self.normalizer.normalize_reward(rewards).astype(np.float32)

    def _drawn(self) -> tuple[Array, Array]:
        """Steps and environments of the rows, ``(batch_size,)``."""
        buffer = self.buffer
        if buffer.optimize_memory_usage and buffer.full:  # what follows the newest one has been overwritten by the oldest
            steps = (self._random.randint(1, buffer.buffer_size, size=self.batch_size) + buffer.pos) % buffer.buffer_size
        else:
            steps = self._random.randint(0, buffer.size(), size=self.batch_size)
        if buffer.n_envs == 1:  # of one, SB3 draws nothing either
            return steps, np.zeros_like(steps)
        return steps, self._random.randint(0, buffer.n_envs, size=self.batch_size)

    def _of_n_steps(self, buffer: NStepReplayBuffer, steps: Array, envs: Array) -> tuple[Array, Array, Array, Array]:
        """Rewards of up to n steps that follow each other.

        Returns:
            The last of these transitions, ``(batch_size,)``; whether nothing follows it, the discounted sum of the rewards, and the
            discount of what follows, each ``(batch_size, 1)``.
        """
        later = np.arange(buffer.n_steps)
        each = (steps[:, None] + later) % buffer.buffer_size * buffer.n_envs + envs[:, None]
        newest = buffer.pos - 1
        before = buffer.timeouts[newest].copy()
        buffer.timeouts[newest] = np.logical_or(before, buffer.dones[newest] == 0)  # the oldest one does not follow it
        self._ends.take(each.reshape(-1))
        buffer.timeouts[newest] = before
        dones, timeouts, rewards = self._dones.rows, self._timeouts.rows, self._normalized_rewards(self._rewards.rows)
        ends = np.logical_or(dones, timeouts)
        count = np.where(ends.any(1), ends.argmax(1), buffer.n_steps - 1)[:, None]
        rewards *= buffer.gamma ** later.astype(np.float32)
        # Rewards behind the end of an episode become 0. Their sum still has n numbers, as SB3's has, and so the same bits.
        rewards *= later <= count
        final = np.take_along_axis(dones, count, 1) * (1 - np.take_along_axis(timeouts, count, 1))
        discounts = buffer.gamma ** (count + 1).astype(np.float32)
        return np.take_along_axis(each, count, 1)[:, 0], final, rewards.sum(1, keepdims=True), discounts


def _on(device: torch.device, tensor: torch.Tensor) -> torch.Tensor:
    """A tensor on a device. Between two updates, when a processor's caches are full of weights, asking torch takes microseconds."""
    return tensor if device.type == "cpu" else tensor.to(device)


class _Column:
    """An array of a buffer, ``(steps, envs, ...)``, and memory for some of its rows, ``(*shape, ...)``."""

    def __init__(self, column: Array, *shape: int) -> None:
        self.column = column.reshape(-1, *column.shape[2:])  # a view, as all that SB3 makes is contiguous
        one = torch.from_numpy(column[:1, :1])
        # Memory of torch's begins at a cache line, which the last bits of products depend on.
        self.tensor = torch.empty(*shape, *one.shape[2:], dtype=one.dtype)
        self.rows: Array = self.tensor.numpy()
        self.flat = self.rows.reshape(-1, *self.column.shape[1:])


class _Columns:
    """Columns whose rows are gathered in one call."""

    def __init__(self, columns: list[_Column]) -> None:
        self.sources, self.targets = tuple(one.column for one in columns), tuple(one.flat for one in columns)

    def take(self, rows: npt.NDArray[np.int64]) -> None:
        """Gather rows; what was gathered before is overwritten."""
        gather(rows, self.sources, self.targets)


class _Observations:
    """The columns of observations: one, or one for each key."""

    def __init__(self, observations: Any, rows: int, device: torch.device) -> None:
        self.keyed, self.device = isinstance(observations, dict), device
        parts = observations if self.keyed else {"": observations}
        self.columns = {key: _Column(part, rows) for key, part in parts.items()}

    def taken(self, normalizer: VecNormalize | None) -> Any:
        """Observations that have been gathered, as SB3 has them."""
        if normalizer is None:
            parts = {key: _on(self.device, column.tensor) for key, column in self.columns.items()}
            return parts if self.keyed else parts[""]
        taken: Any = {key: column.rows for key, column in self.columns.items()}
        normalized: Any = normalizer.normalize_obs(taken if self.keyed else taken[""])
        # In memory of torch's, see _Column.
        return (
            {key: torch.tensor(part, device=self.device) for key, part in normalized.items()}
            if self.keyed
            else torch.tensor(normalized, device=self.device)
        )
