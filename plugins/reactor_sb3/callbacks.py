"""Callbacks for the trainers; any of SB3's works too."""

from __future__ import annotations

import os

from stable_baselines3.common.callbacks import BaseCallback

from reactor_gymnasium.arguments import checked_number
from reactor_sb3.evaluator import Evaluation
from reactor_sb3.trainer import Trainer

__all__ = ["SaveCheckpoint", "StopOnEvaluation"]


class SaveCheckpoint(BaseCallback):
    """Saves a checkpoint every so many rounds, always to the same file, which is replaced at once.

    Args:
        path: Of the file.
        every: Rounds from one checkpoint to the next.
    """

    def __init__(self, path: str | os.PathLike[str], every: int = 100) -> None:
        super().__init__()
        checked_number("every", every, 1)
        self.path, self.every = path, every
        self.rounds = 0

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self.rounds += 1
        if self.rounds % self.every == 0:
            model = self.model
            assert isinstance(model, Trainer)
            model.save_checkpoint(self.path)


class StopOnEvaluation(BaseCallback):
    """Ends the training when an evaluation of the trainer's own (``evaluate_every``) has reached a mean return.

    Evaluations that were there before this call of ``learn()`` do not count.

    Args:
        mean: The return.
    """

    def __init__(self, mean: float) -> None:
        super().__init__()
        self.mean = mean
        self.before = 0

    def _on_training_start(self) -> None:
        self.before = len(self._evaluations())

    def _on_step(self) -> bool:
        return all(one.mean < self.mean for one in self._evaluations()[self.before :])

    def _evaluations(self) -> list[Evaluation]:
        model = self.model
        assert isinstance(model, Trainer)
        return model.evaluations
