"""Which networks of SB3's have formulas: those that consist of dense layers and ``NatureCNN``, and of nothing of their own.

Each function is what a loss's ``formula`` returns: ``None`` where a network is anything else. Then autograd computes all losses.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from gymnasium import spaces
from stable_baselines3.common.policies import ContinuousCritic
from stable_baselines3.common.preprocessing import get_action_dim
from stable_baselines3.sac.policies import Actor as SACActor
from torch import nn

from reactor_sb3.policies import (
    SB3,
    Base,
    DenseNetworks,
    ImageNetworks,
    actor_reason,
    dense_forward,
    image_forward,
    networks_of,
    noisy_networks_of,
    reason,
)
from reactor_torch import (
    Bernoullis,
    Categoricals,
    Convolved,
    ConvolvedForward,
    CrossQActorFormula,
    CrossQCriticFormula,
    Dense,
    DenseActorCritic,
    DenseCritics,
    DenseForward,
    DenseQuantileCritics,
    DenseSquashedActor,
    Distribution,
    DQNFormula,
    FlatParameters,
    Formula,
    Function,
    Gaussians,
    Layer,
    Loss,
    Networks,
    PPOFormula,
    QFormula,
    QRDQNFormula,
    RecurrentActorCritic,
    RecurrentPPOFormula,
    SACActorFormula,
    SACCriticFormula,
    SquashedActor,
    StateDependent,
    TD3ActorFormula,
    TD3CriticFormula,
    TQCCriticFormula,
    layers_of,
    lstm_of,
)

__all__ = [
    "CrossQKinds",
    "crossq_actor",
    "crossq_critics",
    "dqn",
    "ppo",
    "q_values",
    "qr_dqn",
    "recurrent_ppo",
    "sac_actor",
    "sac_critics",
    "td3_actor",
    "td3_critics",
    "tqc_actor",
    "tqc_critics",
]


def sac_critics(loss: Loss, nets: Networks) -> Formula | None:
    """Of the critics of SAC."""
    critics, target, actor = _critics(nets, "critic"), _critics(nets, "critic_target"), _squashed_actor(nets, "actor")
    return SACCriticFormula(loss, critics, target, actor) if critics and target and actor else None


def sac_actor(loss: Loss, nets: Networks) -> Formula | None:
    """Of the actor of SAC."""
    critics, actor = _critics(nets, "critic"), _squashed_actor(nets, "actor")
    return SACActorFormula(loss, actor, critics) if critics and actor else None


def td3_critics(loss: Loss, nets: Networks) -> Formula | None:
    """Of the critics of TD3."""
    critics, target, actor = _critics(nets, "critic"), _critics(nets, "critic_target"), _actor(nets, "actor_target")
    return TD3CriticFormula(loss, critics, target, actor) if critics and target and actor else None


def td3_actor(loss: Loss, nets: Networks) -> Formula | None:
    """Of the actor of TD3."""
    critics, actor = _critics(nets, "critic"), _actor(nets, "actor")
    return TD3ActorFormula(loss, actor, critics) if critics and actor else None


def dqn(loss: Loss, nets: Networks) -> Formula | None:
    """Of DQN's network."""
    q_net, target = _q_net(nets, "q_net"), _q_net(nets, "q_net_target")
    return DQNFormula(loss, q_net, target) if q_net and target else None


def q_values(loss: Loss, nets: Networks, weight: float = 1.0) -> Formula | None:
    """Of a network whose values are to become given returns."""
    q_net = _q_net(nets, "q_net")
    return QFormula(loss, q_net, weight) if q_net else None


def ppo(loss: Loss, nets: Networks, base: Base = SB3) -> Formula | None:
    """Of PPO's actor and critic.

    Args:
        loss: The loss.
        nets: The networks.
        base: What the policy derives from.
    """
    policy, flat = nets[loss.learns], nets.flat(loss.learns)
    noisy = noisy_networks_of(policy) if base is SB3 and nets.kernels(loss.learns) is not None else ""
    dense = _dense_actor_critic(policy, flat, base) if isinstance(noisy, str) else _noisy_actor_critic(policy, noisy, flat)
    return PPOFormula(loss, dense) if dense else None


def qr_dqn(loss: Loss, nets: Networks) -> Formula | None:
    """Of QR-DQN's network."""
    net, target = _q_net(nets, "quantile_net", "quantile_net"), _q_net(nets, "quantile_net_target", "quantile_net")
    return QRDQNFormula(loss, net, target, int(nets["quantile_net"].action_space.n)) if net and target else None


