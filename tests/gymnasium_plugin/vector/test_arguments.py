"""Arguments as Gymnasium's vector environments take them: seeds, options and infos, wherever they are read."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from compare import assert_same
from envs import Facts
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from places import INLINE

from reactor_gymnasium import ReactorVectorEnv

CARTPOLES: list[Any] = [partial(gymnasium.make, "CartPole-v1")] * 2


def _two() -> Any:
    return SyncVectorEnv(CARTPOLES)


def _atari() -> Any:
    pytest.importorskip("ale_py")
    from reactor_gymnasium import AtariVectorEnv

    return AtariVectorEnv("pong", 2, **INLINE)


def _atari_game() -> Any:
    pytest.importorskip("ale_py")
    from reactor_gymnasium import AtariEnv

    return AtariEnv("pong")


def _agents() -> Any:
    simple_spread_v3 = pytest.importorskip("mpe2.simple_spread_v3")
    from reactor_pettingzoo import ParallelVectorEnv

    return ParallelVectorEnv(simple_spread_v3.parallel_env, 2, **INLINE)


def _reset(envs: Any, seed: Any) -> Any:
    return envs.reset(seed=seed)[0]


def _seed_and_reset(envs: Any, seed: Any) -> Any:
    envs.seed(seed)
    return envs.reset()


def _sb3() -> Any:
    pytest.importorskip("stable_baselines3")
    from reactor_sb3 import ReactorVecEnv

    return ReactorVecEnv(CARTPOLES, **INLINE)


def _from_vector_env() -> Any:
    pytest.importorskip("stable_baselines3")
    from reactor_sb3 import from_vector_env

    return from_vector_env(ReactorVectorEnv(CARTPOLES, autoreset_mode="SameStep", **INLINE))


READERS: dict[str, tuple[Callable[[], Any], Callable[[Any, Any], Any]]] = {
    "ReactorVectorEnv": (lambda: ReactorVectorEnv(CARTPOLES, kernels=False, **INLINE), _reset),
    "kernel": (lambda: ReactorVectorEnv(CARTPOLES, **INLINE), _reset),
    "of": (lambda: ReactorVectorEnv.of([_two], **INLINE), _reset),
    "AtariVectorEnv": (_atari, _reset),
    "AtariEnv": (_atari_game, _reset),
    "ParallelVectorEnv": (_agents, _reset),
    "ReactorVecEnv": (_sb3, _seed_and_reset),
    "from_vector_env": (_from_vector_env, _seed_and_reset),
}
"""Whoever reads a seed."""
NAMES = [pytest.param(name, marks=pytest.mark.slow) if name.startswith("Atari") else name for name in READERS]  # loads its ROM anew

FIVES = [np.int64(5), np.uint8(5), np.int32(5), np.array(5), np.array(5, np.uint64)]
LISTS = [[5, 6], (5, np.int64(6)), np.array([5, 6], np.uint16), [np.array(5), 6]]
WRONG = [1.5, np.float64(5), "a", -1, np.int64(-1), np.array(1.5), {"seed": 5}]


@pytest.mark.parametrize("reader", NAMES)
def test_seeds_of_every_kind(reader: str) -> None:
    new, begin = READERS[reader]
    envs = new()
    try:
        want = begin(envs, 5)
        one = reader in ("AtariEnv", "ReactorVecEnv", "from_vector_env")
        lists = LISTS if reader != "of" else LISTS[:2]  # a member is given its part of an array as it is
        for seed in FIVES if one else [*FIVES, *lists]:
            assert_same(begin(envs, seed), want, f"seed {seed!r}")
    finally:
        envs.close()


@pytest.mark.parametrize("reader", NAMES)
def test_wrong_seeds_are_named_and_change_nothing(reader: str) -> None:
    new, begin = READERS[reader]
    envs = new()
    try:
        want = begin(envs, 5)
        for seed in WRONG:
            with pytest.raises((TypeError, ValueError), match=r"[Ss]eed"):
                begin(envs, seed)
            assert_same(begin(envs, 5), want, f"after seed {seed!r}")
    finally:
        envs.close()


@pytest.mark.parametrize("reader", [name for name in READERS if name not in ("AtariEnv", "ReactorVecEnv", "from_vector_env")])
def test_options_are_the_callers(reader: str) -> None:
    new, _ = READERS[reader]
    envs = new()
    try:
        mask = np.arange(envs.num_envs) < envs.num_envs // 2
        options = {"reset_mask": mask, "parts": [np.zeros(2), {"a": 1}]}
        given = deepcopy(options)
        envs.reset(seed=1)
        for _ in range(2):
            envs.reset_async(options=options)
            assert_same(options, given, "options")
            envs.reset_wait()
            envs.reset(options=options)
            assert_same(options, given, "options")
    finally:
        envs.close()


def test_a_mask_is_used_twice() -> None:
    with ReactorVectorEnv([partial(gymnasium.make, "CartPole-v1")] * 3, **INLINE) as envs:
        envs.reset(seed=1)
        options = {"reset_mask": np.array([True, False, False])}
        first, second = envs.reset(options=options)[0], envs.reset(options=options)[0]
    assert (first == second).all(1).tolist() == [False, True, True]


class _Changes(Facts):
    """Changes the options that it is given."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        assert options is not None
        options["parts"].append(1)
        options["mine"] = True
        return super().reset(seed=seed)


