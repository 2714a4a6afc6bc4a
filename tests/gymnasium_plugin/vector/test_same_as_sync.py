"""What ``ReactorVectorEnv`` returns is what ``SyncVectorEnv`` returns, element for element."""

from __future__ import annotations

from contextlib import closing
from copy import deepcopy
from functools import partial
from typing import Any

import gymnasium
import hypothesis.strategies as st
import numpy as np
import pytest
from compare import assert_like_sync, rollout
from envs import INFOS, Facts, Named, Rewarded, Samples
from every_other import in_turn
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array
from hypothesis import example, given, settings
from places import INLINE, THREADS, WAITING

from reactor_gymnasium import ReactorVectorEnv

Box, Dict, Discrete, Tuple = spaces.Box, spaces.Dict, spaces.Discrete, spaces.Tuple
Graph, MultiBinary, MultiDiscrete, OneOf, Sequence, Text = (
    spaces.Graph, spaces.MultiBinary, spaces.MultiDiscrete, spaces.OneOf, spaces.Sequence, spaces.Text,
)  # fmt: skip

FIXED: list[Any] = [
    Box(-1, 1, (), np.float32),
    Box(-1, 1, (3,), np.float64),
    Box(-1, 1, (2, 3), np.float16),
    Box(0, 255, (84, 84), np.uint8),
    Box(0, 255, (8, 8, 3), np.uint8),
    Box(0, 255, (4,), np.uint8),
    Box(-5, 5, (2,), np.int32),
    Box(-100, 100, (2, 1, 2), np.int8),
    Box(0, 1, (3,), np.bool_),
    Box(0, 1, (0,), np.float32),
    Box(np.array([-1.0, 0.0]), np.array([np.inf, 3.0]), dtype=np.float64),
    Discrete(3),
    Discrete(3, start=-1),
    Discrete(5, dtype=np.int32),
    MultiDiscrete([3, 4]),
    MultiDiscrete([[2, 3], [3, 2]], start=[[10, 20], [30, 40]]),
    MultiDiscrete([2, 3], dtype=np.uint16),
    MultiBinary(8),
    MultiBinary([2, 3]),
    Tuple([Discrete(5), Discrete(4)]),
    Tuple((Discrete(5), Tuple((Box(0.0, 1.0, (3,)), Discrete(2))))),
    Dict({"b": Discrete(5), "a": Box(np.array([0.0, 0.0]), np.array([1.0, 5.0]), dtype=np.float64)}),
    Dict(image=Box(0, 255, (16, 16, 3), np.uint8), inner=Dict(x=Box(-1, 1, (2,)), y=Tuple((MultiBinary(3), Discrete(2))))),
    Dict({}),
    Tuple(()),
    Text(6),
    Text(min_length=3, max_length=6, charset="abcdef"),
    Dict(name=Text(4), value=Box(-1, 1, (2,))),
    OneOf([Discrete(3), Box(0.0, 1.0)]),
    Tuple((OneOf([MultiBinary(2), Text(3)]), Discrete(2))),
]
DYNAMIC: list[Any] = [
    Graph(Box(-1, 1, (2,)), None),
    Graph(Discrete(5), Box(-100, 100, (3, 4))),
    Sequence(Discrete(4)),
    Sequence(Dict(feature=Box(0, 1, (3,)))),
    Sequence(Box(0.0, 1.0), stack=True),
    Dict(a=Dict(a=Graph(Box(-1, 1, (2, 2)), None), b=Box(-1, 1, (2, 2))), b=Tuple((Box(-1, 1, (2,)), Sequence(Discrete(2))))),
    Named(),
    Tuple((Named(), Box(-1, 1, (3,)))),
]
MODES = list(AutoresetMode)
PLACES = [INLINE, THREADS, THREADS | {"workers": 3}, THREADS | {"workers": 4} | WAITING]


def facts(n: int, **kwargs: Any) -> list[Any]:
    return [partial(Facts, i, **kwargs) for i in range(n)]


modes, places, copies, seeds = st.sampled_from(MODES), st.sampled_from(PLACES), st.booleans(), st.integers(0, 2**31 - 1)


