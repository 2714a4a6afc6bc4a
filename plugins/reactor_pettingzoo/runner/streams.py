"""Random streams of a run: one for each environment and agent, whose noise actions are drawn with; and the global generators of
torch and numpy, lent to a policy while it is asked.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numpy.random import mtrand

from reactor_rl.plugin import NoiseKind, drawn_noise

__all__ = ["OwnStreams", "SeatStreams", "global_generators", "normals_kept"]

Array = npt.NDArray[Any]
global_generators = threading.RLock()
"""The threads of a process share its generators."""
AHEAD = 256
"""Ticks whose seeds are drawn at once, as making a generator takes far longer than a draw. Part of the results: another number
would give other seeds.
"""


class SeatStreams:
    """A stream for each environment and agent, keyed by (seed, environment, agent): how many others there are changes nothing."""

    def __init__(self, first: int, copies: int, agents: int) -> None:
        self.keys = [(environment, agent) for environment in range(first, first + copies) for agent in range(agents)]
        self.shape = copies, agents
        self.streams: list[np.random.Generator] = []

    def begin(self, seed: int) -> None:
        """Begin all streams of a seed."""
        self.streams = [np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key))) for key in self.keys]

    def take(self, kind: NoiseKind, steps: int, width: int) -> Array:
        """The next noise of all, ``(steps, copies, agents, width)``; a call of a generator costs more than many numbers of it."""
        of_each = [drawn_noise(kind, stream, (steps, width)) for stream in self.streams]
        return np.stack(of_each, 1).reshape(steps, *self.shape, width)


class OwnStreams:
    """Stands in for the global generators inside a ``with`` block: streams keyed by (seed, group of policies, tick).

    Python's ``random`` is not lent: that takes longer than many a policy.

    Attributes:
        tick: The tick of the run, counted by whoever asks; -1 before the first.
    """

    def __init__(self) -> None:
        self.tick = -1
        self._key = 0, 0
        self._block = -1
        self._seeds: list[list[int]] = []
        self._numpy = np.random.MT19937()
        self._before: list[tuple[torch.Tensor, Any]] = []

    def begin(self, seed: int, number: int) -> None:
        """Begin a run of a group of policies."""
        self._key, self.tick, self._block = (seed, number), -1, -1

    def __enter__(self) -> None:
        block, at = divmod(self.tick, AHEAD)
        if block != self._block:
            seed, number = self._key
            key = np.random.SeedSequence(seed, spawn_key=(number, 0, block))
            self._seeds, self._block = np.random.Generator(np.random.PCG64(key)).integers(2**32, size=(AHEAD, 2)).tolist(), block
        global_generators.acquire()
        self._before.append((torch.default_generator.get_state(), mtrand.get_bit_generator()))
        by_torch, by_numpy = self._seeds[at]
        torch.default_generator.manual_seed(by_torch)
        mtrand.set_bit_generator(self._numpy)
        np.random.seed(by_numpy)

    def __exit__(self, *error: object) -> None:
        by_torch, by_numpy = self._before.pop()
        torch.default_generator.set_state(by_torch)
        mtrand.set_bit_generator(by_numpy)
        global_generators.release()


@contextlib.contextmanager
def normals_kept() -> Iterator[None]:
    """Keep the second number of a pair that ``np.random.normal`` has drawn: lending its generator forgets it."""
    before: Any = np.random.get_state(legacy=False)
    try:
        yield
    finally:
        after: Any = np.random.get_state(legacy=False)
        if before.get("has_gauss") and _same(before["state"], after["state"]):
            np.random.set_state(before)


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(value, other[key]) for key, value in one.items())
