"""Read policies of SB3 and sb3-contrib: their layers, where these are known ones, and nothing of their own is done with them."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from itertools import chain
from typing import Any, ParamSpec, TypeVar

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.distributions import SquashedDiagGaussianDistribution, StateDependentNoiseDistribution
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.torch_layers import CombinedExtractor, FlattenExtractor, MlpExtractor, NatureCNN
from stable_baselines3.sac.policies import Actor as SACActor
from stable_baselines3.td3.policies import Actor as TD3Actor
from torch import nn

from reactor_rl.plugin import library_class
from reactor_sb3.acting.forwards import (
    ActorCriticCalls,
    ActorCriticOutputs,
    Predicting,
    RecurrentCalls,
    held_forward,
    sent,
)
from reactor_torch import (
    ActionDistribution,
    AskedNet,
    Calls,
    Categorical,
    ConvolvedForward,
    DenseForward,
    DenseNet,
    Deterministic,
    Gaussian,
    GaussianByRow,
    HeldForward,
    ImageNet,
    Layer,
    Net,
    OwnCalls,
    Policy,
    RecurrentNet,
    Source,
    SquashedGaussian,
    SquashedGaussianByRow,
    TorchNet,
    Values,
    differentiating,
    distribution_of,
    image_layers_of,
    layers_of,
)
from reactor_torch import reason as reason_of

__all__ = [
    "GSDE",
    "LIBRARIES",
    "actor_of",
    "as_policy",
    "check_squashed",
    "dense_forward",
    "image_forward",
    "known",
    "mean_of",
    "network_of",
    "networks_of",
    "policy_reason",
    "read_policy",
    "read_values",
    "reader",
    "reason",
    "refuse",
]

P = ParamSpec("P")
T = TypeVar("T")

# ---------------------------------------------------------------------- whether it is as it was written

LIBRARIES = ("stable_baselines3", "sb3_contrib", "reactor_sb3")
"""Packages whose networks and trainers are known here."""


def reason(network: nn.Module, like: type | None = None) -> str | None:
    """Say why nothing else may stand in for a network, or for a policy's methods; ``None`` if something may.

    Its layers are not asked.

    Args:
        network: The network or policy.
        like: The class that it has to do the same as; ``None`` for that of the library that it derives from.
    """
    like = like or library_class(type(network), LIBRARIES)
    return f"{type(network).__name__} is no network of SB3's" if like is None else reason_of(network, like)


class _Misfit(Exception):
    """Why a network is not read."""


def reader(read: Callable[P, T]) -> Callable[P, T | str]:
    """Let a function return why it has found a :class:`_Misfit`."""

    @wraps(read)
    def found(*given: P.args, **more: P.kwargs) -> T | str:
        try:
            return read(*given, **more)
        except _Misfit as misfit:
            return str(misfit)

    return found


def refuse(why: str | None) -> None:
    """Read no further, if there is a reason."""
    if why is not None:
        raise _Misfit(why)


def known(found: T | str) -> T:
    """Return what was read, if that is not a reason."""
    if isinstance(found, str):
        raise _Misfit(found)
    return found


def _check_part(network: Any, name: str, kind: type[nn.Module]) -> Any:
    """A part of a network, which has to be of a class and do no more than that has written."""
    part = getattr(network, name, None)
    if type(part) is not kind:
        raise _Misfit(f"its {name} is {'not there' if part is None else f'a {type(part).__name__}, not a {kind.__name__}'}")
    refuse(reason_of(part, kind, named=name))
    return part


def _check_tied(network: nn.Module) -> None:
    """Modules of a network that share a parameter: it has one name only where parameters are looked up by name."""
    parts = chain.from_iterable(part._parameters.values() for part in network.modules())
    own = [id(one) for one in parts if one is not None]
    if len(own) > len(set(own)):
        raise _Misfit("its modules share a parameter")


# ---------------------------------------------------------------------- networks


def _features(network: Any, *names: str) -> tuple[int, bool, tuple[str, ...]]:
    """See what SB3 makes of an observation before the first layer.

    It does no more than flatten a ``Box``, or set one of many to 1; images are divided by 255, if they are normalised. The parts of
    a ``Dict`` lie side by side then.

    Args:
        network: The network.
        names: Of its features extractors.

    Returns:
        How many numbers that are, whether one of them is 1 and all others are 0, and the keys of the parts; none for one array.
    """
    space = network.observation_space
    if not isinstance(space, spaces.Dict):
        for name in names:
            _check_part(network, name, FlattenExtractor)
        if isinstance(space, spaces.Discrete):
            return int(space.n), True, ()
        return _numbers(network, space, "its observations are", spaces.Box), False, ()
    for name in names:
        parts = _check_part(network, name, CombinedExtractor).extractors
        if list(parts) != list(space.spaces):
            raise _Misfit(f"its {name} looks at {list(parts)} of observations, which are {list(space.spaces)}")
        for key, part in parts.items():
            refuse(reason_of(part, nn.Flatten, named=f"{name}.extractors.{key}"))
    kinds = spaces.Box, spaces.MultiBinary
    width = sum(_numbers(network, part, f"its observations[{key!r}] are", *kinds) for key, part in space.spaces.items())
    return width, False, tuple(space.spaces)


def _numbers(network: Any, space: spaces.Space[Any], named: str, *kinds: type[spaces.Space[Any]]) -> int:
    """How many numbers of a space a network sees as they are, if it is one of these kinds."""
    plain = isinstance(space, kinds) and not (is_image_space(space) and getattr(network, "normalize_images", True))
    if not plain:
        raise _Misfit(f"{named} {space}, of which its layers do not see the numbers themselves")
    return math.prod(space.shape or ())


def network_of(network: Any, name: str) -> DenseForward | ConvolvedForward | str:
    """Read a network of SB3's, dense or of images; or say why not. See :func:`dense_forward`."""
    extractor = getattr(network, "features_extractor", None)
    return image_forward(network, name) if isinstance(extractor, NatureCNN) else dense_forward(network, name)


