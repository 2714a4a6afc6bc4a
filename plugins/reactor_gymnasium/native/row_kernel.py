"""The driver of a user's kernel, which is checked, compared with copies of the environment, and called by C."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from copy import deepcopy
from functools import cache, lru_cache, partial
from multiprocessing import parent_process
from threading import RLock
from types import FunctionType, MethodType
from typing import Any, ClassVar, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from reactor_gymnasium.environments.infos import Group
from reactor_gymnasium.environments.owning import IMMUTABLE, same_bits
from reactor_gymnasium.native import compiled
from reactor_gymnasium.native.compiled import CompiledKernel
from reactor_gymnasium.native.guards import compared
from reactor_gymnasium.native.kernel import GENERATOR, REFUSED, Taken
from reactor_gymnasium.native.own import PYTHONS, CRows, KernelRows, ValueType, incomplete, types_of
from reactor_rl.plugin import dumps, global_random_state, warn_caller

__all__ = ["RowKernel", "drawn", "driver_of"]

Array = npt.NDArray[Any]
Env = gymnasium.Env[Any, Any]

SPACES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
EVERY_ENV = GENERATOR | {"action_space", "observation_space", "render_mode", "spec", "metadata", "reward_range"}
"""Attributes that a kernel need not mention."""
STEPS, ROWS = 60, 3
"""For how many steps, and with how many rows, a kernel is compared at first. More would delay the first step of everybody who has
it; :mod:`reactor_gymnasium.testing` compares thousands. Chosen.
"""
_comparing = RLock()  # random generators of everybody's are put back
FAR = 1e6
"""Bounds of actions beyond it count as none: draws between such bounds would all be far from what an environment is made for."""


class _Found(NamedTuple):
    """Findings about environments with the same constants."""

    why: str | None  # the kernel does not fit
    env: Any = None  # a copy
    observed: type = np.ndarray  # the type of an observation
    summed: type[float] = float
    alike: tuple[str, ...] = ()  # attributes that can be compared


class RowKernel(CompiledKernel):
    """Rows that a user's kernel steps: :func:`driver_of` makes a class of it for each.

    Time limits, autoreset, what is shown and what is handed back are as for any kernel in C. What the kernel says is checked, and
    its first steps are compared with those of copies of the environment.
    """

    code = "own"
    compared, judged = (0, 0), True
    trusted: ClassVar[bool] = False
    """Whether its first steps are not compared, for somebody else does so."""
    kernel: ClassVar[Any]
    env_type: ClassVar[type]
    types: ClassVar[dict[str, ValueType]]
    info_types: ClassVar[dict[str, ValueType]]
    known: ClassVar[dict[tuple[Any, ...], _Found]]

    @classmethod
    def original(cls) -> type:
        return cls.env_type

    # ------------------------------------------------------------------ what fits

    @classmethod
    def unavailable(cls) -> str | None:
        if why := compiled.missing():
            return why
        try:
            left = cls.comes_to().written - GENERATOR - cls.types.keys()
        except (OSError, SyntaxError):  # there is no source text
            left = frozenset()
        if left:
            return cls._complain(f"{cls.owner} writes self.{min(left)}, which is not in {cls.title}.state")
        if issubclass(cls.kernel, CRows):
            try:
                cls.kernel.functions()
            except (OSError, AttributeError) as error:
                return cls._complain(f"its library cannot be used: {error}")
        return None

    @classmethod
    def remark(cls) -> str:
        try:
            cls.comes_to().fingerprint  # noqa: B018
        except (OSError, SyntaxError):
            return f", compared only: {cls.owner} has no source text"
        return ""

    @classmethod
    def _complain(cls, why: str) -> str:
        """Warn of what is wrong with the kernel itself, once a process."""
        if parent_process() is None:  # else the caller's process has warned
            _warn(cls.title, why)
        return why

    @classmethod
    def strange(cls, env: Env) -> str | None:
        for what, space in (("action", env.action_space), ("observation", env.observation_space)):
            if type(space) not in SPACES:
                return f"its {what} space is a {type(space).__name__}"
        for name in (*cls._constants(), *[one for kind in (*cls.types.values(), *cls.info_types.values()) for one in kind.names]):
            if not hasattr(env, name):
                return cls._complain(f"{cls.owner} has no {name}, which {cls.title} names")
        attributes, code = vars(env), cls.comes_to()
        for name in sorted((attributes.keys() & code.names) - EVERY_ENV - cls.types.keys()):
            if isinstance(attributes[name], (FunctionType, MethodType, partial)):
                return f"its {name} is a function"
            if name not in cls._constants():
                return cls._complain(f"{cls.owner} reads self.{name}, which is neither in {cls.title}.state nor in its constants")
        return None

    @classmethod
    def strange_state(cls, env: Env) -> str | None:
        if type(env.np_random.bit_generator) is not np.random.PCG64:
            return "its random generator is not a PCG64"
        for name, kind in cls.types.items():
            value = getattr(env, name, None)
            if not kind.fits(value, env):
                return f"its {name} is {value!r}"
        return None

    @classmethod
    def constants(cls, env: Env) -> tuple[Any, ...]:
        values = [getattr(env, name) for name in cls._constants()]
        return (_space_key(env.action_space), _space_key(env.observation_space), *map(_key, values))

    @classmethod
    def _constants(cls) -> Sequence[str]:
        return tuple(getattr(cls.kernel, "constants", ()))

    @classmethod
    def strange_constants(cls, env: Env) -> str | None:
        key = cls.constants(env)
        with _comparing:
            if key not in cls.known:
                cls.known[key] = cls._first(env, key)
        return cls.known[key].why

    @classmethod
    def _first(cls, env: Env, key: Any) -> _Found:
        """Compare the kernel with copies of an environment."""
        with global_random_state(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                copies = [deepcopy(env) for _ in range(2 * ROWS + 1)]
            except Exception as error:
                return _Found(f"it cannot be copied, to be compared: {error!r}")
            try:
                cls.known[key] = found = cls._look(copies.pop(), copies[0])
                different = found.why or (None if cls.trusted else compared(cls, copies, STEPS))
            except Exception as error:
                different = f"{error!r} was raised"
        if different is None:
            return found
        return _Found(cls._complain(f"it does not do here what Python does: {different}"))

    @classmethod
    def _look(cls, env: Any, other: Any) -> _Found:
        """Step a copy in Python, to see of what types its results are."""
        random = np.random.default_rng(0)
        alike = [name for name, value in vars(env).items() if name not in GENERATOR and _comparable(value, vars(other).get(name))]
        seen, _ = env.reset(seed=0)
        observed, paid = {type(seen)}, set()
        for action in cls.draw(env, random, STEPS):
            seen, reward, terminated, truncated, _ = env.step(action)
            observed.add(type(seen))
            paid.add(type(reward))
            if terminated or truncated:
                seen, _ = env.reset()
                observed.add(type(seen))
        space: Any = env.observation_space
        (kind, *more) = observed
        if more or kind not in (np.ndarray, int, np.int64):
            return _Found(f"observations are of the types {', '.join(sorted(one.__name__ for one in observed))}")
        if kind is np.ndarray and (seen.dtype, seen.shape) != (space.dtype, space.shape):
            return _Found(f"observations are {seen.dtype}{list(seen.shape)}, and its space is {space}")
        plain = paid <= set(PYTHONS)
        if not plain and paid != {np.float64}:
            return _Found(
                f"rewards are of the types {', '.join(sorted(one.__name__ for one in paid))}: they must be Python's or float64"
            )
        return _Found(None, env, kind, float if plain else np.float64, tuple(alike))

    @classmethod
    def state_of(cls, env: Env) -> dict[str, Any]:
        found = cls._found_of(env)
        return {name: getattr(env, name, None) for name in (*found.alike, *cls.types)}

    @classmethod
    def _found_of(cls, env: Env) -> _Found:
        try:
            return cls.known[cls.constants(env)]
        except KeyError:
            raise ValueError(f"a step changes one of the constants {', '.join(cls._constants())}") from None

    @classmethod
    def draw(cls, env: Env, random: np.random.Generator, n: int) -> Array:
        return drawn(env.action_space, random, n)

    # ------------------------------------------------------------------ there and back

    def __init__(self, taken: Taken) -> None:
        env: Any = taken.envs[0]
        observed, acted = env.observation_space, env.action_space
        self._found = self._found_of(env)
        self.shape, self.dtype = observed.shape, observed.dtype
        self.summed = self._found.summed  # type: ignore[misc]
        self.actions = tuple(map(np.dtype, getattr(self.kernel, "actions", ()))) or (acted.dtype,)  # type: ignore[misc]
        self._bounds: tuple[Any, Any] | None = None
        self._low = self._high = 0
        if isinstance(acted, spaces.Discrete) and acted.dtype == np.int64:
            self._low, self._high = int(acted.start), int(acted.start + acted.n)
        elif isinstance(acted, spaces.Discrete):
            self._bounds = acted.start, acted.start + acted.n
        elif isinstance(acted, spaces.MultiDiscrete):
            self._bounds = acted.start, acted.start + acted.nvec
        elif isinstance(acted, spaces.MultiBinary):
            self._bounds = 0, 2
        super().__init__(taken)
        self.action_shape = (len(taken.envs), *acted.shape)

    def load(self) -> None:
        envs, env = self._envs, self._found.env
        n = len(envs)
        self._every = range(n)
        self.columns = {name: kind.column(n, env) for name, kind in self.types.items()}
        for name, column in self.columns.items():
            column[...] = [getattr(one, name) for one in envs]
        self.info_columns = {name: kind.column(n, env) for name, kind in self.info_types.items()}
        self.states = np.array([one.bit_generator.ctypes.state_address for one in self.generators], np.uint64)
        ours = {
            "n": n, "env": env, "state": self.columns, "moving": self.moving, "observations": self.observations,
            "rewards": self.rewards, "terminated": self.terminated, "truncated": self.truncated, "infos": self.info_columns,
            "rngs": self.generators, "states": self.states, "_draw": partial(compiled._kernels.random, self.capsules, self.moving),
        }  # fmt: skip
        self.moving[...] = True
        self._kernel = None if issubclass(self.kernel, CRows) else self.kernel(KernelRows(**self.columns | ours))

    def own_calls(self) -> tuple[Any, ...]:
        numbers: list[Array] = []
        if self._kernel is None:
            calls = self.kernel.functions()
            numbers = [np.ravel(getattr(self._found.env, name)).astype(np.float64) for name in self._constants()]
        else:
            quiet = np.errstate(all="ignore")  # of numbers that do not count, of rows that are not moving
            calls = quiet(self._kernel.step), self._kernel.reset, quiet(self._kernel.observe), self.generators
        return calls, tuple(self.columns.values()), tuple(self.info_columns.values()), (np.concatenate([*numbers, [0.0]]),)

    def numbers(self) -> tuple[int, ...]:
        return self._low, self._high

    def step(self, actions: Array, shown: Array | None, led_to: Array | None) -> int:
        if actions.shape != self.action_shape:
            return REFUSED
        if self._bounds is not None and not ((actions >= self._bounds[0]) & (actions < self._bounds[1])).all():
            return REFUSED
        count: int = self._step(actions, False, shown, led_to)
        return count

    def reseed(self, row: int, generator: np.random.Generator) -> None:
        super().reseed(row, generator)
        self.states[row] = generator.bit_generator.ctypes.state_address

    def unload(self) -> None:
        for name, kind in self.types.items():
            column = self.columns[name]
            values = column.tolist() if kind.python else column if kind.shape is None else map(np.copy, column)
            for env, value in zip(self._envs, values, strict=True):
                setattr(env, name, value)

    def give_back(self) -> list[Any]:
        self.unload()
        return [*map(self.own, self.rows())]

    def own(self, observation: Any) -> Any:
        return observation.copy() if self._found.observed is np.ndarray else self._found.observed(observation)

    def final(self, row: int) -> Any:
        return self.own(self.finals[row])

    def infos(self) -> list[Group]:
        if not self.info_columns:
            return []
        rows: range | list[int] = self._every
        if self.was_reset.any():
            rows = (~self.was_reset).nonzero()[0].tolist()
            if not rows:
                return []
            if rows[-1] - rows[0] + 1 == len(rows):
                rows = range(rows[0], rows[-1] + 1)
        where = slice(rows.start, rows.stop) if isinstance(rows, range) else rows
        return [(rows, {name: (kind.form, self.info_columns[name][where].copy()) for name, kind in self.info_types.items()})]

    def final_info(self, row: int) -> dict[str, Any]:
        return {
            name: kind.python(self.info_columns[name][row]) if kind.python else self.info_columns[name][row].copy()
            for name, kind in self.info_types.items()
        }


@lru_cache(maxsize=256)
def driver_of(kernel: Any, env_type: type) -> type[RowKernel]:
    """The driver of a user's kernel, for environments of a class.

    Raises:
        TypeError: If it is no kernel.
    """
    if why := incomplete(kernel):
        raise TypeError(why)
    types, info_types = types_of(kernel, "state"), types_of(kernel, "infos")
    names: dict[str, Any] = {
        "kernel": kernel, "env_type": env_type, "types": types, "info_types": info_types, "known": {},
        "module": env_type.__module__, "owner": env_type.__qualname__, "written_from": tuple(getattr(kernel, "written_from", ())),
        "parts": tuple([name for name, kind in types.items() if kind.shape is not None]),
        "__doc__": kernel.__doc__, "__module__": kernel.__module__,
    }  # fmt: skip
    return type(kernel.__name__, (RowKernel,), names)


@cache
def _warn(title: str, why: str) -> None:
    warn_caller(f"the {title} kernel is not used, Python steps with the same results: {why}")


def drawn(space: Any, random: np.random.Generator, n: int) -> Array:
    """Random actions of a space, of a ``Box`` of floats some outside of it.

    Args:
        space: The space.
        random: Draws them.
        n: How many.

    Returns:
        ``(n, *shape)`` of the space's dtype.
    """
    if isinstance(space, spaces.Discrete):
        return random.integers(space.start, space.start + space.n, n).astype(space.dtype)
    if isinstance(space, spaces.MultiDiscrete):
        return random.integers(space.start, space.start + space.nvec, (n, *space.shape)).astype(space.dtype)
    if isinstance(space, spaces.MultiBinary):
        return random.integers(0, 2, (n, *space.shape)).astype(space.dtype)
    low = np.where(np.abs(space.low) < FAR, space.low, -3.0).astype(np.float64)
    high = np.where(np.abs(space.high) < FAR, space.high, 3.0).astype(np.float64)
    if space.dtype.kind != "f":
        return random.integers(low.astype(int), high.astype(int) + 1, (n, *space.shape)).astype(space.dtype)
    beyond = 0.15 * (high - low)
    return random.uniform(low - beyond, high + beyond, (n, *space.shape)).astype(space.dtype)


def _space_key(space: Any) -> tuple[Any, ...]:
    numbers = [getattr(space, name, None) for name in ("n", "start", "nvec", "low", "high")]
    return type(space), space.shape, space.dtype.str, *[one.tobytes() if isinstance(one, np.ndarray) else one for one in numbers]


def _key(value: Any) -> Any:
    """A constant as something that is equal for equal ones, types included."""
    if type(value) in IMMUTABLE:
        return type(value), repr(value)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, (tuple, list)):
        return type(value), *map(_key, value)
    try:
        return dumps(value)
    except Exception:  # it is equal to nothing, then
        return object()


def _comparable(one: Any, other: Any) -> bool:
    """Whether two copies of something can be seen to be equal."""
    try:
        return same_bits(one, other)
    except Exception:  # they may be anything
        return False
