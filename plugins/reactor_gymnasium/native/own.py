"""Kernels of users: what they are given, and what they say of themselves."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

__all__ = ["PYTHONS", "CRows", "Kernel", "KernelRows", "ValueType", "incomplete", "kernel_include", "types_of"]

Array = npt.NDArray[Any]

PYTHONS = (int, float, bool)
"""Types of Python's that a column may stand for."""


# ---------------------------------------------------------------------- what users write


class KernelRows(SimpleNamespace):
    """The rows of a kernel: arrays that live as long as it does, with an item for each of ``n`` rows.

    The columns of ``state`` are attributes, too, where they have no name of those below: ``rows.fuel`` is ``rows.state["fuel"]``.

    Attributes:
        n: How many rows there are.
        env: A copy of an environment; its constants can be read from it.
        state: By name the columns of ``Kernel.state``, ``(n,)`` or ``(n, *shape)``, to be read and written.
        moving: Which rows take this step, ``(n,)`` bools; the others are reset in it.
        observations: To be written by ``observe``, ``(n, *shape)`` of the observation space's dtype.
        rewards: To be written by ``step``, ``(n,)`` float64.
        terminated: Likewise, ``(n,)`` bools; all are false before a step.
        truncated: Likewise. Time limits of wrappers are not the kernel's business.
        infos: By name the columns of ``Kernel.infos``, to be written by ``step``.
        rngs: The environments' generators.
        states: The addresses of their states, ``(n,)`` uint64, which ``np.random.PCG64().ctypes.next_double`` draws from in numba.
    """

    n: int
    env: Any
    state: dict[str, Array]
    moving: npt.NDArray[np.bool_]
    observations: Array
    rewards: npt.NDArray[np.float64]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    infos: dict[str, Array]
    rngs: list[np.random.Generator]
    states: npt.NDArray[np.uint64]
    _draw: Callable[[Array], None]

    def random(self) -> npt.NDArray[np.float64]:
        """Draw ``rng.random()`` for each row that is moving, in one call; 0 for the others.

        Returns:
            ``(n,)`` float64, a new array.
        """
        out = np.empty(self.n)
        self._draw(out)
        return out


@runtime_checkable
class Kernel(Protocol):
    """The fast form of an environment: all rows in one call, with the bits that its Python class gives.

    A class need not derive from this. Besides the methods and ``state`` it may have these attributes, all of the class:
    ``constants``, a sequence of names of attributes that all rows have in common and that nobody changes; ``infos``, by key the
    types of what ``step`` gives as its info, where its keys are always the same; ``actions``, the dtypes of actions that it knows,
    by default that of the action space; and ``written_from``, fingerprints of the code that it was written from, which
    ``python -m reactor_rl check-kernel`` prints.

    Types are ``int``, ``float`` and ``bool`` for Python's numbers, a dtype for numpy's, and ``(dtype, shape)`` for arrays; an item
    of a shape may be the name of a constant.

    Attributes:
        state: By name the types of those attributes of the environment that steps and resets change.
    """

    state: Mapping[str, Any]

    def __init__(self, rows: KernelRows) -> None: ...

    def step(self, actions: Array) -> None:
        """Move those rows that are moving, and write rewards, flags and infos. What is written of the others does not count.

        Args:
            actions: ``(n, *shape)`` of the action space, of a dtype that the kernel knows.
        """

    def reset(self, row: int, rng: np.random.Generator) -> None:
        """Begin an episode.

        Args:
            row: The row.
            rng: Its environment's own generator, of which as much is to be drawn as ``reset()`` in Python draws.
        """

    def observe(self) -> None:
        """Write the observations of all rows, as they are now."""


