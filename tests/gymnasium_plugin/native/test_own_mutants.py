"""Fifteen mistakes in the kernel of a grid world: ``check_kernel`` finds those that change a bit."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from reactor_gymnasium import register_kernel
from reactor_gymnasium.native.compiled import missing
from reactor_gymnasium.testing import check_kernel
from tests.gymnasium_plugin.native.own_kernels import imported

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

ANY_DISTANCE = 'np.abs(r.x - r.y, out=r.infos["distance"])', "pass"
FOUND = {
    "another chance": ([("< 0.1", "<= 0.11")], "(observations|rewards|terminated|infos)"),
    "another reward": ([("-0.01)", "-0.02)")], "rewards of row"),
    "goes on without fuel": ([("r.fuel == 0", "r.fuel < 0")], "(terminated|observations)"),
    "is not refuelled": ([("self.rows.fuel[row] = FUEL", "pass")], "observations of row"),
    "draws where rows are reset": (
        [("r.random()", "np.array([rng.random() for rng in r.rngs])")],
        "autoreset NextStep.*observations",
    ),
    "a state is left out": ([(', "fuel": int}', "}")], "GridEnv writes self.fuel, which is not in FastGrid.state"),
    "no infos": ([('infos = {"distance": int}', "infos = {}"), ANY_DISTANCE], "infos: .*distance"),
    "another type of an info": ([('"distance": int', '"distance": float')], "infos: .*distance"),
    "another info": ([("np.abs(r.x - r.y,", "np.abs(r.y - r.y,")], "infos: .*distance"),
    "a constant is left out": ([('("size",)', "()")], "GridEnv reads self.size, which is neither in FastGrid.state nor in its"),
    "another range of a draw": ([("rng.integers(0, self.most + 1, 2)", "rng.integers(0, self.most, 2)")], "observations of row"),
    "another condition": ([("r.x == self.most) &", "r.x >= self.most) |")], "(rewards|terminated) of row"),
    "another type of a state": ([('"x": int', '"x": np.int64')], "cannot be used: its x is"),
}
EQUAL = {
    "fuel in fortieths": [("r.fuel / FUEL", "r.fuel * (1 / FUEL)")],
    "two draws for a draw of two": [
        ("rng.integers(0, self.most + 1, 2)", "(rng.integers(0, self.most + 1), rng.integers(0, self.most + 1))")
    ],
}


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    with imported(tmp_path_factory.mktemp("mutants"), "grid") as module:
        yield module


def plant(grid: Any, edits: list[tuple[str, str]]) -> None:
    text = inspect.getsource(grid.FastGrid)
    for old, new in edits:
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in the kernel"
        text = text.replace(old, new)
    names = dict(vars(grid))
    exec(text, names)
    register_kernel(grid.GridEnv, names["FastGrid"])


@pytest.mark.parametrize("mistake", FOUND)
def test_a_mistake_is_found(mistake: str, grid: Any) -> None:
    edits, words = FOUND[mistake]
    plant(grid, edits)
    with pytest.raises(AssertionError, match=words):
        check_kernel(lambda: grid.GridEnv(size=6), steps=1, seeds=1, rows=(1, 4))


@pytest.mark.slow
@pytest.mark.parametrize("change", EQUAL)
def test_what_changes_no_bit_is_no_mistake(change: str, grid: Any) -> None:
    """A product has the bits of the quotient in float32, for any amount of fuel; numpy draws two numbers one after the other."""
    fuel = np.arange(grid.FUEL + 1)
    assert ((fuel / grid.FUEL).astype(np.float32) == (fuel * (1 / grid.FUEL)).astype(np.float32)).all()
    one, other = np.random.default_rng(0), np.random.default_rng(0)
    assert all(one.integers(0, 6, 2).tolist() == [other.integers(0, 6), other.integers(0, 6)] for _ in range(100))
    plant(grid, EQUAL[change])
    check_kernel(lambda: grid.GridEnv(size=6), steps=1, seeds=1, rows=(2,))


def test_all_are_planted() -> None:
    assert len(FOUND) + len(EQUAL) == 15
