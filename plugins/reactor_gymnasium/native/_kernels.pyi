"""Gymnasium's own environments, many rows in one call."""

from typing import Any

import numpy.typing as npt

ACROBOT_WORK: int

def random(capsules: list[Any], moving: npt.NDArray[Any], out: npt.NDArray[Any], /) -> None: ...

class Batch:
    def __new__(
        cls,
        name: str,
        mode: int,
        arrays: tuple[npt.NDArray[Any] | None, ...],
        generators: list[Any],
        bounds: tuple[float, ...],
        constants: tuple[float, ...],
        numbers: tuple[int, ...],
        loops: tuple[tuple[int, int], ...],
        own: tuple[Any, ...] | None,
        /,
    ) -> Batch: ...
    def step(
        self,
        actions: npt.NDArray[Any],
        wide: bool,
        observations: npt.NDArray[Any] | None,
        next_observations: npt.NDArray[Any] | None,
        /,
    ) -> int: ...
    def reset(self, mask: npt.NDArray[Any], /) -> None: ...
    def set_generator(self, row: int, capsule: Any, /) -> None: ...

class Watch:
    def __new__(
        cls,
        values: tuple[tuple[dict[str, Any], str, Any], ...],
        copies: tuple[tuple[dict[str, Any], str, Any], ...],
        sizes: tuple[tuple[dict[str, Any], int], ...],
        functions: tuple[tuple[Any, Any, Any, Any], ...],
        classes: tuple[tuple[type, tuple[type, ...]], ...],
        parts: tuple[int, int, int],
        /,
    ) -> Watch: ...
    def same(self, objects: list[Any], kind: type, /) -> bool: ...
