"""What a trainer can do with checkpoints; what is in them is the business of :mod:`reactor_sb3.checkpoints.checkpoint`."""

from __future__ import annotations

import os
from typing import Any, Self

from stable_baselines3.common.base_class import BaseAlgorithm

from reactor_sb3.checkpoints import checkpoint

__all__ = ["Resumable"]


class Resumable(BaseAlgorithm):
    """The part of a trainer that saves its run and goes on with it."""

    _total_timesteps: int
    _in_round: bool
    """Whether a round has begun that has not been told in full."""
    _due: list[str | os.PathLike[str]]
    """Checkpoints to be written when it has."""

    def save_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Save everything that the coming rounds depend on.

        A run that is resumed from it ends with the same weights, bit for bit, as one that was never interrupted, on any number of
        workers. The file is replaced at once: whenever the process is killed, there is the old checkpoint or the new one. Weights,
        buffers and counters in it are arrays and JSON; environments' states, factories and functions that the user has passed are
        pickles, listed in its ``manifest.json``.

        Between two rounds (in a callback's ``_on_rollout_end``, or when :meth:`learn` is over) it is written at once. Within one
        (in ``_on_step``) the learner is ahead of what callbacks have seen: then it is written when they have seen the whole round,
        before ``_on_rollout_end``, and what goes wrong with it is raised by :meth:`learn`.

        Args:
            path: Of the file.

        Warns:
            UserWarning: If an environment can neither be saved nor replayed, so that a resumed run begins a new episode there.

        Raises:
            ValueError: If the model has no environment.
            OSError: If the file cannot be written; the old one is then still there, and the training can go on.
        """
        if self.env is None:
            raise ValueError("a model without an environment has no run to go on with; use save() for its weights")
        if not self._in_round:
            self._write(path)
        elif path not in self._due:
            self._due.append(path)

    def _save_due(self) -> None:
        """Write the checkpoints that were wanted within the round that is over."""
        due, self._due = self._due, []
        for path in due:
            self._write(path)

    def _write(self, path: str | os.PathLike[str]) -> None:
        trainer: Any = self
        checkpoint.save(trainer, path)

    @classmethod
    def resume(cls, path: str | os.PathLike[str], env: Any = None, *, allow_pickle: bool = True, **changed: Any) -> Self:
        """Go on from a checkpoint: ``model.learn(model.remaining_timesteps, reset_num_timesteps=False)`` ends as it would have.

        Args:
            path: Of the file.
            env: In place of the environment that was saved; must be of the same kind.
            allow_pickle: Whether to load what pickle holds, which executes code: do not load files from others. If not, only
                checkpoints without pickles can be resumed, nothing is imported for them (an id ``"module:Name"`` needs a module
                that you have imported), and nothing is made that is much larger than the file.
            **changed: Arguments of the constructor that never change results: ``workers``, ``executor``, ``start_method``,
                ``device``, ``verbose``, ``tensorboard_log``.

        Returns:
            The model.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If it is damaged, of another algorithm or version, or holds pickles that are not allowed.
            ImportError: If a pickle in it needs what cannot be imported here.
            TypeError: If ``changed`` names something that would change results.

        Warns:
            UserWarning: If it was written with other versions or on another kind of processor, whose last bits may differ.
        """
        free = {"workers", "executor", "start_method", "device", "verbose", "tensorboard_log"}
        if not free >= set(changed):
            raise TypeError(f"resume() cannot change {', '.join(sorted(set(changed) - free))}: the run would no longer be the same")
        kind: Any = cls
        model: Self = checkpoint.load(kind, path, env, allow_pickle, changed)
        return model

    @classmethod
    def load(cls, path: Any, *args: Any, **kwargs: Any) -> Self:
        """See SB3; for what ``save()`` has written.

        Raises:
            ValueError: If it is a checkpoint.
        """
        if checkpoint.is_checkpoint(path):
            raise ValueError(
                f"{path} is a checkpoint: it has a run to go on with. Use {cls.__name__}.resume(), or load() with a file that "
                "save() has written"
            )
        return super().load(path, *args, **kwargs)

    @property
    def remaining_timesteps(self) -> int:
        """Steps that the last call of :meth:`learn` still had to take."""
        return max(0, self._total_timesteps - self.num_timesteps)
