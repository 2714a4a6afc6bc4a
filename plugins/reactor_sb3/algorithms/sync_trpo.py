"""``SyncTRPO``: trust region policy optimisation (Schulman et al. 2015), sb3-contrib's ``TRPO`` on all cores."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar, Unpack

import gymnasium
import torch
from sb3_contrib import TRPO
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.type_aliases import Schedule

from reactor_sb3.algorithms.actor_critic import ActorCriticTrainer, ValueLoss
from reactor_sb3.learned import read_natural_actor, read_values_of_states
from reactor_sb3.natural import WrittenActor, line_search, shared_out
from reactor_sb3.trainers.arguments import check_numbers
from reactor_sb3.trainers.learner import Minibatch, cut
from reactor_sb3.trainers.options import Options, keeps_arguments
from reactor_torch import Loss, Network, PPOBatch, Update, conjugate_gradient, normalized

__all__ = ["SyncTRPO"]


class SyncTRPO(ActorCriticTrainer, TRPO):
    """TRPO whose actors sample in parallel and whose results do not depend on how many cores do it.

    A round is a tick of what :class:`~reactor_sb3.SyncPPO` runs. The learner steps its actor along the natural gradient,
    as far as ``target_kl``, and makes ``n_critic_updates`` passes in which the critic learns alone, perhaps with gradient workers.
    Given the same round, order and first guess of the conjugate gradients, weights are sb3-contrib's but for rounding.

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
        policy, (actor, critic) = self.policy, shared_out(self.policy)
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
        """The actor's step along the natural gradient ``F^-1 g``, with which hooks of its parameters are called once."""
        rows, flat = batch[self.permutation(len(batch))[:: self.sub_sampling_factor]], self.nets.flat("policy")
        if self.normalize_advantage:
            rows.advantages = normalized(rows.advantages, len(rows), self.nets.kernels("policy"))
        actor: Any = self.nets.learned["policy"] if self.nets.compiled else WrittenActor(self.policy, flat)
        objective, gradient = actor.begin(rows)

        def product(direction: torch.Tensor) -> Any:
            return actor.product(direction) + self.cg_damping * direction

        guess = -1e-4 * torch.randn(len(gradient), generator=self.generator).to(self.device)
        flat.gradients.copy_(conjugate_gradient(product, gradient, guess, self.cg_max_steps))
        flat.call_hooks(self.nets.hooked("policy"))
        direction = flat.gradients.clone()  # products are computed there
        curvature = float(direction @ product(direction))
        longest = math.sqrt(2 * self.target_kl / curvature) if curvature > 0 else 0.0
        lengths = [longest * self.line_search_shrinking_factor**attempt for attempt in range(self.line_search_max_iter)]
        found, divergence, success = line_search(actor, flat, direction, lengths, objective, self.target_kl)
        self._n_updates += 1
        self.logger.record("train/policy_objective", found)
        self.logger.record("train/kl_divergence_loss", divergence)
        self.logger.record("train/is_line_search_success", float(success))

    def minibatches(self, batch: PPOBatch, network: str = "critic") -> Iterator[Minibatch]:
        """A pass: all rows in a new order."""
        yield from cut(batch[self.permutation(len(batch))], self.batch_size)

    def update(self, minibatch: Minibatch) -> Update:
        """A step of the critic."""
        found = yield from self.gradients(critic=minibatch)
        self.nets.step("critic")
        return found

    def pass_done(self) -> None:
        """Nothing: as sb3-contrib does, ``train/n_updates`` counts rounds."""
