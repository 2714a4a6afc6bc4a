"""A trainer's state, and what it can do with checkpoints; how they are written is the business of
:mod:`reactor_sb3.checkpoints.checkpoint`.
"""

from __future__ import annotations

import os
from collections import deque
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3.common.save_util import recursive_getattr
from stable_baselines3.common.utils import get_device

from reactor_sb3.acting.evaluator import Evaluation
from reactor_sb3.acting.normalization import put_statistics, statistics_state
from reactor_sb3.checkpoints import checkpoint
from reactor_sb3.checkpoints.parts import environment_state, fill_replay, overlay, replay_state, run_state
from reactor_sb3.checkpoints.run_checks import check_run, check_run_parts
from reactor_sb3.checkpoints.state_checks import check_state
from reactor_sb3.streams import restore, state_of
from reactor_sb3.training.reactor_algorithm import ReactorAlgorithm
from reactor_sb3.training.specification import program_of

__all__ = ["Resumable"]

Array = npt.NDArray[Any]
COUNTERS = (
    "num_timesteps", "_total_timesteps", "_num_timesteps_at_start", "_episode_num", "_n_updates", "_n_calls", "_learned_timesteps",
    "_current_progress_remaining", "exploration_rate", "_base_seed",
)  # fmt: skip


class Resumable(ReactorAlgorithm):
    """The part of a trainer that saves its run and goes on with it."""

    _total_timesteps: int

    # ------------------------------------------------------------------ its state

    def state(self) -> dict[str, Any]:
        """Everything that the coming rounds depend on, between two rounds."""
        buffer = getattr(self, "replay_buffer", None)
        part = None if self._run is None else self._run.snapshot().part
        return {
            "arguments": {name: self._plain_now(name, value) for name, value in self.arguments.items()},
            "environment": environment_state(self._makes),
            "counters": {name: getattr(self, name) for name in COUNTERS if hasattr(self, name)},
            "policy": dict(self.policy.state_dict()),
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self._optimizers().items()},
            "learned": self._learned_tensors(),
            "streams": {name: state_of(generator) for name, generator in self.streams().items()},
            "torch_stream": self._torch_stream,
            "episodes": [dict(info) for info in self.ep_info_buffer or ()],
            "successes": [float(one) for one in self.ep_success_buffer or ()],
            "evaluations": [[one.timesteps, list(one.returns), list(one.lengths)] for one in self.evaluations],
            "normalization": statistics_state(self._vec_normalize_env),
            "replay_buffer": replay_state(buffer, self.wants_infos),
            "sent": None if part is None else not self._outdated(),
            "run": None if part is None else run_state(part, self._saved_ports, whole_infos=self.wants_infos),
        }

    def _optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """All that step, by the names that SB3 has for them."""
        known = {name: recursive_getattr(self, name) for name in self._get_torch_save_params()[0]}
        return {name: part for name, part in known.items() if isinstance(part, torch.optim.Optimizer)}

    def _learned_tensors(self) -> dict[str, torch.Tensor]:
        """What is learned besides the policy, likewise: a coefficient, say."""
        return {name: recursive_getattr(self, name) for name in self._get_torch_save_params()[1]}

    def _plain_now(self, name: str, value: Any) -> Any:
        """A constructor's argument as it is by now, where it has become an attribute that was changed since."""
        now = vars(self).get(name, value)
        plain = (bool, int, float)
        return now if isinstance(now, plain) and isinstance(value, plain) else value

    def restore(self, state: dict[str, Any]) -> None:
        """Become what a state says, but for the run; of a trainer that was just made.

        Raises:
            CorruptError: If the state is none of such a trainer.
        """
        optimizers, learned = self._optimizers(), self._learned_tensors()
        check_state(state, self.state(), optimizers, getattr(self, "replay_buffer", None))
        for name, value in state["counters"].items():
            setattr(self, name, value)
        self.policy.load_state_dict(state["policy"])
        for name, optimizer in optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
        with torch.no_grad():
            for name, tensor in learned.items():
                tensor.copy_(state["learned"][name])
        for name, generator in self.streams().items():
            restore(generator, state["streams"][name])
        self._torch_stream = state["torch_stream"].clone()
        window = self._stats_window_size
        self.ep_info_buffer, self.ep_success_buffer = deque(state["episodes"], window), deque(state["successes"], window)
        self.evaluations = [Evaluation(steps, tuple(returns), tuple(lengths)) for steps, returns, lengths in state["evaluations"]]
        self._put_statistics(state["normalization"])
        if state["run"] is None:
            self._fill_replay(state["replay_buffer"])
        else:
            specification = self.specification()
            check_run(state["run"], specification, program_of(specification.unwatched).topology(), self.wants_infos)

    def go_on(self, state: dict[str, Any]) -> None:
        """Start the run and make it the one that a state has, if it has one.

        Raises:
            CorruptError: If it is none of this trainer.
        """
        saved = state["run"]
        if saved is None:
            return
        run = self.start()
        fresh = run.snapshot()
        check_run_parts(fresh.part, saved)
        overlay(fresh.part, saved)
        run.restore(fresh)
        self._sent = self._parameters() if state["sent"] else None
        # After the start, which would mark the end of episodes that go on.
        self._fill_replay(state["replay_buffer"])
        self._put_statistics(state["normalization"])
        self._afresh = False
        actors = [reactor for _, reactor in sorted(saved["reactors"].items()) if "random" in reactor]
        begun = np.array([one["way"] is None and one["episode"] >= 0 for actor in actors for one in actor["envs"]], np.bool_)
        if self.pipeline:
            self._late_cut = begun
        else:
            self.cut_episodes(begun)

    def _put_statistics(self, saved: Any) -> None:
        if saved is not None and self._vec_normalize_env is not None:
            put_statistics(self._vec_normalize_env, saved)

    def _fill_replay(self, saved: Any) -> None:
        if saved is not None:
            target: Any = self
            target.replay_buffer = fill_replay(target.replay_buffer, saved)

    # ------------------------------------------------------------------ files

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
        checkpoint.save(path, type(self).__name__, self.state())

    @classmethod
    def resume(cls, path: str | os.PathLike[str], env: Any = None, *, allow_pickle: bool = True, **changed: Any) -> Self:
        """Go on from a checkpoint: ``model.learn(model.remaining_timesteps, reset_num_timesteps=False)`` ends as it would have.

        Args:
            path: Of the file.
            env: In place of the environment that was saved; must be of the same kind.
            allow_pickle: Whether to load what pickle holds, which executes code: do not load files from others. If not, only
                checkpoints without pickles can be resumed, nothing is imported for them (an id ``"module:Name"`` needs a module
                that you have imported), and nothing is made that is much larger than the file. Nor does the file say where to
                run and to write then: of what ``changed`` may name, all but devices are the constructor's defaults, or given here.
            **changed: Arguments of the constructor that never change results: ``workers``, ``executor``, ``nodes`` (which another
                executor has to be given anew), ``start_method``, ``restarts``, ``round_timeout``, ``verbose``,
                ``tensorboard_log``; ``device`` and what ends with ``_device``, which change last bits only; and ``watch`` and what
                begins with ``watch_``, of which a checkpoint has none.

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
        free = {*checkpoint.PLACES, *cls.devices}
        if not free >= set(changed):
            raise TypeError(f"resume() cannot change {', '.join(sorted(set(changed) - free))}: the run would no longer be the same")
        model: Self = checkpoint.load(cls, path, env, allow_pickle, changed)
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
        if "device" in kwargs:
            kwargs["device"] = get_device(kwargs["device"])  # as in SB3, a model from a GPU is loaded where there is none
        return super().load(path, *args, **kwargs)

    @property
    def remaining_timesteps(self) -> int:
        """Steps that the last call of :meth:`learn` still had to take."""
        return max(0, self._total_timesteps - self.num_timesteps)
