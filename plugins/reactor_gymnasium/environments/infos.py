"""Infos as columns: they cost per key, not per environment and key, where environments agree on keys and on kinds of values.

A *group* is rows whose infos have the same keys, with a column for each key. :func:`info_columns` makes groups of infos by row, and
kernels have them from the start. :func:`merge_infos` makes of those of all shards exactly what ``VectorEnv._add_info`` makes of the
infos one by one, and calls it wherever columns do not fit together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import accumulate, chain, islice
from math import prod
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import VectorEnv

from reactor_rl.plugin import dumps, loads

__all__ = [
    "Group",
    "by_row",
    "decode_infos",
    "encode_infos",
    "info_adder",
    "info_columns",
    "merged_at_once",
    "merge_infos",
    "note_whose_info",
]

Array = npt.NDArray[Any]

Rows = range | list[int]
"""Rows in ascending order; a range if they are all between."""

Column = tuple[Any, ...]
"""The values of one key: a word for their form, and what has them.

``python``, ``numpy``: an array of what are Python's or numpy's numbers. ``mixed``: an array of floats, and which of them are ints.
``array``: the arrays as one. ``dict``: groups. ``numbers``: a sequence of numbers of several types. ``object``: of what Gymnasium
makes an array of objects of. ``any``: of anything. Nobody else has the arrays.
"""

Group = tuple[Rows, dict[str, Column] | list[Any]]
"""Rows, and by key the column of their infos; or the infos, if they cannot be taken apart."""

InfoColumns = tuple[dict[int, tuple[Any, Any]], list[Group]]
"""The infos of a shard, with the rows of the batch: the last observation and the last info of each episode that ``SAME_STEP`` mode
has ended within the step, and the infos of the step.
"""

_NUMBERS: dict[type, str] = {int: "python", float: "python", bool: "python"} | dict.fromkeys(
    (
        np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64,
        np.float16, np.float32, np.float64, np.complex64, np.complex128,
    ),
    "numpy",
)  # fmt: skip
"""The types that Gymnasium makes arrays of, and the form of a column of one of them."""

_LISTS = {"dict", "object", "numbers", "any"}
_INT = np.dtype(int)

_OBJECTS = {str, bytes, type(None), np.bool_}
"""Types that Gymnasium makes arrays of objects of."""


# ---------------------------------------------------------------------- infos by row -> groups


def info_columns(first: int, finals: dict[int, tuple[Any, Any]], infos: Any) -> InfoColumns:
    """The infos of a shard as columns.

    Args:
        first: The shard's first row in its batch.
        finals: By row of the shard the last observation and the last info of episodes that have ended; in order of rows.
        infos: By row those infos that there are, likewise; or its groups, as a kernel has them.
    """
    if first and finals:
        finals = {first + row: of_row for row, of_row in finals.items()}
    if not infos:
        return finals, []
    if type(infos) is list:
        return finals, [(_moved(rows, first), columns) for rows, columns in infos] if first else infos
    rows, of_rows = _moved([*infos], first), [*infos.values()]
    return finals, _grouped(rows, of_rows) or [(rows, of_rows)]


def _moved(rows: Rows, first: int) -> Rows:
    if rows[-1] - rows[0] + 1 == len(rows):
        return range(first + rows[0], first + rows[-1] + 1)
    return [first + row for row in rows] if first else rows


def _grouped(rows: Rows, infos: Sequence[Any]) -> list[Group] | None:
    """Infos by what keys they have, in order of appearance; ``None`` if one of them, or a key, is of a kind that is not usual."""
    if set(map(type, infos)) != {dict}:
        return None
    if (columns := _alike(rows, infos)) is not None:
        return [(rows, columns)]
    if set(map(type, chain.from_iterable(infos))) - {str}:
        return None
    places: dict[tuple[str, ...], list[int]] = {}
    for place, info in enumerate(infos):
        places.setdefault(tuple(info), []).append(place)
    groups: list[Group] = []
    for some in places.values():
        groups += _grouped(_moved([rows[place] for place in some], 0), [infos[place] for place in some]) or []
    return groups


def _alike(rows: Rows, infos: Sequence[dict[Any, Any]]) -> dict[str, Column] | None:
    """The columns of infos that have the same keys in the same order; ``None`` if they have not, or a key is no string."""
    keys = [*infos[0]]
    # One after the other tells, since no info has a key twice.
    if [*chain.from_iterable(infos)] != keys * len(infos) or [*map(type, keys)].count(str) < len(keys):
        return None
    columns = zip(keys, zip(*map(dict.values, infos)))  # noqa: B905, which takes time
    return {key: _column(key, rows, values) for key, values in columns}


def _column(key: str, rows: Rows, values: Sequence[Any]) -> Column:
    if key == "final_obs":  # of which Gymnasium makes an array of objects, whatever they are
        return "object", values
    kind, kinds = type(values[0]), [*map(type, values)]
    if kinds.count(kind) == len(values):
        try:
            if form := _NUMBERS.get(kind):
                return form, np.fromiter(values, kind, len(values))
            if kind is np.ndarray:
                return _array_column(values)
            if kind is dict and (groups := _grouped(rows, values)):
                return "dict", groups
        except OverflowError:  # Gymnasium raises it too, or does not if an environment before this shard has another kind of value
            pass
    return ("object" if _OBJECTS.issuperset(kinds) else "numbers" if _NUMBERS.keys() >= {*kinds} else "any"), values


def _array_column(values: Sequence[Any]) -> Column:
    dtype, shape = values[0].dtype, values[0].shape
    if dtype.kind not in "biufc" or dtype.metadata:
        return "any", values
    for value in values:
        if value.dtype != dtype or value.shape != shape:
            return "any", values
    try:
        # By their buffers, in one call. No bytes: whoever gets the array may write into it.
        data = bytearray().join(values)
    except (BufferError, TypeError, ValueError):  # some are views that are not contiguous
        data = bytearray().join([value.tobytes() for value in values])
    return "array", np.ndarray((len(values), *shape), dtype, data)


# ---------------------------------------------------------------------- between processes


def encode_infos(part: InfoColumns) -> Any:
    """Make of a part what is pickled cheaply: an outline that most steps have in common, the bytes of arrays, and the rest."""
    finals, groups = part
    arrays: list[Array] = []
    rest: list[Any] = []
    outline = _outlined(groups, arrays, rest)
    header = _header(outline, tuple([(array.dtype, array.shape) for array in arrays]))
    return header, bytearray().join([array.tobytes() for array in arrays]), finals, rest


def _outlined(groups: list[Group], arrays: list[Array], rest: list[Any]) -> tuple[Any, ...]:
    """Rows, and of each key its form and how many arrays it has; what is not the same in each step goes to the rest."""
    outline: list[Any] = []
    for rows, columns in groups:
        where = rows if type(rows) is range else None
        if where is None:
            rest.append(rows)
        if type(columns) is list:
            outline.append((where, None))
            rest.append(columns)
            continue
        kinds: list[Any] = []
        for key, column in columns.items():  # type: ignore[union-attr]
            form = column[0]
            if form == "dict":
                kinds.append((key, form, _outlined(column[1], arrays, rest)))
            elif form in _LISTS:
                kinds.append((key, form, 0))
                rest.append(column[1])
            else:
                kinds.append((key, form, len(column) - 1))
                arrays += column[1:]
        outline.append((where, tuple(kinds)))
    return tuple(outline)


@lru_cache(maxsize=256)
def _header(outline: Any, kinds: Any) -> bytes:
    return dumps((outline, kinds))


@lru_cache(maxsize=256)
def _headed(header: bytes) -> Any:
    """The outline, and of each array its shape and dtype, and where it begins."""
    outline, kinds = loads(header)
    ends = accumulate([dtype.itemsize * prod(shape) for dtype, shape in kinds], initial=0)
    return outline, [(shape, dtype, begin) for (dtype, shape), begin in zip(kinds, ends, strict=False)]


def decode_infos(coded: Any) -> InfoColumns:
    """Return the infos that :func:`encode_infos` was given."""
    header, data, finals, rest = coded
    outline, places = _headed(header)
    arrays = [np.ndarray(shape, dtype, data, begin) for shape, dtype, begin in places]
    return finals, _filled(outline, iter(arrays), iter(rest))


def _filled(outline: Sequence[Any], arrays: Iterator[Array], rest: Iterator[Any]) -> list[Group]:
    groups: list[Group] = []
    for rows, kinds in outline:
        where = next(rest) if rows is None else rows
        if kinds is None:
            groups.append((where, next(rest)))
            continue
        columns: dict[str, Column] = {}
        for key, form, kind in kinds:
            if kind == 1:
                columns[key] = form, next(arrays)
            elif kind == 0:
                columns[key] = form, next(rest)
            else:
                columns[key] = (form, *islice(arrays, kind)) if form == "mixed" else (form, _filled(kind, arrays, rest))
        groups.append((where, columns))
    return groups


# ---------------------------------------------------------------------- groups -> infos


def by_row(groups: Iterable[Group]) -> dict[int, Any]:
    """The infos as environments give them, by row."""
    found: dict[int, Any] = {}
    for rows, columns in groups:
        if type(columns) is list:
            found.update(zip(rows, columns, strict=True))
            continue
        infos: list[dict[str, Any]] = [{} for _ in rows]
        for key, column in columns.items():  # type: ignore[union-attr]
            for info, value in zip(infos, _values(column), strict=True):
                info[key] = value
        found.update(zip(rows, infos, strict=True))
    return found


def _values(column: Column) -> Sequence[Any]:
    """The values of a column, of the very types that they had."""
    form, values = column[:2]
    if form == "python":
        return values.tolist()  # type: ignore[no-any-return]
    if form == "numpy":
        return list(values)
    if form == "mixed":
        return [int(value) if is_int else value for value, is_int in zip(values.tolist(), column[2].tolist(), strict=True)]
    if form == "array":
        return [values[row, ...].copy() for row in range(len(values))]
    return [info for _, info in sorted(by_row(values).items(), key=_first)] if form == "dict" else values


_first = itemgetter(0)


@cache
def info_adder(rows: int) -> VectorEnv[Any, Any, Any]:
    """A vector environment for Gymnasium's ``_add_info``, which only needs to know how many environments there are."""
    envs: VectorEnv[Any, Any, Any] = VectorEnv()
    envs.num_envs = rows
    return envs


