"""Environments of MuJoCo: MuJoCo steps each row's own data, and numpy computes rewards and observations of all rows at once.

No simulation moves when such a kernel takes over: it stays in the environments' data, and an episode begins by an environment's own
``reset()``. MuJoCo is called by its Python bindings, never by address: an error in the simulation would end the process.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from copy import copy, deepcopy
from functools import cache
from itertools import chain
from sys import getrefcount
from typing import Any, ClassVar, NamedTuple

import gymnasium
import mujoco
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.envs.mujoco import MujocoEnv
from gymnasium.vector import AutoresetMode

from reactor_gymnasium.environments.infos import Group, info_columns
from reactor_gymnasium.environments.owning import own, shared
from reactor_gymnasium.native import guards
from reactor_gymnasium.native.kernel import GENERATOR, REFUSED, ROOTS, BlockKernel, Taken
from reactor_rl.plugin import code_of, global_random_state

__all__ = ["GatheredField", "MujocoRows"]

Array = npt.NDArray[Any]
Env = gymnasium.Env[Any, Any]


def _alone() -> tuple[int, int]:
    """The reference counts of a model and its data that nobody but their environment refers to, and its renderer."""
    holder: Any = type("Holder", (), {})()
    holder.model = mujoco.MjModel.from_xml_string("<mujoco/>")
    holder.data = mujoco.MjData(holder.model)
    renderer = [holder.model, holder.data]
    counted = getrefcount(holder.model), getrefcount(holder.data)
    del renderer
    return counted


MODEL, DATA = _alone()

INTEGRATED = mujoco.mjtState.mjSTATE_INTEGRATION
"""All numbers on which the next steps of a simulation depend."""
_empty = mujoco.MjModel.from_xml_string("<mujoco/>")
SIZES = [name for name in dir(_empty) if name.startswith("n") and type(getattr(_empty, name)) is int]
"""How many bodies, joints, sensors and so on a model has."""
SIMULATION = frozenset({"model", "data", "mujoco_renderer"}) | GENERATOR
"""Attributes that are neither constants nor columns."""
PLAIN = (int, float, bool, str, type(None))
STEPS, ROWS, WIDEST = 36, 2, 10.0
"""Of the comparison: steps, rows, and how far actions go where there is no bound. Two limits of 17 steps and a bit more, so that
each row ends twice; a step of MuJoCo takes long enough that more would be felt.
"""


class GatheredField:
    """Numbers of every row's data, which are gathered into one array.

    Args:
        views: Of each row views of its data, of any shape.

    Attributes:
        all: ``(n, numbers)``, float64, as they were when they were gathered last.

    Raises:
        ValueError: If a view is a copy, which would stay as it is.
    """

    __slots__ = ("_flat", "_views", "all")

    def __init__(self, views: Sequence[Sequence[Array]]) -> None:
        given = [view for of_row in views for view in of_row]
        self._views = [view.reshape(-1) for view in given]
        for view, flat in zip(given, self._views, strict=True):
            if view.size and (view.flags.owndata or not np.may_share_memory(view, flat)):
                raise ValueError(f"a field must have views of a simulation's data, got a copy of {view.size} numbers")
        self.all = np.zeros((len(views), sum(view.size for view in views[0])))
        self._flat = self.all.reshape(-1)

    def now(self) -> Array:
        """Gather them.

        Returns:
            ``all``, which the next call overwrites.
        """
        # One call of numpy's for the numbers of all rows.
        np.concatenate(self._views, out=self._flat)
        return self.all


class _StepForm(NamedTuple):
    """The results of a step in Python, and all that it leaves behind: each value's type or, of an array, its dtype and shape."""

    observation: Any
    reward: Any
    infos: dict[str, Any]
    columns: dict[str, Any]