@reader
def dense_forward(network: Any, name: str, more: int = 0, renormalising: type[nn.Module] | None = None) -> DenseForward:
    """Read a network of SB3's, if there is nothing but what :class:`~reactor_torch.DenseForward` evaluates; or say why not.

    Args:
        network: The network.
        name: Of the layers in it, which follow its features extractor.
        more: How many numbers they are given behind those of observations.
        renormalising: See :func:`~reactor_torch.layers_of`.
    """
    refuse(reason(network))
    features, one_hot, keys = _features(network, "features_extractor")
    body = _check_part(network, name, nn.Sequential)
    named = ((f"{name}.{number}", module) for number, module in enumerate(body))
    layers = _dense(layers_of(named, features + more, renormalising))
    _check_tied(network)
    return DenseForward(layers, features, one_hot, keys)


def _dense(found: tuple[Layer, ...] | str) -> tuple[Layer, ...]:
    """Layers, if actors know them all."""
    for layer in (layers := known(found)):
        if not DenseForward.knows([layer]):
            raise _Misfit(f"its {layer.name} is a {layer.kind}, which is evaluated by torch alone")
    return layers


@reader
def image_forward(network: Any, name: str = "") -> ConvolvedForward:
    """Read SB3's convolutions of images and the layers behind them, where there is the extension; or say why not.

    Args:
        network: The network, or a policy whose actor and critic share its features extractor.
        name: Of layers in it that follow its features extractor, if any are to.
    """
    extractor, space = network.features_extractor, network.observation_space
    refuse(reason(network) or reason_of(extractor, NatureCNN, named="features_extractor"))
    if space.dtype != np.uint8:
        raise _Misfit(f"its observations are {space}, and not bytes")
    _check_tied(network)
    parts = {f"features_extractor.{part}": _check_part(extractor, part, nn.Sequential) for part in ("cnn", "linear")}
    if name:
        parts[name] = _check_part(network, name, nn.Sequential)
    modules = [(f"{prefix}.{number}", module) for prefix, part in parts.items() for number, module in enumerate(part)]
    layers = known(image_layers_of(modules, space.shape))
    if not ConvolvedForward.knows(layers):
        raise _Misfit("its images are convolved by torch where there is no extension, or layers that it does not know")
    return ConvolvedForward(layers, 255 if network.normalize_images and is_image_space(space) else 1)


# ---------------------------------------------------------------------- actor and critic

