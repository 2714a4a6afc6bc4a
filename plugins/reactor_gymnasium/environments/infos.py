"""Infos as columns: they cost per key, not per environment and key, where environments agree on keys and on kinds of values.

A shard packs its infos by group, the environments whose infos have the same keys. Each key of a group is a column: numbers or
arrays of one kind as their bytes, dicts as groups again, anything else as a list. :func:`merge_infos` makes of them exactly what
``VectorEnv._add_info`` makes of the infos one by one, and calls it wherever columns do not fit together.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from itertools import chain, groupby
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium.vector import VectorEnv

from reactor_rl.plugin import dumps, loads

__all__ = [
    "InfoColumns",
    "pack_columns",
    "masked",
    "together_columns",
    "with_finals",
    "info_adder",
    "Packed",
    "merge_infos",
    "note_whose_info",
    "pack_infos",
    "together",
    "infos_by_row",
]

_Rows = tuple[int, int] | list[int]
"""Indices of environments in ascending order: ``(first, last + 1)`` if they are all between, else each of them."""

_Spec = tuple[str, str, tuple[int, ...]]
"""The kind of the values (``python`` or ``numpy`` numbers, ``array``, ``dict``, ``object`` or ``any``), their dtype and shape."""

_Column = tuple[_Spec, Any]
"""The values of one key: bytes, groups for dicts, or a list."""

_Group = tuple[_Rows, tuple[str, ...] | None, list[Any]]
"""Environments, the keys that their infos have, and a column for each; or, with no keys, infos that cannot be taken apart."""

_Groups = tuple[list[_Group], list[_Group]]
"""The infos of a shard: those of episodes that ended within the step, which come first, and those of the step."""

Packed = _Groups | tuple[bytes, bytes]
"""The same as a shard sends it.

