"""One training of a search, where it is carried out: what the user's function is given, and what becomes of what it returns."""

from __future__ import annotations

import contextlib
import numbers
import os
import random
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.envs.registration import EnvSpec
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

from reactor_gymnasium import evaluate
from reactor_gymnasium.plugin import checked_number, hashed
from reactor_rl.plugin import global_random_state, how_it_ended, one_numeric_thread
from reactor_sb3.environments.live_vec_env import Wrapped, shown_to_actors, wrappers_alone

__all__ = ["MODEL", "Died", "Ended", "Job", "Reported", "Trial", "carried_out"]

MODEL = "model.zip"
"""File that a returned model is saved as, in the training's folder."""
STATISTICS = "vecnormalize.pkl"
"""File beside it, of a model that learned under a ``VecNormalize``."""


@dataclass(frozen=True)
class Job:
    """A training that is to be carried out.

    Attributes:
        trial: Number of its trial.
        repeat: Which of the trial's trainings it is.
        seed: Its seed.
        params: Its hyperparameters.
        rungs: Steps at which the search compares trials.
        reports: What it had reported, by step, before it was interrupted.
        folder: Its own folder; ``None`` if nothing is kept.
        env: What models are evaluated in; ``None`` for the environment that they learned in.
        episodes: How many.
        evaluation_seed: Of these.
    """

    trial: int
    repeat: int
    seed: int
    params: Mapping[str, Any]
    rungs: tuple[int, ...]
    reports: Mapping[int, float]
    folder: str | None
    env: Any
    episodes: int
    evaluation_seed: int


@dataclass(frozen=True)
class Reported:
    """A value that a training has reached at a step; it waits for an answer whether it is to stop."""

    step: int
    value: float


@dataclass(frozen=True)
class Ended:
    """The end of a training.

    Attributes:
        state: ``"complete"``, ``"pruned"`` or ``"failed"``.
        value: What it is judged by; ``None`` unless it is complete.
        error: Why it failed, in a line.
        text: The same with its traceback.
        digest: A hash of what the returned model has learned.
    """

    state: str
    value: float | None = None
    error: str = ""
    text: str = ""
    digest: str = ""


@dataclass(frozen=True)
class Died:
    """The death of a training's process, or the loss of its machine.

    Attributes:
        error: The error of the trial, if that has failed by this.
        why: The same in other words.
    """

    error: str
    why: str

    @classmethod
    def by(cls, status: int | None) -> Died:
        """The death of a process with an exit status, as ``multiprocessing`` has it; ``None`` if nobody knows it."""
        how = "" if status is None else f" by signal {-status}" if status < 0 else f" with exit code {status}"
        return cls(f"WorkerDiedError: its process died{how}", f"its process {how_it_ended(status)}")


class Trial:
    """A training as its function sees it: the argument of the function that :func:`reactor_sb3.sweep` calls.

    Attributes:
        number: Of the trial.
        repeat: Which of the trial's trainings it is, from 0 on.
        seed: Of this training, to be given to the model.
        params: The hyperparameters.
        folder: A folder of this training's own, where it may save what it needs to go on after a crash; ``None`` if the search has
            no ``path``.
    """

    def __init__(self, job: Job, ask: Callable[[Reported], bool]) -> None:
        self.number, self.repeat, self.seed, self.params = job.trial, job.repeat, job.seed, dict(job.params)
        self.folder = None if job.folder is None else Path(job.folder)
        self._job, self._ask, self._pruned = job, ask, False
        self._last = max(job.reports, default=-1)
        self.value: float | None = job.reports.get(self._last)

    def report(self, value: float, step: int) -> None:
        """Report how good the training is by now. It may have to wait until earlier trials have come as far.

        Args:
            value: As of the whole training: a mean return, say.
            step: After how many steps; more than at the last report.

        Raises:
            TypeError: If ``value`` is not a number.
            ValueError: If it is not finite, or a step comes twice.
        """
        checked_number("step", step, 0)
        value = _number(value, "the reported value")
        if step <= self._last:
            if step in self._job.reports:  # it has begun again, and the search knows this
                return
            raise ValueError(f"step {step} was reported after step {self._last}")
        self._last, self.value = int(step), value
        self._pruned = self._ask(Reported(int(step), value)) or self._pruned

    def should_prune(self) -> bool:
        """Whether the training is to stop, because it is behind others."""
        return self._pruned

    def callback(self, env: Any = None, episodes: int | None = None, every: int | None = None) -> BaseCallback:
        """A callback for ``learn()`` that evaluates the model, reports its mean return, and stops where it should.

        Args:
            env: An id, a spec, or a function that makes an environment; by default ``env`` of the search.
            episodes: How many; by default those of the search.
            every: Steps from one report to the next; by default it reports at the search's rungs.

        Raises:
            ValueError: If there is neither ``every`` nor a rung, or a number makes no sense.
        """
        if every is None and not self._job.rungs:
            raise ValueError("callback() needs every=, the steps from one report to the next: the search has no rungs")
        for name, number in (("every", every), ("episodes", episodes)):
            if number is not None:
                checked_number(name, number, 1)
        return _Reporting(self, env, episodes, every)

    def evaluated(self, model: BaseAlgorithm, env: Any = None, episodes: int | None = None) -> float:
        """The mean return of a model, over the same episodes in all trainings of the search.

        Args:
            model: The model.
            env: As for :meth:`callback`.
            episodes: Likewise.

        Raises:
            ValueError: If there is no ``env``, and that of the model cannot be made again.
        """
        env = self._env(model, env)
        report = evaluate(
            model, env, episodes or self._job.episodes, seed=self._job.evaluation_seed, executor="inline", progress_bar=False
        )
        return report.mean

    def _env(self, model: BaseAlgorithm, env: Any) -> Any:
        given = self._job.env if env is None else env
        return _env_of(model) if given is None else given

    def __repr__(self) -> str:
        return f"Trial({self.number}, repeat={self.repeat}, seed={self.seed}, params={self.params})"