def recurrent_ppo(loss: Loss, nets: Networks, networks: DenseNetworks | str) -> Formula | None:
    """Of PPO's actor and critic behind LSTMs.

    Args:
        loss: The loss.
        nets: The networks.
        networks: The dense layers behind them; or why autograd differentiates the policy.
    """
    policy, flat = nets[loss.learns], nets.flat(loss.learns)
    if isinstance(networks, str) or nets.kernels(loss.learns) is None:
        return None
    actor = lstm_of(flat, "lstm_actor")
    critic = None if policy.lstm_critic is None else lstm_of(flat, "lstm_critic")
    known = all(Dense.knows(network.layers, flat) for network in (networks.actor, networks.critic)) and _is_whole(policy, flat)
    if not known or actor is None or (critic is None and policy.lstm_critic is not None):
        return None
    distribution = _distribution(policy.action_space, flat)
    dense = RecurrentActorCritic((actor, critic), networks.actor.layers, networks.critic.layers, distribution, flat)
    return RecurrentPPOFormula(loss, dense)


def tqc_critics(loss: Loss, nets: Networks, kind: type[Any], actor: type[Any]) -> Formula | None:
    """Of the critics of TQC, which are of a kind, as its actor is."""
    critics, target = _quantile_critics(nets, "critic", kind), _quantile_critics(nets, "critic_target", kind)
    acting = _squashed_actor(nets, "actor", actor)
    return TQCCriticFormula(loss, critics, target, acting) if critics and target and acting else None


def tqc_actor(loss: Loss, nets: Networks, kind: type[Any], actor: type[Any]) -> Formula | None:
    """Of the actor of TQC, which is of a kind, as its critics are."""
    critics, acting = _quantile_critics(nets, "critic", kind), _squashed_actor(nets, "actor", actor)
    return SACActorFormula(loss, acting, critics) if critics and acting else None


class CrossQKinds(NamedTuple):
    """The classes of sb3-contrib's networks, which it alone imports who has it.

    Attributes:
        critic: Of critics.
        actor: Of actors.
        renormalising: Of their batch renormalisation.
    """

    critic: type[Any]
    actor: type[Any]
    renormalising: type[nn.Module]


def crossq_critics(loss: Loss, nets: Networks, kinds: CrossQKinds) -> Formula | None:
    """Of the critics of CrossQ, where there is the extension."""
    critics, actor = _critics(nets, "critic", kinds), _squashed_actor(nets, "actor", kinds.actor, kinds.renormalising)
    return CrossQCriticFormula(loss, critics, actor) if critics and actor and critics.kernels is not None else None


def crossq_actor(loss: Loss, nets: Networks, kinds: CrossQKinds) -> Formula | None:
    """Of the actor of CrossQ, where there is the extension."""
    critics, actor = _critics(nets, "critic", kinds), _squashed_actor(nets, "actor", kinds.actor, kinds.renormalising)
    return CrossQActorFormula(loss, actor, critics) if critics and actor and critics.kernels is not None else None


# ---------------------------------------------------------------------- networks as formulas see them


def _critics(nets: Networks, name: str, kinds: CrossQKinds | None = None) -> DenseCritics | None:
    module, flat = nets[name], nets.flat(name)
    kind, renormalising = (ContinuousCritic, None) if kinds is None else (kinds.critic, kinds.renormalising)
    networks = _networks_of(module, flat, kind, renormalising)
    return nets.seen_as(name, DenseCritics(networks, flat, _buffers(module)) if networks else None)


def _quantile_critics(nets: Networks, name: str, kind: type[Any]) -> DenseQuantileCritics | None:
    networks = _networks_of(nets[name], nets.flat(name), kind)
    return nets.seen_as(name, DenseQuantileCritics(networks, nets.flat(name)) if networks else None)


def _squashed_actor(
    nets: Networks, name: str, kind: type[Any] = SACActor, renormalising: type[nn.Module] | None = None
) -> SquashedActor | None:
    module, flat = nets[name], nets.flat(name)
    return nets.seen_as(name, _dense_squashed_actor(module, flat, kind, renormalising))


def _actor(nets: Networks, name: str) -> Function | None:
    module, flat = nets[name], nets.flat(name)
    layers = _dense_layers(module, "mu", flat) if actor_reason(module) is None else None
    return nets.seen_as(name, Dense(layers, flat)) if layers else None


def _q_net(nets: Networks, name: str, of_layers: str = "q_net") -> Function | None:
    module, flat = nets[name], nets.flat(name)
    layers = _dense_layers(module, of_layers, flat)
    if layers is None:
        return nets.seen_as(name, _convolved(image_forward(module, of_layers), flat))
    return nets.seen_as(name, Dense(layers, flat)) if layers else None


def _buffers(module: nn.Module) -> dict[str, Any]:
    return dict(module.named_buffers())