def spaces_of(leaves: list[Any]) -> st.SearchStrategy[Any]:
    """These spaces, and dicts and tuples of them."""

    def combined(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.lists(parts, max_size=3).map(Tuple) | st.dictionaries(st.sampled_from("abc"), parts, max_size=3).map(Dict)

    return st.recursive(st.sampled_from(leaves), combined, max_leaves=5)


@pytest.mark.slow
@settings(max_examples=15)
@given(spaces_of(FIXED), modes, places, copies, st.booleans(), seeds)
def test_observations_of_a_fixed_size(space: Any, mode: Any, place: Any, copy: bool, memory: bool, seed: int) -> None:
    env_fns = [partial(Samples, space, length=2 + i) for i in range(4)]
    assert_like_sync(env_fns, rollout(seed), autoreset_mode=mode, shared_memory=memory, copy=copy, **place)


@in_turn("space", FIXED + DYNAMIC, ids=str, kept=13)
def test_every_space(space: Any) -> None:
    env_fns = [partial(Samples, space, length=2 + i) for i in range(4)]
    assert_like_sync(env_fns, rollout(), shared_memory=space in FIXED, executor="threads", workers=2)


@pytest.mark.slow
@in_turn("mode", MODES, kept=1)
def test_every_space_in_processes(mode: AutoresetMode) -> None:
    of_a_fixed_size = [space for space in FIXED if not isinstance(space, (Text, OneOf))]
    for memory, leaves in ((False, FIXED + DYNAMIC), (True, of_a_fixed_size)):
        every = Dict({f"leaf{i}": space for i, space in enumerate(leaves)})
        env_fns = [partial(Samples, every, length=2 + i) for i in range(3)]
        assert_like_sync(env_fns, rollout(), autoreset_mode=mode, shared_memory=memory, executor="processes", workers=2)


@pytest.mark.slow
@settings(max_examples=15)
@example(3, [3, None, 1], MODES[0], 2)
@given(st.integers(1, 5), st.none() | seeds | st.lists(st.none() | seeds, min_size=5, max_size=5), modes, st.integers(1, 4))
def test_seeds(n: int, seed: Any, mode: Any, workers: int) -> None:
    seed = seed[:n] if isinstance(seed, list) else seed
    assert_like_sync(facts(n), rollout(seed, steps=20), autoreset_mode=mode, executor="threads", workers=workers)


@pytest.mark.slow
@settings(max_examples=10)
@given(st.lists(st.sampled_from(sorted(INFOS)), min_size=4, max_size=4), st.booleans(), modes, places)
def test_infos(kinds: list[str], one: bool, mode: Any, place: Any) -> None:
    env_fns = [partial(Facts, i, infos=kinds[0] if one else kind) for i, kind in enumerate(kinds)]
    assert_like_sync(env_fns, rollout(steps=15), autoreset_mode=mode, **place)


@in_turn("mode", MODES, kept=1)
def test_infos_of_different_kinds_at_once_in_processes(mode: AutoresetMode) -> None:
    kinds = ["int", "changing", "nested", "object", "long", "array"]
    env_fns = [partial(Facts, i, infos=kind) for i, kind in enumerate(kinds)]
    assert_like_sync(env_fns, rollout(steps=15), autoreset_mode=mode, executor="processes", workers=3)


@pytest.mark.parametrize("kind", ["float32", "int", "array0", "bool", "float16"])
def test_rewards(kind: str) -> None:
    assert_like_sync([partial(Rewarded, i, kind) for i in range(3)], rollout(), executor="threads", workers=2)


ACTIONS: list[tuple[Any, Any]] = [
    (Discrete(5), np.array([0, 1, 2])),
    (Discrete(5), np.array([0, 1, 2], np.int32)),
    (Discrete(5), np.array([0, 1, 2], np.uint8)),
    (Discrete(5), [0, 1, 2]),
    (Discrete(5), (np.int64(0), np.int16(1), 2)),
    (Discrete(5, dtype=np.int32), np.array([0, 1, 2])),
    (Box(-1, 1, (2,)), np.zeros((3, 2), np.float32)),
    (Box(-1, 1, (2,)), np.zeros((3, 2), np.float64)),
    (Box(-1, 1, (2,)), np.ones((3, 2), np.int64)),
    (Box(-1, 1, (2,), np.float64), np.full((3, 2), 0.5, np.float32)),
    (Box(0, 9, (2,), np.uint8), np.ones((3, 2), np.int64)),
    (Box(-1, 1, (2,)), [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]),
    (Box(-1, 1, ()), np.array([0.1, 0.2, 0.3], np.float32)),
    (Box(-1, 1, (2,)), np.zeros((3, 4), np.float32)[:, ::2]),
    (Box(-1, 1, (2, 2)), np.arange(12, dtype=np.float32).reshape(3, 2, 2)),
    (MultiDiscrete([3, 3]), np.array([[0, 1], [1, 2], [2, 0]])),
    (MultiDiscrete([3, 3]), [[0, 1], [1, 2], [2, 0]]),
    (MultiBinary(3), np.eye(3, dtype=np.int8)),
    (MultiBinary(3), np.eye(3, dtype=np.int64)),
    (MultiBinary(3), np.eye(3, dtype=np.bool_)),
    (Tuple((Discrete(2), Box(-1, 1, (2,)))), (np.array([0, 1, 0]), np.zeros((3, 2), np.float32))),
    (Dict(a=Discrete(2), b=Box(-1, 1, (1,))), {"a": np.array([0, 1, 0]), "b": np.zeros((3, 1), np.float32)}),
    (Dict(a=Dict(c=MultiBinary(2)), b=Text(3)), {"a": {"c": np.ones((3, 2), np.int8)}, "b": ("x", "yy", "zzz")}),
    (Text(4), ("a", "bb", "ccc")),
    (Sequence(Discrete(3)), ((0, 1), (), (2,))),
    (Named(), ("one", "two", "three")),
]


@pytest.mark.slow
@settings(max_examples=15)
@given(st.sampled_from(ACTIONS), places)
def test_actions_arrive_as_they_would_in_sync_and_may_be_kept(case: tuple[Any, Any], place: dict[str, Any]) -> None:
    space, actions = case

    def play(envs: Any) -> list[Any]:
        envs.reset(seed=0)
        for _ in range(2):
            envs.step(actions)
        if isinstance(actions, np.ndarray) and actions.flags.c_contiguous:
            envs.step(actions[::-1].copy())
        return [envs.call("kept")]

    assert_like_sync(facts(3, length=100, action_space=space), play, **place)


@pytest.mark.slow
@in_turn("mode", MODES, kept=1)
def test_different_and_custom_observation_spaces(mode: AutoresetMode) -> None:
    different = [Box(-i - 1, i + 1, (3,), np.float32) for i in range(3)]
    env_fns = [partial(Samples, space, length=2 + i) for i, space in enumerate(different)]
    for place in (*PLACES[:2], {"executor": "processes", "workers": 2}):
        assert_like_sync(env_fns, rollout(), observation_mode="different", autoreset_mode=mode, **place)
        both = (Box(-9, 9, (3, 3), np.float32), Box(-9, 9, (3,), np.float32))
        assert_like_sync(env_fns, rollout(), observation_mode=both, autoreset_mode=mode, **place)


@pytest.mark.slow
def test_calls_between_steps() -> None:
    def play(envs: Any) -> list[Any]:
        seen = [envs.reset(seed=2), envs.np_random_seed, deepcopy(envs.np_random)]
        for step in range(12):
            seen.append(envs.step(np.arange(4)))
            seen.append(envs.get_attr("total"))
            seen.append(envs.call("draw_number"))
            seen.append(envs.render())
            if step == 3:
                envs.set_attr("total", 100)
                envs.set_attr("index", [7, 6, 5, 4])
            if step == 7:
                seen.append(envs.reset(options={"some": "option"}))
                seen.append(envs.get_attr("options"))
            seen.append(deepcopy(envs.np_random))
        return seen

    for place in (*PLACES, {"executor": "processes", "workers": 2}):
        assert_like_sync(facts(4), play, **place)


def test_options_and_masks() -> None:
    def play(envs: Any) -> list[Any]:
        mask = np.array([True, False, True])
        options = {"reset_mask": mask, "x": [1]}
        seen = [envs.reset(seed=1, options={"x": 1}), envs.step(np.array([1, 2, 3])), envs.reset(seed=9, options=options)]
        if isinstance(envs, ReactorVectorEnv):  # of which SyncVectorEnv takes it out
            assert options == {"reset_mask": mask, "x": [1]}
        return [*seen, envs.get_attr("options"), envs.step(np.array([1, 2, 3])), envs.get_attr("seed")]

    for place in PLACES:
        assert_like_sync(facts(3), play, **place)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_an_explicit_reset_after_the_end_of_an_episode_counts(mode: AutoresetMode) -> None:
    def play(envs: Any) -> list[Any]:
        seen = [envs.reset(seed=0), envs.step(np.zeros(2, np.int64)), envs.step(np.zeros(2, np.int64))]  # environment 0 ends
        seen += [envs.reset(seed=5), envs.step(np.zeros(2, np.int64)), envs.step(np.zeros(2, np.int64))]
        seen += [envs.reset(options={"reset_mask": np.array([True, False])})]
        return seen + [envs.step(np.zeros(2, np.int64)) for _ in range(6)]

    for memory in (True, False):
        assert_like_sync(facts(2), play, autoreset_mode=mode, shared_memory=memory, executor="threads", workers=2)


class Seeded(gymnasium.Env[Any, Any]):
    """Whose ``reset`` has defaults of its own, which wrappers never let it use."""

    observation_space, action_space = Box(0, 1, (1,)), Discrete(2)

    def reset(self, *, seed: int | None = 7, options: Any = "mine") -> Any:
        assert options is None
        super().reset(seed=seed)
        self.left = 3
        return self.np_random.random(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.left -= 1
        return self.np_random.random(1, np.float32), 0.0, self.left == 0, False, {}


@pytest.mark.filterwarnings("ignore:.*default seed argument:UserWarning", "ignore:.*is expected to:UserWarning")
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_resets_name_seed_and_options_as_wrappers_do(mode: AutoresetMode) -> None:
    fns = [partial(gymnasium.wrappers.TimeLimit, gymnasium.wrappers.OrderEnforcing(Seeded()), 50) for _ in range(2)]
    ours, theirs = ReactorVectorEnv(fns, executor="inline", autoreset_mode=mode), SyncVectorEnv(fns, autoreset_mode=mode)
    for envs in (ours, theirs):
        envs.reset(seed=0)
    for _ in range(20):
        np.testing.assert_array_equal(ours.step(np.zeros(2, np.int64))[0], theirs.step(np.zeros(2, np.int64))[0])
    ours.close()


class Halves(gymnasium.Env[Any, Any]):
    """Changes the action that it is given."""

    observation_space, action_space = Box(-1, 1, (1,)), Box(-1, 1, (2,))

    def reset(self, **kwargs: Any) -> Any:
        super().reset(**kwargs)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        action *= 0.5
        return np.zeros(1, np.float32), float(action[0]), False, False, {}


@pytest.mark.parametrize("place", [*PLACES, {"executor": "processes", "workers": 2}])
def test_an_action_that_is_given_twice_is_two(place: dict[str, Any]) -> None:
    """As if each environment were on a worker of its own."""
    with closing(ReactorVectorEnv([Halves] * 4, **place)) as envs:
        envs.reset(seed=0)
        action = np.array([1.0, 1.0])  # not of the space's dtype
        assert envs.step([action] * 4)[1].tolist() == [0.5] * 4
        assert action.tolist() == [1.0, 1.0]


class Quaternion(gymnasium.Space[Any]):
    """A space of the user's, which says how its elements are put together."""

    def __init__(self) -> None:
        super().__init__((4,), np.float64)

    def sample(self, mask: Any = None, probability: Any = None) -> Any:
        return self.np_random.random(4)

    def contains(self, x: Any) -> bool:
        return np.shape(x) == (4,)

    def __eq__(self, other: object) -> bool:
        return type(other) is Quaternion


batch_space.register(Quaternion, lambda space, n=1: Box(0, 1, (n, 4), np.float64))
create_empty_array.register(Quaternion, lambda space, n=1, fn=np.zeros: fn((n, 4)))
concatenate.register(Quaternion, lambda space, items, out: np.stack(list(items), out=out))


def test_spaces_that_say_how_they_are_put_together() -> None:
    fns = [partial(Samples, Quaternion(), length=3)] * 3
    ours, theirs = ReactorVectorEnv(fns, executor="inline", shared_memory=False), SyncVectorEnv(fns)
    seen, expected = ours.reset(seed=0)[0], theirs.reset(seed=0)[0]
    assert seen in ours.observation_space and seen.shape == (3, 4)
    np.testing.assert_array_equal(seen, expected)
    ours.close()
