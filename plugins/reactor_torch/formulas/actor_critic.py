"""Actor and critic as losses see them: values, log-probabilities and entropies of a batch, and gradients from theirs.

Two towers of dense layers are differentiated by hand; any other policy goes through autograd, into the same flat array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from reactor_torch.dense import Dense, Layer
from reactor_torch.flat import FlatParameters
from reactor_torch.formulas.distributions import Distribution, Evaluated

__all__ = ["ActorCritic", "AutogradActorCritic", "DenseActorCritic", "EvaluatedActions"]

EvaluatedActions = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]
"""Values, log-probabilities and entropies, ``(rows,)`` each; no entropies where nobody can compute them."""


class ActorCritic(Protocol):
    """Evaluates actions, and differentiates what it gave."""

    flat: FlatParameters

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
    """Two networks of dense layers without common parameters.

    Args:
        actor: Layers that give the distribution's parameters.
        critic: Layers that give a value.
        distribution: Distribution of actions.
        flat: The parameters of both, and of the distribution if it has any.
    """

    def __init__(self, actor: Sequence[Layer], critic: Sequence[Layer], distribution: Distribution, flat: FlatParameters) -> None:
        self.actor, self.critic, self.distribution, self.flat = Dense(actor, flat), Dense(critic, flat), distribution, flat
        self._of_rows: dict[int, Evaluated] = {}
        self._evaluated: Evaluated | None = None
        self._by_values = self._column = torch.empty(0)

    def evaluate(self, observations: torch.Tensor, actions: torch.Tensor, masks: torch.Tensor | None = None) -> EvaluatedActions:
        """See :meth:`ActorCritic.evaluate`; observations are ``(rows, features)``, float32."""
        rows = len(observations)
        distribution = self._of_rows.get(rows)
        if distribution is None:
            distribution = self._of_rows[rows] = self.distribution.at(rows, self.flat.device)
        self._evaluated = distribution
        distribution.evaluate(self.actor.forward(observations), actions, masks)
        return self.critic.forward(observations).view(-1), distribution.log_prob, distribution.entropy

    def backward(self, by_values: torch.Tensor, by_log_prob: torch.Tensor, by_entropy: float) -> None:
        """See :meth:`ActorCritic.backward`."""
        assert self._evaluated is not None, "evaluate first"
        self._evaluated.differentiate(by_log_prob, by_entropy)
        self.actor.backward(self._evaluated.gradient)
        if by_values is not self._by_values:  # a layer keeps what it has made of a tensor
            self._by_values, self._column = by_values, by_values[:, None]
        self.critic.backward(self._column)


class AutogradActorCritic:
    """Any policy, differentiated by autograd.

    Args:
        evaluate_actions: From observations and actions (and masks) to values, log-probabilities and entropies (or ``None``), with
            a graph, as SB3's ``ActorCriticPolicy.evaluate_actions``.
        flat: The policy's parameters.
    """

    def __init__(self, evaluate_actions: Callable[..., Any], flat: FlatParameters) -> None:
        self.evaluate_actions, self.flat = evaluate_actions, flat
        self._outputs: list[torch.Tensor] = []

    @torch.enable_grad()
    def evaluate(self, observations: Any, actions: torch.Tensor, masks: torch.Tensor | None = None) -> EvaluatedActions:
        """See :meth:`ActorCritic.evaluate`; observations are what the policy takes."""
        values, log_prob, entropy = self.evaluate_actions(observations, actions, *(() if masks is None else (masks,)))
        self._outputs = [values.flatten(), log_prob] + ([] if entropy is None else [entropy])
        return self._outputs[0].detach(), log_prob.detach(), None if entropy is None else entropy.detach()

    def backward(self, by_values: torch.Tensor, by_log_prob: torch.Tensor, by_entropy: float) -> None:
        """See :meth:`ActorCritic.backward`."""
        self.flat.begin_gradients()
        gradients = [by_values, by_log_prob]
        if by_entropy and len(self._outputs) > 2:
            gradients.append(torch.full_like(self._outputs[2], by_entropy))
        pairs = [pair for pair in zip(self._outputs, gradients, strict=False) if pair[0].requires_grad]  # a part may be frozen
        torch.autograd.backward([one for one, _ in pairs], [gradient for _, gradient in pairs])
        self._outputs = []
