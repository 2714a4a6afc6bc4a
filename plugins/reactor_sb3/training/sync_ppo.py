"""``SyncPPO``: proximal policy optimisation, SB3's ``PPO`` as a reactor program."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Self, Unpack

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.preprocessing import get_action_dim
from stable_baselines3.common.type_aliases import MaybeCallback, Schedule
from stable_baselines3.common.utils import explained_variance
from stable_baselines3.common.vec_env import VecEnv

from reactor_gymnasium.plugin import checked_number
from reactor_rl.plugin import one_numeric_thread
from reactor_sb3.acting.actor import StepInfo
from reactor_sb3.acting.actor_critic import SampledPolicy
from reactor_sb3.acting.forwards import copied
from reactor_sb3.acting.records import fill
from reactor_sb3.learning.ppo_learner import APPROX_KL, PPOLearner
from reactor_sb3.streams import Purpose, stream
from reactor_sb3.trainers.options import Options, keeps_arguments
from reactor_sb3.trainers.trainer import Trainer
from reactor_torch import PPOBatch, Updates, carry_out, torch_stream

__all__ = ["SyncPPO"]

Array = npt.NDArray[Any]
USUAL_ROLLOUT = 2048
"""Steps of a round of SB3's ``PPO``, which has one environment by default."""


