"""``PQN``: Q-learning from fresh rounds only (Gallici et al. 2024); its networks are in ``pqn_policies.py``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Unpack

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import Schedule
from torch.nn.functional import mse_loss

from reactor_gymnasium.plugin import checked_number
from reactor_sb3 import formulas
from reactor_sb3.acting.epsilon_greedy import EpsilonGreedy, checked_spread
from reactor_sb3.acting.policy import Policy
from reactor_sb3.algorithms.pqn_policies import CnnPolicy, MlpPolicy, MultiInputPolicy, PQNPolicy
from reactor_sb3.trainers.on_policy import OnPolicyTrainer, Rollouts
from reactor_sb3.trainers.options import Options, check_slices, keeps_arguments
from reactor_torch import Batch, Networks
from reactor_torch.loss import Formula, Loss, Network, Update

__all__ = ["PQN", "Annealed", "QBatch", "QLoss"]

Array = npt.NDArray[Any]


@dataclass
class QBatch(Batch):
    """Observations, actions, and the returns that the actions' values are to become.

    Attributes:
        observations: ``(rows, ...)``, or a dict of such.
        actions: ``(rows,)``, int64.
        returns: ``(rows,)``, float32.
    """

    observations: Any
    actions: torch.Tensor
    returns: torch.Tensor


@dataclass(frozen=True)
class QLoss(Loss):
    """Half the squared difference of the values of actions taken and their returns."""

    learns, reads, statistics = "q_net", (), ("loss",)

    def __call__(self, nets: Mapping[str, Any], batch: QBatch) -> tuple[torch.Tensor, ...]:
        """The loss."""
        values = nets["q_net"](batch.observations).gather(1, batch.actions.view(-1, 1))[:, 0]
        return (0.5 * mse_loss(values, batch.returns),)

    def formula(self, nets: Networks) -> Formula | None:
        """For dense layers."""
        return formulas.q_values(self, nets, weight=0.5)


@dataclass(frozen=True)
class Annealed:
    """A schedule that falls linearly, from ``initial`` in the first round towards 0 after the last."""

    initial: float

    def __call__(self, progress_remaining: float) -> float:
        return self.initial * progress_remaining


class PQN(OnPolicyTrainer, BaseAlgorithm):
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
    draws_noise: ClassVar[bool] = False
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
        self.n_steps, self.n_minibatches, self.n_epochs = int(rollout_steps), int(n_minibatches), int(n_epochs)
        self.gamma, self.q_lambda, self.max_grad_norm = gamma, q_lambda, max_grad_norm
        self.exploration_fraction = exploration_fraction
        self.exploration_initial_eps, self.exploration_final_eps = exploration_initial_eps, exploration_final_eps
        self.exploration_rate, self.epsilon_spread = 0.0, checked_spread(epsilon_spread)
        self.construct(BaseAlgorithm)
        if _init_setup_model:
            self._setup_model()

    def _for_host(self) -> dict[str, Any]:
        return {**super()._for_host(), "support_multi_env": True, "supported_action_spaces": (spaces.Discrete,)}

    def _setup_policy(self) -> None:
        size = self.n_steps * self.n_envs
        if size % self.n_minibatches:
            raise ValueError(
                f"n_minibatches={self.n_minibatches} does not divide a round of {size} transitions "
                f"({self.n_steps} steps in {self.n_envs} environments)"
            )
        check_slices(self.n_learners, self.minibatch_rows, str(self.minibatch_rows))
        self._setup_lr_schedule()
        self.set_random_seed(self.seed)
        policy: Any = self.policy_class
        self.policy = policy(self.observation_space, self.action_space, self.lr_schedule, **self.policy_kwargs).to(self.device)
        self.q_net = self.policy.q_net

    def networks(self) -> dict[str, Network]:
        """The Q-network."""
        return {"q_net": Network(self.policy.q_net, self.policy.optimizer, self.max_grad_norm)}

    def losses(self) -> dict[str, Loss]:
        """Half the squared error."""
        return {"q_net": QLoss()}

    def acting(self) -> tuple[torch.nn.Module, Policy]:
        """The Q-network, and actions that are greedy but for some."""
        return self.policy.q_net, EpsilonGreedy.of(self.policy.q_net, self.action_space, self.epsilon_spread)

    def batch(self, rollouts: Rollouts) -> QBatch:
        """A round with its Q(lambda) returns: Gallici et al. 2024, with the values that the network has before the updates."""
        rewards, dones, timeouts = rollouts.steps("rewards"), rollouts.steps("dones"), rollouts.steps("timeouts")
        gamma, mix = np.float32(self.gamma), np.float32(self.q_lambda)
        with torch.no_grad():
            following = self.policy.q_net(rollouts.tensors("next_observations")).amax(1).cpu().numpy().reshape(rewards.shape)
        one_step = rewards + gamma * following * (1 - (dones & ~timeouts).astype(np.float32))
        returns = np.empty_like(one_step)
        returns[-1] = later = one_step[-1]
        for step in range(len(rewards) - 2, -1, -1):
            longer = rewards[step] + gamma * (mix * later + np.float32(1 - self.q_lambda) * following[step])
            returns[step] = later = np.where(dones[step], one_step[step], longer)
        actions = torch.as_tensor(rollouts.steps("actions")).flatten().to(self.device)
        return QBatch(self.seen(rollouts.tensors("observations")), actions, torch.from_numpy(returns).flatten().to(self.device))

    def minibatches(self, batch: QBatch) -> Iterator[QBatch]:
        """A pass: all rows in a new order."""
        for rows in self.permutation(len(batch.returns)).chunk(self.n_minibatches):
            yield batch[rows]

    def update(self, minibatch: QBatch) -> Update:
        """A step along the gradients of a minibatch."""
        self._n_updates += 1
        found = yield from self.descend(q_net=minibatch)
        return {**found, "q_return": float(minibatch.returns.mean())}

    @property
    def minibatch_rows(self) -> int:
        """Rows of a minibatch."""
        return self.n_steps * self.n_envs // self.n_minibatches

    @property
    def steps_of_schedules(self) -> int:
        """Those before the round: at the end of the last one nothing remains, and neither would its learning rate."""
        return self._learned_timesteps - self.rollout_steps * self.n_envs

    def exploration_rates(self) -> Array:
        """Linear in the steps, those included that are about to be taken, until ``exploration_fraction`` of them."""
        steps = self.num_timesteps + self.n_envs * np.arange(1, self.n_steps + 1)
        return self._rate(steps / float(self._total_timesteps)).astype(np.float32)

    def _rate(self, progress: Array) -> Array:
        part = np.minimum(progress / max(self.exploration_fraction, 1e-12), 1.0)
        return self.exploration_initial_eps + part * (self.exploration_final_eps - self.exploration_initial_eps)

    def round_done(self) -> None:
        """Tell the rate of exploration."""
        self.log_exploration(float(self._rate(np.array(1.0 - self._current_progress_remaining))))

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
        return [*super()._excluded_save_params(), "q_net"]

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        return ["policy", "policy.optimizer"], []
