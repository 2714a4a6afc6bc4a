"""Forms of Gymnasium's wrappers: what each does to actions, observations and rewards, done for all rows at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from functools import cache
from operator import methodcaller
from sys import getrefcount
from types import FunctionType
from typing import Any, ClassVar

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.wrappers.utils import RunningMeanStd

from reactor_gymnasium.environments.owning import same_bits, shared
from reactor_gymnasium.native.forms import ALL, InPlaceOf, RowForm, RowResults, Selection, numbers_of
from reactor_gymnasium.native.functions import EachAction, EachObservation, EachReward, clip_bounds, entangled
from reactor_rl.plugin import compiled_module

__all__ = ["FORMS"]

Array = npt.NDArray[Any]

_kernels = compiled_module("reactor_gymnasium.native._kernels")  # else these wrappers are called

_OBSERVATIONS, _STATEFUL = "gymnasium.wrappers.transform_observation", "gymnasium.wrappers.stateful_observation"
_REWARDS, _ACTIONS = "gymnasium.wrappers.transform_reward", "gymnasium.wrappers.transform_action"


# ---------------------------------------------------------------------- functions that wrappers have


def _written(env: Any, new_observation_space: Any, gradient: Any, intercept: Any, min_reward: Any, max_reward: Any) -> Any:
    """By class the function that Gymnasium's wrappers have, as the forms were written from."""
    return {
        "FlattenObservation": lambda obs: spaces.utils.flatten(env.observation_space, obs),
        "DtypeObservation": lambda obs: new_observation_space.dtype.type(obs),
        "RescaleObservation": lambda obs: gradient * obs + intercept,
        "ClipAction": lambda action: np.clip(action, env.action_space.low, env.action_space.high),
        "RescaleAction": lambda obs: (obs - intercept) / gradient,
        "ClipReward": lambda x: np.clip(x, a_min=min_reward, a_max=max_reward),
    }


_WRITTEN = _written(*[None] * 6)


def _as_written(function: Any, owner: str) -> bool:
    """Whether a wrapper's function does what its form was written from: of a ``Transform...``, ``np.clip`` between numbers."""
    if owner.startswith("Transform"):
        return clip_bounds(function) is not None
    one, other = function.__code__, _WRITTEN[owner].__code__
    usual = function.__globals__.get("np", np) is np and function.__globals__.get("spaces", spaces) is spaces
    return usual and all(getattr(one, part) == getattr(other, part) for part in ("co_code", "co_names", "co_freevars", "co_consts"))


def _common(wrappers: Sequence[Any], owner: str) -> Any:
    """The function of all wrappers, which may be given the values of all rows; ``None`` if they have to be called one by one."""
    first = wrappers[0].func
    if not all(_as_written(wrapper.func, owner) and _same(first, wrapper.func) for wrapper in wrappers):
        return None
    bounds = clip_bounds(first)
    if owner == "ClipAction":
        space = first.__closure__[0].cell_contents.action_space
        bounds = space.low, space.high
    return first if bounds is None else methodcaller("clip", *bounds)  # the method takes half of the time of np.clip


def _same(one: Any, other: Any) -> bool:
    """Whether two functions have the same code and enclose the same: those that travel by value are as many as environments."""
    pairs = zip(one.__closure__ or (), other.__closure__ or (), strict=True)
    return one.__code__ == other.__code__ and all(_equal(first.cell_contents, second.cell_contents) for first, second in pairs)


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, gymnasium.Env) and isinstance(other, gymnasium.Env):
        return one.action_space == other.action_space and one.observation_space == other.observation_space
    return one is other or (isinstance(one, np.ndarray) and same_bits(one, other)) or (type(one) in (int, float) and one == other)


class _HasFunction(RowForm):
    """A wrapper that has a function, of Gymnasium's own or the user's."""

    saves = 6.0

    def __init__(self, wrappers: Sequence[Any]) -> None:
        super().__init__(wrappers)
        self._common: Any = _common(wrappers, self.owner) if self.owner in _WRITTEN or self.owner.startswith("Transform") else None

    @classmethod
    def misfit(cls, wrapper: Any, over: bool) -> str | None:
        function = wrapper.func
        if cls.owner.startswith("Transform"):
            return entangled(function)
        made = f"{cls.owner}.__init__.<locals>.", "rescale_box.<locals>."
        named = type(function) is FunctionType and function.__qualname__.startswith(made)
        return None if named and function.__module__.startswith("gymnasium.") else f"somebody has changed its {cls.owner}"


