"""Random streams keyed by what they are for: (seed, purpose, index). None is shared, so none depends on who draws first."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from enum import IntEnum
from typing import Any

import numpy as np
import torch

from reactor_rl.plugin import one_numeric_thread
from reactor_torch import portable_first_weights, torch_state, torch_stream

__all__ = ["Purpose", "drawing_first_weights", "drawing_from", "restore", "seed_of", "state_of", "stream", "torch_generator"]


_global = threading.RLock()
"""Held by the thread that draws from ``np.random``, of which a process has one."""


class Purpose(IntEnum):
    """The purpose of a stream."""

    EXPLORATION = 0
    EPISODES = 1
    REPLAY = 2
    TORCH = 3
    EVALUATION = 4
    MINIBATCHES = 5
    WATCHING = 6
    MATCHES = 7


def stream(seed: int, purpose: Purpose, *index: int) -> np.random.Generator:
    """The generator of one purpose."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(purpose, *index))))


def seed_of(seed: int, purpose: Purpose, *index: int) -> int:
    """A seed below 2**31, which every environment accepts, for one purpose."""
    return int(np.random.SeedSequence(seed, spawn_key=(purpose, *index)).generate_state(1)[0]) >> 1


def torch_generator(random: np.random.Generator) -> torch.Generator:
    """A generator of torch's whose seed is drawn from another generator."""
    return torch.Generator().manual_seed(int(random.integers(2**63)))


@contextlib.contextmanager
def drawing_from(generator: np.random.Generator) -> Iterator[None]:
    """Let ``np.random``'s functions, which SB3's replay buffers and action noise draw from, draw from a generator of ours.

    Other threads wait: reactors that draw at the same time must not draw from each other's generators.
    """
    random: Any = np.random  # numpy's stubs do not export these two
    with _global:
        before = random.get_bit_generator()
        random.set_bit_generator(generator.bit_generator)
        try:
            yield
        finally:
            random.set_bit_generator(before)


@contextlib.contextmanager
def drawing_first_weights(seed: int | None) -> Iterator[None]:
    """Let torch draw a network's first weights from the numbers that SB3's seeding gives, whoever else draws meanwhile.

    They have the same bits on any processor. Without the extension orthogonal ones come from LAPACK, whose last bits depend on the
    number of threads: there is one.

    Args:
        seed: The trainer's; ``None`` for torch's own generator.
    """
    drawn = contextlib.nullcontext() if seed is None else torch_stream(torch_state(seed))
    with one_numeric_thread(), portable_first_weights(), drawn:
        yield


def state_of(generator: np.random.Generator) -> dict[str, Any]:
    """The generator's state, as plain numbers and strings."""
    return dict(generator.bit_generator.state)


def restore(generator: np.random.Generator, state: dict[str, Any]) -> None:
    """Put a generator into a state that :func:`state_of` gave."""
    generator.bit_generator.state = state