def merged_at_once(finals: dict[int, tuple[Any, Any]], infos: Any, n: int) -> dict[str, Any] | None:
    """:func:`merge_infos` for a shard that has all rows, where they have the same keys for numbers or arrays; else ``None``.

    Args:
        finals: As for :func:`info_columns`.
        infos: Likewise.
        n: How many rows there are.
    """
    columns: Any = {}
    if type(infos) is list:
        if infos:
            rows, columns = infos[0]
            if len(rows) < n or type(columns) is list:
                return None
    else:
        of_rows = [*infos.values()]
        if finals or len(of_rows) < n or [*map(type, of_rows)].count(dict) < n:
            return None
        columns = _alike(range(n), of_rows)
        if columns is None:
            return None
    merged: dict[str, Any] = {}
    everybody = _everybody(n)
    for key, column in columns.items():
        form, value = column[0], column[1]
        if form in _LISTS:
            if form != "numbers":
                return None
            try:
                value = np.array(value, type(value[0]))
            except Exception:  # of several mistakes, merge_infos() raises the one that Gymnasium comes upon first
                return None
        elif form == "mixed" and column[2][0]:
            if not _fits(value, _INT):
                return None
            value = value.astype(_INT)
        merged[key] = value
        merged[f"_{key}"] = everybody.copy()
    if len(merged) < 2 * len(columns):  # a key is another one's mask
        return None
    return _with_finals(merged, infos, finals, info_adder(n)) if finals else merged


