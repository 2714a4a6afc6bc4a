"""Saving an environment exactly: its state, or its seed and actions, or not at all; and whose workers can be replaced."""

from __future__ import annotations

import contextlib
import copyreg
import io
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeVar

import cloudpickle
import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import EzPickle
from gymnasium.vector import VectorWrapper
from gymnasium.vector.utils import batch_space

from reactor_gymnasium.arguments import EnvFn, checked_number, make_probe
from reactor_gymnasium.environments.owning import same_bits
from reactor_gymnasium.traces import no_traces
from reactor_rl import Recover, RunError
from reactor_rl.plugin import Pickled, decode, loads

__all__ = ["load_env", "save_env", "save_strategy", "saved_exactly", "probe_save_strategy", "why_not_saved", "recover_for"]

_LEFT_NAMES = frozenset({"spec", "_cached_spec"})
"""Attributes that say how an environment was made. What it was made with need not be something that can be pickled."""

_Env = TypeVar("_Env")


class _Plain(NamedTuple):
    """State of an object that has no way of its own to be pickled."""

    attributes: dict[str, Any]
    slots: dict[str, Any]
    left: frozenset[str]  # names of the attributes that stay what they are where this is loaded


def save_env(env: Any) -> bytes:
    """The state of an environment, wrappers included, or of what holds one. It goes on as if nothing had happened.

    What it shares with others (another environment, a global variable) is saved like anything else, and is its own once loaded.

    Raises:
        Exception: Whatever a part of it raises that cannot be pickled; :class:`pickle.PicklingError` for an Atari emulator with
            sticky actions, which does not tell which action sticks.
    """
    levels = _levels(env)
    out = io.BytesIO()
    pickle.dump(_kinds(levels), out)
    _Pickler(out, levels).dump([_state(level) for level in levels])
    return out.getvalue()


def load_env(env: _Env, saved: bytes) -> _Env:
    """Put a state into an environment that was made as the saved one was, and need not have been reset.

    This executes a pickle: load only what you trust. Infos that come from a clock (``RecordEpisodeStatistics``' ``"t"``) count from
    what the clock showed where it was saved. Until its next step, an emulator does not show the restored screen.

    Args:
        env: The environment.
        saved: What :func:`save_env` gave, in this or another process, with the same versions of the packages.

    Returns:
        ``env`` itself.

    Raises:
        ValueError: If the classes of the environment or its wrappers are not those of the saved one.
        Exception: Whatever unpickling raises. The environment is then in between and must be thrown away.
    """
    levels = _levels(env)
    stream = io.BytesIO(saved)
    # Two pickles, one behind the other: names of classes are compared before anything of the state is loaded.
    theirs, ours = pickle.load(stream), _kinds(levels)
    if theirs != ours:
        raise ValueError(f"this is the state of {' of '.join(theirs)}, it cannot be put into {' of '.join(ours)}")
    for level, state in zip(levels, _StateUnpickler(stream, levels).load(), strict=True):
        _put(level, state)
    return env


def _levels(env: Any) -> list[Any]:
    """The wrappers, the outermost first, and the environment."""
    levels = [env]
    while isinstance(levels[-1], (gymnasium.Wrapper, VectorWrapper)):
        levels.append(levels[-1].env)
    return levels


def _kinds(levels: Sequence[Any]) -> list[str]:
    return [f"{type(level).__module__}.{type(level).__qualname__}" for level in levels]


def _has_its_own_way(cls: type) -> bool:
    """Whether a class says itself what its state is. `EzPickle` does not count: it would make the environment anew."""
    get: Any = cls.__getstate__
    put: Any = getattr(cls, "__setstate__", None)
    return get not in (object.__getstate__, EzPickle.__getstate__) or put not in (None, EzPickle.__setstate__)


def _state(level: Any) -> Any:
    if _has_its_own_way(type(level)):
        return level.__getstate__()
    state = object.__getstate__(level)
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    attributes = attributes or {}
    left = frozenset(name for name, value in attributes.items() if name in _LEFT_NAMES or _stays(value))
    return _Plain({name: value for name, value in attributes.items() if name not in left}, slots or {}, left)


