"""The losses of TD3 with their gradients: the critics' and the actor's.

Twin delayed deterministic policy gradients: Fujimoto et al., "Addressing Function Approximation Error in Actor-Critic Methods",
2018. Nothing is drawn here: the noise that smooths the target comes with the minibatch.
"""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from reactor_torch.arrays import numbers
from reactor_torch.dense import Function
from reactor_torch.formulas.critics import Critics, td_loss

__all__ = ["TD3ActorFormula", "TD3CriticFormula"]

Array = npt.NDArray[Any]


class TD3CriticFormula:
    """How far critics are from rewards and what target critics say of the target actor's next action with some noise.

    Args:
        loss: The loss.
        dense: See :class:`~reactor_torch.Formula`.
        critics: What learns.
        target: Target critics.
        target_actor: What chooses next actions, in [-1, 1].
    """

    def __init__(self, loss: Any, dense: bool, critics: Critics, target: Critics, target_actor: Function) -> None:
        self.loss, self.dense, self.critics, self.target, self.target_actor = loss, dense, critics, target, target_actor

    def gradients(self, batch: Any, of: int | None = None) -> Array:
        """See :meth:`Formula.gradients`: the mean squared error, added up over the critics, ``(1,)``."""
        actions = (self.target_actor.forward(batch.next_observations) + batch.next_noise).clamp_(-1, 1)
        following = self.target.q_values(batch.next_observations, actions).amin(0)
        return numbers([td_loss(self.critics, batch, following, 1.0, of)])


class TD3ActorFormula:
    """What the first critic says of the actor's own actions, negative.

    Args:
        loss: The loss.
        dense: See :class:`~reactor_torch.Formula`.
        actor: What learns.
        critics: What values its actions.
    """

    def __init__(self, loss: Any, dense: bool, actor: Function, critics: Critics) -> None:
        self.loss, self.dense, self.actor, self.critics = loss, dense, actor, critics

    def gradients(self, batch: Any, of: int | None = None) -> Array:
        """See :meth:`Formula.gradients`: the loss, ``(1,)``."""
        actions = self.actor.forward(batch.observations)
        q_values, action_gradient = self.critics.action_gradient(batch.observations, actions, first=True)
        share = 1 / (of or len(q_values))
        self.actor.backward(action_gradient.mul_(-share))
        return numbers([-q_values.sum() * share])