If all its rows have the same keys, as in most steps of a kernel, that is a header, which is the same in every step, and the bytes
of all columns. It costs half as much.
"""

_Kinds = tuple[tuple[str, _Spec], ...]
"""The keys that all rows have, and what their values are."""

_Items = list[tuple[int, Any]]

_ANY: _Spec = ("any", "", ())
_DICT: _Spec = ("dict", "", ())
_OBJECT: _Spec = ("object", "O", ())


def _in_array(code: str) -> Callable[[Any], bytes]:
    return lambda values: array(code, values).tobytes()


def _in_numpy(kind: type[np.generic]) -> Callable[[Any], bytes]:
    return lambda values: np.array(values, kind).tobytes()


# The types that Gymnasium makes arrays of, with the cheapest way to make bytes of them.
_NUMBERS: dict[type, tuple[_Spec, Callable[[Any], bytes]]] = {
    int: (("python", np.dtype(int).str, ()), _in_array(np.dtype(int).char)),
    float: (("python", np.dtype(float).str, ()), _in_array("d")),
    bool: (("python", np.dtype(bool).str, ()), bytes),
    np.float64: (("numpy", np.dtype(np.float64).str, ()), _in_array("d")),
}
for _kind in (
    np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64,
    np.float16, np.float32, np.complex64, np.complex128,
):  # fmt: skip
    _NUMBERS[_kind] = (("numpy", np.dtype(_kind).str, ()), _in_numpy(_kind))


_OBJECTS = {str, bytes, type(None), np.bool_}
"""Types that Gymnasium makes arrays of objects of, and that numpy takes for objects in a list, too."""


# ---------------------------------------------------------------------- in the shard


def pack_infos(first: int, ended: dict[int, Any], infos: dict[int, Any], *, split_finals: bool = True) -> _Groups:
    """Take the infos of a shard apart; nothing of the result is changed by what the environments do to theirs once it is pickled.

    Args:
        first: Index of the shard's first environment.
        ended: What ``SAME_STEP`` mode tells of the episodes that have ended, by row.
        infos: The infos of the step, by row.
        split_finals: Whether those of ended episodes are taken apart too; not worth it for who wants them one by one.
    """
    if split_finals or not ended:
        return _groups(first, ended), _groups(first, infos)
    return [([first + row for row in ended], None, list(ended.values()))], _groups(first, infos)


def _groups(first: int, infos: dict[int, Any]) -> list[_Group]:
    if not infos:
        return []
    rows, of_rows = list(infos), list(infos.values())
    return _grouped(first, rows, of_rows) or [([first + row for row in rows], None, of_rows)]


def _grouped(first: int, rows: Sequence[int], infos: Sequence[Any]) -> list[_Group] | None:
    """Infos by what keys they have, in order of appearance; None if there is an info or a key of a kind that is not usual."""
    if set(map(type, infos)) != {dict}:
        return None
    every, keys = list(chain.from_iterable(infos)), tuple(infos[0])
    alike = every == [*keys] * len(infos)  # then all have these keys, since none has one of them twice
    if set(map(type, keys if alike else every)) - {str}:
        return None
    if alike:
        return [_group(first, rows, keys, infos)]
    places: dict[tuple[str, ...], list[int]] = {}
    for place, info in enumerate(infos):
        places.setdefault(tuple(info), []).append(place)
    return [_group(first, [rows[i] for i in some], keys, [infos[i] for i in some]) for keys, some in places.items()]


def _group(first: int, rows: Sequence[int], keys: tuple[str, ...], infos: Sequence[dict[str, Any]]) -> _Group:
    together = rows[-1] - rows[0] + 1 == len(rows)
    return (
        (first + rows[0], first + rows[-1] + 1) if together else [first + row for row in rows],
        keys,
        [_column(key, first, rows, [info[key] for info in infos]) for key in keys],
    )


def _column(key: str, first: int, rows: Sequence[int], values: list[Any]) -> _Column:
    kinds = set(map(type, values))
    if len(kinds) == 1 and key != "final_obs":  # of which Gymnasium makes an array of objects, whatever they are
        (kind,) = kinds
        try:
            if kind in _NUMBERS:
                spec, to_bytes = _NUMBERS[kind]
                return spec, to_bytes(values)
            if kind is np.ndarray:
                return _array_column(values)
            if kind is dict and (groups := _grouped(first, rows, values)):
                return _DICT, groups
        except OverflowError:  # Gymnasium raises it too, or does not if an environment before this shard has another kind of value
            pass
    return (_OBJECT if kinds <= _OBJECTS else _ANY), values


def _array_column(values: list[Any]) -> _Column:
    dtype, shape = values[0].dtype, values[0].shape
    alike = [value.dtype for value in values].count(dtype) == [value.shape for value in values].count(shape) == len(values)
    if not alike or dtype.kind not in "biufc" or dtype.metadata:
        return _ANY, values
    spec = ("array", dtype.str, shape)
    try:
        return spec, b"".join(values)
    except (BufferError, TypeError, ValueError):  # some are views that are not contiguous
        return spec, b"".join([value.tobytes() for value in values])


InfoColumns = tuple[npt.NDArray[Any] | None, dict[str, tuple[str, npt.NDArray[Any]]]]
"""Infos of some rows, ``None`` for all: by key whether values are Python's or numpy's numbers, or arrays, and one of each row."""


def pack_columns(
    first: int, rows: int, ended: dict[int, Any], blocks: Sequence[InfoColumns], *, split_finals: bool = True
) -> Packed:
    """:func:`pack_infos` for infos of a step that are columns already.

    Args:
        first: Index of the shard's first environment.
        rows: How many it has.
        ended: As for :func:`pack_infos`.
        blocks: Infos, each of other rows.
        split_finals: As for :func:`pack_infos`.
    """
    if not ended and len(blocks) == 1 and blocks[0][0] is None:
        columns = blocks[0][1]
        kinds = tuple([(key, (form, values.dtype.str, values.shape[1:])) for key, (form, values) in columns.items()])
        return _header(first, rows, kinds), b"".join([values.tobytes() for _, values in columns.values()])
    finals, _ = pack_infos(first, ended, {}, split_finals=split_finals)
    groups: list[_Group] = []
    for of_block, columns in blocks:
        where: _Rows = (first, first + rows) if of_block is None else (of_block + first).tolist()
        packed = [((form, values.dtype.str, values.shape[1:]), values.tobytes()) for form, values in columns.values()]
        groups.append((where, tuple(columns), packed))
    return finals, groups


@lru_cache(maxsize=256)
def _header(first: int, rows: int, kinds: _Kinds) -> bytes:
    return dumps((first, rows, kinds))


def masked(columns: dict[str, npt.NDArray[Any]], rows: int) -> dict[str, Any]:
    """Infos that all rows have, each with its mask."""
    everybody = _everybody(rows)
    found: dict[str, Any] = {}
    for key, values in columns.items():
        found[key], found[f"_{key}"] = values, everybody.copy()
    return found


def together_columns(blocks: Sequence[InfoColumns], rows: int) -> dict[str, Any] | None:
    """:func:`together` for infos that are columns already; ``None`` unless all rows have the same keys, or none has any."""
    if not blocks:
        return {}
    blocks = sorted(blocks, key=lambda block: -1 if block[0] is None else int(block[0][0]))
    if sum(rows if where is None else len(where) for where, _ in blocks) != rows:
        return None
    keys = list(blocks[0][1])
    merged: dict[str, Any] = {}
    everybody = _everybody(rows)
    for key in keys:
        like = blocks[0][1][key][1]  # the first row's, which the others' are assigned to
        merged[key] = array = np.zeros((rows, *like.shape[1:]), like.dtype)
        for where, columns in blocks:
            values = columns[key][1] if list(columns) == keys else None
            if values is None or values.shape[1:] != like.shape[1:]:
                return None
            if values.dtype != like.dtype and not np.isfinite(values).all():
                return None
            array[slice(None) if where is None else where] = values
        merged[f"_{key}"] = everybody.copy()
    return merged


def with_finals(infos: dict[str, Any], finals: dict[int, tuple[Any, Any]], rows: int) -> dict[str, Any]:
    """The infos of a step, and what ``SAME_STEP`` mode tells besides of the episodes that it has ended.

    Args:
        infos: The infos of the step, put together; if there are any, all rows have them.
        finals: By row the last observation of an episode and its last info, in order of rows; nobody else has these.
        rows: How many environments there are.
    """
    if not finals:
        return infos
    mask, observations = np.zeros(rows, np.bool_), np.full(rows, None, object)
    for row, (observation, _) in finals.items():
        mask[row], observations[row] = True, observation
    last = {row: info for row, (_, info) in finals.items()}
    told = merge_infos([([], _groups(0, last))], info_adder(rows)) if any(last.values()) else {}
    ended = {"final_obs": observations, "_final_obs": mask, "final_info": told, "_final_info": mask.copy()}
    return {**ended, **infos} if 0 in finals else {**infos, **ended}  # keys are in the order in which rows have them


def together(infos: dict[int, Any], rows: int) -> dict[str, Any] | None:
    """The result of :func:`merge_infos` for the infos of a step, where one shard has all environments; all of it is copied.

    Args:
        infos: The infos of the step, by row.
        rows: How many environments there are.

    Returns:
        ``None`` unless each of them has the same keys, for numbers or for arrays of one kind: then they are to be packed.
    """
    if len(infos) != rows:
        return None
    of_rows = list(infos.values())
    first = of_rows[0]
    if type(first) is not dict:
        return None
    keys = first.keys()
    for info in of_rows[1:]:
        if type(info) is not dict or info.keys() != keys:
            return None
    merged: dict[str, Any] = {}
    everybody = _everybody(rows)
    for key, value in first.items():
        if type(key) is not str or key == "final_obs":
            return None
        array = _stacked(type(value), [info[key] for info in of_rows])
        if array is None:
            return None
        merged[key] = array
        merged[f"_{key}"] = everybody.copy()
    return merged if len(merged) == 2 * len(first) else None  # else a key is another one's mask


@cache
def _everybody(rows: int) -> npt.NDArray[np.bool_]:
    return np.ones(rows, np.bool_)


def _stacked(kind: type, values: list[Any]) -> Any:
    """All values of one key as one array, where the first one is of this kind; ``None`` if that takes more care."""
    kinds = set(map(type, values))
    try:
        if kind in _NUMBERS:
            if len(kinds) == 1:
                return np.array(values, kind)
            if not kinds <= _NUMBERS.keys():
                return None
            array: npt.NDArray[Any] = np.zeros(len(values), kind)
            for row, value in enumerate(values):  # which casts as Gymnasium's own assignment does
                array[row] = value
            return array
        if kind is np.ndarray and len(kinds) == 1:
            (_, dtype, shape), data = _array_column(values)
            return None if dtype == "O" or not dtype else np.ndarray((len(values), *shape), dtype, bytearray(data))
    except Exception:  # of several mistakes, merge() raises the one that Gymnasium comes upon first
        pass
    return None


@cache
def info_adder(rows: int) -> VectorEnv[Any, Any, Any]:
    """A vector environment for Gymnasium's ``_add_info``, which only needs to know how many environments there are."""
    envs: VectorEnv[Any, Any, Any] = VectorEnv()
    envs.num_envs = rows
    return envs