class _Vector(EachObservation):
    """Observations of all rows at once, where they are arrays of one dtype and shape."""

    function: ClassVar[str | None] = None

    def vector(self, shown: Array) -> Array | None:
        """The observations of all rows, ``(n, ...)``; ``None`` where the wrappers have to be called."""
        return None

    def outward(self, results: RowResults) -> None:
        shown = results.alike()
        found = None if shown is None or shown.ndim < 2 else self.vector(shown)
        if found is None:
            super().outward(results)
        else:
            results.show(found)


class TransformObservation(_HasFunction, _Vector):
    module, owner = _OBSERVATIONS, "TransformObservation"
    written_from = ("12bfacc5416f",)

    def vector(self, shown: Array) -> Array | None:
        return None if self._common is None or shown.dtype.kind != "f" else self._common(shown)


class FilterObservation(TransformObservation):
    owner, function = "FilterObservation", "observation"


class FlattenObservation(TransformObservation):
    owner = "FlattenObservation"

    def vector(self, shown: Array) -> Array | None:
        space = self.wrappers[0].env.observation_space
        if self._common is None or type(space) is not spaces.Box or shown.shape[1:] != space.shape:
            return None
        return shown if shown.ndim == 2 and shown.dtype == space.dtype else shown.reshape(len(shown), -1).astype(space.dtype)


class DtypeObservation(TransformObservation):
    owner = "DtypeObservation"

    @classmethod
    def constants(cls, wrapper: Any) -> Any:
        return wrapper.observation_space.dtype

    def vector(self, shown: Array) -> Array | None:
        dtype = self.wrappers[0].observation_space.dtype
        if not _as_written(self.wrappers[0].func, self.owner) or dtype.kind != "f" or shown.dtype.kind not in "fiub":
            return None
        return None if dtype == shown.dtype else shown.astype(dtype)  # of its own dtype an array is handed on as it is


class RescaleObservation(TransformObservation):
    owner = "RescaleObservation"

    def vector(self, shown: Array) -> Array | None:
        fit = self._common is not None and shown.shape[1:] == self.wrappers[0].observation_space.shape
        return self._common(shown) if fit else None


class TransformAction(_HasFunction, EachAction):
    module, owner = _ACTIONS, "TransformAction"
    written_from = ("e06a24b07c4f",)

    def inward(self, actions: Any, rows: Sequence[int]) -> Any:
        known = self._common is not None and type(actions) is np.ndarray and actions.dtype.kind == "f"
        if known and actions.ndim > 1 and actions.shape[1:] == self.wrappers[0].action_space.shape:
            return self._common(actions)
        return super().inward(actions, rows)


class ClipAction(TransformAction):
    owner = "ClipAction"


class RescaleAction(TransformAction):
    owner = "RescaleAction"


class TransformReward(_HasFunction, EachReward):
    module, owner = _REWARDS, "TransformReward"
    written_from = ("8d836f00ecec",)

    def outward(self, results: RowResults) -> None:
        if self._common is None or results.kind not in (float, np.float64):
            super().outward(results)
        elif results.moved is not None:
            results.rewards, results.kind = self._common(results.rewards), np.float64


class ClipReward(TransformReward):
    owner = "ClipReward"

    @classmethod
    def misfit(cls, wrapper: Any, over: bool) -> str | None:
        if why := super().misfit(wrapper, over):
            return why
        bounds = [cell.cell_contents for cell in wrapper.func.__closure__ or ()]
        return None if all(type(bound) in (int, float, type(None)) for bound in bounds) else "its bounds are not numbers"


# ---------------------------------------------------------------------- statistics


class _Statistics(RowForm):
    """A ``RunningMeanStd`` of each row."""

    module = _STATEFUL
    rms: ClassVar[str]
    """The attribute that has it."""
    helpers = ((RunningMeanStd, ("update",), ("dbc78f3186df",)),)

    mean: Array
    var: Array
    count: Array

    def __init__(self, wrappers: Sequence[Any]) -> None:
        super().__init__(wrappers)
        self._all, self._left = np.ones(len(wrappers), np.uint8), np.zeros(len(wrappers), np.uint8)

    @classmethod
    def misfit(cls, wrapper: Any, over: bool) -> str | None:
        if not _kernels:
            return f"the form of {cls.owner} was not compiled"
        if different := _differs(cls):
            return f"the form of {cls.owner} does not do here what Python does: {different}"
        if wrapper._update_running_mean is not True:
            return "its statistics are frozen"
        rms = getattr(wrapper, cls.rms)
        if type(rms) is not RunningMeanStd or type(rms.count) is not float or type(wrapper.epsilon) is not float:
            return f"somebody has changed its {cls.owner}"
        del rms
        if shared(map(vars(wrapper).get, (cls.rms,))) or shared(map(vars(getattr(wrapper, cls.rms)).get, ("mean", "var"))):
            return f"somebody else refers to its {cls.rms}"
        return None

    def mask(self, rows: Selection) -> Array:
        """A byte for each row: 1 for those of a selection."""
        if rows is ALL:
            return self._all
        mask = np.zeros(len(self.wrappers), np.uint8)
        mask[rows] = 1
        return mask


