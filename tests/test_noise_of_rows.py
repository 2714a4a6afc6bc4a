"""Noise for many rows, each of which has a generator of its own."""

from __future__ import annotations

import numpy as np
import pytest

from reactor_rl.plugin import draw_rows, drawn_noise

WIDTH = 3


@pytest.mark.parametrize("kind", ["uniform", "normal", "gumbel", "logistic"])
def test_a_row_draws_as_if_it_was_alone(kind: str) -> None:
    """To the last bit, one step after the other or many at once."""
    among = [np.random.default_rng(row) if row % 3 else None for row in range(17)]
    steps = np.stack([draw_rows(kind, among, (17, WIDTH)) for _ in range(5)], 1)  # type: ignore[arg-type]
    for row in (1, 2, 16):
        alone = drawn_noise(kind, np.random.default_rng(row), (5, WIDTH))  # type: ignore[arg-type]
        assert alone.dtype == (np.float64 if kind == "uniform" else np.float32)
        assert alone.tobytes() == steps[row].tobytes()
    assert len(np.unique(steps[1])) == 5 * WIDTH


@pytest.mark.parametrize(
    ("kind", "below"),
    [
        ("uniform", lambda x: x),
        ("normal", lambda x: 0.5 + 0.5 * np.tanh(0.7978845608 * (x + 0.044715 * x**3))),
        ("gumbel", lambda x: np.exp(-np.exp(-x))),
        ("logistic", lambda x: 1 / (1 + np.exp(-x))),
    ],
)
def test_as_much_of_it_is_below_a_number_as_there_should_be(kind: str, below: object) -> None:
    noise = drawn_noise(kind, np.random.default_rng(0), (100_000,))  # type: ignore[arg-type]
    for point in (0.1, 0.3, 0.7, 0.9) if kind == "uniform" else (-1.5, -0.5, 0.5, 1.5):
        assert (noise < point).mean() == pytest.approx(below(point), abs=0.006)  # type: ignore[operator]


def test_without_noise_there_are_zeros() -> None:
    assert not drawn_noise("none", np.random.default_rng(0), (4, 2)).any()