# ---------------------------------------------------------------------- in the caller


def merge_infos(parts: Iterable[Packed], envs: VectorEnv[Any, Any, Any]) -> dict[str, Any]:
    """The vector environment's infos, of which nothing is shared with anybody.

    Args:
        parts: What the shards have packed, in their order.
        envs: The vector environment whose ``num_envs`` and ``_add_info`` count.

    Raises:
        Exception: What ``_add_info`` raises.
    """
    parts = list(parts)
    alike = [part for part in parts if isinstance(part[0], bytes)]
    if alike and len(alike) == len(parts):
        plan = _plan(tuple([header for header, _ in alike]), envs.num_envs)
        if plan is not None:
            return _of_all(plan, [data for _, data in alike])
    groups = [_in_groups(part) for part in parts]
    ended, infos = [group for part, _ in groups for group in part], [group for _, part in groups for group in part]
    if not ended or _keys(ended).isdisjoint(_keys(infos)):  # else a key may have two values in one environment
        try:
            merged = _merged([*ended, *infos], envs)
        except Exception:  # of several mistakes, the one that Gymnasium comes upon first is raised below
            merged = None
        if merged is not None:
            return merged
    added: dict[str, Any] = {}
    for index, info in _items([*ended, *infos]):
        added = envs._add_info(added, info, index)
    return added


