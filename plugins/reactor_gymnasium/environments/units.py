"""``UnitBlock``: units of several rows, or with their own rule of ends, stepped in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy.typing as npt

from reactor_gymnasium.environments.rows import marked

__all__ = ["Unit", "UnitBlock"]

Array = npt.NDArray[Any]


class Unit(Protocol):
    """Something that fills several rows at once, or ends by its own rule: a copy with many agents."""

    over: bool
    """Whether its episode is over, or none has begun."""

    def step(self, actions: Any) -> Any:
        """Take a step."""

    def reset(self, **kwargs: Any) -> Any:
        """Begin an episode."""


class UnitBlock:
    """Units that are stepped together, one after the other; one that fails leaves the others their step.

    What a step or a reset brought is handed over before the next unit takes its step, for they may share arrays.

    Args:
        units: The units.
        on_step: Called with a unit's number and what its ``step()`` returned.
        on_reset: Likewise with what its ``reset()`` returned.
        on_end: From a unit whose episode has ended with this step to the arguments of a reset in the same step; ``None`` for no
            reset.

    Attributes:
        active: Whether each unit takes steps.
        failures: Number and exception of what failed in the last step.
        mark: If it is set, the number of the unit that is being stepped is written here, counted from 1, and 0 after the step.
    """

    def __init__(
        self,
        units: Sequence[Any],
        on_step: Callable[[int, Any], None],
        on_reset: Callable[[int, Any], None],
        on_end: Callable[[int], Mapping[str, Any] | None],
    ) -> None:
        self.units, self.on_step, self.on_reset, self.on_end = units, on_step, on_reset, on_end
        self.active = [True] * len(units)
        self.failures: list[tuple[int, Exception]] = []
        self.mark: Array | None = None

    def step(self, actions: Iterable[Any]) -> None:
        """Step each unit that is active, or reset one whose episode is over.

        Args:
            actions: What each unit's ``step()`` is given; no account is taken of those of a unit that takes none.
        """
        self.failures = failures = []
        on_step, units = self.on_step, self.units
        numbers = range(len(units))
        # The caller has counted the actions.
        work = zip(numbers if self.mark is None else marked(numbers, self.mark), actions, units, self.active)  # noqa: B905
        while True:
            number = 0
            try:
                for number, of_unit, unit, active in work:
                    if not active:
                        continue
                    if unit.over:
                        self.on_reset(number, unit.reset())
                        continue
                    on_step(number, unit.step(of_unit))
                    if unit.over:
                        kwargs = self.on_end(number)
                        if kwargs is not None:
                            self.on_reset(number, unit.reset(**kwargs))
                return
            except Exception as error:  # the others still take their step
                failures.append((number, error))