class _Reporting(BaseCallback):
    """Reports at rungs, or every so many steps."""

    def __init__(self, trial: Trial, env: Any, episodes: int | None, every: int | None) -> None:
        super().__init__()
        self.trial, self.env, self.episodes, self.every = trial, env, episodes, every
        self.passed = 0  # how many reports are due or done

    def _init_callback(self) -> None:
        self.trial._env(self.model, self.env)  # for its error, before anything is learned

    def _on_training_start(self) -> None:
        self.passed = self._due(max(self.trial._last, 0))  # of a training that is resumed

    def _due(self, steps: int) -> int:
        return steps // self.every if self.every is not None else sum(steps >= rung for rung in self.trial._job.rungs)

    def _on_step(self) -> bool:
        due = self._due(self.num_timesteps)
        if due > self.passed:
            self.passed = due
            trial, steps = self.trial, self.num_timesteps
            if steps > trial._last:
                trial.report(trial.evaluated(self.model, self.env, self.episodes), steps)
        return not self.trial.should_prune()


def _env_of(model: BaseAlgorithm) -> Any:
    """A spec of the environment that a model learned in, or a function that makes one as the model was shown it.

    Raises:
        ValueError: If it cannot be made again.
    """
    why, env = "", model.get_env()
    spec = env.get_attr("spec")[0] if isinstance(env, VecEnv) else None
    if isinstance(spec, EnvSpec):
        monitor = f"{Monitor.__module__}:{Monitor.__name__}"  # which changes nothing, and cannot be made again
        wrappers = tuple(one for one in spec.additional_wrappers if one.entry_point != monitor)
        if all(one.kwargs is not None for one in wrappers):
            spec = replace(spec, additional_wrappers=wrappers)
            assert isinstance(env, VecEnv)
            inner = shown_to_actors(env)
            if not isinstance(inner, VecEnvWrapper):
                return spec
            try:
                return Wrapped(partial(gymnasium.make, spec), wrappers_alone(inner)[0])
            except TypeError as error:
                why = f" ({error})"
    raise ValueError(f"the environment of the model cannot be made again{why}: pass env= to sweep(), an id or a function")


def _number(value: Any, what: str) -> float:
    if isinstance(value, np.ndarray) and not value.ndim:
        value = value[()]
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise TypeError(f"{what} must be a number, got {value!r}")
    found = float(value)
    if not np.isfinite(found):
        raise ValueError(f"{what} must be finite, got {found}")
    return found


def carried_out(train: Callable[[Trial], Any], job: Job, ask: Callable[[Reported], bool]) -> Ended:
    """Carry a training out: with one thread, and generators of the process that are seeded, and put back afterwards.

    Args:
        train: The user's function.
        job: The training.
        ask: Hands a report over, and returns whether the training is to stop.

    Raises:
        KeyboardInterrupt: If the user has interrupted it.
    """
    trial = Trial(job, ask)
    with one_numeric_thread(), global_random_state():
        words = np.random.SeedSequence(job.seed, spawn_key=(job.trial, job.repeat)).generate_state(3)
        random.seed(int(words[0]))
        np.random.seed(int(words[1]))
        torch.manual_seed(int(words[2]))
        try:
            if trial.folder is not None:
                trial.folder.mkdir(parents=True, exist_ok=True)
            with _working_directory():
                returned = train(trial)
            if trial.should_prune():
                return Ended("pruned")
            return _judged(trial, returned)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if trial.should_prune() or _gave_up(error):
                return Ended("pruned")
            line, text = _told(error)
            return Ended("failed", error=line, text=text)


@contextlib.contextmanager
def _working_directory() -> Iterator[None]:
    """Go back to the working directory afterwards: the next training must find the same one, whichever worker it has."""
    try:
        before = os.getcwd()
    except OSError:  # it was removed
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.chdir(before)


def _told(error: BaseException) -> tuple[str, str]:
    """An error in a line and with its traceback, whatever its own methods do."""
    kind = type(error).__name__
    try:
        said = str(error)
    except Exception as another:
        said = f"(its message cannot be printed: {type(another).__name__})"
    try:
        text = "".join(traceback.format_exception(error))
    except Exception:
        text = f"{kind}: {said}\n"
    return f"{kind}: {said}" if said else kind, text


def _gave_up(error: BaseException) -> bool:
    """Whether it is Optuna's ``TrialPruned``; a training need not import that."""
    return any(cls.__name__ == "TrialPruned" and cls.__module__.startswith("optuna") for cls in type(error).__mro__)


def _judged(trial: Trial, returned: Any) -> Ended:
    if isinstance(returned, BaseAlgorithm):
        if trial.folder is not None:
            returned.save(trial.folder / MODEL)
            normalize = returned.get_vec_normalize_env()
            if normalize is not None:
                normalize.save(str(trial.folder / STATISTICS))
        digest = hashed({name: part.cpu().numpy() for name, part in returned.policy.state_dict().items()})
        return Ended("complete", trial.evaluated(returned), digest=digest)
    if returned is None:
        if trial.value is None:
            raise ValueError("the training has returned nothing, and reported nothing: return a model or a number")
        return Ended("complete", trial.value)
    return Ended("complete", _number(returned, "what a training returns, unless it is a model,"))
