"""What the learners of SAC and TD3 have in common: critics and an actor of SB3's, each with a loss and an optimiser of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy.typing as npt
import torch
from stable_baselines3.common.policies import BaseModel, ContinuousCritic
from stable_baselines3.common.preprocessing import get_action_dim
from stable_baselines3.common.utils import get_parameters_by_name, polyak_update
from torch import nn

from reactor_sb3.acting.forwards import dense_forward
from reactor_sb3.learning.policy_learner import PolicyLearner
from reactor_torch import (
    AutogradCritics,
    Critics,
    Dense,
    DenseCritics,
    FlatOptimizer,
    FlatParameters,
    Layer,
    LossMaker,
    Updater,
    UpdaterLoss,
    UpdaterTask,
    Updates,
)

__all__ = ["ContinuousLearner", "Flats", "Losses", "autograd_critics", "dense_critics", "dense_layers"]

Array = npt.NDArray[Any]
_METHODS = ("forward", "q1_forward", "extract_features")


class Learned(NamedTuple):
    """Names of the parameters that learn, as the modules have them.

    Attributes:
        critics: Those of ``policy.critic`` that are not the actor's.
        actor: Those of ``policy.actor``.
    """

    critics: tuple[str, ...]
    actor: tuple[str, ...]


class Flats(NamedTuple):
    """Parameters of a policy as flat arrays; a parameter that networks share is in one of them."""

    critics: FlatParameters
    actor: FlatParameters
    target: FlatParameters
    target_actor: FlatParameters | None


class Losses(NamedTuple):
    """The two losses of a policy.

    Attributes:
        critics: The critics'.
        actor: The actor's.
        dense: Whether gradients come from formulas, and not from autograd.
    """

    critics: UpdaterLoss
    actor: UpdaterLoss
    dense: bool


MakeLosses = Callable[[Any, Flats], Losses]
"""From a policy and its parameters to its losses; a function of a module, for it travels."""


class ContinuousLearner(PolicyLearner):
    """Critics and an actor.

    UpdaterLoss 0 is the critics', loss 1 the actor's.

    Args:
        policy: It has ``critic`` and ``actor``, each with its ``optimizer``, ``critic_target``, and perhaps ``actor_target``.
        make: What makes its losses.
        split: Whether the gradients of both losses are computed from the same weights, so that it can be done at the same time.

    Raises:
        ValueError: With ``split``, if there is batch normalisation.
    """

    def __init__(self, policy: Any, make: MakeLosses, split: bool) -> None:
        if split:
            _check_apart(policy)
        self.split, self._make = split, make
        self._learned = _learned(policy)
        flats = flats_of(policy, self._learned)
        losses = make(policy, flats)
        idle = [one for one in policy.critic.parameters() if any(one is other for other in policy.actor.parameters())]
        optimizers = FlatOptimizer(policy.critic.optimizer, flats.critics, idle), FlatOptimizer(policy.actor.optimizer, flats.actor)
        super().__init__(
            policy, losses.dense,
            Updater(losses.critics, optimizers[0], None), Updater(losses.actor, optimizers[1], None),
        )  # fmt: skip
        self._followed = [_Followed(policy.critic, flats.critics, policy.critic_target, flats.target)]
        if flats.target_actor is not None:
            self._followed.append(_Followed(policy.actor, flats.actor, policy.actor_target, flats.target_actor))

    def loss_maker(self) -> LossMaker:
        """What makes the same losses again, of a copy of the policy."""
        return partial(_losses, self.learning_copy(), self._learned, self._make)

    def _update(self, batch: Any, with_actor: bool) -> Updates[tuple[Array, ...]]:
        """Steps of the critics and perhaps of the actor, from one minibatch; returns the statistics of each loss."""
        numbers, rows = (0, 1) if with_actor else (0,), slice(0, len(batch))
        found: tuple[Array, ...] = ()
        for together in [numbers] if self.split else [(number,) for number in numbers]:
            found += yield tuple([UpdaterTask(number, batch, rows) for number in together])
            for number in together:
                self._updaters[number].step()
        return found

    def _follow(self, tau: float) -> None:
        """Move targets ``tau`` of the way towards what they follow; statistics of batch normalisation are copied."""
        for one in self._followed:
            one.move(tau)


class _Followed:
    """A network and its target."""

    def __init__(self, network: nn.Module, flat: FlatParameters, target: nn.Module, target_flat: FlatParameters) -> None:
        self.network, self.flat, self.target, self.target_flat = network, flat, target, target_flat
        self.whole = flat.names == target_flat.names == tuple(name for name, _ in target.named_parameters())
        self.statistics = [get_parameters_by_name(one, ["running_"]) for one in (network, target)]

    def move(self, tau: float) -> None:
        if self.whole:
            self.target_flat.blend(self.flat, tau)
        else:  # frozen ones may have been exchanged, and an extractor that two networks share moves with each of them, as in SB3
            polyak_update(self.network.parameters(), self.target.parameters(), tau)
        if self.statistics[0]:
            polyak_update(self.statistics[0], self.statistics[1], 1.0)


def flats_of(policy: Any, learned: Learned) -> Flats:
    """The parameters of a policy, those that learn and those of its targets."""
    critics, actor = dict(policy.critic.named_parameters()), dict(policy.actor.named_parameters())
    target_actor = getattr(policy, "actor_target", None)
    taken = set() if target_actor is None else set(target_actor.parameters())
    return Flats(
        FlatParameters([(name, critics[name]) for name in learned.critics]),
        FlatParameters([(name, actor[name]) for name in learned.actor]),
        FlatParameters([pair for pair in policy.critic_target.named_parameters() if pair[1] not in taken], learned=False),
        None if target_actor is None else FlatParameters(target_actor.named_parameters(), learned=False),
    )


def _learned(policy: Any) -> Learned:
    """What the optimisers have, but for what is frozen."""

    def names(module: Any, but: Iterator[nn.Parameter]) -> tuple[str, ...]:
        optimised = {one for group in module.optimizer.param_groups for one in group["params"]} - set(but)
        return tuple(name for name, one in module.named_parameters() if one in optimised and one.requires_grad)

    return Learned(names(policy.critic, policy.actor.parameters()), names(policy.actor, iter(())))


def _check_apart(policy: Any) -> None:
    for name, part in policy.named_modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            raise ValueError(
                f"split=True lets the critics' and the actor's gradients be computed apart, and {name!r} ({type(part).__name__}) "
                "would collect its statistics in two places: use LayerNorm or GroupNorm, or split=False"
            )


def _losses(policy: Any, learned: Learned, make: MakeLosses, device: torch.device) -> tuple[tuple[UpdaterLoss, ...], nn.Module]:
    """The losses of a policy that has no optimisers, and the policy, both on a device."""
    policy.to(device)
    losses = make(policy, flats_of(policy, learned))
    return (losses.critics, losses.actor), policy


# ---------------------------------------------------------------------- networks as losses see them


def dense_layers(network: BaseModel, name: str, flat: FlatParameters, actions: int = 0) -> tuple[Layer, ...] | None:
    """Layers of a network of SB3's, if there is nothing but what there are formulas for.

    Args:
        network: Actor or critic.
        name: Of the layers in it.
        flat: The network's parameters, all of which have to be there.
        actions: How many numbers of actions come behind those of observations.
    """
    layered = dense_forward(network, network.observation_space, name, actions)
    whole = flat.names == tuple(name for name, _ in network.named_parameters())
    return layered.layers if layered is not None and whole and Dense.knows(layered.layers, flat) else None


def dense_critics(critic: ContinuousCritic, flat: FlatParameters) -> DenseCritics | None:
    """Critics for hand-derived gradients, if they consist of nothing else than what there are formulas for."""
    if any(getattr(type(critic), name) is not getattr(ContinuousCritic, name) for name in _METHODS):
        return None
    count, numbers = get_action_dim(critic.action_space), range(critic.n_critics)
    networks = [layers for number in numbers if (layers := dense_layers(critic, f"qf{number}", flat, count))]
    linear = all(layers[0].kind == "linear" for layers in networks)
    return DenseCritics(networks, flat) if linear and len(networks) == critic.n_critics else None


def autograd_critics(critic: ContinuousCritic, flat: FlatParameters) -> Critics:
    """Any critics."""
    return AutogradCritics(critic, critic.q1_forward, flat)
