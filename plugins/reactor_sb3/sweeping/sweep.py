"""``sweep``: a search for hyperparameters, the same on any number of workers."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Literal

from reactor_gymnasium.plugin import checked_number, env_maker, progress
from reactor_rl import RecoveryWarning
from reactor_rl.plugin import (
    CHOICES,
    Execution,
    ExecutorName,
    decode,
    dumps,
    encode,
    may_start_processes,
    require_extra,
    transport_for,
    usable_cores,
)  # fmt: skip
from reactor_sb3.sweeping.pool import GRACE, NodePool, ProcessPool
from reactor_sb3.sweeping.records import Record
from reactor_sb3.sweeping.report import SearchReport
from reactor_sb3.sweeping.search import Search
from reactor_sb3.sweeping.training import Ended, Reported, Trial, carried_out
from reactor_sb3.sweeping.trials import TrialTraining

if TYPE_CHECKING:
    import optuna

    from reactor_sb3.sweeping.study import Space

__all__ = ["sweep"]

CHOICES_HERE = ", ".join(repr(one) for one in CHOICES if one not in ("threads", "ray")) + " or 'ray'"


def sweep(
    train: Callable[[Trial], Any],
    space: Space,
    trials: int = 64,
    seeds: int = 1,
    *,
    workers: int | None = None,
    prune: Any = None,
    path: str | os.PathLike[str] | None = None,
    seed: int = 0,
    in_flight: int = 8,
    direction: Literal["maximize", "minimize"] = "maximize",
    sampler: optuna.samplers.BaseSampler | None = None,
    study: optuna.Study | None = None,
    env: Any = None,
    episodes: int = 20,
    executor: ExecutorName = "auto",
    nodes: Any = None,
    restarts: int = 1,
    progress_bar: bool | None = None,
    start_method: str | None = None,
) -> SearchReport:
    """Search hyperparameters. The trials are the same, bit for bit, for any ``workers``, ``executor`` and ``nodes``.

    Each training has a core and one thread. Optuna draws trial ``k`` when the trials up to ``k - in_flight`` have ended, and is
    told of them in their order; a report is judged by the trials before it. So it is never a matter of which training was faster.

    Args:
        train: Called for each training with a :class:`~reactor_sb3.sweeping.training.Trial`: its ``params``, ``seed``, ``folder``.
            Returns a model of Stable-Baselines3, sb3-contrib or ours (with ``workers=1``), which is evaluated; or a number; or
            nothing, then its last report counts.
        space: Optuna's distributions by name, or a function of a trial of Optuna's that asks it for hyperparameters. If it returns
            a dict, trainings are given that.
        trials: How many, counted with those that ``path`` has already; fewer if the sampler has no more to draw.
        seeds: Trainings of each trial, with seeds ``seed``, ``seed + 1`` and so on. The first one is judged by ``prune``, and the
            others begin when it is complete.
        workers: Trainings at the same time, on each node if there are several; ``None`` for the cores that each may use.
        prune: A :class:`~reactor_sb3.SuccessiveHalving`, or one of Optuna's pruners. By default every training goes to its end.
        path: A folder for the record of the search and the models. After a crash or Ctrl-C call again with the same arguments: what
            has ended is not done again, and a training that had begun finds its ``folder`` as it left it. All nodes must see it.
        seed: Of the search.
        in_flight: Trials that have begun and not ended, at most. It is part of the search: with another number others are drawn.
        direction: Whether more is better, ``"maximize"``, or less, ``"minimize"``; a study has its own.
        sampler: One of Optuna's with a seed; by default ``TPESampler(seed=seed)``, or the study's.
        study: A study of Optuna's, in SQLite or a journal, say. Trials are added to it in their order when they have ended.
        env: What models are evaluated in: an id, a spec, or a function; by default the environment that they learned in.
        episodes: How many, the same for all models.
        executor: ``"processes"``, ``"inline"`` (in the calling thread), ``"auto"``: processes where this one may start some; or
            ``"ray"``: processes on the machines of a cluster, this one included.
        nodes: With ``"ray"``: how many machines of a Ray cluster, this one included, or a ``reactor_ray.RayNodes``; ``None`` for
            all of them.
        restarts: How often a training begins again whose process or machine has died, before its trial counts as failed.
        progress_bar: Whether to show one, if it takes longer than a second. By default on a terminal and in notebooks.
        start_method: How processes start: ``"forkserver"``, ``"spawn"`` or ``"fork"``.

    Returns:
        The trials, with intervals over seeds. A training that raises is a failed trial that says why.

    Raises:
        TypeError: If an argument is of a wrong kind.
        ValueError: If one makes no sense, the sampler draws something else each time, or ``path`` or ``study`` has the trials of
            another search.
        ModuleNotFoundError: If Optuna is not installed.

    Example:
        >>> from optuna.distributions import FloatDistribution
        >>> from reactor_sb3 import sweep
        >>> report = sweep(lambda trial: -abs(trial.params["x"] - 2), {"x": FloatDistribution(0, 5)}, trials=12, executor="inline")
        >>> len(report), report.best.value > -1
        (12, True)
    """
    with require_extra("sweep", "sweep"):
        from reactor_sb3.sweeping.optuna_pruner import pruner_of
        from reactor_sb3.sweeping.study import OrderedStudy, space_of
    if not callable(train):
        raise TypeError(f"train must be a function of a trial, got {train!r}")
    for name, number, least in (
        ("trials", trials, 1), ("seeds", seeds, 1), ("in_flight", in_flight, 1), ("episodes", episodes, 1), ("seed", seed, 0),
    ):  # fmt: skip
        checked_number(name, number, least)
    if executor == "threads":
        raise ValueError(f"executor must be {CHOICES_HERE}, got 'threads': threads would share the generators of torch and numpy")
    if isinstance(executor, str) and executor not in CHOICES:
        raise ValueError(f"executor must be {CHOICES_HERE}, got {executor!r}")
    execution = Execution(workers=workers, executor=executor, nodes=nodes, start_method=start_method, restarts=restarts)
    if env is not None:
        env_maker(env)  # for its errors
    pruner, plain = pruner_of(prune), space_of(space)
    ordered = OrderedStudy(space, sampler, seed, direction, study, kept=path is not None)
    about = {
        "space": plain, "sampler": ordered.sampler, "direction": ordered.direction, "seeds": seeds, "seed": seed,
        "in_flight": in_flight, "prune": repr(pruner), "env": None if env is None else env_maker(env)[1], "episodes": episodes,
    }  # fmt: skip
    try:
        sent = encode(train)
    except Exception as error:
        raise TypeError(f"train cannot be sent to a worker: {error}") from error
    began = time.perf_counter()
    with ExitStack() as stack:
        transport = transport_for(executor, nodes, execution.workers)
        if transport is not None:
            stack.callback(transport.close, GRACE)
        record = stack.enter_context(Record(path, about))
        update = stack.enter_context(progress(trials, "trial", shown=progress_bar))
        search = Search(ordered, record, pruner, trials, seeds, seed, in_flight, env, episodes, update)
        search.advance()
        ordered.check_all_told(search.told)
        if executor == "inline" or (executor == "auto" and not may_start_processes()):
            _carry_out_here(search, sent)
        else:
            most = min(in_flight, trials) * seeds
            pool: ProcessPool | NodePool
            if transport is not None:
                pool = NodePool(transport, most, sent, start_method, record.path)
            else:
                pool = ProcessPool(min(execution.workers or usable_cores(), most), sent, start_method)
            stack.callback(pool.close)
            _carry_out(search, pool, execution.restarts)
    ended = tuple(one.report(record) for one in search.trials)
    return SearchReport(
        ended, ordered.direction, seeds, seed, ordered.sampler, ordered.study if study is None else study,
        time.perf_counter() - began,
    )  # fmt: skip


def _carry_out_here(search: Search, train: Any) -> None:
    """Carry out all trainings in the calling thread, one after the other.

    Args:
        search: The search.
        train: The user's function, encoded: each training has a copy of its own.
    """

    def ask(training: TrialTraining, report: Reported) -> bool:
        stops = search.judged(training, report)
        assert stops is not None, "trials before this one have ended"
        return stops

    while not search.over:
        training = search.next()
        assert training is not None, "every training waits for another one"
        search.ended(training, carried_out(decode(train), decode(encode(search.job(training))), partial(ask, training)))
        search.advance()


def _carry_out(search: Search, pool: ProcessPool | NodePool, restarts: int) -> None:
    """Carry out all trainings, each by the first worker that is free."""
    free = list(range(pool.size))
    doing: dict[int, TrialTraining] = {}
    asked: dict[int, Reported] = {}  # reports of workers that wait for an answer
    while not search.over:
        while free and (training := search.next()) is not None:
            worker = heappop(free)
            doing[worker] = training
            pool.send(worker, dumps(search.job(training)))
        for worker in sorted(asked, key=lambda worker: doing[worker].trial.number):
            stops = search.judged(doing[worker], asked[worker])
            if stops is not None:
                del asked[worker]
                pool.send(worker, dumps(stops))
        assert len(asked) < len(doing), "every training waits for another one"
        for worker, event in pool.receive():
            if isinstance(event, Reported):
                asked[worker] = event
                continue
            training = doing.pop(worker)
            asked.pop(worker, None)
            heappush(free, worker)
            if isinstance(event, Ended):
                search.ended(training, event)
            elif warning := search.died(training, event, restarts):
                warnings.warn(warning, RecoveryWarning, stacklevel=3)
        search.advance()
