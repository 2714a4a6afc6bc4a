"""Infos of any kind, drawn by hypothesis: numbers, arrays, strings, nested dicts, keys that come and go."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import hypothesis.strategies as st
import numpy as np


def arrays(*makers: Any) -> st.SearchStrategy[Any]:
    return st.integers(0, 200).flatmap(lambda fill: st.sampled_from(makers).map(lambda make: make(fill)))


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-3, 300),
    "long": st.sampled_from([2**63 - 1, -(2**63), 2**63, 2**70]),
    "float": st.sampled_from([0.0, -0.0, 1.5, -2.25, float("nan"), float("inf"), 1e300]),
    "bool": st.booleans(),
    "f8": st.sampled_from([1.25, float("nan")]).map(np.float64),
    "f4": st.sampled_from([0.1, float("inf")]).map(np.float32),
    "i8": st.integers(-5, 5).map(np.int64),
    "u1": st.integers(0, 255).map(np.uint8),
    "c16": st.just(np.complex128(1 + 2j)),
    "flag": st.booleans().map(np.bool_),
    "longdouble": st.just(np.longdouble(1) / 3),
    "duration": st.just(np.timedelta64(3, "s")),
    "str": st.sampled_from(["", "a", "long " * 9]),
    "none": st.none(),
    "list": st.just([1, [2]]),
    "array0": arrays(np.array),
    "array1": arrays(lambda fill: np.array([fill])),
    "array3": arrays(lambda fill: np.full(3, fill / 8)),
    "view": arrays(lambda fill: (np.arange(6.0) + fill)[::2], lambda fill: np.full((3, 2), fill, order="F").T),
    "empty": arrays(lambda fill: np.zeros((2, 0), np.int16)),
    "image": arrays(lambda fill: np.full((2, 3), fill, np.uint8)),
    "big endian": arrays(lambda fill: np.full(2, fill, ">i4")),
    "words": arrays(lambda fill: np.array([f"w{fill}", "x"])),
    "objects": arrays(lambda fill: np.array([fill, None])),
    "masked": arrays(lambda fill: np.ma.masked_array([fill, 1], [False, True])),
    "ordered": st.integers(0, 9).map(lambda number: OrderedDict(a=number, b="x")),
}
KEYS = ["a", "b", "c", "longer", "_a", "final_obs", "final_info", ""]

kinds = st.recursive(
    st.sampled_from(sorted(VALUES)), lambda inner: st.dictionaries(st.sampled_from(KEYS), inner, max_size=3), max_leaves=4
)
schemas = st.dictionaries(st.sampled_from(KEYS[:5]), kinds, max_size=4) | st.dictionaries(
    st.sampled_from([*KEYS, 1, "1", None]), kinds, max_size=3
)


def drawn(data: st.DataObject, kind: Any) -> Any:
    if isinstance(kind, dict):
        return {key: drawn(data, inner) for key, inner in kind.items()}
    return data.draw(VALUES[kind])


def an_info(data: st.DataObject, schema: Any, other: Any) -> Any:
    """Mostly like all others; sometimes with less, with more, with other values or with everything different."""
    how = data.draw(st.integers(0, 9))
    if how == 0:
        return None
    if how == 1:
        return drawn(data, other)
    if how == 2:
        return drawn(data, {**schema, **other})
    if how == 3:
        return drawn(data, dict(list(schema.items())[1:]))
    if how == 4:
        return drawn(data, dict(reversed(schema.items())))
    return drawn(data, schema)
