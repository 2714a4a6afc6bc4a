"""Infos as columns become exactly what Gymnasium's ``_add_info`` makes of them one by one."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from itertools import pairwise
from typing import Any

import gymnasium
import hypothesis.strategies as st
import numpy as np
import pytest
from compare import assert_like_sync, assert_same, played, rollout
from envs import Facts
from gymnasium.vector import AutoresetMode, VectorEnv
from hypothesis import HealthCheck, given, settings
from places import INLINE, PROCESSES, THREADS, WAITING
from random_infos import VALUES, an_info, drawn, kinds, schemas

import reactor_gymnasium.vector.shard
from reactor_gymnasium import ReactorVectorEnv
from reactor_gymnasium.environments.infos import by_row, decode_infos, encode_infos, info_columns, merge_infos, merged_at_once
from reactor_rl.pickling import dumps, loads

Infos = list[tuple[Any, Any]]
"""For each environment what it tells of an episode that ended, and its info; None for neither."""


class Counting(VectorEnv[Any, Any, Any]):
    """A vector environment of nothing but its size, which counts how often infos are added one by one."""

    def __init__(self, num_envs: int) -> None:
        self.num_envs, self.added = num_envs, 0

    def _add_info(self, vector_infos: dict[str, Any], env_info: dict[str, Any], env_num: int) -> dict[str, Any]:
        self.added += 1
        return super()._add_info(vector_infos, env_info, env_num)


def by_gymnasium(infos: Infos) -> dict[str, Any]:
    envs, added = Counting(len(infos)), {}
    for index, both in enumerate(infos):
        for info in both:
            if info is not None:
                added = envs._add_info(added, info, index)
    return added


def by_columns(infos: Infos, cuts: list[int], envs: Counting | None = None, encoded: bool = True) -> dict[str, Any]:
    envs, parts = envs or Counting(len(infos)), []
    for lo, hi in pairwise([0, *cuts, len(infos)]):
        ended = {row: (one["final_obs"], one["final_info"]) for row, (one, _) in enumerate(infos[lo:hi]) if one is not None}
        found = {row: one for row, (_, one) in enumerate(infos[lo:hi]) if one is not None}
        if not cuts and not encoded and (merged := merged_at_once(ended, found, len(infos))) is not None:
            return merged
        part = info_columns(lo, ended, found)
        parts.append(travelled(part) if encoded else part)
    return merge_infos(parts, envs)


def travelled(part: Any) -> Any:
    return decode_infos(loads(dumps(encode_infos(part))))


def outcome(function: Any, *args: Any) -> Any:
    try:
        return function(*args)
    except (Exception, Warning) as error:
        return type(error)


def assert_as_gymnasium(infos: Infos, cuts: list[int], fast: bool = False) -> None:
    theirs = outcome(by_gymnasium, deepcopy(infos))
    for encoded in (False, True):
        envs = Counting(len(infos))
        assert_same(outcome(by_columns, deepcopy(infos), cuts, envs, encoded), theirs, "infos")
        if fast:
            assert not envs.added


# ---------------------------------------------------------------------- any infos


@pytest.mark.slow
@settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data(), schema=schemas, other=schemas, size=st.integers(1, 7), ends=st.booleans())
def test_columns_become_what_gymnasium_makes_of_the_infos(data: Any, schema: Any, other: Any, size: int, ends: bool) -> None:
    infos: Infos = []
    for _ in range(size):
        ended = None
        if ends and data.draw(st.booleans()):
            ended = {"final_obs": drawn(data, data.draw(kinds)), "final_info": an_info(data, schema, other) or {}}
        infos.append((ended, an_info(data, schema, other)))
    cuts = sorted(data.draw(st.lists(st.integers(0, size), max_size=3)))
    assert_as_gymnasium(infos, cuts)


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(VALUES))
def test_two_kinds_under_one_key(kind: str) -> None:
    one = _example(kind)
    for two in map(_example, VALUES):
        for cuts in ([], [1], [2], [1, 2, 3]):
            for order in ((one, one, one, two), (two, one, one, two), (one, one, two, two)):
                assert_as_gymnasium([(None, {"x": value, "y": 1}) for value in order], cuts)


def _example(kind: str) -> Any:
    found = []

    @settings(max_examples=1, database=None, derandomize=True)
    @given(VALUES[kind])
    def first(value: Any) -> None:
        found.append(value)

    first()
    return found[0]


NESTED_END = {"episode": {"r": 3.5, "l": 7, "t": 0.25}, "prob": 0.5}
FAST: dict[str, list[Any]] = {
    "numbers": [{"a": 1, "b": 2.5, "c": True, "d": np.float32(3), "e": np.float64(4), "f": np.int8(5)}] * 4,
    "arrays": [{"a": np.arange(3.0) + i, "b": np.full((2, 2), i, np.uint8), "c": np.array(i)} for i in range(4)],
    "ints and floats": [{"a": 1}, {"a": 0.5}, {"a": np.float32(2)}, {"a": True}],
    "objects": [{"a": "text", "b": np.bool_(True)}, {"a": None, "b": None}] * 2,
    "some have none": [None, {"a": 1}, None, {"a": 2}],
    "different keys": [{"a": 1}, {"b": 2}, {"a": 3, "b": 4}, {}],
    "episodes": [{"prob": 0.25}, NESTED_END, {"prob": 1.0}, NESTED_END],
}


@pytest.mark.parametrize("cuts", [[], [2], [1], [1, 3], [0, 2, 2]], ids=str)
@pytest.mark.parametrize("kind", sorted(FAST))
def test_the_usual_infos_are_never_added_one_by_one(kind: str, cuts: list[int]) -> None:
    assert_as_gymnasium([(None, info) for info in FAST[kind]], cuts, fast=True)


@pytest.mark.parametrize("kind", ["numbers", "arrays", "ints and floats"])
def test_one_shard_puts_numbers_and_arrays_together_at_once(kind: str) -> None:
    infos = dict(enumerate(FAST[kind]))
    assert merged_at_once({}, infos, len(infos)) is not None
    assert merged_at_once({}, infos, len(infos) + 1) is None  # one of them has none
    assert merged_at_once({0: (np.zeros(1), {})}, infos, len(infos)) is None


def test_one_shard_leaves_what_takes_more_care() -> None:
    kinds: list[list[Any]] = [
        [{"a": "text"}] * 2, [{"a": 1}, {"b": 1}], [{"a": 1, "_a": 2}] * 2, [{"final_obs": 1}] * 2, [{"a": 1}, {"a": 2**70}],
        [{"a": 1}, {"a": {}}], [{"a": np.zeros(1)}, {"a": np.zeros(2)}], [{"a": 1}, {"a": float("nan")}], [{1: 1}, {True: 1}],
    ]  # fmt: skip
    for infos in kinds:
        assert merged_at_once({}, dict(enumerate(infos)), 2) is None


OF_KERNELS: dict[str, tuple[Any, ...]] = {
    "python": (np.int64, np.float64, np.bool_), "numpy": (np.float64, np.float32, np.int8), "array": (np.float64, np.uint8),
    "mixed": (np.float64,),
}  # fmt: skip


@given(data=st.data(), cuts=st.lists(st.integers(1, 8), unique=True, max_size=3).map(sorted), encoded=st.booleans())
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_infos_of_kernels_become_what_gymnasium_makes_of_them(data: Any, cuts: list[int], encoded: bool) -> None:
    size, numbers = 9, np.random.default_rng(data.draw(st.integers(0, 9)))
    keys = data.draw(st.lists(st.sampled_from(["a", "b", "c", "d", "_a"]), unique=True, min_size=1))
    kinds_of = st.sampled_from([(form, kind) for form, of_form in OF_KERNELS.items() for kind in of_form])
    usual = {key: data.draw(kinds_of) for key in keys}
    odd, how = (
        data.draw(st.integers(0, 2)),
        data.draw(st.sampled_from(["usual", "other kinds", "in two groups", "some rows", "none"])),
    )
    every: dict[int, dict[str, Any]] = {}
    parts = []
    for shard, (lo, hi) in enumerate(pairwise([0, *cuts, size])):
        rows, way = hi - lo, how if shard == odd else "usual"
        forms = {key: data.draw(kinds_of) for key in keys} if way == "other kinds" else usual
        columns: dict[str, Any] = {}
        for key, (form, kind) in forms.items():
            values = numbers.integers(0, 3, (rows, 2) if form == "array" else rows).astype(kind)
            columns[key] = form, (values / 2).astype(kind)
            if form == "mixed":
                columns[key] += (np.floor(columns[key][1]) == columns[key][1],)
        told: list[Any] = {
            "in two groups": [range(0, rows, 2), range(1, rows, 2)], "some rows": [range(rows // 2 + 1)], "none": [],
        }.get(way, [range(rows)])  # fmt: skip
        groups = [
            (
                where if where == range(rows) else [*where],
                {key: (form, *[one[where] for one in arrays]) for key, (form, *arrays) in columns.items()},
            )
            for where in told
            if where
        ]
        if groups:  # else the shard sends nothing
            part = info_columns(lo, {}, groups)
            parts.append(travelled(part) if encoded else part)
        for row in sorted(row for where in told for row in where):
            every[lo + row] = {key: _one(row, *column) for key, column in columns.items()}
    theirs = outcome(by_gymnasium, [(None, every.get(row)) for row in range(size)])
    assert all(not ended for ended, _ in parts)
    assert_same({row: info for _, of_part in parts for row, info in sorted(by_row(of_part).items())}, every, "infos by row")
    if not cuts and (merged := merged_at_once({}, parts[0][1] if parts else [], size)) is not None:
        assert_same(merged, theirs, "infos at once")
    else:
        assert_same(outcome(merge_infos, parts, Counting(size)), theirs, "infos")


def _one(row: int, form: str, values: Any, ints: Any = None) -> Any:
    """What an environment gives, of what a kernel has for its row."""
    one = values[row].item() if form in ("python", "mixed") else values[row]
    return int(one) if ints is not None and ints[row] else one


def test_what_one_shard_puts_together_is_nobody_elses() -> None:
    table, other = np.zeros(2), np.zeros(2)
    merged = merged_at_once({}, {0: {"t": table}, 1: {"t": other}}, 2)
    assert merged is not None
    table += 1
    assert not merged["t"].any()
    merged["_t"][0] = False
    again = merged_at_once({}, {0: {"t": table}, 1: {"t": other}}, 2)
    assert again is not None and again["_t"].all()


def test_arrays_that_are_decoded_are_whose_info_it_is() -> None:
    part = travelled(info_columns(0, {}, {row: {"place": np.full(2, float(row))} for row in range(3)}))
    first, *others = by_row(part[1]).values()
    first["place"][...] = 9
    assert [info["place"].tolist() for info in others] == [[1, 1], [2, 2]]


def test_two_infos_of_one_environment_count_in_their_order() -> None:
    # An environment may use the names that SAME_STEP mode uses.
    ended = {"final_obs": np.zeros(2), "final_info": {"a": 1}}
    for info in ({"final_obs": "mine"}, {"final_info": {"b": 2}}, {"a": 3}):
        for others in ({"a": 1}, {"final_obs": "other"}, {"final_info": {"c": 4}}):
            assert_as_gymnasium([(None, others), (ended, info), (ended, None), (None, info)], [2])


@pytest.mark.parametrize("cuts", [[], [1], [2]], ids=str)
def test_keys_that_are_equal_but_not_the_same(cuts: list[int]) -> None:
    assert_as_gymnasium([(None, {1: 5}), (None, {True: 6}), (None, {1.0: 7})], cuts)
    assert_as_gymnasium([(None, {"a": {1: 5}}), (None, {"a": {True: 6}}), (None, {"a": {"1": 7}})], cuts)


@pytest.mark.parametrize("cuts", [[], [1], [2]], ids=str)
def test_numbers_that_are_too_long_for_an_array(cuts: list[int]) -> None:
    assert_as_gymnasium([(None, {"a": value}) for value in ("text", 2**70, 2**70)], cuts)  # the first one decides
    assert_as_gymnasium([(None, {"a": value}) for value in (1.5, 2**70, 2**70)], cuts)
    assert_as_gymnasium([(None, {"a": value}) for value in (1, 2**70, 2**70)], cuts)


@pytest.mark.parametrize("cuts", [[], [1], [2]], ids=str)
def test_of_several_mistakes_the_first_environments_is_raised(cuts: list[int]) -> None:
    infos: Infos = [(None, {"a": 1, "b": np.zeros(2)}), (None, {"b": np.zeros(3)}), (None, {"a": 2**70})]
    for encoded in (False, True):
        assert outcome(by_columns, infos, cuts, None, encoded) is outcome(by_gymnasium, infos) is ValueError


def test_infos_that_are_no_dicts_fail_as_in_gymnasium() -> None:
    info_columns(0, {}, {0: ["x"]})  # which is not yet where it fails
    assert outcome(by_columns, [(None, ["x"])], []) is outcome(by_gymnasium, [(None, ["x"])]) is AttributeError


# ---------------------------------------------------------------------- real environments


MODES = list(AutoresetMode)
PLACES = [INLINE, THREADS, THREADS | {"workers": 3} | WAITING, PROCESSES, PROCESSES | {"workers": 3}]


# ---------------------------------------------------------------------- whose they are


class Keeps(Facts):
    """Hands out what it goes on using."""

    def __init__(self, index: int, length: int) -> None:
        super().__init__(index, length=length)
        self.table, self.things = np.zeros(3), [0]
        self.same = {"table": self.table, "total": 0, "things": self.things, "inner": {"table": self.table}}

    def info(self) -> dict[str, Any]:
        self.table += 1
        self.things[0] += 1
        self.same["total"] = self.total
        return self.same


def _arrays(infos: dict[str, Any]) -> list[Any]:
    return [part for value in infos.values() for part in (_arrays(value) if isinstance(value, dict) else [value])]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("place", PLACES[:2] + PLACES[3:4], ids=str)
def test_infos_are_the_callers_to_keep_and_to_change(mode: AutoresetMode, place: dict[str, Any]) -> None:
    def play(envs: Any, spoil: bool) -> list[Any]:
        before: list[Any] = []
        seen = []
        for step in range(8):
            infos = envs.step(np.zeros(3, np.int64))[-1] if step else envs.reset(seed=0)[-1]
            seen.append(deepcopy(infos))
            now = _arrays(infos)
            if spoil:
                assert all(found.flags.writeable for found in now)
                assert not any(np.may_share_memory(a, b) for i, a in enumerate(now) for b in [*before, *now[:i]])
                for found in now:
                    if found.dtype == object:
                        for one in found:
                            if one is not None:
                                one[0] = 99
                    else:
                        found.fill(1)
            before = now
        seen.append(envs.get_attr("table"))
        return seen

    env_fns = [partial(Keeps, i, length=100 if mode is AutoresetMode.DISABLED else 4) for i in range(3)]
    spoilt = played(ReactorVectorEnv(env_fns, autoreset_mode=mode, **place), partial(play, spoil=True))
    assert_same(spoilt, played(ReactorVectorEnv(env_fns, autoreset_mode=mode, executor="inline"), partial(play, spoil=False)))


def test_without_infos_nothing_is_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> Any:
        raise AssertionError("there is nothing to pack")

    monkeypatch.setattr(reactor_gymnasium.vector.shard, "info_columns", refuse)
    with ReactorVectorEnv([partial(gymnasium.make, "CartPole-v1")] * 3, executor="inline") as envs:
        assert envs.reset(seed=0)[1] == {}
        assert all(envs.step(np.ones(3, np.int64))[-1] == {} for _ in range(30))


@pytest.mark.parametrize("value", [2**63, np.zeros(2), "text"], ids=str)
def test_what_gymnasium_refuses_is_refused(value: Any) -> None:
    infos: Infos = [(None, {"a": 1}), (None, {"a": 2}), (None, {"a": value})]
    with pytest.raises((OverflowError, ValueError)) as theirs:
        by_gymnasium(infos)
    with pytest.raises(theirs.type, match=str(theirs.value).replace("(", r"\(").replace(")", r"\)")):
        by_columns(infos, [1])
    assert_like_sync_raises = partial(assert_like_sync, [partial(Refused, i, value) for i in range(3)], rollout(steps=3))
    with pytest.raises(theirs.type):
        assert_like_sync_raises(executor="threads", workers=2)


class Refused(Facts):
    """The last of three has a value that does not go together with the others'."""

    def __init__(self, index: int, value: Any) -> None:
        super().__init__(index)
        self.value = value

    def info(self) -> dict[str, Any]:
        return {"a": self.value if self.index == 2 else self.index}
