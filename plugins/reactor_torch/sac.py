"""The losses of SAC and their gradients: the critics' and the actor's.

Soft actor-critic: Haarnoja et al., "Soft Actor-Critic Algorithms and Applications", 2018, with the weights of Stable-Baselines3's
implementation. Nothing is drawn here: the noise of actions comes with the transitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy.typing as npt
import torch

from reactor_torch.arrays import numbers
from reactor_torch.batches import TransitionBatch
from reactor_torch.formulas.critics import Critics, td_loss
from reactor_torch.formulas.squashed import SquashedActor
from reactor_torch.updater import UpdaterLoss

__all__ = ["SACActorLoss", "SACBatch", "SACCriticLoss"]

Array = npt.NDArray[Any]


@dataclass
class SACBatch(TransitionBatch):
    """Transitions, and the noise of the actions that are chosen for them.

    Attributes:
        noise: Of the actions chosen for observations: standard normal, ``(rows, n)``, float32.
        next_noise: The same for next observations.
    """

    noise: torch.Tensor
    next_noise: torch.Tensor


class SACCriticLoss(UpdaterLoss):
    """How far critics are from rewards and what target critics say of the actor's next action, less its log-probability.

    Args:
        critics: What learns.
        target: Their targets; nobody asks for their gradients.
        actor: What chooses next actions.

    Attributes:
        entropy_coefficient: What a unit of log-probability costs.
    """

    statistics: ClassVar[tuple[str, ...]] = ("critic_loss",)
    moving: ClassVar[tuple[str, ...]] = ("entropy_coefficient",)
    ignores: ClassVar[tuple[str, ...]] = ("noise",)

    def __init__(self, critics: Critics, target: Critics, actor: SquashedActor) -> None:
        self.critics, self.target, self.actor, self.flat = critics, target, actor, critics.flat
        self.follows = (target.flat, actor.flat)
        self.entropy_coefficient = 1.0

    def gradients(self, batch: SACBatch, of: int | None = None) -> Array:
        """See :meth:`UpdaterLoss.gradients`.

        Returns:
            Half the mean squared error, added up over the critics, ``(1,)``, float32.
        """
        actions, log_prob = self.actor.act(batch.next_observations, batch.next_noise)
        following = self.target.q_values(batch.next_observations, actions).amin(0).sub_(log_prob, alpha=self.entropy_coefficient)
        return numbers([td_loss(self.critics, batch, following, 0.5, of)])


class SACActorLoss(UpdaterLoss):
    """What the actor's own actions cost: their log-probability, less the least value that a critic gives them.

    Args:
        actor: What learns.
        critics: What values its actions.

    Attributes:
        entropy_coefficient: What a unit of log-probability costs.
    """

    statistics: ClassVar[tuple[str, ...]] = ("actor_loss", "log_prob")
    """The loss, and the mean log-probability of the actions, from which the entropy coefficient learns."""
    moving: ClassVar[tuple[str, ...]] = ("entropy_coefficient",)
    ignores: ClassVar[tuple[str, ...]] = ("next_observations", "dones", "rewards", "discounts", "next_noise")

    def __init__(self, actor: SquashedActor, critics: Critics) -> None:
        self.actor, self.critics, self.flat = actor, critics, actor.flat
        self.follows = (critics.flat,)
        self.entropy_coefficient = 1.0

    def gradients(self, batch: SACBatch, of: int | None = None) -> Array:
        """See :meth:`UpdaterLoss.gradients`.

        Returns:
            :attr:`statistics`, float32.
        """
        actions, log_prob = self.actor.act(batch.observations, batch.noise)
        worth, slopes = self.critics.action_gradient(batch.observations, actions)
        share = 1 / (of or len(worth))
        likely = log_prob.sum() * share
        loss = likely * self.entropy_coefficient - worth.sum() * share
        self.actor.backward(slopes.mul_(-share), self.entropy_coefficient * share)
        return numbers([loss, likely])
