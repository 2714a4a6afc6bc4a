"""MuJoCo's environments: MuJoCo steps each row's own data, and numpy computes rewards and observations of all rows at once.

No state moves when such a kernel takes over: it stays in the environments' data, and an episode begins by an environment's own
``reset()``. MuJoCo is called by its Python bindings, never by address: an error in the simulation would end the process.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from sys import getrefcount
from typing import Any, ClassVar

import gymnasium
import mujoco
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from reactor_gymnasium.environments.infos import Group
from reactor_gymnasium.environments.owning import shared
from reactor_gymnasium.native.kernel import REFUSED, BlockKernel, Taken

__all__ = ["PACKAGE", "Field", "Simulated"]

Array = npt.NDArray[Any]
Env = gymnasium.Env[Any, Any]

PACKAGE = "gymnasium.envs.mujoco."


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


class Field:
    """Numbers of every row's data, which are gathered into one array.

    Args:
        views: Of each row views of its data, of one axis each.

    Attributes:
        all: ``(n, numbers)``, as they were when they were gathered last.
    """

    __slots__ = ("_flat", "_views", "all")

    def __init__(self, views: Sequence[Sequence[Array]]) -> None:
        self._views = [view for of_row in views for view in of_row]
        self.all = np.zeros((len(views), sum(map(len, views[0]))))
        self._flat = self.all.reshape(-1)

    def now(self) -> Array:
        """Gather them: ``all``."""
        np.concatenate(self._views, out=self._flat)
        return self.all


class Simulated(BlockKernel):
    """Rows that MuJoCo steps.

    Attributes:
        ticks: How long a step of the simulation takes in each row's world.
        seconds: Likewise a step of the environment.
        state: Positions and velocities, of which ``qpos`` and ``qvel`` are views.
    """

    weights: ClassVar[tuple[str, ...]] = ()
    """Constants that are numbers."""
    ranges: ClassVar[tuple[str, ...]] = ()
    """Those that are a lowest and a highest number."""
    flags: ClassVar[tuple[str, ...]] = ()
    """Those that are true or false."""
    skipped: ClassVar[int] = 0
    """Positions that are not observed, if the environment leaves out some."""
    python: ClassVar[frozenset[str]] = frozenset()
    """Infos that are Python's numbers."""

    failures: list[tuple[int, Exception]]

    actions = (np.dtype(np.float32), np.dtype(np.float64))
    summed: ClassVar[type[float]] = np.float64
    compared, timed_rows = (36, 2), 4

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.title = f"{cls.__name__}-{getattr(cls, 'module', '')[-2:]}"  # of which version

    # ------------------------------------------------------------------ what fits

    @classmethod
    def unavailable(cls) -> str | None:
        return None if hasattr(np, "vecdot") else "it needs numpy 2"  # whose numbers have the dtypes that arrays have

    @classmethod
    def strange(cls, env: Any) -> str | None:
        if type(env.model) is not mujoco.MjModel or type(env.data) is not mujoco.MjData:
            return "its model is not MuJoCo's"
        if type(env.frame_skip) is not int or type(env.action_space) is not spaces.Box:
            return "it was not made as usual"
        for name in cls.weights:
            if type(getattr(env, name)) not in (float, int):
                return f"its {name} is {getattr(env, name)!r}"
        for name in cls.ranges:
            given = getattr(env, name)
            if type(given) not in (tuple, list) or len(given) != 2 or not all(type(one) in (float, int) for one in given):
                return f"its {name} is {given!r}"
        for name in cls.flags:
            if type(getattr(env, name)) is not bool:
                return f"its {name} is {getattr(env, name)!r}"
        return None

    @classmethod
    def shared(cls, env: Any) -> str | None:
        viewers = len(env.mujoco_renderer._viewers)
        if getrefcount(env.model) > MODEL + viewers:
            return "somebody else refers to its model"
        if getrefcount(env.data) > DATA + viewers:
            return "somebody else refers to its data"
        if shared(value for value in map(vars(env).get, cls.ranges) if type(value) is list):
            return "somebody else refers to one of its ranges"
        return super().shared(env)

    @classmethod
    def constants(cls, env: Any) -> tuple[Any, ...]:
        m = env.model
        numbers = [(type(value), value) for value in [getattr(env, name) for name in (*cls.weights, *cls.flags)]]
        ranges = [tuple(getattr(env, name)) for name in cls.ranges]
        return *numbers, *ranges, env.frame_skip, m.nq, m.nv, m.nu, m.nbody, m.ntendon

    @classmethod
    def state_of(cls, env: Any) -> dict[str, Any]:
        size = mujoco.mj_stateSize(env.model, INTEGRATED)
        mujoco.mj_getState(env.model, env.data, state := np.empty(size), INTEGRATED)
        read = {name: getattr(env.data, name) for name in sorted(cls.comes_to().names) if hasattr(env.data, name)}
        seen = {name: value for name, value in read.items() if isinstance(value, np.ndarray)}
        return super().state_of(env) | seen | {"state of the simulation": state, "init_qpos": env.init_qpos}

    @classmethod
    def make(cls, n: int) -> list[Any]:
        (env,) = super().make(1)  # to read a model takes long, and MuJoCo may print what it thinks of it
        return [env, *[_twin(env) for _ in range(n - 1)]]

    # ------------------------------------------------------------------ steps

    def __init__(self, taken: Taken) -> None:
        self._envs, self.mode = taken.envs, taken.mode
        n = len(self._envs)
        envs: Any = self._envs
        env = self._env = envs[0]
        self.left, self.limits = np.array(taken.left, np.int64), np.array(taken.limits, np.int64)
        self.pending = np.array(taken.pending, np.bool_)
        self.observations = np.array(taken.observations, np.float64)
        self.kind = self.observations.dtype, self.observations.shape
        self.rewards = np.zeros(n)
        self.terminated, self.truncated, self.was_reset = (np.zeros(n, np.bool_) for _ in range(3))
        self.finals: dict[int, Array] = {}
        self.begun: dict[int, dict[str, Any]] = {}
        self.told: dict[str, Array] | None = None
        self.shape, self.frames = (n, env.model.nu), env.frame_skip
        self.worlds = [env.data for env in envs]
        self.simulations = [(env.model, env.data, env.data.ctrl) for env in envs]
        self.ticks = np.array([env.model.opt.timestep for env in envs])
        self.seconds = self.ticks * self.frames
        self.state = self.field(lambda data: [data.qpos, data.qvel])
        self.qpos, self.qvel = self.state.all[:, : env.model.nq], self.state.all[:, env.model.nq :]
        self.skip = self.skipped if getattr(env, "_exclude_current_positions_from_observation", True) else 0
        self.bind()

    def field(self, views: Callable[[Any], Sequence[Array]]) -> Field:
        """Numbers of every row's data.

        Args:
            views: From a row's data to views of it.
        """
        return Field([views(data) for data in self.worlds])

    def bodies(self, *names: str | int) -> Field:
        """Where bodies are."""
        return self.field(lambda data: [data.body(name).xpos for name in names])

    def bind(self) -> None:
        """Find what is to be gathered besides the state."""

    def look(self) -> None:
        """Gather what is asked of rows before they move."""

    @abstractmethod
    def observe(self) -> None:
        """Gather the state, and write ``observations``."""

    @abstractmethod
    def pay(self, actions: Array) -> None:
        """Write ``rewards`` and, where episodes end, ``terminated``."""

    def tell(self) -> dict[str, Array]:
        """The infos of the step: of each key a number or more of each row. Of no account where a row was reset."""
        return {}

    def survive(self, healthy: Array) -> Array:
        """The reward for being healthy."""
        paid: Array = healthy * self._env._healthy_reward
        return paid

    def step(self, actions: Array, shown: Array | None, led_to: Array | None) -> int:
        if actions.shape != self.shape:
            return REFUSED
        self.failures, self.begun, self.told = [], {}, None
        pending: list[int] = []
        if self.mode is AutoresetMode.NEXT_STEP and self.pending.any():
            pending = np.flatnonzero(self.pending).tolist()
        with np.errstate(all="ignore"):
            self.look()
            self._simulate(actions, pending)
            self.observe()
            self.pay(actions)
        self.left -= 1
        np.less_equal(self.left, 0, out=self.truncated)
        self.was_reset[...] = False
        for row in (*pending, *[row for row, _ in self.failures]):
            self.rewards[row], self.terminated[row], self.truncated[row] = 0.0, False, False
        self._begin(pending)
        if led_to is not None:
            led_to[...] = self.observations
        over = self.terminated | self.truncated
        ended: list[int] = np.flatnonzero(over).tolist() if over.any() else []
        if ended and self.mode is AutoresetMode.NEXT_STEP:
            self.pending[ended] = True
        elif ended and self.mode is AutoresetMode.SAME_STEP:
            self.told = self._told()  # before their data are reset
            self.finals = {row: self.observations[row].copy() for row in ended}
            self._begin(ended)
        if shown is not None:
            shown[...] = self.observations
        return len(pending) + len(ended)

    def _simulate(self, actions: Array, pending: Sequence[int]) -> None:
        step, finish, frames = mujoco.mj_step, mujoco.mj_rnePostConstraint, self.frames
        rows: Iterable[Any] = range(len(actions))
        if pending:
            rows = np.flatnonzero(~self.pending).tolist()
        work, simulations, wide = iter(rows), self.simulations, actions.astype(np.float64)
        while True:
            row = 0
            try:
                for row in work:
                    model, data, ctrl = simulations[row]
                    ctrl[:] = wide[row]
                    step(model, data, frames)
                    finish(model, data)
                return
            except Exception as error:  # the others still take their step
                self.failures.append((row, error))

    def _begin(self, rows: Iterable[int], seeds: dict[int, dict[str, Any]] | None = None) -> None:
        for row in rows:
            try:
                self.observations[row], self.begun[row] = self._envs[row].reset(**(seeds or {}).get(row, {}))
            except Exception as error:
                self.failures.append((row, error))
            self.left[row], self.pending[row], self.was_reset[row] = self.limits[row], False, True

    def reset(self, seeds: dict[int, dict[str, Any]]) -> None:
        self.failures, self.told = [], self._told()
        self._begin(seeds, seeds)

    def final(self, row: int) -> Any:
        return self.finals[row]

    def give_back(self) -> list[Any]:
        return list(self.observations.copy())

    # ------------------------------------------------------------------ infos

    def _told(self) -> dict[str, Array]:
        if self.told is None:
            with np.errstate(all="ignore"):
                return self.tell()
        return self.told

    def _form(self, key: str, values: Array) -> str:
        return "array" if values.ndim > 1 else "python" if key in self.python else "numpy"

    def infos(self) -> list[Group]:
        told, begun, every = self._told(), self.begun, range(self.shape[0])
        if not begun:
            return [(every, {key: (self._form(key, values), values.copy()) for key, values in told.items()})] if told else []
        groups: list[Group] = []
        rows = sorted(begun)  # a reset between steps may have come after those of the step
        if keys := begun[rows[0]].keys():
            columns = {key: np.array([begun[row][key] for row in rows]) for key in keys}
            groups.append((rows, {key: (self._form(key, values), values) for key, values in columns.items()}))
        if others := [row for row in every if row not in begun] if told else []:
            groups.append((others, {key: (self._form(key, values), values[others]) for key, values in told.items()}))
        return groups

    def final_info(self, row: int) -> dict[str, Any]:
        return {key: _one(self._form(key, values), values[row]) for key, values in self._told().items()}


def _twin(env: Any) -> Any:
    """Another environment with the same model."""
    twin: Any = object.__new__(type(env))
    vars(twin).update(vars(env), data=mujoco.MjData(env.model), init_qpos=env.init_qpos.copy())
    return twin


def _one(form: str, value: Any) -> Any:
    return value.item() if form == "python" else value.copy() if form == "array" else value
