"""Callbacks for the trainers; any of SB3's works too."""

from __future__ import annotations

import os
import warnings
from abc import abstractmethod
from pathlib import Path
from typing import Literal

from stable_baselines3.common.callbacks import BaseCallback

from reactor_gymnasium.plugin import checked_number
from reactor_sb3.acting.evaluator import Evaluation
from reactor_sb3.checkpoints import saved_run
from reactor_sb3.trainers.trainer import Trainer

__all__ = ["SaveCheckpoint", "SaveRun", "StopOnEvaluation"]


class _Saving(BaseCallback):
    """Saves to a file now and then."""

    unit: str
    """The unit of ``every``."""

    def __init__(self, path: str | os.PathLike[str], every: int, on_error: Literal["warn", "raise"]) -> None:
        super().__init__()
        checked_number("every", every, 1)
        if on_error not in ("warn", "raise"):
            raise ValueError(f'on_error={on_error!r}: choose "warn" or "raise"')
        self.path, self.every, self.on_error = path, every, on_error

    def _on_training_start(self) -> None:
        folder = Path(self.path).parent
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(
                f"{type(self).__name__}({str(self.path)!r}): nothing can be written into {folder}, by its permissions or "
                "because its file system is read-only"
            )

    def _on_step(self) -> bool:
        return True

    @abstractmethod
    def _write(self) -> None:
        """Write the file."""

    def _save(self) -> None:
        try:
            self._write()
        except OSError as error:
            if self.on_error == "raise":
                raise
            warnings.warn(
                f"no checkpoint at {self.model.num_timesteps} steps: {self.path} could not be written "
                f"({error.strerror or error}) and is what it was before; the training goes on, "
                f"and tries again in {self.every} {self.unit}",
                stacklevel=3,
            )


def _trainer_of(callback: BaseCallback) -> Trainer:
    """The trainer that a callback watches.

    Raises:
        TypeError: If it is an algorithm of somebody else's.
    """
    model = callback.model
    if not isinstance(model, Trainer):
        instead = "SaveRun" if isinstance(callback, _Saving) else "StopTrainingOnRewardThreshold"
        raise TypeError(
            f"{type(callback).__name__} is for trainers of reactor_sb3, such as SyncPPO, got {type(model).__name__}: "
            f"use {instead} with algorithms of SB3"
        )
    return model


class SaveCheckpoint(_Saving):
    """Saves a checkpoint every so many rounds, always to the same file, which is replaced at once.

    Args:
        path: The file.
        every: Rounds from one checkpoint to the next.
        on_error: What to do when a checkpoint cannot be written, because the disk is full, say: ``"warn"`` and go on, trying again
            when the next one is due, or ``"raise"``, which ends the training. Either way the file stays what it was. A folder
            that cannot be written to is an error at once.

    Raises:
        ValueError: If a number or a name makes no sense.
        TypeError: When a training begins that is not one of a trainer of ``reactor_sb3``.
    """

    unit = "rounds"

    def __init__(self, path: str | os.PathLike[str], every: int = 100, *, on_error: Literal["warn", "raise"] = "warn") -> None:
        super().__init__(path, every, on_error)
        self.rounds = 0

    def _on_rollout_end(self) -> None:
        self.rounds += 1
        if self.rounds % self.every == 0:
            self._save()

    def _on_training_start(self) -> None:
        _trainer_of(self)  # for its error
        super()._on_training_start()

    def _write(self) -> None:
        _trainer_of(self).save_checkpoint(self.path)


class SaveRun(_Saving):
    """Saves a run of one of SB3's own algorithms, always to the same file, which is replaced at once.

    For PPO, A2C, DQN, SAC and TD3 on a :class:`~reactor_sb3.ReactorVecEnv`, with any of SB3's wrappers around it that can be
    pickled. What :func:`~reactor_sb3.resume_run` makes of the file ends with the weights of a run that was never interrupted, bit
    for bit. In the file are weights and optimisers, the replay buffer, the wrappers' state (the statistics of ``VecNormalize``),
    counters and schedules, the exact state of every environment, and that of the random generators of the process. Other callbacks
    and the logger are not.

    It is written between two rollouts, after the training on the last one. What could not be saved is refused when the training
    begins: environments that cannot be restored exactly, and other vector environments and algorithms.

    Args:
        path: The file.
        every: Environment steps from one save to the next; it is written at the end of the rollout within which they are over.
        on_error: As for :class:`SaveCheckpoint`.

    Raises:
        ValueError: If a number or a name makes no sense.
    """

    unit = "steps"

    def __init__(self, path: str | os.PathLike[str], every: int = 100_000, *, on_error: Literal["warn", "raise"] = "warn") -> None:
        super().__init__(path, every, on_error)
        self._seen = 0  # multiples of `every`

    def _on_training_start(self) -> None:
        super()._on_training_start()
        self._seen = self.model.num_timesteps // self.every
        saved_run.state_of_run(self.model)  # for its errors

    def _on_rollout_start(self) -> None:
        seen = self.model.num_timesteps // self.every
        if seen > self._seen:
            self._seen = seen
            self._save()

    def _write(self) -> None:
        saved_run.write(self.path, self.model)


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
        return _trainer_of(self).evaluations
