"""Actions from the ``torch.distributions`` that policies return: drawn from that very distribution, or its mode."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import Space, spaces
from torch.distributions import (
    Bernoulli,
    Categorical,
    Distribution,
    Independent,
    Normal,
    OneHotCategorical,
    TransformedDistribution,
)

from reactor_pettingzoo.runner.actions import ActionSampler

__all__ = ["choose_by"]

Array = npt.NDArray[Any]


def choose_by(
    sampler: ActionSampler, name: str, space: Space[Any], distribution: Any, masks: Array | None, rows: int, greedy: bool
) -> Array:
    """Actions of rows.

    Scores, of which ``masks`` say which are legal, and normal distributions are left to :class:`ActionSampler`, which has a stream
    for each environment and agent; all others (SB3's are a list of one for each component) draw themselves, by torch's generator.

    Raises:
        TypeError: If actions cannot be drawn, if there is no mode and it is wanted, or if draws are no actions.
        ValueError: If draws have another shape than actions.
    """
    values = _values(distribution, space)
    if values is not None:
        return sampler.choose(name, space, values, masks, rows, greedy)
    what = f"the policy {name!r} returned a distribution {type(distribution).__name__}"
    drawn: Array = (_best(distribution, what) if greedy else _drawn(distribution, what)).numpy()
    wanted = (rows, *(space.shape or ()))
    if drawn.shape != wanted:
        raise ValueError(f"{what} of shape {drawn.shape} for {rows} observations; expected is {wanted} for actions of {space}")
    sampler.look(drawn)
    if sampler.spoilt is not None:
        drawn = np.nan_to_num(drawn)
    if isinstance(space, spaces.Box):
        return np.asarray(np.clip(drawn, space.low, space.high), space.dtype)
    if not np.array_equal(drawn, np.rint(drawn)) or not _discrete(distribution):
        fit = "Bernoulli" if isinstance(space, spaces.MultiBinary) else "Categorical"
        raise TypeError(f"{what}, which is one of fractions, for actions of {space}: return a torch.distributions.{fit}")
    return np.asarray(drawn, np.int64) + getattr(space, "start", 0)


def _values(distribution: Any, space: Space[Any]) -> Any:
    """Scores, or mean and standard deviation; ``None`` if it is another distribution, or has another shape."""
    if isinstance(distribution, list):  # SB3's
        if isinstance(space, spaces.MultiBinary):  # sb3-contrib's, of two choices each
            logits = torch.stack([part.logits for part in distribution], 1)
            return (logits[..., 1] - logits[..., 0]).reshape(-1, *(space.shape or ())).numpy()
        return torch.cat([part.logits for part in distribution], 1).numpy()
    while type(distribution) is Independent:
        distribution = distribution.base_dist
    if isinstance(space, spaces.Discrete) and (_is(distribution, Categorical) or _is(distribution, OneHotCategorical)):
        return distribution.logits.numpy()
    if isinstance(space, spaces.MultiDiscrete) and _is(distribution, Categorical):
        logits = distribution.logits
        if logits.shape[1:-1] == space.nvec.shape and (space.nvec == logits.shape[-1]).all():
            return logits.reshape(len(logits), -1).numpy()
    if isinstance(space, spaces.MultiBinary) and _is(distribution, Bernoulli):
        return distribution.logits.numpy()
    if isinstance(space, spaces.Box) and _is(distribution, Normal):
        return distribution.mean.numpy(), distribution.stddev.numpy()
    return None


def _is(distribution: Any, kind: type[Distribution]) -> bool:
    """Whether it draws as those of a kind do: a class that derives from it may do otherwise."""
    cls = type(distribution)
    return isinstance(distribution, kind) and cls.sample is kind.sample and cls.mode is kind.mode


def _drawn(distribution: Distribution, what: str) -> torch.Tensor:
    try:
        return distribution.sample()
    except NotImplementedError:
        raise TypeError(f"{what}, which cannot be drawn from: its sample() is not implemented. Return the actions") from None


def _best(distribution: Distribution, what: str) -> torch.Tensor:
    mode: torch.Tensor | None = _mode(distribution)
    if mode is None or torch.isnan(mode).all():
        raise TypeError(
            f"{what}, which has no mode, and with deterministic=True the best actions are taken: return those, or let actions be "
            "drawn with deterministic=False"
        )
    return mode


def _mode(distribution: Any) -> Any:
    """The mode, or ``None``; of a transformed one that says none, the base's mode transformed (tanh of a normal one's mean)."""
    if type(distribution) is Independent:
        return _mode(distribution.base_dist)
    if _is(distribution, Bernoulli):  # torch's is NaN where both are as likely
        return (distribution.logits > 0).to(distribution.logits)
    try:
        return distribution.mode
    except NotImplementedError:
        pass
    if not isinstance(distribution, TransformedDistribution):
        return None
    value = _mode(distribution.base_dist)
    for transform in distribution.transforms:
        value = None if value is None else transform(value)
    return value


def _discrete(distribution: Any) -> bool:
    """Whether it is one of whole numbers, as far as it says."""
    try:
        return bool(distribution.support.is_discrete)
    except (NotImplementedError, AttributeError):
        return True
