"""``SyncSAC``: soft actor-critic, SB3's ``SAC`` as a reactor program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar, Unpack

import gymnasium
import numpy.typing as npt
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.type_aliases import Schedule
from stable_baselines3.sac.policies import SACPolicy

from reactor_sb3.acting.squashed import SquashedPolicy
from reactor_sb3.learning.entropy import EntropyCoefficient, FixedEntropy, LearnedEntropy
from reactor_sb3.learning.sac_learner import SACLearner
from reactor_sb3.trainers.options import SplitOptions, keeps_arguments
from reactor_sb3.training.continuous_control import ContinuousControl, standard_normal
from reactor_torch import SACBatch, Updates

__all__ = ["SyncSAC"]

Array = npt.NDArray[Any]


class SyncSAC(ContinuousControl, SAC):
    """Soft actor-critic whose actors sample in parallel and whose results do not depend on how many cores do it.

    One round is a tick of a reactor program: the parameters are broadcast, each of ``n_actors`` actors takes ``train_freq`` steps
    in its own environments, the learner stores all transitions in actor order and makes ``gradient_steps`` updates. ``workers``,
    ``executor`` and ``start_method`` only say how it is run, and never change a bit of the weights.

    Args:
        policy: As for SB3's ``SAC``, and so is every parameter that is not named here.
        env: As for :class:`~reactor_sb3.SyncDQN`.
        train_freq: Steps of each environment in a round, as an int or ``(n, "step")``.
        gradient_steps: As for :class:`~reactor_sb3.SyncDQN`: ``None`` for as much learning from each step as by SB3 with one
            environment, an update a step with the default ``train_freq``.
        action_noise: Of one environment. Each environment has its own, drawn from its actor's random stream, and begins it anew
            with each episode.
        use_sde: Has to be ``False``: the matrices of state-dependent noise are drawn anew within a round.
        device: As for :class:`~reactor_sb3.SyncDQN`: the processor by default.
        **options: ``split``, ``n_actors``, ``workers``, ``executor``, ``evaluate_every``, and others; see
            :class:`~reactor_sb3.RunOptions`.

    Raises:
        TypeError: If no environments like ``env`` can be made, or ``action_noise`` is none.
        AssertionError: If its actions are not a ``Box`` with finite bounds (SB3's own check).
        ValueError: If a number makes no sense, the replay buffer is smaller than a round or ``learning_starts``, or something
            is asked for that there is not: a device, episodic ``train_freq``, hindsight replay, state-dependent exploration; or
            two devices without ``split``.

    Example:
        >>> from reactor_sb3 import SyncSAC
        >>> with SyncSAC("MlpPolicy", "Pendulum-v1", n_actors=2, train_freq=16, gradient_steps=4, seed=0, workers=2) as model:
        ...     _ = model.learn(128)
        ...     model.num_timesteps, model.update_to_data
        (128, 0.125)
    """

    default_log_name: ClassVar[str] = "SAC"

    @keeps_arguments
    def __init__(
        self,
        policy: str | type[SACPolicy],
        env: gymnasium.Env[Any, Any] | str | Any,
        learning_rate: float | Schedule = 3e-4,
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
        ent_coef: str | float = "auto",
        target_update_interval: int = 1,
        target_entropy: str | float = "auto",
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        use_sde_at_warmup: bool = False,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "cpu",
        _init_setup_model: bool = True,
        **options: Unpack[SplitOptions],
    ) -> None:
        if use_sde:
            raise ValueError(
                "use_sde=True: the noise of an update's actions is drawn by the trainer, and state-dependent noise belongs to the "
                "policy; use SB3's SAC, with ReactorVecEnv"
            )
        self.construct(SAC)

    _learner: SACLearner

    # ------------------------------------------------------------------ what an off-policy trainer says

    def acting(self) -> tuple[torch.nn.Module, SquashedPolicy]:
        """The network that acts, and how actors act by it."""
        return SquashedPolicy.of(self.policy, SACPolicy, self.action_noise)

    def _learner_of(self, policy: SACPolicy) -> SACLearner:
        entropy: EntropyCoefficient = FixedEntropy(float(self.ent_coef_tensor)) if self.log_ent_coef is None else self._learned()
        return SACLearner(policy, entropy, self.split)

    def _learned(self) -> LearnedEntropy:
        assert self.log_ent_coef is not None and self.ent_coef_optimizer is not None
        return LearnedEntropy(self.log_ent_coef, self.ent_coef_optimizer, float(self.target_entropy))

    def _update_of(self, policy: SACPolicy) -> Callable[[], object]:
        return partial(SACLearner(policy, FixedEntropy(1.0), self.split).learn, [self.example()], self.tau)

    def _updates_of(self, batches: Iterator[SACBatch], before: int) -> Updates[dict[str, Array]]:
        entropy = self._learner.entropy
        if isinstance(entropy, LearnedEntropy):
            entropy.target = float(self.target_entropy)
        elif isinstance(entropy, FixedEntropy):
            entropy.coefficient = float(self.ent_coef_tensor)
        return self._learner.updates(batches, self.tau, self.target_update_interval)

    def critics_share(self) -> float:
        """By passes through networks: nine for the critics (next actions, targets, both ways), seven for the actor."""
        return 9 / (9 + 7)

    def _with_noise(self, transitions: dict[str, Any]) -> SACBatch:
        actions = transitions["actions"]
        return SACBatch(**transitions, noise=standard_normal(actions), next_noise=standard_normal(actions))