class NormalizeObservation(_Statistics):
    owner, rms, saves = "NormalizeObservation", "obs_rms", 60.0
    observes = True
    written_from = ("a131b5674ea8",)

    def __init__(self, wrappers: Sequence[Any]) -> None:
        super().__init__(wrappers)
        all_rms = [wrapper.obs_rms for wrapper in wrappers]
        self.mean, self.var = np.array([rms.mean for rms in all_rms]), np.array([rms.var for rms in all_rms])
        self.count = np.array([rms.count for rms in all_rms])
        self._epsilon = wrappers[0].epsilon

    @classmethod
    def misfit(cls, wrapper: Any, over: bool) -> str | None:
        if why := super().misfit(wrapper, over):
            return why
        mean, var = wrapper.obs_rms.mean, wrapper.obs_rms.var
        usual = type(mean) is type(var) is np.ndarray and mean.ndim and mean.shape == var.shape and mean.size
        known = usual and mean.dtype == var.dtype and mean.dtype in (np.float32, np.float64)
        return None if known else f"its statistics are {type(mean).__name__} of {getattr(mean, 'dtype', None)}"

    @classmethod
    def constants(cls, wrapper: Any) -> Any:
        mean = wrapper.obs_rms.mean
        return wrapper.epsilon, mean.dtype, mean.shape

    def outward(self, results: RowResults) -> None:
        shown = results.array(self.mean.dtype, self.mean.shape[1:])
        rows = results.rows
        if rows is None:
            return
        out = np.empty(shown.shape, np.float32)
        if _kernels.normalize_observations(
            np.ascontiguousarray(shown), self.mask(rows), self.mean, self.var, self.count, self._left, out, self.mean.itemsize,
            self._epsilon,
        ):  # fmt: skip
            results.go_alone(np.flatnonzero(self._left).tolist())
            self._left[...] = 0
        results.show(out)

    def give(self, row: int) -> None:
        rms = self.wrappers[row].obs_rms
        rms.mean, rms.var, rms.count = self.mean[row].copy(), self.var[row].copy(), self.count[row].item()

    def take(self, row: int) -> bool:
        rms = self.wrappers[row].obs_rms
        if (
            self.constants(self.wrappers[row]) != (self._epsilon, self.mean.dtype, self.mean.shape[1:])
            or rms.var.dtype != self.var.dtype
        ):
            return False
        self.mean[row], self.var[row], self.count[row] = rms.mean, rms.var, rms.count
        return True


