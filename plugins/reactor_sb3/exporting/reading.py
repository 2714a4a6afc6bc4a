"""What an export writes down: how a trained policy comes from an observation to the action that it thinks best, as plain arrays."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.distributions import StateDependentNoiseDistribution
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.torch_layers import NatureCNN
from stable_baselines3.common.vec_env import VecNormalize
from torch import nn

from reactor_sb3.acting.normalization import by_key
from reactor_sb3.evaluation.normalizer import normalizer_of
from reactor_sb3.policies import (
    GSDE,
    SB3,
    Base,
    DenseNetworks,
    dense_forward,
    image_forward,
    networks_of,
    plain_networks_of,
    reason,
)
from reactor_torch import ConvolvedForward, DenseForward, Layer, layers_of, refuse_spoilt
from reactor_torch import reason as reason_of

__all__ = ["Greedy", "Normalized", "read"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Normalized:
    """What a ``VecNormalize`` does with observations: in float64, ``clip((x - mean) / deviation, -limit, limit)`` as float32.

    Attributes:
        mean: Of the observation's shape, float64.
        deviation: Likewise.
        limit: Where what comes out is cut off.
    """

    mean: Array
    deviation: Array
    limit: float


@dataclass(frozen=True)
class Greedy:
    """A policy that acts without chance.

    Attributes:
        observation_space: Of the observations, as the model sees them: images have their channels first.
        action_space: Of the actions, as environments take them.
        normalized: What happens to observations first, one after the other.
        layers: From the numbers of an observation, or of an LSTM's hidden state, to the outputs by which is chosen.
        weights: Parameters and running statistics by name, float32; those of a layer begin with its name.
        one_hot: Whether the numbers of an observation are zeros but for a one where it says.
        divisor: What bytes of images are divided by; 0 for what is no image.
        hidden: Cells of the LSTM before the layers, whose parameters are called ``lstm_actor``; 0 without one.
        masked: Whether choices may be forbidden.
        quantiles: How many outputs a choice has, ``(quantiles, choices)``: their mean counts.
        mean_limit: Where outputs are cut off before they become actions; 0 for nowhere.
        tanh: Whether an action is the tanh of the outputs.
        squashed: Whether actions of a ``Box`` lie between -1 and 1 and are stretched; else they are cut off at its bounds.
    """

    observation_space: spaces.Box | spaces.Discrete
    action_space: spaces.Space[Any]
    normalized: tuple[Normalized, ...]
    layers: tuple[Layer, ...]
    weights: Mapping[str, Array]
    one_hot: bool = False
    divisor: int = 0
    hidden: int = 0
    masked: bool = False
    quantiles: int = 1
    mean_limit: float = 0.0
    tanh: bool = False
    squashed: bool = False

    @property
    def features(self) -> int:
        """How many numbers an observation has: 1 if it is a choice."""
        return math.prod(self.observation_space.shape or ())

    @property
    def outputs(self) -> int:
        """How many numbers are chosen by."""
        return int(self.layers[-1].outputs)

    @property
    def choices(self) -> tuple[int, ...]:
        """Among how many is chosen, for each choice; empty where nothing is chosen."""
        match self.action_space:
            case spaces.Discrete(n=n):
                return (int(n),)
            case spaces.MultiDiscrete(nvec=sizes):
                return tuple(map(int, sizes.flat))
            case spaces.MultiBinary() if self.masked:
                return (2,) * math.prod(self.action_space.shape)
        return ()

    @property
    def bounds(self) -> tuple[Array, Array]:
        """Lowest and highest numbers of a ``Box``, flat, float64 where its actions are: else float32."""
        assert isinstance(self.action_space, spaces.Box)
        dtype = np.result_type(np.float32, self.action_space.dtype)
        low, high = (bound.astype(dtype).reshape(-1) for bound in (self.action_space.low, self.action_space.high))
        return low, high


def read(model: BaseAlgorithm | BasePolicy, normalize: VecNormalize | None = None) -> Greedy:
    """Read a model of SB3's, of sb3-contrib's or of ours.

    Args:
        model: The model, or its policy.
        normalize: What its observations are normalised by; ``None`` for what its environments have.

    Raises:
        TypeError: If it is no model.
        ValueError: If something in it is neither written by these libraries nor known here, by name; or if weights are not finite.
    """
    policy: Any = model.policy if isinstance(model, BaseAlgorithm) else model
    if not isinstance(policy, BasePolicy):
        raise TypeError(f"model must be a model or a policy of Stable-Baselines3, got {type(model).__name__}")
    named = type(model).__name__
    if not isinstance(policy.observation_space, spaces.Box | spaces.Discrete):
        raise ValueError(
            f"{named} cannot be exported: its observations are {policy.observation_space}. Export needs one Box or one Discrete: "
            "put FlattenObservation around the environment before training"
        )
    refuse_spoilt(policy, f"the policy of {named}")
    normalized = tuple(_normalized(model, policy.observation_space, normalize))
    found = _read(policy, normalized)
    if isinstance(found, str):
        raise ValueError(
            f"{named} cannot be exported: {found}. Export knows what these libraries have written: FlattenExtractor and NatureCNN, "
            "and Linear, ReLU, Tanh and LayerNorm behind them. Train with those, or write it by torch.onnx.export()"
        )
    return found


def _normalized(model: Any, space: spaces.Space[Any], given: VecNormalize | None) -> Iterator[Normalized]:
    wrappers: Sequence[Any] = [] if given is None or not given.norm_obs else [given]
    if given is None and isinstance(model, BaseAlgorithm):
        normalizer = normalizer_of(model, space)
        wrappers = [] if normalizer is None else normalizer.wrappers
    for one in wrappers:
        statistics = by_key(one)
        if statistics.keys() != {""} or statistics[""].mean.shape != space.shape:
            shapes = {key: rms.mean.shape for key, rms in statistics.items()}
            raise ValueError(f"normalize has statistics of the shapes {shapes.get('', shapes)}, and the policy observes {space}")
        mean, deviation = (np.asarray(part, np.float64) for part in (statistics[""].mean, statistics[""].var + one.epsilon))
        yield Normalized(mean, np.sqrt(deviation), float(one.clip_obs))


# ---------------------------------------------------------------------- by kind of policy


def _read(policy: Any, normalized: tuple[Normalized, ...]) -> Greedy | str:
    """Read a policy; or say why not. The one place that knows the policies of the libraries."""
    common: dict[str, Any] = {
        "observation_space": policy.observation_space,
        "action_space": policy.action_space,
        "normalized": normalized,
        "squashed": policy.squash_output,
    }
    if isinstance(policy, ActorCriticPolicy) or _is_masked(policy):
        return _read_actor_critic(policy, common)
    if (why := reason(policy)) is not None:
        return why
    for name, quantiles in (("q_net", 1), ("quantile_net", getattr(policy, "n_quantiles", 1))):
        if (network := getattr(policy, name, None)) is not None:
            return _read_network(network, name, common | {"quantiles": quantiles})
    actor = getattr(policy, "actor", None)
    if actor is None:
        return f"{type(policy).__name__} is of no algorithm that is known here"
    if not hasattr(actor, "latent_pi"):  # TD3's
        return _read_network(actor, "mu", common)
    mean: Any = actor.mu  # with gSDE it has a limit
    limit, name = 0.0, "mu"
    if type(mean) is nn.Sequential and len(mean) == 2 and type(mean[1]) is nn.Hardtanh:
        if (why := reason_of(mean, named="mu") or reason_of(mean[1], named="mu.1")) is not None:
            return why
        mean, limit, name = mean[0], float(mean[1].max_val), "mu.0"
    return _read_network(actor, "latent_pi", common | {"tanh": True, "mean_limit": limit}, (name, mean))


def _read_network(network: Any, name: str, common: dict[str, Any], *head: tuple[str, nn.Module]) -> Greedy | str:
    """A network with a features extractor, layers of a name, and perhaps one more behind them."""
    images = isinstance(network.features_extractor, NatureCNN)
    forward = image_forward(network, name) if images else dense_forward(network, name, renormalising=_renormalising(network))
    if isinstance(forward, str):
        return forward
    width = forward.layers[-1].outputs if forward.layers or isinstance(forward, ConvolvedForward) else forward.features
    behind = layers_of(head, width)
    return behind if isinstance(behind, str) else _greedy(network, forward, common, behind)


def _greedy(
    module: nn.Module, forward: DenseForward | ConvolvedForward, common: dict[str, Any], behind: Sequence[Layer] = ()
) -> Greedy:
    weights = {key: part.detach().cpu().numpy() for key, part in module.state_dict().items()}
    form = {"divisor": forward.divisor} if isinstance(forward, ConvolvedForward) else {"one_hot": forward.one_hot}
    return Greedy(layers=(*forward.layers, *behind), weights=weights, **form, **common)


def _read_actor_critic(policy: Any, common: dict[str, Any]) -> Greedy | str:
    if hasattr(policy, "lstm_actor"):
        networks = plain_networks_of(policy)
        common |= {"hidden": policy.lstm_actor.hidden_size}
        return networks if isinstance(networks, str) else _greedy(policy, networks.actor, common)
    common |= {"masked": _is_masked(policy), "tanh": policy.squash_output}
    found = networks_of(policy, _base_of(policy))
    if isinstance(found, str):
        return found
    if isinstance(found, DenseNetworks):
        return _greedy(policy, found.actor, common)
    return _greedy(policy, found.features, common, found.actor)


def _is_masked(policy: Any) -> bool:
    return any(cls.__name__ == "MaskableActorCriticPolicy" for cls in type(policy).__mro__)


def _base_of(policy: Any) -> Base:
    if _is_masked(policy):
        from reactor_sb3.algorithms.sync_maskable_ppo import BASE

        return BASE
    return GSDE if isinstance(policy.action_dist, StateDependentNoiseDistribution) else SB3


def _renormalising(network: Any) -> type[nn.Module] | None:
    """The class of CrossQ's batch renormalisation, if it is its actor."""
    if not any(cls.__module__ == "sb3_contrib.crossq.policies" for cls in type(network).__mro__):
        return None
    from sb3_contrib.common.torch_layers import BatchRenorm1d

    return BatchRenorm1d