_PARTS = ("pi_features_extractor", "vf_features_extractor", "mlp_extractor")
_BEHIND = ("policy_net", "value_net")
"""Names of a policy's layers behind its features extractor: the actor's and the critic's."""
_KINDS = ("Categorical", "MultiCategorical", "Bernoulli", "DiagGaussian")
PLAIN = tuple(f"{kind}Distribution" for kind in (*_KINDS, *(f"Maskable{kind}" for kind in _KINDS)))
"""Names of the libraries' distributions of actions, with masks and without, that depend on an actor's outputs alone."""
GSDE = ("StateDependentNoiseDistribution",)
"""Those whose noise is a function of observations, redrawn now and then."""


def policy_reason(policy: Any, like: type, distributions: tuple[str, ...] = PLAIN) -> str | None:
    """Say why a policy has to draw its actions itself; ``None`` for two networks and a distribution of a library's.

    Layers are not asked.

    Args:
        policy: The policy.
        like: The library's class that it derives from.
        distributions: Names of those that its actions may have.
    """
    if (why := reason(policy, like)) is not None:
        return why
    kind = type(policy.action_dist)
    if kind.__name__ not in distributions or kind.__module__.partition(".")[0] not in LIBRARIES:
        return f"its actions have a {kind.__name__}"
    parts = {name: part for name in _PARTS if (part := getattr(policy, name, None)) is not None}
    return next((why for name, part in parts.items() if (why := reason_of(part, named=name)) is not None), None)


@reader
def networks_of(policy: Any) -> DenseNet | ImageNet:
    """Read the networks of a policy that does nothing of its own with them, see :func:`policy_reason`; or say why not."""
    if not isinstance(policy.features_extractor, NatureCNN):
        return DenseNet(*_dense_networks(policy))
    if not policy.share_features_extractor:
        raise _Misfit("its actor and its critic do not share their features_extractor")
    _check_part(policy, "mlp_extractor", MlpExtractor)
    return ImageNet(known(image_forward(policy)), *(_behind(policy, name, policy.features_dim) for name in _BEHIND))


def _dense_networks(policy: Any) -> tuple[DenseForward, tuple[()], DenseForward]:
    """An actor, no heads, and a critic."""
    flat = _flat_features(policy)
    actor, critic = (DenseForward(_behind(policy, name, flat[0]), *flat) for name in _BEHIND)
    return actor, (), critic


def _flat_features(policy: Any) -> tuple[int, bool, tuple[str, ...]]:
    """See :func:`_features`."""
    _check_part(policy, "mlp_extractor", MlpExtractor)
    return _features(policy, "pi_features_extractor", "vf_features_extractor")


def _behind(policy: Any, name: str, width: int, before: Sequence[tuple[str, nn.Module]] = ()) -> tuple[Layer, ...]:
    """Layers of a policy's actor or critic.

    Args:
        policy: The policy.
        name: ``"policy_net"`` or ``"value_net"``.
        width: How many numbers they are given.
        before: Layers before those of the extractor, by name.
    """
    last, body = "action_net" if name == "policy_net" else name, getattr(policy.mlp_extractor, name)
    refuse(reason_of(body, named=f"mlp_extractor.{name}"))
    modules = [(f"mlp_extractor.{name}.{number}", module) for number, module in enumerate(body)]
    modules.append((last, getattr(policy, last)))
    layers = _dense(layers_of([*before, *modules], width))
    named = {name for name, _ in policy.named_parameters()}  # what actor and critic share has one of its names only
    if shared := [path for path, module in modules for part, _ in module.named_parameters() if f"{path}.{part}" not in named]:
        raise _Misfit(f"its actor and its critic share {shared[0]}")
    return layers


@reader
def _noisy(policy: Any) -> DenseNet:
    """Read the networks of a policy with gSDE, if they are dense layers and the noise is SB3's own by default; or say why not."""
    refuse(policy_reason(policy, ActorCriticPolicy, GSDE))
    noise = policy.action_dist
    if policy.squash_output or noise.use_expln or noise.learn_features:
        raise _Misfit("its noise has squash_output, use_expln or learn_features")
    actor, _, critic = _dense_networks(policy)
    *below, last = actor.layers
    if not below:
        raise _Misfit("its actor is a single layer")
    return DenseNet(replace(actor, layers=tuple(below)), ((last,), ()), critic)


