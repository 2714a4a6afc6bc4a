"""The common part of the kernels in C."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from reactor_gymnasium.native.kernel import REFUSED, BlockKernel, Taken, reseeded
from reactor_rl.plugin import compiled_module

__all__ = ["CompiledKernel", "missing"]

Array = npt.NDArray[Any]
Loop = tuple[int, int]

_kernels = compiled_module("reactor_gymnasium.native._kernels")  # else Python steps them

MODES = {AutoresetMode.NEXT_STEP: 0, AutoresetMode.SAME_STEP: 1, AutoresetMode.DISABLED: 2}
"""Modes as C numbers them, in ``_batch.h``."""
FLOAT64 = np.dtype(np.float64)


class _UFunc(ctypes.Structure):
    """The beginning of numpy's PyUFuncObject, which is public."""

    _fields_ = (
        ("refcount", ctypes.c_ssize_t), ("type", ctypes.c_void_p), ("inputs", ctypes.c_int), ("outputs", ctypes.c_int),
        ("nargs", ctypes.c_int), ("identity", ctypes.c_int), ("functions", ctypes.POINTER(ctypes.c_void_p)),
        ("data", ctypes.POINTER(ctypes.c_void_p)), ("ntypes", ctypes.c_int),
    )  # fmt: skip


@cache
def loops() -> tuple[Loop, ...] | None:
    """Addresses of numpy's inner loops of sin and cos, and of what they are given; ``None`` if ufuncs look otherwise here."""
    found = []
    for types in ("d->d", "f->f"):
        for ufunc in (np.sin, np.cos):
            # In CPython an object's id is its address. Where its numbers are not those that numpy tells of it, the structure is
            # another one here, and nothing more is read of it.
            raw = _UFunc.from_address(id(ufunc))
            if (raw.inputs, raw.outputs, raw.nargs, raw.ntypes) != (1, 1, 2, ufunc.ntypes) or types not in ufunc.types:
                return None
            index = ufunc.types.index(types)
            found.append((raw.functions[index] or 0, (raw.data[index] or 0) if raw.data else 0))
    return tuple(found) if all(address for address, _ in found) else None


def missing() -> str | None:
    """Why kernels in C cannot be used, ``None`` if they can."""
    if not _kernels:
        return "the kernels were not compiled"
    return None if loops() else "numpy's functions look otherwise on this Python"


class CompiledKernel(BlockKernel):
    """Rows that C steps."""

    code: ClassVar[str]
    """Its name in ``_kernels.c``."""
    shape: tuple[int, ...]
    """Of an observation."""
    dtype: Any = np.float32
    places_dtype: ClassVar[Any] = np.uint8
    bounds: ClassVar[tuple[float, ...]] = ()
    """Low and high of each number that a reset draws."""

    def __init__(self, taken: Taken) -> None:
        envs = self._envs = taken.envs
        n = len(envs)
        self.mode = taken.mode
        self.left, self.limits = np.array(taken.left, np.int64), np.array(taken.limits, np.int64)
        self.pending = np.array(taken.pending, np.bool_)
        self.moving, self.fresh = np.zeros((2, n), np.bool_)
        self.observations, self.finals = np.zeros((2, n, *self.shape), self.dtype)
        self.kind = self.observations.dtype, self.observations.shape
        self.action_shape: tuple[int, ...] = (n,) if self.actions[0].kind == "i" else (n, 1)
        self.rewards = np.zeros(n)
        self.terminated, self.truncated, self.was_reset = (np.zeros(n, np.bool_) for _ in range(3))
        self.state: Array | None = None
        self.work: Array | None = None
        self.probs: Array | None = None
        self.final_probs: Array | None = None
        self.tables: tuple[Array | None, Array | None, Array | None] = (None, None, None)
        self.places: Array = np.zeros(n, self.places_dtype)
        self.constant = self.constants(envs[0])
        for row, seen in enumerate(taken.observations):
            if seen is not None:
                self.observations[row] = seen
        self.generators = [env.np_random for env in envs]
        self.capsules = [generator.bit_generator.capsule for generator in self.generators]
        self.wide = False
        self.load()
        arrays = (
            self.state, self.places, self.left, self.limits, self.pending, self.moving, self.fresh, self.observations, self.finals,
            self.rewards, self.terminated, self.truncated, self.was_reset, self.work, self.probs, self.final_probs, *self.tables,
        )  # fmt: skip
        self.batch = _kernels.Batch(
            self.code, MODES[taken.mode], arrays, self.capsules, self.bounds, self.floats(), self.numbers(), loops(),
            self.own_calls(),
        )  # fmt: skip
        self._step = self.batch.step

    @classmethod
    def unavailable(cls) -> str | None:
        return missing()

    def load(self) -> None:
        """Take the states of the environments."""
        raise NotImplementedError

    def unload(self) -> None:
        """Give the states back."""
        raise NotImplementedError

    def give_back(self) -> list[Any]:
        self.unload()
        return list(self.observations.copy())

    def floats(self) -> tuple[float, ...]:
        """The constants that C is given, ``p`` there."""
        return ()

    def numbers(self) -> tuple[int, ...]:
        """Likewise ``q``."""
        return ()

    def own_calls(self) -> tuple[Any, ...] | None:
        """The functions that C calls, where the kernel is a user's."""
        return None

    def step(self, actions: Array, shown: Array | None, led_to: Array | None) -> int:
        if actions.shape != self.action_shape:
            return REFUSED  # Python knows what to say of it
        self.wide = wide = actions.dtype == FLOAT64
        count: int = self._step(actions, wide, shown, led_to)
        return count

    def final(self, row: int) -> Any:
        return self.finals[row].copy()

    def reset(self, seeds: dict[int, dict[str, Any]]) -> None:
        mask = np.zeros(len(self._envs), np.bool_)
        for row, kwargs in seeds.items():
            mask[row] = True
            if kwargs.get("seed") is not None:
                self.reseed(row, reseeded(self._envs[row], kwargs["seed"]))
        self.batch.reset(mask)

    def reseed(self, row: int, generator: np.random.Generator) -> None:
        """Let a row draw from another generator."""
        self.generators[row], self.capsules[row] = generator, generator.bit_generator.capsule
        self.batch.set_generator(row, self.capsules[row])


assert REFUSED == -1  # in C, too
