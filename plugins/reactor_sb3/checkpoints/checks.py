"""What a checkpoint must look like to be put into a trainer: like one of a trainer that was just made from its arguments.

A file can say anything. Nothing in it becomes an attribute, a size or a position before it has been compared with what is there
already, and what is to be made new is first held against what the file really contains. What comes before a trainer is made from it
is in ``outline_checks``, before anything is put into the trainer in ``state_checks``, before its run goes on in ``run_checks``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from reactor_sb3.checkpoints.archive import CorruptError

__all__ = ["LARGE", "alike", "are_episodes", "check_stream", "is_count", "is_number", "want"]

LARGE = 2**62


def want(holds: bool, what: str) -> None:
    """Say that something is not as it would have been saved, unless it is.

    Raises:
        CorruptError: If it is not.
    """
    if not holds:
        raise CorruptError(f"{what} cannot have been saved")


def alike(value: Any, model: Any, what: str) -> None:
    """Refuse a value that is not of the kind, the keys, the shape and the dtype of another one; numbers may be others.

    Raises:
        CorruptError: If it is not.
    """
    if isinstance(model, float):
        want(is_number(value), what)
        return
    want(type(value) is type(model), what)
    if isinstance(value, (np.ndarray, torch.Tensor)):
        want(value.shape == model.shape and value.dtype == model.dtype, what)
    elif isinstance(value, dict):
        want(value.keys() == model.keys(), what)
        for key, part in value.items():
            alike(part, model[key], f"{what}.{key}")
    elif isinstance(value, (list, tuple)):
        want(len(value) == len(model), what)
        for part, like in zip(value, model, strict=True):
            alike(part, like, what)


def is_number(value: Any) -> bool:
    """Whether it is a finite number of usual size."""
    return type(value) in (int, float) and abs(value) < LARGE and math.isfinite(value)


def is_count(value: Any, low: int = 0) -> bool:
    """Whether it is a whole number from ``low`` on."""
    return type(value) is int and low <= value < LARGE


def are_episodes(returns: Any, lengths: Any) -> bool:
    """Whether these are returns and lengths of episodes."""
    if type(returns) is not list or type(lengths) is not list or len(returns) != len(lengths):
        return False
    return all(type(one) in (int, float) for one in returns) and all(map(is_count, lengths))


def check_stream(saved: Any, fresh: dict[str, Any]) -> None:
    """Refuse the state of a random stream that is none.

    Raises:
        CorruptError: If it is not like a fresh one's.
    """
    alike(saved, fresh, "a random stream")
    np.random.PCG64().state = saved
