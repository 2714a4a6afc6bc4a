"""A value in a file is taken where one of its kind is expected, and refused elsewhere, saying what it must be and what it is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from reactor_sb3.checkpoints.archive import CorruptError
from reactor_sb3.checkpoints.templates import ANYTHING, COUNT, NUMBER, Each, check, like, stream, whole

FRESH: dict[str, Any] = {
    **like({
        "weights": {"a": torch.zeros(2, 3), "b": torch.zeros((), dtype=torch.int64)},
        "rate": 0.1, "name": "x", "on": True, "nothing": None, "pair": (0, [1.0]), "array": np.zeros(3, np.uint8), "most": math.inf,
    }),
    "returns": Each({"r": NUMBER}), "count": COUNT, "below": whole(-1), "thread": whole(1, 4), "more": ANYTHING,
}  # fmt: skip
SAVED: dict[str, Any] = {
    "weights": {"a": torch.ones(2, 3), "b": torch.ones((), dtype=torch.int64)},
    "rate": 3, "name": "another", "on": False, "nothing": None, "pair": (5, [2]), "array": np.ones(3, np.uint8), "most": math.inf,
    "returns": [{"r": 1.0}, {"r": -2}], "count": 7, "below": -1, "thread": 3, "more": object(),
}  # fmt: skip


def test_numbers_and_names_may_differ() -> None:
    check(SAVED, FRESH, "state")


A = "must be a float32 tensor of shape (2, 3), got"
WRONG: list[tuple[str, Any, str]] = [
    ("weights", {"a": torch.ones(2, 3)}, "weights must be a dict of a, b, got a dict of a"),
    ("weights", {**SAVED["weights"], "a": torch.ones(3, 2)}, f"weights.a {A} a float32 tensor of shape (3, 2)"),
    (
        "weights",
        {**SAVED["weights"], "a": torch.ones(2, 3, dtype=torch.float64)},
        f"weights.a {A} a float64 tensor of shape (2, 3)",
    ),
    ("weights", {**SAVED["weights"], "a": np.ones((2, 3), np.float32)}, f"weights.a {A} a float32 array of shape (2, 3)"),
    ("rate", math.nan, "rate must be a number, got nan"),
    ("rate", math.inf, "rate must be a number, got inf"),
    ("rate", "0.1", "rate must be a number, got '0.1'"),
    ("name", 1, "name must be a str, got 1"),
    ("on", 1, "on must be a bool, got 1"),
    ("nothing", 0, "nothing must be None, got 0"),
    ("pair", [0, [1.0]], "pair must be a tuple of 2 values, got [0, [1.0]]"),
    ("pair", (0, [1.0, 2.0]), "pair.1 must be a list of 1 values, got [1.0, 2.0]"),
    ("pair", (True, [1.0]), "pair.0 must be an int, got True"),
    ("array", np.zeros(3, np.int8), "array must be a uint8 array of shape (3,), got an int8 array of shape (3,)"),
    ("array", [0, 0, 0], "array must be a uint8 array of shape (3,), got [0, 0, 0]"),
    ("returns", ({"r": 1.0},), "returns must be a list, got ({'r': 1.0},)"),
    ("returns", [{"r": 1.0}, {"r": math.inf}], "returns.1.r must be a finite number, got inf"),
    ("returns", [{"r": 1.0, "l": 1}], "returns.0 must be a dict of r, got a dict of r, l"),
    ("count", -1, "count must be a whole number from 0 on, got -1"),
    ("count", 2**62, "count must be a whole number from 0 on, got 4611686018427387904"),
    ("count", True, "count must be a whole number from 0 on, got True"),
    ("below", -2, "below must be a whole number from -1 on, got -2"),
    ("thread", 4, "thread must be a whole number from 1 to 3, got 4"),
]


@pytest.mark.parametrize(("name", "value", "said"), WRONG)
def test_anything_else_is_refused_and_named(name: str, value: Any, said: str) -> None:
    with pytest.raises(CorruptError) as refused:
        check({**SAVED, name: value}, FRESH, "state")
    assert str(refused.value) == f"state.{said}"


def test_keys_are_the_same() -> None:
    for saved in ({**SAVED, "extra": 1}, {key: value for key, value in SAVED.items() if key != "rate"}, list(SAVED)):
        with pytest.raises(CorruptError, match=r"^state must be a dict of weights, rate, .*, more, got "):
            check(saved, FRESH, "state")


def test_the_state_of_a_random_stream() -> None:
    state = dict(np.random.PCG64(5).state)
    check(state, stream, "state.streams.replay")
    with pytest.raises(CorruptError, match=r"^state\.streams\.replay\.uinteger must be an int, got 1\.5$"):
        check({**state, "uinteger": 1.5}, stream, "state.streams.replay")
    for wrong in ({**state, "bit_generator": "MT19937"}, {**state, "state": {**state["state"], "inc": -1}}):
        with pytest.raises(CorruptError, match=r"^state\.streams\.replay must be the state of a PCG64, got "):
            check(wrong, stream, "state.streams.replay")
