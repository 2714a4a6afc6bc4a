"""Callbacks for the trainers; any of SB3's works too."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Literal

from stable_baselines3.common.callbacks import BaseCallback

from reactor_gymnasium.plugin import checked_number
from reactor_sb3.acting.evaluator import Evaluation
from reactor_sb3.training.trainer import Trainer

__all__ = ["SaveCheckpoint", "StopOnEvaluation"]


class SaveCheckpoint(BaseCallback):
    """Saves a checkpoint every so many rounds, always to the same file, which is replaced at once.

    Args:
        path: Of the file.
        every: Rounds from one checkpoint to the next.
        on_error: What to do when a checkpoint cannot be written, because the disk is full, say: ``"warn"`` and go on, trying again
            when the next one is due, or ``"raise"``, which ends the training. Either way the file stays what it was. A folder
            that cannot be written to is an error at once.

    Raises:
        ValueError: If a number or a name makes no sense.
    """

    def __init__(self, path: str | os.PathLike[str], every: int = 100, *, on_error: Literal["warn", "raise"] = "warn") -> None:
        super().__init__()
        checked_number("every", every, 1)
        if on_error not in ("warn", "raise"):
            raise ValueError(f'on_error={on_error!r}: choose "warn" or "raise"')
        self.path, self.every, self.on_error = path, every, on_error
        self.rounds = 0

    def _on_training_start(self) -> None:
        folder = Path(self.path).parent
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(f"SaveCheckpoint({str(self.path)!r}): nothing can be written into {folder}")

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self.rounds += 1
        if self.rounds % self.every == 0:
            model = self.model
            assert isinstance(model, Trainer)
            try:
                model.save_checkpoint(self.path)
            except OSError as error:
                if self.on_error == "raise":
                    raise
                warnings.warn(
                    f"no checkpoint at {model.num_timesteps} steps: {self.path} could not be written ({error}) and is what it was "
                    f"before; the training goes on, and tries again in {self.every} rounds",
                    stacklevel=2,
                )


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
