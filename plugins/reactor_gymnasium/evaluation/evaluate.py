"""``evaluate``: episodes of a policy, with the same report on any number of environments and workers."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from reactor_gymnasium.arguments import check_travel, checked_number, encode_makers, make_probe
from reactor_gymnasium.environments.player import EndedEpisode
from reactor_gymnasium.evaluation.choosing import Chosen, choose_batch
from reactor_gymnasium.evaluation.contents import Contents, contents, hashed, hashes, replaced
from reactor_gymnasium.evaluation.log import LogFile, check_log
from reactor_gymnasium.evaluation.policies import PolicyContext
from reactor_gymnasium.evaluation.program import EpisodeProgram
from reactor_gymnasium.evaluation.report import EvaluationReport, columns_of
from reactor_gymnasium.evaluation.videos import check_recording, record_episodes
from reactor_gymnasium.make import find_spec
from reactor_gymnasium.placement import step_cost
from reactor_gymnasium.traces import Traces, no_traces, without_films
from reactor_rl import RecoveryWarning, WorkerDiedError, WorkerHungError
from reactor_rl.plugin import Execution, expected_gain, global_random_state, parallel_executor, settled, usable_cores

if TYPE_CHECKING:
    from reactor_rl.plugin import ExecutorName

__all__ = ["PolicyEvaluator", "env_maker", "evaluate", "progress"]

START = 2.0
"""Seconds that helpers must save, for the time that they take to start: each imports what the environment needs, torch perhaps
(docs/benchmarks/startup.md).
"""
ROWS = 8
"""Environments of a worker, where nothing else is said. Chosen: kernels and small networks gain from several rows; each row that is
the last to end keeps the others waiting.
"""
EXPECTED = 500
"""Steps of an episode, where nothing is known of it: the limit of CartPole-v1, and half of that of MuJoCo's. It only decides
whether helpers pay.
"""


def evaluate(
    policy: Any,
    env: str | EnvSpec | Callable[[], gymnasium.Env[Any, Any]],
    episodes: int = 100,
    *,
    seed: int = 0,
    num_envs: int | None = None,
    workers: int | None = None,
    executor: ExecutorName = "auto",
    batch_size: int | None = None,
    deterministic: bool = True,
    max_steps: int | None = None,
    timeout: float | None = None,
    restarts: int = 0,
    log: str | Path | None = None,
    resume: bool = False,
    record: Sequence[int] = (),
    videos: str | Path = "videos",
    progress_bar: bool | None = None,
    start_method: str | None = None,
) -> EvaluationReport:
    """Play episodes of a policy. The report is the same, bit for bit, for any ``num_envs``, ``workers`` and ``executor``.

    Episode ``k`` is reset with a seed of its own, drawn from (``seed``, ``k``), and a policy that draws its actions draws them
    from a stream of its own, whoever plays the episode and whenever. Where one ends, the next one begins. Lives that an
    ``EpisodicLifeEnv`` takes for episodes are played on: a game is one episode.

    Args:
        policy: A model or policy of Stable-Baselines3, a ``torch.nn.Module`` (scores of discrete actions, or continuous actions),
            an object with ``predict(observations, ...)``, or a function of a batch of observations that returns as many actions.
            A function that draws takes ``random``, a list of generators of numpy, one for each row. What a policy remembers of an
            episode is its ``state`` (see ``predict`` of SB3); one that remembers earlier calls otherwise is refused.
        env: An id, a spec, or a function that makes an environment.
        episodes: How many.
        seed: Of the evaluation.
        num_envs: Environments side by side. By default as many as keep the workers busy.
        workers: Number of workers, the calling thread included; ``None`` for the cores that this process may use.
        executor: ``"inline"``, ``"threads"``, ``"processes"``, or ``"auto"``, which times a throw-away environment and chooses.
        batch_size: Observations that a policy is asked about at once, always as many: what is missing is filled up. By default
            32, or 1 if the policy is found to answer otherwise beside other rows, to remember what it has seen, or to draw from
            the process's random generators. No matter for what is asked row by row by construction, as ``MlpPolicy`` is.
        deterministic: Whether a policy that can do both takes its best action, or draws one.
        max_steps: After how many steps an episode is cut off; by default only by its own limits.
        timeout: Seconds that the caller waits for a worker process at most, in which its environments take up to 16 steps.
            After that it is a :class:`reactor_rl.WorkerHungError`, or, with ``restarts``, workers are started anew.
        restarts: How often worker processes are started anew because one has died. Episodes that had not ended begin again.
        log: A file that gets a line of JSON for each episode when it ends. It is written anew, unless ``resume`` is true.
        resume: Whether the log may have episodes of the same evaluation already, which are not played again: after a crash, call
            again with the same arguments. A file that is no log, or the log of another evaluation, stays as it is.
        record: Numbers of episodes to make videos of, after all have been played. The environment must render ``rgb_array``. If a
            video cannot be made then, there is a warning.
        videos: Folder of the videos, ``episode-7.mp4`` and so on.
        progress_bar: Whether to show one, if it takes longer than a second. By default on a terminal and in notebooks.
        start_method: How helper processes start: ``"forkserver"``, ``"spawn"`` or ``"fork"``.

    Raises:
        TypeError: If ``policy`` is not a policy, ``env`` makes something else than an environment, or an argument is wrong.
        ValueError: If an argument makes no sense, the policy does not fit the environment or remembers earlier calls, or the file
            to go on with is of another evaluation or no log.
        OSError: If the log or the videos cannot be written.
        Exception: What the environment or the policy raised. Episodes that have ended are in the log.

    Example:
        >>> from reactor_gymnasium import evaluate
        >>> report = evaluate(lambda observations: (observations[:, 2] > 0).astype(int), "CartPole-v1", episodes=20, seed=0)
        >>> len(report), bool(report.lengths.min() > 20)
        (20, True)
    """
    with PolicyEvaluator(
        env, num_envs=num_envs, workers=workers, executor=executor, max_steps=max_steps, timeout=timeout,
        restarts=restarts, start_method=start_method,
    ) as evaluator:  # fmt: skip
        return evaluator.evaluate(
            policy, episodes, seed=seed, batch_size=batch_size, deterministic=deterministic, log=log, resume=resume,
            record=record, videos=videos, progress_bar=progress_bar,
        )  # fmt: skip


class PolicyEvaluator:
    """Environments that stay for several evaluations; a context manager. Arguments as for :func:`evaluate`."""

    def __init__(
        self,
        env: Any,
        *,
        num_envs: int | None = None,
        workers: int | None = None,
        executor: ExecutorName = "auto",
        max_steps: int | None = None,
        timeout: float | None = None,
        restarts: int = 0,
        start_method: str | None = None,
    ) -> None:
        for name, number, least in (
            ("num_envs", num_envs, 1), ("max_steps", max_steps, 1),
        ):  # fmt: skip
            if number is not None:
                checked_number(name, number, least)
        self.execution = Execution(
            workers=workers, executor=executor, start_method=start_method, restarts=restarts, timeout=timeout
        )
        if executor in ("ray", "federated"):
            raise ValueError(f"executor must be 'auto', 'inline', 'threads' or 'processes', got {executor!r}")
        self.num_envs, self.max_steps = _whole(num_envs), _whole(max_steps)
        self.env_fn, self.name = env_maker(env)
        (self.make,) = encode_makers((self.env_fn,))
        check_travel((self.env_fn,), (self.make,), "evaluate", "start_method", "env")
        self.program: EpisodeProgram | None = None

    def evaluate(
        self,
        policy: Any,
        episodes: int,
        *,
        seed: int = 0,
        batch_size: int | None = None,
        deterministic: bool = True,
        log: str | Path | None = None,
        resume: bool = False,
        record: Sequence[int] = (),
        videos: str | Path = "videos",
        progress_bar: bool | None = None,
    ) -> EvaluationReport:
        """Play episodes; see :func:`evaluate`."""
        checked_number("episodes", episodes, 1)
        checked_number("seed", seed, 0)
        if batch_size is not None:
            checked_number("batch_size", batch_size, 1)
        for name, flag in (("deterministic", deterministic), ("progress_bar", progress_bar)):
            if not isinstance(flag, bool | np.bool_) and not (flag is None and name == "progress_bar"):
                raise TypeError(f"{name} must be True or False, got {flag!r}")
        episodes, seed, batch_size, deterministic = int(episodes), int(seed), _whole(batch_size), bool(deterministic)
        if not isinstance(resume, bool | np.bool_):
            raise TypeError(f"resume must be True or False, got {resume!r}; the file is log=")
        if resume and log is None:
            raise ValueError("resume=True needs log=, the file to go on with")
        path, goes_on = _checked_path("log", log), bool(resume)
        record, folder = _checked_record(record, episodes), _checked_path("videos", videos)
        if folder is None:
            raise TypeError("videos must be the path of a folder, got None")
        if path is not None:
            check_log(path, goes_on=goes_on)
        began = time.perf_counter()
        traces = Traces()  # of what is looked at
        with global_random_state(), contextlib.closing(traces):
            before = None if path is None else contents(self.env_fn, whole=True)
            with traces.kept_out(making=True):
                probe: Any = make_probe(self.env_fn, "the environment")
            if not isinstance(probe, gymnasium.Env):
                raise TypeError(f"env must make a gymnasium.Env, got {probe!r}")
            try:
                self.name = self.name or _name_of(probe)
                context = PolicyContext(probe.observation_space, probe.action_space, deterministic)
                if record:
                    traces.tidy()  # before another one comes upon it
                    fps = check_recording(self.env_fn, self.name, folder, record)
                with traces.kept_out():
                    chosen = choose_batch(policy, context, probe, batch_size)
                traces.tidy()
                with contextlib.ExitStack() as stack:
                    file = None
                    if path is not None and before is not None:
                        about = {
                            "env": self.name, "seed": seed, "deterministic": deterministic, "max_steps": self.max_steps,
                            "batch_size": chosen.batch, "policy": chosen.policy.digest(), "policy's code": chosen.told(),
                            "environment": _environment(self.env_fn, probe, before),
                        }  # fmt: skip
                        file = stack.enter_context(contextlib.closing(LogFile(path, about, goes_on=goes_on)))
                    known = {one.number: one for one in ([] if file is None else file.known) if one.number < episodes}
                    update = stack.enter_context(progress(episodes, "episode", shown=progress_bar))
                    update(len(known))

                    def ended(done: Sequence[EndedEpisode]) -> None:
                        known.update({one.number: one for one in done})
                        if file is not None:
                            file.add(done)
                        update(len(done))

                    self._play(chosen, context, probe, seed, episodes, known, ended)
            finally:
                with traces.kept_out():
                    probe.close()
                del probe
        ordered = [known[number] for number in range(episodes)]
        filmed = [ordered[number] for number in record]
        paths = record_episodes(self.env_fn, chosen, context, self.max_steps, seed, filmed, folder, fps) if record else {}
        return EvaluationReport(
            env=self.name,
            policy=chosen.how,
            row_independent=chosen.alone,
            deterministic=deterministic,
            seed=seed,
            returns=np.array([one.total for one in ordered], np.float64),
            lengths=np.array([one.length for one in ordered], np.int64),
            terminated=np.array([one.terminated for one in ordered], np.bool_),
            infos=columns_of(ordered),
            digests=tuple(one.digest for one in ordered),
            seconds=time.perf_counter() - began,
            videos=paths,
        )

    def _play(
        self, chosen: Chosen, context: PolicyContext, probe: Any, seed: int, episodes: int, known: dict[int, EndedEpisode],
        ended: Callable[[Sequence[EndedEpisode]], None],
    ) -> None:  # fmt: skip
        """Play what is not known yet."""
        left, restarts = self.execution.restarts, 0
        while missing := [number for number in range(episodes) if number not in known]:
            try:
                self._program(chosen, context, probe, len(missing)).play(chosen, seed, missing, ended)
            except (WorkerDiedError, WorkerHungError) as error:
                self.close()
                if not left:
                    raise
                left, restarts = left - 1, restarts + 1
                warnings.warn(
                    f"workers are started anew ({restarts} of {self.execution.restarts}): {error}", RecoveryWarning, stacklevel=4
                )
            except BaseException:
                self.close()
                raise

    def _program(self, chosen: Chosen, context: PolicyContext, probe: Any, episodes: int) -> EpisodeProgram:
        """The program that runs; another one is started where it will not do."""
        in_workers = chosen.policy.in_workers
        if self.program is not None and self.program.in_workers == in_workers:
            return self.program
        self.close()
        workers = self.execution.workers or usable_cores()
        if self.num_envs is None:
            each = ROWS if chosen.policy.by_row or chosen.batch == 1 else max(ROWS, chosen.batch)
            num_envs = each * (workers if in_workers or each == ROWS else 1)
        else:
            num_envs = self.num_envs
        num_envs = min(num_envs, episodes)
        workers = min(workers, num_envs)
        executor, replaced = self.execution.executor, bool(self.execution.restarts)
        choice = settled(executor, workers, replaced=replaced)
        if choice is not None:
            executor, workers = choice.executor, choice.workers
        else:
            limit = self.max_steps or (probe.spec.max_episode_steps if probe.spec is not None else None) or EXPECTED
            with no_traces():
                seconds = (step_cost(without_films(probe)) or 0.0) * limit * episodes
            pays = expected_gain(seconds, seconds / workers) > START
            executor, workers = (parallel_executor(replaced=replaced), workers) if pays else ("inline", 1)
        self.program = EpisodeProgram(
            self.make, num_envs, context, self.max_steps, replace(self.execution, executor=executor, workers=workers), in_workers
        )
        return self.program

    def close(self) -> None:
        """Close the environments, and end the workers."""
        program, self.program = self.program, None
        if program is not None:
            program.run.close()

    def __enter__(self) -> PolicyEvaluator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def env_maker(env: Any) -> tuple[Callable[[], gymnasium.Env[Any, Any]], str]:
    """A maker of an environment, and its name if that is known.

    Raises:
        TypeError: If it is not an id, a spec or a function.
    """
    if isinstance(env, str | EnvSpec):
        spec = find_spec(env) if isinstance(env, str) else env
        return partial(gymnasium.make, spec), spec.id
    if isinstance(env, gymnasium.Env) or not callable(env):
        raise TypeError(f"env must be an id, a spec, or a function that makes an environment, got {env!r}")
    return env, ""


def _name_of(env: gymnasium.Env[Any, Any]) -> str:
    """Its id; of one that was made without one, its name or that of its class."""
    if env.spec is not None:
        return env.spec.id
    name = getattr(env.unwrapped, "name", None)
    return name if isinstance(name, str) else type(env.unwrapped).__name__


def _environment(env_fn: Callable[[], Any], probe: Any, before: Contents) -> dict[str, str]:
    """Hashes of what an environment is made by, and of what it says of itself.

    Args:
        env_fn: Makes it.
        probe: One that was made.
        before: What the function consisted of before that; what has changed since then is left out.
    """
    spaces = [repr(probe.observation_space), repr(probe.action_space)]
    after = contents(env_fn, whole=True)
    wrappers, env = [], probe
    while isinstance(env, gymnasium.Wrapper):
        wrappers.append(type(env).__qualname__)
        env = env.env
    found = hashes(after, replaced(before, after))
    for name, part in (("class", type(env)), ("spec", probe.spec), ("wrappers", wrappers), ("spaces", spaces)):
        told = hashes(contents(part, whole=True), ())
        found[f"{name} of the environment"] = hashed(sorted(told.items()))
    return found


def _whole(number: Any) -> int | None:
    """Convert a number, which may be one of numpy's, to an ``int``; keep ``None``."""
    return None if number is None else int(number)


