"""Functions and wrappers of the user's own, which are called row by row after all rows have taken their step.

An ``ObservationWrapper``, ``RewardWrapper`` or ``ActionWrapper`` that overrides only its one method is its base class with that
method; a ``TransformObservation`` has a function. They may be called later than in Python if nobody can tell: if they look at
nothing but what they are given and what is theirs. So their code is read: the attributes and globals that it names.
"""

from __future__ import annotations

import dis
from collections import deque
from collections.abc import Iterator, Sequence
from functools import cache
from sys import getrefcount
from types import CodeType, FunctionType, ModuleType
from typing import Any, ClassVar, Generic, Protocol
from weakref import WeakKeyDictionary

import gymnasium
import numpy as np
from gymnasium import ActionWrapper, ObservationWrapper, RewardWrapper
from gymnasium.utils import EzPickle, RecordConstructorArgs

from reactor_gymnasium.environments.owning import IMMUTABLE, SOLE, own, shared
from reactor_gymnasium.native.forms import InRows, RowForm, RowResults, numbers_of
from reactor_gymnasium.native.guards import unlike
from reactor_gymnasium.native.kernel import ROOTS
from reactor_rl.plugin import Code, code_of

__all__ = ["EachAction", "EachObservation", "EachReward", "clip_bounds", "entangled", "form_of_own"]

_BASES: dict[type, tuple[str, tuple[str, ...]]] = {
    ObservationWrapper: ("observation", ("d7e06b11028e",)),
    RewardWrapper: ("reward", ("c23baada9234",)),
    ActionWrapper: ("action", ("ca48d03a62f5",)),
}
"""Of each base class the one method, and fingerprints of the code that calls it."""
_INSIDE = frozenset(vars(gymnasium.Wrapper)).union({"env", "_np_random", "__dict__"}) - {
    "__init__", "__module__", "__doc__", "metadata", "class_name", "observation_space", "action_space"
}  # fmt: skip
"""Attributes by which a wrapper may look at the environment inside."""
_SPACES = ("observation_space", "action_space")
"""Attributes that stay what they are."""
_NOISE = frozenset({
    "random", "time", "perf_counter", "monotonic", "urandom", "rand", "randn", "globals", "vars", "eval", "exec", "open", "getattr",
    "setattr", "input",
})  # fmt: skip
"""Names by which code gets at what everybody shares."""
_LIBRARIES = frozenset({"builtins", "math", "numpy"})
"""Packages whose functions have no state, but for those of ``_NOISE``."""
_PLAIN: tuple[Any, ...] = (*IMMUTABLE, type, np.dtype, np.generic, slice, range)
_DATA = (np.ndarray, np.random.Generator, np.random.RandomState, gymnasium.Space)
_KNOWN = (gymnasium.Env, gymnasium.Wrapper, Generic, Protocol, object, RecordConstructorArgs, EzPickle, *_BASES)
_SPECIAL = frozenset({"step", "reset", "env", "unwrapped", "__getattribute__", "__getattr__", "__setattr__", "__slots__"})


def entangled(function: Any) -> str | None:
    """Why a function may not be called later than in Python, ``None`` if it may."""
    if isinstance(function, np.ufunc):
        return None
    if type(function) is not FunctionType:
        return f"the code of its {type(function).__name__} cannot be read"
    read = _read.get(function)
    if read is None or read[0] is not function.__code__:  # which somebody may replace
        read = _read[function] = function.__code__, _entangled(function)
    return read[1]


_read: WeakKeyDictionary[FunctionType, tuple[CodeType, str | None]] = WeakKeyDictionary()
"""Of functions, which may be as many as environments: their code, and why they may not be called later."""


def _entangled(function: FunctionType) -> str | None:
    due, seen = [function], set[FunctionType]()
    while due:
        one = due.pop()
        if one in seen:
            continue
        seen.add(one)
        if set(one.__code__.co_freevars) - {"__class__"}:
            return f"{one.__qualname__} is a closure"
        for inner in _codes(one.__code__):
            if noise := _NOISE.intersection(inner.co_names):
                return f"{one.__qualname__} mentions {min(noise)}"
            if any(instruction.opname in ("STORE_GLOBAL", "DELETE_GLOBAL") for instruction in dis.get_instructions(inner)):
                return f"{one.__qualname__} writes a global"
            for name in inner.co_names:
                value = one.__globals__.get(name)
                if isinstance(value, FunctionType) and _package(value) not in _LIBRARIES:
                    due.append(value)
                elif name in one.__globals__ and not _harmless(value):
                    return f"{one.__qualname__} reads the global {name}"
    return None


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _codes(const)


def _package(value: Any) -> str:
    return (getattr(value, "__module__", None) or "").partition(".")[0]


def _harmless(value: Any) -> bool:
    """Whether a global is a module, a number or the like, or of a library whose functions have no state."""
    if isinstance(value, ModuleType | np.ufunc) or _plain(value):
        return True
    return callable(value) and _package(value) in _LIBRARIES and not isinstance(getattr(value, "__self__", None), _DATA)


def _plain(value: Any) -> bool:
    return all(map(_plain, value)) if isinstance(value, tuple | frozenset) else isinstance(value, _PLAIN)


