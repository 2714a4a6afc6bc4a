"""``SyncDQN``: synchronised parallel Q-learning (Kwok, Lohstroh, Lee 2023), SB3's ``DQN`` on all cores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Unpack

import gymnasium
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.type_aliases import Schedule
from stable_baselines3.dqn.policies import DQNPolicy
from torch.nn.functional import mse_loss, smooth_l1_loss

from reactor_sb3.acting.behaviours import Behaviour, EpsilonGreedy
from reactor_sb3.learned import read_q_net
from reactor_sb3.policies import read_policy
from reactor_sb3.trainers.off_policy import OffPolicyTrainer
from reactor_sb3.trainers.options import Options, keeps_arguments
from reactor_torch import Loss, Network, TransitionBatch, Update, q_loss, q_targets

__all__ = ["DQNLoss", "QLearningTrainer", "SyncDQN"]


@dataclass(frozen=True)
class DQNLoss(Loss):
    """Difference of the values of actions taken, and rewards with what a target network says of the next observation.

    Attributes:
        double_q: Whether the network that learns chooses the next action and the target only values it (van Hasselt et al. 2016).
        kind: ``"mse"``, or ``"huber"`` (squares up to 1, then linear).
    """

    double_q: bool
    kind: Literal["huber", "mse"]
    learns, reads, statistics = "q_net", ("q_net_target",), ("loss",)

    def __call__(self, nets: Mapping[str, Any], batch: TransitionBatch) -> tuple[torch.Tensor, ...]:
        """The loss."""
        with torch.no_grad():
            following = nets["q_net_target"](batch.next_observations)
            chooses = nets["q_net"](batch.next_observations) if self.double_q else following
            q_values = following.gather(1, chooses.argmax(1, keepdim=True))
            returns = batch.rewards + (1 - batch.dones) * batch.discounts * q_values
        values = nets["q_net"](batch.observations).gather(1, batch.actions)
        return ((smooth_l1_loss if self.kind == "huber" else mse_loss)(values, returns),)

    def fast(self, nets: Mapping[str, Any], batch: TransitionBatch, share: float) -> tuple[float, ...]:
        """The same by the extension."""
        q_net = nets["q_net"]
        following = nets["q_net_target"].forward(batch.next_observations)
        returns = q_targets(batch, following, q_net.forward(batch.next_observations) if self.double_q else None)
        loss, by_values = q_loss(q_net.forward(batch.observations), batch.actions, returns, share, self.kind == "huber")
        q_net.backward(by_values)
        return (loss,)


class QLearningTrainer(OffPolicyTrainer):
    """Q-learning with the policies, schedules and arguments of SB3's ``DQN``."""

    usual_train_freq: ClassVar[int] = 4
    learned: ClassVar[str] = "q_net"
    """Name of the policy's network, and of its loss; the target's has ``"_target"`` behind it."""
    _read: ClassVar[Any] = staticmethod(read_q_net)

    exploration_schedule: Any  # as SB3's DQN has it
    epsilon_spread: float

    def networks(self) -> dict[str, Network]:
        """The network and its target, which stays as it is during a round."""
        model: Any = self  # SB3's classes have the attributes
        policy, name, target = model.policy, self.learned, f"{self.learned}_target"
        return {
            name: Network(getattr(policy, name), policy.optimizer, model.max_grad_norm, read=self._read),
            target: Network(getattr(policy, target), fixed=True, read=self._read),
        }

    def acting(self) -> tuple[torch.nn.Module, Behaviour]:
        """The network, and actions that are greedy but for some."""
        source = read_policy(self.policy)
        return source.module, EpsilonGreedy(source.policy, self.epsilon_spread)

    def batch(self, transitions: dict[str, Any]) -> TransitionBatch:
        """Transitions; which action was taken is a number."""
        return TransitionBatch(**transitions | {"actions": transitions["actions"].long()})

    def update(self, batch: TransitionBatch) -> Update:
        """A step along the gradients of a minibatch."""
        return (yield from self.descend(**{self.learned: batch}))

    def round_stored(self) -> None:
        """Move the target as often as it is time: all moves of a round come before its gradient steps, as in SB3."""
        self.follow_by_steps(f"{self.learned}_target", self.learned)

    def exploration_at(self, timesteps: int) -> float:
        """The schedule's rate."""
        return float(self.exploration_schedule(1.0 - timesteps / float(self._total_timesteps)))

    def round_done(self) -> None:
        """Tell the rate of exploration."""
        super().round_done()
        self.log_exploration(self.exploration_schedule(self._current_progress_remaining))


class SyncDQN(QLearningTrainer, DQN):
    """Deep Q-learning whose actors sample in parallel and whose results do not depend on how many cores do it.

    One round is a tick of a reactor program: the parameters are broadcast, each of ``n_actors`` actors takes ``train_freq``
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
        **options: ``n_actors``, ``workers``, ``executor``, ``evaluate_every``, and others;
            see :class:`~reactor_sb3.RunOptions`.

    Raises:
        TypeError: If no environments like ``env`` can be made, or there is an argument ``n_envs``.
        AssertionError: If its actions are not discrete (SB3's own check).
        ValueError: If a number makes no sense, the replay buffer is smaller than a batch or a round, or something is asked for that
            rounds of fixed length cannot give: episodic ``train_freq``.

    Warns:
        UserWarning: If there are less than a quarter as many updates for each step as SB3 has by default, with the number to give.

    Example:
        >>> from reactor_sb3 import SyncDQN
        >>> with SyncDQN("MlpPolicy", "CartPole-v1", n_actors=4, train_freq=16, seed=0, workers=2) as model:
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
        **options: Unpack[Options],
    ) -> None:
        if buffer_size < batch_size:
            raise ValueError(f"buffer_size={buffer_size} is smaller than a batch of {batch_size}; make the replay buffer larger")
        if loss not in ("huber", "mse"):
            raise ValueError(f'loss={loss!r}: choose "huber" or "mse"')
        self.double_q, self.loss, self.epsilon_spread = bool(double_q), loss, float(epsilon_spread)
        self.construct(DQN)

    def losses(self) -> dict[str, Loss]:
        """The one of ``loss`` and ``double_q``."""
        return {"q_net": DQNLoss(self.double_q, self.loss)}
