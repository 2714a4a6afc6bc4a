"""What reports share: tables, and confidence intervals with scipy and without."""

from __future__ import annotations

import math
import sys
import xml.etree.ElementTree as ET
from statistics import NormalDist

import numpy as np
import pytest

from reactor_gymnasium.reporting import Table, histogram, interval_of, intervals_told


@pytest.mark.parametrize(
    ("level", "freedom", "quantile"),
    [(0.95, 4, 2.776445), (0.9, 10, 1.812461), (0.99, 30, 2.749996), (0.95, 1, 12.706205), (0.5, 2, 0.816497)],
)
def test_intervals_of_numbers_are_students(level: float, freedom: int, quantile: float) -> None:
    numbers = np.random.default_rng(freedom).normal(3, 2, freedom + 1)
    half = quantile * np.std(numbers, ddof=1) / math.sqrt(len(numbers))
    assert interval_of(numbers, level) == pytest.approx((numbers.mean() - half, numbers.mean() + half), rel=1e-6)
    assert intervals_told() == "95 % intervals are Student's"


@pytest.mark.parametrize(
    ("successes", "tries", "ends"),
    [(3, 4, (0.300642, 0.954413)), (0, 10, (0.0, 0.277533)), (10, 10, (0.722467, 1.0)), (1, 1, (0.206549, 1.0))],
)
def test_intervals_of_rates_are_wilsons(successes: int, tries: int, ends: tuple[float, float]) -> None:
    assert interval_of(np.arange(tries) < successes) == pytest.approx(ends, abs=1e-6)
    assert intervals_told(rates=True) == "95 % intervals are Student's, and Wilson's of rates"


def test_without_scipy_they_are_normal_ones_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    half = NormalDist().inv_cdf(0.975) * math.sqrt(10 / 3) / 2
    assert interval_of([1, 2, 4, 5]) == pytest.approx((3 - half, 3 + half))
    spread = NormalDist().inv_cdf(0.975) * math.sqrt(0.25 / 4)
    assert interval_of(np.array([True, True, True, False])) == pytest.approx((0.75 - spread, 1.0))
    assert interval_of(np.array([True, False, False, False])) == pytest.approx((0.0, 0.25 + spread))
    assert intervals_told(rates=True) == "95 % intervals are normal ones, for scipy is not installed"


@pytest.mark.parametrize("scipy", [True, False])
def test_what_has_no_interval(scipy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not scipy:
        monkeypatch.setitem(sys.modules, "scipy", None)
    for values in ([], [5.0], [1.0, math.inf], np.zeros(0, np.bool_)):
        assert all(map(math.isnan, interval_of(values)))
    assert interval_of([0.1] * 3) == (0.1, 0.1)  # whose mean is another number
    for level in (0, 1, 95, math.nan):
        with pytest.raises(ValueError, match=f"level must be between 0 and 1, got {level}"):
            interval_of([1.0, 2.0], level)


def test_a_table_is_text_and_html() -> None:
    table = Table("title", ("", "of it"), [("a", "1"), ("longer", "200")], ["note"])
    assert str(table) == "title\n        of it\na       1\nlonger  200\nnote"
    assert str(Table("", *(table.head, table.rows), flush_right=True)) == "        of it\n     a      1\nlonger    200"
    shown = ET.fromstring(table.html("<p>figure</p>"))
    assert shown[0].text == "title\nnote" and "".join(shown[1].itertext()) == "of ita1longer200figure"


def test_a_histogram_counts_what_is_finite() -> None:
    shown = ET.fromstring(histogram(np.array([1.0, 1.0, 3.0, math.inf, math.nan]), "return"))
    titles = [title.text for title in shown.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == ["2 of 1 to 1.667", "0 of 1.667 to 2.333", "1 of 2.333 to 3"]
    assert histogram(np.array([math.nan]), "return") == ""
