"""Which networks of SB3's have formulas: those that consist of dense layers, and of nothing of their own.

Each function is what a loss's ``formula`` returns. With ``nets.dense`` it is ``None`` where a network is anything else; then all
losses are asked again, and see any network by autograd.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3.common.distributions import SquashedDiagGaussianDistribution
from stable_baselines3.common.policies import ActorCriticPolicy, ContinuousCritic
from stable_baselines3.common.preprocessing import get_action_dim
from stable_baselines3.sac.policies import Actor as SACActor
from torch import nn

from reactor_sb3.acting.actor_critic import dense_networks_of, is_plain
from reactor_sb3.acting.forwards import dense_forward
from reactor_sb3.acting.squashed import is_plain_actor
from reactor_torch import (
    AutogradActorCritic,
    AutogradCritics,
    AutogradFunction,
    AutogradSquashedActor,
    Bernoullis,
    Categoricals,
    Critics,
    Dense,
    DenseActorCritic,
    DenseCritics,
    DenseSquashedActor,
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
    SACActorFormula,
    SACCriticFormula,
    SquashedActor,
    TD3ActorFormula,
    TD3CriticFormula,
    layers_of,
)

__all__ = ["check_squashed", "dqn", "ppo", "q_values", "sac_actor", "sac_critics", "td3_actor", "td3_critics"]

_CRITICS_METHODS = ("forward", "q1_forward", "extract_features")


def sac_critics(loss: Loss, nets: Networks) -> Formula | None:
    """Of the critics of SAC."""
    critics, target, actor = _critics(nets, "critic"), _critics(nets, "critic_target"), _squashed_actor(nets, "actor")
    return SACCriticFormula(loss, nets.dense, critics, target, actor) if critics and target and actor else None


def sac_actor(loss: Loss, nets: Networks) -> Formula | None:
    """Of the actor of SAC."""
    critics, actor = _critics(nets, "critic"), _squashed_actor(nets, "actor")
    return SACActorFormula(loss, nets.dense, actor, critics) if critics and actor else None


def td3_critics(loss: Loss, nets: Networks) -> Formula | None:
    """Of the critics of TD3."""
    critics, target, actor = _critics(nets, "critic"), _critics(nets, "critic_target"), _actor(nets, "actor_target")
    return TD3CriticFormula(loss, nets.dense, critics, target, actor) if critics and target and actor else None


def td3_actor(loss: Loss, nets: Networks) -> Formula | None:
    """Of the actor of TD3."""
    critics, actor = _critics(nets, "critic"), _actor(nets, "actor")
    return TD3ActorFormula(loss, nets.dense, actor, critics) if critics and actor else None


def dqn(loss: Loss, nets: Networks) -> Formula | None:
    """Of DQN's network."""
    q_net, target = _q_net(nets, "q_net"), _q_net(nets, "q_net_target")
    return DQNFormula(loss, nets.dense, q_net, target) if q_net and target else None


def q_values(loss: Loss, nets: Networks, weight: float = 1.0) -> Formula | None:
    """Of a network whose values are to become given returns."""
    q_net = _q_net(nets, "q_net")
    return QFormula(loss, nets.dense, q_net, weight) if q_net else None


def ppo(loss: Loss, nets: Networks) -> Formula | None:
    """Of PPO's actor and critic."""
    policy, flat = nets[loss.learns], nets.flat(loss.learns)
    if not nets.dense:
        return PPOFormula(loss, False, AutogradActorCritic(policy.evaluate_actions, flat))
    dense = _dense_actor_critic(policy, flat)
    return PPOFormula(loss, True, dense) if dense else None


# ---------------------------------------------------------------------- networks as formulas see them


def _critics(nets: Networks, name: str) -> Critics | None:
    module, flat = nets[name], nets.flat(name)
    if not nets.dense:
        return nets.seen_as(name, AutogradCritics(module, module.q1_forward, flat))
    return nets.seen_as(name, _dense_critics(module, flat))


