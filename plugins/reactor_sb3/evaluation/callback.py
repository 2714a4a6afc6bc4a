"""Evaluation beside the training of any algorithm of Stable-Baselines3, by ``evaluate``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback, EvalCallback, EventCallback
from stable_baselines3.common.vec_env import VecEnv

from reactor_gymnasium import EvaluationReport
from reactor_gymnasium.plugin import PolicyEvaluator, checked_number

if TYPE_CHECKING:
    from reactor_rl.plugin import ExecutorName

__all__ = ["ReactorEvalCallback"]


class ReactorEvalCallback(EvalCallback):
    """Stable-Baselines3's ``EvalCallback``, with the same results on any number of environments and workers.

    Every evaluation plays the same episodes, see :func:`reactor_gymnasium.evaluate`. With a ``VecNormalize`` around the training's
    environments its statistics of that moment are used, and saved beside the best model as ``vecnormalize.pkl``.

    Args:
        env: An id, or a function that makes an environment.
        callback_on_new_best: As for ``EvalCallback``, and likewise ``callback_after_eval``, ``n_eval_episodes``, ``eval_freq``,
            ``log_path``, ``best_model_save_path``, ``deterministic`` and ``verbose``.
        callback_after_eval: See there.
        n_eval_episodes: See there.
        eval_freq: See there.
        log_path: See there.
        best_model_save_path: See there.
        deterministic: See there.
        verbose: See there.
        seed: Of the evaluations.
        num_envs: Environments side by side.
        workers: Number of workers; ``None`` for the cores that this process may use.
        executor: ``"inline"``, ``"threads"``, ``"processes"`` or ``"auto"``.
        max_steps: After how many steps an episode is cut off.
        restarts: How often workers that die are started anew, in each evaluation.

    Attributes:
        report: Of the last evaluation, a :class:`reactor_gymnasium.EvaluationReport`.

    Raises:
        TypeError: If ``env`` is a vector environment, of which no more can be made.
        ValueError: If a number makes no sense.
    """

    def __init__(
        self,
        env: Any,
        callback_on_new_best: BaseCallback | None = None,
        callback_after_eval: BaseCallback | None = None,
        n_eval_episodes: int = 5,
        eval_freq: int = 10_000,
        log_path: str | None = None,
        best_model_save_path: str | None = None,
        deterministic: bool = True,
        verbose: int = 1,
        *,
        seed: int = 0,
        num_envs: int | None = None,
        workers: int | None = None,
        executor: ExecutorName = "auto",
        max_steps: int | None = None,
        restarts: int = 0,
    ) -> None:
        if isinstance(env, VecEnv):
            raise TypeError(f"env must be an id or a function that makes an environment, got {env!r}")
        checked_number("n_eval_episodes", n_eval_episodes, 1)
        checked_number("seed", seed, 0)
        EventCallback.__init__(self, callback_after_eval, verbose=verbose)  # EvalCallback's own would make an environment
        self.callback_on_new_best = callback_on_new_best
        if callback_on_new_best is not None:
            callback_on_new_best.parent = self
        self.n_eval_episodes, self.eval_freq, self.deterministic = n_eval_episodes, eval_freq, deterministic
        self.best_mean_reward, self.last_mean_reward = -np.inf, -np.inf
        self.best_model_save_path = best_model_save_path
        self.log_path = None if log_path is None else os.path.join(log_path, "evaluations")
        self.evaluations_results, self.evaluations_timesteps, self.evaluations_length = [], [], []
        self.evaluations_successes = []
        self.seed, self.report = seed, None
        self.evaluator = PolicyEvaluator(
            env, num_envs=num_envs, workers=workers, executor=executor, max_steps=max_steps, restarts=restarts
        )

    report: EvaluationReport | None

    def _init_callback(self) -> None:
        for folder in (self.best_model_save_path, None if self.log_path is None else os.path.dirname(self.log_path)):
            if folder is not None:
                os.makedirs(folder, exist_ok=True)
        if self.callback_on_new_best is not None:
            self.callback_on_new_best.init_callback(self.model)

    def _on_step(self) -> bool:
        if self.eval_freq <= 0 or self.n_calls % self.eval_freq:
            return True
        report = self.report = self.evaluator.evaluate(
            self.model, self.n_eval_episodes, seed=self.seed, deterministic=self.deterministic, progress_bar=False
        )
        self.last_mean_reward = report.mean
        self._log(report)
        goes_on = True
        if report.mean > self.best_mean_reward:
            self.best_mean_reward = report.mean
            if self.verbose >= 1:
                print("New best mean reward!")  # noqa: T201
            self._save()
            if self.callback_on_new_best is not None:
                goes_on = self.callback_on_new_best.on_step()
        if self.callback is not None:
            goes_on = goes_on and self._on_event()
        return goes_on

    def _log(self, report: EvaluationReport) -> None:
        """Write the evaluation to the logger, the log file and, with ``verbose=1``, the terminal, as ``EvalCallback`` does."""
        success = report.infos.get("is_success")
        if self.log_path is not None:
            self.evaluations_timesteps.append(self.num_timesteps)
            self.evaluations_results.append(report.returns.tolist())
            self.evaluations_length.append(report.lengths.tolist())
            more: dict[str, Any] = {}
            if success is not None:
                self.evaluations_successes.append(success.tolist())
                more["successes"] = self.evaluations_successes
            np.savez(
                self.log_path, timesteps=self.evaluations_timesteps, results=self.evaluations_results,
                ep_lengths=self.evaluations_length, **more,
            )  # fmt: skip
        if self.verbose >= 1:
            print(f"Eval num_timesteps={self.num_timesteps}, episode_reward={report.mean:.2f} +/- {report.std:.2f}")  # noqa: T201
            print(f"Episode length: {report.lengths.mean():.2f} +/- {report.lengths.std():.2f}")  # noqa: T201
            if success is not None:
                print(f"Success rate: {100 * np.nanmean(success):.2f}%")  # noqa: T201
        self.logger.record("eval/mean_reward", report.mean)
        self.logger.record("eval/mean_ep_length", float(report.lengths.mean()))
        if success is not None:
            self.logger.record("eval/success_rate", float(np.nanmean(success)))
        self.logger.record("time/total_timesteps", self.num_timesteps, exclude="tensorboard")
        self.logger.dump(self.num_timesteps)

    def _save(self) -> None:
        """Save the best model, with the statistics that its observations are normalised by."""
        if self.best_model_save_path is None:
            return
        self.model.save(os.path.join(self.best_model_save_path, "best_model"))
        normalize = self.model.get_vec_normalize_env()
        if normalize is not None:
            normalize.save(os.path.join(self.best_model_save_path, "vecnormalize.pkl"))

    def _on_training_end(self) -> None:
        self.evaluator.close()
