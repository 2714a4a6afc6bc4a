"""``SyncDQN``: synchronised parallel Q-learning, SB3's ``DQN`` as a reactor program."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Literal

import gymnasium
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.type_aliases import ReplayBufferSamples, Schedule
from stable_baselines3.common.utils import polyak_update
from stable_baselines3.dqn.policies import DQNPolicy

from reactor_rl.plugin import ExecutorName
from reactor_sb3.learning.q_learner import QLearner
from reactor_sb3.training.arguments import keeps_arguments
from reactor_sb3.training.off_policy import OffPolicy
from reactor_sb3.training.q_learning import QLearning
from reactor_torch import DQNLoss, TransitionBatch, Updates

__all__ = ["SyncDQN"]


class SyncDQN(OffPolicy, QLearning, DQN):
    """Deep Q-learning whose actors sample in parallel and whose results do not depend on how many cores do it.

    One round is a tick of a reactor program: the parameters are broadcast, each of ``n_actors`` actors takes ``rollout_steps``
    epsilon-greedy steps in its own environments, the learner stores all transitions in actor order and makes ``gradient_steps``
    updates (Kwok, Lohstroh, Lee 2023, "Efficient Parallel Reinforcement Learning Framework using the Reactor Model"). Everything
    up to ``learner_threads`` is part of the algorithm; ``workers``, ``executor`` and ``start_method`` only say how it is run, and
    never change a bit of the weights.

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
        rollout_steps: The paper's name for ``train_freq``; give one of them.
        n_actors: How many actors there are, 1 by default: with more, transitions come from older parameters, and less is learned
            from each. With a vector environment as ``env``, ``n_actors * envs_per_actor`` is the number of its environments, and
            by default each has an actor.
        envs_per_actor: Environments of each actor, 1 by default; its network sees them as one batch.
        double_q: Whether the online network chooses the action that the target network values (van Hasselt et al. 2016).
        loss: ``"huber"``, as SB3, or ``"mse"``.
        epsilon_spread: How much greedier the last actor is than the first one: actor ``i`` of ``n`` explores with ``epsilon ** (1 +
            epsilon_spread * i / (n - 1))`` (Horgan et al. 2018; there 7).
        pipeline: 0: the actors sample a round, the learner learns from it. 1: while they sample the next one.
        n_learners: Slices that each minibatch is cut into. The gradients of each are computed by a reactor of its own, on as many
            workers as there are, and added up in order: learning itself is parallel. Another number gives other last bits.
        learner_threads: Torch's threads in the learner, and in each of its slices.
        evaluate_every: Rounds between the beginnings of two evaluations on a snapshot of the parameters, which go on
            beside the training; their results are in ``evaluations`` and the log. ``None``: no evaluations.
        evaluate_episodes: Greedy episodes of an evaluation.
        evaluate_steps: Most steps of an evaluation in one round; by default as many as an actor takes.
        evaluate_env: Where it takes place, if not in ``env``.
        watch: Shows a policy at play while it is trained, with a snapshot of the parameters: ``"human"`` in a window,
            ``"run.mp4"`` or ``"run.gif"`` (any path) in a film for each showing, ``run-TIMESTEPS.mp4``, ``"tensorboard"`` in the
            trainer's log. It changes no bit of the training. Films need the extra ``watch``.
        watch_every: Rounds between the beginnings of two showings, at least.
        watch_episodes: Episodes of a showing, in which actions are not random.
        watch_steps: Most steps of a showing in one round; by default one for every 16 that an actor takes.
        watch_env: Where it takes place, if not in ``env``: for an ``env`` that cannot be told its ``render_mode``.
        workers: Number of workers, the calling thread included; ``None`` for the cores that this process may use.
        executor: ``"inline"``, ``"threads"``, ``"processes"``, or ``"auto"``, which measures throw-away copies of an actor and of
            the learner, chooses, and places reactors so that all workers end together. ``"ray"`` is for several machines.
        nodes: With ``"ray"``: how many machines of a Ray cluster, this one included, or a ``reactor_ray.RayNodes``; ``None`` for
            all of them. The actors are shared out among them, and ``workers`` is the number of workers on each.
        start_method: How helper processes start; see :class:`~reactor_sb3.ReactorVecEnv`.
        restarts: How often worker processes that die are replaced, with the same weights; likewise.
        round_timeout: Seconds that the learner waits for a worker process in a round at most, a whole rollout and what goes on
            beside it. After that it is a :class:`reactor_rl.WorkerHungError` that names the worker's reactors, or, with
            ``restarts``, the worker is replaced. Actors in the calling process are not timed.

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
        rollout_steps: int | None = None,
        n_actors: int | None = None,
        envs_per_actor: int | None = None,
        double_q: bool = False,
        loss: Literal["huber", "mse"] = "huber",
        epsilon_spread: float = 0.0,
        pipeline: int = 0,
        n_learners: int = 1,
        learner_threads: int = 1,
        evaluate_every: int | None = None,
        evaluate_episodes: int = 20,
        evaluate_steps: int | None = None,
        evaluate_env: Any = None,
        watch: str | os.PathLike[str] | None = None,
        watch_every: int = 100,
        watch_episodes: int = 1,
        watch_steps: int | None = None,
        watch_env: Any = None,
        workers: int | None = None,
        executor: ExecutorName = "auto",
        nodes: Any = None,
        start_method: str | None = None,
        restarts: int = 0,
        round_timeout: float | None = None,
    ) -> None:
        if buffer_size < batch_size:
            raise ValueError(f"buffer_size={buffer_size} is smaller than a batch of {batch_size}; make the replay buffer larger")
        if loss not in ("huber", "mse"):
            raise ValueError(f'loss={loss!r}: choose "huber" or "mse"')
        self._set_parallelism(env)
        self.double_q, self.loss = bool(double_q), loss
        spare: Any = self._spare(env)  # SB3 takes None too, for load()
        updates: Any = gradient_steps
        super().__init__(
            policy, spare, learning_rate, buffer_size, learning_starts, batch_size, tau, gamma, self._round_length(),
            updates,
            replay_buffer_class, replay_buffer_kwargs, optimize_memory_usage, n_steps, target_update_interval,
            exploration_fraction, exploration_initial_eps, exploration_final_eps, max_grad_norm, stats_window_size, tensorboard_log,
            policy_kwargs, verbose, seed, device, _init_setup_model,
        )  # fmt: skip

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
