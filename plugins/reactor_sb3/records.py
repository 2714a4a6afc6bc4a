"""What travels between actors and learner, as fixed records: a round of transitions, and the parameters of a network.

One array port carries each. Every field is a contiguous block, so that a field of the gathered port is a strided view of what the
actors have written, and a parameter of an actor's network a view of what the learner has written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces

__all__ = ["Observations", "by_step", "parameter_record", "tensors", "transition_record", "write_parameters"]

Array = npt.NDArray[Any]
FILLING = "(filling)"
"""What rounds a record up to a whole number of words."""


class Observations:
    """How observations of a space are laid out: one array, or one for each key of a ``Dict``.

    Args:
        given: The environment's observation space.
        wanted: The space that the policy sees; images may be channels-first there and channels-last in ``given``.

    Raises:
        TypeError: If observations are no arrays of fixed shape.
    """

    def __init__(self, given: gymnasium.Space[Any], wanted: gymnasium.Space[Any]) -> None:
        self.keys: tuple[str, ...] | None = tuple(wanted.spaces) if isinstance(wanted, spaces.Dict) else None
        of_given = {"": given} if self.keys is None else dict(given.spaces)  # type: ignore[attr-defined]
        of_wanted = {"": wanted} if self.keys is None else dict(wanted.spaces)  # type: ignore[attr-defined]
        self.parts: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}
        self.turned: set[str] = set()  # images to be turned from (height, width, channels) to (channels, height, width)
        for key, space in of_wanted.items():
            if space.shape is None or space.dtype is None or np.dtype(space.dtype).hasobject:
                raise TypeError(f"observations of {space} are not arrays of a fixed shape; wrap the environment so that they are")
            self.parts[key] = tuple(space.shape), np.dtype(space.dtype)
            if of_given[key].shape != space.shape:
                self.turned.add(key)

    def fields(self, name: str, *rows: int) -> list[tuple[str, np.dtype[Any], tuple[int, ...]]]:
        """The fields of a record that hold observations, one for each of ``rows``."""
        return [(name + key, dtype, (*rows, *shape)) for key, (shape, dtype) in self.parts.items()]

    def of(self, record: Array, name: str) -> dict[str, Array]:
        """The views of those fields, by key."""
        return {key: record[name + key] for key in self.parts}

    def writer(self, rows: Mapping[str, Array]) -> Callable[[int, Any], None]:
        """A function that writes one observation of an environment; rows are counted over all leading axes."""
        flat = {key: part.reshape(-1, *self.parts[key][0]) for key, part in rows.items()}
        if self.keys is None:
            only = flat[""]
            return only.__setitem__ if not self.turned else lambda at, observation: only.__setitem__(at, _turned(observation))

        def write(at: int, observation: Any) -> None:
            for key, part in flat.items():
                part[at] = _turned(observation[key]) if key in self.turned else observation[key]

        return write

    def one(self, observation: Any) -> dict[str, Array]:
        """An observation of an environment, laid out alone, by key."""
        rows = {key: np.empty((1, *shape), dtype) for key, (shape, dtype) in self.parts.items()}
        self.writer(rows)(0, observation)
        return {key: part[0] for key, part in rows.items()}

    def outside(self, rows: Mapping[str, Any]) -> Any:
        """Observations as SB3 has them: one array or tensor, or a dict of them."""
        return rows[""] if self.keys is None else dict(rows)

    def zeros(self, count: int, device: torch.device) -> Any:
        """A batch of nothing, which is as dear to learn from as any other."""
        return self.outside(
            {key: torch.from_numpy(np.zeros((count, *shape), dtype)).to(device) for key, (shape, dtype) in self.parts.items()}
        )


def _turned(image: Array) -> Array:
    return np.transpose(image, (2, 0, 1))


def transition_record(observations: Observations, steps: int, envs: int) -> np.dtype[Any]:
    """One actor's round: ``steps`` transitions of each of its ``envs`` environments."""
    return _packed([
        *observations.fields("observations", steps, envs),
        *observations.fields("next_observations", steps, envs),
        ("actions", np.dtype(np.int64), (steps, envs)),
        ("rewards", np.dtype(np.float32), (steps, envs)),
        ("dones", np.dtype(np.bool_), (steps, envs)),
        ("timeouts", np.dtype(np.bool_), (steps, envs)),
    ])  # fmt: skip


def by_step(field: Array) -> Array:
    """A copy of a field of gathered rounds, from ``(actors, steps, envs, ...)`` to ``(steps, actors * envs, ...)``."""
    actors, steps, envs, *rest = field.shape
    return np.array(field.swapaxes(0, 1), order="C").reshape(steps, actors * envs, *rest)


def parameter_record(state: Mapping[str, torch.Tensor]) -> np.dtype[Any]:
    """The parameters and buffers of a network, by name."""
    return _packed(
        [(name, np.dtype(str(tensor.dtype).removeprefix("torch.")), tuple(tensor.shape)) for name, tensor in state.items()]
    )


def _packed(fields: list[tuple[str, np.dtype[Any], tuple[int, ...]]]) -> np.dtype[Any]:
    """A record without gaps (a fingerprint would see what is in them), whose fields are aligned nevertheless: wide ones first."""
    ordered = sorted(fields, key=lambda field: -field[1].itemsize)
    size = np.dtype(ordered).itemsize
    return np.dtype([*ordered, (FILLING, np.uint8, (-size % 8,))] if size % 8 else ordered)


def tensors(record: Array) -> Iterator[tuple[str, torch.Tensor]]:
    """The fields of a record that may be written, as tensors that share its memory."""
    for name in record.dtype.names or ():
        if name != FILLING:
            yield name, torch.from_numpy(record[name])


def write_parameters(record: Array, state: Mapping[str, torch.Tensor]) -> None:
    """Fill a record with parameters."""
    if FILLING in (record.dtype.names or ()):
        record[FILLING] = 0
    with torch.no_grad():
        for name, target in tensors(record):
            target.copy_(state[name])
