"""Read policies of SB3 and sb3-contrib: their layers, where these are known ones, and nothing of their own is done with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common import distributions as sb3
from stable_baselines3.common.distributions import SquashedDiagGaussianDistribution, StateDependentNoiseDistribution
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.torch_layers import FlattenExtractor, MlpExtractor, NatureCNN
from stable_baselines3.sac.policies import Actor as SACActor
from stable_baselines3.td3.policies import Actor as TD3Actor
from torch import nn

from reactor_torch import ConvolvedForward, DenseForward, Layer, image_layers_of, is_untouched, layers_of

__all__ = [
    "GSDE",
    "LIBRARIES",
    "SB3",
    "Base",
    "DenseNetworks",
    "GaussianActor",
    "ImageNetworks",
    "as_written",
    "check_squashed",
    "dense_actor",
    "dense_forward",
    "dense_networks_of",
    "features_of",
    "flat_features_of",
    "has_tied",
    "image_forward",
    "image_networks_of",
    "is_plain",
    "is_plain_actor",
    "layers_behind",
    "noisy_networks_of",
    "plain_networks_of",
]

# ---------------------------------------------------------------------- networks

LIBRARIES = ("stable_baselines3", "sb3_contrib", "reactor_sb3")
"""Packages whose networks and trainers are known here."""


_NETWORK_METHODS = (
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
    methods = [getattr(type(network), name) for name in _NETWORK_METHODS if hasattr(type(network), name)]
    untouched = is_untouched(network) and vars(network).keys().isdisjoint(_NETWORK_METHODS)
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


# ---------------------------------------------------------------------- actor and critic

_DISTRIBUTIONS = (
    sb3.CategoricalDistribution, sb3.MultiCategoricalDistribution, sb3.BernoulliDistribution, sb3.DiagGaussianDistribution,
)  # fmt: skip


_POLICY_METHODS = (
    "forward", "extract_features",
    "evaluate_actions", "predict_values", "get_distribution", "_get_action_dist_from_latent", "_predict",
)  # fmt: skip


_PARTS = ("pi_features_extractor", "vf_features_extractor", "mlp_extractor")


class Base(NamedTuple):
    """A class of policies, and the distributions that its actions may have."""

    policy: type[Any]
    distributions: tuple[type[Any], ...]


SB3 = Base(ActorCriticPolicy, _DISTRIBUTIONS)


GSDE = Base(ActorCriticPolicy, (sb3.StateDependentNoiseDistribution,))
"""Policies whose noise is a function of observations, redrawn now and then."""


def is_plain(policy: Any, base: Base = SB3) -> bool:
    """Whether a policy is two networks and a distribution of SB3's, and does nothing of its own with them.

    Args:
        policy: The policy.
        base: What it derives from.
    """
    own = any(getattr(type(policy), name) is not getattr(base.policy, name) for name in _POLICY_METHODS)
    parts = (policy, *(getattr(policy, name, None) for name in _PARTS))
    untouched = all(is_untouched(part) for part in parts if part is not None) and vars(policy).keys().isdisjoint(_POLICY_METHODS)
    return type(policy.action_dist) in base.distributions and untouched and not own


_BEHIND = ("policy_net", "value_net")
"""Names of a policy's layers behind its features extractor: the actor's and the critic's."""


class DenseNetworks(NamedTuple):
    """The two networks of a plain policy, where both are dense layers on flat observations."""

    actor: DenseForward
    critic: DenseForward


def dense_networks_of(policy: Any) -> DenseNetworks | None:
    """The networks of a plain policy, if there is nothing but what :class:`~reactor_torch.DenseForward` evaluates."""
    flat = flat_features_of(policy)
    networks = None if flat is None else [layers_behind(policy, name, flat[0]) for name in _BEHIND]
    if flat is None or networks is None or None in networks:
        return None
    return DenseNetworks(*(DenseForward(layers, *flat) for layers in networks if layers is not None))


class ImageNetworks(NamedTuple):
    """The networks of a plain policy that sees images: one that its actor and its critic share, and what each has behind it."""

    features: ConvolvedForward
    actor: tuple[Layer, ...]
    critic: tuple[Layer, ...]


def image_networks_of(policy: Any) -> ImageNetworks | None:
    """The networks of a plain policy, if there is nothing but what :class:`~reactor_torch.ConvolvedForward` evaluates."""
    if not policy.share_features_extractor or type(policy.mlp_extractor) is not MlpExtractor:
        return None
    features, (actor, critic) = image_forward(policy), (layers_behind(policy, name, policy.features_dim) for name in _BEHIND)
    return None if features is None or actor is None or critic is None else ImageNetworks(features, actor, critic)


def flat_features_of(policy: Any) -> tuple[int, bool] | None:
    """See :func:`reactor_sb3.acting.forwards.features_of`; ``None`` for a policy that does more with observations."""
    extractors = {type(policy.pi_features_extractor), type(policy.vf_features_extractor)}
    plain = extractors == {FlattenExtractor} and type(policy.mlp_extractor) is MlpExtractor
    return features_of(policy.observation_space, normalized=policy.normalize_images) if plain else None


