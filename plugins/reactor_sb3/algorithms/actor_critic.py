"""Every trainer of a policy that is an actor and a critic, with SB3's rollout buffer beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.type_aliases import MaybeCallback
from stable_baselines3.common.utils import explained_variance
from torch.nn.functional import mse_loss

from reactor_sb3.acting.behaviours import Behaviour, OnPolicy
from reactor_sb3.learned import read_actor_critic
from reactor_sb3.policies import read_policy
from reactor_sb3.trainers.on_policy import OnPolicyTrainer, Rollouts, usual_steps
from reactor_torch import Loss, Network, PPOBatch, q_loss

__all__ = ["ActorCriticTrainer", "ValueLoss"]


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


class ActorCriticTrainer(OnPolicyTrainer):
    """One network that acts and values, learned from rounds; an algorithm adds its loss and its update.

    Attributes:
        policy_base: What policies derive from.
    """

    log_unit: ClassVar[str] = "iterations"
    policy_base: ClassVar[type[Any]] = ActorCriticPolicy
    _read: ClassVar[Any] = staticmethod(read_actor_critic)
    # the attributes of SB3's algorithms
    batch_size: int
    gamma: float
    gae_lambda: float
    ent_coef: float
    vf_coef: float
    max_grad_norm: float
    normalize_advantage: bool
    rollout_buffer: Any

    def _for_host(self) -> dict[str, Any]:
        n_steps, n_envs = self.arguments["n_steps"], self.n_actors * self.envs_per_actor
        usual = usual_steps(n_envs, self.arguments["batch_size"]) if n_steps is None else n_steps
        return {**super()._for_host(), "n_steps": usual}

    def learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int | None = 1,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """As every trainer's; but for ``log_interval``, which here counts rounds, as SB3's do."""
        return super().learn(total_timesteps, callback, log_interval, tb_log_name, reset_num_timesteps, progress_bar)

    def _setup_policy(self) -> None:
        if not issubclass(self.policy_class, self.policy_base):
            raise TypeError(f"{type(self).__name__} needs a {self.policy_base.__name__}, got {self.policy_class.__name__}")
        super()._setup_policy()

    def networks(self) -> dict[str, Network]:
        """The policy."""
        policy: Any = self.policy
        return {"policy": Network(policy, policy.optimizer, self.max_grad_norm, read=self._read)}

    def acting(self) -> tuple[torch.nn.Module, Behaviour]:
        """The policy, from whose distributions actions are drawn."""
        source = read_policy(self.policy, self.sde_sample_freq)
        return source.module, OnPolicy(source.policy, self.gamma, self.gae_lambda)

    @property
    def minibatch_rows(self) -> int:
        return self.batch_size

    @property
    def update_rows(self) -> int:
        """Transitions of a round: as SB3 does, ``train/n_updates`` counts passes over it."""
        return self.n_steps * self.n_envs

    def further_settings(self) -> tuple[Any, ...]:
        """Those of the rollout buffer: in SB3 it is the one that discounts."""
        return tuple(getattr(vars(self).get("rollout_buffer"), name, None) for name in ("gamma", "gae_lambda"))

    def check_settings(self) -> None:
        """Take over discounts of model or rollout buffer, whichever somebody has changed."""
        super().check_settings()
        if (buffer := vars(self).get("rollout_buffer")) is None:
            return
        if not isinstance(buffer, RolloutBuffer) or buffer.n_envs != self.n_envs:
            raise ValueError(f"rollout_buffer must be a RolloutBuffer for {self.n_envs} environments, got {buffer!r}")
        buffer.buffer_size = self.n_steps
        for name in ("gamma", "gae_lambda"):
            own, before = getattr(self, name), self.session.discounts.get(name)
            self.session.discounts[name] = now = own if own != before else getattr(buffer, name)
            setattr(self, name, now)
            setattr(buffer, name, now)

    def store(self, rollouts: Rollouts) -> None:
        """Keep a round in SB3's rollout buffer."""
        rollouts.fill(self.rollout_buffer)

    def batch(self, rollouts: Rollouts) -> PPOBatch:
        """A whole round, in the order of SB3's rollout buffer."""
        rows = rollouts.rows
        actions, advantages, values = rollouts.actions(), rows("advantages"), rows("values")
        actions = actions.flatten() if isinstance(self.action_space, spaces.Discrete) else actions.flatten(1).float()
        return PPOBatch(self.seen(rollouts.observations()), actions, advantages, advantages + values, rows("log_probs"), values)

    def pass_done(self) -> None:
        """Count passes, as SB3 does."""
        self._n_updates += 1

    def log_round(self, passes: list[list[dict[str, float]]]) -> None:
        """Log means over the round, how well values explain returns, and how far actions are spread."""
        super().log_round(passes)
        buffer = self.rollout_buffer
        self.logger.record("train/explained_variance", explained_variance(buffer.values.flatten(), buffer.returns.flatten()))
        if (log_std := getattr(self.policy, "log_std", None)) is not None:
            self.logger.record("train/std", float(log_std.detach().exp().mean()))
