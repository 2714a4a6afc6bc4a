"""``SyncDQN``: synchronised parallel Q-learning, SB3's ``DQN`` as a reactor program."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Literal

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.type_aliases import ReplayBufferSamples, Schedule, TrainFreq, TrainFrequencyUnit
from stable_baselines3.common.utils import polyak_update
from stable_baselines3.dqn.policies import DQNPolicy
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from reactor_gymnasium.plugin import checked_number
from reactor_rl.plugin import ExecutorName, one_numeric_thread
from reactor_sb3.acting.actor import StepInfo
from reactor_sb3.learning.q_learner import QLearner
from reactor_sb3.learning.replay import BLOCKWISE, store
from reactor_sb3.learning.replay_sampler import ReplaySampler
from reactor_sb3.streams import Purpose, drawing_from, stream
from reactor_sb3.training.arguments import keeps_arguments
from reactor_sb3.training.q_learning import QLearning
from reactor_torch import DQNBatch, DQNLoss, Updates, carry_out, torch_stream

__all__ = ["SyncDQN"]

Array = npt.NDArray[Any]


class SyncDQN(QLearning, DQN):
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
        gradient_steps: Updates in a round; -1 for as many as transitions of a round.
        target_update_interval: Steps of all environments between two updates of the target network. As in SB3, all those of a
            round come before its gradient steps: with ``tau`` below 1, a round that is several intervals long moves it as often.
        rollout_steps: The paper's name for ``train_freq``; give one of them.
        n_actors: How many actors there are, 8 by default. With a vector environment as ``env``, ``n_actors * envs_per_actor`` is
            the number of its environments, and by default each has an actor.
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
        workers: Number of workers, the calling thread included; ``None`` for the cores that this process may use.
        executor: ``"inline"``, ``"threads"``, ``"processes"``, or ``"auto"``, which measures throw-away copies of an actor and of
            the learner, chooses, and places reactors so that all workers end together.
        start_method: How helper processes start; see :class:`~reactor_sb3.ReactorVecEnv`.

    Raises:
        TypeError: If no environments like ``env`` can be made.
        AssertionError: If its actions are not discrete (SB3's own check).
        ValueError: If a number makes no sense, the replay buffer is smaller than a batch or a round, or something is asked for that
            rounds of fixed length cannot give: episodic ``train_freq``, hindsight replay.

    Example:
        >>> from reactor_sb3 import SyncDQN
        >>> with SyncDQN("MlpPolicy", "CartPole-v1", n_actors=4, rollout_steps=16, seed=0, workers=2) as model:
        ...     _ = model.learn(256)
        ...     model.num_timesteps
        256
    """

    default_log_name: ClassVar[str] = "DQN"

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
        gradient_steps: int = 1,
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
        workers: int | None = None,
        executor: ExecutorName = "auto",
        start_method: str | None = None,
    ) -> None:
        if rollout_steps is not None:
            checked_number("rollout_steps", rollout_steps, 1)
            if train_freq not in (4, rollout_steps, (rollout_steps, "step")):
                raise ValueError(
                    f"rollout_steps={rollout_steps} and train_freq={train_freq} are two names for one number; give one"
                )
            train_freq = int(rollout_steps)
        checked_number("batch_size", batch_size, 1)
        if buffer_size < batch_size:
            raise ValueError(f"buffer_size={buffer_size} is smaller than a batch of {batch_size}; make the replay buffer larger")
        if loss not in ("huber", "mse"):
            raise ValueError(f'loss={loss!r}: choose "huber" or "mse"')
        if replay_buffer_class is not None and issubclass(replay_buffer_class, HerReplayBuffer):
            raise ValueError(
                "hindsight replay (HerReplayBuffer) needs the environment itself to compute rewards again, and actors keep "
                "theirs to themselves; use SB3's DQN, with ReactorVecEnv"
            )
        self._set_parallelism(env)
        self.double_q, self.loss = bool(double_q), loss
        spare: Any = self._spare(env)  # SB3 takes None too, for load()
        super().__init__(
            policy, spare, learning_rate, buffer_size, learning_starts, batch_size, tau, gamma, train_freq, gradient_steps,
            replay_buffer_class, replay_buffer_kwargs, optimize_memory_usage, n_steps, target_update_interval,
            exploration_fraction, exploration_initial_eps, exploration_final_eps, max_grad_norm, stats_window_size, tensorboard_log,
            policy_kwargs, verbose, seed, device, _init_setup_model,
        )  # fmt: skip

    _sampler: ReplaySampler | None
    _replay_stream: np.random.Generator

    def _setup_model(self) -> None:
        self._setup_actors()
        with one_numeric_thread():  # a policy of the user's may draw its weights by linear algebra
            super()._setup_model()
        assert isinstance(self.train_freq, TrainFreq)
        if self.train_freq.unit is not TrainFrequencyUnit.STEP:
            raise ValueError(
                "train_freq in episodes would make rounds of changing length, and a reactor program has fixed ones; give it in "
                f'steps: train_freq=({self.train_freq.frequency}, "step")'
            )
        if self.rollout_steps < 1:
            raise ValueError(f"train_freq={self.rollout_steps}: a round has at least one step")
        assert self.replay_buffer is not None
        if self.replay_buffer.buffer_size < self.rollout_steps:
            raise ValueError(
                f"buffer_size={self.buffer_size} is smaller than one round of {self.rollout_steps} steps in {self.n_envs} "
                "environments"
            )
        self._replay_stream = stream(self._base_seed, Purpose.REPLAY)
        self.wants_infos = type(self.replay_buffer) not in BLOCKWISE
        self._learner, self._sampler = self._learner_of(self.policy), None
        self.shards()  # refuses what cannot be cut into slices

    # ------------------------------------------------------------------ what a trainer says

    @property
    def rollout_steps(self) -> int:
        """Steps of each environment in a round."""
        assert isinstance(self.train_freq, TrainFreq)
        return self.train_freq.frequency

    def exploration_rates(self) -> Array:
        """As SB3 has them at each step: 1 until learning starts, then by the schedule."""
        steps = self.num_timesteps + self.n_envs * np.arange(self.rollout_steps)
        total = float(self._total_timesteps)
        rates = [1.0 if at < self.learning_starts else self.exploration_schedule(1.0 - at / total) for at in steps.tolist()]
        return np.array(rates, np.float32)

    def learn_from(self, transitions: Array, infos: list[list[StepInfo]]) -> None:
        """Store a round, update the target network as often as it is time, and make the gradient steps."""
        if steps := self._receive(transitions, infos):
            with self.limited_threads(), drawing_from(self._replay_stream), torch_stream(self._torch_stream):
                self.train(steps, self.batch_size)

    def updates_from(self, transitions: Array, infos: list[list[StepInfo]]) -> Updates[None]:
        """As :meth:`learn_from`, for gradients that shards compute."""
        if steps := self._receive(transitions, infos):
            sample = self._sampling(self.batch_size)

            def drawn() -> ReplayBufferSamples:
                with drawing_from(self._replay_stream):
                    return sample()

            yield from self._training(steps, drawn)

    def _receive(self, transitions: Array, infos: list[list[StepInfo]]) -> int:
        """What comes before the gradient steps; returns how many there are to be."""
        assert self.replay_buffer is not None
        store(self.replay_buffer, self._layout, transitions, infos)
        if self._late_cut is not None:
            self.cut_episodes(self._late_cut)
        calls = self._n_calls
        self._n_calls += self.rollout_steps
        interval = max(self.target_update_interval // self.n_envs, 1)
        crossings = self._n_calls // interval - calls // interval
        for _ in range(crossings if self.tau < 1 else min(crossings, 1)):  # a second copy of the same would change nothing
            self._learner.update_target(self.tau)
        if crossings:
            polyak_update(self.batch_norm_stats, self.batch_norm_stats_target, 1.0)
        size = self.rollout_steps * self.n_envs
        self._learned_timesteps += size
        steps = self._updates() if self._learned_timesteps > self.learning_starts else 0
        if steps:
            self._update_current_progress_remaining(self._learned_timesteps, self._total_timesteps)
        return steps

    def cut_episodes(self, which: Array) -> None:
        """Mark the last transitions in the replay buffer as truncated, or n-step returns would go on in other episodes."""
        super().cut_episodes(which)
        buffer = self.replay_buffer
        if buffer is None or not (buffer.full or buffer.pos):
            return
        last = (buffer.pos - 1) % buffer.buffer_size
        running = which & (buffer.dones[last] == 0)
        buffer.dones[last][running] = 1
        if not self.optimize_memory_usage:  # else no value can follow: the next observation is about to be another episode's
            buffer.timeouts[last][running] = 1

    def streams(self) -> dict[str, np.random.Generator]:
        """The learner's random streams, by name."""
        return {"replay": self._replay_stream}

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Update the online network from the replay buffer; see SB3's ``DQN.train``. With ``n_learners > 1`` nobody calls it."""
        carry_out(self._training(gradient_steps, self._sampling(batch_size)), self._learner.gradients)

    def _training(self, gradient_steps: int, sample: Callable[[], ReplayBufferSamples]) -> Updates[None]:
        policy, learner = self.policy, self._learner
        policy.set_training_mode(True)
        self._update_learning_rate(policy.optimizer)
        learner.loss.double_q, learner.loss.kind = self.double_q, self.loss
        learner.begin_round(self.max_grad_norm)
        losses = yield from learner.updates(self._batch_of(sample()) for _ in range(gradient_steps))
        policy.set_training_mode(False)
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/loss", float(losses.mean()))

    def _learner_of(self, policy: DQNPolicy) -> QLearner:
        loss = partial(DQNLoss, double_q=self.double_q, kind=self.loss)
        return QLearner(policy, loss, self.max_grad_norm, policy.q_net_target)

    def _sampling(self, batch_size: int) -> Callable[[], ReplayBufferSamples]:
        """What samples the replay buffer."""
        buffer = self.replay_buffer
        assert buffer is not None
        if type(buffer) not in BLOCKWISE or self._vec_normalize_env is not None:
            return partial(buffer.sample, batch_size, env=self._vec_normalize_env)
        if self._sampler is None or self._sampler.buffer is not buffer or self._sampler.batch_size != batch_size:
            self._sampler = ReplaySampler(buffer, batch_size)
        return self._sampler.sample

    def _batch_of(self, samples: ReplayBufferSamples) -> DQNBatch:
        """What a replay buffer has given, as the learner takes it."""
        seen = self._learner.observations
        return DQNBatch(
            seen(samples.observations), samples.actions.long(), seen(samples.next_observations), samples.dones, samples.rewards,
            self.gamma if samples.discounts is None else samples.discounts,
        )  # fmt: skip

    def throw_away_update(self) -> tuple[Callable[[], object], int]:
        """An update of a copy of the networks with a batch of zeros, and how many there are in a round."""
        policy = copy.deepcopy(self.policy)
        policy.set_training_mode(True)
        return partial(self._learner_of(policy).learn, [self.example()]), self._updates()

    def example(self) -> DQNBatch:
        """A minibatch of zeros."""
        observations = self._layout.zeros(self.batch_size, self.device, columns=True)
        column = torch.zeros(self.batch_size, 1, device=self.device)
        discounts = column if isinstance(self.replay_buffer, NStepReplayBuffer) else None
        return self._batch_of(ReplayBufferSamples(observations, column, observations, column, column, discounts))

    def _updates(self) -> int:
        return self.gradient_steps if self.gradient_steps >= 0 else self.rollout_steps * self.n_envs

    def _present_rate(self) -> float:
        return self.exploration_schedule(self._current_progress_remaining)

    def _begin_learning(self, reset_num_timesteps: bool) -> None:
        buffer = self.replay_buffer
        afresh = reset_num_timesteps or self._afresh or self._run is None
        if buffer is not None and self.optimize_memory_usage and afresh and (buffer.full or buffer.pos > 0):
            warnings.warn(
                "The last trajectory in the replay buffer will be truncated: its last step is marked as the end of an episode, "
                "because new ones begin and optimize_memory_usage=True keeps no next observations",
                stacklevel=4,
            )

    def _excluded_save_params(self) -> list[str]:
        return [*QLearning._excluded_save_params(self), "q_net", "q_net_target", "_sampler", "_replay_stream"]
