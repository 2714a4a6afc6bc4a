"""Torch's own generator as a stream of its own: what draws from it draws from the same numbers wherever it runs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch

__all__ = ["torch_state", "torch_stream"]

_generator = threading.RLock()
"""Held by the thread that draws from torch's generator, of which a process has one."""


@contextlib.contextmanager
def torch_stream(state: torch.Tensor) -> Iterator[None]:
    """Let torch's CPU generator (dropout) go on from ``state``, which is brought up to date at the end.

    Other threads wait: reactors that draw at the same time must not draw from each other's numbers.
    """
    with _generator:
        before = torch.get_rng_state()
        torch.set_rng_state(state)
        try:
            yield
        finally:
            state.copy_(torch.get_rng_state())
            torch.set_rng_state(before)


def torch_state(seed: int) -> torch.Tensor:
    """The state that a :func:`torch_stream` begins with."""
    return torch.Generator().manual_seed(seed).get_state()
