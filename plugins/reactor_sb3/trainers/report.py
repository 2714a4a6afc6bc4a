"""A trainer's report of each round: callbacks, statistics of episodes, logs, and evaluations."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3.common import utils
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.monitor import ResultsWriter

from reactor_sb3.acting.actor import StepInfo
from reactor_sb3.acting.behaviours import MASKS
from reactor_sb3.acting.evaluator import Evaluation
from reactor_sb3.acting.records import by_step
from reactor_sb3.environments.live_vec_env import episode_logs
from reactor_sb3.trainers.model import Model

if TYPE_CHECKING:
    from reactor_rl import Run

__all__ = ["LEARNED", "Locals", "TrainingReport", "counted", "noting_read_only"]

Array = npt.NDArray[Any]


class TrainingReport:
    """The part of a trainer that looks at what a round has brought and changes nothing in it.

    Besides what SB3 logs there are two rates, since the last log or the beginning of ``learn()``. Spreeze (Hou et al. 2025) has its
    speed in them, as sampling frame rate and update frame rate:

    * ``time/sampling_hz``: steps of all environments a second;
    * ``time/update_frames_hz``: transitions that updates were made from, a second: updates a second times the rows of a minibatch.
      One that is learned from twice counts twice.

    Attributes:
        evaluations: All of them, the oldest first.
        records: What is to be written while the next round is sampled, a row for each dump: values, what is left out of which
            format, steps.
        later: Whether there will be a next round, or a moment after the last one.
    """

    def __init__(self) -> None:
        self.evaluations: list[Evaluation] = []
        self.records: list[tuple[dict[str, Any], dict[str, Any], int]] = []
        self.later = False
        self._due = False  # whether it is time to log
        self._logged = 0, 0, 0  # when the rates were logged last, in nanoseconds, with the steps and the updates by then

    def begin(self, model: Model) -> None:
        """Measure rates from now on."""
        self._logged = time.time_ns(), model.num_timesteps, model._n_updates

    def round(self, model: Model, run: Run, callback: BaseCallback | None, log_interval: int | None) -> bool:
        """Count what a round has brought, tell callbacks and logger.

        Args:
            model: The trainer.
            run: Its run, which has just ticked.
            callback: Whom to tell of each step, ``None`` for nobody.
            log_interval: Episodes or rounds between two logs, ``None`` for none.

        Returns:
            Whether to go on.
        """
        step_infos: list[StepInfo] = [info for of_actor in run.values("infos") for info in of_actor]
        before = counted(model)
        go_on = True
        self._evaluated(model, run)
        if callback is None:
            model.num_timesteps += model.rollout_steps * model.n_envs
            _count(model, run, step_infos)
        else:
            go_on = _tell(model, run, step_infos, callback, log_interval)
        model._update_current_progress_remaining(model.num_timesteps, model._total_timesteps)
        model.round_done()
        self._due = log_interval is not None and counted(model) // log_interval > before // log_interval
        if model.log_unit == "episodes":
            self.dump_due(model)
        return go_on

    def dump_due(self, model: Model) -> None:
        """Log what there is, if it is time to; where rounds are counted, when callbacks have seen the end of one, as in SB3."""
        if self._due:
            self._due = False
            model.dump_logs()

    def _evaluated(self, model: Model, run: Run) -> None:
        evaluation: Evaluation | None = None if model.evaluate_every is None else run.evaluation
        if evaluation is not None:
            self.evaluations.append(evaluation)
            model.logger.record("eval/mean_reward", evaluation.mean)
            model.logger.record("eval/mean_ep_length", float(np.mean(evaluation.lengths)))
            model.logger.record("eval/timesteps", evaluation.timesteps, exclude="tensorboard")

    # ------------------------------------------------------------------ logs

    def dump(self, model: Model) -> None:
        """Record the usual statistics, to be written while the next round is sampled; at once, if that is not known to come."""
        assert model.ep_info_buffer is not None and model.ep_success_buffer is not None
        elapsed = max((time.time_ns() - model.start_time) / 1e9, 1e-9)
        logger = model.logger
        record = logger.record
        record(f"time/{model.log_unit}", counted(model), exclude="tensorboard")
        if model.ep_info_buffer:
            record("rollout/ep_rew_mean", utils.safe_mean([info["r"] for info in model.ep_info_buffer]))
            record("rollout/ep_len_mean", utils.safe_mean([info["l"] for info in model.ep_info_buffer]))
        record("time/fps", int((model.num_timesteps - model._num_timesteps_at_start) / elapsed))
        self._record_rates(model)
        record("time/time_elapsed", int(elapsed), exclude="tensorboard")
        record("time/total_timesteps", model.num_timesteps, exclude="tensorboard")
        if model.ep_success_buffer:
            record("rollout/success_rate", utils.safe_mean(model.ep_success_buffer))
        if type(logger) is not Logger or not logger.output_formats:
            logger.dump(step=model.num_timesteps)
            return
        self.records.append((dict(logger.name_to_value), dict(logger.name_to_excluded), model.num_timesteps))
        logger.name_to_value.clear()
        logger.name_to_count.clear()
        logger.name_to_excluded.clear()
        if not self.later:
            self.write(model)

    def _record_rates(self, model: Model) -> None:
        then, steps, updates = self._logged
        self.begin(model)
        now, steps_now, updates_now = self._logged
        seconds = max((now - then) / 1e9, 1e-9)
        model.logger.record("time/sampling_hz", int((steps_now - steps) / seconds))
        model.logger.record("time/update_frames_hz", int((updates_now - updates) * model.update_rows / seconds))

    def write(self, model: Model) -> None:
        """Write what has been recorded, each row once."""
        records, self.records = self.records, []
        for values, excluded, steps in records:
            for output in model.logger.output_formats:
                output.write(values, excluded, steps)


# ---------------------------------------------------------------------- steps and episodes


def counted(model: Model) -> int:
    """How many episodes, or rounds, there have been: whichever ``log_interval`` counts."""
    if model.log_unit == "episodes":
        return model._episode_num
    return (model.num_timesteps - model._num_timesteps_at_start) // (model.rollout_steps * model.n_envs)


def _count(model: Model, run: Run, step_infos: list[StepInfo]) -> None:
    """Count episodes that have ended in a round, when nobody wants to know of each step."""
    episodes, dones = by_step(model.session.episodes), by_step(run.transitions["dones"])
    model.session.unseen, model._last_obs, model._last_episode_starts = True, None, dones[-1]
    model._episode_num += int(np.count_nonzero(dones))
    steps, numbers = np.nonzero(episodes["length"])
    known = {(step, number): info for step, number, info in step_infos}
    logs, infos = episode_logs(model.env), []
    first = 0 if logs else max(0, len(steps) - model._stats_window_size)  # the others would be forgotten at once
    for at in range(first, len(steps)):
        key = int(steps[at]), int(numbers[at])
        infos.append(_with_episode(model, known.get(key, {}), episodes[key]))
    model._update_info_buffer(infos, np.ones(len(infos), np.bool_))
    _write_episodes(logs, infos)


def _with_episode(model: Model, info: dict[str, Any], episode: Any) -> dict[str, Any]:
    """An info with what SB3's ``Monitor`` adds at the end of an episode, unless there is one that has."""
    if "episode" not in info:
        info["episode"] = {"r": round(float(episode["return"]), 6), "l": int(episode["length"])}
    info["episode"].setdefault("t", round((time.time_ns() - model.start_time) / 1e9, 6))
    return info


