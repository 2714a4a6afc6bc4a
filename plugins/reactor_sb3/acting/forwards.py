"""SB3's networks as actors evaluate them: dense layers, and images where there is the extension, without torch; others by torch."""

from __future__ import annotations

import copy
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.torch_layers import FlattenExtractor, NatureCNN
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from reactor_torch import (
    ConvolvedForward,
    DenseForward,
    TorchForward,
    computed_in,
    image_layers_of,
    is_untouched,
    layers_of,
    torch_state,
    torch_stream,
)

__all__ = ["LIBRARIES", "as_written", "copied", "dense_forward", "features_of", "has_tied", "image_forward", "torch_forward"]

M = TypeVar("M", bound=nn.Module)
LIBRARIES = ("stable_baselines3", "sb3_contrib", "reactor_sb3")
"""Packages whose networks and trainers are known here."""
_METHODS = (
    "forward", "forward_actor", "extract_features",
    "get_distribution", "get_action_dist_params", "_get_action_dist_from_latent", "_predict",
)  # fmt: skip


def features_of(space: spaces.Space[Any], *, normalized: bool) -> tuple[int, bool] | None:
    """How SB3 prepares observations before the first layer, if it does no more than flatten them, or set one of many to 1.

    Args:
        space: Of observations.
        normalized: Whether images are divided by 255.

    Returns:
        How many numbers there are then, and whether one of them is 1 and all others are 0.
    """
    if isinstance(space, spaces.Discrete):
        return int(space.n), True
    if not isinstance(space, spaces.Box) or (is_image_space(space) and normalized):
        return None
    return int(np.prod(space.shape)), False


def as_written(network: nn.Module) -> bool:
    """Whether a network does what a library has written it to do with its layers, and nobody has hung anything onto it."""
    methods = [getattr(type(network), name) for name in _METHODS if hasattr(type(network), name)]
    untouched = is_untouched(network) and vars(network).keys().isdisjoint(_METHODS)
    return untouched and all(method.__module__.partition(".")[0] in LIBRARIES for method in methods)


def has_tied(network: nn.Module) -> bool:
    """Whether different modules of a network share a parameter: it has one name only where parameters are looked up by name."""
    parts = chain.from_iterable(part._parameters.values() for part in network.modules())
    own = [id(one) for one in parts if one is not None]
    return len(own) > len(set(own))


def dense_forward(
    network: nn.Module,
    space: spaces.Space[Any],
    name: str = "q_net",
    more: int = 0,
    renormalising: type[nn.Module] | None = None,
) -> DenseForward | None:
    """A network of SB3's, if there is nothing but what :class:`~reactor_torch.DenseForward` evaluates.

    Args:
        network: The network.
        space: Of observations.
        name: Of the layers in it, which follow its features extractor.
        more: How many numbers they are given behind those of observations.
        renormalising: See :func:`~reactor_torch.layers_of`.
    """
    body = getattr(network, name, None)
    flat = features_of(space, normalized=getattr(network, "normalize_images", True))
    extractor = getattr(network, "features_extractor", None)
    if type(extractor) is not FlattenExtractor or not as_written(network) or type(body) is not nn.Sequential or flat is None:
        return None
    if not (is_untouched(extractor) and is_untouched(body)):
        return None
    features, one_hot = flat
    named = ((f"{name}.{number}", module) for number, module in enumerate(body))
    layers = layers_of(named, features + more, renormalising)
    if layers is None or not DenseForward.knows(layers) or has_tied(network):
        return None
    return DenseForward(layers, features, one_hot)


def image_forward(network: Any, name: str = "") -> ConvolvedForward | None:
    """SB3's convolutions of images and the layers behind them, where there is the extension.

    Args:
        network: The network, or a policy whose actor and critic share its features extractor.
        name: Of layers in it that follow its features extractor, if any are to.
    """
    extractor, space = getattr(network, "features_extractor", None), network.observation_space
    if not isinstance(extractor, NatureCNN) or not as_written(network) or not _is_nature(extractor) or space.dtype != np.uint8:
        return None
    if has_tied(network):
        return None
    parts: dict[str, Any] = {"features_extractor.cnn": extractor.cnn, "features_extractor.linear": extractor.linear}
    if name:
        parts[name] = getattr(network, name, None)
    if any(type(part) is not nn.Sequential or not is_untouched(part) for part in parts.values()):
        return None
    modules = [(f"{prefix}.{number}", module) for prefix, part in parts.items() for number, module in enumerate(part)]
    layers = image_layers_of(modules, space.shape)
    if layers is None or not ConvolvedForward.knows(layers):
        return None
    return ConvolvedForward(layers, 255 if network.normalize_images and is_image_space(space) else 1)


