"""What ``python -m reactor_rl doctor ENV_ID`` says of an environment."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import gymnasium
import numpy as np

from reactor_gymnasium.cli.rollout import without_banner
from reactor_gymnasium.doctor.repeatable import difference, global_draws
from reactor_gymnasium.doctor.step_profile import WARM, StepProfile, profile
from reactor_gymnasium.environments.folded import Folded
from reactor_gymnasium.environments.ways import way, why_not
from reactor_gymnasium.placing.env_costs import env_costs
from reactor_gymnasium.placing.executor_choice import AWAY, decide
from reactor_gymnasium.placing.step_cost import drawn
from reactor_gymnasium.registration.make import find_spec
from reactor_gymnasium.vector.arguments import encoded
from reactor_rl.plugin import UsageError, global_random_state, tick_cost, usable_cores

__all__ = ["environment"]

Line = tuple[str, str, str | None]
"""Label, value and, where something hurts, a warning."""
Env = gymnasium.Env[Any, Any]
Make = Callable[[], Env]

NUMBERS = (1, 8, 64, 256)
"""Numbers of environments for which the choice of ``auto`` is shown."""
STEPS, SECONDS, FEWEST = 100, 1.0, 5
"""Steps in which determinism is looked at: no more than take so many seconds, but a few."""
MUCH, HEAVY = 0.1, 5.0
"""Resets that take a larger share of the time, and last for as many steps, are warned of."""


def environment(name: str) -> Iterator[Line]:
    """What steps of an environment cost, what helpers gain, and whether its results can be repeated.

    Args:
        name: As for :func:`reactor_gymnasium.make_vec`: an id, or ``module:id``.

    Raises:
        UsageError: If there is no such environment, or it cannot be made or stepped here.
    """
    with _explained(name), global_random_state():
        make = _maker(name)
        with contextlib.closing(make()) as env:
            yield "environment", f"{name}: {_chain(env)}", None
            taken = profile(env)
        yield from _costs(taken, make)
        yield from _choices(taken, make)
        steps = int(min(STEPS, max(FEWEST, SECONDS / np.median(taken.steps))))
        yield from _determinism(make, steps)
    yield "all of it", f"python -m reactor_rl verify reactor_gymnasium:rollout {name}", None


@contextlib.contextmanager
def _explained(name: str) -> Iterator[None]:
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{name!r} cannot be examined: {_line(error)}") from error


def _maker(name: str) -> Make:
    try:
        spec = find_spec(name)
    except (gymnasium.error.Error, ImportError) as error:
        raise UsageError(
            f"there is no environment {name!r} ({_line(error)}); one that you have registered in a module of yours is written "
            "my_module:MyEnv-v0"
        ) from error
    if spec.entry_point is None:
        raise UsageError(
            f"{name!r} has no single environment that could be examined: it is registered as a vector environment only"
        )
    return partial(without_banner, spec.id)


def _chain(env: Env) -> str:
    names = [type(env.unwrapped).__name__]
    while isinstance(env, gymnasium.Wrapper):
        names.insert(1, type(env).__name__)
        env = env.env
    return " in ".join([names[0], *([", ".join(names[1:])] if names[1:] else [])])


# ---------------------------------------------------------------------- costs


def _costs(taken: StepProfile, make: Make) -> Iterator[Line]:
    low, median, high = np.percentile(taken.steps, [5, 50, 95])
    yield "a step", f"{_time(median)} (nine of ten within {_time(low)} and {_time(high)}, {len(taken.steps):,} timed)", None
    if taken.wrappers is None:
        yield "  wrappers", "unknown: the environment's step cannot be replaced by one that is timed", None
    else:
        yield "  wrappers", f"{taken.wrappers:.0%} of it, {_folded(make)}", None
    yield "  infos", f"{taken.infos:.0%} on top, to bring them to the caller" if taken.info else "none", None
    if not taken.episodes:
        yield (
            "  resets",
            f"unknown: no episode ended in {taken.every:,.0f} steps; one reset takes {_time(np.median(taken.resets))}",
            None,
        )
        return
    warning = None
    if taken.reset > MUCH and np.median(taken.resets) > HEAVY * median:
        warning = (
            f"resets take {taken.reset:.0%} of the time: while one environment resets, the others of the same step wait. "
            "The speed-ups that are told count that; a reset that does less helps every one of them"
        )
    each = f"{_time(np.median(taken.resets))} each, one in {taken.every:,.{0 if taken.every >= 10 else 1}f} steps"
    yield "  resets", f"{taken.reset:.0%} of all the time: {each}", warning


def _folded(make: Make) -> str:
    held = Folded(make())
    with contextlib.closing(held.env.unwrapped):
        held.env.reset(seed=0)
        for action in islice(drawn(held.env.action_space), WARM):  # standard wrappers fold once they have looked at a few
            held.env.step(action)
        if not isinstance(held.env, gymnasium.Wrapper):
            return "there are none"
        held.fold()
        if not held.folded:
            return "all of which ReactorVectorEnv calls too"
        if held.inner is held.env.unwrapped:
            return "which ReactorVectorEnv does without"
        return "some of which ReactorVectorEnv does without"


def _choices(taken: StepProfile, make: Make) -> Iterator[Line]:
    cores = usable_cores()
    cost = tick_cost() if cores > 1 else 0.0
    if cores > 1:
        said = f"{_time(cost)} for each step" if math.isfinite(cost) else "cannot be started in this process"
        yield "helpers", f"{said}, as measured now", None
    with contextlib.closing(make()) as env:
        for number in NUMBERS:
            workers = min(cores, number)
            costs = partial(env_costs, env, encoded((make,) * number), workers)
            choice = decide(costs, number, workers, "auto", True, lambda work: tick_cost(away=AWAY, work=work))
            ran = "inline" if choice.workers == 1 else f"{choice.executor}, {choice.workers} workers"
            gain = "" if workers == 1 else f"; {workers} workers: {taken.speed_up(number, workers, cost):.2f} times as fast as one"
            yield f"{number} environment{'s' if number > 1 else ''}", f"auto takes {ran} ({choice.why}){gain}", None


def _time(seconds: float) -> str:
    for unit, size in (("us", 1e-6), ("ms", 1e-3)):
        if seconds < 1000 * size:
            return f"{seconds / size:.{1 if seconds < 100 * size else 0}f} {unit}"
    return f"{seconds:.1f} s"


# ---------------------------------------------------------------------- determinism


def _determinism(make: Make, steps: int) -> Iterator[Line]:
    drew = {when: names for when, names in global_draws(make, steps).items() if names}
    if drew:
        names = _listed(sorted({name for of_one in drew.values() for name in of_one}))
        when = "; when ".join(f"{when}: {_listed(of_one)}" for when, of_one in drew.items())
        warning = (
            f"it draws from (or seeds) {names}, which belongs to the process: what it draws depends on who else draws there, so "
            "results depend on the number of workers. self.np_random is the environment's own, and reset(seed=...) seeds it"
        )
        yield "global generators", f"drawn from (or seeded) when {when}", warning
    else:
        yield "global generators", "none is drawn from", None
    with contextlib.closing(make()) as one, contextlib.closing(make()) as other:
        differs = difference(one, other, steps)
    yield (
        "two copies",
        f"the same for {steps} steps, by the same seed and actions" if differs is None else f"differ first in the {differs}",
        None
        if differs is None
        else f"two copies with the same seed and actions differ in the {differs}: nothing repeats its results",
    )
    if not drew and differs is None:
        yield "going on", *_saving(make, steps)


def _saving(make: Make, steps: int) -> tuple[str, str | None]:
    """How an environment goes on where another one was, which is tried."""
    found = way(make, steps)
    if found == "state":
        return "by its state, which was saved and loaded into another one", None
    with contextlib.closing(make()) as env:
        env.reset(seed=0)
        why = why_not(env)
    if found == "replay":
        return f"by repeating the actions of its episode, for its state cannot be saved: {why}", None
    return f"there is no way: {why}", "neither its state nor its actions bring it back: a run that was killed cannot go on with it"


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
