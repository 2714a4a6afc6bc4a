"""What learners of SB3's policies have in common, whichever their losses are."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
from stable_baselines3.common.preprocessing import preprocess_obs

from reactor_sb3.acting.forwards import copied
from reactor_torch import Updater

__all__ = ["PolicyLearner"]

Array = npt.NDArray[Any]


class PolicyLearner:
    """A policy, and what updates its networks.

    Args:
        policy: What learns.
        dense: Whether gradients come from formulas, and not from autograd.
        updaters: One for each loss.

    Attributes:
        policy: What learns.
        dense: Whether gradients come from formulas, and not from autograd.
        losses: The losses, as tasks count them.
    """

    def __init__(self, policy: Any, dense: bool, *updaters: Updater) -> None:
        self.policy, self.dense, self._updaters = policy, dense, updaters
        self.losses = tuple(updater.loss for updater in updaters)

    def learning_copy(self) -> Any:
        """A copy of the policy in the mode in which it learns, without its optimisers, in a processor's memory: it may travel."""
        policy = copied(self.policy, {id(updater.optimizer.optimizer): None for updater in self._updaters})
        policy.set_training_mode(True)
        return policy.to("cpu")

    def begin_round(self, max_grad_norm: float | None = None) -> None:
        """Take over what has been loaded or replaced since the last round, and bring the policy into the mode in which it learns.

        Args:
            max_grad_norm: What gradients are clipped to from now on; ``None`` for never.
        """
        self._set_training_mode(True)
        for updater in self._updaters:
            updater.max_grad_norm = max_grad_norm
            updater.begin()

    def end_round(self) -> None:
        """Bring the policy into the mode in which it acts."""
        self._set_training_mode(False)

    def _set_training_mode(self, learns: bool) -> None:
        if not self.dense:  # layers that there are formulas for know no difference, and it takes as long as a tenth of an update
            self.policy.set_training_mode(learns)

    def observations(self, rows: Any) -> Any:
        """Observations ``(rows, ...)`` as the losses take them; a dict stays one."""
        if not self.dense:
            return rows
        seen: Any = preprocess_obs(rows, self.policy.observation_space, normalize_images=self.policy.normalize_images)
        return seen.flatten(1)

    def gradients(self, loss: int, minibatch: Any) -> Array:
        """Of one of the losses; see :meth:`~reactor_torch.Loss.gradients`."""
        return self._updaters[loss].gradients(minibatch)