def _squashed_actor(nets: Networks, name: str) -> SquashedActor | None:
    module, flat = nets[name], nets.flat(name)
    if not nets.dense:
        return nets.seen_as(name, AutogradSquashedActor(partial(_distribution_of, module), flat))
    return nets.seen_as(name, _dense_squashed_actor(module, flat))


def _actor(nets: Networks, name: str) -> Function | None:
    module, flat = nets[name], nets.flat(name)
    if not nets.dense:
        return nets.seen_as(name, AutogradFunction(module, flat))
    layers = _dense_layers(module, "mu", flat) if is_plain_actor(module) else None
    return nets.seen_as(name, Dense(layers, flat)) if layers else None


def _q_net(nets: Networks, name: str) -> Function | None:
    module, flat = nets[name], nets.flat(name)
    if not nets.dense:
        return nets.seen_as(name, AutogradFunction(module, flat))
    layers = _dense_layers(module, "q_net", flat)
    return nets.seen_as(name, Dense(layers, flat)) if layers else None


def _dense_layers(network: Any, name: str, flat: FlatParameters, actions: int = 0) -> tuple[Layer, ...] | None:
    """Layers of a network, if there is nothing but what there are formulas for.

    Args:
        network: Actor, critic or Q-network.
        name: Name of the layers in it.
        flat: The network's parameters, all of which have to be there.
        actions: How many numbers of actions come behind those of observations.
    """
    layered = dense_forward(network, network.observation_space, name, actions)
    whole = flat.names == tuple(name for name, _ in network.named_parameters())
    return layered.layers if layered is not None and whole and Dense.knows(layered.layers, flat) else None


def _dense_critics(critic: ContinuousCritic, flat: FlatParameters) -> DenseCritics | None:
    if any(getattr(type(critic), name) is not getattr(ContinuousCritic, name) for name in _CRITICS_METHODS):
        return None
    count, numbers = get_action_dim(critic.action_space), range(critic.n_critics)
    networks = [layers for number in numbers if (layers := _dense_layers(critic, f"qf{number}", flat, count))]
    linear = all(layers[0].kind == "linear" for layers in networks)
    return DenseCritics(networks, flat) if linear and len(networks) == critic.n_critics else None


def _dense_squashed_actor(actor: SACActor, flat: FlatParameters) -> DenseSquashedActor | None:
    body = _dense_layers(actor, "latent_pi", flat)
    if body is None or not is_plain_actor(actor):
        return None
    width = body[-1].outputs if body else actor.features_dim
    heads = [layers_of([(name, getattr(actor, name))], width) for name in ("mu", "log_std")]
    known = [head[0] for head in heads if head and Dense.knows(head, flat)]
    return DenseSquashedActor(body, known[0], known[1], flat) if len(known) == 2 else None


def _distribution_of(actor: SACActor, observations: Any) -> tuple[torch.Tensor, torch.Tensor]:
    mean, log_std, _ = actor.get_action_dist_params(observations)
    return mean, log_std


def _dense_actor_critic(policy: nn.Module, flat: FlatParameters) -> DenseActorCritic | None:
    networks = dense_networks_of(policy) if isinstance(policy, ActorCriticPolicy) and is_plain(policy) else None
    if networks is None or not all(Dense.knows(network.layers, flat) for network in (networks.actor, networks.critic)):
        return None
    distribution: Any
    match policy.action_space:
        case spaces.Discrete(n=n):
            distribution = Categoricals([int(n)])
        case spaces.MultiDiscrete(nvec=sizes):
            distribution = Categoricals(sizes.tolist())
        case spaces.MultiBinary(shape=shape):
            distribution = Bernoullis(math.prod(shape))
        case _:
            distribution = Gaussians(flat)
    return DenseActorCritic(networks.actor.layers, networks.critic.layers, distribution, flat)


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
