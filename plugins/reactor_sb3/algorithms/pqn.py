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
from stable_baselines3 import DQN
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import Schedule
from torch.nn.functional import mse_loss

from reactor_sb3.acting.behaviours import Behaviour, EpsilonGreedy
from reactor_sb3.algorithms.pqn_policies import ANNEALED, Annealed, CnnPolicy, MlpPolicy, MultiInputPolicy, PQNPolicy
from reactor_sb3.learned import read_q_net
from reactor_sb3.policies import read_policy
from reactor_sb3.trainers.on_policy import OnPolicyTrainer, Rollouts, lambda_returns
from reactor_sb3.trainers.options import Options, keeps_arguments
from reactor_torch import Loss, Network, QBatch, Update, q_loss

__all__ = ["PQN", "Annealed", "QLoss"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class QLoss(Loss):
    """Half the squared difference of the values of actions taken and their returns."""

    learns, reads, statistics = "q_net", (), ("loss",)

    def __call__(self, nets: Mapping[str, Any], batch: QBatch) -> tuple[torch.Tensor, ...]:
        """The loss."""
        values = nets["q_net"](batch.observations).gather(1, batch.actions.view(-1, 1))[:, 0]
        return (0.5 * mse_loss(values, batch.returns),)

    def fast(self, nets: Mapping[str, Any], batch: QBatch, share: float) -> tuple[float, ...]:
        """The same by the extension."""
        values = nets["q_net"].forward(batch.observations)
        loss, by_values = q_loss(values, batch.actions, batch.returns, 0.5 * share)
        nets["q_net"].backward(by_values)
        return (loss,)


class PQN(OnPolicyTrainer, BaseAlgorithm):
    """Q-learning from fresh rounds only: Q(lambda) returns, layer normalisation instead of a target network, no replay.

    Gallici et al. 2024, "Simplifying Deep Temporal Difference Learning". Defaults, networks and schedules are those of CleanRL's
    ``pqn.py``: the first round is learned at the whole learning rate, the last of ``n`` at ``1 / n`` of it, and a step explores
    with the rate that the schedule has when it is counted. Returns and loss (half the squared error) are the paper's: nothing of
    the next episode enters a return; where a time limit cuts an episode off, it goes on with the value of the last observation.

    Args:
        policy: ``"MlpPolicy"``, ``"CnnPolicy"``, ``"MultiInputPolicy"``, or a subclass of their class.
        learning_rate: A number, or a function of what remained of the training (1 to 0) when the round began.
        n_steps: Steps of each environment in a round.
        n_minibatches: Number of minibatches that a round is divided into.
        n_epochs: Passes over each round.
        gamma: Discount.
        q_lambda: Weight of longer returns, 0 (one step) to 1 (the whole round).
        exploration_fraction: Part of the training during which the rate of exploration falls.
        exploration_initial_eps, exploration_final_eps: Rate of exploration before it, and behind it.
        max_grad_norm: Norm that gradients are clipped to.
        env, stats_window_size, tensorboard_log, policy_kwargs, verbose, seed, device, epsilon_spread: As for
            :class:`~reactor_sb3.SyncDQN`.
        **options: Keywords of every trainer, see :class:`~reactor_sb3.RunOptions`; ``n_actors`` is 4 by default.

    Raises:
        TypeError, AssertionError: If no environments like ``env`` can be made, or its actions are not discrete.
        ValueError: If a number makes no sense.

    Example:
        >>> from reactor_sb3 import PQN
        >>> with PQN("MlpPolicy", "CartPole-v1", n_steps=16, seed=0, workers=2) as model:
        ...     model.learn(128).num_timesteps
        128
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        "MlpPolicy": MlpPolicy, "CnnPolicy": CnnPolicy, "MultiInputPolicy": MultiInputPolicy,
    }  # fmt: skip
    default_log_name, usual_actors = "PQN", 4
    policy: PQNPolicy
    exploration_rate = 0.0
    predict = DQN.predict  # greedy if deterministic, else with the present rate of exploration

    @keeps_arguments
    def __init__(
        self,
        policy: str | type[PQNPolicy],
        env: gymnasium.Env[Any, Any] | str | Any,
        learning_rate: float | Schedule = ANNEALED,
        n_steps: int = 128,
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
        self.n_steps, self.n_minibatches, self.n_epochs = int(n_steps), int(n_minibatches), int(n_epochs)
        self.gamma, self.q_lambda, self.max_grad_norm = gamma, q_lambda, max_grad_norm
        self.exploration_fraction, self.exploration_initial_eps = exploration_fraction, exploration_initial_eps
        self.exploration_final_eps, self.epsilon_spread = exploration_final_eps, float(epsilon_spread)
        self.construct(BaseAlgorithm)

    def _for_host(self) -> dict[str, Any]:
        return {**super()._for_host(), "supported_action_spaces": (spaces.Discrete,)}

    def _setup_policy(self) -> None:
        self.check_settings()
        super()._setup_policy()

    def check_settings(self) -> None:
        """Refuse minibatches that do not make up a round."""
        if (size := self.n_steps * self.n_envs) % self.n_minibatches:
            raise ValueError(
                f"n_minibatches={self.n_minibatches} does not divide a round of {size} transitions "
                f"({self.n_steps} steps in {self.n_envs} environments)"
            )

    @property
    def q_net(self) -> torch.nn.Module:
        """The Q-network."""
        return self.policy.q_net

    def networks(self) -> dict[str, Network]:
        """The Q-network."""
        return {"q_net": Network(self.q_net, self.policy.optimizer, self.max_grad_norm, read=read_q_net)}

    def losses(self) -> dict[str, Loss]:
        """Half the squared error."""
        return {"q_net": QLoss()}

    def acting(self) -> tuple[torch.nn.Module, Behaviour]:
        """The Q-network, and actions that are greedy but for some."""
        source = read_policy(self.policy)
        return source.module, EpsilonGreedy(source.policy, self.epsilon_spread)

    def batch(self, rollouts: Rollouts) -> QBatch:
        """A round with its Q(lambda) returns: Gallici et al. 2024, with the values that the network has before the updates."""
        rewards, dones, timeouts = rollouts.steps("rewards"), rollouts.steps("dones"), rollouts.steps("timeouts")
        with torch.no_grad():
            following = self.q_net(rollouts.tensors("next_observations")).amax(1).cpu().numpy().reshape(rewards.shape)
        returns = lambda_returns(rewards, following, dones, timeouts, self.gamma, self.q_lambda)
        actions = torch.as_tensor(rollouts.steps("actions")).flatten().to(self.device)
        return QBatch(self.seen(rollouts.tensors("observations")), actions, torch.from_numpy(returns).flatten().to(self.device))

    def minibatches(self, batch: QBatch) -> Iterator[QBatch]:
        """A pass: all rows in a new order."""
        self.logger.record("train/q_return", float(batch.returns.mean()))
        for rows in self.permutation(len(batch.returns)).chunk(self.n_minibatches):
            yield batch[rows]

    def update(self, minibatch: QBatch) -> Update:
        """A step along the gradients of a minibatch."""
        self._n_updates += 1
        return (yield from self.descend(q_net=minibatch))

    @property
    def minibatch_rows(self) -> int:
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
