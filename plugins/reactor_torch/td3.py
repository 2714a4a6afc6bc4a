"""The losses of TD3 and their gradients: the critics' and the actor's.

Twin delayed deterministic policy gradients: Fujimoto et al., "Addressing Function Approximation Error in Actor-Critic Methods",
2018. Nothing is drawn here: the noise that smooths the target comes with the transitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy.typing as npt
import torch

from reactor_torch.arrays import numbers
from reactor_torch.batches import TransitionBatch
from reactor_torch.dense import Function
from reactor_torch.formulas.critics import Critics, td_loss
from reactor_torch.updater import UpdaterLoss

__all__ = ["TD3ActorLoss", "TD3Batch", "TD3CriticLoss"]

Array = npt.NDArray[Any]


@dataclass
class TD3Batch(TransitionBatch):
    """Transitions, and the noise that is added to next actions.

    Attributes:
        next_noise: As it is added to the target actor's actions, ``(rows, n)``, float32: scaled and clipped already.
    """

    next_noise: torch.Tensor


class TD3CriticLoss(UpdaterLoss):
    """How far critics are from rewards and what target critics say of the target actor's next action with some noise.

    Args:
        critics: What learns.
        target: Their targets; nobody asks for their gradients.
        target_actor: What chooses next actions, in [-1, 1].
    """

    statistics: ClassVar[tuple[str, ...]] = ("critic_loss",)

    def __init__(self, critics: Critics, target: Critics, target_actor: Function) -> None:
        self.critics, self.target, self.target_actor, self.flat = critics, target, target_actor, critics.flat
        self.follows = (target.flat, target_actor.flat)

    def gradients(self, batch: TD3Batch, of: int | None = None) -> Array:
        """See :meth:`UpdaterLoss.gradients`.

        Returns:
            The mean squared error, added up over the critics, ``(1,)``, float32.
        """
        actions = (self.target_actor.forward(batch.next_observations) + batch.next_noise).clamp_(-1, 1)
        following = self.target.q_values(batch.next_observations, actions).amin(0)
        return numbers([td_loss(self.critics, batch, following, 1.0, of)])


class TD3ActorLoss(UpdaterLoss):
    """What the first critic says of the actor's own actions, negative.

    Args:
        actor: What learns.
        critics: What values its actions.
    """

    statistics: ClassVar[tuple[str, ...]] = ("actor_loss",)
    ignores: ClassVar[tuple[str, ...]] = ("next_observations", "dones", "rewards", "discounts", "next_noise")

    def __init__(self, actor: Function, critics: Critics) -> None:
        self.actor, self.critics, self.flat = actor, critics, actor.flat
        self.follows = (critics.flat,)

    def gradients(self, batch: TD3Batch, of: int | None = None) -> Array:
        """See :meth:`UpdaterLoss.gradients`.

        Returns:
            The loss, ``(1,)``, float32.
        """
        actions = self.actor.forward(batch.observations)
        worth, slopes = self.critics.action_gradient(batch.observations, actions, first=True)
        share = 1 / (of or len(worth))
        self.actor.backward(slopes.mul_(-share))
        return numbers([-worth.sum() * share])
