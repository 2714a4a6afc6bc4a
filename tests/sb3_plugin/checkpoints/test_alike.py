"""A value in a file is taken where one of its kind is expected, and refused anywhere else."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from reactor_sb3.checkpoints.alike import Each, alike, anything, at_least, is_count, is_number, is_stream
from reactor_sb3.checkpoints.archive import CorruptError

FRESH: dict[str, Any] = {
    "weights": {"a": torch.zeros(2, 3), "b": torch.zeros((), dtype=torch.int64)},
    "rate": 0.1, "name": "x", "on": True, "nothing": None, "pair": (0, [1.0]), "array": np.zeros(3, np.uint8),
    "returns": Each({"r": is_number}), "count": is_count, "below": at_least(-1), "more": anything,
}  # fmt: skip
SAVED: dict[str, Any] = {
    "weights": {"a": torch.ones(2, 3), "b": torch.ones((), dtype=torch.int64)},
    "rate": 3, "name": "another", "on": False, "nothing": None, "pair": (5, [2]), "array": np.ones(3, np.uint8),
    "returns": [{"r": 1.0}, {"r": -2}], "count": 7, "below": -1, "more": object(),
}  # fmt: skip


def test_numbers_and_names_may_differ() -> None:
    alike(SAVED, FRESH, "the state")


WRONG: list[tuple[str, Any, str]] = [
    ("weights", {"a": torch.ones(2, 3)}, "weights"),
    ("weights", {**SAVED["weights"], "a": torch.ones(3, 2)}, r"weights\.a"),
    ("weights", {**SAVED["weights"], "a": torch.ones(2, 3, dtype=torch.float64)}, r"weights\.a"),
    ("weights", {**SAVED["weights"], "a": np.ones((2, 3), np.float32)}, r"weights\.a"),
    ("rate", math.nan, "rate"),
    ("rate", "0.1", "rate"),
    ("name", 1, "name"),
    ("on", 1, "on"),
    ("nothing", 0, "nothing"),
    ("pair", [0, [1.0]], "pair"),
    ("pair", (0, [1.0, 2.0]), "pair"),
    ("pair", (True, [1.0]), "pair"),
    ("array", np.zeros(3, np.int8), "array"),
    ("array", [0, 0, 0], "array"),
    ("returns", ({"r": 1.0},), "returns"),
    ("returns", [{"r": 1.0}, {"r": math.inf}], r"returns\.1\.r"),
    ("returns", [{"r": 1.0, "l": 1}], r"returns\.0"),
    ("count", -1, "count"),
    ("count", 2**62, "count"),
    ("count", True, "count"),
    ("below", -2, "below"),
]


@pytest.mark.parametrize(("name", "value", "what"), WRONG)
def test_anything_else_is_refused_and_named(name: str, value: Any, what: str) -> None:
    with pytest.raises(CorruptError, match=rf"^the state\.{what} cannot have been saved$"):
        alike({**SAVED, name: value}, FRESH, "the state")


def test_keys_are_the_same() -> None:
    for saved in ({**SAVED, "extra": 1}, {key: value for key, value in SAVED.items() if key != "rate"}, list(SAVED)):
        with pytest.raises(CorruptError, match=r"^the state cannot"):
            alike(saved, FRESH, "the state")


def test_the_state_of_a_random_stream() -> None:
    state = dict(np.random.PCG64(5).state)
    assert is_stream(state)
    with pytest.raises(CorruptError, match="a random stream"):
        is_stream({**state, "uinteger": 1.5})
    with pytest.raises(ValueError, match="PCG64"):
        is_stream({**state, "bit_generator": "MT19937"})
