"""Hand-derived gradients for continuous actions: critics, squashed actors, and the losses of SAC and TD3 over them.

Critics give values, their derivatives by parameters, and those by actions: the loss of the critics needs the former, the loss of an
actor the latter, never both, so that neither pays for the other's.

Of a squashed normal distribution the action is ``tanh(u)`` with ``u = mean + std * noise``, its log-probability that of ``u`` less
``log(1 - tanh(u)^2 + 1e-6)``: Haarnoja et al., "Soft Actor-Critic Algorithms and Applications", 2018, appendix C, with the constant
and the weights of Stable-Baselines3. In terms of the noise the normal part is ``-noise^2 / 2 - log(std) - log(2 pi) / 2``, which
depends on the network by ``log(std)`` alone. TD3 is Fujimoto et al., "Addressing Function Approximation Error in Actor-Critic
Methods", 2018. Nothing is drawn here: noise comes with the minibatch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from reactor_torch.batches import TransitionBatch
from reactor_torch.dense import Dense, Function, Layer, backward_all, forward_all, least_and_slopes
from reactor_torch.flat import FlatParameters, kernels_for, numbers
from reactor_torch.kept import keep

__all__ = [
    "Critics",
    "DenseCritics",
    "DenseSquashedActor",
    "SACActorFormula",
    "SACCriticFormula",
    "SquashedActor",
    "TD3ActorFormula",
    "TD3CriticFormula",
    "squashed_sample",
    "td_errors",
    "td_loss",
]


class Critics(Protocol):
    """Several networks that value the same observations and actions."""

    flat: FlatParameters

    def q_values(self, observations: Any, actions: torch.Tensor) -> torch.Tensor:
        """Each critic's values, ``(critics, rows)``, cut off from autograd's graph."""
        ...

    def backward(self, gradient: torch.Tensor) -> None:
        """Overwrite the gradients of the parameters, from those of the loss by what the last :meth:`q_values` gave."""
        ...

    def action_gradient(self, observations: Any, actions: torch.Tensor, first: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        """The values that an actor is to make larger, without gradients of parameters.

        Args:
            observations: ``(rows, ...)``.
            actions: ``(rows, n)``.
            first: Whether the first critic alone is asked, and not the least of what all say.

        Returns:
            Values ``(rows,)`` and the derivative of each by its action, ``(rows, n)``, which may be overwritten.
        """
        ...


def td_loss(
    kernels: Any,
    critics: Critics,
    batch: TransitionBatch,
    following: torch.Tensor,
    weight: float,
    of: int | None,
    log_prob: torch.Tensor | None = None,
    coefficient: float = 0.0,
) -> Any:
    """Gradients of the squared errors of all critics.

    Args:
        kernels: The extension, if it is to be used.
        critics: They.
        batch: TransitionBatch, or a slice of them.
        following: What each target critic says of what comes after them, ``(critics, rows)``, not discounted.
        weight: Weight of the loss.
        of: Rows of the whole minibatch.
        log_prob: Log-probabilities of the actions that come after them, ``(rows,)``.
        coefficient: What a unit of log-probability costs.

    Returns:
        The loss, or the slice's share of it: a scalar.
    """
    rows = following.shape[1]
    values, share = critics.q_values(batch.observations, batch.actions), weight / (of or rows)
    if kernels is not None:
        by_values = torch.empty_like(values)
        loss = td_errors(kernels, values, batch, following, share, by_values, log_prob, coefficient)
        critics.backward(by_values)
        return loss
    least = following.amin(0)
    if log_prob is not None:
        least.sub_(log_prob, alpha=coefficient)
    discounts: Any = batch.discounts.view(rows) if isinstance(batch.discounts, torch.Tensor) else batch.discounts
    errors = values.sub_(least.mul_(1 - batch.dones.view(rows)).mul_(discounts).add_(batch.rewards.view(rows)))
    flat = errors.view(-1)
    loss = torch.dot(flat, flat).mul_(share)
    critics.backward(errors.mul_(2 * share))
    return loss


def td_errors(
    kernels: Any,
    values: torch.Tensor,
    batch: TransitionBatch,
    following: torch.Tensor,
    share: float,
    by_values: torch.Tensor,
    log_prob: torch.Tensor | None = None,
    coefficient: float = 0.0,
) -> Any:
    """Squared errors of all critics, by the extension; arguments as for :func:`td_loss`, and besides:

    Args:
        values: What each critic says of the transitions themselves, ``(critics, rows)``.
        share: Weight of each row.
        by_values: Where the derivatives by these values go, of the same shape.
    """
    per_row = isinstance(batch.discounts, torch.Tensor)
    return kernels.td_loss(
        _array(values), _array(following), None if log_prob is None else _array(log_prob), coefficient, _array(batch.dones),
        _array(batch.rewards), _array(batch.discounts) if per_row else None, 0.0 if per_row else batch.discounts, share,
        by_values.numpy(),
    )  # fmt: skip


def _array(tensor: Any) -> Any:
    """A tensor in a processor's memory as the extension takes it."""
    return np.ascontiguousarray(tensor.numpy())


