"""Read modules of torch that somebody acts with: they give scores of choices, or actions of a ``Box``."""

from __future__ import annotations

import copy
import math
from typing import Any

import gymnasium
import torch
from gymnasium import spaces
from torch import nn

from reactor_torch.acting import Calls, DenseNet, Net, TorchNet
from reactor_torch.dense import layers_of
from reactor_torch.distributions import Deterministic, distribution_of
from reactor_torch.forward import DenseForward, HeldForward, TorchForward
from reactor_torch.parameters import computed_in
from reactor_torch.policy import Policy, Source
from reactor_torch.unmodified import reason

__all__ = ["as_policy"]

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
    match _dense_forward(named, observation_space):
        case DenseForward() as dense:
            network, module = DenseNet(dense), named
        case why:
            keyed, kind = isinstance(observation_space, spaces.Dict), HeldForward if here else TorchForward
            network = TorchNet(kind(copy.deepcopy(policy, computed_in(policy)), keyed, why), _Module())
    return Source(Policy(network, distribution_of(action_space, Deterministic), action_space), module)


def _dense_forward(module: nn.Module, space: gymnasium.Space[Any]) -> DenseForward | str:
    """A module that consists of linear layers, normalisation and activations alone; or why it does not."""
    if not isinstance(space, spaces.Box):
        return f"it observes {space}, and not numbers alone"
    named, why = _flattened("", module)
    if why is not None:
        return why
    if named and isinstance(named[-1][1], _LAST):
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


class _Module(Calls):
    """A module by its ``forward``, with numbers of its own type."""

    def outputs(self, module: Any, seen: Any, judges: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
        dtype = next((one.dtype for one in module.parameters() if one.is_floating_point()), torch.float32)

        def given(part: Any) -> Any:
            if isinstance(part, dict):
                return {key: given(one) for key, one in part.items()}
            return part.to(dtype) if part.is_floating_point() or part.dtype == torch.uint8 else part

        found = module(given(seen))
        if not isinstance(found, torch.Tensor):
            raise TypeError(f"the policy {type(module).__name__} returned {type(found).__name__}, not a tensor")
        return found.flatten(1), None
