"""A round of transitions as a fixed record, which travels from the actors to the learner.

One array port carries it. Every field is a contiguous block, so that a field of the gathered port is a strided view of what the
actors have written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from numpy import ndarray

from reactor_gymnasium.plugin import joint_writer
from reactor_sb3.acting.behaviours import Field
from reactor_torch import packed

__all__ = ["Observations", "by_step", "transition_record"]

Array = npt.NDArray[Any]


class Observations:
    """How observations of a space are laid out: one array, or one for each key of a ``Dict``.

    Args:
        given: The environment's observation space.
        wanted: The space that the policy sees; images may be channels-first there and channels-last in ``given``.
        original: Whether numbers are those of ``given``, and only the shape is that of ``wanted``.
        normalized: Of which keys the numbers are normalised, and no whole ones any more.

    Raises:
        TypeError: If observations are not arrays of fixed shape, or their numbers have another machine's byte order.
        ValueError: If they are numbers that do not count from 0, which SB3's networks take for others.
    """

    def __init__(
        self, given: gymnasium.Space[Any], wanted: gymnasium.Space[Any], *, original: bool = False, normalized: Collection[str] = ()
    ) -> None:
        self.keys: tuple[str, ...] | None = tuple(wanted.spaces) if isinstance(wanted, spaces.Dict) else None
        of_given = {"": given} if self.keys is None else dict(given.spaces)  # type: ignore[attr-defined]
        of_wanted = {"": wanted} if self.keys is None else dict(wanted.spaces)  # type: ignore[attr-defined]
        self.parts: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}
        self.turned: set[str] = set()  # images to be turned from (height, width, channels) to (channels, height, width)
        self.given: dict[str, tuple[int, ...]] = {}  # shapes as the environment has them
        self.choices: dict[str, Any] = {}  # among how many, where observations are choices
        for key, space in of_wanted.items():
            match space:
                case spaces.Discrete(start=start) | spaces.MultiDiscrete(start=start) if np.any(start):
                    where = f" of {key!r}" if key else ""
                    raise ValueError(
                        f"the observation space{where} is {space}, which counts from start={start}; wrap the environment so that "
                        "observations count from 0"
                    )
            if space.shape is None or space.dtype is None or np.dtype(space.dtype).hasobject:
                raise TypeError(f"observations of {space} are not arrays of a fixed shape; wrap the environment so that they are")
            dtype = np.dtype(of_given[key].dtype if original else space.dtype)
            if not dtype.isnative:
                raise TypeError(
                    f"observations of {space} have the byte order of another machine ({dtype.str!r}), which torch does not take; "
                    "wrap the environment with gymnasium.wrappers.DtypeObservation, say, so that they have this one's"
                )
            if key in normalized and dtype.kind != "f":
                dtype = np.dtype(np.float32)
            self.parts[key] = tuple(space.shape), dtype
            match of_given[key]:
                case spaces.Discrete(n=choices) | spaces.MultiDiscrete(nvec=choices):
                    self.choices[key] = choices
            self.given[key] = tuple(of_given[key].shape or ())
            if self.given[key] != tuple(space.shape):
                self.turned.add(key)

    def fields(self, name: str, *rows: int) -> list[tuple[str, np.dtype[Any], tuple[int, ...]]]:
        """The fields of a record that hold observations, one for each of ``rows``."""
        return [(name + key, dtype, (*rows, *shape)) for key, (shape, dtype) in self.parts.items()]

    def of(self, record: Array, name: str) -> dict[str, Array]:
        """The views of those fields, by key."""
        return {key: record[name + key] for key in self.parts}

    def writer(self, rows: Mapping[str, Array]) -> Callable[[int, Any], None]:
        """A function that writes one observation of an environment; rows are counted over all leading axes.

        It raises ``ValueError`` or ``TypeError`` if the observation is not one of the space: by its shape, its kind, or a number
        that would become another one. Whole numbers as floats are taken, and floats of any precision, as by SB3.
        """
        puts = [self._writer(key, part.reshape(-1, *self.parts[key][0])) for key, part in rows.items()]
        if self.keys is None:
            return puts[0]
        keyed = list(zip(rows, puts, strict=True))

        def write(at: int, observation: Any) -> None:
            try:
                for key, put in keyed:
                    put(at, observation[key])
            except (KeyError, IndexError, TypeError):
                if isinstance(observation, Mapping) and self.parts.keys() <= observation.keys():
                    raise
                raise TypeError(
                    f"the observation is {_described(observation)}, its space is a Dict of {list(self.parts)}"
                ) from None

        return write

    def _writer(self, key: str, flat: Array) -> Callable[[int, Any], None]:
        shape, dtype, turned = self.given[key], flat.dtype, key in self.turned
        casts = _TO_FLOATS if dtype.kind == "f" else {dtype}  # without a look at the numbers
        # Types of Python's and numpy's whose every value may be written as it is.
        scalars: tuple[type, ...] = () if shape else (dtype.type, {"f": float, "b": bool}.get(dtype.kind, dtype.type))

        def write(at: int, observation: Any) -> None:
            if type(observation) is ndarray:
                # `is` first: nearly all have the very dtype, and to look one up in a set takes longer.
                if observation.shape != shape or (observation.dtype is not dtype and observation.dtype not in casts):
                    observation = _fitting(observation, key, shape, dtype)
            elif type(observation) not in scalars:
                observation = _fitting(observation, key, shape, dtype)
            flat[at] = np.transpose(observation, (2, 0, 1)) if turned else observation

        if key not in self.choices:
            return write
        choices, scalars = self.choices[key], () if shape else (*scalars, int)

        def write_choice(at: int, observation: Any) -> None:
            if type(observation) is ndarray:
                fits = observation.shape == shape and observation.dtype == dtype
            else:
                fits = type(observation) in scalars
            if not fits:
                observation = _fitting(observation, key, shape, dtype)
            if not (((observation >= 0) & (observation < choices)).all() if shape else 0 <= observation < choices):
                where = f"[{key!r}]" if key else ""
                raise ValueError(f"the observation{where} is {observation}, its space says below {choices} and not negative")
            flat[at] = observation

        return write_choice

    def batch_writer(self, rows: Mapping[str, Array]) -> Callable[[list[Any]], None] | None:
        """A function that writes one observation of each environment, ``(n, ...)``, where that is cheaper than one by one.

        It raises ``ValueError`` or ``TypeError`` where :meth:`writer` may have to look at an observation.
        """
        only = rows.get("")
        if only is None or self.turned or self.choices or only.ndim < 2 or len(only) < 2 or not 0 < only[0].nbytes <= 1024:
            return None
        return joint_writer(only, "same_kind" if only.dtype.kind == "f" else "safe")

    def one(self, observation: Any) -> dict[str, Array]:
        """An observation of an environment, laid out alone, by key."""
        rows = {key: np.empty((1, *shape), dtype) for key, (shape, dtype) in self.parts.items()}
        self.writer(rows)(0, observation)
        return {key: part[0] for key, part in rows.items()}

    def outside(self, rows: Mapping[str, Any]) -> Any:
        """Observations as SB3 has them: one array or tensor, or a dict of them."""
        return rows[""] if self.keys is None else dict(rows)

    def zeros(self, count: int, device: torch.device, *, columns: bool = False) -> Any:
        """A batch of zeros: learning from it takes as long as from any other batch.

        Args:
            count: How many observations.
            device: Where.
            columns: Whether single numbers are ``(count, 1)``, as in SB3's buffers.
        """
        least = (1,) if columns else ()
        return self.outside(
            {
                key: torch.from_numpy(np.zeros((count, *(shape or least)), dtype)).to(device)
                for key, (shape, dtype) in self.parts.items()
            }
        )


_TO_FLOATS = frozenset(np.dtype(kind) for kind in "?bBhHiIlLqQefd")
"""Dtypes whose values become floats unchanged, except for lost digits."""


def _fitting(observation: Any, key: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An observation, or a part of one, as an array of its space.

    Raises:
        ValueError: If it has another shape, or a number that would become another one.
        TypeError: If it is not made of numbers.
    """
    where = f"[{key!r}]" if key else ""
    try:
        array = np.asarray(observation)
        if array.dtype.kind == "O":
            array = np.array(array.tolist())  # of numbers, perhaps
    except (TypeError, ValueError):
        raise TypeError(f"the observation{where} is {_described(observation)}, its space says {shape} of {dtype}") from None
    if array.dtype.kind not in "biuf":
        raise TypeError(f"the observation{where} is {_described(observation)}, its space says {shape} of {dtype}")
    if array.shape != shape:
        raise ValueError(f"the observation{where} has shape {array.shape}, its space says {shape}")
    if dtype.kind == "f":
        return array
    with np.errstate(invalid="ignore"):
        cast = array.astype(dtype)
    if not np.array_equal(cast, array):
        wrong = array[cast != array].flat[0]
        raise ValueError(f"the observation{where} has the number {wrong} in it, which {dtype} of its space cannot be")
    return cast