@reader
def _recurrent(policy: Any, like: type) -> RecurrentNet:
    """Read the LSTMs of a plain policy and the dense layers behind them, if all is evaluated without torch; or say why not.

    Where the critic has no LSTM its layers begin with observations.
    """
    refuse(policy_reason(policy, like))
    for name in ("lstm_actor", "lstm_critic"):
        if getattr(policy, name) is not None:
            _check_part(policy, name, nn.LSTM)
    if policy.shared_lstm or policy.lstm_kwargs or policy.lstm_actor.num_layers > 1:
        raise _Misfit("its LSTM is shared, has settings of its own, or has several layers")
    (features, one_hot, keys), hidden = _flat_features(policy), policy.lstm_actor.hidden_size
    if one_hot or keys:
        raise _Misfit(f"its LSTM sees {policy.observation_space}")
    _check_tied(policy)
    actor = _behind(policy, "policy_net", hidden)
    given, before = (hidden, []) if policy.critic is None else (features, [("critic", policy.critic)])
    critic = _behind(policy, "value_net", given, before)
    lstms = ("lstm_actor", *(["lstm_critic"] if policy.lstm_critic is not None else []))
    return RecurrentNet(DenseForward(actor, hidden, one_hot=False), DenseForward(critic, given, one_hot=False), lstms)


# ---------------------------------------------------------------------- actors whose actions are squashed


@reader
def actor_of(actor: Any, gaussian: type[nn.Module] = SACActor, renormalising: type[nn.Module] | None = None) -> DenseNet:
    """Read an actor of dense layers whose actions are squashed; or say why not.

    That of SAC has two heads on what the body gives, means and logarithms of standard deviations (Haarnoja et al. 2018); with gSDE
    that of means alone.

    Args:
        actor: The actor.
        gaussian: A class with the methods and layers of SAC's actor, whose actions are squashed normal ones.
        renormalising: See :func:`~reactor_torch.layers_of`.
    """
    distribution = type(getattr(actor, "action_dist", None))
    if distribution not in (type(None), SquashedDiagGaussianDistribution, StateDependentNoiseDistribution):
        raise _Misfit(f"its actions have a {distribution.__name__}")
    refuse(reason(actor, gaussian if isinstance(actor, gaussian) else TD3Actor))
    if not isinstance(actor, gaussian):
        return DenseNet(known(dense_forward(actor, "mu")))
    body = known(dense_forward(actor, "latent_pi", renormalising=renormalising))
    width = body.layers[-1].outputs if body.layers else body.features
    if distribution is StateDependentNoiseDistribution:
        name, mean, *_ = mean_of(actor)
        return DenseNet(body, (_dense(layers_of([(name, mean)], width)), ()))
    return DenseNet(body, tuple(_dense(layers_of([(name, getattr(actor, name))], width)) for name in ("mu", "log_std")))


def mean_of(actor: Any) -> tuple[str, Any, float, float]:
    """The layer of means of an actor with gSDE whose actions are squashed: its name, the layer, and bounds of what it gives."""
    mean: Any = actor.mu
    if type(mean) is not nn.Sequential or [*map(type, mean)] != [nn.Linear, nn.Hardtanh]:
        return "mu", mean, -math.inf, math.inf
    limit: Any = mean[1]
    refuse(reason_of(mean, named="mu") or reason_of(limit, named="mu.1"))
    return "mu.0", mean[0], float(limit.min_val), float(limit.max_val)


def _squashed_of(actor: Any, network: DenseNet, shape: tuple[int, ...], every: int) -> ActionDistribution:
    """The distribution of an actor's actions, see :func:`actor_of`."""
    if not network.heads:
        return Deterministic(shape)
    if network.heads[1]:
        return SquashedGaussian(shape)
    *_, low, high = mean_of(actor)
    return SquashedGaussianByRow(shape, network.heads[0][0].inputs, every, low, high, actor.action_dist.use_expln)


