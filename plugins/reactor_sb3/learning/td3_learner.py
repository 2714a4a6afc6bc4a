"""What learns from minibatches of TD3: SB3's policies with the losses of :mod:`reactor_torch`, dense ones by formulas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from stable_baselines3.td3.policies import TD3Policy

from reactor_sb3.acting.squashed import is_plain_actor
from reactor_sb3.learning.continuous import (
    ContinuousLearner,
    Flats,
    Losses,
    autograd_critics,
    dense_critics,
    dense_layers,
)
from reactor_torch import AutogradFunction, Dense, TD3ActorLoss, TD3Batch, TD3CriticLoss, Updates, carry_out

__all__ = ["TD3Learner", "td3_losses"]

Array = npt.NDArray[Any]


class TD3Learner(ContinuousLearner):
    """Updates of critics, and every few updates of the actor and of all targets.

    With ``split=False`` an update is SB3's: the critics step, and the actor's loss sees what they have become. With ``split=True``
    it is a delayed variant: where the actor learns too, its loss sees the critics from before the update, so that both losses can
    be computed at the same time. What the critics learn from is the same in both.

    A weight that is no number makes all losses that read it no numbers, and targets follow what they belong to: whoever looks at
    what the updates return learns of it, at the latest ``policy_delay`` updates after it went wrong.

    Args:
        policy: What learns.
        split: Whether both losses are computed from the same weights.

    Raises:
        ValueError: With ``split``, if there is batch normalisation.
    """

    def __init__(self, policy: TD3Policy, split: bool = False) -> None:
        super().__init__(policy, td3_losses, split)

    def updates(self, batches: Iterable[TD3Batch], tau: float, policy_delay: int, before: int) -> Updates[dict[str, Array]]:
        """An update from each of some minibatches, for gradients that somebody else computes.

        Args:
            batches: Their observations as :meth:`observations` gives them; each is asked for when the one before is learned.
            tau: How far targets move, whenever the actor has learned.
            policy_delay: Updates of the critics for one of the actor.
            before: How many updates there have been before.

        Returns:
            By SB3's names: ``critic_loss`` for each update, ``actor_loss`` for each one that had one; float32.
        """
        found: dict[str, list[Any]] = {"critic_loss": [], "actor_loss": []}
        for number, batch in enumerate(batches, before + 1):
            with_actor = number % policy_delay == 0
            statistics = yield from self._update(batch, with_actor)
            if with_actor:
                self._follow(tau)
            for name, values in zip(found, statistics, strict=False):
                found[name].append(values[0])
        return {name: np.array(values, np.float32) for name, values in found.items()}

    def learn(self, batches: Iterable[TD3Batch], tau: float, policy_delay: int, before: int) -> dict[str, Array]:
        """An update from each of some minibatches; see :meth:`updates`."""
        return carry_out(self.updates(batches, tau, policy_delay, before), self.gradients)


def td3_losses(policy: TD3Policy, flats: Flats) -> Losses:
    """The losses of a policy, by formulas where there are some for it."""
    assert flats.target_actor is not None
    actors = [(policy.actor, flats.actor), (policy.actor_target, flats.target_actor)]
    layers = [dense_layers(actor, "mu", flat) for actor, flat in actors if is_plain_actor(actor)]
    critics, target = dense_critics(policy.critic, flats.critics), dense_critics(policy.critic_target, flats.target)
    if len(layers) == 2 and layers[0] and layers[1] and critics and target:
        actor, target_actor = Dense(layers[0], flats.actor), Dense(layers[1], flats.target_actor)
        return Losses(TD3CriticLoss(critics, target, target_actor), TD3ActorLoss(actor, critics), True)
    seen = autograd_critics(policy.critic, flats.critics)
    following = AutogradFunction(policy.actor_target, flats.target_actor)
    loss = TD3CriticLoss(seen, autograd_critics(policy.critic_target, flats.target), following)
    if policy.share_features_extractor:  # the critics look through the actor's
        loss.follows += (flats.actor,)
    return Losses(loss, TD3ActorLoss(AutogradFunction(policy.actor, flats.actor), seen), False)
