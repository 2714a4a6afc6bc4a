"""``SyncQRDQN``: Q-learning of quantiles (Dabney et al. 2018), sb3-contrib's ``QRDQN`` on all cores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Unpack

import gymnasium
import torch
from sb3_contrib import QRDQN
from sb3_contrib.common.utils import quantile_huber_loss
from sb3_contrib.qrdqn.policies import QRDQNPolicy
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.type_aliases import Schedule

from reactor_sb3.algorithms.sync_dqn import QLearningTrainer
from reactor_sb3.learned import read_quantile_net
from reactor_sb3.trainers.options import Options, keeps_arguments
from reactor_torch import Loss, TransitionBatch, quantile_loss, quantile_targets

__all__ = ["QuantileLoss", "SyncQRDQN"]


@dataclass(frozen=True)
class QuantileLoss(Loss):
    """Quantile regression of what the actions taken bring, on what a target network says of the best next action."""

    learns, reads, statistics = "quantile_net", ("quantile_net_target",), ("loss",)

    def __call__(self, nets: Mapping[str, Any], batch: TransitionBatch) -> tuple[torch.Tensor, ...]:
        """The loss; networks give ``(rows, quantiles, actions)``."""
        with torch.no_grad():
            following = nets["quantile_net_target"](batch.next_observations)
            best = following.mean(1, keepdim=True).argmax(2, keepdim=True).expand(-1, following.shape[1], 1)
            returns = batch.rewards + (1 - batch.dones) * batch.discounts * following.gather(2, best).squeeze(2)
        quantiles = nets["quantile_net"](batch.observations)
        taken = batch.actions[..., None].expand(-1, quantiles.shape[1], 1)
        return (quantile_huber_loss(quantiles.gather(2, taken).squeeze(2), returns, sum_over_quantiles=True),)

    def fast(self, nets: Mapping[str, Any], batch: TransitionBatch, share: float) -> tuple[float, ...]:
        """The same by the extension."""
        following = nets["quantile_net_target"].forward(batch.next_observations)
        means = torch.from_numpy(following.numpy().mean(1))  # by numpy, whose sums are the same on any processor
        returns = quantile_targets(batch, following.gather(2, _places(means.argmax(1), following)).squeeze(2))
        quantiles = nets["quantile_net"].forward(batch.observations)
        taken = _places(batch.actions, quantiles)
        loss, by_taken = quantile_loss(quantiles.gather(2, taken).squeeze(2)[None], returns, share / returns.shape[1])
        nets["quantile_net"].backward(torch.zeros_like(quantiles).scatter_(2, taken, by_taken[0, :, :, None]))
        return (loss,)


def _places(actions: torch.Tensor, quantiles: torch.Tensor) -> torch.Tensor:
    """Where the quantiles of one action in each row are, ``(rows, n, 1)``, of ``(rows, n, actions)``."""
    return actions.view(-1, 1, 1).expand(-1, quantiles.shape[1], 1)


class SyncQRDQN(QLearningTrainer, QRDQN):
    """Q-learning of quantiles whose actors sample in parallel and whose results do not depend on how many cores do it.

    One round is a tick of the reactor program that :class:`~reactor_sb3.SyncDQN` runs too.

    Args:
        policy: As for sb3-contrib's ``QRDQN``, and so is every parameter that is not named here.
        env, train_freq, gradient_steps, target_update_interval, device, epsilon_spread: As for :class:`~reactor_sb3.SyncDQN`.
        **options: ``n_actors``, ``workers``, ``executor``, ``evaluate_every``, and others;
            see :class:`~reactor_sb3.RunOptions`.

    Raises:
        TypeError, AssertionError, ValueError: As by :class:`~reactor_sb3.SyncDQN`.

    Example:
        >>> from reactor_sb3 import SyncQRDQN
        >>> with SyncQRDQN("MlpPolicy", "CartPole-v1", n_actors=4, train_freq=16, seed=0, workers=2) as model:
        ...     _ = model.learn(256)
        ...     model.num_timesteps
        256
    """

    default_log_name: ClassVar[str] = "QRDQN"
    host: ClassVar[str] = "sb3-contrib"
    learned: ClassVar[str] = "quantile_net"
    _read: ClassVar[Any] = staticmethod(read_quantile_net)

    @keeps_arguments
    def __init__(
        self,
        policy: str | type[QRDQNPolicy],
        env: gymnasium.Env[Any, Any] | str | Any,
        learning_rate: float | Schedule = 5e-5,
        buffer_size: int = 1_000_000,
        learning_starts: int = 100,
        batch_size: int = 32,
        tau: float = 1.0,
        gamma: float = 0.99,
        train_freq: int | tuple[int, str] = 4,
        gradient_steps: int | None = None,
        replay_buffer_class: type[ReplayBuffer] | None = None,
        replay_buffer_kwargs: dict[str, Any] | None = None,
        optimize_memory_usage: bool = False,
        n_steps: int = 1,
        target_update_interval: int = 10_000,
        exploration_fraction: float = 0.005,
        exploration_initial_eps: float = 1.0,
        exploration_final_eps: float = 0.01,
        max_grad_norm: float | None = None,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "cpu",
        _init_setup_model: bool = True,
        *,
        epsilon_spread: float = 0.0,
        **options: Unpack[Options],
    ) -> None:
        self.epsilon_spread = float(epsilon_spread)
        self.construct(QRDQN)

    def losses(self) -> dict[str, Loss]:
        """The one."""
        return {"quantile_net": QuantileLoss()}
