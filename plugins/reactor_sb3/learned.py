"""Read networks of SB3 and sb3-contrib as losses learn them: layers that the extension knows, and nothing of somebody's own.

Each function is what ``reactor_torch.Network(read=...)`` takes: from a module and its parameters to a learned network, or to the
reason why autograd computes all losses.
"""

from __future__ import annotations

from typing import Any

from stable_baselines3.common.policies import ContinuousCritic
from stable_baselines3.common.preprocessing import get_action_dim
from stable_baselines3.sac.policies import Actor as SACActor
from torch import nn

from reactor_sb3.policies import actor_of, dense_forward, known, mean_of, network_of, read_policy, reader, reason, refuse
from reactor_torch import (
    ActorCritic,
    Convolved,
    ConvolvedForward,
    Critics,
    Dense,
    DenseForward,
    DenseNet,
    FlatParameters,
    Function,
    ImageNet,
    Layer,
    NaturalActor,
    QuantileCritics,
    QuantileNetwork,
    RecurrentActorCritic,
    RecurrentNet,
    SquashedActor,
    SquashedActorByRow,
    Tangents,
    lstm_of,
)

__all__ = [
    "read_actor",
    "read_actor_critic",
    "read_critics",
    "read_natural_actor",
    "read_q_net",
    "read_quantile_critics",
    "read_quantile_net",
    "read_values_of_states",
]


@reader
def read_critics(
    module: Any, flat: FlatParameters, kind: type[Any] = ContinuousCritic, renormalising: type[nn.Module] | None = None
) -> Critics:
    """Critics, each of which gives one value.

    Args:
        module: The critics.
        flat: Their parameters.
        kind: What they derive from.
        renormalising: See :func:`~reactor_torch.layers_of`.
    """
    return Critics(_networks_of(module, flat, kind, renormalising), flat, dict(module.named_buffers()))


@reader
def read_quantile_critics(module: Any, flat: FlatParameters, kind: type[Any]) -> QuantileCritics:
    """Critics of quantiles; arguments as of :func:`read_critics`."""
    return QuantileCritics(_networks_of(module, flat, kind), flat)


@reader
def read_actor(
    module: Any, flat: FlatParameters, kind: type[Any] = SACActor, renormalising: type[nn.Module] | None = None
) -> SquashedActor | SquashedActorByRow | Dense:
    """An actor with the methods and layers of SAC's or of TD3's; arguments as of :func:`read_critics`."""
    _check_learning(module, flat)
    found = known(actor_of(module, kind, renormalising))
    if not found.heads:
        return Dense(found.body.layers, flat)
    body, (mean,), deviations, buffers = found.body.layers, found.heads[0], found.heads[1], dict(module.named_buffers())
    if deviations:
        return SquashedActor(body, mean, deviations[0], flat, buffers)
    refuse("its gSDE has use_expln" if module.action_dist.use_expln else None)
    refuse(None if module.action_dist.learn_features else "its gSDE does not learn_features")
    *_, low, high = mean_of(module)
    return SquashedActorByRow(body, mean, (low, high), flat, buffers)


@reader
def read_q_net(module: Any, flat: FlatParameters, name: str = "q_net") -> Function:
    """A network with a value for each action, or several.

    Args:
        module: The network.
        flat: Its parameters.
        name: Of its layers in it.
    """
    _check_learning(module, flat)
    refuse(reason(module))
    found: Any = known(network_of(module, name))
    return Convolved(found.layers, flat, found.divisor) if isinstance(found, ConvolvedForward) else Dense(found.layers, flat)


@reader
def read_quantile_net(module: Any, flat: FlatParameters) -> QuantileNetwork:
    """A network of quantiles of each action's return, which sb3-contrib has; arguments as of :func:`read_critics`."""
    return QuantileNetwork(known(read_q_net(module, flat, "quantile_net")), int(module.action_space.n))


@reader
def read_actor_critic(policy: Any, flat: FlatParameters) -> ActorCritic | str:
    """Actor and critic of PPO, with masks and behind LSTMs too."""
    _check_learning(policy, flat)
    found = read_policy(policy, here=True).policy
    network = found.network
    if found.distribution is None or found.why_torch is not None:
        return str(found.why_torch)
    mean = network.heads[0][0] if isinstance(network, DenseNet) and network.heads else None
    distribution = known(found.distribution.learned(flat, mean))
    match network:
        case DenseNet(DenseForward(actor), _, DenseForward(critic)):
            return ActorCritic(actor, critic, distribution, flat)
        case ImageNet(seen, actor, critic) if critic:
            return ActorCritic(actor, critic, distribution, flat, Convolved(seen.layers, flat, seen.divisor))
        case RecurrentNet(actor, critic, names):
            lstms = lstm_of(flat, names[0]), lstm_of(flat, names[1]) if len(names) > 1 else None
            return RecurrentActorCritic(lstms, actor.layers, critic.layers, distribution, flat)
    return f"{type(policy).__name__} has no critic that is known"


@reader
def read_natural_actor(policy: Any, flat: FlatParameters) -> NaturalActor | str:
    """The actor of a policy of dense layers whose critic another network learns."""
    _check_learning(policy, flat, critic=False)
    found = read_policy(policy, here=True).policy
    match found.network:
        case DenseNet(DenseForward(actor), heads, DenseForward()) if found.distribution is not None:
            refuse(None if Tangents.know(actor) else f"its actor has {[layer.kind for layer in actor]}, one behind the other")
            distribution = known(found.distribution.learned(flat, heads[0][0] if heads else None))
            # SB3's divergence is a mean over the numbers of an action where these are independent, and not the sum.
            return NaturalActor(actor, distribution, flat, 1 / getattr(found.distribution, "count", 1))
    return _not_dense(policy, found.why_torch)


@reader
def read_values_of_states(policy: Any, flat: FlatParameters) -> Dense | str:
    """The critic of such a policy; another network learns the actor."""
    _check_learning(policy, flat, critic=True)
    found = read_policy(policy, here=True).policy
    match found.network:
        case DenseNet(_, _, DenseForward(critic)):
            return Dense(critic, flat)
    return _not_dense(policy, found.why_torch)


# ---------------------------------------------------------------------- parts of them

_CRITIC = ("value_net.", "mlp_extractor.value_net.")
"""Beginnings of the names of a policy's critic's parameters."""


def _not_dense(policy: Any, why: str | None) -> str:
    return why or f"{type(policy).__name__} has convolutions, whose natural gradient nobody has derived"


def _check_learning(network: nn.Module, flat: FlatParameters, critic: bool | None = None) -> None:
    """Refuse a network not all of whose parameters learn with it: the extension knows of no others.

    Args:
        network: The network.
        flat: The parameters that learn.
        critic: Of a policy, whether its critic alone is asked about, or all the rest; ``None`` for all of a network.
    """
    for name, _ in network.named_parameters():
        if critic is not None and name.startswith(_CRITIC) != critic:
            continue
        refuse(None if name in flat.names else f"its {name} does not learn, or another network learns it")


def _networks_of(
    critics: Any, flat: FlatParameters, kind: type[Any], renormalising: type[nn.Module] | None = None
) -> list[tuple[Layer, ...]]:
    """The layers of each critic."""
    _check_learning(critics, flat)
    refuse(reason(critics, kind))
    networks = []
    for name in (f"qf{number}" for number in range(critics.n_critics)):
        layers = known(dense_forward(critics, name, get_action_dim(critics.action_space), renormalising)).layers
        first = layers[0].kind
        refuse(None if first in ("linear", "renormalised") else f"its {name} begins with a layer that is {first}")
        networks.append(layers)
    return networks