def layers_behind(
    policy: Any, name: str, width: int, before: Sequence[tuple[str, torch.nn.Module]] = ()
) -> tuple[Layer, ...] | None:
    """Layers of a policy's actor or critic, if there is nothing but what :class:`~reactor_torch.DenseForward` evaluates.

    Args:
        policy: The policy.
        name: ``"policy_net"`` or ``"value_net"``.
        width: How many numbers they are given.
        before: Layers before those of the extractor, by name.
    """
    last, body = "action_net" if name == "policy_net" else name, getattr(policy.mlp_extractor, name)
    modules = [(f"mlp_extractor.{name}.{number}", module) for number, module in enumerate(body)]
    modules.append((last, getattr(policy, last)))
    layers = layers_of([*before, *modules], width) if is_untouched(body) else None
    named = {name for name, _ in policy.named_parameters()}  # what actor and critic share has one of its names only
    own = all(f"{name}.{part}" in named for name, module in modules for part, _ in module.named_parameters())
    return layers if layers is not None and own and DenseForward.knows(layers) else None


def noisy_networks_of(policy: Any) -> DenseNetworks | None:
    """The networks of a policy with gSDE, if they are dense layers and the noise is what SB3 has by default."""
    if not isinstance(policy, ActorCriticPolicy) or not is_plain(policy, GSDE) or policy.squash_output:
        return None
    noise = policy.action_dist
    assert isinstance(noise, StateDependentNoiseDistribution)
    own = type(policy).reset_noise is not ActorCriticPolicy.reset_noise or noise.use_expln or noise.learn_features
    networks = None if own else dense_networks_of(policy)
    return networks if networks is not None and len(networks.actor.layers) > 1 else None


def plain_networks_of(policy: Any) -> DenseNetworks | None:
    """The dense layers behind the LSTMs of a plain policy, if there is nothing but what is evaluated without torch.

    Where the critic has no LSTM its layers begin with observations.
    """
    from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy  # the package need not be installed

    own = type(policy)._process_sequence is not RecurrentActorCriticPolicy._process_sequence
    base = Base(RecurrentActorCriticPolicy, SB3.distributions)
    if own or not is_plain(policy, base) or policy.shared_lstm or policy.lstm_kwargs or policy.lstm_actor.num_layers > 1:
        return None
    flat, hidden = flat_features_of(policy), policy.lstm_actor.hidden_size
    if flat is None or flat[1] or has_tied(policy):
        return None
    actor = layers_behind(policy, "policy_net", hidden)
    given, before = (hidden, []) if policy.critic is None else (flat[0], [("critic", policy.critic)])
    critic = layers_behind(policy, "value_net", given, before)
    if actor is None or critic is None:
        return None
    return DenseNetworks(DenseForward(actor, hidden, one_hot=False), DenseForward(critic, given, one_hot=False))


# ---------------------------------------------------------------------- actors whose actions are squashed

_ACTOR_METHODS = ("forward", "_predict", "extract_features", "get_action_dist_params")


def is_plain_actor(actor: nn.Module, gaussian: type[nn.Module] = SACActor) -> bool:
    """Whether an actor is SB3's own, and does nothing else with its layers.

    Args:
        actor: The actor.
        gaussian: A class with the methods and layers of SAC's actor, whose actions are squashed normal ones.
    """
    kind: type[nn.Module] = gaussian if isinstance(actor, gaussian) else TD3Actor
    own = any(getattr(type(actor), name, None) is not getattr(kind, name, None) for name in _ACTOR_METHODS)
    own = own or not is_untouched(actor) or not vars(actor).keys().isdisjoint(_ACTOR_METHODS)
    squashed = type(getattr(actor, "action_dist", None)) in (type(None), SquashedDiagGaussianDistribution)
    return isinstance(actor, kind) and squashed and not own


@dataclass(frozen=True)
class GaussianActor:
    """The actor of SAC, of dense layers: the heads look at what the body gives (Haarnoja et al. 2018).

    Attributes:
        body: What both heads go on from.
        mean: Head for the means.
        log_std: Head for the logarithms of the standard deviations.
    """

    body: DenseForward
    mean: DenseForward
    log_std: DenseForward


def dense_actor(actor: Any, gaussian: Any, renormalising: type[nn.Module] | None) -> GaussianActor | DenseForward | None:
    if not is_plain_actor(actor, gaussian):
        return None
    if not isinstance(actor, gaussian):
        return dense_forward(actor, actor.observation_space, "mu")
    body = dense_forward(actor, actor.observation_space, "latent_pi", renormalising=renormalising)
    if body is None or not body.layers:
        return None
    width = body.layers[-1].outputs
    layers = [layers_of([(name, getattr(actor, name))], width) for name in ("mu", "log_std")]
    mean, log_std = (None if head is None else DenseForward(head, width, one_hot=False) for head in layers)
    return None if mean is None or log_std is None else GaussianActor(body, mean, log_std)


def check_squashed(actor: Any, kind: Any = SACActor) -> None:
    """Refuse an actor whose actions are not SB3's squashed normal ones.

    Args:
        actor: The actor.
        kind: The class that it derives from.

    Raises:
        ValueError: If it has a distribution of its own, or batch normalisation.
    """
    own, distribution = type(actor).action_log_prob is not kind.action_log_prob, type(actor.action_dist)
    if own or not issubclass(distribution, SquashedDiagGaussianDistribution):
        raise ValueError(
            f"{type(actor).__name__} with {distribution.__name__}: the noise of an update's actions is drawn by the trainer, so "
            "that the actor has to be SB3's squashed normal distribution: override its get_action_dist_params, not its "
            "action_log_prob, and set use_sde=False"
        )
    for name, part in actor.named_modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            raise ValueError(
                f"the actor's {name!r} is batch normalisation, whose statistics would see next observations before observations, "
                "and SB3's see them after: use LayerNorm or GroupNorm in the actor (critics may have batch normalisation)"
            )
