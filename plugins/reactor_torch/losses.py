"""Parts that losses have in common: targets and errors by the extension, each with the gradients that a network is given back.

Arguments are what minibatches and networks of :mod:`reactor_torch.learned` have, float32 unless they say more. Gradients are of
the loss by what the network said, in its shape. ``share`` is the weight of a row: 1 / the rows of the whole minibatch, times the
weight of the loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from reactor_torch import kernels
from reactor_torch.learned_distributions import EPSILON, HALF_LOG_2PI

__all__ = [
    "policy_gradient_loss",
    "ppo_loss",
    "q_loss",
    "q_targets",
    "quantile_loss",
    "quantile_targets",
    "scaled",
    "squashed_sample",
    "td_loss",
    "weighted_sum",
]

Array = npt.NDArray[Any]


def squashed_sample(actor: Any, observations: Any, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Actions of SB3's squashed Gaussian actor for given noise, with a graph.

    Args:
        actor: Has ``get_action_dist_params``.
        observations: ``(rows, ...)``, as the actor takes them.
        noise: Standard normal, ``(rows, n)``, float32; of an actor with gSDE that of one matrix for all rows, ``(features, n)``.

    Returns:
        Actions in [-1, 1], ``(rows, n)``, and their log-probabilities, ``(rows,)``.
    """
    mean, log_std, more = actor.get_action_dist_params(observations)
    if "latent_sde" in more:
        return _by_matrix(mean, more["latent_sde"], actor.action_dist.get_std(log_std), noise)
    actions = torch.tanh(mean + log_std.exp() * noise)
    normal = -0.5 * noise**2 - log_std - HALF_LOG_2PI
    return actions, (normal - torch.log(1 - actions**2 + EPSILON)).sum(1)


