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

from reactor_sb3.policies import actor_of, dense_forward, network_of, read_policy, reason
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
    QuantileCritics,
    QuantileNetwork,
    RecurrentActorCritic,
    RecurrentNet,
    SquashedActor,
    lstm_of,
)

__all__ = [
    "read_actor",
    "read_actor_critic",
    "read_critics",
    "read_q_net",
    "read_quantile_critics",
    "read_quantile_net",
]


def read_critics(
    module: Any, flat: FlatParameters, kind: type[Any] = ContinuousCritic, renormalising: type[nn.Module] | None = None
) -> Critics | str:
    """Critics, each of which gives one value.

    Args:
        module: The critics.
        flat: Their parameters.
        kind: What they derive from.
        renormalising: See :func:`~reactor_torch.layers_of`.
    """
    networks = _networks_of(module, flat, kind, renormalising)
    return networks if isinstance(networks, str) else Critics(networks, flat, dict(module.named_buffers()))


def read_quantile_critics(module: Any, flat: FlatParameters, kind: type[Any]) -> QuantileCritics | str:
    """Critics of quantiles; arguments as of :func:`read_critics`."""
    networks = _networks_of(module, flat, kind)
    return networks if isinstance(networks, str) else QuantileCritics(networks, flat)


def read_actor(
    module: Any, flat: FlatParameters, kind: type[Any] = SACActor, renormalising: type[nn.Module] | None = None
) -> SquashedActor | Dense | str:
    """An actor with the methods and layers of SAC's or of TD3's; arguments as of :func:`read_critics`."""
    if (why := _other_learns(module, flat)) is not None:
        return why
    found = actor_of(module, kind, renormalising)
    if isinstance(found, str):
        return found
    if not found.heads:
        return Dense(found.body.layers, flat)
    (mean,), (log_std,) = found.heads
    return SquashedActor(found.body.layers, mean, log_std, flat, dict(module.named_buffers()))


def read_q_net(module: Any, flat: FlatParameters, name: str = "q_net") -> Function | str:
    """A network with a value for each action, or several.

    Args:
        module: The network.
        flat: Its parameters.
        name: Of its layers in it.
    """
    if (why := _other_learns(module, flat) or reason(module)) is not None:
        return why
    found = network_of(module, name)
    if isinstance(found, ConvolvedForward):
        return Convolved(found.layers, flat, found.divisor)
    return found if isinstance(found, str) else Dense(found.layers, flat)


def read_quantile_net(module: Any, flat: FlatParameters) -> QuantileNetwork | str:
    """A network of quantiles of each action's return, which sb3-contrib has; arguments as of :func:`read_critics`."""
    found = read_q_net(module, flat, "quantile_net")
    return found if isinstance(found, str) else QuantileNetwork(found, int(module.action_space.n))


def read_actor_critic(policy: Any, flat: FlatParameters) -> ActorCritic | str:
    """Actor and critic of PPO, with masks and behind LSTMs too."""
    if (why := _other_learns(policy, flat)) is not None:
        return why
    found = read_policy(policy, here=True).policy
    network, mean = found.network, None
    if found.distribution is None or found.why_torch is not None:
        return str(found.why_torch)
    if isinstance(network, DenseNet) and network.heads:
        mean = network.heads[0][0]
    distribution = found.distribution.learned(flat, mean)
    if isinstance(distribution, str):
        return distribution
    match network:
        case DenseNet(DenseForward(actor), _, DenseForward(critic)):
            return ActorCritic(actor, critic, distribution, flat)
        case ImageNet(seen, actor, critic) if critic:
            return ActorCritic(actor, critic, distribution, flat, Convolved(seen.layers, flat, seen.divisor))
        case RecurrentNet(actor, critic, names):
            lstms = lstm_of(flat, names[0]), lstm_of(flat, names[1]) if len(names) > 1 else None
            return RecurrentActorCritic(lstms, actor.layers, critic.layers, distribution, flat)
    return f"{type(policy).__name__} has no critic that is known"


# ---------------------------------------------------------------------- parts of them


def _other_learns(network: nn.Module, flat: FlatParameters) -> str | None:
    """Say that not all parameters of a network learn with it: the extension knows of no others."""
    for name, _ in network.named_parameters():
        if name not in flat.names:
            return f"its {name} does not learn, or another network learns it"
    return None


def _networks_of(
    critics: Any, flat: FlatParameters, kind: type[Any], renormalising: type[nn.Module] | None = None
) -> list[tuple[Layer, ...]] | str:
    """The layers of each critic; or why the extension does not differentiate them."""
    if (why := _other_learns(critics, flat) or reason(critics, kind)) is not None:
        return why
    networks = []
    for number in range(critics.n_critics):
        found = dense_forward(critics, f"qf{number}", get_action_dim(critics.action_space), renormalising)
        if isinstance(found, str):
            return found
        if (first := found.layers[0].kind) not in ("linear", "renormalised"):
            return f"its qf{number} begins with a layer that is {first}"
        networks.append(found.layers)
    return networks
