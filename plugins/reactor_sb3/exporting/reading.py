"""Read a trained policy for an export: how it comes from an observation to its best action, as plain arrays."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.vec_env import VecNormalize

from reactor_sb3.acting.normalization import by_key
from reactor_sb3.evaluation.normalizer import normalizer_of
from reactor_sb3.policies import GSDE, dense_forward, known, mean_of, networks_of, policy_reason, read_policy, reader, refuse
from reactor_torch import (
    DenseNet,
    ImageNet,
    Layer,
    RecurrentNet,
    SquashedGaussian,
    SquashedGaussianByRow,
    choices_among,
    layers_of,
    refuse_spoilt,
)

__all__ = ["Greedy", "Normalized", "read"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Normalized:
    """Normalise observations as a ``VecNormalize`` does: in float64, ``clip((x - mean) / deviation, -limit, limit)`` as float32.

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
        chooses = isinstance(self.action_space, spaces.Discrete | spaces.MultiDiscrete) or self.masked
        return choices_among(self.action_space) if chooses else ()

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


@reader
def _read(policy: Any, normalized: tuple[Normalized, ...]) -> Greedy | str:
    """Read a policy, which actors have to evaluate without torch, but for the noise of gSDE; or say why they do not."""
    source = read_policy(policy, here=True)
    network: Any = source.policy.network
    distribution = source.policy.distribution
    squashes = isinstance(distribution, SquashedGaussian | SquashedGaussianByRow)
    limit = distribution.high if isinstance(distribution, SquashedGaussianByRow) else math.inf
    if network.why_torch is not None and getattr(getattr(policy, "actor", policy), "use_sde", False):
        network, limit = _without_noise(policy)
        squashes = policy.squash_output
    form: dict[str, Any]
    match network:
        case DenseNet(body, heads):
            layers, form = (*body.layers, *(heads[0] if heads else ())), {"one_hot": body.one_hot}
        case ImageNet(features, actor):
            layers, form = (*features.layers, *actor), {"divisor": features.divisor}
        case RecurrentNet(actor):
            layers, form = actor.layers, {"hidden": network.hidden}
        case _:
            return str(network.why_torch)
    weights = {key: part.detach().cpu().numpy() for key, part in source.module.state_dict().items()}
    return Greedy(
        policy.observation_space,
        policy.action_space,
        normalized,
        layers,
        weights,
        masked=source.policy.masked,
        quantiles=getattr(source.policy.distribution, "quantiles", 1),
        mean_limit=limit if math.isfinite(limit) else 0.0,
        tanh=squashes,
        squashed=source.policy.squashed,
        **form,
    )


def _without_noise(policy: Any) -> tuple[DenseNet | ImageNet, float]:
    """The networks of a policy with gSDE, whose best actions are means, and where those are cut off."""
    actor = getattr(policy, "actor", None)
    if actor is None:
        refuse(policy_reason(policy, ActorCriticPolicy, GSDE))
        network: Any = known(networks_of(policy))
        return network, math.inf
    name, mean, _, limit = mean_of(actor)
    body = known(dense_forward(actor, "latent_pi"))
    layers = known(layers_of([(name, mean)], body.layers[-1].outputs if body.layers else body.features))
    return DenseNet(body, (layers, ())), limit
