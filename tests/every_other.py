"""Fewer combinations of a test's parameters, for tests that take their time."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from itertools import product
from typing import Any, TypeVar

import pytest

Test = TypeVar("Test", bound=Callable[..., Any])


def every_other(kept: int | None = None, **parameters: Iterable[Any]) -> pytest.MarkDecorator:
    """Combinations whose places add up to an even number, as on a chessboard: each value still meets each one of another parameter.

    That is so for three parameters or more of two values and more; of two parameters, each value meets half of the other's.

    Args:
        kept: How many of them are in the default set, spread over all; the others are ``slow``. By default all are.
        **parameters: The parameters' values.
    """
    numbered = [list(enumerate(values)) for values in parameters.values()]
    chosen = [cell for cell in product(*numbered) if sum(number for number, _ in cell) % 2 == 0]
    cases: list[Any] = [tuple(value for _, value in cell) for cell in chosen]
    if kept is not None:
        default = {len(cases) * number // kept for number in range(kept)}
        cases = [case if number in default else pytest.param(*case, marks=pytest.mark.slow) for number, case in enumerate(cases)]
    return pytest.mark.parametrize(",".join(parameters), cases)


def in_turn(names: str, values: Iterable[Any], kept: int = 2, **how: Any) -> Callable[[Test], Test]:
    """Parametrizes a test, which takes ``kept`` of the values in the default set; all others are ``slow``.

    Which ones depends on the test's name, so that of many tests each value is kept by some.

    Args:
        names: As for ``pytest.mark.parametrize``.
        values: Likewise.
        kept: How many are not ``slow``.
        **how: As for ``pytest.mark.parametrize``.
    """
    every = list(values)

    def decorate(test: Test) -> Test:
        first = zlib.crc32(test.__name__.encode())
        chosen = {(first + number) % len(every) for number in range(kept)}
        cases = [one if number in chosen else _slow(one) for number, one in enumerate(every)]
        decorated: Test = pytest.mark.parametrize(names, cases, **how)(test)
        return decorated

    def _slow(one: Any) -> Any:
        return pytest.param(*(one if "," in names else (one,)), marks=pytest.mark.slow)

    return decorate