def merge_infos(parts: Iterable[InfoColumns], envs: VectorEnv[Any, Any, Any]) -> dict[str, Any]:
    """The vector environment's infos, of which nothing is shared with anybody.

    Args:
        parts: The columns of the shards, in their order. Their arrays may become the result's.
        envs: The vector environment whose ``num_envs`` and ``_add_info`` count.

    Raises:
        Exception: What ``_add_info`` raises.
    """
    finals: dict[int, tuple[Any, Any]] = {}
    groups: list[Group] = []
    for of_part, of_step in parts:
        finals |= of_part
        groups += of_step
    try:
        merged = _put_together(groups, envs)
        if merged is not None and finals:
            merged = _with_finals(merged, groups, finals, envs)
    except Exception:  # of several mistakes, the one that Gymnasium comes upon first is raised below
        merged = None
    if merged is not None:
        return merged
    ended = [(row, {"final_obs": last, "final_info": info}) for row, (last, info) in finals.items()]
    added: dict[str, Any] = {}
    for row, info in sorted([*ended, *by_row(groups).items()], key=_first):
        added = envs._add_info(added, info, row)
    return added


def _put_together(groups: list[Group], envs: VectorEnv[Any, Any, Any]) -> dict[str, Any] | None:
    merged = merged_at_once({}, _as_one(groups) if len(groups) > 1 else groups, envs.num_envs)
    return _merged(groups, envs) if merged is None else merged


