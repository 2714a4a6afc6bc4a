"""Read modules of torch that somebody acts with: they give scores of choices, actions of a ``Box``, or a distribution of either."""

from __future__ import annotations

import copy
import math
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from torch import distributions as of_torch
from torch import nn

from reactor_torch.acting import Calls, DenseNet, Net, TorchNet
from reactor_torch.dense import layers_of
from reactor_torch.distributions import FORBIDDEN, Deterministic, distribution_of
from reactor_torch.forward import DenseForward, HeldForward, TorchForward
from reactor_torch.parameters import computed_in
from reactor_torch.policy import Policy, Source
from reactor_torch.unmodified import reason

__all__ = ["ModuleCalls", "as_policy", "drawn_by_torch"]

Array = npt.NDArray[Any]
_LAST = (nn.Softmax, nn.LogSoftmax)
"""Layers that may come last and are left out: choices are drawn by the logits before it."""


def as_policy(
    policy: Any,
    observation_space: gymnasium.Space[Any] | None = None,
    action_space: gymnasium.Space[Any] | None = None,
    here: bool = False,
) -> Source | None:
    """See :func:`reactor_torch.as_policy`: of a module, whose spaces have to be given."""
    if not isinstance(policy, nn.Module) or observation_space is None or action_space is None:
        return None
    named = policy if isinstance(policy, nn.Sequential) else nn.Sequential(policy)  # a layer by itself has no name
    network: Net
    module: nn.Module = policy
    chooses = isinstance(action_space, spaces.Discrete)
    match _dense_forward(named, observation_space, chooses):
        case DenseForward() as dense:
            network, module = DenseNet(dense), named
        case why:
            keyed, kind = isinstance(observation_space, spaces.Dict), HeldForward if here else TorchForward
            calls = _Probabilities() if chooses and _ends_in_softmax(policy) else ModuleCalls()
            network = TorchNet(kind(copy.deepcopy(policy, computed_in(policy)), keyed, why), calls)
    return Source(Policy(network, distribution_of(action_space, Deterministic), action_space), module)


def _dense_forward(module: nn.Module, space: gymnasium.Space[Any], chooses: bool) -> DenseForward | str:
    """A module that consists of linear layers, normalisation and activations alone; or why it does not.

    Args:
        module: The module.
        space: Of observations.
        chooses: Whether it gives the scores of one choice, which a softmax at the end changes nothing about.
    """
    if not isinstance(space, spaces.Box):
        return f"it observes {space}, and not numbers alone"
    named, why = _flattened("", module)
    if why is not None:
        return why
    if chooses and named and isinstance(named[-1][1], _LAST):
        named.pop()
    first = named[0][1] if named else None
    if isinstance(first, nn.Flatten) and (first.start_dim, first.end_dim) == (1, -1):
        named.pop(0)
    elif len(space.shape) != 1:
        return f"its first layer is given observations of {len(space.shape)} dimensions"
    features = math.prod(space.shape)
    layers = layers_of(named, features)
    if isinstance(layers, str):
        return layers
    if not any(layer.kind == "linear" for layer in layers) or not DenseForward.knows(layers):
        return f"{type(module).__name__} has layers that are evaluated by torch alone"
    if len(list(module.parameters())) < sum(1 for _ in module.named_parameters(remove_duplicate=False)):
        return "its modules share a parameter"
    return DenseForward(layers, features, one_hot=False)


def _flattened(name: str, module: nn.Module) -> tuple[list[tuple[str, nn.Module]], str | None]:
    """The modules in a ``Sequential``, however deep, in order and by name; and why one of them may do anything, if one may."""
    if (why := reason(module, named=name)) is not None:
        return [], why
    if type(module) in (nn.Identity, nn.Dropout):  # which do nothing when nobody learns
        return [], None
    if type(module) is not nn.Sequential:
        return [(name, module)], None
    parts = [_flattened(f"{name}.{key}".removeprefix("."), part) for key, part in module.named_children()]
    return [one for found, _ in parts for one in found], next((why for _, why in parts if why is not None), None)


def _ends_in_softmax(module: nn.Module) -> bool:
    """Whether a ``Sequential`` gives probabilities and not their logarithms."""
    return type(module) is nn.Sequential and len(module) > 0 and isinstance(module[-1], nn.Softmax)


