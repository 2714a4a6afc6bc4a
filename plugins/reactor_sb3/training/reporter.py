"""What a trainer tells after each round: callbacks, statistics of episodes, logs, and evaluations."""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
from stable_baselines3.common import utils
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger as Sb3Logger
from stable_baselines3.common.monitor import ResultsWriter

from reactor_sb3.acting.actor import StepInfo
from reactor_sb3.acting.evaluator import Evaluation
from reactor_sb3.acting.records import by_step
from reactor_sb3.environments.live_vec_env import episode_logs
from reactor_sb3.training.reactor_algorithm import ReactorAlgorithm
from reactor_sb3.training.watching import write_showing

if TYPE_CHECKING:
    from reactor_rl import Run

__all__ = ["Reporter"]

Array = npt.NDArray[Any]


class Reporter(ReactorAlgorithm):
    """The part of a trainer that looks at what a round has brought and changes nothing in it.

    Besides what SB3 logs there are two rates, since the last log or the beginning of ``learn()``. Spreeze (Hou et al. 2025) has its
    speed in them, as sampling frame rate and update frame rate:

    * ``time/sampling_hz``: steps of all environments a second;
    * ``time/update_frames_hz``: transitions that updates were made from, a second: updates a second times the rows of a minibatch.
      One that is learned from twice counts twice.
    """

    log_unit: ClassVar[str] = "episodes"
    """What ``log_interval`` counts."""
    _n_updates: int
    _logged: tuple[int, int, int]
    """When the rates were logged last, in nanoseconds, with the steps and the updates by then."""
    _episodes: Array
    """What the actors say of episodes that ended, ``(actors, steps, envs)``; of the last round."""
    _records: tuple[dict[str, Any], dict[str, Any], int] | None
    """What is to be written while the next round is sampled: values, what is left out of which format, steps."""

    def _account(self, run: Run, callback: BaseCallback | None, log_interval: int | None) -> bool:
        """Count what a round has brought, tell callbacks and logger. Returns whether to go on."""
        step_infos: list[StepInfo] = [info for of_actor in run.values("infos") for info in of_actor]
        before = self._counted()
        go_on = True
        self._evaluated(run)
        if callback is None:
            self.num_timesteps += self.rollout_steps * self.n_envs
            self._count_round(step_infos)
        else:
            go_on = self._tell(run, step_infos, callback)
        self._update_current_progress_remaining(self.num_timesteps, self._total_timesteps)
        self._round_done()
        if log_interval is not None and self._counted() // log_interval > before // log_interval:
            self.dump_logs()
        return go_on

    def _counted(self) -> int:
        """How many there have been of what ``log_interval`` counts."""
        return self._episode_num

    def _count_round(self, step_infos: list[StepInfo]) -> None:
        """Episodes that have ended in a round, when nobody wants to know of each step."""
        episodes = by_step(self._episodes)
        steps, numbers = np.nonzero(episodes["length"])
        self._episode_num += len(steps)
        known = {(step, number): info for step, number, info in step_infos}
        logs, infos = episode_logs(self.env), []
        first = 0 if logs else max(0, len(steps) - self._stats_window_size)  # the others would be forgotten at once
        for at in range(first, len(steps)):
            key = int(steps[at]), int(numbers[at])
            infos.append(self._with_episode(known.get(key, {}), episodes[key]))
        self._update_info_buffer(infos, np.ones(len(infos), np.bool_))
        _write_episodes(logs, infos)

    def _with_episode(self, info: dict[str, Any], episode: Any) -> dict[str, Any]:
        """An info with what SB3's ``Monitor`` adds at the end of an episode, unless there is one that has."""
        if "episode" not in info:
            info["episode"] = {"r": round(float(episode["return"]), 6), "l": int(episode["length"])}
        info["episode"].setdefault("t", round((time.time_ns() - self.start_time) / 1e9, 6))
        return info

    def _tell(self, run: Run, step_infos: list[StepInfo], callback: BaseCallback) -> bool:
        """Call callbacks, step by step."""
        n, env, go_on = self.n_envs, self.env, True
        rounds = run.transitions
        layout = self._layout
        columns = {name: by_step(rounds[name]) for name in ("actions", "rewards", "dones", "timeouts")}
        nexts = {key: by_step(part) for key, part in layout.of(rounds, "next_observations").items()}
        news = {key: by_step(part) for key, part in layout.of(rounds, "observations").items()}
        known: list[dict[int, dict[str, Any]]] = [{} for _ in range(self.rollout_steps + 1)]
        for step, number, info in step_infos:
            known[step][number] = info
        episodes = by_step(self._episodes)
        replay_buffer, logs = getattr(self, "replay_buffer", None), episode_logs(env)
        for step in range(self.rollout_steps):
            actions, rewards, dones = (columns[name][step] for name in ("actions", "rewards", "dones"))
            infos = [known[step].get(number, {}) for number in range(n)]
            terminal = {key: part[step] for key, part in nexts.items()}
            for number in range(n):
                infos[number]["TimeLimit.truncated"] = bool(columns["timeouts"][step, number])
                if dones[number]:
                    self._with_episode(infos[number], episodes[step, number])
                    infos[number]["terminal_observation"] = layout.outside({key: part[number] for key, part in terminal.items()})
            new_obs = layout.outside(
                _begun(terminal, known[-1])
                if step + 1 == self.rollout_steps
                else {key: part[step + 1] for key, part in news.items()}
            )
            self.num_timesteps += n
            num_collected_steps = step + 1
            if go_on:
                callback.update_locals(locals())
                go_on = callback.on_step()
                if go_on:
                    self._assert_runs(run)
            ended = [infos[number] for number in np.flatnonzero(dones)]
            self._episode_num += len(ended)
            self._update_info_buffer(ended, np.ones(len(ended), np.bool_))
            _write_episodes(logs, ended)
            self._update_current_progress_remaining(self.num_timesteps, self._total_timesteps)
        return go_on

    def _evaluated(self, run: Run) -> None:
        if self._shows and (showing := run.showing) is not None:
            write_showing(self.logger, showing)
        evaluation: Evaluation | None = None if self.evaluate_every is None else run.evaluation
        if evaluation is not None:
            self.evaluations.append(evaluation)
            self.logger.record("eval/mean_reward", evaluation.mean)
            self.logger.record("eval/mean_ep_length", float(np.mean(evaluation.lengths)))
            self.logger.record("eval/timesteps", evaluation.timesteps, exclude="tensorboard")

    def _round_done(self) -> None:
        """What an algorithm does after each round."""

    # ------------------------------------------------------------------ logs

    @property
    @abstractmethod
    def update_rows(self) -> int:
        """Transitions that one of what ``train/n_updates`` counts is made from."""

    def _begin_rates(self) -> None:
        self._logged = time.time_ns(), self.num_timesteps, self._n_updates

    def _record_rates(self) -> None:
        then, steps, updates = self._logged
        self._begin_rates()
        now, steps_now, updates_now = self._logged
        seconds = max((now - then) / 1e9, 1e-9)
        self.logger.record("time/sampling_hz", int((steps_now - steps) / seconds))
        self.logger.record("time/update_frames_hz", int((updates_now - updates) * self.update_rows / seconds))

    def dump_logs(self) -> None:
        """Record the usual statistics and write them; within :meth:`learn`, while the next round is sampled."""
        assert self.ep_info_buffer is not None and self.ep_success_buffer is not None
        elapsed = max((time.time_ns() - self.start_time) / 1e9, 1e-9)
        record = self.logger.record
        record(f"time/{self.log_unit}", self._counted(), exclude="tensorboard")
        if self.ep_info_buffer:
            record("rollout/ep_rew_mean", utils.safe_mean([info["r"] for info in self.ep_info_buffer]))
            record("rollout/ep_len_mean", utils.safe_mean([info["l"] for info in self.ep_info_buffer]))
        record("time/fps", int((self.num_timesteps - self._num_timesteps_at_start) / elapsed))
        self._record_rates()
        record("time/time_elapsed", int(elapsed), exclude="tensorboard")
        record("time/total_timesteps", self.num_timesteps, exclude="tensorboard")
        if self.ep_success_buffer:
            record("rollout/success_rate", utils.safe_mean(self.ep_success_buffer))
        logger = self.logger
        if type(logger) is not Sb3Logger or not logger.output_formats:
            logger.dump(step=self.num_timesteps)
            return
        self._records = dict(logger.name_to_value), dict(logger.name_to_excluded), self.num_timesteps
        logger.name_to_value.clear()
        logger.name_to_count.clear()
        logger.name_to_excluded.clear()

    def _write_records(self) -> None:
        """Write what is left when there is no next round."""
        if self._records is not None:
            values, excluded, steps = self._records
            self._records = None
            for output in self.logger.output_formats:
                output.write(values, excluded, steps)


def _write_episodes(logs: list[ResultsWriter], infos: list[dict[str, Any]]) -> None:
    for log in logs:
        for info in infos:
            log.write_row(info["episode"])


def _begun(last: dict[str, Array], begun: dict[int, dict[str, Any]]) -> dict[str, Array]:
    """The observations after a round: its last ones, but where an episode has ended, the first of the next one."""
    observations = {key: part.copy() for key, part in last.items()} if begun else last
    for number, of_number in begun.items():
        for key, part in of_number.items():
            observations[key][number] = part
    return observations
