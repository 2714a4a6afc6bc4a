"""Observation spaces as storage: what fits an array port, what travels as an object, and how a batch is put together again.

The array leaves of a space (Box, Discrete, MultiDiscrete, MultiBinary, also inside Dict and Tuple) become one array port:
the leaf itself if the space is one, else a structured dtype with one field per leaf. Everything else is an object leaf.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from gymnasium import Space, spaces
from gymnasium.error import CustomSpaceError
from gymnasium.vector.utils import concatenate, create_empty_array, create_shared_memory

from reactor_rl.plugin import aligned_zeros

__all__ = ["Casting", "ObservationLayout", "check_shared_memory", "joint_writer"]

Casting = Literal["safe", "same_kind", "unsafe"]
Path = tuple[Any, ...]
Array = npt.NDArray[Any]

_ARRAYS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


class ObservationLayout:
    """The leaves of a single observation space.

    Args:
        space: The space.
        casting: What may be written into an array leaf: ``"same_kind"`` refuses floats where there should be integers, as
            Gymnasium's vector environments do; ``"unsafe"`` cuts off their fractions, as Stable-Baselines3's do.

    Attributes:
        arrays: Paths, shapes and dtypes of the array leaves.
        objects: Paths of the object leaves.
        plain: Whether the space is one array leaf, not empty, and nothing else.
        whole: Whether a row is what a whole environment of several rows shows.
    """

    whole = False

    def __init__(self, space: Space[Any], casting: Casting = "same_kind") -> None:
        self.space, self.casting = space, casting
        self.arrays: list[tuple[Path, tuple[int, ...], np.dtype[Any]]] = []
        self.objects: list[Path] = []
        self._walk(space, ())
        alone = len(self.arrays) == 1 and self.arrays[0][0] == () and not self.objects
        self.plain = alone and 0 not in self.arrays[0][1]

    def _walk(self, space: Space[Any], path: Path) -> None:
        if isinstance(space, _ARRAYS):
            assert space.shape is not None and space.dtype is not None
            self.arrays.append((path, tuple(space.shape), np.dtype(space.dtype)))
        elif isinstance(space, spaces.Dict):
            for key, part in space.spaces.items():
                self._walk(part, (*path, key))
        elif isinstance(space, spaces.Tuple):
            for index, part in enumerate(space.spaces):
                self._walk(part, (*path, index))
        else:
            self.objects.append(path)

    def storage(self) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Shape and dtype of one row of the array port."""
        if self.plain:
            return self.arrays[0][1], self.arrays[0][2]
        fields = [(f"leaf{number}", dtype, shape) for number, (_, shape, dtype) in enumerate(self.arrays)]
        if all(0 in shape for _, shape, _ in self.arrays):
            fields.append(("nothing", np.dtype(np.uint8), ()))  # a row has to have bytes
        return (), np.dtype(fields, align=True)

    def memory(self, rows: int) -> Array | None:
        """Zeros for the array leaves of so many rows; ``None`` if there are no such leaves."""
        if not self.arrays:
            return None
        shape, dtype = self.storage()
        return aligned_zeros((rows, *shape), dtype)

    def writer(self, rows: Array) -> Callable[[int, Any], None]:
        """A function that writes the array leaves of one observation into a row; raises as :meth:`check` does."""
        fields = [
            (path, rows if self.plain else rows[f"leaf{number}"], shape, dtype, _scalars(shape, dtype))
            for number, (path, shape, dtype) in enumerate(self.arrays)
        ]

        def write(row: int, observation: Any) -> None:
            if observation is None:
                raise TypeError(f"the observation is None, its space is {self.space}")
            for path, field, shape, dtype, scalars in fields:
                value = observation
                for key in path:
                    value = value[key]
                kind = type(value)
                if kind not in scalars and (kind is not np.ndarray or value.dtype != dtype or value.shape != shape):
                    value = self._fitting(value, path, shape, dtype)
                field[row] = value

        return write

    def batch_writer(self, rows: Array) -> Callable[[list[Any]], Any] | None:
        """A function that writes all rows at once, where that is cheaper than one by one: small arrays, and no objects.

        It raises ``TypeError`` or ``ValueError`` where :meth:`check` does, of some of the observations, after it may have written
        some; large observations are better written while they are in the cache.
        """
        # 1 KB: chosen, as above it copying takes longer than the calls that are saved.
        if self.objects or not len(rows) or rows[0].nbytes > 1024 or any(0 in shape for _, shape, _ in self.arrays):
            return None
        if self.plain:
            return _numbers_writer(rows, self.casting) if rows.ndim == 1 else joint_writer(rows, self.casting)
        leaves = [
            (_leaf_of_all(path), _leaf_writer(rows[f"leaf{number}"], self.casting))
            for number, (path, _, _) in enumerate(self.arrays)
        ]

        def write_leaves(observations: list[Any]) -> None:
            try:
                for leaf_of_all, write in leaves:
                    write(leaf_of_all(observations))
            except (LookupError, AttributeError) as error:  # one of them lacks a leaf
                raise ValueError(str(error)) from error

        return write_leaves

    def write_block(self, rows: Array, block: slice, observations: Any) -> None:
        """Write the array leaves of observations that are batched already, as Gymnasium batches them, into a block of rows.

        Raises:
            ValueError, TypeError: As :meth:`check` does.
        """
        for number, (path, shape, dtype) in enumerate(self.arrays):
            batched = self._fitting(_at(observations, path), path, (block.stop - block.start, *shape), dtype)
            (rows if self.plain else rows[f"leaf{number}"])[block] = batched

    def check(self, observation: Any) -> None:
        """Raise if an array leaf cannot be a row.

        Raises:
            ValueError: If its shape is not that of its space, which a write into a row might hide by broadcasting.
            TypeError: If it does not cast to the dtype of its space.
        """
        for path, shape, dtype in self.arrays:
            self._fitting(_at(observation, path), path, shape, dtype)

    def _fitting(self, value: Any, path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        where = "".join(f"[{key!r}]" for key in path)
        if value is None:
            raise TypeError(f"the observation{where} is None, its space says an array of shape {shape}")
        array = np.asarray(value)
        if array.shape != shape:
            raise ValueError(f"the observation{where} has shape {array.shape}, its space says {shape}")
        if not np.can_cast(array.dtype, dtype, self.casting):
            raise TypeError(f"the observation{where} has dtype {array.dtype}, which does not cast to {dtype} of its space")
        return array

    def take_objects(self, observation: Any) -> tuple[Any, ...]:
        """The object leaves of one observation."""
        return tuple(_at(observation, path) for path in self.objects)

    def take_block(self, observations: Any, count: int) -> list[tuple[Any, ...]]:
        """The object leaves of ``count`` observations that are batched already."""
        leaves = [_at(observations, path) for path in self.objects]
        return [tuple(of_leaf[row] for of_leaf in leaves) for row in range(count)]

    def batched(self, rows: Array | None, objects: list[tuple[Any, ...]] | None, copy: bool) -> Any:
        """The batched observation, in the form that Gymnasium's ``concatenate`` gives it.

        Args:
            rows: The array port's value, one row for each environment.
            objects: The object leaves of each environment.
            copy: Whether arrays are copies or views.
        """
        if self.plain:
            assert rows is not None
            return rows.copy() if copy else rows
        return self._build(self.space, (), rows, objects, copy)

    def copier(self, rows: Array | None) -> Callable[[], Any] | None:
        """A function that gives copies as :meth:`batched` does, of rows that stay where they are; ``None`` if there are objects.

        Args:
            rows: The array port's value.
        """
        if self.objects or rows is None:
            return None
        return rows.copy if self.plain else self._copier(self.space, (), rows)

    def _copier(self, space: Space[Any], path: Path, rows: Array) -> Callable[[], Any]:
        if isinstance(space, spaces.Dict):
            named = [(key, self._copier(part, (*path, key), rows)) for key, part in space.spaces.items()]
            return lambda: {key: copied() for key, copied in named}
        if isinstance(space, spaces.Tuple):
            parts = [self._copier(part, (*path, index), rows) for index, part in enumerate(space.spaces)]
            return lambda: tuple([copied() for copied in parts])
        number = next(number for number, leaf in enumerate(self.arrays) if leaf[0] == path)
        field: Array = rows[f"leaf{number}"]
        return field.copy

    def _build(self, space: Space[Any], path: Path, rows: Array | None, objects: list[tuple[Any, ...]] | None, copy: bool) -> Any:
        if isinstance(space, _ARRAYS):
            assert rows is not None
            number = next(i for i, leaf in enumerate(self.arrays) if leaf[0] == path)
            field = rows[f"leaf{number}"]
            return np.ascontiguousarray(field) if copy and not field.flags.c_contiguous else field.copy() if copy else field
        if isinstance(space, spaces.Dict):
            return {key: self._build(part, (*path, key), rows, objects, copy) for key, part in space.spaces.items()}
        if isinstance(space, spaces.Tuple):
            return tuple(self._build(part, (*path, i), rows, objects, copy) for i, part in enumerate(space.spaces))
        assert objects is not None
        number = self.objects.index(path)
        out: Any = create_empty_array(space, len(objects))
        # A tuple, unless a space of the user's is put together otherwise.
        return concatenate(space, [leaves[number] for leaves in objects], out)


def joint_writer(rows: Array, casting: Casting) -> Callable[[list[Any]], None]:
    """A function that writes an observation of one axis or more into each row; raises ``ValueError`` where one does not fit.

    Args:
        rows: ``(n, *shape)``.
        casting: Of what does not have the rows' dtype.
    """
    joined, length = rows.reshape(-1, *rows.shape[2:]), rows.shape[1]
    concatenate = partial(np.concatenate, out=joined, **({} if casting == "same_kind" else {"casting": casting}))

    def write_all(observations: list[Any]) -> None:
        concatenate(observations)
        if min(map(len, observations)) < length:  # they add up, so then another one is longer
            raise ValueError("the lengths differ")

    return write_all


def _numbers_writer(rows: Array, casting: Casting) -> Callable[[list[Any]], None]:
    """The same for numbers, into ``rows`` of shape ``(n,)``."""

    def write_numbers(observations: list[Any]) -> None:
        numbers = np.array(observations)
        if numbers.shape != rows.shape:
            raise ValueError(f"{numbers.shape} are not {rows.shape}")
        np.copyto(rows, numbers, casting=casting)

    return write_numbers


def _leaf_writer(field: Array, casting: Casting) -> Callable[[list[Any]], None]:
    """The same for one of several leaves, whose rows are not side by side in memory."""
    if field.ndim == 1:
        return _numbers_writer(field, casting)
    joined = np.empty(field.shape, field.dtype)
    write_joined = joint_writer(joined, casting)

    def write_all(observations: list[Any]) -> None:
        write_joined(observations)
        field[...] = joined

    return write_all


def _leaf_of_all(path: Path) -> Callable[[list[Any]], list[Any]]:
    """A function that takes a leaf of each observation."""
    if len(path) == 1:  # as nearly always
        (key,) = path
        return lambda observations: [one[key] for one in observations]
    return lambda observations: [_at(one, path) for one in observations]


def _scalars(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[type, ...]:
    """Types of Python's and numpy's whose every value may be written as it is."""
    if shape:
        return ()
    return (dtype.type, {"i": int, "f": float, "b": bool}.get(dtype.kind, dtype.type))


def _at(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return value


def check_shared_memory(space: Space[Any]) -> None:
    """Refuse the spaces that Gymnasium refuses with ``shared_memory=True``.

    Raises:
        TypeError: For spaces of no fixed shape.
        ValueError: For spaces of the user's own that are not registered with ``create_shared_memory``.
    """
    if isinstance(space, (spaces.Graph, spaces.Sequence)):
        raise TypeError(
            f"As {space} has a dynamic shape so its not possible to make a static shared memory. "
            "For `ReactorVectorEnv`, disable `shared_memory`."
        )
    if isinstance(space, spaces.Dict):
        parts = list(space.spaces.values())
    elif isinstance(space, (spaces.Tuple, spaces.OneOf)):
        parts = list(space.spaces)
    elif create_shared_memory.dispatch(type(space)) is create_shared_memory.dispatch(Space):
        error = CustomSpaceError(f"Space of type `{type(space)}` doesn't have an registered `create_shared_memory` function.")
        raise ValueError(
            "Using `ReactorVectorEnv(..., shared_memory=True)` caused an error, you can disable this feature with "
            "`shared_memory=False` however this is slower."
        ) from error
    else:
        parts = []
    for part in parts:
        check_shared_memory(part)
