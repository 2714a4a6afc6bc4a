"""``SyncDQN``: synchronised parallel Q-learning (Kwok, Lohstroh, Lee 2023), SB3's ``DQN`` on all cores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.nn.functional import mse_loss, smooth_l1_loss

from reactor_sb3 import formulas
from reactor_torch import Formula, Loss, Networks, TransitionBatch

__all__ = ["DQNLoss"]


@dataclass(frozen=True)
class DQNLoss(Loss):
    """Difference of the values of actions taken, and rewards with what a target network says of the next observation.

    Attributes:
        double_q: Whether the network that learns chooses the next action and the target only values it (van Hasselt et al. 2016).
        kind: ``"mse"``, or ``"huber"`` (squares up to 1, then linear).
    """

    double_q: bool
    kind: Literal["huber", "mse"]
    learns, reads, statistics = "q_net", ("q_net_target",), ("loss",)

    def __call__(self, nets: Mapping[str, Any], batch: TransitionBatch) -> tuple[torch.Tensor, ...]:
        """The loss."""
        with torch.no_grad():
            following = nets["q_net_target"](batch.next_observations)
            chooses = nets["q_net"](batch.next_observations) if self.double_q else following
            q_values = following.gather(1, chooses.argmax(1, keepdim=True))
            returns = batch.rewards + (1 - batch.dones) * batch.discounts * q_values
        values = nets["q_net"](batch.observations).gather(1, batch.actions)
        return ((smooth_l1_loss if self.kind == "huber" else mse_loss)(values, returns),)

    def formula(self, nets: Networks) -> Formula | None:
        """For dense layers."""
        return formulas.dqn(self, nets)