class MujocoRows(BlockKernel):
    """Rewards and observations of all rows of a subclass of Gymnasium's ``MujocoEnv``, while MuJoCo steps each row's simulation.

    The environment's class stays the specification. Resets, rendering and whatever randomises a model are its own, and once a
    process this is compared with it to the bit: where something differs, Python steps. :func:`reactor_gymnasium.register_kernel`
    names the class it is for.

    A step calls :meth:`look`, simulates, and calls :meth:`observe`, :meth:`pay` and, if somebody wants infos, :meth:`tell`.

    Attributes:
        envs: The environments.
        env: The first one, whose constants are those of all: attributes that its ``step`` reads and no code of its own writes.
        columns: By name, ``(n,)`` or ``(n, ...)``, those attributes of each row that its ``step`` or ``reset`` writes and ``step``
            uses. Each row's is loaded when it is reset; whatever ``step`` writes, :meth:`pay` has to write.
        moving: Which rows are simulated in this step, ``(n,)`` bool; the others are reset, or their simulation has failed.
        observations: ``(n, ...)``, for :meth:`observe` to write; of the dtype that the environment gives.
        rewards: ``(n,)`` float64, for :meth:`pay` to write, as are ``terminated`` and, where the environment itself truncates
            episodes, ``truncated``: ``(n,)`` bool, which are false before.
        state: Positions and velocities, of which ``qpos`` and ``qvel`` are views, ``(n, nq)`` and ``(n, nv)``.
        ticks: How long a step of the simulation takes in each row's world, ``(n,)``, in seconds.
        seconds: Likewise a step of the environment.
    """

    failures: list[tuple[int, Exception]]

    actions: ClassVar[tuple[np.dtype[Any], ...]] = (np.dtype(np.float32), np.dtype(np.float64))
    written_from: ClassVar[tuple[str, ...]] = ()
    compared, timed_rows = (0, 0), 4  # it is compared with copies of the very environment: see `strange_constants`

    trusted: ClassVar[bool] = False
    """Whether its first steps are not compared, for somebody else does so."""
    _forms: ClassVar[dict[Any, _StepForm]] = {}
    _kept: ClassVar[dict[type, list[str]]] = {}  # names of attributes that environments have, and that their code mentions
    _differences: ClassVar[dict[Any, str | None]] = {}

    # ------------------------------------------------------------------ what fits

    @classmethod
    def of(cls, kind: type) -> type[BlockKernel]:
        return cls if hasattr(cls, "owner") else _rows_of(cls, kind)

    @classmethod
    def unavailable(cls) -> str | None:
        return None if hasattr(np, "vecdot") else "it needs numpy 2"  # whose numbers have the dtypes that arrays have

    @classmethod
    def parts_of(cls, env: Any) -> tuple[list[str], list[str]]:
        """Names of the attributes of an environment that its steps use: of those of each row, and of constants."""
        names, columns, constants = _used(env.__class__), list[str](), list[str]()
        for name in vars(env):
            if name in names.used:
                (columns if name in names.changed else constants).append(name)
        return columns, constants

    @classmethod
    def strange(cls, env: Any) -> str | None:
        if not isinstance(env, MujocoEnv) or type(env.model) is not mujoco.MjModel or type(env.data) is not mujoco.MjData:
            return "its model is not MuJoCo's"
        if type(env.frame_skip) is not int or type(env.action_space) is not spaces.Box:
            return "it was not made as usual"
        try:
            _, constants = cls.parts_of(env)
        except (OSError, SyntaxError) as error:
            return f"its source cannot be read: {error}"
        strange = next((name for name in constants if not _is_constant(vars(env)[name])), None)
        return f"its {strange} is a {type(vars(env)[strange]).__name__}" if strange else None

    @classmethod
    def shared(cls, env: Any) -> str | None:
        viewers = len(env.mujoco_renderer._viewers)
        if getrefcount(env.model) > MODEL + viewers:
            return "somebody else refers to its model"
        if getrefcount(env.data) > DATA + viewers:
            return "somebody else refers to its data"
        for name in chain(*cls.parts_of(env)):
            if type(vars(env)[name]) in (list, dict, np.ndarray) and shared(map(vars(env).get, (name,))):
                return f"somebody else refers to its {name}"
        return super().shared(env)

    @classmethod
    def constants(cls, env: Any) -> tuple[Any, ...]:
        _, constants = cls.parts_of(env)
        values = [(name, _key(vars(env)[name])) for name in constants]
        return type(env), tuple(values), env.observation_space.shape, tuple([getattr(env.model, name) for name in SIZES])

    @classmethod
    def strange_constants(cls, env: Any) -> str | None:
        if cls.trusted:
            return None
        key = cls, cls.constants(env)
        if key not in cls._differences:
            try:
                with global_random_state(), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    different = guards.compared(cls, cls.copies(env, 2 * ROWS), STEPS)
                words = f"it does not do here what Python does: {different}" if different else None
            except Exception as error:
                words = f"it could not be compared with Python: {error!r}"
            cls._differences[key] = words
        return cls._differences[key]

    @classmethod
    def state_of(cls, env: Any) -> dict[str, Any]:
        model, data = env.model, env.data
        state = np.empty(mujoco.mj_stateSize(model, INTEGRATED))
        mujoco.mj_getState(model, data, state, INTEGRATED)
        read = {name: getattr(data, name) for name in sorted(cls.comes_to().names) if hasattr(data, name)}
        seen = {name: value for name, value in read.items() if isinstance(value, np.ndarray)}
        kept = {name: getattr(env, name) for name in cls._kept.get(cls.original(), ())}
        return kept | seen | {"state of the simulation": state}

    @classmethod
    def make(cls, n: int) -> list[Any]:
        return cls.copies(super().make(1)[0], n) if n else []  # to read a model takes long, and MuJoCo may print something

    @classmethod
    def copies(cls, env: Any, n: int) -> list[Any]:
        """Environments like one, which are not simulated yet.

        Raises:
            Exception: If one of its attributes cannot be copied.
        """
        return [_copy(env) for _ in range(n)]

    @classmethod
    def draw(cls, env: Env, random: np.random.Generator, n: int) -> Array:
        space: Any = env.action_space
        low, high = np.clip(space.low, -WIDEST, WIDEST) * 1.3, np.clip(space.high, -WIDEST, WIDEST) * 1.3
        return random.uniform(low, high, (n, *space.shape)).astype(cls.actions[0])

    @classmethod
    def _learn(cls, env: Any) -> _StepForm:
        """The results of a step of such an environment: a copy takes one."""
        key = cls, cls.constants(env)
        if key not in cls._forms:
            with global_random_state(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                twin = _copy(env)
                twin.reset(seed=0)
                observation, reward, _, _, infos = twin.step(np.zeros(env.action_space.shape, env.action_space.dtype))
            if type(observation) is not np.ndarray or not isinstance(reward, (int, float)):
                raise TypeError(f"a step must give an array and a float, got {observation!r} and {reward!r}")
            of_infos = {name: _form_of(f"info {name!r}", value) for name, value in infos.items()}
            columns = {name: _form_of(name, vars(twin)[name]) for name in cls.parts_of(twin)[0]}
            reward_form = "numpy" if isinstance(reward, np.float64) else "python"
            code = cls.comes_to()
            cls._kept[cls.original()] = sorted((code.names | code.written) & vars(twin).keys() - SIMULATION)
            cls._forms[key] = _StepForm(_form_of("observation", observation), reward_form, of_infos, columns)
        return cls._forms[key]

    # ------------------------------------------------------------------ what it does

    def __init__(self, taken: Taken) -> None:
        self.envs, self.mode = taken.envs, taken.mode
        n = len(self.envs)
        envs: Any = self.envs
        env = self.env = envs[0]
        self._form = self._learn(env)
        self.summed = float if self._form.reward == "python" else np.float64  # type: ignore[misc]
        self.left, self.limits = np.array(taken.left, np.int64), np.array(taken.limits, np.int64)
        self.pending = np.array(taken.pending, np.bool_)
        _, dtype, shape = self._form.observation
        self.observations = np.zeros((n, *shape), dtype)
        for row, shown in enumerate(taken.observations):
            if shown is not None:
                self.observations[row] = shown
        self.kind = self.observations.dtype, self.observations.shape
        self.rewards = np.zeros(n)
        self.terminated, self.truncated, self.was_reset, self._stepped = (np.zeros(n, np.bool_) for _ in range(4))
        self.moving = np.ones(n, np.bool_)
        self._finals: dict[int, Array] = {}
        self._begun: dict[int, dict[str, Any]] = {}
        self._told: dict[str, tuple[str, Array]] | None = None  # if it was asked before data were reset
        self.shape, self.frames = (n, *env.action_space.shape), env.frame_skip
        self.simulations = [(env.model, env.data, env.data.ctrl) for env in envs]
        self.ticks = np.array([env.model.opt.timestep for env in envs])
        self.seconds = self.ticks * self.frames
        self.columns = {name: np.zeros((n, *shape), dtype) for name, (_, dtype, shape) in self._form.columns.items()}
        for row in range(n):
            self._load(row)
        if _used(env.__class__).written:
            self.actions = (np.dtype(env.action_space.dtype),)  # type: ignore[misc]  # for what is noted of others may be of another type
        self.state = self.field(lambda data: [data.qpos, data.qvel])
        self.qpos, self.qvel = self.state.all[:, : env.model.nq], self.state.all[:, env.model.nq :]
        self.bind()

    def field(self, views: Callable[[Any], Sequence[Array] | Array]) -> GatheredField:
        """Numbers of every row's data.

        Args:
            views: From a row's data to a view of it, or several.

        Raises:
            ValueError: If one is a copy.
        """
        found = [views(data) for _, data, _ in self.simulations]
        return GatheredField([[of_row] if isinstance(of_row, np.ndarray) else of_row for of_row in found])

    def bodies(self, *names: str | int) -> GatheredField:
        """Where bodies are, three numbers each.

        Args:
            *names: Their names or numbers.
        """
        return self.field(lambda data: [data.body(name).xpos for name in names])

    def bind(self) -> None:
        """Find what is to be gathered besides the state."""

    def look(self) -> None:
        """Gather what is asked of rows before they move."""

    def control(self, actions: Array) -> Array:
        """Return the controls of motors.

        Args:
            actions: ``(n, ...)``, float32 or float64.

        Returns:
            ``(n, nu)``: the actions themselves, if this is not overridden.
        """
        return actions

    def simulate(self, row: int, control: Array) -> None:
        """Simulate a row for one step of its environment, as ``MujocoEnv.do_simulation`` does if this is not overridden.

        Args:
            row: Which.
            control: What its motors are told, ``(nu,)`` float64.
        """
        model, data, motors = self.simulations[row]
        motors[:] = control
        mujoco.mj_step(model, data, self.frames)
        mujoco.mj_rnePostConstraint(model, data)

    @abstractmethod
    def observe(self) -> None:
        """Gather the state, and write ``observations``."""

    @abstractmethod
    def pay(self, actions: Array) -> None:
        """Write ``rewards`` and, where episodes end, ``terminated``.

        Args:
            actions: ``(n, ...)``, float32 or float64.
        """

    def tell(self) -> dict[str, Array]:
        """The infos of the step, in their order.

        Returns:
            Of each key a number or more of each row, of no account where a row was reset. They reach the caller as the types that
            the environment itself gives.
        """
        return {}

    # ------------------------------------------------------------------ steps

    def step(self, actions: Array, shown: Array | None, led_to: Array | None) -> int:
        if actions.shape != self.shape:
            return REFUSED
        self.failures, self._begun, self._told = [], {}, None
        pending: list[int] = []
        if self.mode is AutoresetMode.NEXT_STEP and self.pending.any():
            pending = np.flatnonzero(self.pending).tolist()
        self.moving.fill(True)
        for row in pending:
            self.moving[row] = False
            self._store(row)
        with np.errstate(all="ignore"):
            self.look()
            self._simulate(np.asarray(self.control(actions), np.float64), pending)
            self.observe()
            self.terminated.fill(False)
            self.truncated.fill(False)
            self.pay(actions)
        self.left -= 1
        self.truncated |= self.left <= 0
        self.was_reset[...] = False
        if still := [*pending, *[row for row, _ in self.failures]]:
            self.rewards[still], self.terminated[still], self.truncated[still] = 0.0, False, False
        self._begin(pending)
        if led_to is not None:
            led_to[...] = self.observations
        over = self.terminated | self.truncated
        ended: list[int] = np.flatnonzero(over).tolist() if over.any() else []
        if ended and self.mode is AutoresetMode.NEXT_STEP:
            self.pending[ended] = True
        elif ended and self.mode is AutoresetMode.SAME_STEP:
            self._told = self._all_told()  # before their data are reset
            self._finals = {row: self.observations[row].copy() for row in ended}
            self._begin(ended)
        if shown is not None:
            shown[...] = self.observations
        return len(pending) + len(ended)

    def _simulate(self, control: Array, pending: Sequence[int]) -> None:
        rows: Iterable[int] = np.flatnonzero(self.moving).tolist() if pending else range(len(self.moving))
        # One `try` for all rows, around the loop: after an error the iterator goes on behind the row that failed.
        simulate, work = self.simulate, iter(rows)
        while True:
            row = 0
            try:
                for row in work:
                    simulate(row, control[row])
                break
            except Exception as error:  # the others still take their step
                self.failures.append((row, error))
                self.moving[row] = False
        if self.columns:
            self._stepped |= self.moving

    def _begin(self, rows: Iterable[int], seeds: dict[int, dict[str, Any]] | None = None) -> None:
        for row in rows:
            try:
                self._store(row)
                self.observations[row], info = self.envs[row].reset(**(seeds or {}).get(row, {}))
                self._begun[row] = own(info)
                self._load(row)
            except Exception as error:
                self.failures.append((row, error))
            self.left[row], self.pending[row], self.was_reset[row] = self.limits[row], False, True

    def _load(self, row: int) -> None:
        """Read a row's attributes, which its environment has just written."""
        values = vars(self.envs[row])
        for name, column in self.columns.items():
            if name in values:  # others are written by the first step
                if _form_of(name, values[name])[2] != column.shape[1:]:
                    raise ValueError(f"its {name} must be of shape {column.shape[1:]}, got {values[name]!r}")
                column[row] = values[name]
        self._stepped[row] = False

    def _store(self, row: int) -> None:
        """Let the environment have a row's attributes, if they have changed."""
        if self._stepped[row]:
            self._stepped[row] = False
            for name, (form, _, _) in self._form.columns.items():
                vars(self.envs[row])[name] = _one(form, self.columns[name][row])

    def reset(self, seeds: dict[int, dict[str, Any]]) -> None:
        self.failures, self._told = [], self._all_told() if self._told is None else self._told
        self._begin(seeds, seeds)

    def final(self, row: int) -> Any:
        return self._finals[row]

    def give_back(self) -> list[Any]:
        for row in range(len(self.envs)):
            self._store(row)
        return list(self.observations.copy())

    # ------------------------------------------------------------------ infos

    def _all_told(self) -> dict[str, tuple[str, Array]]:
        """Infos of all rows, in the form and of the type that Python gives; which float may depend on actions. New arrays."""
        with np.errstate(all="ignore"):
            told, known, found = self.tell(), self._form.infos, {}
        for key, values in told.items():
            form, dtype, _ = known.get(key) or _form_of(key, values[0])
            found[key] = form, values.astype(dtype) if values.dtype.kind != dtype.kind else values.copy()
        return found

    def _columns(self, rows: Sequence[int] | None) -> dict[str, Any]:
        """Infos of some rows, or of all: a new array of each key."""
        told = self._all_told() if self._told is None else self._told
        if rows is not None or told is self._told:
            told = {key: (form, values[rows] if rows is not None else values.copy()) for key, (form, values) in told.items()}
        return {key: (form, list(values) if form == "object" else values) for key, (form, values) in told.items()}

    def infos(self) -> list[Group]:
        begun, every, groups = self._begun, range(self.shape[0]), list[Group]()
        if infos := {
            row: begun[row] for row in sorted(begun) if begun[row]
        }:  # one between steps may have come after those of the step
            groups += info_columns(0, {}, infos)[1]
        rows = [row for row in every if row not in begun] if begun else every
        if rows and (columns := self._columns(None if rows is every else rows)):
            groups.append((rows, columns))
        return groups

    def final_info(self, row: int) -> dict[str, Any]:
        told = self._all_told() if self._told is None else self._told
        return {key: _one(form, values[row]) for key, (form, values) in told.items()}


@cache
def _rows_of(rows: type[MujocoRows], kind: type) -> type[MujocoRows]:
    """Rows for environments of a class; nothing is set in what the user has written."""
    attributes = {"module": kind.__module__, "owner": kind.__qualname__, "original": classmethod(lambda _: kind)}
    found: type[MujocoRows] = type(rows.__name__, (rows,), attributes | {"__module__": rows.__module__})
    return found


class _Names(NamedTuple):
    """Attributes that the steps of a class use, those of them that they write, and that steps or resets write."""

    used: frozenset[str]
    written: frozenset[str]
    changed: frozenset[str]


@cache
def _used(kind: type) -> _Names:
    """Find them.

    Raises:
        OSError: If there is no source text of the class.
    """
    step, both = code_of(kind, ("step",)), code_of(kind, ROOTS)
    return _Names(frozenset(step.names | step.written) - SIMULATION, step.written - GENERATOR, both.written)


def _copy(env: Any) -> Any:
    """Another environment with a model of its own, which may be changed."""
    model, twin = copy(env.model), object.__new__(type(env))
    renderer = env.mujoco_renderer  # does not draw
    # New data, for a copy of the old would belong to the model that it was made with.
    memo = {id(env): twin, id(env.model): model, id(env.data): mujoco.MjData(model), id(renderer): renderer}
    vars(twin).update({name: deepcopy(value, memo) for name, value in vars(env).items()})
    return twin


def _is_constant(value: Any) -> bool:
    """Whether a value is made of numbers and texts alone."""
    if isinstance(value, dict):
        return type(value) is dict and all(map(_is_constant, value.items()))
    if isinstance(value, (tuple, list)):
        return all(map(_is_constant, value))
    if type(value) is np.ndarray:
        return value.dtype.kind in "biuf"
    return type(value) in PLAIN or isinstance(value, np.number) or type(value) is spaces.Box


def _key(value: Any) -> Any:
    """Return a key, equal for constants of equal types and bits."""
    if isinstance(value, dict):
        return dict, tuple(map(_key, value.items()))
    if isinstance(value, (tuple, list)):
        return type(value), tuple(map(_key, value))
    if type(value) is spaces.Box:
        return spaces.Box, _key(value.low), _key(value.high)
    if type(value) is np.ndarray:
        return value.dtype, value.shape, value.tobytes()
    return type(value), repr(value)


def _form_of(name: str, value: Any) -> tuple[str, np.dtype[Any], tuple[int, ...]]:
    """The form of a value among infos, its dtype and its shape."""
    if type(value) in (int, float, bool):
        return "python", np.dtype(type(value)), ()
    if isinstance(value, np.bool_):
        return "object", value.dtype, ()
    if isinstance(value, np.number):
        return "numpy", value.dtype, ()
    if type(value) is np.ndarray and value.dtype.kind in "biuf":
        return "array", value.dtype, value.shape
    raise TypeError(f"its {name} must be a number or an array of numbers, got {value!r}")


def _one(form: str, value: Any) -> Any:
    return value.item() if form == "python" else value.copy() if form == "array" else value
