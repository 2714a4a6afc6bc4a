"""Torch's threads on a busy machine: SB3's own algorithms take one for each core, which then wait for each other."""

from __future__ import annotations

import os
import warnings
from functools import cache

import torch

__all__ = ["warn_of_threads"]


@cache
def warn_of_threads() -> None:
    """Warn, once in a process, if torch has several threads and other programs keep all cores busy.

    To be called before anything is learned: later the load is this process's own.
    """
    threads, cores = torch.get_num_threads(), os.cpu_count() or 1
    if threads == 1 or not hasattr(os, "getloadavg") or (load := os.getloadavg()[0]) <= cores:
        return
    warnings.warn(
        f"torch has {threads} threads, and other programs keep all {cores} cores of this machine busy (load {load:.1f}): they "
        "wait for each other, and an update may take many times as long. Call torch.set_num_threads(1) before you train",
        stacklevel=3,
    )
