"""Actors whose actions are squashed normal distributions: actions, how likely they are, and the gradients of both.

The action is ``tanh(u)`` with ``u = mean + std * noise``, its log-probability that of ``u`` less ``log(1 - tanh(u)^2 + 1e-6)``:
Haarnoja et al., "Soft Actor-Critic Algorithms and Applications", 2018, appendix C, with the constant of Stable-Baselines3. In terms
of the noise the normal part is ``-noise^2 / 2 - log(std) - log(2 pi) / 2``, which depends on the network by ``log(std)`` alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from reactor_torch.dense import Dense
from reactor_torch.flat import FlatParameters
from reactor_torch.layers import Layer

__all__ = ["AutogradSquashedActor", "DenseSquashedActor", "SquashedActor", "squashed_sample"]

EPSILON = 1e-6
"""Keeps the logarithm finite where an action is at its bound."""
SMALLEST, LARGEST = -20.0, 2.0
"""Bounds of the logarithm of a standard deviation, those of Stable-Baselines3; beyond them its gradient is 0."""
_HALF_LOG = 0.5 * math.log(2 * math.pi)


def squashed_sample(actor: Any, observations: Any, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Actions of SB3's squashed Gaussian actor for given noise, with a graph.

    Args:
        actor: Has ``get_action_dist_params``.
        observations: ``(rows, ...)``, as the actor takes them.
        noise: Standard normal, ``(rows, n)``, float32.

    Returns:
        Actions in [-1, 1], ``(rows, n)``, and their log-probabilities, ``(rows,)``.
    """
    mean, log_std, _ = actor.get_action_dist_params(observations)
    return _squashed(mean, log_std, noise)


def _squashed(mean: torch.Tensor, log_std: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    actions = torch.tanh(mean + log_std.exp() * noise)
    normal = -0.5 * noise**2 - log_std - _HALF_LOG
    return actions, (normal - torch.log(1 - actions**2 + EPSILON)).sum(1)


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


class DenseSquashedActor:
    """Dense layers, and on them two linear ones: means, and logarithms of standard deviations.

    Args:
        body: Layers that both have in common.
        mean: The layer that gives means.
        log_std: The layer that gives logarithms of standard deviations, as yet without bounds.
        flat: All their parameters.
    """

    def __init__(self, body: Sequence[Layer], mean: Layer, log_std: Layer, flat: FlatParameters) -> None:
        self.body, self.flat = Dense(body, flat), flat
        self.mean, self.log_std = Dense([mean], flat, passes_on=True), Dense([log_std], flat, passes_on=True)
        self._of_rows: dict[int, _Squashed] = {}
        self._squashed: _Squashed | None = None

    def act(self, observations: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """See :meth:`SquashedActor.act`; observations are ``(rows, features)``, float32."""
        squashed = self._of_rows.get(noise.shape[0])
        if squashed is None:
            squashed = self._of_rows[noise.shape[0]] = _Squashed(noise)
        self._squashed = squashed
        latent = self.body.forward(observations)
        return squashed.forward(self.mean.forward(latent), self.log_std.forward(latent), noise)

    def backward(self, by_actions: torch.Tensor, by_log_prob: float) -> None:
        """See :meth:`SquashedActor.backward`."""
        assert self._squashed is not None, "act first"
        by_mean, by_log_std = self._squashed.backward(by_actions, by_log_prob)
        self.body.backward(self.mean.through(by_mean).add_(self.log_std.through(by_log_std)))


class _Squashed:
    """Squashed normal distributions for one number of rows."""

    def __init__(self, like: torch.Tensor) -> None:
        self.log_std, self.spread, self.actions, self.slack, self.divisor, self.by_mean, self.by_log_std = (
            torch.zeros_like(like) for _ in range(7)
        )
        self.raw = self.log_std
        self.log_prob = torch.zeros(len(like), device=like.device)
        self.constant = _HALF_LOG * like.shape[1]

    def forward(self, mean: torch.Tensor, log_std: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.raw = log_std
        torch.clamp(log_std, SMALLEST, LARGEST, out=self.log_std)
        torch.exp(self.log_std, out=self.spread).mul_(noise)
        torch.add(mean, self.spread, out=self.actions).tanh_()
        torch.mul(self.actions, self.actions, out=self.slack).neg_().add_(1)
        torch.add(self.slack, EPSILON, out=self.divisor)
        unlikely = torch.log(self.divisor, out=self.by_mean).add_(self.log_std).addcmul_(noise, noise, value=0.5)
        torch.sum(unlikely, 1, out=self.log_prob).add_(self.constant).neg_()
        return self.actions, self.log_prob

    def backward(self, by_actions: torch.Tensor, by_log_prob: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Gradients by means and by logarithms of standard deviations."""
        torch.div(self.actions, self.divisor, out=self.by_mean).mul_(2 * by_log_prob).add_(by_actions).mul_(self.slack)
        torch.mul(self.by_mean, self.spread, out=self.by_log_std).sub_(by_log_prob).mul_(self.raw == self.log_std)
        return self.by_mean, self.by_log_std


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
        actions, log_prob = _squashed(*self.parameters_of(observations), noise)
        self._outputs = (actions, log_prob)
        return actions.detach(), log_prob.detach()

    def backward(self, by_actions: torch.Tensor, by_log_prob: float) -> None:
        """See :meth:`SquashedActor.backward`."""
        self.flat.begin_gradients()
        gradients = (by_actions, torch.full_like(self._outputs[1], by_log_prob))
        torch.autograd.backward(self._outputs, gradients)
        self._outputs = ()