@pytest.mark.parametrize("place", [INLINE, {"executor": "threads", "workers": 2}], ids=str)
def test_options_that_environments_change_are_copies(place: dict[str, Any]) -> None:
    options: dict[str, Any] = {"parts": []}
    with ReactorVectorEnv([partial(_Changes, 0)] * 2, **place) as envs:
        envs.reset(options=options)
    assert options == {"parts": []}


# ---------------------------------------------------------------------- infos


class _Tells(Facts):
    """Whose infos are something else."""

    def __init__(self, told: Any, by: str) -> None:
        super().__init__(0, 3)
        self.told, self.by = told, by

    def reset(self, **kwargs: Any) -> Any:
        observation, info = super().reset(**kwargs)
        return observation, self.told if self.by == "reset" and self.resets > 1 else info

    def step(self, action: Any) -> Any:
        *results, info = super().step(action)
        return *results, self.told if self.by == "step" else info


@pytest.mark.filterwarnings("ignore:.*raised TypeError")
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize("by", ["step", "reset"])
@pytest.mark.parametrize("told", [["info"], None, ""], ids=repr)
def test_infos_that_are_none_are_named(told: Any, by: str, mode: str) -> None:
    place = {"executor": "threads", "workers": 2}
    with ReactorVectorEnv([partial(Facts, 0, 9), partial(_Tells, told, by)], autoreset_mode=mode, **place) as envs:
        envs.reset(seed=0)
        with pytest.raises(TypeError, match=r"returned .* as the info, which must be a dict") as raised:
            [envs.step(np.zeros(2, np.int64)) for _ in range(5)]
    assert f"{by}()" in str(raised.value)
    assert any("environment 1" in note for note in raised.value.__notes__)


# ---------------------------------------------------------------------- actions


class _Given(gymnasium.Env[Any, Any]):
    """Tells the action that it was given."""

    observation_space = spaces.Box(-100, 100, (3,), np.float64)

    def __init__(self, space: Any) -> None:
        self.action_space = space

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(3), {}

    def step(self, action: Any) -> Any:
        return np.asarray(action, np.float64), 0.0, False, False, {"kind": str(action.dtype)}


WHOLE = [spaces.MultiBinary(3), *(spaces.Box(0, 9, (3,), kind) for kind in (np.int8, np.int64))]


@pytest.mark.parametrize("space", WHOLE, ids=str)
@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64, np.bool_])
def test_floats_for_whole_numbers_are_handed_over(space: Any, kind: Any) -> None:
    actions = np.array([[0.25, 1, 0], [1, 0.75, 1]]).astype(kind)
    seen = []
    for vector, how in ((SyncVectorEnv, {}), (ReactorVectorEnv, INLINE), (ReactorVectorEnv, {"executor": "threads", "workers": 2})):
        envs = vector([partial(_Given, space)] * 2, **how)
        envs.reset()
        observations, *_, infos = envs.step(actions)
        seen.append((observations, infos["kind"]))
        envs.close()
    for ours in seen[1:]:
        np.testing.assert_array_equal(ours[0], seen[0][0])
        assert ours[1].tolist() == seen[0][1].tolist()
