"""The losses of CrossQ with gradients derived by hand, where layers renormalise batches; by the extension alone.

A minibatch is normalised as a whole: transitions and what comes after them go through the critics together, and there are no
target networks (Bhatt et al., "CrossQ: Batch Normalization in Deep Reinforcement Learning for Greater Sample Efficiency and
Simplicity", 2024). Batch renormalisation is Ioffe, "Batch Renormalization: Towards Reducing Minibatch Dependence in
Batch-Normalized Models", 2017, with sb3-contrib's bounds: its ratio and its shift are constants to gradients, the mean and the
variance are not.
"""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import torch

from reactor_torch.flat import kernels_for, numbers
from reactor_torch.formulas.continuous import Critics, DenseCritics, SACActorFormula, SquashedActor, td_errors
from reactor_torch.kept import keep

__all__ = ["CrossQActorFormula", "CrossQCriticFormula"]

Array = npt.NDArray[Any]


class CrossQCriticFormula:
    """How far critics are from rewards and what they say of the actor's next action, less its log-probability, in one pass.

    Args:
        loss: The loss.
        critics: What learns; their running statistics change.
        actor: What chooses next actions, by its running statistics.
    """

    block: int | None = None

    def __init__(self, loss: Any, critics: DenseCritics, actor: SquashedActor) -> None:
        self.loss, self.critics, self.actor = loss, critics, actor
        self.kernels = kernels_for(critics.flat.device)
        self._of_rows: dict[int, tuple[torch.Tensor, ...]] = {}

    def gradients(self, batch: Any, of: int | None = None) -> Array:
        """See :meth:`Formula.gradients`: half the mean squared error, added up over the critics, ``(1,)``; of whole minibatches."""
        actions, log_prob = self.actor.act(batch.next_observations, batch.next_noise)
        rows, features = batch.observations.shape
        if rows not in self._of_rows:
            count = len(self.critics.networks)
            shapes = (2 * rows, features + actions.shape[1]), (count, rows), (count, 2 * rows)
            keep(self._of_rows, rows, tuple(torch.zeros(shape) for shape in shapes))
        inputs, by_values, gradient = self._of_rows[rows]
        for at, parts in ((0, (batch.observations, batch.actions)), (rows, (batch.next_observations, actions))):
            torch.cat(parts, 1, out=inputs[at : at + rows])
        values = self.critics.outputs_of(inputs, training=True)[:, :, 0]
        share, coefficient = 0.5 / (of or rows), batch.ent_coef
        loss = td_errors(self.kernels, values[:, :rows], batch, values[:, rows:], share, by_values, log_prob, coefficient)
        gradient[:, :rows], gradient[:, rows:] = by_values, 0
        self.critics.backward(gradient)
        return numbers([loss])


class CrossQActorFormula(SACActorFormula):
    """SAC's; the actor's running statistics change, and the critics' stay as they are.

    Args:
        loss: The loss.
        actor: What learns.
        critics: What values its actions, by their running statistics.
    """

    def __init__(self, loss: Any, actor: SquashedActor, critics: Critics) -> None:
        super().__init__(loss, actor, critics)
        self.block, self.training = None, True
