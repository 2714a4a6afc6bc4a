"""The losses of SAC with their gradients: the critics' and the actor's.

Soft actor-critic: Haarnoja et al., "Soft Actor-Critic Algorithms and Applications", 2018, with the weights of Stable-Baselines3's
implementation. Nothing is drawn here: the noise of actions comes with the minibatch.
"""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from reactor_torch.arrays import numbers
from reactor_torch.formulas.critics import Critics, td_loss
from reactor_torch.formulas.squashed import SquashedActor

__all__ = ["SACActorFormula", "SACCriticFormula"]

Array = npt.NDArray[Any]


class SACCriticFormula:
    """How far critics are from rewards and what target critics say of the actor's next action, less its log-probability.

    Args:
        loss: The loss.
        dense: See :class:`~reactor_torch.Formula`.
        critics: What learns.
        target: Target critics.
        actor: What chooses next actions.
    """

    def __init__(self, loss: Any, dense: bool, critics: Critics, target: Critics, actor: SquashedActor) -> None:
        self.loss, self.dense, self.critics, self.target, self.actor = loss, dense, critics, target, actor

    def gradients(self, batch: Any, of: int | None = None) -> Array:
        """See :meth:`Formula.gradients`: half the mean squared error, added up over the critics, ``(1,)``."""
        actions, log_prob = self.actor.act(batch.next_observations, batch.next_noise)
        following = self.target.q_values(batch.next_observations, actions).amin(0).sub_(log_prob, alpha=batch.ent_coef)
        return numbers([td_loss(self.critics, batch, following, 0.5, of)])


class SACActorFormula:
    """What the actor's own actions cost: their log-probability, less the least value that a critic gives them.

    Args:
        loss: The loss.
        dense: See :class:`~reactor_torch.Formula`.
        actor: What learns.
        critics: What values its actions.
    """

    def __init__(self, loss: Any, dense: bool, actor: SquashedActor, critics: Critics) -> None:
        self.loss, self.dense, self.actor, self.critics = loss, dense, actor, critics

    def gradients(self, batch: Any, of: int | None = None) -> Array:
        """See :meth:`Formula.gradients`: the loss, and the mean log-probability of the actions, ``(2,)``."""
        actions, log_prob = self.actor.act(batch.observations, batch.noise)
        q_values, action_gradient = self.critics.action_gradient(batch.observations, actions)
        share = 1 / (of or len(q_values))
        mean_log_prob = log_prob.sum() * share
        loss = mean_log_prob * batch.ent_coef - q_values.sum() * share
        self.actor.backward(action_gradient.mul_(-share), batch.ent_coef * share)
        return numbers([loss, mean_log_prob])