def _described(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} of shape {value.shape}"
    if isinstance(value, Mapping):
        return f"a {type(value).__name__} of {list(value)[:20]}"
    return f"{repr(value)[:80]}, a {type(value).__name__}"


def transition_record(
    observations: Observations, of_actions: Sequence[Field], steps: int, envs: int, originals: Observations | None = None
) -> np.dtype[Any]:
    """One actor's round: ``steps`` transitions of each of its ``envs`` environments, with what is to be known of their actions.

    With ``originals``, their layout before normalisation, there are observations and rewards also as the environments gave them.
    """
    of_originals = [] if originals is None else [
        *originals.fields("original_observations", steps, envs),
        *originals.fields("original_next_observations", steps, envs),
        ("original_rewards", np.dtype(np.float32), (steps, envs)),
    ]  # fmt: skip
    return packed([
        *of_originals,
        *observations.fields("observations", steps, envs),
        *observations.fields("next_observations", steps, envs),
        *((one.name, one.dtype, (*(steps, envs)[not one.per_step :], *one.shape)) for one in of_actions),
        ("rewards", np.dtype(np.float32), (steps, envs)),
        ("dones", np.dtype(np.bool_), (steps, envs)),
        ("timeouts", np.dtype(np.bool_), (steps, envs)),
    ])  # fmt: skip


def by_step(field: Array) -> Array:
    """A copy of a field of gathered rounds, from ``(actors, steps, envs, ...)`` to ``(steps, actors * envs, ...)``."""
    actors, steps, envs, *rest = field.shape
    return np.array(field.swapaxes(0, 1), order="C").reshape(steps, actors * envs, *rest)