class DenseCritics:
    """Critics of dense layers without common parameters, each given observations and behind them actions.

    Args:
        networks: Layers of each critic; the first is linear, or renormalises batches.
        flat: Parameters of all critics.
        buffers: See :class:`~reactor_torch.Dense`.
    """

    def __init__(
        self, networks: Sequence[Sequence[Layer]], flat: FlatParameters, buffers: Mapping[str, torch.Tensor] | None = None
    ) -> None:
        self.flat, self.kernels = flat, kernels_for(flat.device)
        self.networks = [
            Dense(layers, flat, room=partial(self._room, number), buffers=buffers) for number, layers in enumerate(networks)
        ]
        self.outputs = networks[0][-1].outputs
        self._of_rows: dict[int, torch.Tensor] = {}
        self._outputs: dict[int, torch.Tensor] = {}

    def _room(self, number: int, rows: int) -> torch.Tensor:
        """Where the extension puts what a critic says: they lie below each other."""
        room = self._outputs.get(rows)
        if room is None:
            room = keep(self._outputs, rows, torch.zeros(len(self.networks), rows, self.outputs))
            if len(self._outputs) == 1:  # the others are forgotten, and so are the layers that write there
                for network in self.networks:
                    network.forget()
        return room[number]

    def q_values(self, observations: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """See :meth:`Critics.q_values`; observations are ``(rows, features)``, float32. Valid until the next call."""
        return self.outputs_of(self.inputs_of(observations, actions))[:, :, 0]

    def outputs_of(self, inputs: torch.Tensor, training: bool = False) -> torch.Tensor:
        """Each critic's outputs, ``(critics, rows, outputs)``; ``training`` as for :meth:`Dense.forward`."""
        found = forward_all(self.networks, inputs, training)
        return torch.stack(found) if self.kernels is None else self._outputs[inputs.shape[0]]

    def backward(self, gradient: torch.Tensor) -> None:
        """See :meth:`Critics.backward`."""
        backward_all(self.networks, gradient.view(*gradient.shape[:2], self.outputs).unbind())

    def action_gradient(
        self, observations: torch.Tensor, actions: torch.Tensor, first: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See :meth:`Critics.action_gradient`; each critic is differentiated only where its value is the least."""
        inputs, features = self.inputs_of(observations, actions), observations.shape[1]
        if first or len(self.networks) == 1:
            values = self.networks[0].forward(inputs).view(-1)
            return values, self.networks[0].input_gradient(None, features)
        if self.kernels is not None:
            return least_and_slopes(self.networks, self.outputs_of(inputs)[:, :, 0], features)
        gradient = torch.empty_like(actions)
        values, which = torch.stack([network.forward(inputs).view(-1) for network in self.networks]).min(0)
        for number, network in enumerate(self.networks):
            rows = (which == number).nonzero().view(-1)
            gradient.index_copy_(0, rows, network.input_gradient(rows, features))
        return values, gradient

    def inputs_of(self, observations: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """The input of each critic, ``(rows, features + n)``; valid until the next call."""
        rows, width = actions.shape[0], observations.shape[1] + actions.shape[1]
        inputs = self._of_rows.get(rows)
        if inputs is None:
            inputs = keep(self._of_rows, rows, torch.zeros(rows, width, device=self.flat.device))
        return torch.cat((observations, actions), 1, out=inputs)


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

    def act(self, observations: Any, noise: torch.Tensor, training: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        """Actions ``(rows, n)`` and log-probabilities ``(rows,)``, cut off from autograd's graph and valid until the next call.

        Args:
            observations: ``(rows, ...)``.
            noise: Standard normal, ``(rows, n)``.
            training: Whether batches are normalised by their own statistics, and running ones change, if there are any.
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
        buffers: See :class:`~reactor_torch.Dense`.
    """

    def __init__(
        self,
        body: Sequence[Layer],
        mean: Layer,
        log_std: Layer,
        flat: FlatParameters,
        buffers: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        self.body, self.flat = Dense(body, flat, buffers=buffers), flat
        self.heads = Dense([mean], flat, passes_on=True), Dense([log_std], flat, passes_on=True)
        self._of_rows: dict[int, _Squashed] = {}
        self._squashed: _Squashed | None = None

    def act(self, observations: torch.Tensor, noise: torch.Tensor, training: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        """See :meth:`SquashedActor.act`; observations are ``(rows, features)``, float32."""
        squashed = self._of_rows.get(noise.shape[0])
        if squashed is None:
            squashed = keep(self._of_rows, noise.shape[0], _Squashed(noise))
        self._squashed = squashed
        latent = self.body.forward(observations, training)
        mean, log_std = forward_all(self.heads, latent)
        return squashed.forward(mean, log_std, noise)

    def backward(self, by_actions: torch.Tensor, by_log_prob: float) -> None:
        """See :meth:`SquashedActor.backward`."""
        assert self._squashed is not None, "act first"
        below, more = backward_all(self.heads, self._squashed.backward(by_actions, by_log_prob))
        self.body.backward(below.add_(more))


class _Squashed:
    """Squashed normal distributions for one number of rows."""

    def __init__(self, like: torch.Tensor) -> None:
        self.log_std, self.spread, self.actions, self.slack, self.divisor, self.by_mean, self.by_log_std = (
            torch.zeros_like(like) for _ in range(7)
        )
        self.raw = self.log_std
        self.log_prob = torch.zeros(len(like), device=like.device)
        self.constant = _HALF_LOG * like.shape[1]
        self.kernels = kernels_for(like.device)
        if self.kernels is not None:
            self.made = [one.numpy() for one in (self.actions, self.spread, self.slack)]
            self.gradients = [one.numpy() for one in (self.by_mean, self.by_log_std)]

    def forward(self, mean: torch.Tensor, log_std: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.raw = log_std
        if self.kernels is not None:
            given = mean.numpy(), log_std.numpy(), _array(noise)
            self.kernels.squashed_gaussian(*given, *self.made, self.log_prob.numpy(), self.gradients[0], SMALLEST, LARGEST)
            return self.actions, self.log_prob
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
        if self.kernels is not None:
            self.kernels.squashed_gaussian_backward(
                _array(by_actions), by_log_prob, *self.made, self.raw.numpy(), *self.gradients, SMALLEST, LARGEST
            )
            return self.by_mean, self.by_log_std
        torch.div(self.actions, self.divisor, out=self.by_mean).mul_(2 * by_log_prob).add_(by_actions).mul_(self.slack)
        torch.mul(self.by_mean, self.spread, out=self.by_log_std).sub_(by_log_prob).mul_(self.raw == self.log_std)
        return self.by_mean, self.by_log_std


Array = npt.NDArray[Any]


class SACCriticFormula:
    """How far critics are from rewards and what target critics say of the actor's next action, less its log-probability.

    Args:
        loss: The loss.
        critics: What learns.
        target: Target critics.
        actor: What chooses next actions.
    """

    def __init__(self, loss: Any, critics: Critics, target: Critics, actor: SquashedActor) -> None:
        self.loss, self.critics, self.target, self.actor = loss, critics, target, actor
        self.kernels = kernels_for(critics.flat.device)
        self.block: int | None = None if self.kernels is None else self.kernels.LEAF

    def gradients(self, batch: Any, of: int | None = None) -> Array:
        """See :meth:`Formula.gradients`: half the mean squared error, added up over the critics, ``(1,)``."""
        actions, log_prob = self.actor.act(batch.next_observations, batch.next_noise)
        following = self.target.q_values(batch.next_observations, actions)
        return numbers([td_loss(self.kernels, self.critics, batch, following, 0.5, of, log_prob, batch.ent_coef)])


class SACActorFormula:
    """The cost of the actor's own actions: their log-probability, less the least value that a critic gives them.

    Args:
        loss: The loss.
        actor: What learns.
        critics: What values its actions.
    """

    def __init__(self, loss: Any, actor: SquashedActor, critics: Critics) -> None:
        self.loss, self.actor, self.critics = loss, actor, critics
        self.kernels = kernels_for(actor.flat.device)
        self.block: int | None = None if self.kernels is None else self.kernels.LEAF
        self.training = False

    def gradients(self, batch: Any, of: int | None = None) -> Array:
        """See :meth:`Formula.gradients`: the loss, and the mean log-probability of the actions, ``(2,)``."""
        actions, log_prob = self.actor.act(batch.observations, batch.noise, self.training)
        q_values, action_gradient = self.critics.action_gradient(batch.observations, actions)
        share = 1 / (of or q_values.shape[0])
        mean_log_prob: Any
        loss: Any
        if self.kernels is not None:
            likely, worth = _array(log_prob), _array(q_values)
            mean_log_prob = self.kernels.weighted_sum(likely, share, None, 0.0)
            loss = self.kernels.weighted_sum(likely, batch.ent_coef * share, worth, -share)
        else:
            mean_log_prob = log_prob.sum() * share
            loss = mean_log_prob * batch.ent_coef - q_values.sum() * share
        self.actor.backward(action_gradient.mul_(-share), batch.ent_coef * share)
        return numbers([loss, mean_log_prob])


class TD3CriticFormula:
    """How far critics are from rewards and what target critics say of the target actor's next action with some noise.

    Args:
        loss: The loss.
        critics: What learns.
        target: Target critics.
        target_actor: What chooses next actions, in [-1, 1].
    """

    def __init__(self, loss: Any, critics: Critics, target: Critics, target_actor: Function) -> None:
        self.loss, self.critics, self.target, self.target_actor = loss, critics, target, target_actor
        self.kernels = kernels_for(critics.flat.device)
        self.block: int | None = None if self.kernels is None else self.kernels.LEAF

    def gradients(self, batch: Any, of: int | None = None) -> Array:
        """See :meth:`Formula.gradients`: the mean squared error, added up over the critics, ``(1,)``."""
        actions = (self.target_actor.forward(batch.next_observations) + batch.next_noise).clamp_(-1, 1)
        following = self.target.q_values(batch.next_observations, actions)
        return numbers([td_loss(self.kernels, self.critics, batch, following, 1.0, of)])


class TD3ActorFormula:
    """The first critic's value of the actor's own actions, negative.

    Args:
        loss: The loss.
        actor: What learns.
        critics: What values its actions.
    """

    def __init__(self, loss: Any, actor: Function, critics: Critics) -> None:
        self.loss, self.actor, self.critics = loss, actor, critics
        self.kernels = kernels_for(actor.flat.device)
        self.block: int | None = None if self.kernels is None else self.kernels.LEAF

    def gradients(self, batch: Any, of: int | None = None) -> Array:
        """See :meth:`Formula.gradients`: the loss, ``(1,)``."""
        actions = self.actor.forward(batch.observations)
        q_values, action_gradient = self.critics.action_gradient(batch.observations, actions, first=True)
        share = 1 / (of or q_values.shape[0])
        loss: Any = (
            -q_values.sum() * share if self.kernels is None else self.kernels.weighted_sum(_array(q_values), -share, None, 0.0)
        )
        self.actor.backward(action_gradient.mul_(-share))
        return numbers([loss])
