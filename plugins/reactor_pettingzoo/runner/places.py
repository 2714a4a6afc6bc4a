"""Where what an agent sees is written: into its rows of an environment's record, once it has been looked at."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import Space, spaces

from reactor_gymnasium.plugin import ObservationLayout
from reactor_pettingzoo.agents import MASK, AgentID, AgentSpecs

__all__ = ["AgentPlace", "Part"]

Array = npt.NDArray[Any]


class Part:
    """One array of what an agent sees.

    Args:
        array: Where it belongs.
        space: What it is.
        path: The keys that lead to it in what the environment returns.
    """

    def __init__(self, array: Array, space: Space[Any], path: tuple[Any, ...]) -> None:
        assert space.shape is not None and space.dtype is not None
        self.array, self.space, self.path = array, space, path
        self.shape, self.dtype = tuple(space.shape), np.dtype(space.dtype)
        self._leaves = ObservationLayout(space)

    def write(self, observation: Any) -> None:
        """Write it down from an observation.

        Raises:
            ValueError, TypeError: As :meth:`fitting` does.
        """
        for key in self.path:
            observation = observation[key]
        self.array[...] = self.fitting(observation)

    def fitting(self, value: Any) -> Array:
        """The value as an array that may be written.

        Raises:
            ValueError: If it has another shape, which a write would hide by broadcasting, or is a number that its space lacks.
            TypeError: If it does not cast to the dtype of its space.
        """
        array = np.asarray(value)
        if array.dtype == self.dtype and array.shape == self.shape:
            return array
        self._leaves.check(array)
        if self.dtype.kind in "iu" and not np.can_cast(array.dtype, self.dtype):
            narrow = array.astype(self.dtype)
            if not np.array_equal(narrow, array) or not self.space.contains(narrow if narrow.shape else narrow[()]):
                raise ValueError(f"the observation {array.tolist()} of dtype {array.dtype} is not in {self.space}")
        return array


class AgentPlace:
    """Where what one agent sees belongs.

    Args:
        specs: The agents.
        record: The environment's record, of shape ``()``.
        agent: The agent.

    Attributes:
        group: The agents with equal spaces.
        row: Its row among them.
        alive: Its flag, of shape ``()``.
        parts: The arrays that it sees.
        mask: Its action mask; ``None`` where there is no room for one.
        masked: Where masks may come later, whether it has one now; else ``None``.
    """

    def __init__(self, specs: AgentSpecs, record: Array, agent: AgentID) -> None:
        self.group, self.row = group, row = specs.group_of(agent)
        self.alive: Array = record[group.field("alive")][row, ...]
        fields = ((record[group.field(f"observation.{key}")][row, ...], part, group.path(key)) for key, part in group.parts.items())
        self.parts = [Part(*field) for field in fields]
        self.mask: Array | None = record[group.field(MASK)][row] if group.mask else None
        self.masked: Array | None = record[group.field("masked")][row, ...] if group.mask == "later" else None

    @property
    def may_be_masked(self) -> bool:
        """Whether masks in infos are to be looked for, which nobody had after the first reset."""
        return self.group.mask in ("", "later") and isinstance(self.group.action_space, spaces.Discrete)

    def write_mask(self, mask: Any) -> None:
        """Write down an action mask.

        Raises:
            ValueError: If it does not fit the actions.
        """
        if self.mask is None:
            raise ValueError(
                f"an action mask for {self.group.action_space}, where no agent had one after reset(seed=0): give one in each info"
            )
        array = np.asarray(mask)
        if array.shape != self.mask.shape or array.dtype.kind not in "biuf":
            raise ValueError(
                f"the action mask has shape {array.shape} and dtype {array.dtype}; of {self.group.action_space} it is an array of "
                f"{self.mask.size} numbers, not 0 where an action is legal"
            )
        self.mask[...] = array if array.dtype in (np.int8, np.bool_) else array != 0
        if self.masked is not None:
            self.masked[...] = True

    def free(self) -> None:
        """Any action is legal."""
        if self.mask is not None and self.masked is not None:
            self.mask[...] = 1
            self.masked[...] = False
