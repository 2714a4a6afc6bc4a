"""``SyncA2C``: advantage actor-critic (Mnih et al. 2016, without the asynchrony), SB3's ``A2C`` on all cores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, Unpack

import gymnasium
import torch
from stable_baselines3 import A2C
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.type_aliases import MaybeCallback, Schedule
from torch.nn.functional import mse_loss

from reactor_sb3.algorithms.actor_critic import ActorCriticTrainer
from reactor_sb3.trainers.options import Options, keeps_arguments
from reactor_torch import Loss, PPOBatch, Update, normalized, policy_gradient_loss

__all__ = ["A2CLoss", "SyncA2C"]


@dataclass(frozen=True)
class A2CLoss(Loss):
    """Policy gradient, value loss and entropy; statistics have the names that SB3 logs them by.

    Attributes:
        ent_coef: Weight of the entropy.
        vf_coef: Weight of the value loss.
    """

    ent_coef: float
    vf_coef: float
    learns, statistics = "policy", ("loss", "policy_loss", "value_loss", "entropy_loss")
    fields = ("observations", "advantages", "returns")

    def __call__(self, nets: Mapping[str, Any], batch: PPOBatch) -> tuple[torch.Tensor, ...]:
        """The loss, and its parts."""
        values, log_prob, entropy = nets["policy"].evaluate_actions(batch.observations, batch.actions)
        policy_loss = -(batch.advantages * log_prob).mean()
        value_loss, entropy_loss = mse_loss(values.flatten(), batch.returns), (log_prob if entropy is None else -entropy).mean()
        return policy_loss + self.ent_coef * entropy_loss + self.vf_coef * value_loss, policy_loss, value_loss, entropy_loss

    def fast(self, nets: Mapping[str, Any], batch: PPOBatch, share: float) -> tuple[float, ...]:
        """The same by the extension."""
        said = nets["policy"].evaluate(batch.observations, batch.actions)
        statistics, by_values, by_log_prob = policy_gradient_loss(said, batch, share, self.ent_coef, self.vf_coef)
        nets["policy"].backward(by_values, by_log_prob, -self.ent_coef * share)
        return statistics


class SyncA2C(ActorCriticTrainer, A2C):
    """A2C whose actors sample in parallel and whose results do not depend on how many cores do it.

    One round is a tick of the reactor program that :class:`~reactor_sb3.SyncPPO` runs too: the parameters are broadcast, each of
    ``n_actors`` actors takes ``n_steps`` steps in its own environments and computes values and advantages of what it has seen, and
    the learner makes one update from all of it, by SB3's loss. Given the same rollout, the weights are SB3's but for rounding.
    ``workers``, ``executor`` and ``start_method`` never change a bit of them. With ``pipeline=1`` actions were drawn by the policy
    before the last update, which nothing corrects, as in the paper.

    Args:
        policy: As for SB3's ``A2C``, and so is every parameter that is not named here.
        env: As for :class:`~reactor_sb3.SyncDQN`.
        n_steps: Steps of each environment in a round, however many environments there are, as in SB3.
        rollout_buffer_class, device: As for :class:`~reactor_sb3.SyncPPO`.
        **options: As for :class:`~reactor_sb3.SyncPPO`; but as in SB3 there is one environment unless you ask for more. Each one
            more makes a larger batch, so fewer updates of as many steps: training is faster, and less is learned from each step.
            A round is short, so environments of one actor (``envs_per_actor=8``) take less time than as many actors
            (``n_actors=8``), unless their steps are slow.

    Raises:
        TypeError: If no environments like ``env`` can be made, or the policy is not an ``ActorCriticPolicy``.
        AssertionError: If SB3 has no distribution of its actions.
        ValueError: If a number makes no sense, or there is a rollout buffer of another class.

    Example:
        >>> from reactor_sb3 import SyncA2C
        >>> with SyncA2C("MlpPolicy", "CartPole-v1", n_actors=4, seed=0, workers=2) as model:
        ...     _ = model.learn(200)
        ...     model.num_timesteps, model.n_updates
        (200, 10)
    """

    default_log_name: ClassVar[str] = "A2C"
    usual_actors: ClassVar[int] = 1
    few_steps: ClassVar[bool] = True
    n_epochs = 1

    @keeps_arguments
    def __init__(
        self,
        policy: str | type[ActorCriticPolicy],
        env: gymnasium.Env[Any, Any] | str | Any,
        learning_rate: float | Schedule = 7e-4,
        n_steps: int = 5,
        gamma: float = 0.99,
        gae_lambda: float = 1.0,
        ent_coef: float = 0.0,
        vf_coef: float = 0.5,
        max_grad_norm: float = 0.5,
        rms_prop_eps: float = 1e-5,
        use_rms_prop: bool = True,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        rollout_buffer_class: type[RolloutBuffer] | None = None,
        rollout_buffer_kwargs: dict[str, Any] | None = None,
        normalize_advantage: bool = False,
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
        self.construct(A2C)

    def learn(
        self, total_timesteps: int, callback: MaybeCallback = None, log_interval: int | None = 100, tb_log_name: str | None = None,
        reset_num_timesteps: bool = True, progress_bar: bool = False,
    ) -> Self:  # fmt: skip
        """As every trainer's; but for ``log_interval``, which here counts rounds, as SB3's ``A2C`` does."""
        return super().learn(total_timesteps, callback, log_interval, tb_log_name, reset_num_timesteps, progress_bar)

    def losses(self) -> dict[str, Loss]:
        """The loss."""
        return {"policy": A2CLoss(self.ent_coef, self.vf_coef)}

    @property
    def minibatch_rows(self) -> int:
        """All of a round."""
        return self.update_rows

    def minibatches(self, batch: PPOBatch) -> Iterator[PPOBatch]:
        """The whole round at once."""
        if self.normalize_advantage:
            batch.advantages = normalized(batch.advantages, len(batch), self.nets.kernels("policy"))
        yield batch

    def update(self, batch: PPOBatch) -> Update:
        """A step along the gradients of the whole round."""
        return self.descend(policy=batch)

    def log_round(self, passes: list[list[dict[str, float]]]) -> None:
        """Log what SB3 does: the parts of the loss, and not their sum."""
        ((found,),) = passes
        super().log_round([[{name: value for name, value in found.items() if name != "loss"}]])
