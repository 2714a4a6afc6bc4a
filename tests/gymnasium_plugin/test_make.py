"""``make_vec``, the twins of registered ids, and Gymnasium's wrappers of vector environments around ours."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from copy import deepcopy
from functools import partial
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest
from compare import assert_same, played, rollout
from envs import Facts
from every_other import in_turn
from gymnasium.error import Error, NameNotFound
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import FlattenObservation, TimeAwareObservation
from gymnasium.wrappers import vector as wrappers
from places import INLINE

import reactor_gymnasium
from reactor_gymnasium import ReactorVectorEnv, make_vec
from reactor_gymnasium.registry import original, repeat_registrations


@pytest.fixture
def registered() -> Iterator[str]:
    """An id that is registered after ``reactor_gymnasium`` was imported."""
    gymnasium.register("facts/Late-v3", entry_point=Facts, max_episode_steps=6, kwargs={"index": 1})
    assert "reactor/facts.Late-v3" in gymnasium.registry
    yield "facts/Late-v3"
    del gymnasium.registry["facts/Late-v3"]
    gymnasium.registry.pop("reactor/facts.Late-v3", None)


def test_make_vec_is_gymnasiums_with_another_class() -> None:
    ours = make_vec("CartPole-v1", num_envs=3, workers=2, executor="threads", max_episode_steps=9)
    theirs = gymnasium.make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync", max_episode_steps=9)
    assert isinstance(ours, ReactorVectorEnv)
    assert (ours.workers, ours.executor, ours.num_envs) == (2, "threads", 3)
    assert ours.spec is not None
    assert ours.spec.id == "CartPole-v1"
    assert "CartPole-v1" in repr(ours)
    assert_same(played(ours, rollout(steps=30)), played(theirs, rollout(steps=30)))


def test_a_registration_that_cannot_be_loaded_elsewhere_is_missed_only_when_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("only_here")
    exec("class Env: ...", module.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", module)
    gymnasium.register("facts/OnlyHere-v0", entry_point=module.Env)
    repeat = repeat_registrations()
    monkeypatch.delitem(sys.modules, "only_here")
    del gymnasium.registry["facts/OnlyHere-v0"]
    repeat()
    try:
        with pytest.raises(ModuleNotFoundError, match="only_here"):
            gymnasium.make("facts/OnlyHere-v0")
    finally:
        del gymnasium.registry["facts/OnlyHere-v0"]


def test_keywords_go_where_they_belong() -> None:
    with make_vec(
        "FrozenLake-v1", 2, is_slippery=False, map_name="8x8", autoreset_mode="SameStep", vector_kwargs={"copy": False}, **INLINE
    ) as envs:
        assert envs.single_observation_space.n == 64  # type: ignore[attr-defined]
        assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
        assert not envs.copy
    with make_vec("CartPole-v1", 2, wrappers=[TimeAwareObservation], **INLINE) as envs:
        assert envs.single_observation_space.shape == (5,)
    with pytest.raises(TypeError, match="given twice"):
        make_vec("CartPole-v1", 2, vector_kwargs={"copy": False}, copy=True)
    with pytest.raises(Error, match=r"use gymnasium\.make_vec"):
        make_vec("CartPole-v1", 2, vectorization_mode="sync")  # type: ignore[arg-type]
    with pytest.raises(NameNotFound):
        make_vec("NoSuchEnvironment-v1", 2)
    with pytest.raises(TypeError, match="no_such_keyword"):
        make_vec("CartPole-v1", 2, no_such_keyword=3, **INLINE)
    with pytest.raises(ValueError, match="at least one"):
        make_vec("CartPole-v1", 0, **INLINE)


def test_a_spec_goes_round() -> None:
    with make_vec("CartPole-v1", 2, max_episode_steps=7, **INLINE) as envs:
        spec = envs.spec
        assert spec is not None
        assert spec.kwargs["num_envs"] == 2
    assert make_vec_again(spec) == 2
    assert gymnasium.spec("CartPole-v1").kwargs == {}


def make_vec_again(spec: Any) -> int:
    kwargs = dict(spec.kwargs)
    n = kwargs.pop("num_envs")
    vector = kwargs.pop("vector_kwargs")
    spec.kwargs = {}
    with make_vec(spec, n, vector_kwargs=vector, **kwargs) as envs:
        envs.reset(seed=0)
        truncations = [envs.step(np.zeros(n, np.int64))[3] for _ in range(7)][-1]
        assert truncations.all()
        assert envs.get_attr("_max_episode_steps") == (7,) * n
        return envs.num_envs


def test_shards_step_their_rows_by_themselves() -> None:
    alone = [gymnasium.make_vec("CartPole-v1", n, max_episode_steps=9) for n in (3, 3, 4)]
    found = gymnasium.make_vec("reactor/CartPole-v1", num_envs=10, shards=3, max_episode_steps=9, executor="threads", workers=2)
    assert repr(found).startswith("ReactorVectorEnv.of(reactor/CartPole-v1 3 shards, num_envs=10, executor='threads', workers=2")
    spec = found.spec
    for _ in range(2):
        expected = [one.reset(seed=5 + first)[0] for one, first in zip(alone, (0, 3, 6), strict=True)]
        assert_same(found.reset(seed=5)[0], np.concatenate(expected))
        for _ in range(20):
            results = found.step(np.ones(10, np.int64))
            expected = [one.step(np.ones(one.num_envs, np.int64)) for one in alone]
            for place in range(4):
                assert_same(results[place], np.concatenate([of_one[place] for of_one in expected]))
        found.close()
        assert spec is not None
        found = gymnasium.make_vec(spec)
        assert found.spec == spec
    found.close()


@pytest.mark.parametrize(
    ("id", "kwargs", "message"),
    [
        ("Pendulum-v1", {"shards": 2}, "Pendulum-v1 has none. Leave it out"),
        ("CartPole-v1", {"shards": 3}, "shards=3, but there are 2 environments"),
        ("CartPole-v1", {"shards": 2, "wrappers": [gymnasium.wrappers.FlattenObservation]}, "no single environments"),
        ("ALE/Pong-v5", {"shards": 2, "preprocess": True}, "shards is not for preprocess=True"),
    ],
)
def test_shards_that_there_cannot_be(id: str, kwargs: dict[str, Any], message: str) -> None:
    if id.startswith("ALE/"):
        pytest.importorskip("ale_py")
    with pytest.raises((Error, ValueError), match=message):
        make_vec(id, 2, **kwargs, **INLINE)


@pytest.mark.parametrize("prefix", ["", "reactor_gymnasium:"])
def test_twins(prefix: str) -> None:
    ours = gymnasium.make_vec(f"{prefix}reactor/CartPole-v1", num_envs=4, workers=2, executor="threads", max_episode_steps=9)
    assert isinstance(ours, ReactorVectorEnv)
    assert (ours.workers, ours.num_envs) == (2, 4)
    assert ours.spec is not None
    assert ours.spec.id == "reactor/CartPole-v1"
    assert "reactor/CartPole-v1" in repr(ours)
    theirs = gymnasium.make_vec("CartPole-v1", num_envs=4, vectorization_mode="sync", max_episode_steps=9)
    assert_same(played(ours, rollout(steps=30)), played(theirs, rollout(steps=30)))


def test_a_twins_spec_goes_round() -> None:
    ours = gymnasium.make_vec("reactor/CartPole-v1", num_envs=3, executor="inline")
    spec = ours.spec
    ours.close()
    assert spec is not None
    again = gymnasium.make_vec(spec)
    assert isinstance(again, ReactorVectorEnv)
    assert again.num_envs == 3
    assert again.spec == spec
    again.close()


@pytest.mark.slow
def test_a_twin_of_a_namespace() -> None:
    pytest.importorskip("ale_py")
    gymnasium.register_envs(sys.modules["ale_py"])
    reactor_gymnasium.register()
    with gymnasium.make_vec("reactor/ALE.Pong-v5", num_envs=2, executor="inline", obs_type="ram") as envs:
        assert isinstance(envs, ReactorVectorEnv)
        assert envs.reset(seed=0)[0].shape == (2, 128)
    assert original("ALE.Pong-v5") == "ALE/Pong-v5"


def test_every_registered_id_has_a_twin() -> None:
    for name, spec in gymnasium.registry.items():
        if spec.entry_point is not None and not name.startswith("reactor/"):
            reactor_gymnasium.register()
            twin = gymnasium.spec("reactor/" + name.replace("/", "."))
            assert (twin.entry_point, twin.max_episode_steps, twin.kwargs) == (
                spec.entry_point, spec.max_episode_steps, spec.kwargs,
            )  # fmt: skip


def test_ids_registered_later(registered: str) -> None:
    assert reactor_gymnasium.register() == 0  # nothing is left to do
    for executor in ("inline", "processes"):
        with gymnasium.make_vec("reactor/facts.Late-v3", num_envs=2, workers=2, executor=executor) as envs:
            assert envs.reset(seed=4)[0].tolist() == [[1, 4, 1, 0, 0], [1, 5, 1, 0, 0]]
    with make_vec("reactor/facts.Late-v3", 2, index=9, **INLINE) as envs:
        assert envs.reset(seed=4)[0][:, 0].tolist() == [9, 9]


def test_an_id_that_is_registered_again_has_a_new_twin(registered: str) -> None:
    with pytest.warns(UserWarning, match="Overriding"):
        gymnasium.register(registered, entry_point=Facts, max_episode_steps=4, kwargs={"index": 5})
    twin = gymnasium.spec("reactor/facts.Late-v3")
    assert (twin.max_episode_steps, twin.kwargs) == (4, {"index": 5})
    with gymnasium.make_vec("reactor/facts.Late-v3", num_envs=2, executor="inline") as envs:
        assert envs.reset(seed=4)[0][:, 0].tolist() == [5, 5]


def test_ids_of_a_namespace_and_ids_that_went_past_have_twins() -> None:
    plain = gymnasium.register.__wrapped__  # type: ignore[attr-defined]  # what who imported it before us has
    with gymnasium.envs.registration.namespace("spaced"):
        gymnasium.register("Inside-v1", entry_point=Facts, kwargs={"index": 1})
    plain("facts/Past-v1", entry_point=Facts, kwargs={"index": 1})
    try:
        assert "reactor/spaced.Inside-v1" in gymnasium.registry
        assert "reactor/facts.Past-v1" not in gymnasium.registry
        assert reactor_gymnasium.register() == 1
        assert "reactor/facts.Past-v1" in gymnasium.registry
    finally:
        for name in ("spaced/Inside-v1", "facts/Past-v1"):
            del gymnasium.registry[name]
            gymnasium.registry.pop("reactor/" + name.replace("/", "."))


ORDERS = {
    "ale first": "import ale_py, reactor_gymnasium",
    "ours first": "import reactor_gymnasium, ale_py",
    "both of us before": "import reactor_gymnasium, gymnasium, ale_py",
}


@pytest.mark.slow
@in_turn("imports", ORDERS.values(), ids=ORDERS, kept=1)
def test_imports_come_in_any_order(imports: str) -> None:
    pytest.importorskip("ale_py")
    code = f"{imports}; import gymnasium; gymnasium.spec('reactor/ALE.Pong-v5'); reactor_gymnasium.make.make_vec"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_make_vec_finds_atari_games_by_itself() -> None:
    pytest.importorskip("ale_py")
    code = (
        "from reactor_gymnasium import make_vec; "
        "print([make_vec(id, 1, executor='inline').spec.id for id in ('ALE/Pong-v5', 'reactor/ALE.Pong-v5')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "['ALE/Pong-v5', 'ALE/Pong-v5']\n", done.stderr


def test_a_twin_is_made_alone_as_its_original() -> None:
    twin, env = gymnasium.make("reactor/CartPole-v1"), gymnasium.make("CartPole-v1")
    assert type(twin.unwrapped) is type(env.unwrapped)
    assert twin.get_wrapper_attr("_max_episode_steps") == 500
    assert_same(twin.reset(seed=3), env.reset(seed=3))
    assert_same(twin.step(1), env.step(1))
    twin.close()
    env.close()


@pytest.mark.slow
def test_importing_is_all_that_a_tool_needs() -> None:
    code = (
        "import gymnasium, sys; envs = gymnasium.make_vec('reactor_gymnasium:reactor/CartPole-v1', num_envs=2, executor='inline'); "
        "print(type(envs).__name__); envs.close()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("ReactorVectorEnv\n", "")


WRAPPERS: dict[str, Any] = {
    "NormalizeObservation": wrappers.NormalizeObservation,
    "NormalizeReward": wrappers.NormalizeReward,
    "DictInfoToList": wrappers.DictInfoToList,
    "ClipReward": lambda envs: wrappers.ClipReward(envs, 0, 0.5),
    "RescaleObservation": lambda envs: wrappers.RescaleObservation(envs, -1, 1),
    "all": lambda envs: wrappers.DictInfoToList(wrappers.NormalizeReward(wrappers.RecordEpisodeStatistics(envs))),
}


@pytest.mark.parametrize("name", sorted(WRAPPERS))
def test_gymnasiums_vector_wrappers(name: str) -> None:
    env_fns = [partial(Facts, i, infos="int") for i in range(3)]

    def play(envs: Any) -> list[Any]:
        seen: list[Any] = [envs.reset(seed=1)]
        for _ in range(14):
            *results, infos = envs.step(np.zeros(3, np.int64))
            for info in infos if isinstance(infos, list) else [infos]:
                if "episode" in info:
                    info["episode"].pop("t", None)
            seen.append((*results, infos))
        return seen

    wrap = WRAPPERS[name]
    if name == "RescaleObservation":
        env_fns = [partial(gymnasium.make, "MountainCar-v0")] * 3
    theirs = played(wrap(SyncVectorEnv(env_fns)), play)
    assert_same(played(wrap(ReactorVectorEnv(env_fns, executor="threads", workers=2)), play), theirs)


def test_episode_statistics() -> None:
    envs = wrappers.RecordEpisodeStatistics(make_vec("CartPole-v1", 3, executor="threads", workers=2, max_episode_steps=5))
    envs.reset(seed=0)
    lengths = []
    for _ in range(12):
        *_, infos = envs.step(envs.action_space.sample())
        if "episode" in infos:
            lengths += infos["episode"]["l"][infos["_episode"]].tolist()
    assert lengths == [5] * 6
    envs.close()


def test_helpers_make_what_is_registered_here() -> None:
    """An id that every process knows, registered anew or changed."""
    before = gymnasium.spec("CartPole-v1")
    try:
        gymnasium.registry["CartPole-v1"] = deepcopy(before)
        gymnasium.registry["CartPole-v1"].max_episode_steps = 5
        fns = [lambda: gymnasium.make("CartPole-v1")] * 4
        envs = ReactorVectorEnv(fns, executor="processes", workers=2)
        envs.reset(seed=0)
        assert [envs.step(np.zeros(4, np.int64))[3].tolist() for _ in range(5)][-1] == [True] * 4
        envs.close()
    finally:
        gymnasium.registry["CartPole-v1"] = before


def test_the_spec_of_a_vector_environment_makes_it_again() -> None:
    with make_vec("CartPole-v1", 3, max_episode_steps=7, wrappers=[TimeAwareObservation], **INLINE) as envs:
        spec = envs.spec
    assert spec is not None
    with make_vec(spec) as again:
        assert again.num_envs == 3 and again.single_observation_space.shape == (5,)
        assert again.executor == "inline"  # type: ignore[attr-defined]


def test_a_twin_has_the_wrappers_of_its_original() -> None:
    gymnasium.register("facts/Wrapped-v0", entry_point=Facts, additional_wrappers=(FlattenObservation.wrapper_spec(),))
    try:
        env, twin = gymnasium.make("facts/Wrapped-v0", index=1), gymnasium.make("reactor/facts.Wrapped-v0", index=1)
        assert twin.observation_space == env.observation_space
        with closing(gymnasium.make_vec("reactor/facts.Wrapped-v0", 2, index=1)) as envs:
            assert envs.single_observation_space == env.observation_space
    finally:
        del gymnasium.registry["facts/Wrapped-v0"], gymnasium.registry["reactor/facts.Wrapped-v0"]


class Choosing(Facts):
    """Has keywords that ``make_vec`` has, too."""

    def __init__(self, preprocess: bool = False, shards: int = 0) -> None:
        super().__init__(1)
        assert preprocess and shards == 3


def test_keywords_of_an_environment_that_are_called_like_ours() -> None:
    gymnasium.register("facts/Choosing-v0", entry_point=Choosing, kwargs={"preprocess": True, "shards": 3})
    try:
        with make_vec("facts/Choosing-v0", 2, **INLINE) as envs:
            assert envs.num_envs == 2
    finally:
        del gymnasium.registry["facts/Choosing-v0"], gymnasium.registry["reactor/facts.Choosing-v0"]