def _put(level: Any, state: Any) -> None:
    if not _has_its_own_way(type(level)):
        mine = vars(level)
        kept = {name: mine[name] for name in state.left if name in mine}
        mine.clear()
        mine.update(state.attributes, **kept)
        for name, value in state.slots.items():
            setattr(level, name, value)
    elif hasattr(level, "__setstate__"):
        level.__setstate__(state)
    else:
        vars(level).update(state)


def _stays(value: Any) -> bool:
    """Whether a new environment has to keep its own: a window that has yet to open, a log on the disk."""
    log = type(value).__name__ == "ResultsWriter" and _module(type(value)) == "stable_baselines3.common.monitor"
    return log or _of_pygame(value, "Surface", "Clock", "Font")


def _of_pygame(value: Any, *names: str) -> bool:
    return type(value).__name__ in names and _module(type(value)).partition(".")[0] == "pygame"


def _module(cls: type) -> str:
    """Where a class is defined. Those of some extensions do not tell."""
    return getattr(cls, "__module__", "")


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles what the levels hold; the levels themselves, emulators and classes of a script stand for those where it is loaded.

    Args:
        file: Where to.
        levels: The levels.
        look: Whether only to find out what emulators and classes there are.

    Attributes:
        emulators: Those that were met, in this order.
        classes: Those that no other process can import, by module and name; None if two have the same.
    """

    def __init__(self, file: io.BytesIO, levels: Sequence[Any], look: bool = False) -> None:
        super().__init__(file, protocol=5)
        self._look = look
        self._level_numbers = {id(level): number for number, level in enumerate(levels)}
        self._class_numbers: dict[type, int] = {}
        self.emulators: list[Any] = []
        self.classes: dict[tuple[str, str], type | None] = {}

    def persistent_id(self, obj: Any) -> tuple[Any, ...] | None:
        number = self._level_numbers.get(id(obj))
        if number is not None:
            return "level", number
        if isinstance(obj, type):
            return self._class(obj) if _module(obj) == "__main__" or "<locals>" in obj.__qualname__ else None
        ale_py = sys.modules.get("ale_py")
        return self._emulator(obj) if ale_py is not None and isinstance(obj, ale_py.ALEInterface) else None

    def reducer_override(self, obj: Any) -> Any:
        cls = type(obj)
        if isinstance(obj, EzPickle) and not _has_its_own_way(cls):
            return copyreg.__newobj__, (cls,), dict(vars(obj)), None, None, _fill  # type: ignore[attr-defined]
        if (_module(cls), cls.__name__) == ("gymnasium.envs.mujoco.mujoco_rendering", "MujocoRenderer"):
            # Viewers are made when something is drawn.
            return copyreg.__newobj__, (cls,), {**vars(obj), "viewer": None, "_viewers": {}}  # type: ignore[attr-defined]
        if (_module(cls), cls.__name__) == ("nanobind", "nb_bound_method"):
            return getattr, (obj.__self__, obj.__name__)
        if (_module(cls), cls.__name__) == ("pygame.freetype", "Font"):
            return cls, (obj.path, obj.size)
        if _of_pygame(obj, "Surface"):
            import pygame

            return _surface, (pygame.image.tobytes(obj, "RGBA"), obj.get_size())
        return super().reducer_override(obj)

    def _class(self, cls: type) -> tuple[Any, ...] | None:
        """A class that travels by value would be another one than the new environment's: it is the last resort."""
        known = cls in self._class_numbers
        number = self._class_numbers.setdefault(cls, len(self._class_numbers))
        name = cls.__module__, cls.__qualname__
        if not known:
            self.classes[name] = None if name in self.classes else cls
        if self._look:
            return None  # its methods may name others
        return "class", number, name, None if known else cloudpickle.dumps(cls)

    def _emulator(self, ale: Any) -> tuple[Any, ...]:
        for number, known in enumerate(self.emulators):
            if known is ale:
                return "emulator", number, None
        self.emulators.append(ale)
        if self._look:
            return "emulator", len(self.emulators) - 1, None
        if ale.getFloat("repeat_action_probability") > 0:
            raise pickle.PicklingError("the state of an Atari emulator lacks the action that it may repeat (sticky actions)")
        return "emulator", len(self.emulators) - 1, ale.cloneState(include_rng=True)


