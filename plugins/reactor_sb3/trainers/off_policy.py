"""Trainers with a replay buffer: rounds of ``train_freq`` steps, and gradient steps on what is sampled from it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.preprocessing import get_action_dim
from stable_baselines3.common.type_aliases import ReplayBufferSamples, TrainFreq, TrainFrequencyUnit
from stable_baselines3.common.utils import get_device
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from reactor_sb3.acting.actor import StepInfo
from reactor_sb3.acting.noise import check_noise
from reactor_sb3.environments.makers import EnvMaker
from reactor_sb3.streams import Purpose, drawing_first_weights, drawing_from, stream
from reactor_sb3.trainers.finite import check_losses
from reactor_sb3.trainers.hindsight import GoalEnv, HindsightSampler, check_hindsight, cut_short, has_episodes
from reactor_sb3.trainers.learner import finish
from reactor_sb3.trainers.replay import BLOCKWISE, KeptArrays, store
from reactor_sb3.trainers.replay_sampler import ReplaySampler
from reactor_sb3.trainers.trainer import Trainer
from reactor_torch import Update, drawing_nothing, torch_stream

__all__ = ["OffPolicyTrainer"]

Array = npt.NDArray[Any]


class OffPolicyTrainer(Trainer, OffPolicyAlgorithm):
    """A trainer that learns from a replay buffer.

    :meth:`batch` is given sampled transitions, by the fields of :class:`~reactor_torch.TransitionBatch`.
    """

    target_update_interval: int  # of those of SB3's algorithms that count steps
    _n_calls: int
    usual_actors: ClassVar[int] = 1  # more of them learn less from each step, even with as many updates
    few_steps: ClassVar[bool] = True
    usual_train_freq: ClassVar[int] = 1
    """Default of ``train_freq``, here and in SB3, which has an update for each round then."""

    # ------------------------------------------------------------------ construction

    def _set_options(self, env: Any) -> None:
        arguments = self.arguments
        super()._set_options(env)
        self.actor_device: torch.device | str | None = arguments.get("actor_device")
        if "action_noise" in arguments:
            self._check_continuous(arguments)

    def _check_continuous(self, arguments: dict[str, Any]) -> None:
        learning_starts, buffer_size = arguments["learning_starts"], arguments["buffer_size"]
        if learning_starts > buffer_size:
            raise ValueError(
                f"learning_starts={learning_starts} is beyond what buffer_size={buffer_size} can hold: the first transitions would "
                "be lost before anything is learned from them"
            )
        check_noise(arguments["action_noise"], self.n_actors * self.envs_per_actor)
        named = {name: arguments[name] for name in ("critic_device", "actor_device") if arguments[name] is not None}
        critics, actor = (get_device(named.get(name, arguments["device"])) for name in ("critic_device", "actor_device"))
        if critics != actor and not self.split:
            raise ValueError(
                f"the critics on {critics} and the actor on {actor} learn side by side, which is a delayed variant of "
                f"{self.default_log_name}: pass split=True, or one device for both"
            )

    def _for_host(self) -> dict[str, Any]:
        given = super()._for_host()
        if self.arguments.get("critic_device"):  # the learner has the critics, and makes all steps
            given["device"] = self.arguments["critic_device"]
        return given

    def _setup_model(self) -> None:
        self._setup_actors()
        if self.replay_buffer_class is not None and issubclass(self.replay_buffer_class, HerReplayBuffer):
            check_hindsight(self.observation_space, self.replay_buffer_kwargs)
        with drawing_first_weights(self.seed):
            super()._setup_model()
        self.session.arrays = KeptArrays()
        self._check_rounds()
        self._warn_if_few_updates()
        self.check_replay()
        self.session.streams["replay"] = stream(self._base_seed, Purpose.REPLAY)
        self._make_networks()

    def _take_env(self, env: VecEnv, makes: EnvMaker) -> None:
        buffer = self.replay_buffer
        goals = GoalEnv(makes) if isinstance(buffer, HerReplayBuffer) else None  # first, as it may be refused
        super()._take_env(env, makes)
        if isinstance(buffer, HerReplayBuffer):
            self.session.goals = buffer.env = goals

    def _check_rounds(self) -> None:
        """Refuse a ``train_freq`` that does not give rounds of one length."""
        self._convert_train_freq()  # if somebody has given it anew, as a number
        assert isinstance(self.train_freq, TrainFreq)
        if self.train_freq.unit is not TrainFrequencyUnit.STEP:
            raise ValueError(
                "train_freq in episodes would make rounds of changing length, and a reactor program has fixed ones; give it in "
                f'steps: train_freq=({self.train_freq.frequency}, "step")'
            )
        if self.train_freq.frequency < 1:
            raise ValueError(f"train_freq={self.train_freq.frequency}: a round has at least one step")

    def check_replay(self) -> None:
        """Take over a replay buffer that was replaced, or arrays of it.

        Raises:
            TypeError: If it is no replay buffer.
            ValueError: If it is for other environments, smaller than a round, or an array of it has another shape.
        """
        buffer: Any = self.replay_buffer
        if not isinstance(buffer, ReplayBuffer):
            raise TypeError(f"replay_buffer must be a ReplayBuffer, got {type(buffer).__name__}")
        if buffer.n_envs != self.n_envs:
            raise ValueError(f"replay_buffer is for {buffer.n_envs} environments, and the actors have {self.n_envs}")
        if buffer.buffer_size < self.rollout_steps:
            raise ValueError(
                f"buffer_size={buffer.buffer_size * self.n_envs} is smaller than one round of {self.rollout_steps} steps in "
                f"{self.n_envs} environments"
            )
        if isinstance(buffer, HerReplayBuffer):
            buffer.env = self.session.goal_env()  # actors, whom SB3's asks, are at work then
        self.wants_infos = type(buffer) not in BLOCKWISE or getattr(buffer, "copy_info_dict", False)
        self.session.arrays.look(buffer)

    def check_settings(self) -> None:
        """Refuse a ``train_freq`` that does not give rounds of one length, and noise that does not fit."""
        super().check_settings()
        self._check_rounds()
        self.check_replay()
        check_noise(self.action_noise, self.n_envs)
        if not isinstance(self.gradient_steps, int | np.integer | None):
            raise TypeError(f"gradient_steps must be a whole number, got {self.gradient_steps!r}")

    def _warn_if_few_updates(self) -> None:
        """Say which number makes as many updates as SB3 does by default: many environments share those that are asked for."""
        if not 0 < self.update_to_data < 1 / (4 * self.usual_train_freq):
            return
        steps, usual = self.rollout_steps * self.n_envs, self.usual_train_freq
        warnings.warn(
            f"{self.updates_due()} update(s) for a round of {steps} steps, {self.rollout_steps} in each of {self.n_envs} "
            f"environments: {self.update_to_data:.2g} for each step, where {self.host}'s {self.default_log_name} has {1 / usual:g} "
            f"by default; pass gradient_steps={max(steps // usual, 1)} for as many",
            stacklevel=7,
        )

    def policy_device(self) -> torch.device:
        """Where the actor's gradients are computed, with ``split=True``."""
        return self.device if self.actor_device is None else get_device(self.actor_device)

    # ------------------------------------------------------------------ what an algorithm may say

    def round_stored(self) -> None:
        """Called between storing a round and its gradient steps."""

    def exploration_at(self, timesteps: int) -> float:
        """The rate of exploration when learning has started, at a step that follows so many others."""
        return 0.0

    def standard_normal(self, actions: torch.Tensor) -> torch.Tensor:
        """Noise for actions, of their shape and where they are, float32."""
        return torch.randn(actions.shape, generator=self.generator).to(actions.device)

    def follow_by_steps(self, target: str, source: str) -> None:
        """Move a target as often as SB3 does while a round is sampled: by ``target_update_interval`` and ``tau``."""
        calls = self._n_calls
        self._n_calls += self.rollout_steps
        interval = max(self.target_update_interval // self.n_envs, 1)
        crossings = self._n_calls // interval - calls // interval
        for _ in range(crossings if self.tau < 1 else min(crossings, 1)):  # a second copy of the same would change nothing
            self.nets.follow(target, source, self.tau)

    # ------------------------------------------------------------------ a round

    @property
    def rollout_steps(self) -> int:
        """Steps of each environment in a round."""
        if not isinstance(self.train_freq, TrainFreq):
            self._check_rounds()
        return cast(TrainFreq, self.train_freq).frequency

    def length_in_words(self) -> str:
        return f"train_freq={self.rollout_steps}"

    @property
    def update_to_data(self) -> float:
        """Updates for each step of an environment: a number as ``gradient_steps`` says how many there are for a round."""
        return self.updates_due() / (self.rollout_steps * self.n_envs)

    def updates_due(self) -> int:
        """Updates of a round, when learning has started."""
        asked: Any = self.gradient_steps  # a number, says SB3, which has no other default
        if asked is None:  # as many for each step as SB3 has with one environment
            return self.n_envs
        return asked if asked >= 0 else self.rollout_steps * self.n_envs

    def exploration_rates(self) -> Array:
        """At each step: 1 until learning starts, as in SB3."""
        steps = self.num_timesteps + self.n_envs * np.arange(self.rollout_steps)
        starts = 0 if self.use_sde and self.use_sde_at_warmup else self.learning_starts
        return np.array([1.0 if at < starts else self.exploration_at(at) for at in steps.tolist()], np.float32)

    def round(self, transitions: Array, infos: list[list[StepInfo]]) -> Update:
        """Store a round and make its gradient steps."""
        self.check_replay()  # a callback may have replaced arrays of it
        assert self.replay_buffer is not None
        store(self.replay_buffer, self.session.layout, transitions, infos)
        if self.session.late_cut is not None:
            self.cut_episodes(self.session.late_cut)
        self.round_stored()
        self._learned_timesteps += self.rollout_steps * self.n_envs
        if self._learned_timesteps > self.learning_starts and (steps := self.updates_due()) and self._has_samples():
            self._update_current_progress_remaining(self._learned_timesteps, self._total_timesteps)
            yield from self._updates(steps, self.batch_size)
        return {}

    def _has_samples(self) -> bool:
        """Whether there is anything to learn from: for hindsight an episode must have ended.

        Raises:
            RuntimeError: If none ever would be there, for lack of room.
        """
        buffer = self.replay_buffer
        if not isinstance(buffer, HerReplayBuffer) or has_episodes(buffer):
            return True
        if buffer.full:
            raise RuntimeError(
                f"no episode in the replay buffer is whole, as the oldest is lost before the next has ended: buffer_size="
                f"{self.buffer_size} keeps {buffer.buffer_size} steps of each environment; keep those of two episodes at least"
            )
        return False

    def _updates(self, gradient_steps: int, batch_size: int) -> Update:
        """The gradient steps of a round."""
        self.begin_updates()
        sample, before = self._sampling(batch_size), self._n_updates
        found: list[dict[str, float]] = []
        for self.update_in_round in range(gradient_steps):
            self._n_updates += 1  # as in SB3's loops, it counts this one
            found.append((yield from self.update(self.batch(self._transitions(sample())))))
        self.nets.end_round()
        check_losses(found, before, "lower the learning rate, or look at the rewards")
        self.log_round(found)
        return {}

    def log_round(self, found: list[dict[str, float]]) -> None:
        """Log the means of what the updates of a round have returned."""
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        for name in dict.fromkeys(name for one in found for name in one):
            values = [one[name] for one in found if name in one]
            self.logger.record(f"train/{name}", float(np.mean(values)))

    def _transitions(self, samples: ReplayBufferSamples) -> dict[str, Any]:
        """Samples of a replay buffer, by the fields of :class:`~reactor_torch.TransitionBatch`."""
        with drawing_nothing():
            return {
                "observations": self.seen(samples.observations), "actions": samples.actions,
                "next_observations": self.seen(samples.next_observations), "dones": samples.dones, "rewards": samples.rewards,
                "discounts": self.gamma if samples.discounts is None else samples.discounts,
            }  # fmt: skip

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Make gradient steps on the replay buffer; see SB3's ``train``."""
        self.look()
        finish(self._updates(gradient_steps, batch_size), self.nets)
        self.session.structure.let_move()

    def cut_episodes(self, which: Array) -> None:
        """Mark the last transitions in the replay buffer as truncated, or n-step returns would go on in other episodes."""
        super().cut_episodes(which)
        buffer = self.replay_buffer
        if buffer is None or not (buffer.full or buffer.pos):
            return
        if isinstance(buffer, HerReplayBuffer):
            cut_short(buffer, which)
        last = (buffer.pos - 1) % buffer.buffer_size
        running = which & (buffer.dones[last] == 0)
        buffer.dones[last][running] = 1
        if not self.optimize_memory_usage:  # else no value can follow: the next observation is about to be another episode's
            buffer.timeouts[last][running] = 1

    def _sampling(self, batch_size: int) -> Callable[[], ReplayBufferSamples]:
        """The sampler of the replay buffer."""
        buffer, normalizer, random = self.replay_buffer, self._vec_normalize_env, self.session.streams["replay"]
        assert buffer is not None
        arrays = self.session.arrays.look(buffer)
        if type(buffer) not in BLOCKWISE:

            def sample() -> ReplayBufferSamples:
                with drawing_from(random), torch_stream(self.generator):
                    return buffer.sample(batch_size, env=normalizer)

            return sample
        sampler: ReplaySampler | None = self.session.sampler
        made_of = buffer, batch_size, normalizer, arrays
        if sampler is None or (sampler.buffer, sampler.batch_size, sampler.normalizer, sampler.arrays) != made_of:
            kind = HindsightSampler if isinstance(buffer, HerReplayBuffer) else ReplaySampler
            sampler = self.session.sampler = kind(buffer, batch_size, random, normalizer)
            sampler.arrays = arrays
        sampler.begin()
        return sampler.sample

    def close(self) -> None:
        """Close the environments and end the workers. May be called again."""
        try:
            super().close()
        finally:
            self.session.leave_goal_env()

    # ------------------------------------------------------------------ what the program asks

    def example(self) -> Any:
        """A minibatch of zeros."""
        observations = self.session.layout.zeros(self.batch_size, self.device, columns=True)
        actions = torch.zeros(self.batch_size, get_action_dim(self.action_space), device=self.device)
        column = torch.zeros(self.batch_size, 1, device=self.device)
        discounts = column if isinstance(self.replay_buffer, NStepReplayBuffer) else None
        with self.drawing_apart():
            return self.batch(
                self._transitions(ReplayBufferSamples(observations, actions, observations, column, column, discounts))
            )

    @property
    def minibatch_rows(self) -> int:
        """Rows of a minibatch."""
        return self.batch_size

    def round_done(self) -> None:
        """Tell how many updates there are for each step."""
        super().round_done()
        self.logger.record("time/update_to_data", self.update_to_data)

    def _begin_learning(self, reset_num_timesteps: bool) -> None:
        buffer = self.replay_buffer
        afresh = reset_num_timesteps or self.session.afresh or self._run is None
        if buffer is not None and self.optimize_memory_usage and afresh and (buffer.full or buffer.pos > 0):
            warnings.warn(
                "The last trajectory in the replay buffer will be truncated: its last step is marked as the end of an episode, "
                "because new ones begin and optimize_memory_usage=True keeps no next observations",
                stacklevel=4,
            )

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, update_to_data={self.update_to_data:g})"

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "actor_device"]
