"""What learns from a round of PPO: SB3's policies with the loss of :mod:`reactor_torch`, which knows formulas for dense ones."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy.typing as npt
import torch
from gymnasium import spaces
from stable_baselines3.common.policies import ActorCriticPolicy

from reactor_sb3.acting.actor_critic import dense_networks_of, is_plain
from reactor_sb3.learning.policy_learner import PolicyLearner
from reactor_torch import (
    AutogradActorCritic,
    Bernoullis,
    Categoricals,
    Dense,
    DenseActorCritic,
    FlatOptimizer,
    FlatParameters,
    Gaussians,
    LossMaker,
    PPOBatch,
    PPOLoss,
    Updater,
    UpdaterTask,
    Updates,
    carry_out,
    normalized,
)

__all__ = ["APPROX_KL", "PPOLearner", "ppo_losses"]

Array = npt.NDArray[Any]
APPROX_KL = PPOLoss.statistics.index("approx_kl")


class PPOLearner(PolicyLearner):
    """Passes over a round, in minibatches.

    Args:
        policy: What learns.
        max_grad_norm: What gradients are clipped to.

    Attributes:
        loss: Its ranges and weights are to be set before a round.
    """

    def __init__(self, policy: ActorCriticPolicy, max_grad_norm: float) -> None:
        (self.loss,), _ = ppo_losses(policy, policy.device)
        updater = Updater(self.loss, FlatOptimizer(policy.optimizer, self.loss.flat), max_grad_norm)
        super().__init__(policy, isinstance(self.loss.policy, DenseActorCritic), updater)

    def updates(
        self, rollout: PPOBatch, order: torch.Tensor, batch_size: int, normalize: bool, most_kl: float
    ) -> Updates[tuple[list[Array], bool]]:
        """A pass over a round, for gradients that somebody else computes.

        Args:
            rollout: The round, its observations as :meth:`observations` gives them.
            order: Of its rows.
            batch_size: Of a minibatch; the last one has what is left.
            normalize: Whether each minibatch's advantages get mean 0 and deviation 1.
            most_kl: The divergence beyond which no update is made.

        Returns:
            The statistics of each minibatch (``loss.statistics``), and whether all of them were learned from.
        """
        shuffled = rollout[order]
        if normalize:
            shuffled.advantages = normalized(shuffled.advantages, batch_size)
        statistics = []
        for begin in range(0, len(order), batch_size):
            (found,) = yield (UpdaterTask(0, shuffled, slice(begin, min(begin + batch_size, len(order)))),)
            statistics.append(found)
            if statistics[-1][APPROX_KL] > most_kl:
                return statistics, False
            self._updaters[0].step()
        return statistics, True

    def loss_maker(self) -> LossMaker:
        """What makes the same losses again, of a copy of the policy."""
        return partial(ppo_losses, self.learning_copy())

    def learn(
        self, rollout: PPOBatch, order: torch.Tensor, batch_size: int, normalize: bool, most_kl: float
    ) -> tuple[list[Array], bool]:
        """A pass over a round; see :meth:`updates`."""
        return carry_out(self.updates(rollout, order, batch_size, normalize, most_kl), self.gradients)


def ppo_losses(policy: ActorCriticPolicy, device: torch.device) -> tuple[tuple[PPOLoss], ActorCriticPolicy]:
    """The only loss of a policy, by formulas where there are some for it, and the policy, both on a device."""
    policy.to(device)
    flat = FlatParameters(policy.named_parameters())
    return (PPOLoss(_dense(policy, flat) or AutogradActorCritic(policy.evaluate_actions, flat)),), policy


def _dense(policy: ActorCriticPolicy, flat: FlatParameters) -> DenseActorCritic | None:
    """The policy for hand-derived gradients, if it consists of nothing else than what there are formulas for."""
    networks = dense_networks_of(policy) if is_plain(policy) else None
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
