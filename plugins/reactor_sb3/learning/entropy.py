"""SAC's entropy coefficient: what a unit of log-probability costs, fixed or learned."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from reactor_torch import FlatOptimizer, FlatParameters

__all__ = ["EntropyCoefficient", "FixedEntropy", "LearnedEntropy"]


class EntropyCoefficient(Protocol):
    """See :class:`FixedEntropy` and :class:`LearnedEntropy`."""

    def begin_round(self) -> None:
        """Take over what has been loaded since the last round."""
        ...

    def value(self) -> float:
        """The coefficient."""
        ...

    def step(self, log_prob: float) -> float | None:
        """Learn from the mean log-probability of the actor's actions; returns the loss, ``None`` if there is nothing to learn."""
        ...


class FixedEntropy:
    """Always the same.

    Args:
        coefficient: It.
    """

    def __init__(self, coefficient: float) -> None:
        self.coefficient = float(coefficient)

    def begin_round(self) -> None:
        """Nothing changes."""

    def value(self) -> float:
        """See :meth:`EntropyCoefficient.value`."""
        return self.coefficient

    def step(self, log_prob: float) -> None:
        """Nothing is learned."""


class LearnedEntropy:
    """Learned so that the entropy of the policy comes near a target.

    Haarnoja et al., "Soft Actor-Critic Algorithms and Applications", 2018, section 5; what is learned is the logarithm, as in SB3.

    Args:
        logarithm: Of the coefficient, ``(1,)``: SB3's ``log_ent_coef``.
        optimizer: Its optimiser: SB3's ``ent_coef_optimizer``.
        target: Entropy to come near to: SB3's ``target_entropy``.
    """

    def __init__(self, logarithm: torch.Tensor, optimizer: torch.optim.Optimizer, target: float) -> None:
        named: Any = [("log_ent_coef", logarithm)]
        self.logarithm, self.target = logarithm, target
        self._flat = FlatParameters(named)
        self._optimizer = FlatOptimizer(optimizer, self._flat)

    def begin_round(self) -> None:
        """See :meth:`EntropyCoefficient.begin_round`."""
        self._optimizer.bind()

    def value(self) -> float:
        """See :meth:`EntropyCoefficient.value`."""
        return float(self._flat.data.exp())

    def step(self, log_prob: float) -> float:
        """See :meth:`EntropyCoefficient.step`."""
        slope = -(log_prob + self.target)
        loss = float(self._flat.data) * slope
        self._flat.gradients.fill_(slope)
        self._optimizer.step()
        return loss