class Locals(dict[str, Any]):
    """The variables of SB3's loops that callbacks see."""

    def __missing__(self, name: str) -> Any:
        raise KeyError(
            f"{name}: callbacks of a trainer are called when the round is over and has been learned from, and of the variables of "
            f"SB3's loop there are {', '.join(sorted(self))}"
        )


def _tell(model: Model, run: Run, step_infos: list[StepInfo], callback: BaseCallback, log_interval: int | None) -> bool:
    """Call a callback, step by step."""
    n, env, layout, go_on = model.n_envs, model.env, model.session.layout, True
    rounds = run.transitions
    names = {"values", "log_probs", "policy_actions", MASKS}.intersection(rounds.dtype.names or ())
    on_policy = {"values", "log_probs"} <= names
    columns = {name: by_step(rounds[name]) for name in ("actions", "rewards", "dones", "timeouts", *names)}
    nexts = {key: by_step(part) for key, part in layout.of(rounds, "next_observations").items()}
    news = {key: by_step(part) for key, part in layout.of(rounds, "observations").items()}
    known: list[dict[int, dict[str, Any]]] = [{} for _ in range(model.rollout_steps + 1)]
    for step, number, info in step_infos:
        known[step][number] = info
    episodes = by_step(model.session.episodes)
    logs, before = episode_logs(env), model._episode_num
    # By the names that they have in SB3's loops.
    always: dict[str, Any] = {
        "self": model, "env": env, "callback": callback, "log_interval": log_interval, "continue_training": True,
        "replay_buffer": getattr(model, "replay_buffer", None), "rollout_buffer": getattr(model, "rollout_buffer", None),
        "n_rollout_steps": model.rollout_steps,
        **{name: getattr(model, name) for name in ("train_freq", "action_noise", "learning_starts") if hasattr(model, name)},
    }  # fmt: skip
    tensors = {key: torch.from_numpy(part).to(model.device) for key, part in news.items()}
    given = [(name, columns[name].copy()) for name in ("actions", "rewards", "dones")]
    for step in range(model.rollout_steps):
        actions, rewards, dones = (columns[name][step] for name in ("actions", "rewards", "dones"))
        infos = [known[step].get(number, {}) for number in range(n)]
        terminal = {key: part[step] for key, part in nexts.items()}
        for number in range(n):
            infos[number]["TimeLimit.truncated"] = bool(columns["timeouts"][step, number])
            if dones[number]:
                if episodes["length"][step, number]:
                    _with_episode(model, infos[number], episodes[step, number])
                infos[number]["terminal_observation"] = layout.outside({key: part[number] for key, part in terminal.items()})
        new_obs = layout.outside(
            _begun(terminal, known[-1]) if step + 1 == model.rollout_steps else {key: part[step + 1] for key, part in news.items()}
        )
        model.num_timesteps += n
        if go_on:
            model.session.unseen, model._last_obs = False, layout.outside({key: part[step] for key, part in news.items()})
            of_policy = columns.get("policy_actions", columns["actions"])[step]
            callback.update_locals({
                **always, "num_collected_steps": step + 1, "num_collected_episodes": model._episode_num - before,
                "actions": actions, "buffer_actions": of_policy, "rewards": rewards, "dones": dones, "infos": infos,
                "new_obs": new_obs, "obs_tensor": layout.outside({key: part[step] for key, part in tensors.items()}),
            })  # fmt: skip
            if on_policy:
                callback.update_locals({
                    "actions": of_policy, "clipped_actions": actions, "n_steps": step,
                    "values": torch.from_numpy(columns["values"][step])[:, None],
                    "log_probs": torch.from_numpy(columns["log_probs"][step]),
                    **({MASKS: columns[MASKS][step]} if MASKS in columns else {}),
                })  # fmt: skip
            with noting_read_only():
                go_on = callback.on_step()
            model._last_episode_starts = dones
            if go_on:
                model.session.assert_runs(model, run)
        ended = [infos[number] for number in np.flatnonzero(dones)]
        model._episode_num += len(ended)
        model._update_info_buffer(ended, np.ones(len(ended), np.bool_))
        _write_episodes(logs, ended)
        model._update_current_progress_remaining(model.num_timesteps, model._total_timesteps)
    model.session.unseen, model._last_obs, model._last_episode_starts = False, new_obs, columns["dones"][-1]
    for name, column in given:
        if column.tobytes() != columns[name].tobytes():
            raise ValueError(f'a callback changed locals["{name}"], {LEARNED}')
    return go_on


LEARNED = (
    "and the round has been learned from before: what callbacks see of it is read-only. Change rewards in a wrapper of the "
    "environment, or in replay_buffer for the rounds to come; or use SB3's algorithm with ReactorVecEnv"
)


@contextmanager
def noting_read_only() -> Iterator[None]:
    """Say what is read-only, if a callback writes to it."""
    try:
        yield
    except ValueError as error:
        if "read-only" in str(error):
            error.add_note(f"if this is an array of rollout_buffer: a callback cannot change it, {LEARNED}")
        raise


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