def _checked_path(name: str, path: Any) -> Path | None:
    if path is not None and not isinstance(path, str | os.PathLike):
        raise TypeError(f"{name} must be a path, got {path!r}")
    return None if path is None else Path(path)


def _checked_record(record: Any, episodes: int) -> list[int]:
    try:
        numbers = None if isinstance(record, str | bytes | Mapping) else list(record)
    except TypeError:
        numbers = None
    if numbers is None:
        raise TypeError(f"record must be a sequence of numbers of episodes, such as [0], got {record!r}")
    for number in numbers:
        checked_number("record", number, 0)
        if number >= episodes:
            raise ValueError(f"record: there is no episode {number}, but {episodes} of them, from 0 on")
    return sorted({int(number) for number in numbers})


@contextlib.contextmanager
def progress(total: int, unit: str, *, shown: bool | None) -> Iterator[Callable[[int], object]]:
    """A bar that appears if it takes longer than a second; gives a function to be called with what has been done since.

    Args:
        total: How much is to be done.
        unit: What that is counted in.
        shown: Whether there is one; ``None`` if it is to be on a terminal or in a notebook, and not in a log.
    """
    if shown is None:
        shown = (sys.stderr is not None and sys.stderr.isatty()) or _in_notebook()
    if not shown:
        yield lambda count: None
        return
    from tqdm.auto import tqdm

    with tqdm(total=total, unit=unit, unit_scale=unit == "step", delay=1) as bar:
        yield bar.update


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    kernel = shell.get_ipython() if shell is not None else None
    # Hosted notebooks have a shell of their own, derived from that one.
    return any(cls.__name__ == "ZMQInteractiveShell" for cls in type(kernel).__mro__)