class _Alike(NamedTuple):
    """Keys that follow each other and have values of one kind: these are one array ``(keys, num_envs, ...)``.

    Attributes:
        names: The keys, each followed by that of its mask.
        dtype: Of their values.
        shape: Of that array.
        parts: The rows of each shard, and where their bytes begin in those that it has sent.
    """

    names: list[str]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    parts: list[tuple[slice, int]]


@lru_cache(maxsize=256)
def _plan(headers: tuple[bytes, ...], num_envs: int) -> list[_Alike] | None:
    """Find out once how to put infos together whose headers are these; ``None`` if they are not alike for all environments."""
    shards: list[tuple[int, int, _Kinds]] = [loads(header) for header in headers]
    kinds = shards[0][2]
    keys = {key for key, _ in kinds}
    if any(f"_{key}" in keys for key in keys) or any(of_shard != kinds for _, _, of_shard in shards):
        return None
    if not _is_all([(first, first + rows) for first, rows, _ in shards], num_envs):
        return None
    where = [slice(first, first + rows) for first, rows, _ in shards]
    begins = [0] * len(shards)
    plan: list[_Alike] = []
    for (_, dtype, shape), alike in groupby(kinds, lambda kind: kind[1]):
        names = [name for key, _ in alike for name in (key, f"_{key}")]
        count = len(names) // 2
        plan.append(_Alike(names, np.dtype(dtype), (count, num_envs, *shape), list(zip(where, begins, strict=True))))
        of_row = count * np.dtype(dtype).itemsize * prod(shape)
        begins = [begin + rows * of_row for begin, (_, rows, _) in zip(begins, shards, strict=True)]
    return plan


