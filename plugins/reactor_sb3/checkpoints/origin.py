"""Where a file was written: what may decide about the last bit of a number."""

from __future__ import annotations

import os
import platform
import warnings
from typing import Any

import gymnasium
import numpy as np
import stable_baselines3
import torch

import reactor_rl
from reactor_torch import computing, differentiating

__all__ = ["machine", "versions", "warn_if_elsewhere"]


def versions() -> dict[str, str]:
    """Versions of what computes."""
    return {
        "reactor_rl": reactor_rl.__version__, "stable_baselines3": stable_baselines3.__version__, "torch": str(torch.__version__),
        "gymnasium": gymnasium.__version__, "numpy": np.__version__,
    }  # fmt: skip


def machine() -> dict[str, str]:
    """The parts of this machine that decide about the last bit of a sum, besides the versions."""
    return {
        "processor": platform.machine(),
        "vector instructions (torch)": torch.backends.cpu.get_cpu_capability(),
        "actors' networks": computing(),
        "learner's layers": differentiating(),
    }


def warn_if_elsewhere(path: str | os.PathLike[str], document: dict[str, Any], stacklevel: int) -> None:
    """One warning of all that may give other numbers here."""
    now = versions() | machine()
    then = document["versions"] | document["machine"]
    different = ", ".join(f"{name} {then[name][:100]} (now {now[name]})" for name in now if then[name] != now[name])
    if different:
        warnings.warn(
            f"{path} was written with {different}; numbers may differ in their last bits from those that an uninterrupted run "
            "would have given there",
            stacklevel=stacklevel + 1,
        )