def _dense_layers(
    network: Any, name: str, flat: FlatParameters, actions: int = 0, renormalising: type[nn.Module] | None = None
) -> tuple[Layer, ...] | None:
    """Layers of a network, if there is nothing but what there are formulas for.

    Args:
        network: Actor, critic or Q-network.
        name: Name of the layers in it.
        flat: The network's parameters, all of which have to be there.
        actions: How many numbers of actions come behind those of observations.
        renormalising: See :func:`~reactor_torch.layers_of`.
    """
    layered = dense_forward(network, name, actions, renormalising)
    if isinstance(layered, str) or not _has_all(network, flat):
        return None
    return layered.layers if Dense.knows(layered.layers, flat) else None


def _networks_of(
    critic: Any, flat: FlatParameters, kind: type[Any], renormalising: type[nn.Module] | None = None
) -> list[tuple[Layer, ...]] | None:
    """The layers of each critic, if there is nothing but what there are formulas for, and no method of its own."""
    if reason(critic, kind) is not None:
        return None
    count, numbers = get_action_dim(critic.action_space), range(critic.n_critics)
    networks = [layers for number in numbers if (layers := _dense_layers(critic, f"qf{number}", flat, count, renormalising))]
    linear = all(layers[0].kind in ("linear", "renormalised") for layers in networks)
    return networks if linear and len(networks) == critic.n_critics else None


def _dense_squashed_actor(
    actor: Any, flat: FlatParameters, kind: type[Any], renormalising: type[nn.Module] | None
) -> DenseSquashedActor | None:
    body = _dense_layers(actor, "latent_pi", flat, renormalising=renormalising)
    if body is None or actor_reason(actor, kind) is not None:
        return None
    width = body[-1].outputs if body else actor.features_dim
    heads = [layers_of([(name, getattr(actor, name))], width) for name in ("mu", "log_std")]
    known = [head[0] for head in heads if not isinstance(head, str) and Dense.knows(head, flat)]
    return DenseSquashedActor(body, known[0], known[1], flat, _buffers(actor)) if len(known) == 2 else None


def _dense_actor_critic(policy: Any, flat: FlatParameters, base: Base) -> DenseActorCritic | None:
    features = None
    match networks_of(policy, base):
        case DenseNetworks(actor=DenseForward(layers=actor), critic=DenseForward(layers=critic)):
            pass
        case ImageNetworks(seen, actor, critic):
            if (features := _convolved(seen, flat)) is None:
                return None
        case _:
            return None
    if not all(Dense.knows(layers, flat) for layers in (actor, critic)) or not _is_whole(policy, flat):
        return None
    distribution = _distribution(policy.action_space, flat, bits_are_choices=base is not SB3)
    return DenseActorCritic(actor, critic, distribution, flat, features)


def _convolved(seen: ConvolvedForward | str, flat: FlatParameters) -> Convolved | None:
    return Convolved(seen.layers, flat, seen.divisor) if not isinstance(seen, str) and Dense.knows(seen.layers, flat) else None


def _has_all(network: nn.Module, flat: FlatParameters) -> bool:
    """Whether all parameters of a network learn: formulas know of no others."""
    return flat.names == tuple(name for name, _ in network.named_parameters())


def _is_whole(policy: Any, flat: FlatParameters) -> bool:
    """Whether all of a policy learns, its standard deviations (one for each number of an action) included."""
    if not _has_all(policy, flat):
        return False
    if not isinstance(policy.action_space, spaces.Box):
        return True
    spread = flat.gradient("log_std")
    return spread is not None and tuple(spread.shape) == (get_action_dim(policy.action_space),)


def _noisy_actor_critic(policy: Any, networks: DenseNetworks, flat: FlatParameters) -> DenseActorCritic | None:
    """With gSDE, by the extension alone."""
    known = all(Dense.knows(network.layers, flat) for network in (networks.actor, networks.critic))
    if not known or flat.gradient("log_std") is None or not _has_all(policy, flat):
        return None
    *below, mean = networks.actor.layers
    return DenseActorCritic(below, networks.critic.layers, StateDependent(mean, flat), flat)


def _distribution(space: Any, flat: FlatParameters, *, bits_are_choices: bool = False) -> Distribution:
    """Of actions, as SB3 has it, or sb3-contrib with masks: there each bit is a choice between two."""
    match space:
        case spaces.Discrete(n=n):
            return Categoricals([int(n)])
        case spaces.MultiDiscrete(nvec=sizes):
            return Categoricals(sizes.tolist())
        case spaces.MultiBinary(shape=shape):
            return Categoricals([2] * math.prod(shape)) if bits_are_choices else Bernoullis(math.prod(shape))
    return Gaussians(flat)
