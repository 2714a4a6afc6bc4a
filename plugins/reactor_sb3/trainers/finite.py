"""Check that losses, the data that they are made from, and parameters are finite."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from reactor_sb3.acting.records import Observations, by_step
from reactor_torch import Networks

__all__ = ["check_batch", "check_losses", "check_parameters", "culprit"]

Array = npt.NDArray[Any]
DIVERGENCE = "approx_kl"
"""A statistic that is infinite where the new policy never does what the old one did, while the loss is a number."""
LARGE = 1e15
"""A reward whose square is hardly a number in single precision (1e30 of 3.4e38 at most): sums of squares over a batch, and their
gradients, may have none.
"""


def check_losses(found: Iterable[Mapping[str, float]], before: int, advice: str) -> None:
    """Refuse losses that are not finite: parameters are spoilt then, or about to be."""
    for number, of_update in enumerate(found, before + 1):
        for name, value in of_update.items():
            if not math.isfinite(value) and (math.isnan(value) or not name.endswith(DIVERGENCE)):
                raise ValueError(f"{name} is {value} in update {number}, and so are the parameters from then on: {advice}")


def check_batch(batch: Any, advice: Any) -> None:
    """Refuse a round of which nothing can be learned, before the first update.

    Args:
        batch: What the updates are made from, or one for each policy, by name.
        advice: Says what to look at, for the error.
    """
    if isinstance(batch, dict):
        for of_policy in batch.values():
            check_batch(of_policy, advice)
        return
    for name in ("old_values", "old_log_prob", "advantages", "returns"):
        rows = getattr(batch, name, None)
        # One sum is not finite if any row is not; one that overflows is told apart.
        if isinstance(rows, torch.Tensor) and not math.isfinite(float(rows.sum())) and not bool(rows.isfinite().all()):
            raise ValueError(f"the {name} of this round are not finite, and nothing was learned from it: {advice()}")


def check_parameters(nets: Networks, advice: str) -> None:
    """Refuse parameters that are not finite."""
    for name, part in nets.parts.items():
        if part.optimizer is None:
            continue
        data = nets.flat(name).data
        if not math.isfinite(float(data.sum())) and not bool(data.isfinite().all()):
            raise ValueError(f"parameters of {name} are not finite any more: {advice}")


def culprit(layout: Observations, record: Array) -> str:
    """Say what in a round may have made a loss infinite, and which environment it comes from.

    Args:
        layout: Of observations as the policy sees them.
        record: The round, see :func:`reactor_sb3.acting.records.transition_record`.
    """
    for key, part in layout.of(record, "observations").items():
        if part.dtype.kind == "f" and not np.isfinite(part).all():
            rows = by_step(part)
            wrong = np.logical_not(np.isfinite(rows).reshape(*rows.shape[:2], -1).all(-1))
            step, number = np.argwhere(wrong)[0].tolist()
            of_key = f" {key!r}" if key else ""
            return f"environment {number} returned an observation{of_key} that is not finite, before step {step} of this round"
    rewards = np.abs(by_step(record["rewards"]))
    step, number = np.unravel_index(int(np.argmax(rewards)), rewards.shape)
    largest = float(by_step(record["rewards"])[step, number])
    if abs(largest) >= LARGE:
        return f"environment {number} returned the reward {largest:g} at step {step} of this round; clip or scale rewards"
    return f"lower the learning rate, or look at the rewards (the largest of this round is {largest:g})"