class NormalizeReward(_Statistics):
    module, owner, rms, saves = "gymnasium.wrappers.stateful_reward", "NormalizeReward", "return_rms", 35.0
    written_from = ("e62d3f0d3292",)

    def __init__(self, wrappers: Sequence[Any]) -> None:
        super().__init__(wrappers)
        n = len(wrappers)
        self.mean, self.var, self.count, self.discounted = np.zeros((4, n))
        self._gamma, self._epsilon = float(wrappers[0].gamma), wrappers[0].epsilon
        self._moved: Array = np.zeros(n, np.bool_)  # the others have what they had
        self._all_moved = False
        for row in range(n):
            self.take(row)

    @classmethod
    def misfit(cls, wrapper: Any, over: bool) -> str | None:
        if why := super().misfit(wrapper, over):
            return why
        given, mean = wrapper.discounted_reward, wrapper.return_rms.mean
        usual = (
            type(given) is np.ndarray and given.dtype == np.float64 and given.shape == (1,) and type(wrapper.gamma) in (float, int)
        )
        known = usual and isinstance(mean, np.float64 | np.ndarray) and mean.shape == () and mean.dtype == np.float64
        return None if known else f"somebody has changed its {cls.owner}"

    @classmethod
    def constants(cls, wrapper: Any) -> Any:
        return wrapper.gamma, wrapper.epsilon

    def outward(self, results: RowResults) -> None:
        if results.moved is None:
            return
        mask, out = self.mask(results.moved), np.zeros(len(self.wrappers))
        odd = _kernels.normalize_rewards(
            results.rewards, results.terminated, mask, self.discounted, self.mean, self.var, self.count, self._left, out,
            self._gamma, self._epsilon,
        )  # fmt: skip
        if not self._all_moved:
            self._moved |= mask.view(np.bool_) & ~self._left.view(np.bool_)
            self._all_moved = bool(self._moved.all())
        if odd:
            results.go_alone(np.flatnonzero(self._left).tolist())
            self._left[...] = 0
        results.rewards, results.kind = out, np.float64

    def give(self, row: int) -> None:
        if not self._moved[row]:
            return
        self._moved[row] = self._all_moved = False
        wrapper = self.wrappers[row]
        rms = wrapper.return_rms
        rms.mean, rms.var, rms.count = self.mean[row], self.var[row], self.count[row].item()
        wrapper.discounted_reward = self.discounted[row : row + 1].copy()

    def take(self, row: int) -> bool:
        wrapper = self.wrappers[row]
        rms = wrapper.return_rms
        self.mean[row], self.var[row], self.count[row] = rms.mean, rms.var, rms.count
        self.discounted[row] = wrapper.discounted_reward[0]
        return True


COMPARED = 40
"""Steps for which statistics are compared with Python once a process. Running means are those of few numbers at first, where a
wrong order of operations shows soonest.
"""


class _Nothing(gymnasium.Env[Any, Any]):
    """Takes the place of an environment in a comparison."""

    observation_space = spaces.Box(-np.inf, np.inf, (5,), np.float32)
    action_space = spaces.Discrete(1)


@cache
def _differs(form: type[_Statistics]) -> str | None:
    """Compare random numbers with what three wrappers make of them; return what differs, ``None`` if nothing does."""
    random = np.random.default_rng(0)
    for dtype in (np.float32, np.float64):
        pairs: Any = [[form.original()(_Nothing()) for _ in range(3)] for _ in range(2)]
        shown = (random.normal(size=(COMPARED + 1, 3, 5)) * random.choice([1e-3, 1.0, 1e3], (COMPARED + 1, 3, 1))).astype(dtype)
        for row, wrapper in enumerate([*pairs[0], *pairs[1]]):
            wrapper.env = InPlaceOf(wrapper.env, (shown[0, row % 3], {}))
            wrapper.reset()
        ours, theirs = form(pairs[0]), form(pairs[1])
        for step in range(1, COMPARED + 1):
            rewards, terminated = random.normal(size=3) * 10.0 ** random.integers(-3, 4), random.random(3) < 0.1
            results = RowResults(3, shown[step], ALL, None, rewards, float, terminated, np.zeros(3, np.bool_))
            ours.outward(results)
            ours.give_back()
            seen = results.objects(range(3))
            for row in range(3):
                returned: tuple[Any, ...] = shown[step, row], float(rewards[row]), bool(terminated[row]), False, {}
                expected = theirs.one(row, returned, {})
                given = seen[row], results.kind(results.rewards[row])
                if not same_bits(given, (np.asarray(expected[0]), expected[1])) or not _same_statistics(form, pairs, row):
                    return f"{given} and {expected[:2]}"
    return None


def _same_statistics(form: type[_Statistics], pairs: Any, row: int) -> bool:
    ours, theirs = (vars(getattr(wrappers[row], form.rms)) for wrappers in pairs)
    returns = [getattr(wrappers[row], "discounted_reward", None) for wrappers in pairs]
    return same_bits(ours, theirs) and same_bits(returns[0], returns[1])


# ---------------------------------------------------------------------- observations of several steps