def _by_matrix(mean: torch.Tensor, seen: torch.Tensor, std: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The same with gSDE, of what the last layer sees and a matrix' deviations; SB3 has ``atanh(actions)`` for their sum, too."""
    spread, variance = seen @ (std * noise), seen**2 @ std**2 + EPSILON
    actions = torch.tanh(mean + spread)
    normal = -0.5 * (spread**2 / variance + variance.log()) - HALF_LOG_2PI
    return actions, (normal - torch.log(1 - actions**2 + EPSILON)).sum(1)


def _array(tensor: torch.Tensor) -> Array:
    """A tensor as the extension takes it."""
    return np.ascontiguousarray(tensor.numpy())


def _made(shape: Sequence[int]) -> tuple[torch.Tensor, Array]:
    """A tensor to be filled, and the same as an array; ``torch.empty`` takes many times as long."""
    array = np.empty(shape, np.float32)
    return torch.from_numpy(array), array


def _discounts(batch: Any) -> tuple[Array | None, float]:
    """Those of each row, or one for all."""
    return (_array(batch.discounts), 0.0) if isinstance(batch.discounts, torch.Tensor) else (None, batch.discounts)


def weighted_sum(first: torch.Tensor, weight: float, second: torch.Tensor | None = None, other: float = 0.0) -> float:
    """The sum of ``weight * first + other * second``, ``(rows,)`` each."""
    return kernels.compiled.weighted_sum(_array(first), weight, None if second is None else _array(second), other)  # type: ignore[no-any-return]


def scaled(gradient: torch.Tensor, weight: float) -> torch.Tensor:
    """A gradient, each number of which has been multiplied in its place."""
    array = gradient.numpy()  # where a pass has been through the caches, torch takes tens of microseconds for this
    np.multiply(array, weight, out=array)
    return gradient


# ---------------------------------------------------------------------- values of actions that are numbers


def td_loss(
    values: torch.Tensor,
    following: torch.Tensor,
    batch: Any,
    share: float,
    log_prob: torch.Tensor | None = None,
    coefficient: float = 0.0,
) -> tuple[float, torch.Tensor]:
    """Squared errors of all critics, on rewards and the least that target critics say of what follows.

    Args:
        values: What each critic says of the transitions, ``(critics, rows)``.
        following: What each target critic says of what comes after them, ``(critics, rows)``, not discounted.
        batch: Transitions.
        share: Weight of a row.
        log_prob: Log-probabilities of the actions that come after them, ``(rows,)``.
        coefficient: What a unit of log-probability costs.

    Returns:
        The loss, and its gradient.
    """
    (gradient, out), (discounts, discount) = _made(values.shape), _discounts(batch)
    loss = kernels.compiled.td_loss(
        _array(values), _array(following), None if log_prob is None else _array(log_prob), coefficient, _array(batch.dones),
        _array(batch.rewards), discounts, discount, share, out,
    )  # fmt: skip
    return loss, gradient


# ---------------------------------------------------------------------- values of actions that are chosen


def q_targets(batch: Any, following: torch.Tensor, choosing: torch.Tensor | None = None) -> torch.Tensor:
    """Rewards, and what the best next actions bring, ``(rows,)``.

    Args:
        batch: Transitions.
        following: What a target network says of next observations, ``(rows, actions)``.
        choosing: What the network says of them that learns, if it chooses the action that the target values.
    """
    (returns, out), (discounts, discount) = _made(following.shape[:1]), _discounts(batch)
    chosen = None if choosing is None else choosing.numpy()
    given = _array(batch.dones), _array(batch.rewards), discounts, discount
    kernels.compiled.q_target(following.numpy(), chosen, *given, out)
    return returns


def q_loss(
    values: torch.Tensor, actions: torch.Tensor, returns: torch.Tensor, share: float, huber: bool = False
) -> tuple[float, torch.Tensor]:
    """How far the values of the actions taken are from returns, squared.

    Args:
        values: What the network says, ``(rows, actions)``.
        actions: Those taken, ``(rows,)`` or ``(rows, 1)``, int64.
        returns: What their values are to be, ``(rows,)``.
        share: Weight of a row.
        huber: Whether errors are squared up to 1, and count linearly from there on.

    Returns:
        The loss, and its gradient.
    """
    gradient, out = _made(values.shape)
    return kernels.compiled.q_loss(values.numpy(), _array(actions), _array(returns), huber, share, out), gradient


# ---------------------------------------------------------------------- quantiles of returns


def quantile_targets(batch: Any, following: torch.Tensor) -> torch.Tensor:
    """Rewards, and what follows them as it is worth now.

    Args:
        batch: Transitions.
        following: Quantiles of what comes after them, ``(rows, n)``; overwritten.
    """
    array, rows = following.numpy(), len(following)
    array *= 1 - batch.dones.numpy().reshape(rows, 1)
    array *= batch.discounts.numpy().reshape(rows, 1) if isinstance(batch.discounts, torch.Tensor) else batch.discounts
    array += batch.rewards.numpy().reshape(rows, 1)
    return following


def quantile_loss(quantiles: torch.Tensor, returns: torch.Tensor, share: float) -> tuple[float, torch.Tensor]:
    """Quantile regression with Huber's loss (Dabney et al. 2018): each return counts for each quantile of its row.

    Args:
        quantiles: What each critic says, ``(critics, rows, n)``.
        returns: ``(rows, m)``.
        share: Weight of each pair.

    Returns:
        The loss, and its gradient.
    """
    gradient, out = _made(quantiles.shape)
    given = _array(quantiles), _array(returns)
    return kernels.compiled.quantile_loss(*quantiles.shape[:2], *given, share, out), gradient


# ---------------------------------------------------------------------- probabilities


def policy_gradient_loss(
    said: tuple[Array, Array, Array], batch: Any, share: float, ent_coef: float, vf_coef: float
) -> tuple[tuple[float, ...], Array, Array]:
    """Log-probabilities of actions, weighted by their advantages, value loss and entropy (Mnih et al. 2016).

    Args:
        said: Values, log-probabilities and entropies of a minibatch, arrays ``(rows,)``.
        batch: Advantages and returns.
        share: Weight of a row.
        ent_coef: Weight of the entropy.
        vf_coef: Weight of the value loss.

    Returns:
        The loss and its parts (policy's, values', negative entropy), and gradients by values and by log-probabilities.
    """
    values, log_prob, entropy = said
    advantages, errors = _array(batch.advantages), values - _array(batch.returns)
    with np.errstate(all="ignore"):  # who trains looks at the losses
        gains, squared = advantages * log_prob, errors * errors
        of_row = vf_coef * squared - gains - ent_coef * entropy  # summed up row by row, too: the same bits however rows are shared
        weighted = ((of_row, share), (gains, -share), (squared, share), (entropy, -share))
    loss, policy, squares, uncertainty = (kernels.compiled.weighted_sum(one, weight, None, 0.0) for one, weight in weighted)
    return (loss, policy, squares, uncertainty), errors * (2 * vf_coef * share), advantages * -share


def ppo_loss(
    said: tuple[Array, Array, Array],
    batch: Any,
    share: float,
    clip_range: float,
    clip_range_vf: float | None,
    ent_coef: float,
    vf_coef: float,
) -> tuple[tuple[float, ...], Array, Array]:
    """PPO's clipped surrogate, value loss and entropy (Schulman et al. 2017).

    Args:
        said: Values, log-probabilities and entropies of a minibatch, arrays ``(rows,)``.
        batch: Advantages, returns, and what was said when actions were chosen.
        share: Weight of a row.
        clip_range: How far from 1 the ratio of probabilities counts.
        clip_range_vf: How far from what it was a value counts; ``None`` for as far as it is.
        ent_coef: Weight of the entropy.
        vf_coef: Weight of the value loss.

    Returns:
        The loss and its parts (surrogate, value loss, negative entropy, divergence, how many of the ratios were clipped), and
        gradients by values and by log-probabilities.
    """
    statistics, by_values, by_log_prob = (np.empty(shape, np.float32) for shape in (6, said[0].shape, said[0].shape))
    given: list[Any] = [_array(one) for one in (batch.advantages, batch.returns, batch.old_log_prob)]
    given.append(None if clip_range_vf is None else _array(batch.old_values))
    numbers = clip_range, clip_range_vf or 0.0, ent_coef, vf_coef, share
    kernels.compiled.ppo_loss(*said, *given, *numbers, by_values, by_log_prob, statistics)
    return tuple(statistics.tolist()), by_values, by_log_prob
