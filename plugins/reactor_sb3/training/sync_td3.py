"""``SyncTD3``: twin delayed deterministic policy gradients, SB3's ``TD3`` as a reactor program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar, Unpack

import gymnasium
import numpy.typing as npt
import torch
from stable_baselines3 import TD3
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.type_aliases import Schedule
from stable_baselines3.td3.policies import TD3Policy

from reactor_sb3.acting.squashed import SquashedPolicy
from reactor_sb3.learning.td3_learner import TD3Learner
from reactor_sb3.trainers.options import SplitOptions, keeps_arguments
from reactor_sb3.training.continuous_control import ContinuousControl
from reactor_torch import TD3Batch, Updates

__all__ = ["SyncTD3"]

Array = npt.NDArray[Any]


class SyncTD3(ContinuousControl, TD3):
    """Twin delayed DDPG whose actors sample in parallel and whose results do not depend on how many cores do it.

    One round is a tick of a reactor program: the parameters are broadcast, each of ``n_actors`` actors takes ``train_freq`` steps
    in its own environments, the learner stores all transitions in actor order and makes ``gradient_steps`` updates. ``workers``,
    ``executor`` and ``start_method`` only say how it is run, and never change a bit of the weights.

    Args:
        policy: As for SB3's ``TD3``, and so is every parameter that is not named here.
        env: As for :class:`~reactor_sb3.SyncDQN`.
        train_freq, gradient_steps, action_noise, device: As for :class:`~reactor_sb3.SyncSAC`.
        **options: As for :class:`~reactor_sb3.SyncSAC`.

    Raises:
        TypeError: If no environments like ``env`` can be made, or ``action_noise`` is none.
        AssertionError: If its actions are not a ``Box`` with finite bounds (SB3's own check).
        ValueError: If a number makes no sense, the replay buffer is smaller than a round or ``learning_starts``, or something
            is asked for that there is not: a device, episodic ``train_freq``, hindsight replay; or two devices without ``split``.

    Example:
        >>> from reactor_sb3 import SyncTD3
        >>> with SyncTD3("MlpPolicy", "Pendulum-v1", n_actors=2, train_freq=16, gradient_steps=4, seed=0, workers=2) as model:
        ...     _ = model.learn(128)
        ...     model.num_timesteps, model.update_to_data
        (128, 0.125)
    """

    default_log_name: ClassVar[str] = "TD3"

    @keeps_arguments
    def __init__(
        self,
        policy: str | type[TD3Policy],
        env: gymnasium.Env[Any, Any] | str | Any,
        learning_rate: float | Schedule = 1e-3,
        buffer_size: int = 1_000_000,
        learning_starts: int = 100,
        batch_size: int = 256,
        tau: float = 0.005,
        gamma: float = 0.99,
        train_freq: int | tuple[int, str] = 1,
        gradient_steps: int | None = None,
        action_noise: ActionNoise | None = None,
        replay_buffer_class: type[ReplayBuffer] | None = None,
        replay_buffer_kwargs: dict[str, Any] | None = None,
        optimize_memory_usage: bool = False,
        n_steps: int = 1,
        policy_delay: int = 2,
        target_policy_noise: float = 0.2,
        target_noise_clip: float = 0.5,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "cpu",
        _init_setup_model: bool = True,
        **options: Unpack[SplitOptions],
    ) -> None:
        self.construct(TD3)

    _learner: TD3Learner

    # ------------------------------------------------------------------ what an off-policy trainer says

    def acting(self) -> tuple[torch.nn.Module, SquashedPolicy]:
        """The network that acts, and how actors act by it."""
        return SquashedPolicy.of(self.policy, TD3Policy, self.action_noise)

    def _learner_of(self, policy: TD3Policy) -> TD3Learner:
        return TD3Learner(policy, self.split)

    def _update_of(self, policy: TD3Policy) -> Callable[[], object]:
        delay = self.policy_delay
        return partial(self._learner_of(policy).learn, [self.example()], self.tau, delay, delay - 1)

    def _updates_of(self, batches: Iterator[TD3Batch], before: int) -> Updates[dict[str, Array]]:
        return self._learner.updates(batches, self.tau, self.policy_delay, before)

    def critics_share(self) -> float:
        """By passes through networks: nine for the critics (next actions, targets, both ways), five for the actor now and then."""
        return 9 / (9 + 5 / self.policy_delay)

    def _with_noise(self, transitions: dict[str, Any]) -> TD3Batch:
        actions, clip = transitions["actions"], self.target_noise_clip
        noise = torch.empty(actions.shape).normal_(0, self.target_policy_noise).clamp_(-clip, clip)
        return TD3Batch(**transitions, next_noise=noise.to(actions.device))
