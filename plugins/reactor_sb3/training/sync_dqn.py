"""``SyncDQN``: synchronised parallel Q-learning, SB3's ``DQN`` as a reactor program."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Literal, Unpack

import gymnasium
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.type_aliases import ReplayBufferSamples, Schedule
from stable_baselines3.common.utils import polyak_update
from stable_baselines3.dqn.policies import DQNPolicy

from reactor_sb3.learning.q_learner import QLearner
from reactor_sb3.trainers.options import OffPolicyOptions, keeps_arguments
from reactor_sb3.training.off_policy import OffPolicy
from reactor_sb3.training.q_learning import QLearning
from reactor_torch import DQNLoss, TransitionBatch, Updates

__all__ = ["SyncDQN"]


class SyncDQN(OffPolicy, QLearning, DQN):
    """Deep Q-learning whose actors sample in parallel and whose results do not depend on how many cores do it.

    One round is a tick of a reactor program: the parameters are broadcast, each of ``n_actors`` actors takes ``rollout_steps``
    epsilon-greedy steps in its own environments, the learner stores all transitions in actor order and makes ``gradient_steps``
    updates (Kwok, Lohstroh, Lee 2023, "Efficient Parallel Reinforcement Learning Framework using the Reactor Model"). ``workers``,
    ``executor`` and ``start_method`` only say how it is run, and never change a bit of the weights.

    Args:
        policy: As for SB3's ``DQN``, and so is every parameter that is not named here.
        env: An id, a function that makes one environment, an environment, or a live vector environment of SB3's, as
            ``make_vec_env`` gives it, ``VecNormalize`` included. What is live is copied; see ``n_actors``.
        train_freq: Steps of each environment in a round, as an int or ``(n, "step")``.
        gradient_steps: Updates in a round; -1 for as many as transitions of a round. ``None``: one for each environment, so that
            as much is learned from each step as by SB3 with one environment. A number means what it means in SB3 with that many
            environments, which share its updates: ``update_to_data``, in ``repr`` and in the log, says how many there are for
            each step of one.
        target_update_interval: Steps of all environments between two updates of the target network. As in SB3, all those of a
            round come before its gradient steps: with ``tau`` below 1, a round that is several intervals long moves it as often.
        device: Where the learner computes: the processor by default, where SB3 takes a GPU if there is one (``"auto"``).
        double_q: Whether the online network chooses the action that the target network values (van Hasselt et al. 2016).
        loss: ``"huber"``, as SB3, or ``"mse"``.
        epsilon_spread: How much greedier the last actor is than the first one: actor ``i`` of ``n`` explores with ``epsilon ** (1 +
            epsilon_spread * i / (n - 1))`` (Horgan et al. 2018; there 7).
        **options: ``n_actors``, ``rollout_steps``, ``workers``, ``executor``, ``evaluate_every``, and others;
            see :class:`~reactor_sb3.RunOptions`.

    Raises:
        TypeError: If no environments like ``env`` can be made, or there is an argument ``n_envs``.
        AssertionError: If its actions are not discrete (SB3's own check).
        ValueError: If a number makes no sense, the replay buffer is smaller than a batch or a round, or something is asked for that
            rounds of fixed length cannot give: episodic ``train_freq``, hindsight replay.

    Warns:
        UserWarning: If there are less than a quarter as many updates for each step as SB3 has by default, with the number to give.

    Example:
        >>> from reactor_sb3 import SyncDQN
        >>> with SyncDQN("MlpPolicy", "CartPole-v1", n_actors=4, rollout_steps=16, seed=0, workers=2) as model:
        ...     _ = model.learn(256)
        ...     model.num_timesteps
        256
    """

    default_log_name: ClassVar[str] = "DQN"
    usual_train_freq: ClassVar[int] = 4
    _learner: QLearner

    @keeps_arguments
    def __init__(
        self,
        policy: str | type[DQNPolicy],
        env: gymnasium.Env[Any, Any] | str | Any,
        learning_rate: float | Schedule = 1e-4,
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
        exploration_fraction: float = 0.1,
        exploration_initial_eps: float = 1.0,
        exploration_final_eps: float = 0.05,
        max_grad_norm: float = 10,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "cpu",
        _init_setup_model: bool = True,
        *,
        double_q: bool = False,
        loss: Literal["huber", "mse"] = "huber",
        epsilon_spread: float = 0.0,
        **options: Unpack[OffPolicyOptions],
    ) -> None:
        if buffer_size < batch_size:
            raise ValueError(f"buffer_size={buffer_size} is smaller than a batch of {batch_size}; make the replay buffer larger")
        if loss not in ("huber", "mse"):
            raise ValueError(f'loss={loss!r}: choose "huber" or "mse"')
        self.double_q, self.loss = bool(double_q), loss
        self.construct(DQN)

    # ------------------------------------------------------------------ what an off-policy trainer says

    def _rate_at(self, timesteps: int) -> float:
        return self.exploration_schedule(1.0 - timesteps / float(self._total_timesteps))

    def _round_stored(self) -> None:
        """Update the target network as often as it is time."""
        calls = self._n_calls
        self._n_calls += self.rollout_steps
        interval = max(self.target_update_interval // self.n_envs, 1)
        crossings = self._n_calls // interval - calls // interval
        for _ in range(crossings if self.tau < 1 else min(crossings, 1)):  # a second copy of the same would change nothing
            self._learner.update_target(self.tau)
        if crossings:
            polyak_update(self.batch_norm_stats, self.batch_norm_stats_target, 1.0)

    def _training(self, gradient_steps: int, sample: Callable[[], ReplayBufferSamples]) -> Updates[None]:
        policy, learner = self.policy, self._learner
        self._update_learning_rate(policy.optimizer)
        learner.loss.double_q, learner.loss.kind = self.double_q, self.loss
        learner.begin_round(self.max_grad_norm)
        losses = yield from learner.updates(self._batch_of(sample()) for _ in range(gradient_steps))
        self._learner.end_round()
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/loss", float(losses.mean()))

    def _learner_of(self, policy: DQNPolicy) -> QLearner:
        loss = partial(DQNLoss, double_q=self.double_q, kind=self.loss)
        return QLearner(policy, loss, self.max_grad_norm, policy.q_net_target)

    def _update_of(self, policy: DQNPolicy) -> Callable[[], object]:
        return partial(self._learner_of(policy).learn, [self.example()])

    def _batch_of(self, samples: ReplayBufferSamples) -> TransitionBatch:
        transitions = self._transitions(samples)
        return TransitionBatch(**transitions | {"actions": transitions["actions"].long()})

    def _present_rate(self) -> float:
        return self.exploration_schedule(self._current_progress_remaining)

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "q_net", "q_net_target"]
