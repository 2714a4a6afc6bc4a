"""Actors whose actions are squashed normal distributions: actions, how likely they are, and the gradients of both.

The action is ``tanh(u)`` with ``u = mean + std * noise``, its log-probability that of ``u`` less ``log(1 - tanh(u)^2 + 1e-6)``:
Haarnoja et al., "Soft Actor-Critic Algorithms and Applications", 2018, appendix C, with the constant of Stable-Baselines3. In terms
of the noise the normal part is ``-noise^2 / 2 - log(std) - log(2 pi) / 2``, which depends on the network by ``log(std)`` alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import torch

from reactor_torch.flat import FlatParameters

__all__ = ["AutogradSquashedActor", "SquashedActor"]

EPSILON = 1e-6
"""Keeps the logarithm finite where an action is at its bound."""
_HALF_LOG = 0.5 * math.log(2 * math.pi)


class SquashedActor(Protocol):
    """Acts with given noise, and differentiates how it did."""

    flat: FlatParameters

    def act(self, observations: Any, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Actions ``(rows, n)`` and log-probabilities ``(rows,)``, cut off from autograd's graph and valid until the next call.

        Args:
            observations: ``(rows, ...)``.
            noise: Standard normal, ``(rows, n)``.
        """
        ...

    def backward(self, by_actions: torch.Tensor, by_log_prob: float) -> None:
        """Overwrite the gradients of the parameters, from those of the loss by what the last :meth:`act` gave.

        Args:
            by_actions: Gradient of the loss by the actions, ``(rows, n)``; may be overwritten.
            by_log_prob: Gradient of the loss by each log-probability.
        """
        ...


class AutogradSquashedActor:
    """Any actor, differentiated by autograd.

    Args:
        parameters_of: From observations to means and logarithms of standard deviations, ``(rows, n)`` each, with a graph.
        flat: The actor's parameters.
    """

    def __init__(self, parameters_of: Callable[[Any], tuple[torch.Tensor, torch.Tensor]], flat: FlatParameters) -> None:
        self.parameters_of, self.flat = parameters_of, flat
        self._outputs: tuple[torch.Tensor, ...] = ()

    @torch.enable_grad()
    def act(self, observations: Any, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """See :meth:`SquashedActor.act`; observations are what the actor takes."""
        mean, log_std = self.parameters_of(observations)
        actions = torch.tanh(mean + log_std.exp() * noise)
        normal = -0.5 * noise**2 - log_std - _HALF_LOG
        log_prob = (normal - torch.log(1 - actions**2 + EPSILON)).sum(1)
        self._outputs = (actions, log_prob)
        return actions.detach(), log_prob.detach()

    def backward(self, by_actions: torch.Tensor, by_log_prob: float) -> None:
        """See :meth:`SquashedActor.backward`."""
        self.flat.begin_gradients()
        slopes = (by_actions, torch.full_like(self._outputs[1], by_log_prob))
        torch.autograd.backward(self._outputs, slopes)
        self._outputs = ()
