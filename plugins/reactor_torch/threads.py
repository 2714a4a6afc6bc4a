"""How many threads torch has for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

__all__ = ["torch_threads"]


@contextlib.contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """Let torch's operations use so many threads, and afterwards as many as before."""
    before = torch.get_num_threads()
    if before != number:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        if before != number:
            torch.set_num_threads(before)