def _with_finals(
    merged: dict[str, Any], groups: list[Group], finals: dict[int, tuple[Any, Any]], envs: VectorEnv[Any, Any, Any]
) -> dict[str, Any] | None:
    """The infos of a step, and what is told of the episodes that it has ended; ``None`` if a key may have two values in a row."""
    mask, observations = np.zeros(envs.num_envs, np.bool_), np.empty(envs.num_envs, object)
    for row, (last, _) in finals.items():
        mask[row], observations[row] = True, last
    infos = {row: info for row, (_, info) in finals.items() if info}
    told = merge_infos([info_columns(0, {}, infos)], envs) if infos else {}
    ended = {"final_obs": observations, "_final_obs": mask, "final_info": told, "_final_info": mask.copy()}
    if not groups:
        return ended
    if not ended.keys().isdisjoint(merged):
        return None
    first = min(finals)  # keys are in the order in which environments have them
    if first and sum([rows[0] for rows, _ in groups]) == 0:
        return merged | ended
    before = {name for rows, columns in groups if rows[0] < first for key in columns for name in (key, f"_{key}")}
    return {name: value for name, value in merged.items() if name in before} | ended | merged


def _as_one(groups: list[Group]) -> list[Group]:
    """Groups as one, if they follow each other and have the same keys for numbers or arrays of the same kinds; else as they are."""
    end, first = 0, groups[0][1]
    for rows, columns in groups:
        if type(rows) is not range or rows.start != end or type(columns) is not dict or columns.keys() ^ first:
            return groups
        end = rows.stop
    every: list[Any] = [columns for _, columns in groups]
    joined: dict[str, Column] = {}
    for key, column in every[0].items():
        if column[0] in _LISTS:
            return groups
        try:
            joined[key] = column[0], np.concatenate([columns[key][1] for columns in every], casting="no"), *column[2:]
        except (TypeError, ValueError):  # some are of another kind
            return groups
    return [(range(end), joined)]


@cache
def _everybody(rows: int) -> npt.NDArray[np.bool_]:
    return np.ones(rows, np.bool_)