class _StateUnpickler(pickle.Unpickler):
    """Loads what :class:`_Pickler` wrote, for other levels."""

    def __init__(self, file: io.BytesIO, levels: Sequence[Any]) -> None:
        super().__init__(file)
        self._levels = levels
        self._here: _Pickler | None = None
        self._classes: dict[int, type] = {}

    def persistent_load(self, pid: Any) -> Any:
        if pid[0] == "level":
            return self._levels[pid[1]]
        if self._here is None:
            self._here = _Pickler(io.BytesIO(), self._levels, look=True)
            self._here.dump([(type(level), _state(level)) for level in self._levels])
        if pid[0] == "class":
            _, number, name, pickled = pid
            if number not in self._classes:
                self._classes[number] = self._here.classes.get(name) or loads(pickled)
            return self._classes[number]
        _, number, state = pid
        ale = self._here.emulators[number]
        if state is not None:
            # A state lacks the two screens that the emulator draws into by turns, and some games (Qbert) do not draw all of a
            # screen every time: draw both, then go back.
            ale.restoreState(state)
            ale.act(0)
            ale.act(0)
            ale.restoreState(state)
        return ale


def _fill(obj: Any, attributes: dict[str, Any]) -> None:
    vars(obj).update(attributes)


def _surface(pixels: bytes, size: tuple[int, int]) -> Any:
    import pygame

    return pygame.image.frombytes(pixels, size, "RGBA")


_SEED = 20_231
"""Of resets and actions in trials. Any number would do; it is a fixed one, so that a trial in another process finds the same."""

_Found = TypeVar("_Found")


def probe_save_strategy(make: EnvFn, steps: int = 50) -> Literal["state", "replay"] | None:
    """Find out how an environment can be continued elsewhere, by trying it with at most three that are thrown away.

    One is stepped with random actions, saved, and stepped on, through a reset without a seed; another, into which the state was
    loaded, must then give the same observations, rewards and flags, and if it does not, a third that repeats everything.

    Args:
        make: Makes one.
        steps: How many before the state is saved, and as many afterwards.

    Returns:
        ``"state"`` if :func:`save_env` and :func:`load_env` do, ``"replay"`` if the same seed and actions do, from the first
        reset on; None if neither does, as for an environment that draws from a process-global random generator.
    """
    with _trying(make) as new:
        first, saved = new(), None
        try:
            actions, later = _drawn(first, steps), _drawn(first, steps, _SEED + 1)
            before = _from_the_start(first, actions)
            with contextlib.suppress(Exception):
                saved = save_env(first)
            after = _onwards(first, later)
        except Exception:
            return None
        if saved is not None:
            with contextlib.suppress(Exception):
                if same_bits(_onwards(load_env(new(), saved), later), after):
                    return "state"
        with contextlib.suppress(Exception):
            again = new()
            if same_bits(_from_the_start(again, actions), before) and same_bits(_onwards(again, later), after):
                return "replay"
    return None


def save_strategy(make: Any) -> Literal["state", "replay"] | None:
    """:func:`probe_save_strategy` of an encoded function's environment: tried once in every process."""
    return _once(probe_save_strategy, make)


def repeats_itself(make: Any) -> bool:
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
        return same_bits(*seen)


