"""Actor and critic as losses see them: values, log-probabilities and entropies of a batch, and gradients from theirs.

Two towers of dense layers are differentiated by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from reactor_torch.dense import Dense, Function, Layer, backward_all, forward_all
from reactor_torch.flat import FlatParameters
from reactor_torch.formulas.distributions import Distribution, Evaluated
from reactor_torch.kept import keep

__all__ = ["ActorCritic", "DenseActorCritic", "EvaluatedActions"]

EvaluatedActions = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]
"""Values, log-probabilities and entropies, ``(rows,)`` each; no entropies where nobody can compute them."""


class ActorCritic(Protocol):
    """Evaluates actions, and differentiates what it gave.

    Attributes:
        flat: The parameters.
        distribution: Of actions.
        adds_up: Whether gradients of leaves of rows, added up as a tree, have the bits of those of all rows.
    """

    flat: FlatParameters
    distribution: Distribution
    adds_up: bool

    def evaluate(self, observations: Any, actions: torch.Tensor, masks: torch.Tensor | None = None) -> EvaluatedActions:
        """Values, log-probabilities and entropies, cut off from autograd's graph and valid until the next call.

        Args:
            observations: As the policy takes them.
            actions: Of each row.
            masks: Which choices are allowed, ``(rows, choices)``, bool; ``None`` if all are.
        """
        ...

    def backward(self, by_values: torch.Tensor, by_log_prob: torch.Tensor, by_entropy: float) -> None:
        """Overwrite the gradients of the parameters, from those of the loss by what the last :meth:`evaluate` gave.

        Args:
            by_values: Gradient of the loss by each value, ``(rows,)``.
            by_log_prob: Gradient of the loss by each log-probability, ``(rows,)``.
            by_entropy: Gradient of the loss by each entropy.
        """
        ...


class DenseActorCritic:
    """Two networks of dense layers, of observations or of features that they share.

    Args:
        actor: Layers that give the distribution's parameters.
        critic: Layers that give a value.
        distribution: Distribution of actions.
        flat: The parameters of all, and of the distribution if it has any.
        features: Makes features of observations; ``None`` if both networks are given observations.
    """

    def __init__(
        self,
        actor: Sequence[Layer],
        critic: Sequence[Layer],
        distribution: Distribution,
        flat: FlatParameters,
        features: Function | None = None,
    ) -> None:
        self.actor, self.critic = (Dense(layers, flat, passes_on=features is not None) for layers in (actor, critic))
        self.distribution, self.flat, self.features = distribution, flat, features
        self.adds_up = distribution.adds_up and (features is None or features.adds_up)
        self._of_rows: dict[int, Evaluated] = {}
        self._evaluated: Evaluated | None = None
        self._by_values = self._column = torch.empty(0)

    def evaluate(self, observations: torch.Tensor, actions: torch.Tensor, masks: torch.Tensor | None = None) -> EvaluatedActions:
        """See :meth:`ActorCritic.evaluate`; observations are ``(rows, numbers)``, float32, or what ``features`` is given."""
        rows = len(observations)
        distribution = self._of_rows.get(rows)
        if distribution is None:
            distribution = keep(self._of_rows, rows, self.distribution.at(rows, self.flat.device))
        self._evaluated = distribution
        seen = observations if self.features is None else self.features.forward(observations)
        outputs, values = forward_all((self.actor, self.critic), seen)
        distribution.evaluate(outputs, actions, masks)
        return values.view(-1), distribution.log_prob, distribution.entropy

    def backward(self, by_values: torch.Tensor, by_log_prob: torch.Tensor, by_entropy: float) -> None:
        """See :meth:`ActorCritic.backward`."""
        assert self._evaluated is not None, "evaluate first"
        self._evaluated.differentiate(by_log_prob, by_entropy)
        if by_values is not self._by_values:  # a layer keeps what it has made of a tensor
            self._by_values, self._column = by_values, by_values[:, None]
        below = backward_all((self.actor, self.critic), (self._evaluated.gradient, self._column))
        if self.features is not None:
            self.features.backward(below[0].add_(below[1]))
