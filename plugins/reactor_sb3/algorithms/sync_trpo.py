"""``SyncTRPO``: trust region policy optimisation (Schulman et al. 2015), sb3-contrib's ``TRPO`` on all cores."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Unpack

import gymnasium
import torch
from sb3_contrib import TRPO
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.type_aliases import Schedule
from torch.nn.functional import mse_loss

from reactor_sb3.algorithms.actor_critic import ActorCriticTrainer
from reactor_sb3.learned import read_natural_actor, read_values_of_states
from reactor_sb3.natural import WrittenActor, shared_out
from reactor_sb3.trainers.arguments import check_numbers
from reactor_sb3.trainers.learner import Minibatch
from reactor_sb3.trainers.options import Options, keeps_arguments
from reactor_torch import Loss, Network, PPOBatch, Update, conjugate_gradient, normalized, q_loss

__all__ = ["SyncTRPO", "ValueLoss"]


@dataclass(frozen=True)
class ValueLoss(Loss):
    """Squared errors of values against returns. The actor is read because the features of a critic may be its own."""

    learns, reads, statistics, fields = "critic", ("policy",), ("value_loss",), ("observations", "returns")

    def __call__(self, nets: Mapping[str, Any], batch: PPOBatch) -> tuple[torch.Tensor, ...]:
        """The loss."""
        return (mse_loss(nets["critic"].predict_values(batch.observations).flatten(), batch.returns),)

    def fast(self, nets: Mapping[str, Any], batch: PPOBatch, share: float) -> tuple[float, ...]:
        """The same by the extension."""
        first = torch.zeros(len(batch), dtype=torch.int64)  # and only number that a critic gives
        loss, gradient = q_loss(nets["critic"].forward(batch.observations), first, batch.returns, share)
        nets["critic"].backward(gradient)
        return (loss,)


class SyncTRPO(ActorCriticTrainer, TRPO):
    """TRPO whose actors sample in parallel and whose results do not depend on how many cores do it.

    One round is a tick of the reactor program that :class:`~reactor_sb3.SyncPPO` runs too. The learner makes a step of the actor
    along the natural gradient, as far as ``target_kl``, and then ``n_critic_updates`` passes in which the critic learns alone, with
    gradient workers if there are any. Given the same round, order and first guess of the conjugate gradients, the weights are
    sb3-contrib's but for rounding.

    Args:
        policy: As for sb3-contrib's ``TRPO``, and so is every parameter that is not named here.
        env: As for :class:`~reactor_sb3.SyncDQN`.
        n_steps, rollout_buffer_class, device: As for :class:`~reactor_sb3.SyncPPO`.
        **options: Likewise.

    Raises:
        TypeError: If no environments like ``env`` can be made, or the policy is not an ``ActorCriticPolicy``.
        ValueError: If a number makes no sense, or there is a rollout buffer of another class.

    Example:
        >>> from reactor_sb3 import SyncTRPO
        >>> with SyncTRPO("MlpPolicy", "CartPole-v1", n_actors=4, n_steps=32, seed=0, workers=2) as model:
        ...     _ = model.learn(256)
        ...     model.num_timesteps
        256
    """

    default_log_name: ClassVar[str] = "TRPO"
    host: ClassVar[str] = "sb3-contrib"
    target_kl: float

    @keeps_arguments
    def __init__(
        self,
        policy: str | type[ActorCriticPolicy],
        env: gymnasium.Env[Any, Any] | str | Any,
        learning_rate: float | Schedule = 1e-3,
        n_steps: int | None = None,
        batch_size: int = 128,
        gamma: float = 0.99,
        cg_max_steps: int = 15,
        cg_damping: float = 0.1,
        line_search_shrinking_factor: float = 0.8,
        line_search_max_iter: int = 10,
        n_critic_updates: int = 10,
        gae_lambda: float = 0.95,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        rollout_buffer_class: type[RolloutBuffer] | None = None,
        rollout_buffer_kwargs: dict[str, Any] | None = None,
        normalize_advantage: bool = True,
        target_kl: float = 0.01,
        sub_sampling_factor: int = 1,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "cpu",
        _init_setup_model: bool = True,
        **options: Unpack[Options],
    ) -> None:
        self.check_buffer(RolloutBuffer, DictRolloutBuffer)
        self.construct(TRPO)
        self.check_settings()

    def check_settings(self) -> None:
        """Refuse what the constructor refuses."""
        super().check_settings()
        check_numbers({name: one for name, one in vars(self).items() if name in self.arguments and one is not None}, {}, ours=True)
        if not (self.target_kl and 0 < self.target_kl < math.inf):
            raise ValueError(f"target_kl must be a finite number above 0, got {self.target_kl!r}: so far the actor may step")

    def networks(self) -> dict[str, Network]:
        """Actor and critic: two parts of one policy, which share out its parameters."""
        policy: Any = self.policy
        actor, critic = shared_out(policy)
        return {
            "policy": Network(policy, policy.optimizer, excluding=critic, read=read_natural_actor),
            "critic": Network(policy, policy.optimizer, excluding=actor, read=read_values_of_states),
        }

    def losses(self) -> dict[str, Loss]:
        """The critic's. The actor has none: see :meth:`begin_passes`."""
        return {"critic": ValueLoss()}

    @property
    def n_epochs(self) -> int:  # type: ignore[override]
        """Passes over a round."""
        return self.n_critic_updates

    def begin_passes(self, batch: PPOBatch) -> None:
        """The actor's step along ``F^-1 g``: as far as the divergence stays below ``target_kl`` and the objective is better.

        Hooks of its parameters are called once, with the natural gradient.
        """
        rows = batch[self.permutation(len(batch))[:: self.sub_sampling_factor]]
        if self.normalize_advantage:
            rows.advantages = normalized(rows.advantages, len(rows), self.nets.kernels("policy"))
        flat = self.nets.flat("policy")
        actor: Any = self.nets.learned["policy"] if self.nets.compiled else WrittenActor(self.policy, flat)

        def product(direction: torch.Tensor) -> Any:
            return actor.product(direction) + self.cg_damping * direction

        objective, gradient = actor.begin(rows)
        guess = -1e-4 * torch.randn(len(gradient), generator=self.generator).to(self.device)
        flat.gradients.copy_(conjugate_gradient(product, gradient, guess, self.cg_max_steps))
        flat.call_hooks(self.nets.hooked("policy"))
        direction, before = flat.gradients.clone(), flat.data.clone()
        curvature = float(direction @ product(direction))
        longest = math.sqrt(2 * self.target_kl / curvature) if curvature > 0 else 0.0
        found, divergence, success = objective, 0.0, False
        for attempt in range(self.line_search_max_iter):
            flat.data.copy_(before - self.line_search_shrinking_factor**attempt * longest * direction)
            found, divergence = actor.measure()
            if success := divergence < self.target_kl and found > objective:
                break
        if not success:
            flat.data.copy_(before)
            found, divergence = objective, 0.0
        self._n_updates += 1
        said = {"policy_objective": found, "kl_divergence_loss": divergence, "is_line_search_success": float(success)}
        for name, value in said.items():
            self.logger.record(f"train/{name}", value)

    def minibatches(self, batch: PPOBatch, network: str = "critic") -> Iterator[Minibatch]:
        """A pass: all rows in a new order."""
        shuffled = batch[self.permutation(len(batch))]
        for begin in range(0, len(batch), self.batch_size):
            yield Minibatch(shuffled, slice(begin, min(begin + self.batch_size, len(batch))))

    def update(self, minibatch: Minibatch) -> Update:
        """A step of the critic."""
        found = yield from self.gradients(critic=minibatch)
        self.nets.step("critic")
        return found

    def pass_done(self) -> None:
        """Nothing: as sb3-contrib does, ``train/n_updates`` counts rounds."""
