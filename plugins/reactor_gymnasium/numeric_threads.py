"""One thread for numeric libraries while the caller works beside helpers, which have one each."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from threadpoolctl import ThreadpoolController

__all__ = ["one_numeric_thread"]


@contextlib.contextmanager
def one_numeric_thread() -> Iterator[None]:
    """Let torch and the linear algebra under numpy use one thread in this process: with another number, sums come out otherwise."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadpoolController().limit(limits=1, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)
