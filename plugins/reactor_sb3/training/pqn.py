"""``PQN``: parallel Q-learning without replay and without a target network, as a reactor program."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Unpack

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import Schedule

from reactor_gymnasium.plugin import checked_number
from reactor_rl.plugin import one_numeric_thread
from reactor_sb3.acting.actor import StepInfo
from reactor_sb3.acting.records import by_step
from reactor_sb3.learning.q_learner import QLearner
from reactor_sb3.streams import Purpose, stream
from reactor_sb3.trainers.options import Options, check_slices, keeps_arguments
from reactor_sb3.training.pqn_policies import CnnPolicy, MlpPolicy, MultiInputPolicy, PQNPolicy
from reactor_sb3.training.q_learning import QLearning
from reactor_torch import QBatch, QLoss, Updates, carry_out, torch_stream

__all__ = ["PQN", "Annealed"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Annealed:
    """A schedule that falls linearly, from ``initial`` in the first round towards 0 after the last."""

    initial: float

    def __call__(self, progress_remaining: float) -> float:
        return self.initial * progress_remaining


class PQN(QLearning):
    """Q-learning from fresh rounds only: Q(lambda) returns, layer normalisation instead of a target network, no replay.

    Gallici et al. 2024, "Simplifying Deep Temporal Difference Learning". Defaults, networks and schedules are those of CleanRL's
    ``pqn.py``: the first round is learned at the whole learning rate, the last of ``n`` at ``1 / n`` of it, and a step explores
    with the rate that the schedule has when it is counted. Returns and loss (half the squared error) are the paper's: nothing of
    the next episode enters a return. Where a time limit cuts an episode off, the return goes on with the value of the last
    observation. A round is a tick of the reactor program that :class:`~reactor_sb3.SyncDQN` runs too.

    Args:
        policy: ``"MlpPolicy"``, ``"CnnPolicy"``, ``"MultiInputPolicy"``, or a subclass of their class.
        env: As for :class:`~reactor_sb3.SyncDQN`.
        learning_rate: A number, or a function of what remained of the training (1 to 0) when the round began; by default 2.5e-4
            and falling.
        rollout_steps: Steps of each environment in a round.
        n_minibatches: Into how many a round is divided.
        n_epochs: How often each is learned from.
        gamma: Discount.
        q_lambda: Weight of longer returns, 0 (one step) to 1 (the whole round).
        exploration_fraction: Of the training, during which the rate of exploration falls.
        exploration_initial_eps: Rate of exploration at its beginning.
        exploration_final_eps: Rate of exploration at its end.
        max_grad_norm: What gradients are clipped to.
        stats_window_size: Episodes that logged means are taken over.
        tensorboard_log: Folder for TensorBoard.
        policy_kwargs: For the policy.
        verbose: 1 to print logs.
        seed: Of everything that is random.
        device: Where the learner computes.
        epsilon_spread: As for :class:`~reactor_sb3.SyncDQN`.
        **options: ``n_actors`` (4 by default), ``workers``, ``executor``, ``evaluate_every``, and others; see
            :class:`~reactor_sb3.RunOptions`.

    Raises:
        TypeError: If no environments like ``env`` can be made.
        AssertionError: If its actions are not discrete (SB3's own check).
        ValueError: If a number makes no sense.

    Example:
        >>> from reactor_sb3 import PQN
        >>> with PQN("MlpPolicy", "CartPole-v1", rollout_steps=16, seed=0, workers=2) as model:
        ...     _ = model.learn(128)
        ...     model.num_timesteps
        128
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        "MlpPolicy": MlpPolicy, "CnnPolicy": CnnPolicy, "MultiInputPolicy": MultiInputPolicy,
    }  # fmt: skip
    default_log_name: ClassVar[str] = "PQN"
    usual_actors: ClassVar[int] = 4
    policy: PQNPolicy

    @keeps_arguments
    def __init__(
        self,
        policy: str | type[PQNPolicy],
        env: gymnasium.Env[Any, Any] | str | Any,
        learning_rate: float | Schedule = Annealed(2.5e-4),
        rollout_steps: int = 128,
        n_minibatches: int = 4,
        n_epochs: int = 4,
        gamma: float = 0.99,
        q_lambda: float = 0.65,
        exploration_fraction: float = 0.5,
        exploration_initial_eps: float = 1.0,
        exploration_final_eps: float = 0.05,
        max_grad_norm: float = 10.0,
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
        for name, number in (("rollout_steps", rollout_steps), ("n_minibatches", n_minibatches), ("n_epochs", n_epochs)):
            checked_number(name, number, 1)
        if not 0 <= q_lambda <= 1:
            raise ValueError(f"q_lambda={q_lambda!r} must be between 0 and 1")
        self._rollout_steps, self.n_minibatches, self.n_epochs = int(rollout_steps), int(n_minibatches), int(n_epochs)
        self.gamma, self.q_lambda, self.max_grad_norm = gamma, q_lambda, max_grad_norm
        self.exploration_fraction = exploration_fraction
        self.exploration_initial_eps, self.exploration_final_eps = exploration_initial_eps, exploration_final_eps
        self.exploration_rate = 0.0
        self.construct(BaseAlgorithm)
        if _init_setup_model:
            self._setup_model()

    def _for_host(self) -> dict[str, Any]:
        return {**super()._for_host(), "support_multi_env": True, "supported_action_spaces": (spaces.Discrete,)}

    def _setup_model(self) -> None:
        self._setup_actors()
        size = self.rollout_steps * self.n_envs
        if size % self.n_minibatches:
            raise ValueError(
                f"n_minibatches={self.n_minibatches} does not divide a round of {size} transitions "
                f"({self.rollout_steps} steps in {self.n_envs} environments)"
            )
        check_slices(self.n_learners, size // self.n_minibatches, str(size // self.n_minibatches))
        self._setup_lr_schedule()
        self.set_random_seed(self.seed)
        policy: Any = self.policy_class
        with one_numeric_thread(), self._initial_stream():  # weights that are drawn orthogonal come from a decomposition
            made = policy(self.observation_space, self.action_space, self.lr_schedule, **self.policy_kwargs)
        self.policy = made.to(self.device)
        self.policy.set_training_mode(False)  # but for the updates themselves
        self.q_net = self.policy.q_net
        self._learner = self._learner_of(self.policy)
        self.shards()  # refuses what cannot be cut into slices
        self._minibatch_stream = stream(self._base_seed, Purpose.MINIBATCHES)

    # ------------------------------------------------------------------ what a trainer says

    @property
    def rollout_steps(self) -> int:
        """Steps of each environment in a round."""
        return self._rollout_steps

    def exploration_rates(self) -> Array:
        """Linear in the steps, those included that are about to be taken, until ``exploration_fraction`` of them."""
        steps = self.num_timesteps + self.n_envs * np.arange(1, self.rollout_steps + 1)
        return self._rate(steps / float(self._total_timesteps)).astype(np.float32)

    def _rate(self, progress: Array) -> Array:
        part = np.minimum(progress / max(self.exploration_fraction, 1e-12), 1.0)
        return self.exploration_initial_eps + part * (self.exploration_final_eps - self.exploration_initial_eps)

    def learn_from(self, transitions: Array, infos: list[list[StepInfo]]) -> None:
        """Compute the returns of a round with the network as it is, then learn them in shuffled minibatches."""
        with self.limited_threads(), torch_stream(self.session.torch_stream):
            carry_out(self.updates_from(transitions, infos), self._learner.gradients)

    def updates_from(self, transitions: Array, infos: list[list[StepInfo]]) -> Updates[None]:
        """As :meth:`learn_from`, for gradients that shards compute."""
        size = self.rollout_steps * self.n_envs
        # Of what had been learned when the round began: at the end of the last round nothing remains, and neither would its rate.
        # (With pipeline=1, the round that was under way when counting began anew is learned before the first one.)
        self._update_current_progress_remaining(max(self._learned_timesteps, 0), self._total_timesteps)
        self._learned_timesteps += size
        self._update_learning_rate(self.policy.optimizer)
        observations = self._learner.observations(self.session.layout.outside(self._flat(transitions, "observations")))
        actions = torch.as_tensor(by_step(transitions["actions"])).flatten().to(self.device)
        returns = self._returns(transitions, self._flat(transitions, "next_observations"))
        self._learner.begin_round(self.max_grad_norm)
        losses = yield from self._learner.updates(self._minibatches(QBatch(observations, actions, returns)))
        self._learner.end_round()
        self._n_updates += self.n_epochs * self.n_minibatches
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/loss", float(losses.mean()))
        self.logger.record("train/q_return", float(returns.mean()))

    def _minibatches(self, transitions: QBatch) -> Iterator[QBatch]:
        """All minibatches of a round, in the order in which they are learned from."""
        for _ in range(self.n_epochs):
            order = torch.from_numpy(self._minibatch_stream.permutation(len(transitions.returns))).to(self.device)
            for rows in order.chunk(self.n_minibatches):
                yield transitions[rows]

    def _learner_of(self, policy: PQNPolicy) -> QLearner:
        return QLearner(policy, partial(QLoss, weight=0.5), self.max_grad_norm)

    def streams(self) -> dict[str, np.random.Generator]:
        """The learner's random streams, by name."""
        return {"minibatches": self._minibatch_stream}

    def _flat(self, transitions: Array, name: str) -> dict[str, torch.Tensor]:
        """Observations of a round, ``(steps * envs, ...)``, by key."""
        parts = self.session.layout.of(transitions, name)
        # Copied into memory of torch's: numpy's begins anywhere in a cache line, which the last bits of sums depend on.
        return {key: torch.tensor(by_step(part)).flatten(0, 1).to(self.device) for key, part in parts.items()}

    def _returns(self, transitions: Array, next_observations: dict[str, torch.Tensor]) -> torch.Tensor:
        """Q(lambda) returns, ``(steps * envs,)``: Gallici et al. 2024, with the values that the network has before the updates."""
        with torch.no_grad():
            next_q_values = self.q_net(self.session.layout.outside(next_observations)).amax(1).cpu().numpy()
        next_q_values = next_q_values.reshape(self.rollout_steps, self.n_envs)
        rewards, dones, timeouts = (by_step(transitions[name]) for name in ("rewards", "dones", "timeouts"))
        one_step = rewards + np.float32(self.gamma) * next_q_values * (1 - (dones & ~timeouts).astype(np.float32))
        returns = np.empty_like(one_step)
        returns[-1] = later = one_step[-1]
        for step in range(self.rollout_steps - 2, -1, -1):
            mixed = rewards[step] + np.float32(self.gamma) * (
                np.float32(self.q_lambda) * later + np.float32(1 - self.q_lambda) * next_q_values[step]
            )
            returns[step] = later = np.where(dones[step], one_step[step], mixed)
        return torch.from_numpy(returns).flatten().to(self.device)

    def throw_away_update(self) -> tuple[Callable[[], object], int]:
        """An update of a copy of the policy with a minibatch of zeros; there are ``n_epochs * n_minibatches`` in a round."""
        policy = copy.deepcopy(self.policy)
        policy.set_training_mode(True)
        return partial(self._learner_of(policy).learn, [self.example()]), self.n_epochs * self.n_minibatches

    def example(self) -> QBatch:
        """A minibatch of zeros."""
        size = self.update_rows
        observations = self._learner.observations(self.session.layout.zeros(size, self.device))
        returns = torch.zeros(size, device=self.device)
        return QBatch(observations, returns.long(), returns)

    @property
    def update_rows(self) -> int:
        """Rows of a minibatch."""
        return self.rollout_steps * self.n_envs // self.n_minibatches

    def _present_rate(self) -> float:
        return float(self._rate(np.array(1.0 - self._current_progress_remaining)))

    # ------------------------------------------------------------------ SB3's other methods

    def predict(
        self,
        observation: npt.NDArray[Any] | dict[str, npt.NDArray[Any]],
        state: tuple[npt.NDArray[Any], ...] | None = None,
        episode_start: npt.NDArray[Any] | None = None,
        deterministic: bool = False,
    ) -> tuple[npt.NDArray[Any], tuple[npt.NDArray[Any], ...] | None]:
        """Actions for observations: greedy if ``deterministic``, else with the present rate of exploration, as ``DQN.predict``."""
        if deterministic or np.random.rand() >= self.exploration_rate:
            return self.policy.predict(observation, state, episode_start, deterministic)
        if not self.policy.is_vectorized_observation(observation):
            return np.array(self.action_space.sample()), state
        rows = next(iter(observation.values())) if isinstance(observation, dict) else observation
        return np.array([self.action_space.sample() for _ in rows]), state

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "q_net", "_minibatch_stream"]

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        return ["policy", "policy.optimizer"], []
