"""What learns from minibatches of SAC: SB3's policies with the losses of :mod:`reactor_torch`, dense ones by formulas."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3.common.distributions import SquashedDiagGaussianDistribution
from stable_baselines3.sac.policies import Actor, SACPolicy
from torch import nn

from reactor_sb3.acting.squashed import is_plain_actor
from reactor_sb3.learning.continuous import (
    ContinuousLearner,
    Flats,
    Losses,
    autograd_critics,
    dense_critics,
    dense_layers,
)
from reactor_sb3.learning.entropy import EntropyCoefficient
from reactor_torch import (
    AutogradSquashedActor,
    Dense,
    DenseSquashedActor,
    FlatParameters,
    SACActorLoss,
    SACBatch,
    SACCriticLoss,
    SquashedActor,
    Updates,
    carry_out,
    layers_of,
)

__all__ = ["SACLearner", "sac_losses"]

Array = npt.NDArray[Any]


class SACLearner(ContinuousLearner):
    """Updates of critics, actor and entropy coefficient.

    With ``split=False`` an update is SB3's: the critics step, the actor's loss sees what they have become, and then the actor and
    the coefficient step. With ``split=True`` it is a delayed variant: both losses see the critics, the actor and the coefficient
    from before the update, and can be computed at the same time; then all of them step. What the critics learn from is the same in
    both: in SB3's SAC, too, their target comes from the actor and the coefficient from before the update.

    A weight that is no number makes all losses that read it no numbers, and together they read all weights: whoever looks at what
    the updates of a round return learns of it in the round that comes next at the latest.

    Args:
        policy: What learns.
        entropy: The entropy coefficient.
        split: Whether both losses are computed from the same weights.

    Raises:
        ValueError: If the policy's actor is not a squashed normal distribution of SB3's, or has batch normalisation; with
            ``split``, if there is any batch normalisation.
    """

    def __init__(self, policy: SACPolicy, entropy: EntropyCoefficient, split: bool = False) -> None:
        _check(policy.actor)
        super().__init__(policy, sac_losses, split)
        self.entropy = entropy

    def begin_round(self, max_grad_norm: float | None = None) -> None:
        """Take over what has been loaded or replaced since the last round; SAC clips no gradients."""
        super().begin_round(max_grad_norm)
        self.entropy.begin_round()

    def updates(self, batches: Iterable[SACBatch], tau: float, target_update_interval: int = 1) -> Updates[dict[str, Array]]:
        """An update from each of some minibatches, for gradients that somebody else computes.

        Args:
            batches: Their observations as :meth:`observations` gives them; each is asked for when the one before is learned.
            tau: How far target critics move towards the critics.
            target_update_interval: Updates from one move to the next; the first update of a round ends with one, as in SB3.

        Returns:
            For each update, by SB3's names: ``critic_loss``, ``actor_loss``, ``ent_coef``, ``ent_coef_loss``, ``(updates,)`` each,
            float32; the last one is empty if the coefficient is fixed.
        """
        found: dict[str, list[Any]] = {name: [] for name in ("critic_loss", "actor_loss", "ent_coef", "ent_coef_loss")}
        for number, batch in enumerate(batches):
            coefficient = self.entropy.value()
            for loss in self.losses:
                assert isinstance(loss, SACCriticLoss | SACActorLoss)
                loss.entropy_coefficient = coefficient
            (critic_loss,), (actor_loss, log_prob) = yield from self._update(batch, with_actor=True)
            learned = self.entropy.step(float(log_prob))
            if number % target_update_interval == 0:
                self._follow(tau)
            values = (critic_loss, actor_loss, coefficient) + (() if learned is None else (learned,))
            for name, value in zip(found, values, strict=False):
                found[name].append(value)
        return {name: np.array(values, np.float32) for name, values in found.items()}

    def learn(self, batches: Iterable[SACBatch], tau: float, target_update_interval: int = 1) -> dict[str, Array]:
        """An update from each of some minibatches; see :meth:`updates`."""
        return carry_out(self.updates(batches, tau, target_update_interval), self.gradients)


def sac_losses(policy: SACPolicy, flats: Flats) -> Losses:
    """The losses of a policy, by formulas where there are some for it."""
    actor: SquashedActor | None = _dense_actor(policy.actor, flats.actor)
    critics, target = dense_critics(policy.critic, flats.critics), dense_critics(policy.critic_target, flats.target)
    if actor and critics and target:
        return Losses(SACCriticLoss(critics, target, actor), SACActorLoss(actor, critics), True)
    actor = AutogradSquashedActor(partial(_parameters_of, policy.actor), flats.actor)
    seen = autograd_critics(policy.critic, flats.critics)
    loss = SACCriticLoss(seen, autograd_critics(policy.critic_target, flats.target), actor)
    return Losses(loss, SACActorLoss(actor, seen), False)


def _dense_actor(actor: Actor, flat: FlatParameters) -> DenseSquashedActor | None:
    """The actor for hand-derived gradients, if it consists of nothing else than what there are formulas for."""
    body = dense_layers(actor, "latent_pi", flat)
    if body is None or not is_plain_actor(actor):
        return None
    width = body[-1].outputs if body else actor.features_dim
    heads = [layers_of([(name, getattr(actor, name))], width) for name in ("mu", "log_std")]
    known = [head[0] for head in heads if head and Dense.knows(head, flat)]
    return DenseSquashedActor(body, known[0], known[1], flat) if len(known) == 2 else None


def _parameters_of(actor: Actor, observations: Any) -> tuple[torch.Tensor, torch.Tensor]:
    mean, log_std, _ = actor.get_action_dist_params(observations)
    return mean, log_std


def _check(actor: Actor) -> None:
    own, distribution = type(actor).action_log_prob is not Actor.action_log_prob, type(actor.action_dist)
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