def _merged(groups: list[Group], envs: VectorEnv[Any, Any, Any]) -> dict[str, Any] | None:
    """Key by key what Gymnasium would make environment by environment; ``None`` where keys are not independent of each other."""
    by_key: dict[str, list[tuple[Rows, Column]]] = {}
    for rows, columns in sorted(
        groups, key=lambda group: group[0][0]
    ):  # so keys come in the order in which environments have them first
        if type(columns) is not dict:
            return None
        for key, column in columns.items():
            by_key.setdefault(key, []).append((rows, column))
    merged: dict[str, Any] = {}
    for key, of_key in by_key.items():
        if f"_{key}" in by_key:  # a key that is another one's mask
            return None
        value = _value(key, of_key, envs)
        if value is None:
            alone: dict[str, Any] = {}
            for row, one in zip(*_in_order(of_key), strict=True):
                alone = envs._add_info(alone, {key: one}, row)
            merged |= alone
            continue
        merged[key] = value
        mask = merged[f"_{key}"] = np.zeros(envs.num_envs, np.bool_)
        for rows, _ in of_key:
            mask[_index(rows)] = True
    return merged


def _value(key: str, of_key: list[tuple[Rows, Column]], envs: VectorEnv[Any, Any, Any]) -> Any:
    """All values of a key; ``None`` for some dicts, which are to be added one by one."""
    n, (form, first, *ints) = envs.num_envs, of_key[0][1]
    if len(of_key) > 1 and (forms := {column[0] for _, column in of_key}) != {form}:
        form = "any" if forms & _LISTS else "array"
    if form == "dict":
        return _put_together([group for _, (_, groups) in of_key for group in groups], envs)
    if form not in _LISTS:
        dtype = _INT if ints and ints[0][0] else first.dtype
        value = np.zeros((n, *first.shape[1:]), dtype)
        for rows, (_, values, *_) in of_key:
            if values.shape[1:] != first.shape[1:] or not _fits(values, dtype):
                break
            value[_index(rows)] = values
        else:
            return value
    # Assigned one by one to what the first value makes Gymnasium begin with.
    order, values = _in_order(of_key)
    if form == "object":
        value = np.empty(n, object)
    elif (kinds := set(map(type, values))) <= _NUMBERS.keys():
        value = np.zeros(n, type(values[0]))
    elif any(issubclass(kind, dict) for kind in kinds) and key != "final_obs":
        return None
    else:
        value = envs._add_info({}, {key: values[0]}, order[0])[key]
    for row, one in zip(order, values, strict=True):
        value[row] = one
    return value


def _in_order(of_key: list[tuple[Rows, Column]]) -> tuple[Sequence[int], Sequence[Any]]:
    """The rows that have a key, and their values."""
    if len(of_key) == 1:
        return of_key[0][0], _values(of_key[0][1])
    items = [item for rows, column in of_key for item in zip(rows, _values(column), strict=True)]
    rows, values = zip(*sorted(items, key=_first), strict=True)
    return rows, values


def _fits(values: Array, dtype: np.dtype[Any]) -> bool:
    """Whether numbers become the same when an array of them is assigned, and one by one."""
    if np.can_cast(values.dtype, dtype):
        return True
    return values.dtype == np.float64 and dtype == _INT and bool((np.abs(values) < 2.0**63).all())


def _index(rows: Rows) -> Any:
    return slice(rows.start, rows.stop) if type(rows) is range else rows


def note_whose_info(error: Exception, infos: Iterable[tuple[int, Any]], unit: str = "environment") -> None:
    """Note on an error of pickling infos which environment has given what cannot be pickled.

    Args:
        error: The error.
        infos: Those that were to be pickled together, each with the index of its environment.
        unit: What such an environment is called.
    """
    for number, info in infos:
        try:
            dumps(info)
        except Exception:
            error.add_note(f"raised by an info of {unit} {number}, which must be something that can be pickled")
            return
