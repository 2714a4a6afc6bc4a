"""Wrappers that are left out: nothing that a user can see tells whether they are."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from compare import assert_like_sync, assert_same
from envs import Facts
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit
from places import PLACES

from reactor_gymnasium import ReactorVectorEnv
from reactor_gymnasium.environments.bypass import NO_LIMIT, WrapperBypass

ZEROS = np.zeros(3, np.int64)
MODES = list(AutoresetMode)


def standard(index: int, limit: int = 5) -> gymnasium.Env[Any, Any]:
    """What ``gymnasium.make`` puts around an environment."""
    return TimeLimit(OrderEnforcing(PassiveEnvChecker(Facts(index, length=7))), limit + index)


def ordered(index: int) -> gymnasium.Env[Any, Any]:
    return OrderEnforcing(Facts(index))


class Counting(TimeLimit[Any, Any]):
    """A time limit of the user's own: one step more."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward + 100, terminated, truncated, info


def patched(index: int) -> gymnasium.Env[Any, Any]:
    env = standard(index)
    plain = env.step

    def step(action: Any) -> Any:
        observation, reward, *rest = plain(action)
        return observation, reward + 1000, *rest

    env.step = step  # type: ignore[method-assign]
    return env


def patched_inside(index: int) -> gymnasium.Env[Any, Any]:
    env = standard(index)
    inner = env.env.env  # type: ignore[attr-defined]
    plain = inner.reset
    inner.reset = lambda **kwargs: (plain(**kwargs)[0] * 2, {"patched": True})
    return env


def subclassed(index: int) -> gymnasium.Env[Any, Any]:
    return Counting(OrderEnforcing(Facts(index, length=7)), 5)


def outside(index: int) -> gymnasium.Env[Any, Any]:
    return gymnasium.wrappers.RecordEpisodeStatistics(standard(index))


def play(envs: Any) -> list[Any]:
    seen: list[Any] = [envs.reset(seed=0)]
    for step in range(25):
        results = envs.step(ZEROS)
        seen.append(results)
        if step % 3 == 1:
            seen.append(envs.get_attr("_elapsed_steps"))
        if step == 4:
            seen.append(envs.reset(options={"reset_mask": np.array([False, True, False])}))
            seen.append(envs.get_attr("_elapsed_steps"))
        if step == 9:
            envs.set_attr("_max_episode_steps", [3, 4, 30])
        if step == 15:
            envs.set_attr("_elapsed_steps", [0, 1, 2])
            seen.append(envs.get_attr("_elapsed_steps"))
        done = results[2] | results[3]
        if envs.metadata["autoreset_mode"] is AutoresetMode.DISABLED and done.any():
            seen.append(envs.reset(options={"reset_mask": done}))
    return seen


@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_counts_are_those_of_the_wrappers(mode: AutoresetMode, place: dict[str, Any]) -> None:
    assert_like_sync([partial(standard, i) for i in range(3)], play, autoreset_mode=mode, **place)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make", [subclassed, patched_inside])
def test_wrappers_of_the_users_own_are_not_left_out(make: Any, mode: AutoresetMode) -> None:
    assert_like_sync([partial(make, i) for i in range(3)], play, autoreset_mode=mode, executor="threads", workers=2)


@pytest.mark.filterwarnings("ignore:.*episode.*")
@pytest.mark.parametrize("make", [patched, outside])
def test_what_is_outside_the_standard_wrappers_is_not_bypassed(make: Any) -> None:
    def rewards(envs: Any) -> list[Any]:
        envs.reset(seed=0)
        seen = []
        for _ in range(12):
            observations, rewards, terminations, truncations, infos = envs.step(ZEROS)
            if "episode" in infos:
                infos = {"r": infos["episode"]["r"], "l": infos["episode"]["l"], "_r": infos["episode"]["_r"]}
            seen.append((observations, rewards, terminations, truncations, infos))
        return seen

    assert_like_sync([partial(make, i) for i in range(3)], rewards, executor="threads", workers=2)


def used(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    env.reset()
    for _ in range(3):
        env.step(0)
    return env


def test_the_standard_wrappers_are_left_out() -> None:
    held = WrapperBypass(standard(0))
    held.engage()
    assert (held.final, held.target) == (False, held.env)
    used(held.env)
    held.engage()
    assert held.final and held.engaged and held.target is held.env.unwrapped
    assert (held.limit, held.elapsed) == (5, 3)


@pytest.mark.parametrize("make", [subclassed, patched, outside])
def test_other_wrappers_are_not_left_out(make: Any) -> None:
    held = WrapperBypass(used(make(0)))
    held.engage()
    assert held.final and not held.engaged and held.limit == NO_LIMIT


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_wrapper_that_somebody_else_refers_to_is_not_left_out(depth: int) -> None:
    held = WrapperBypass(used(standard(0)))
    wrapper: Any = held.env
    for _ in range(depth):
        wrapper = wrapper.env
    held.engage()
    assert held.target is wrapper  # what is outside of it may be left out
    del wrapper
    held.engage()
    assert held.target is held.env.unwrapped


def test_a_step_patched_by_set_attr_is_used() -> None:
    envs = ReactorVectorEnv([partial(standard, i) for i in range(3)], executor="inline")
    envs.reset()
    for _ in range(3):
        envs.step(ZEROS)
    envs.set_attr("step", lambda action: (np.zeros(5), 77.0, False, False, {}))
    assert envs.step(ZEROS)[1].tolist() == [77.0] * 3
    envs.close()


@pytest.mark.filterwarnings("ignore:.* raised .*:UserWarning")
@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("make", [standard, ordered])
def test_stepping_before_reset_is_refused(make: Any, place: dict[str, Any]) -> None:
    envs = ReactorVectorEnv([partial(make, i) for i in range(3)], **place)
    with pytest.raises(ResetNeeded, match=r"before calling env\.reset") as raised:
        envs.step(ZEROS)
    assert any("environment 2" in note for note in raised.value.__notes__)
    envs.close()


class Sloppy(Facts):
    """Makes the passive checker complain: its observations are outside of their space."""

    observation_space = gymnasium.spaces.Box(0, 1, (5,), np.float64)

    def observe(self) -> Any:
        return super().observe() + 50


class SecondThoughts(Facts):
    """Returns the array of its first step again at the second."""

    def observe(self) -> Any:
        if self.total == 1:
            self.first = super().observe()
        return self.first if self.total in (1, 2) else super().observe()


@pytest.mark.parametrize("kind", [Sloppy, SecondThoughts])
def test_the_passive_checker_warns_as_often_as_without_bypass(kind: type[Facts]) -> None:
    def make() -> gymnasium.Env[Any, Any]:
        return TimeLimit(OrderEnforcing(PassiveEnvChecker(kind(1, length=20))), 50)

    def texts(constructor: Any, **kwargs: Any) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            envs = constructor([make] * 2, **kwargs)
            envs.reset(seed=0)
            for _ in range(8):
                envs.step(ZEROS[:2])
            envs.close()
        return [str(warning.message) for warning in caught]

    theirs = texts(SyncVectorEnv)
    if kind is Sloppy or hasattr(PassiveEnvChecker(kind(1)), "checked_data_reuse"):  # which came with Gymnasium 1.4
        assert theirs
    assert_same(sorted(texts(ReactorVectorEnv, executor="inline")), sorted(theirs))
