"""``doctor`` on environments (whether they repeat themselves, what a step takes), their kernels, and compiled frames."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from itertools import islice
from typing import Any

import gymnasium
import numpy as np

from reactor_gymnasium.arguments import encode_makers
from reactor_gymnasium.cli.step_profile import WARM, StepProfile, profile
from reactor_gymnasium.cli.targets import without_banner
from reactor_gymnasium.environments.bypass import MANY, WrapperBypass
from reactor_gymnasium.environments.saving import probe_save_strategy, why_not_saved
from reactor_gymnasium.make import find_spec
from reactor_gymnasium.native.kernel import ROOTS
from reactor_gymnasium.native.kernels import choose_kernel, forecast, in_words
from reactor_gymnasium.native.registered import KERNELS
from reactor_gymnasium.placement import choose_executor, env_costs, info_cost, late_helpers, random_actions
from reactor_rl.plugin import (
    UsageError,
    canonical,
    changed_generators,
    compiled_kernel,
    fingerprint,
    generator_states,
    global_random_state,
    new_hash,
    tick_cost,
    usable_cores,
)

__all__ = ["difference", "global_draws", "environment", "frames", "kernels"]

Env = gymnasium.Env[Any, Any]
SEED = 20_231
"""Of resets. Any number would do; it is a fixed one, so that the doctor says the same twice."""
PARTS = ("observation", "reward", "terminated", "truncated", "info")


def global_draws(make: Callable[[], Env], steps: int) -> dict[str, tuple[str, ...]]:
    """The process's generators that an environment draws from (or seeds) when it is made, reset, and stepped.

    Raises:
        Exception: What the environment raises.
    """
    drew: dict[str, tuple[str, ...]] = {}
    before = generator_states()
    env = make()
    drew["made"] = changed_generators(before)
    with contextlib.closing(env):
        before = generator_states()
        env.reset(seed=SEED)
        drew["reset"] = changed_generators(before)
        stepped: set[str] = set()
        for action in islice(random_actions(env.action_space), steps):
            before = generator_states()
            *_, terminated, truncated, _ = env.step(action)
            stepped.update(changed_generators(before))
            if terminated or truncated:
                env.reset()
        drew["stepped"] = tuple(sorted(stepped))
    return drew


def difference(first: Env, second: Env, steps: int) -> str | None:
    """Step two environments that should be the same in turn, by the same actions; where they differ first, None if they do not.

    They are reset from one seed at first, and without one whenever an episode is over.

    Raises:
        Exception: What an environment raises.
    """
    action_space = first.action_space
    pairs = zip(_played(first, action_space), _played(second, action_space), strict=True)
    for number, (one, other) in enumerate(islice(pairs, steps + 1)):
        for part, a, b in zip(PARTS, one, other, strict=True):
            if a != b:
                return f"{part} of {f'step {number}' if number else 'the reset'}"
    return None


def _played(env: Env, action_space: gymnasium.Space[Any]) -> Iterator[tuple[bytes | None, ...]]:
    """Digests of what it gives: at its reset, and at every step together with the reset that comes of it."""
    observation, info = env.reset(seed=SEED)
    yield _digest(observation), None, None, None, _digest(info)
    for action in random_actions(action_space):
        observation, reward, terminated, truncated, info = env.step(action)
        again = env.reset()[0] if terminated or truncated else None
        yield tuple(_digest(part) for part in ((observation, again), reward, terminated, truncated, info))


def _digest(value: Any) -> bytes | None:
    """None for what has no content that could be compared."""
    digest = new_hash()
    try:
        canonical(value, digest)
    except Exception:
        return None
    return bytes(digest.digest())


Line = tuple[str, str, str | None]
"""Label, value and, where something hurts, a warning."""
Make = Callable[[], Env]

NUMBERS = (1, 8, 64, 256)
"""Numbers of environments for which the choice of ``auto`` is shown: the usual ones, from a single one to what fills a GPU's batch.
"""
STEPS, SECONDS, FEWEST = 100, 1.0, 5
"""Steps in which determinism is looked at: no more than take so many seconds, but a few. Most environments that are not
deterministic differ at the reset or in the first steps. Chosen.
"""
MUCH, HEAVY = 0.1, 5.0
"""Resets that take a larger share of the time, and last for as many steps, are warned of: below a tenth, a remedy gains little.
Chosen.
"""


def environment(name: str) -> Iterator[Line]:
    """Report what steps of an environment cost, what helpers gain, and whether its results can be repeated.

    Args:
        name: As for :func:`reactor_gymnasium.make_vec`: an id, or ``module:id``.

    Raises:
        UsageError: If there is no such environment, or it cannot be made or stepped here.
    """
    with _explained(name), global_random_state():
        make = _maker(name)
        with contextlib.closing(make()) as env:
            yield "environment", f"{name}: {_chain(env)}", None
            yield "kernel", forecast(env), None
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
        yield "  wrappers", f"{taken.wrappers:.0%} of it, {_bypass(make)}", None
    if (share := taken.simulated) is not None:
        yield "  mj_step", f"{share:.0%} of it: on one core nothing makes steps more than {1 / share:.1f} times as fast", None
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


def _bypass(make: Make) -> str:
    held = WrapperBypass(make())
    with contextlib.ExitStack() as closing:  # which must not refer to the environment itself: then nothing would be left out
        closing.callback(lambda: held.env.unwrapped.close())
        held.env.reset(seed=0)
        for action in islice(random_actions(held.env.action_space), WARM):  # wrappers look at a few steps before they are left out
            held.env.step(action)
        if not isinstance(held.env, gymnasium.Wrapper):
            return "for it has none"
        held.engage(MANY)
        if held.screens is not None:
            return "which ReactorVectorEnv calls, too, but fetches no screen that none of them looks at"
        if not held.engaged:
            return "all of which ReactorVectorEnv calls too"
        done = "whose work ReactorVectorEnv does for all rows at once" if held.levels else "which ReactorVectorEnv does without"
        return done if held.why is None else f"some of {done}, but not of all: {held.why}"


def _choices(taken: StepProfile, make: Make) -> Iterator[Line]:
    cores = usable_cores()
    cost = tick_cost() if cores > 1 else 0.0
    if cores > 1:
        said = f"{_time(cost)} for each step" if math.isfinite(cost) else "cannot be started in this process"
        yield "helpers", f"{said}, as measured now", None
    with contextlib.closing(make()) as env:
        for number in NUMBERS:
            workers = min(cores, number)
            costs = partial(env_costs, env, encode_makers((make,) * number), workers, infos=info_cost)
            choice = choose_executor(costs, number, workers, "auto", True, late_helpers(None))
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
    found = probe_save_strategy(make, steps)
    if found == "state":
        return "by its state, which was saved and loaded into another one", None
    with contextlib.closing(make()) as env:
        env.reset(seed=0)
        why = why_not_saved(env)
    if found == "replay":
        return f"by repeating the actions of its episode, for its state cannot be saved: {why}", None
    return f"there is no way: {why}", "neither its state nor its actions bring it back: a run that was killed cannot go on with it"


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def frames() -> Iterator[tuple[str, str, str | None]]:
    """Label, value and, if it is missing, a warning."""
    return compiled_kernel(
        "Atari frames", "reactor_gymnasium.atari._frames", "portable", "OpenCV makes them, in about ten times as long"
    )


def kernels() -> Iterator[Line]:
    """Report of each class that has a kernel whether that steps it here, and the fingerprint of its code."""
    for module, owner in KERNELS:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                kind = getattr(import_module(module), owner)
                found, chosen = fingerprint(kind, ROOTS), choose_kernel(kind)
                if not isinstance(chosen, str) and chosen.compared == (0, 0):  # it compares itself with an environment
                    chosen = chosen.strange_constants(kind()) or chosen
            except (ImportError, OSError, gymnasium.error.DependencyNotInstalled) as error:
                yield "kernel", f"{owner} of {module.rpartition('.')[2]}: none, {_line(error)}", None
                continue
        words = [str(one.message) for one in said if one.category is RuntimeWarning]
        yield "kernel", f"{owner} of {module.rpartition('.')[2]} ({found}): {in_words(chosen)}", words[0] if words else None
