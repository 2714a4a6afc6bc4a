"""How every trainer trains: the loop of rounds behind SB3's ``learn()``, and what SB3's other methods mean for it."""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
import numpy.typing as npt
from stable_baselines3.common import utils
from stable_baselines3.common.callbacks import BaseCallback, ConvertCallback
from stable_baselines3.common.type_aliases import MaybeCallback
from stable_baselines3.common.utils import get_device

from reactor_sb3.checkpoints import checkpoint
from reactor_sb3.environments.makers import live_count, maker_of
from reactor_sb3.training.reporter import Reporter
from reactor_sb3.training.watching import WATCHING

if TYPE_CHECKING:
    from reactor_rl import Run

__all__ = ["Trainer"]

Array = npt.NDArray[Any]


class Trainer(Reporter):
    """An SB3 algorithm that samples, learns, evaluates, shows and logs at the same time, with results that do not depend on how.

    A subclass says how its actors act (:meth:`acting`, :meth:`exploration_rates`) and what it learns
    from a round (:meth:`learn_from`).
    """

    default_log_name: ClassVar[str] = "run"
    _total_timesteps: int

    # ------------------------------------------------------------------ learning

    def learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int | None = 4,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Train.

        Callbacks are called when a round is done: ``on_step`` once for each step of all environments, in the order in which they
        were taken, with the arrays that SB3 gives them (a row for each environment, in actor order). One that returns ``False``
        ends the training with that round.

        Args:
            total_timesteps: Steps to take in all environments together; whole rounds of ``rollout_steps * n_envs`` are taken.
            callback: As for any SB3 algorithm.
            log_interval: Episodes between two logs; at most one log a round.
            tb_log_name: Name of the run in TensorBoard.
            reset_num_timesteps: Whether to count steps from 0 and begin new episodes, or to go on.
            progress_bar: Whether to show one.

        Returns:
            The model.

        Raises:
            Exception: What an environment raised, with its actor and the tag.
            WorkerDiedError: If a worker process ended.
        """
        total_timesteps, callback = self._setup_learn(
            total_timesteps, callback, reset_num_timesteps, tb_log_name or self.default_log_name, progress_bar
        )
        callback.on_training_start(locals(), globals())
        watched = not (isinstance(callback, ConvertCallback) and callback.callback is None)
        try:
            run = self.start()
            self.start_time = time.time_ns()  # starting workers is no sampling
            self._begin_rates()
            if self._outdated():  # set_parameters(), say: what is under way is out of date
                run.set(parameters=self._parameters())
            for sentence in self._advice:
                self.logger.info(sentence)
            while self.num_timesteps < total_timesteps:
                callback.on_rollout_start()
                self._in_round = True
                self._tick(run, watched)
                go_on = self._account(run, callback if watched else None, log_interval)
                self._in_round = False
                self._save_due()
                if not go_on:
                    break
                callback.on_rollout_end()
            self._write_records()
            self._sent = self._parameters()
            if self.num_timesteps > self._num_timesteps_at_start:
                with self.limited_threads():
                    self._show_trained(max(self._learned_timesteps, 0), self._sent)
        except BaseException:
            with contextlib.suppress(Exception):
                self.close()
            raise
        finally:
            self._in_round, self._due = False, []
        callback.on_training_end()
        return self

    def _setup_learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        reset_num_timesteps: bool = True,
        tb_log_name: str = "run",
        progress_bar: bool = False,
    ) -> tuple[int, BaseCallback]:
        # SB3's own would reset the environments of `get_env()`, which the actors do not use.
        self._begin_learning(reset_num_timesteps)
        self.start_time = time.time_ns()
        if self.ep_info_buffer is None or self.ep_success_buffer is None or reset_num_timesteps:
            self.ep_info_buffer = deque(maxlen=self._stats_window_size)
            self.ep_success_buffer = deque(maxlen=self._stats_window_size)
        if reset_num_timesteps:
            self._learned_timesteps -= self.num_timesteps  # not 0 if a round is still under way
            self.num_timesteps = self._episode_num = 0
            self._afresh = True
        else:
            total_timesteps += self.num_timesteps
        self._total_timesteps, self._num_timesteps_at_start = total_timesteps, self.num_timesteps
        self._update_current_progress_remaining(self.num_timesteps, max(total_timesteps, 1))
        if not self._custom_logger:
            self._logger = utils.configure_logger(self.verbose, self.tensorboard_log, tb_log_name, reset_num_timesteps)
        self._records = None
        return total_timesteps, self._init_callback(callback, progress_bar)

    def _begin_learning(self, reset_num_timesteps: bool) -> None:
        """What an algorithm does before :meth:`learn` begins."""

    def _tick(self, run: Run, watched: bool) -> None:
        self._assert_runs(run)
        if self._afresh and self.pipeline:
            self._late_cut = self._all_envs()
        elif self._afresh:
            self.cut_episodes(self._all_envs())
        self._set_exploration(self.exploration_rates())
        self._set_order(np.array([self._afresh, watched or self.wants_infos]))
        self._afresh = False
        if self.evaluate_every is not None or self._shows:
            run.set(timesteps=np.array(max(self._learned_timesteps, 0)))
        if self._records is not None:
            run.set(records=self._records)
            self._records = None
        run.tick()
        self._late_cut = None

    # ------------------------------------------------------------------ checkpoints

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
            checkpoint.save(path, self)
        elif path not in self._due:
            self._due.append(path)

    def _save_due(self) -> None:
        """Write the checkpoints that were wanted within the round that is over."""
        due, self._due = self._due, []
        for path in due:
            checkpoint.save(path, self)

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
        return cast(Self, checkpoint.load(cls, path, env, allow_pickle, changed))

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

    # ------------------------------------------------------------------ counters

    @property
    def remaining_timesteps(self) -> int:
        """Steps that the last call of :meth:`learn` still had to take."""
        return max(0, self._total_timesteps - self.num_timesteps)

    @property
    def learned_timesteps(self) -> int:
        """Steps that the learner has seen; with ``pipeline=1`` a round behind ``num_timesteps``, negative before the first one."""
        return self._learned_timesteps

    @property
    def n_updates(self) -> int:
        """What is logged as ``train/n_updates``."""
        return self._n_updates

    @property
    def n_episodes(self) -> int:
        """Episodes that have ended; what ``SyncDQN`` and its like log as ``time/episodes``."""
        return self._episode_num

    # ------------------------------------------------------------------ SB3's other methods

    def set_env(self, env: Any, force_reset: bool = True) -> None:
        """Go on with other environments: an id, a function that makes one, or one that can be made again.

        Args:
            env: The environment. What :meth:`get_env` gives stands for the environments that the actors have.
            force_reset: Whether the next :meth:`learn` begins new episodes; other environments always do.

        Raises:
            ValueError: If its spaces differ.
            AssertionError: If it is a live vector environment of another number of environments.
            TypeError: If no more of it can be made.
        """
        if env is not None and env is self.env:
            self._afresh = self._afresh or force_reset
            return
        count = live_count(env)
        if count not in (None, self.n_envs):
            raise AssertionError(  # as SB3 does
                f"the vector environment has {count} environments and the model {self.n_envs}: give it as many, or load a model "
                f"with it: {type(self).__name__}.load(path, env)"
            )
        spare = self._spare(env)
        if spare is None:
            raise ValueError("set_env() needs an environment")
        wrapped = self._wrap_env(spare)
        utils.check_for_correct_spaces(wrapped, self.observation_space, self.action_space)
        makes = maker_of(wrapped)
        self.close()
        self._take_env(wrapped, makes)

    def _excluded_save_params(self) -> list[str]:
        return [
            *super()._excluded_save_params(), "_run", "_live", "_advice", "_late_cut", "_set_order", "_set_exploration",
            "_episodes", "_sent", "_records", "_torch_stream", "_evaluate_env", "_makes", "_normalization", "_layout",
            "evaluations", "_in_round", "_due", "shared_losses", "_writer", "_buffers", "_logged", *WATCHING,
            "_watch_env", "_shows", "_saved_ports", "_acting_module",
        ]  # fmt: skip
