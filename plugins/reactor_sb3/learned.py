"""Read networks of SB3 and sb3-contrib as losses learn them: layers that the extension knows, and nothing of somebody's own.

Each function is what ``reactor_torch.Network(read=...)`` takes: from a module and its parameters to a learned network, or to the
reason why there is none. Then autograd computes all losses.
"""

from __future__ import annotations

import math
from typing import Any

from gymnasium import spaces
from stable_baselines3.common.policies import ContinuousCritic
from stable_baselines3.common.preprocessing import get_action_dim
from stable_baselines3.sac.policies import Actor as SACActor
from torch import nn

from reactor_sb3.policies import (
    GSDE,
    SB3,
    Base,
    ImageNetworks,
    actor_reason,
    dense_forward,
    network_of,
    networks_of,
    noisy_networks_of,
    plain_networks_of,
    reason,
)
from reactor_torch import (
    ActorCritic,
    Bernoullis,
    Categoricals,
    Convolved,
    ConvolvedForward,
    Critics,
    Dense,
    Distribution,
    FlatParameters,
    Function,
    Gaussians,
    Layer,
    QuantileCritics,
    QuantileNetwork,
    RecurrentActorCritic,
    SquashedActor,
    StateDependent,
    layers_of,
    lstm_of,
)

__all__ = [
    "read_actor",
    "read_actor_critic",
    "read_critics",
    "read_q_net",
    "read_quantile_critics",
    "read_quantile_net",
    "read_recurrent",
    "read_squashed_actor",
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


def read_squashed_actor(
    module: Any, flat: FlatParameters, kind: type[Any] = SACActor, renormalising: type[nn.Module] | None = None
) -> SquashedActor | str:
    """An actor with the methods and layers of SAC's; arguments as of :func:`read_critics`."""
    if (why := _other_learns(module, flat) or actor_reason(module, kind)) is not None:
        return why
    body = dense_forward(module, "latent_pi", renormalising=renormalising)
    if isinstance(body, str):
        return body
    width = body.layers[-1].outputs if body.layers else module.features_dim
    mean, log_std = (layers_of([(name, getattr(module, name))], width) for name in ("mu", "log_std"))
    if isinstance(mean, str) or isinstance(log_std, str):
        return mean if isinstance(mean, str) else str(log_std)
    return SquashedActor(body.layers, mean[0], log_std[0], flat, dict(module.named_buffers()))


def read_actor(module: Any, flat: FlatParameters) -> Dense | str:
    """An actor with the methods and layers of TD3's."""
    if (why := _other_learns(module, flat) or actor_reason(module)) is not None:
        return why
    found = dense_forward(module, "mu")
    return found if isinstance(found, str) else Dense(found.layers, flat)


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


def read_actor_critic(policy: Any, flat: FlatParameters, base: Base = SB3) -> ActorCritic | str:
    """Actor and critic of PPO.

    Args:
        policy: The policy.
        flat: Its parameters.
        base: What it derives from.
    """
    if not isinstance(policy, base.policy):
        return f"{type(policy).__name__} is no {base.policy.__name__}"
    if (why := _other_learns(policy, flat)) is not None:
        return why
    if base is SB3 and type(policy.action_dist) in GSDE.distributions:
        noisy = noisy_networks_of(policy)
        if isinstance(noisy, str):
            return noisy
        *below, mean = noisy.actor.layers
        return ActorCritic(below, noisy.critic.layers, StateDependent(mean, flat), flat)
    found = networks_of(policy, base)
    if isinstance(found, str):
        return found
    distribution = _distribution(policy.action_space, flat, bits_are_choices=base is not SB3)
    if isinstance(distribution, str):
        return distribution
    if isinstance(found, ImageNetworks):
        seen = found.features
        return ActorCritic(found.actor, found.critic, distribution, flat, Convolved(seen.layers, flat, seen.divisor))
    return ActorCritic(found.actor.layers, found.critic.layers, distribution, flat)


def read_recurrent(policy: Any, flat: FlatParameters) -> RecurrentActorCritic | str:
    """Actor and critic behind LSTMs of one layer, which sb3-contrib has."""
    if (why := _other_learns(policy, flat)) is not None:
        return why
    found = plain_networks_of(policy)
    if isinstance(found, str):
        return found
    actor, critic = lstm_of(flat, "lstm_actor"), None if policy.lstm_critic is None else lstm_of(flat, "lstm_critic")
    distribution = _distribution(policy.action_space, flat)
    if isinstance(distribution, str):
        return distribution
    if actor is None or (critic is None and policy.lstm_critic is not None):
        return "its LSTM has no biases"
    return RecurrentActorCritic((actor, critic), found.actor.layers, found.critic.layers, distribution, flat)


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


def _distribution(space: Any, flat: FlatParameters, *, bits_are_choices: bool = False) -> Distribution | str:
    """Of actions, as SB3 has it, or sb3-contrib with masks: there each bit is a choice between two."""
    match space:
        case spaces.Discrete(n=n):
            return Categoricals([int(n)])
        case spaces.MultiDiscrete(nvec=sizes):
            return Categoricals(sizes.tolist())
        case spaces.MultiBinary(shape=shape):
            return Categoricals([2] * math.prod(shape)) if bits_are_choices else Bernoullis(math.prod(shape))
    spread = flat.gradient("log_std")
    if spread is None or tuple(spread.shape) != (get_action_dim(space),):
        return "its log_std is not one number for each of an action's"
    return Gaussians(flat)
