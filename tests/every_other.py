"""Half of the combinations of a test's parameters, for tests that take their time."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest


def every_other(**parameters: Iterable[Any]) -> pytest.MarkDecorator:
    """Combinations whose places add up to an even number, as on a chessboard: each value still meets each one of another parameter.

    That is so for three parameters or more of two values and more; of two parameters, each value meets half of the other's.
    """
    numbered = [list(enumerate(values)) for values in parameters.values()]
    chosen = [cell for cell in product(*numbered) if sum(number for number, _ in cell) % 2 == 0]
    return pytest.mark.parametrize(",".join(parameters), [tuple(value for _, value in cell) for cell in chosen])