def _of_all(plan: list[_Alike], data: list[bytes]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for names, dtype, shape, parts in plan:
        values = np.empty(shape, dtype)
        for (rows, begin), of_shard in zip(parts, data, strict=True):
            part = values[:, rows]
            part[...] = np.ndarray(part.shape, dtype, of_shard, begin)
        masks = np.ones(shape[:2], np.bool_)
        merged.update(zip(names, chain.from_iterable(zip(values, masks, strict=True)), strict=True))
    return merged


def _in_groups(part: Packed) -> _Groups:
    if not isinstance(part[0], bytes):
        return part
    (first, rows, kinds), data = loads(part[0]), part[1]
    columns: list[_Column] = []
    end = 0
    for _, spec in kinds:
        begin, end = end, end + rows * np.dtype(spec[1]).itemsize * prod(spec[2])
        columns.append((spec, data[begin:end]))
    return [], [((first, first + rows), tuple(key for key, _ in kinds), columns)]


def infos_by_row(part: Packed) -> tuple[_Items, _Items]:
    """A shard's packed infos, environment by environment: of episodes that ended within the step, and of the step."""
    ended, infos = _in_groups(part)
    return _items(ended), _items(infos)


def _keys(groups: list[_Group]) -> set[str]:
    return {key for _, keys, _ in groups for key in keys or ()}


def _merged(groups: list[_Group], envs: VectorEnv[Any, Any, Any]) -> dict[str, Any] | None:
    """Key by key what Gymnasium would make environment by environment; None where keys are not independent of each other."""
    columns: dict[str, tuple[list[_Rows], list[_Column]]] = {}
    for rows, keys, of_group in sorted(groups, key=_first):  # so keys come in the order in which environments have them first
        if keys is None:
            return None
        for key, column in zip(keys, of_group, strict=True):
            of_key = columns.setdefault(key, ([], []))
            of_key[0].append(rows)
            of_key[1].append(column)
    if any(f"_{key}" in columns for key in columns):  # a key that is another one's mask
        return None
    merged: dict[str, Any] = {}
    last: list[_Rows] = []
    for key, (where, of_groups) in columns.items():
        if where != last:
            mask, last = np.zeros(envs.num_envs, np.bool_), where
            for rows in where:
                mask[_index(rows)] = True
        value = _value(where, of_groups, envs)
        if value is None:
            value = _assigned(key, where, of_groups, envs)
        if value is not None:
            merged[key], merged[f"_{key}"] = value, mask.copy()
        else:
            alone: dict[str, Any] = {}
            for index, one in _items([(rows, (key,), [column]) for rows, column in zip(where, of_groups, strict=True)]):
                alone = envs._add_info(alone, one, index)
            merged |= alone
    return merged


def _value(where: list[_Rows], of_groups: list[_Column], envs: VectorEnv[Any, Any, Any]) -> Any:
    """All values of one key if they are of one kind, else None."""
    spec = form, dtype, shape = of_groups[0][0]
    if form == "any":
        return None
    for column in of_groups:
        if column[0] != spec:
            return None
    if form == "dict":
        return _merged([group for _, groups in of_groups for group in groups], envs)
    if form == "object":
        value = np.full(envs.num_envs, None, object)
        for rows, (_, values) in zip(where, of_groups, strict=True):
            value[_index(rows)] = values
        return value
    if _is_all(where, envs.num_envs):
        return np.ndarray((envs.num_envs, *shape), dtype, bytearray().join([data for _, data in of_groups]))
    value = np.zeros((envs.num_envs, *shape), dtype)
    for rows, (_, data) in zip(where, of_groups, strict=True):
        value[_index(rows)] = np.ndarray((_count(rows), *shape), dtype, data)
    return value


def _assigned(key: str, where: list[_Rows], of_groups: list[_Column], envs: VectorEnv[Any, Any, Any]) -> Any:
    """Values of different kinds, such as 1 and 0.5, assigned one by one to what the first one makes Gymnasium begin with.

    None if some are dicts, which are not assigned.
    """
    values = list(chain.from_iterable(map(_values, where, of_groups)))
    if key != "final_obs" and any(issubclass(kind, dict) for kind in set(map(type, values))):
        return None
    indices = list(chain.from_iterable(map(_indices, where)))
    if not _is_all(where, envs.num_envs):
        order = sorted(range(len(indices)), key=indices.__getitem__)
        indices, values = [indices[i] for i in order], [values[i] for i in order]
    array = envs._add_info({}, {key: values[0]}, indices[0])[key]
    for index, value in zip(indices, values, strict=True):
        array[index] = value
    return array


def _is_all(where: list[_Rows], num_envs: int) -> bool:
    """Whether it is every environment in order, block after block."""
    end = 0
    for rows in where:
        if rows[0] != end or type(rows) is not tuple:
            return False
        end = rows[1]
    return end == num_envs


def _first(group: _Group) -> int:
    return group[0][0]


def _index(rows: _Rows) -> Any:
    return slice(*rows) if type(rows) is tuple else rows


def _indices(rows: _Rows) -> Sequence[int]:
    return range(*rows) if type(rows) is tuple else rows


def _count(rows: _Rows) -> int:
    return rows[1] - rows[0] if type(rows) is tuple else len(rows)


def _items(groups: list[_Group]) -> _Items:
    """The infos as they were before they were packed, in order of environments."""
    items: _Items = []
    for rows, keys, columns in groups:
        indices = _indices(rows)
        if keys is None:
            items += zip(indices, columns, strict=True)
        elif keys:
            values = zip(*[_values(rows, column) for column in columns], strict=True)
            items += [(index, dict(zip(keys, of_one, strict=True))) for index, of_one in zip(indices, values, strict=True)]
        else:
            items += [(index, {}) for index in indices]
    return sorted(items, key=lambda item: item[0])


def _values(rows: _Rows, column: _Column) -> Sequence[Any]:
    """The values of a column, of the very types that they had."""
    (form, dtype, shape), data = column
    if form in ("any", "object"):
        return data  # type: ignore[no-any-return]
    if form == "dict":
        return [info for _, info in _items(data)]
    values = np.ndarray((_count(rows), *shape), dtype, data)
    if form == "python":
        return values.tolist()  # type: ignore[no-any-return]
    if form == "numpy":
        return list(values)
    return [values[row, ...].copy() for row in range(len(values))]


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