class ModuleCalls(Calls):
    """A module by its ``forward``, with numbers of its own type."""

    def answer(self, module: Any, seen: Any) -> Any:
        """The answer to observations: scores or actions, ``(rows, ...)``; or a ``torch.distributions.Distribution``."""
        dtype = next((one.dtype for one in module.parameters() if one.is_floating_point()), torch.float32)

        def given(part: Any) -> Any:
            if isinstance(part, dict):
                return {key: given(one) for key, one in part.items()}
            return part.to(dtype) if part.is_floating_point() or part.dtype == torch.uint8 else part

        return module(given(seen))

    def outputs(self, module: Any, seen: Any, judges: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
        found = self.answer(module, seen)
        if not isinstance(found, torch.Tensor):
            raise TypeError(f"the policy {type(module).__name__} returned {type(found).__name__}, not a tensor")
        return found.flatten(1), None


class _Probabilities(ModuleCalls):
    """A module that gives probabilities: their logarithms are scores."""

    def answer(self, module: Any, seen: Any) -> Any:
        found = super().answer(module, seen)
        return found.log() if isinstance(found, torch.Tensor) else found


# ---------------------------------------------------------------------- distributions that modules return


def drawn_by_torch(
    distribution: of_torch.Distribution, space: gymnasium.Space[Any], rows: int, masks: Array | None, *, best: bool, named: str
) -> Array:
    """Actions from a distribution that a module has returned, as torch draws them.

    Args:
        distribution: The distribution.
        space: Of one action.
        rows: How many observations the module was asked about.
        masks: Of choices, ``(rows, choices)``, not 0 where one is allowed; only a ``Categorical`` obeys them.
        best: Whether the mode is taken, and nothing is drawn.
        named: The policy, for messages.

    Returns:
        Raw actions, ``(rows, *shape)``; choices are counted from 0, and may be NaN.

    Raises:
        TypeError: If actions cannot be drawn, if there is no mode and it is wanted, or if draws are no actions.
        ValueError: If draws have another shape than actions.
    """
    what = f"the policy {named!r} returned a distribution {type(distribution).__name__}"
    found = _with_masks(distribution, space, masks)
    drawn: Array = (_best(found, what) if best else _drawn(found, what)).numpy()
    wanted = (rows, *(space.shape or ()))
    if drawn.shape != wanted:
        raise ValueError(f"{what} of shape {drawn.shape} for {rows} observations; expected is {wanted} for actions of {space}")
    if not isinstance(space, spaces.Box) and not (_is_discrete(found) and np.array_equal(drawn, np.rint(drawn), equal_nan=True)):
        fit = "Bernoulli" if isinstance(space, spaces.MultiBinary) else "Categorical"
        raise TypeError(f"{what}, which is one of fractions, for actions of {space}: return a torch.distributions.{fit}")
    return drawn


def _with_masks(distribution: Any, space: gymnasium.Space[Any], masks: Array | None) -> Any:
    """The distribution without what is forbidden; one-hot vectors that stand for a choice become its number."""
    while type(distribution) is of_torch.Independent:
        distribution = distribution.base_dist
    if isinstance(space, spaces.Discrete) and _is(distribution, of_torch.OneHotCategorical):
        distribution = of_torch.Categorical(logits=distribution.logits)
    if masks is None or not _is(distribution, of_torch.Categorical) or distribution.logits.numel() != masks.size:
        return distribution
    forbidden = torch.from_numpy(masks == 0).reshape(distribution.logits.shape)
    return of_torch.Categorical(logits=distribution.logits.masked_fill(forbidden, float(FORBIDDEN)))


def _is(distribution: Any, kind: type[of_torch.Distribution]) -> bool:
    """Whether it draws as those of a kind do: a class that derives from it may do otherwise."""
    cls = type(distribution)
    return isinstance(distribution, kind) and cls.sample is kind.sample and cls.mode is kind.mode


def _drawn(distribution: of_torch.Distribution, what: str) -> torch.Tensor:
    try:
        return distribution.sample()
    except NotImplementedError:
        raise TypeError(f"{what}, which cannot be drawn from: its sample() is not implemented. Return the actions") from None


def _best(distribution: of_torch.Distribution, what: str) -> torch.Tensor:
    mode: torch.Tensor | None = _mode(distribution)
    if mode is None or torch.isnan(mode).all():
        raise TypeError(
            f"{what}, which has no mode, and with deterministic=True the best actions are taken: return those, or let actions be "
            "drawn with deterministic=False"
        )
    return mode


def _mode(distribution: Any) -> Any:
    """The mode, or ``None``; of a transformed one that says none, the base's mode transformed (tanh of a normal one's mean)."""
    if type(distribution) is of_torch.Independent:
        return _mode(distribution.base_dist)
    if _is(distribution, of_torch.Bernoulli):  # torch's is NaN where both are as likely
        return (distribution.logits > 0).to(distribution.logits)
    try:
        return distribution.mode
    except NotImplementedError:
        pass
    if not isinstance(distribution, of_torch.TransformedDistribution):
        return None
    value = _mode(distribution.base_dist)
    for transform in distribution.transforms:
        value = None if value is None else transform(value)
    return value


def _is_discrete(distribution: Any) -> bool:
    """Whether it is one of whole numbers, as far as it says."""
    try:
        return bool(distribution.support.is_discrete)
    except (NotImplementedError, AttributeError):
        return True