class CRows:
    """A kernel of three functions in C: see ``reactor_kernel.h`` in :func:`kernel_include`.

    Subclasses have these attributes, and those of a :class:`Kernel`. To C constants are float64: numbers, and arrays of them.

    Attributes:
        library: Path of the shared library.
        prefix: Of the functions ``PREFIX_step``, ``PREFIX_reset`` and ``PREFIX_observe``.
    """

    library: ClassVar[str | Path]
    prefix: ClassVar[str]
    state: ClassVar[Mapping[str, Any]] = {}
    constants: ClassVar[Sequence[str]] = ()
    infos: ClassVar[Mapping[str, Any]] = {}
    actions: ClassVar[Sequence[Any]] = ()
    written_from: ClassVar[Sequence[str]] = ()

    @classmethod
    def functions(cls) -> tuple[int, ...]:
        """The addresses of its functions.

        Raises:
            OSError: If there is no such library.
            AttributeError: If it lacks one of them.
        """
        library = _library(str(cls.library))
        names = [f"{cls.prefix}_{name}" for name in ("step", "reset", "observe")]
        return tuple([ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in names])


@cache
def _library(path: str) -> ctypes.CDLL:
    return ctypes.CDLL(path)


def kernel_include() -> str:
    """Find the header that kernels in C include.

    Returns:
        The folder of ``reactor_kernel.h``, for a compiler's ``-I``.
    """
    return str(Path(__file__).parents[1] / "include")


# ---------------------------------------------------------------------- what they say


class ValueType(NamedTuple):
    """The type of an attribute that a column stands for: of an array, or of numpy's or Python's numbers."""

    dtype: np.dtype[Any]
    shape: tuple[Any, ...] | None  # of arrays
    python: type | None  # of Python's numbers

    @property
    def names(self) -> tuple[str, ...]:
        """The constants that its shape names."""
        return tuple([one for one in self.shape or () if isinstance(one, str)])

    def column(self, n: int, env: Any) -> Array:
        return np.zeros((n, *self.shape_in(env)), self.dtype)

    def shape_in(self, env: Any) -> tuple[int, ...]:
        return tuple([int(getattr(env, one)) if isinstance(one, str) else int(one) for one in self.shape or ()])

    def fits(self, value: Any, env: Any) -> bool:
        if self.python:
            return type(value) is self.python
        if self.shape is None:
            return type(value) is self.dtype.type
        return type(value) is np.ndarray and value.dtype == self.dtype and value.shape == self.shape_in(env)

    @property
    def form(self) -> str:
        """The word for an info's column."""
        return "python" if self.python else "numpy" if self.shape is None else "array"


def _type(owner: str, kind: Any) -> ValueType:
    """Make out a type.

    Raises:
        TypeError: If it is not a type; the message has ``owner``, that it is the type of.
    """
    if kind in PYTHONS:
        return ValueType(np.dtype(kind), None, kind)
    try:
        dtype, shape = kind if isinstance(kind, tuple) else (kind, None)
        found = ValueType(np.dtype(dtype), None if shape is None else tuple(shape), None)
    except (TypeError, ValueError):
        found = None
    if found is None or found.dtype.kind not in "biufc" or (shape is None and found.dtype.kind == "b"):
        raise TypeError(f"{owner} must be int, float, bool, a dtype of numbers, or a dtype and a shape, got {kind!r}")
    return found


def types_of(kernel: Any, place: str) -> dict[str, ValueType]:
    """Make out the types of a kernel's ``state`` or ``infos``, by name.

    Raises:
        TypeError: If one is no type.
    """
    return {name: _type(f"{kernel.__name__}.{place}[{name!r}]", kind) for name, kind in getattr(kernel, place, {}).items()}


def incomplete(kernel: Any) -> str | None:
    """Say what a kernel's class lacks; ``None`` if nothing."""
    if not isinstance(kernel, type):
        return f"kernel must be a class or 'module:Class', got {kernel!r}"
    wanted = ("library", "prefix") if issubclass(kernel, CRows) else ("step", "reset", "observe")
    for name in ("state", *wanted):
        if not hasattr(kernel, name):
            return f"{kernel.__name__} must have {name}"
    if issubclass(kernel, CRows) and len(kernel.actions) > 1:
        return f"{kernel.__name__}.actions must be one dtype, got {kernel.actions!r}"
    try:
        types_of(kernel, "state")
        types_of(kernel, "infos")
    except TypeError as error:
        return str(error)
    return None