def _is_data(value: Any) -> bool:
    """Whether a value is numbers, or a container of them: nothing that may refer to an environment."""
    if isinstance(value, dict):
        return all(map(_is_data, value.values()))
    if isinstance(value, list | set | deque | tuple | frozenset):
        return all(map(_is_data, value))
    return (isinstance(value, _DATA) and not (isinstance(value, np.ndarray) and value.dtype.hasobject)) or _plain(value)


# ---------------------------------------------------------------------- np.clip between numbers


def _clip(x: Any) -> Any:
    return np.clip(x, -10, 10)


def clip_bounds(function: Any) -> tuple[Any, Any] | None:
    """Low and high of ``lambda x: np.clip(x, low, high)`` with numbers; ``None`` of any other function."""
    if type(function) is not FunctionType or function.__defaults__ or function.__globals__.get("np") is not np:
        return None
    code, like = function.__code__, _clip.__code__
    if (code.co_code, code.co_names, code.co_argcount) != (like.co_code, like.co_names, 1) or code.co_freevars:
        return None
    bounds = [const for const in code.co_consts if const is not None]
    return (bounds[0], bounds[1]) if [type(bound) in (int, float) for bound in bounds] == [True, True] else None


# ---------------------------------------------------------------------- called row by row


class EachObservation(RowForm):
    """Calls ``observation()`` of each row's wrapper."""

    observes = True
    function: ClassVar[str | None] = "observation"

    def outward(self, results: RowResults) -> None:
        numbers = numbers_of(results.rows, results.n)
        found, kept = dict[int, Any](), dict[int, Any]()
        for row, shown in zip(numbers, results.objects(numbers), strict=True):
            try:
                value = self.wrappers[row].observation(shown)
            except Exception as error:
                results.fail(row, error)
                continue
            kind = type(value)
            if getrefcount(value) > SOLE or value.base is not None if kind is np.ndarray else kind not in IMMUTABLE:
                kept[row] = value
            found[row] = value
        results.show_each(found, kept)


class EachReward(RowForm):
    """Calls ``reward()`` of each row's wrapper."""

    def outward(self, results: RowResults) -> None:
        rewards, given = results.paid() if results.moved is not None else (), dict[int, Any]()
        for row in numbers_of(results.moved, results.n):
            try:
                given[row] = self.wrappers[row].reward(rewards[row])
            except Exception as error:
                results.fail(row, error)
        results.pay(given)


class EachAction(RowForm):
    """Calls ``action()`` of each row's wrapper."""

    def inward(self, actions: Any, rows: Sequence[int]) -> Any:
        failures, changed = [], [*actions]
        for row in rows:
            given = changed[row]
            try:
                changed[row] = own(self.wrappers[row].action(given.copy() if type(given) is np.ndarray else given))
            except Exception as error:
                failures.append((row, error))
        if failures:
            raise InRows(failures, changed)
        return changed


_EACH: dict[str, type[RowForm]] = {"observation": EachObservation, "reward": EachReward, "action": EachAction}


def form_of_own(wrapper: Any) -> type[RowForm] | str | None:
    """The form of a wrapper of the user's own class, or why it has none; ``None`` if its class is not one of a single method."""
    kind = type(wrapper)
    form: type[RowForm] | str | None = _form_of(kind)  # type: ignore[arg-type]
    if form is None or isinstance(form, str):
        return form
    base = next(base for base in _BASES if issubclass(kind, base))
    method, written_from = _BASES[base]
    code = code_of(kind, (method,), _SPACES)
    if why := unlike(base, written_from) or next(filter(None, map(entangled, code.functions.values())), None):
        return why
    if overridden := vars(wrapper).keys() & (code.methods | _SPECIAL - {"env"}):
        return f"it has a {min(overridden)} of its own"
    mentioned = sorted(vars(wrapper).keys() & code.names)
    for name in mentioned:
        if not _is_data(vars(wrapper)[name]):
            return f"its {name} is a {type(vars(wrapper)[name]).__name__}"
        if not _plain(vars(wrapper)[name]) and shared(map(vars(wrapper).get, (name,))):
            return f"somebody else refers to its {name}"
    return form


@cache
def _form_of(kind: type[Any]) -> type[RowForm] | str | None:
    """A form for a class, if its own method is the only one that steps and resets come to and it keeps to itself."""
    base = next((base for base in _BASES if issubclass(kind, base)), None)
    if base is None:
        return None
    method, _ = _BASES[base]
    for cls in kind.__mro__:
        if cls in _KNOWN:
            continue
        if special := _SPECIAL & vars(cls).keys():
            return f"it overrides {min(special)}"
    if not isinstance(kind.__dict__.get(method, getattr(kind, method)), FunctionType):
        return f"its {method} is not a method"
    if inside := _INSIDE & code_of(kind, (method,), _SPACES).names:
        return f"its {method}() looks at {min(inside - {'env'}, default='env')}"

    class Form(_EACH[method]):  # type: ignore[misc, valid-type]
        owner = kind.__name__

        @classmethod
        def comes_to(cls) -> Code:
            return code_of(kind, ROOTS)

    return Form