class FrameStackObservation(RowForm):
    module, owner, saves = _STATEFUL, "FrameStackObservation", 20.0
    observes = True
    written_from = ("fadaad7360d0",)

    def __init__(self, wrappers: Sequence[Any]) -> None:
        super().__init__(wrappers)
        self._frames = np.array([[*wrapper.obs_queue] for wrapper in wrappers])
        self._padding = np.array([wrapper.padding_value for wrapper in wrappers])
        self._resets = wrappers[0].padding_type == "reset"

    @classmethod
    def misfit(cls, wrapper: Any, over: bool) -> str | None:
        stacked, queue = wrapper.stacked_obs, wrapper.obs_queue
        if type(wrapper.env.observation_space) is not spaces.Box or type(stacked) is not np.ndarray or type(queue) is not deque:
            return f"it stacks a {type(wrapper.env.observation_space).__name__}"
        if _kept(wrapper):
            return "somebody else refers to its frames"
        frames = [*queue, wrapper.padding_value]
        if any(type(one) is not np.ndarray or (one.dtype, one.shape) != (stacked.dtype, stacked.shape[1:]) for one in frames):
            return "its frames have another dtype or shape than their space"
        return None if len(queue) == wrapper.stack_size and stacked.ndim > 1 else f"somebody has changed its {cls.owner}"

    @classmethod
    def constants(cls, wrapper: Any) -> Any:
        return wrapper.stacked_obs.shape, wrapper.stacked_obs.dtype, wrapper.padding_type

    def outward(self, results: RowResults) -> None:
        frames, padding = self._frames, self._padding
        shown = results.array(frames.dtype, frames.shape[2:])
        if (moved := results.moved) is not None:
            frames[moved, :-1] = frames[moved, 1:].copy()
            frames[moved, -1] = shown[moved]
        if (begun := results.begun) is not None:
            if self._resets:
                padding[begun] = shown[begun]
            frames[begun, :-1] = padding[begun][:, None]
            frames[begun, -1] = shown[begun]
        results.show(frames.copy())

    def give(self, row: int) -> None:
        wrapper = self.wrappers[row]
        wrapper.padding_value = self._padding[row].copy()
        wrapper.obs_queue.extend([frame.copy() for frame in self._frames[row]])
        wrapper.stacked_obs[...] = self._frames[row]

    def take(self, row: int) -> bool:
        wrapper = self.wrappers[row]
        if self.misfit(wrapper, False):
            return False
        self._frames[row], self._padding[row] = [*wrapper.obs_queue], wrapper.padding_value
        return True


def _kept(wrapper: Any) -> bool:
    """Whether somebody besides a wrapper has one of the arrays that it stacks, and may write into it."""
    queue = wrapper.obs_queue
    for place in range(len(queue)):
        times = sum(frame is queue[place] for frame in queue) + (wrapper.padding_value is queue[place])
        if getrefcount(queue[place]) > times + 1 or queue[place].base is not None:
            return True
    return False


class TimeAwareObservation(_Vector):
    module, owner, saves = _STATEFUL, "TimeAwareObservation", 15.0
    written_from = ("af2a5a2774bd",)

    @classmethod
    def misfit(cls, wrapper: Any, over: bool) -> str | None:
        return None if type(wrapper.timesteps) is int else f"its timesteps are {wrapper.timesteps!r}"

    @classmethod
    def constants(cls, wrapper: Any) -> Any:
        return wrapper.max_timesteps, wrapper.flatten, wrapper.normalize_time

    def inward(self, actions: Any, rows: Sequence[int]) -> Any:
        for row in rows:
            self.wrappers[row].timesteps += 1
        return actions

    def outward(self, results: RowResults) -> None:
        for row in numbers_of(results.begun, results.n):
            self.wrappers[row].timesteps = 0
        super().outward(results)

    def vector(self, shown: Array) -> Array | None:
        first = self.wrappers[0]
        space = first.env.observation_space
        if not first.flatten or type(space) is not spaces.Box or shown.shape[1:] != space.shape:
            return None
        steps = np.array([wrapper.timesteps for wrapper in self.wrappers])
        times = (steps / first.max_timesteps).astype(np.float32) if first.normalize_time else steps.astype(np.int32)
        return np.concatenate([shown.reshape(len(shown), -1).astype(space.dtype), times[:, None]], axis=1)

    def one(self, row: int, returned: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        if len(returned) == 5:
            self.wrappers[row].timesteps -= 1  # it counts itself
        return super().one(row, returned, kwargs)


_ALL: tuple[type[RowForm], ...] = (
    TransformObservation, FilterObservation, FlattenObservation, DtypeObservation, RescaleObservation, NormalizeObservation,
    FrameStackObservation, TimeAwareObservation, TransformAction, ClipAction, RescaleAction, TransformReward, ClipReward,
    NormalizeReward,
)  # fmt: skip
FORMS: dict[tuple[str, str], type[RowForm]] = {(form.module, form.owner): form for form in _ALL}
"""By module and name of a wrapper's class, its form."""
