"""Observation spaces as storage: what fits an array port, what travels as an object, and how a batch is put together again.

The array leaves of a space (Box, Discrete, MultiDiscrete, MultiBinary, also inside Dict and Tuple) become one array port:
the leaf itself if the space is one, else a structured dtype with one field per leaf. Everything else is an object leaf.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import Space, spaces
from gymnasium.error import CustomSpaceError
from gymnasium.vector.utils import create_shared_memory

__all__ = ["Leaves", "check_shared_memory"]

Path = tuple[Any, ...]
Array = npt.NDArray[Any]

_ARRAYS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


class Leaves:
    """The leaves of a single observation space.

    Attributes:
        arrays: Paths, shapes and dtypes of the array leaves.
        objects: Paths of the object leaves.
        plain: Whether the space is one array leaf and nothing else.
    """

    def __init__(self, space: Space[Any]) -> None:
        self.space = space
        self.arrays: list[tuple[Path, tuple[int, ...], np.dtype[Any]]] = []
        self.objects: list[Path] = []
        self._walk(space, ())
        self.plain = len(self.arrays) == 1 and self.arrays[0][0] == () and not self.objects

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
        return (), np.dtype(fields, align=True)

    def writer(self, rows: Array) -> Callable[[int, Any], None]:
        """A function that writes the array leaves of one observation into a row."""
        if self.plain:
            return rows.__setitem__
        fields = [(path, rows[f"leaf{number}"]) for number, (path, _, _) in enumerate(self.arrays)]

        def write(row: int, observation: Any) -> None:
            for path, field in fields:
                value = observation
                for key in path:
                    value = value[key]
                field[row] = value

        return write

    def batch_writer(self, rows: Array) -> Callable[[list[Any]], Any] | None:
        """A function that writes all rows at once, where that is cheaper than one by one: small arrays of one leaf.

        It takes the shapes for granted, see :meth:`check`; large observations are better written while they are in the cache.
        """
        if not self.plain or rows[0].nbytes > 1024:
            return None
        if rows.ndim == 1:
            return lambda found: rows.__setitem__(slice(None), found)
        joined = rows.reshape(-1, *rows.shape[2:])
        return partial(np.concatenate, out=joined)

    def check(self, observation: Any) -> None:
        """Raise if an array leaf has another shape than its space says, which a write into a row might hide by broadcasting.

        Raises:
            ValueError: Naming the leaf.
        """
        for path, shape, _ in self.arrays:
            found = np.shape(_at(observation, path))
            if found != shape:
                where = "".join(f"[{key!r}]" for key in path)
                raise ValueError(f"the observation{where} has shape {found}, its space says {shape}")

    def take_objects(self, observation: Any) -> tuple[Any, ...]:
        """The object leaves of one observation."""
        return tuple(_at(observation, path) for path in self.objects)

    def assemble(self, rows: Array | None, objects: list[tuple[Any, ...]] | None, copy: bool) -> Any:
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
        return tuple(found[number] for found in objects)


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