def check_squashed(actor: Any, kind: Any = SACActor) -> None:
    """Refuse an actor whose actions are not SB3's squashed normal ones, of gSDE or not.

    Raises:
        ValueError: If it has a distribution of its own, or batch normalisation.
    """
    own, distribution = type(actor).action_log_prob is not kind.action_log_prob, type(actor.action_dist)
    noisy = getattr(distribution, "sample_weights", None) is StateDependentNoiseDistribution.sample_weights
    if own or not (noisy or issubclass(distribution, SquashedDiagGaussianDistribution)):
        raise ValueError(
            f"{type(actor).__name__} with {distribution.__name__}: the noise of an update's actions is drawn by the trainer, so "
            "that the actor has to have SB3's squashed normal distribution, or its gSDE: override its get_action_dist_params, not "
            "its action_log_prob nor the distribution's sample_weights"
        )
    for name, part in actor.named_modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            raise ValueError(
                f"the actor's {name!r} is batch normalisation, whose statistics would see next observations before observations, "
                "and SB3's see them after: use LayerNorm or GroupNorm in the actor (critics may have batch normalisation)"
            )


# ---------------------------------------------------------------------- policies


def as_policy(
    policy: Any,
    observation_space: spaces.Space[Any] | None = None,
    action_space: spaces.Space[Any] | None = None,
    here: bool = False,
) -> Source | None:
    """Read a policy of SB3's or sb3-contrib's, or that of a model; see :func:`reactor_torch.as_policy`."""
    if isinstance(policy, BaseAlgorithm):
        return read_policy(policy.policy, getattr(policy, "sde_sample_freq", -1), here=here)
    return read_policy(policy, here=here) if isinstance(policy, BasePolicy) else None


def read_policy(policy: Any, sde_sample_freq: int = -1, masked: bool = True, here: bool = False) -> Source:
    """The policy of one of SB3's or sb3-contrib's, as light to evaluate as possible.

    Args:
        policy: The policy.
        sde_sample_freq: Steps between two draws of state-dependent noise, -1 for one a round.
        masked: Whether a policy that takes masks is given any.
        here: See :func:`reactor_torch.as_policy`.

    Raises:
        ValueError: If torch has to evaluate it, and cannot do that where actors are.
    """
    for cls in type(policy).__mro__:
        read = _READERS.get(cls.__name__)
        if read is not None and cls.__module__.partition(".")[0] in LIBRARIES:
            module, network, distribution = read(policy, cls, max(sde_sample_freq, 0))
            break
    else:
        why = f"{type(policy).__name__} is no policy that SB3 or sb3-contrib has"
        module, network, distribution = policy, AskedNet(held_forward(policy, why), Predicting()), None
    if not here and isinstance(network, TorchNet | AskedNet) and isinstance(network.forward, HeldForward):
        network = replace(network, forward=sent(network.forward))  # to actors it is sent without its weights
    squashed = bool(getattr(policy, "squash_output", False))
    takes_masks = masked and any(cls.__name__ == "MaskableActorCriticPolicy" for cls in type(policy).__mro__)
    found = Policy(network, distribution, policy.action_space, squashed, takes_masks)
    return Source(found, module)


Read = tuple[nn.Module, Net | AskedNet, ActionDistribution | None]
"""The module that acts, its form, and the distribution of its actions."""


def _distribution_of(space: spaces.Space[Any], masked: bool = False) -> ActionDistribution:
    """The distribution that SB3 has for actions of a space; where choices are masked, bits are choices between two."""
    if masked and isinstance(space, spaces.MultiBinary):
        return Categorical((2,) * math.prod(space.shape), several=True)
    return distribution_of(space, Gaussian)


def _read_actor_critic(policy: Any, cls: type[Any], every: int) -> Read:
    noisy = _noisy(policy)
    if isinstance(noisy, DenseNet):
        return policy, noisy, GaussianByRow(policy.action_space.shape, noisy.heads[0][0].inputs, every)
    if (why := policy_reason(policy, cls)) is not None:
        return policy, _asked(policy, ActorCriticCalls(), noisy if getattr(policy, "use_sde", False) else why, every), None
    found: Net | str = networks_of(policy)
    network = TorchNet(held_forward(policy, found), ActorCriticOutputs()) if isinstance(found, str) else found
    return policy, network, _distribution_of(policy.action_space, cls is not ActorCriticPolicy)


