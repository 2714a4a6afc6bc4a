"""How an environment can be continued elsewhere to the bit: by its state, by a replay, or not at all. Found out by trying it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from functools import lru_cache
from typing import Any, Literal, TypeVar

import gymnasium
import numpy as np
from gymnasium.vector.utils import batch_space

from reactor_gymnasium.environments.env_state import load, save
from reactor_gymnasium.vector.arguments import EnvFn, thrown_away
from reactor_rl import RunError
from reactor_rl.plugin import Pickled, decode, global_random_state, loads

__all__ = ["goes_again", "known_way", "saved_exactly", "way", "why_not"]

_SEED = 20_231

_Found = TypeVar("_Found")


def way(make: EnvFn, steps: int = 50) -> Literal["state", "replay"] | None:
    """Find out how an environment can be continued elsewhere, by trying it with at most three that are thrown away.

    One is stepped with random actions, saved, and stepped on, through a reset without a seed; another, into which the state was
    loaded, must then give the same observations, rewards and flags, and if it does not, a third that repeats everything.

    Args:
        make: Makes one.
        steps: How many before the state is saved, and as many afterwards.

    Returns:
        ``"state"`` if :func:`save` and :func:`load` do, ``"replay"`` if the same seed and actions do, from the first reset on;
        None if neither does, as for an environment that draws from a process-global random generator.
    """
    with _trying(make) as new:
        first, saved = new(), None
        try:
            actions, later = _drawn(first, steps), _drawn(first, steps, _SEED + 1)
            before = _from_the_start(first, actions)
            with contextlib.suppress(Exception):
                saved = save(first)
            after = _onwards(first, later)
        except Exception:
            return None
        if saved is not None:
            with contextlib.suppress(Exception):
                if _same(_onwards(load(new(), saved), later), after):
                    return "state"
        with contextlib.suppress(Exception):
            again = new()
            if _same(_from_the_start(again, actions), before) and _same(_onwards(again, later), after):
                return "replay"
    return None


def known_way(make: Any) -> Literal["state", "replay"] | None:
    """What :func:`way` says of what an encoded function makes: tried once in every process."""
    return _once(way, make)


def goes_again(make: Any) -> bool:
    """Whether what an encoded function makes does the same again after the same seed and actions: tried once in every process."""
    return _once(_twice, make)


def _once(trial: Callable[[EnvFn], _Found], make: Any) -> _Found:
    if not isinstance(make, Pickled):
        return trial(decode(make))
    found: _Found = _tried(trial, make.data)
    return found


@lru_cache(maxsize=8192)
def _tried(trial: Callable[[EnvFn], Any], make: bytes) -> Any:
    return trial(loads(make))


def _twice(make: EnvFn, steps: int = 50) -> bool:
    with _trying(make) as new:
        seen = []
        for _ in range(2):
            env = new()
            seen.append((_from_the_start(env, _drawn(env, steps)), _onwards(env, _drawn(env, steps, _SEED + 1))))
        return _same(*seen)


@contextlib.contextmanager
def _trying(make: EnvFn) -> Iterator[Callable[[], gymnasium.Env[Any, Any]]]:
    """Gives a function that makes one, to be thrown away; they are closed, and global random generators are what they were."""
    with global_random_state(), contextlib.ExitStack() as closing:

        def new() -> gymnasium.Env[Any, Any]:
            env = thrown_away(make)
            closing.callback(_close, env)
            return env

        yield new


def saved_exactly(env: gymnasium.Env[Any, Any], way: str | None, name: str) -> bytes:
    """The state of an environment, as :func:`save` gives it, if that is enough for another one to go on to the bit.

    Args:
        env: The environment.
        way: What :func:`way` says of what made it.
        name: What it is called in messages.

    Raises:
        RunError: If it is not. Says why.
    """
    if way != "state":
        raise RunError(f"{name} ({env}) cannot be saved and restored exactly: {why_not(env)}")
    return save(env)


def why_not(env: gymnasium.Env[Any, Any]) -> str:
    """Why the state of an environment, whose way is not ``"state"``, cannot be saved and loaded exactly."""
    try:
        save(env)
    except Exception as error:
        return str(error) or type(error).__name__
    return "another one into which its state was loaded did not go on as it did"


def _drawn(env: Any, steps: int, seed: int = _SEED) -> list[Any]:
    """Random actions. An environment of many rows shows as much in fewer steps, and takes more room in each."""
    if hasattr(env, "single_action_space"):
        space, steps = batch_space(env.single_action_space, env.num_envs), max(steps // env.num_envs, 10)
    else:
        space = deepcopy(env.action_space)
    space.seed(seed)
    return [space.sample() for _ in range(steps)]


def _from_the_start(env: gymnasium.Env[Any, Any], actions: Sequence[Any]) -> list[Any]:
    return [deepcopy(env.reset(seed=_SEED)[0]), *_walk(env, actions)]


def _onwards(env: gymnasium.Env[Any, Any], actions: Sequence[Any]) -> list[Any]:
    """What it gives, with a reset in between: a reset shows what no step does, and episodes may be long."""
    half = len(actions) // 2
    seen = _walk(env, actions[:half])
    try:
        seen.append(deepcopy(env.reset()[0]))
    except Exception as error:  # some do not allow it within an episode
        return [*seen, type(error)]
    return seen + _walk(env, actions[half:])


def _walk(env: gymnasium.Env[Any, Any], actions: Sequence[Any]) -> list[Any]:
    seen = []
    for action in actions:
        given = env.step(deepcopy(action))[:4]
        seen.append(deepcopy(given))  # some use their arrays again
        if np.any(given[2]) or np.any(given[3]):
            seen.append(deepcopy(env.reset()[0]))
    return seen


def _same(a: Any, b: Any) -> bool:
    """Whether two values are the same to the bit. Gymnasium's ``data_equivalence`` takes -0.0 for 0.0, and no NaN for itself."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, (np.ndarray, np.generic)):
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        return all(map(_same, a.flat, b.flat)) if a.dtype.hasobject else bool(a.tobytes() == b.tobytes())
    if isinstance(a, float):
        return bool(a.hex() == b.hex())
    return bool(a == b)


def _close(env: gymnasium.Env[Any, Any]) -> None:
    with contextlib.suppress(Exception):
        env.close()