class SyncPPO(Trainer, PPO):
    """PPO whose actors sample in parallel and whose results do not depend on how many cores do it.

    One round is a tick of the reactor program that :class:`~reactor_sb3.SyncDQN` runs too: the parameters are broadcast, each of
    ``n_actors`` actors takes ``n_steps`` steps in its own environments and computes values and advantages of what it has seen, and
    the learner makes ``n_epochs`` passes over all of it in shuffled minibatches, by SB3's loss. Given the same rollout and the same
    order, the weights are SB3's but for rounding. ``workers``, ``executor`` and ``start_method`` never change a bit of them.

    Args:
        policy: As for SB3's ``PPO``, and so is every parameter that is not named here.
        env: As for ``SyncDQN``.
        n_steps: Steps of each environment in a round. ``None``: those of SB3's rollout, 2048, shared out among the environments; a
            few less where they cannot be, in whole minibatches. A number means what it means in SB3 with that many environments.
        rollout_buffer_class: Only SB3's own.
        device: The processor by default, where SB3 takes a GPU if there is one (``"auto"``).
        **options: Keywords of every trainer: ``n_actors``, ``workers``, ``executor``, ``evaluate_every``, and others; see
            :class:`~reactor_sb3.RunOptions`.

    Raises:
        TypeError: If no environments like ``env`` can be made, or the policy is no ``ActorCriticPolicy``.
        AssertionError: If SB3 has no distribution of its actions.
        ValueError: If a number makes no sense, or there is a rollout buffer of another class.

    Example:
        >>> from reactor_sb3 import SyncPPO
        >>> with SyncPPO("MlpPolicy", "CartPole-v1", n_actors=4, n_steps=32, seed=0, workers=2) as model:
        ...     _ = model.learn(256)
        ...     model.num_timesteps
        256
    """

    default_log_name: ClassVar[str] = "PPO"
    _learner: PPOLearner
    log_unit: ClassVar[str] = "iterations"

    @keeps_arguments
    def __init__(
        self,
        policy: str | type[ActorCriticPolicy],
        env: gymnasium.Env[Any, Any] | str | Any,
        learning_rate: float | Schedule = 3e-4,
        n_steps: int | None = None,
        batch_size: int = 64,
        n_epochs: int = 10,
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
        clip_range: float | Schedule = 0.2,
        clip_range_vf: float | Schedule | None = None,
        normalize_advantage: bool = True,
        ent_coef: float = 0.0,
        vf_coef: float = 0.5,
        max_grad_norm: float = 0.5,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        rollout_buffer_class: type[RolloutBuffer] | None = None,
        rollout_buffer_kwargs: dict[str, Any] | None = None,
        target_kl: float | None = None,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "cpu",
        _init_setup_model: bool = True,
        **options: Unpack[Options],
    ) -> None:
        for name, number in (("n_steps", n_steps), ("batch_size", batch_size), ("n_epochs", n_epochs)):
            if number is not None:
                checked_number(name, number, 1)
        if rollout_buffer_class not in (None, RolloutBuffer, DictRolloutBuffer) or rollout_buffer_kwargs:
            raise ValueError(
                "the actors compute returns and advantages themselves, so that a rollout buffer of another class, or with other "
                "arguments, would never be asked: leave rollout_buffer_class= and rollout_buffer_kwargs= out, or use SB3's PPO "
                "with ReactorVecEnv"
            )
        self.construct(PPO)

    def _for_host(self) -> dict[str, Any]:
        n_steps, n_envs = self.arguments["n_steps"], self.n_actors * self.envs_per_actor
        usual = _usual_steps(n_envs, self.arguments["batch_size"]) if n_steps is None else n_steps
        return {**super()._for_host(), "n_steps": usual}

    def _spare(self, env: Any) -> VecEnv | None:
        spare = super()._spare(env)
        match None if spare is None else spare.action_space:
            case spaces.Discrete(start=start) | spaces.MultiDiscrete(start=start) if np.any(start):
                assert spare is not None
                raise ValueError(f"{spare.action_space} counts from {start}; wrap the environment so that actions count from 0")
        return spare

    def _setup_model(self) -> None:
        self._setup_actors()
        if not issubclass(self.policy_class, ActorCriticPolicy):
            raise TypeError(
                f"{self.policy_class.__name__} is no ActorCriticPolicy, which is what actors know how to ask for values"
            )
        with one_numeric_thread(), self._initial_stream():  # weights that are drawn orthogonal come from a decomposition
            super()._setup_model()
        self.policy.set_training_mode(False)  # but for the updates themselves
        self._learner = PPOLearner(self.policy, self.max_grad_norm)
        self.shards()  # refuses what cannot be cut into slices
        self._minibatch_stream = stream(self._base_seed, Purpose.MINIBATCHES)

    # ------------------------------------------------------------------ what a trainer says

    @property
    def rollout_steps(self) -> int:
        """Steps of each environment in a round."""
        return self.n_steps

    def acting(self) -> tuple[torch.nn.Module, SampledPolicy]:
        """The policy, and how actors act by it."""
        return self.policy, SampledPolicy.of(self.policy, self.gamma, self.gae_lambda, self.sde_sample_freq)

    def exploration_rates(self) -> Array:
        """Nothing: what actors draw from is the policy itself."""
        return np.zeros(self.n_steps, np.float32)

    def _receive(self, transitions: Array) -> None:
        self._learned_timesteps += self.n_steps * self.n_envs
        self._update_current_progress_remaining(max(self._learned_timesteps, 0), self._total_timesteps)
        fill(self.rollout_buffer, self.session.layout, transitions)

    def updates_from(self, transitions: Array, infos: list[list[StepInfo]]) -> Updates[None]:
        """As :meth:`learn_from`, for gradients that shards compute."""
        self._receive(transitions)
        yield from self._updates()

    def learn_from(self, transitions: Array, infos: list[list[StepInfo]]) -> None:
        """Fill the rollout buffer and make all updates."""
        self._receive(transitions)
        with self.limited_threads(), torch_stream(self.session.torch_stream):
            self.train()

    def streams(self) -> dict[str, np.random.Generator]:
        """The learner's random streams, by name."""
        return {"minibatches": self._minibatch_stream}

    def train(self) -> None:
        """Update the policy from the rollout buffer; see SB3's ``PPO.train``. A learner that has shards does not call it."""
        carry_out(self._updates(), self._learner.gradients)

    def _updates(self) -> Updates[None]:
        policy, learner = self.policy, self._learner
        self._update_learning_rate(policy.optimizer)
        self._set_ranges(learner)
        learner.begin_round(self.max_grad_norm)
        rollout = self._rollout()
        most_kl = math.inf if self.target_kl is None else 1.5 * self.target_kl
        statistics: list[list[Array]] = []
        whole = True
        while whole and len(statistics) < self.n_epochs:
            order = torch.from_numpy(self._minibatch_stream.permutation(len(rollout))).to(self.device)
            of_pass, whole = yield from learner.updates(rollout, order, self.batch_size, self.normalize_advantage, most_kl)
            statistics.append(of_pass)
            self._n_updates += 1  # what SB3 counts
        if not whole:
            self.logger.info(
                f"no more updates in round {self.counted() + 1}: the divergence is {statistics[-1][-1][APPROX_KL]:.2f}"
            )
        self._learner.end_round()
        self._log_training(statistics)

    def _set_ranges(self, learner: PPOLearner) -> None:
        """Let a learner have the ranges that the schedules have come to."""
        remaining, loss = self._current_progress_remaining, learner.loss
        clip_range: Any = self.clip_range
        clip_range_vf: Any = self.clip_range_vf
        loss.clip_range = clip_range(remaining)
        loss.clip_range_vf = None if clip_range_vf is None else clip_range_vf(remaining)
        loss.ent_coef, loss.vf_coef = self.ent_coef, self.vf_coef

    def _rollout(self) -> PPOBatch:
        """The whole rollout buffer as one batch."""
        buffer: Any = self.rollout_buffer

        def flat(rows: Array) -> torch.Tensor:
            return torch.from_numpy(buffer.swap_and_flatten(rows)).to(self.device)

        kept = buffer.observations
        observations: Any = {key: flat(rows) for key, rows in kept.items()} if isinstance(kept, dict) else flat(kept)
        actions = flat(buffer.actions)
        actions = actions.flatten() if isinstance(self.action_space, spaces.Discrete) else actions.float()
        numbers = (flat(rows).flatten() for rows in (buffer.advantages, buffer.returns, buffer.log_probs, buffer.values))
        return PPOBatch(self._learner.observations(observations), actions, *numbers)

    def _log_training(self, statistics: list[list[Array]]) -> None:
        """Log the means of each minibatch's statistics; the divergence's are those of the last pass, as SB3 has it."""
        record, loss, buffer = self.logger.record, self._learner.loss, self.rollout_buffer
        means = np.mean([one for of_pass in statistics for one in of_pass], 0)
        means[APPROX_KL] = np.mean([one[APPROX_KL] for one in statistics[-1]])
        for name, value in zip(loss.statistics, means.tolist(), strict=True):
            record(f"train/{name}", value)
        record("train/loss", float(statistics[-1][-1][loss.statistics.index("loss")]))
        record("train/explained_variance", explained_variance(buffer.values.flatten(), buffer.returns.flatten()))
        if hasattr(self.policy, "log_std"):
            record("train/std", float(self.policy.log_std.detach().exp().mean()))
        record("train/n_updates", self._n_updates, exclude="tensorboard")
        record("train/clip_range", loss.clip_range)
        if loss.clip_range_vf is not None:
            record("train/clip_range_vf", loss.clip_range_vf)

    def __repr__(self) -> str:
        gradients = "formulas" if self._learner.dense else "autograd"
        return f"{super().__repr__()[:-1]}, gradients={gradients!r})"

    def dump_logs(self, iteration: int = 0) -> None:
        """As every trainer's; ``iteration`` is known."""
        super().dump_logs()

    @property
    def update_rows(self) -> int:
        """Transitions of a round: as SB3 does, ``train/n_updates`` counts passes over it."""
        return self.n_steps * self.n_envs

    def counted(self) -> int:
        return (self.num_timesteps - self._num_timesteps_at_start) // (self.n_steps * self.n_envs)

    def throw_away_update(self) -> tuple[Callable[[], object], int]:
        """An update of a copy of the policy with a minibatch of zeros, and how many there are in a round."""
        learner = PPOLearner(copied(self.policy, {}), self.max_grad_norm)
        self._set_ranges(learner)
        batch = self.example()
        order = torch.arange(rows := len(batch), device=self.device)
        minibatches = math.ceil(self.n_steps * self.n_envs / self.batch_size)
        return partial(learner.learn, batch, order, rows, self.normalize_advantage, math.inf), self.n_epochs * minibatches

    def example(self) -> PPOBatch:
        """A minibatch of zeros, as large as there are any."""
        rows = min(self.batch_size, self.n_steps * self.n_envs)
        numbers = torch.zeros(rows, device=self.device)
        discrete = isinstance(self.action_space, spaces.Discrete)
        actions = numbers.long() if discrete else torch.zeros(rows, get_action_dim(self.action_space), device=self.device)
        observations = self._learner.observations(self.session.layout.zeros(rows, self.device, columns=True))
        return PPOBatch(observations, actions, numbers, numbers, numbers, numbers)

    def learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int | None = 1,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """As every trainer's; but for ``log_interval``, which here counts rounds, as SB3's ``PPO`` does."""
        return super().learn(total_timesteps, callback, log_interval, tb_log_name, reset_num_timesteps, progress_bar)

    def _excluded_save_params(self) -> list[str]:
        return [*Trainer._excluded_save_params(self), "_minibatch_stream", "_learner"]


def _usual_steps(n_envs: int, batch_size: int) -> int:
    """Steps of each environment in rounds as long as SB3's with one environment."""
    steps = max(USUAL_ROLLOUT // n_envs, 1)
    if USUAL_ROLLOUT % n_envs == 0:
        return steps
    whole = batch_size // math.gcd(batch_size, n_envs)  # steps that make whole minibatches, for which SB3 asks
    return steps // whole * whole or steps