def _is_nature(extractor: NatureCNN) -> bool:
    return type(extractor).forward is NatureCNN.forward and is_untouched(extractor)


def torch_forward(module: Any) -> TorchForward:
    """Any network or policy of SB3's, without its weights and optimisers.

    Raises:
        ValueError: If it cannot be sent to actors, or be evaluated without autograd, or if it changes buffers where it acts.
    """
    for path, part in module.named_modules():
        made_by = "torch.jit" if isinstance(part, torch.jit.ScriptModule) else "torch.nn.utils.parametrize"
        if made_by == "torch.jit" or is_parametrized(part):
            raise ValueError(
                f"{path!r} of {type(module).__name__} is made by {made_by}, and such modules cannot be sent to actors: use a plain "
                "module, and compute what it does in forward()"
            )
    optimizers = {id(part.optimizer): None for part in module.modules() if hasattr(part, "optimizer")}
    found = copied(module, optimizers).train(False)
    _try_out(found, type(module).__name__)
    return TorchForward(found, keyed=isinstance(module.observation_space, spaces.Dict))


def _try_out(module: Any, name: str) -> None:
    """Have a copy of a network act once, as actors do: with weights and buffers that are not theirs to change."""
    space = copy.deepcopy(module.observation_space)
    space.seed(0)
    seen = space.sample()
    rows = (
        {key: torch.as_tensor(part)[None] for key, part in seen.items()} if isinstance(seen, dict) else torch.as_tensor(seen)[None]
    )
    before = {path: (one, one._version) for path, one in module.named_buffers()}
    methods = ("extract_features",) if hasattr(module, "lstm_actor") else ("_predict", "predict_values")
    if (error := _fails(module, methods, rows, torch.inference_mode)) and not _fails(module, methods, rows, torch.no_grad):
        raise ValueError(
            f"{name} cannot be evaluated as actors do it, in torch.inference_mode() ({error}): let its forward() compute no "
            "gradients, or use SB3's algorithm with ReactorVecEnv"
        ) from error
    for path, one in module.named_buffers():
        if before[path][0] is not one or before[path][1] != one._version:
            raise ValueError(
                f"{name} changes the buffer {path!r} where it acts, and each actor would change one of its own: change it only "
                "where it learns (if self.training: ...), or use SB3's algorithm with ReactorVecEnv"
            )


def _fails(module: Any, methods: tuple[str, ...], rows: Any, mode: Any) -> Exception | None:
    """Call those of the methods that a network has. Return the exception of the first that fails; ``None`` if all work."""
    try:
        with mode(), torch_stream(torch_state(0)):
            for method in methods:
                if hasattr(module, method):
                    getattr(module, method)(rows)
    except Exception as error:
        return error
    return None


def copied(module: M, memo: dict[int, Any]) -> M:
    """A deep copy, without what distributions remember of their last actions, which torch does not copy as it was computed.

    What modules keep of what they have computed is cut off from autograd's graph.

    Args:
        module: What is copied.
        memo: What is to be found in the copy, by the ``id`` of what it stands for; see :func:`copy.deepcopy`.
    """
    memo |= computed_in(module)
    for part in module.modules():
        known = getattr(part, "action_dist", None)
        if known is not None:
            memo[id(known)] = distribution = copy.copy(known)
            vars(distribution).clear()
            vars(distribution).update((name, value) for name, value in vars(known).items() if not _is_computed(value))
    return copy.deepcopy(module, memo)


def _is_computed(value: Any) -> bool:
    parts = value if isinstance(value, list) else [value]
    return any(isinstance(part, torch.Tensor | torch.distributions.Distribution) for part in parts)