def _asked(policy: Any, calls: OwnCalls, why: str, every: int, parts: int = 0, hidden: int = 0) -> AskedNet:
    """A policy that draws actions by itself. gSDE's noise is drawn before a step."""
    forward = held_forward(policy, why)
    quiet = policy_reason(policy, ActorCriticPolicy, GSDE) is None and not forward.draws and not forward.convolves
    return AskedNet(forward, calls, every if getattr(policy, "use_sde", False) else -1, quiet, parts, hidden)


def _read_recurrent(policy: Any, cls: type[Any], every: int) -> Read:
    network = _recurrent(policy, cls) if differentiating() != "torch" else "there is no extension"
    if isinstance(network, RecurrentNet):
        return policy, network, _distribution_of(policy.action_space)
    lstm = policy.lstm_actor
    return policy, _asked(policy, RecurrentCalls(), network, every, 4 * lstm.num_layers, lstm.hidden_size), None


def _read_values(policy: Any, cls: type[Any], every: int) -> Read:
    net = policy.quantile_net if hasattr(policy, "quantile_net") else policy.q_net
    for module in (net, policy):
        if type(module)._predict.__module__.partition(".")[0] not in LIBRARIES:
            why = f"{type(module).__name__} has a _predict() of its own"
            return policy, AskedNet(held_forward(policy, why), Predicting()), None
    source = read_values(net, policy.action_space, "quantile_net" if hasattr(policy, "quantile_net") else "q_net", here=True)
    return source.module, source.policy.network, source.policy.distribution


def read_values(net: Any, action_space: spaces.Discrete, name: str = "q_net", here: bool = False) -> Source:
    """The policy that takes the action that a network values most.

    Args:
        net: The network: from observations to values, ``(rows, actions)``, or quantiles, ``(rows, n_quantiles, actions)``.
        action_space: Of one environment.
        name: Of the layers in it, if it is one of SB3's, which follow its features extractor.
        here: See :func:`reactor_torch.as_policy`.
    """
    network: Net
    match network_of(net, name):
        case DenseForward() as dense:
            network = DenseNet(dense)
        case ConvolvedForward() as images:
            network = ImageNet(images)
        case why:
            forward = held_forward(net, why)
            network = TorchNet(forward if here else sent(forward), Calls())
    return Source(Policy(network, Values(int(action_space.n), getattr(net, "n_quantiles", 1)), action_space), net)


def _read_squashed(policy: Any, cls: type[Any], every: int) -> Read:
    acting = policy.actor if type(policy)._predict is cls._predict else policy
    gaussian: Any = SACActor
    renormalising: type[nn.Module] | None = None
    if cls.__name__ in ("TQCPolicy", "CrossQPolicy"):  # which have an actor of their own beside them
        library = importlib.import_module(cls.__module__)
        gaussian, renormalising = library.Actor, getattr(library, "BatchRenorm1d", None)
    network = actor_of(acting, gaussian, renormalising)
    if isinstance(network, DenseNet) and not network.body.layers:
        network = "its latent_pi has no layers"
    if isinstance(network, str):
        redraws = getattr(acting, "use_sde", False)
        return acting, AskedNet(held_forward(acting, network), Predicting(), every if redraws else -1), None
    return acting, network, _squashed_of(acting, network, policy.action_space.shape, every)


def _read_searched(policy: Any, cls: type[Any], every: int) -> Read:
    network = dense_forward(policy, "action_net") if (why := reason(policy, cls)) is None else why
    if isinstance(network, str):
        return policy, AskedNet(held_forward(policy, network), Predicting()), None
    space = policy.action_space
    return policy, DenseNet(network), Values(int(space.n)) if isinstance(space, spaces.Discrete) else Deterministic(space.shape)


_READERS: Mapping[str, Callable[[Any, type[Any], int], Read]] = {
    "ActorCriticPolicy": _read_actor_critic, "MaskableActorCriticPolicy": _read_actor_critic,
    "RecurrentActorCriticPolicy": _read_recurrent,
    "DQNPolicy": _read_values, "PQNPolicy": _read_values, "QRDQNPolicy": _read_values,
    "SACPolicy": _read_squashed, "TQCPolicy": _read_squashed, "CrossQPolicy": _read_squashed, "TD3Policy": _read_squashed,
    "ARSPolicy": _read_searched,
}  # fmt: skip
"""By the class that a policy derives from: from the policy, that class, and how long noise of gSDE holds."""
