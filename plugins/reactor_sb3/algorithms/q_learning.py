"""Every kind of deep Q-learning: a round teaches one network, and a target follows it."""

from __future__ import annotations

from typing import Any, ClassVar

from reactor_sb3.trainers.off_policy import OffPolicyTrainer
from reactor_torch import Network, TransitionBatch, Update

__all__ = ["QLearningTrainer"]


class QLearningTrainer(OffPolicyTrainer):
    """Q-learning with the policies, schedules and arguments of SB3's ``DQN``."""

    usual_train_freq: ClassVar[int] = 4
    draws_noise: ClassVar[bool] = False
    learned: ClassVar[str] = "q_net"
    """Name of the policy's network, and of its loss; the target's has ``"_target"`` behind it."""

    exploration_schedule: Any  # as SB3's DQN has it

    def networks(self) -> dict[str, Network]:
        """The network and its target, which stays as it is during a round."""
        model: Any = self  # SB3's classes have the attributes
        policy, name, target = model.policy, self.learned, f"{self.learned}_target"
        return {
            name: Network(getattr(policy, name), policy.optimizer, model.max_grad_norm),
            target: Network(getattr(policy, target), fixed=True),
        }

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
