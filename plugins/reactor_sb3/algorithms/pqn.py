"""``PQN``: Q-learning from fresh rounds only (Gallici et al. 2024); its networks are in ``pqn_policies.py``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import mse_loss

from reactor_sb3 import formulas
from reactor_torch import Batch, Formula, Loss, Networks

__all__ = ["QBatch", "QLoss"]


@dataclass
class QBatch(Batch):
    """Observations, actions, and the returns that the actions' values are to become.

    Attributes:
        observations: ``(rows, ...)``, or a dict of such.
        actions: ``(rows,)``, int64.
        returns: ``(rows,)``, float32.
    """

    observations: Any
    actions: torch.Tensor
    returns: torch.Tensor


@dataclass(frozen=True)
class QLoss(Loss):
    """Half the squared difference of the values of actions taken and their returns."""

    learns, reads, statistics = "q_net", (), ("loss",)

    def __call__(self, nets: Mapping[str, Any], batch: QBatch) -> tuple[torch.Tensor, ...]:
        """The loss."""
        values = nets["q_net"](batch.observations).gather(1, batch.actions.view(-1, 1))[:, 0]
        return (0.5 * mse_loss(values, batch.returns),)

    def formula(self, nets: Networks) -> Formula | None:
        """For dense layers."""
        return formulas.q_values(self, nets, weight=0.5)