@contextlib.contextmanager
def _trying(make: EnvFn) -> Iterator[Callable[[], gymnasium.Env[Any, Any]]]:
    """Gives a function that makes one, to be thrown away; they are closed, and global random generators are what they were."""
    with no_traces(), contextlib.ExitStack() as closing:

        def new() -> gymnasium.Env[Any, Any]:
            env = make_probe(make)
            closing.callback(_close, env)
            return env

        yield new


def saved_exactly(env: gymnasium.Env[Any, Any], strategy: str | None, name: str) -> bytes:
    """The state of an environment, as :func:`save_env` gives it, if that is enough for another one to go on to the bit.

    Args:
        env: The environment.
        strategy: What :func:`probe_save_strategy` says of what made it.
        name: What it is called in messages.

    Raises:
        RunError: If it is not. Says why.
    """
    if strategy != "state":
        raise RunError(f"{name} ({env}) cannot be saved and restored exactly: {why_not_saved(env)}")
    try:
        return save_env(env)
    except pickle.PicklingError as error:
        raise RunError(f"{name} cannot be saved and restored exactly: {error}") from error


def why_not_saved(env: gymnasium.Env[Any, Any]) -> str:
    """Why the state of an environment, whose strategy is not ``"state"``, cannot be saved and loaded exactly."""
    try:
        save_env(env)
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
    """Its results, with a reset in between: a reset shows what no step does, and episodes may be long."""
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
        given = env.step(_allowed(env, deepcopy(action)))[:4]
        seen.append(deepcopy(given))  # some use their arrays again
        if np.any(given[2]) or np.any(given[3]):
            seen.append(deepcopy(env.reset()[0]))
    return seen


def _allowed(env: gymnasium.Env[Any, Any], action: Any) -> Any:
    """An action, with the first allowed choice where ``action_masks()``, as sb3-contrib has it, forbids what it has."""
    try:
        masks = np.asarray(env.get_wrapper_attr("action_masks")(), bool).ravel()
    except Exception:  # nothing is forbidden, or it is for the training to say
        return action
    match env.action_space:
        case spaces.Discrete(n=n, start=start):
            sizes, start = [int(n)], int(start)
        case spaces.MultiDiscrete(nvec=sizes):
            sizes, start = sizes.ravel().tolist(), 0
        case _:
            return action
    chosen = np.array(action).ravel() - start
    for number, allowed in enumerate(np.split(masks, np.cumsum(sizes[:-1]))):
        if not allowed[chosen[number]]:
            chosen[number] = np.argmax(allowed)
    return type(action)(chosen[0] + start) if np.ndim(action) == 0 else chosen.reshape(action.shape)


def _close(env: gymnasium.Env[Any, Any]) -> None:
    with contextlib.suppress(Exception):
        env.close()


def recover_for(restarts: int, executor: str, makes: Iterable[Any] = (), unit: str = "environment") -> Recover | None:
    """The ``recover=`` that a program of environments is started with.

    Args:
        restarts: How often workers may be replaced; 0 for never.
        executor: Name of the executor; only processes can be replaced.
        makes: What makes the environments, encoded; each kind is tried once with two that are thrown away.
        unit: What each of them is called in messages.

    Raises:
        TypeError: If ``restarts`` is not an integer.
        ValueError: If it is negative, there are threads, or an environment does not do the same again, or cannot be tried.
    """
    checked_number("restarts", restarts, 0)
    if not restarts or executor == "inline":
        return None
    if executor == "threads":
        raise ValueError(f"restarts={restarts}: a thread cannot be replaced; use executor='processes'")
    for number, make in enumerate(makes):
        try:
            again = repeats_itself(make)
        except Exception as error:
            raise ValueError(
                f"restarts={restarts}: {unit} {number} could not be brought back, for another one of its kind raised "
                f"{error!r} when it was tried: reset(seed=...), then random actions. Leave restarts out"
            ) from error
        if not again:
            raise ValueError(
                f"restarts={restarts}: {unit} {number} could not be brought back, for another one of its kind does not do the "
                "same after the same seed and actions. Have it draw from its own np_random, or leave restarts out"
            )
    return Recover(restarts=restarts)
