"""Environments, wrappers and classes that get another ``step`` or ``reset`` on the way: what is called is looked up."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from compare import assert_like_sync, assert_same
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit
from places import INLINE, PROCESSES, THREADS

from reactor_gymnasium import ReactorVectorEnv

MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP]
PLACES = [INLINE, THREADS, *(PROCESSES | {"workers": workers} for workers in (1, 2, 3, 4))]


class Plain(gymnasium.Env[Any, Any]):
    """The reward says who has made the step."""

    observation_space = gymnasium.spaces.Box(-1, 99, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self.t = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return self.say(1.0)

    def say(self, reward: float, last: int = 9) -> Any:
        self.t += 1
        return np.full(1, self.t, np.float32), reward, self.t >= last, False, {}


class Phases(Plain):
    """Has three methods, one after the other."""

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        self.step = self.first  # type: ignore[method-assign]
        return super().reset(**kwargs)

    def first(self, action: Any) -> Any:
        if self.t == 1:
            self.step = self.second  # type: ignore[method-assign]
        return self.say(10.0)

    def second(self, action: Any) -> Any:
        if self.t == 3:
            self.reset = self.restarted  # type: ignore[method-assign]
        return self.say(20.0, last=5)

    def restarted(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        self.step = self.third  # type: ignore[method-assign]
        return np.full(1, 77, np.float32), {}

    def third(self, action: Any) -> Any:
        return self.say(30.0, last=8)


class Schooled(Plain):
    """Changes its own class within its fourth step."""

    def step(self, action: Any) -> Any:
        if self.t == 3:
            type(self).step = Schooled.better  # type: ignore[method-assign]
        return self.say(1.0)

    def better(self, action: Any) -> Any:
        return self.say(40.0)


class AtReset(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Patches what it wraps, but not before it is reset for the second time."""

    resets = 0

    def reset(self, **kwargs: Any) -> Any:
        self.resets += 1
        if self.resets == 2:
            plain = self.env.step
            self.env.step = lambda action: (*plain(action)[:1], 50.0, *plain(action)[2:])  # type: ignore[method-assign]
        return super().reset(**kwargs)


def wrapped(kind: type[Plain], limit: int = 7) -> gymnasium.Env[Any, Any]:
    """As ``gymnasium.make`` wraps it."""
    return TimeLimit(OrderEnforcing(PassiveEnvChecker(kind())), limit)


def schooled() -> gymnasium.Env[Any, Any]:
    """Of a class of its own, so that environments do not school each other."""
    return wrapped(type("Own", (Schooled,), {}))


def patched_at_reset() -> gymnasium.Env[Any, Any]:
    return AtReset(wrapped(Plain))


def patched_from_inside(depth: int, when: str) -> gymnasium.Env[Any, Any]:
    """The environment puts another ``step`` on one of the wrappers around it: at its second reset, or within an episode."""
    env = wrapped(Plain)
    wrapper: Any = env
    for _ in range(depth):
        wrapper = wrapper.env
    inner = env.unwrapped
    calls = 0

    def patch() -> None:
        plain = wrapper.step
        wrapper.step = lambda action: (*plain(action)[:1], 60.0 + depth, *plain(action)[2:])

    def counted(method: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == (2 if when == "reset" else 12):
                patch()
            return method(*args, **kwargs)

        return call

    setattr(inner, when, counted(getattr(inner, when)))
    return env


MAKERS: dict[str, Any] = {
    "bare": Phases,
    "wrapped": partial(wrapped, Phases),
    "class": schooled,
    "wrapper": patched_at_reset,
    **{f"inside-{depth}-{when}": partial(patched_from_inside, depth, when) for depth in range(3) for when in ("reset", "step")},
}


def play(envs: Any) -> list[Any]:
    zeros = np.zeros(4, np.int64)
    return [envs.reset(seed=0), *(envs.step(zeros) for _ in range(40))]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_the_step_of_the_moment_is_called(make: Any, mode: AutoresetMode) -> None:
    assert_like_sync([make] * 4, play, autoreset_mode=mode, executor="inline")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("place", PLACES, ids=str)
def test_wherever_it_runs(place: dict[str, Any]) -> None:
    assert_like_sync([MAKERS["wrapped"], MAKERS["class"], MAKERS["inside-0-reset"], MAKERS["bare"]], play, **place)


@pytest.fixture(params=[Plain, TimeLimit, OrderEnforcing, PassiveEnvChecker])
def kind(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A class whose methods are put back afterwards."""
    step, reset = request.param.step, request.param.reset
    yield request.param
    request.param.step, request.param.reset = step, reset


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("names", [["step", "reset"], ["reset", "step"]], ids="-".join)
def test_a_class_may_be_changed_between_two_steps(kind: Any, names: list[str], mode: AutoresetMode) -> None:
    step, reset = kind.step, kind.reset

    def doubled(self: Any, action: Any) -> Any:
        observation, reward, *rest = step(self, action)
        return observation, 2 * reward + 1, *rest

    def marked(self: Any, **kwargs: Any) -> Any:
        return reset(self, **kwargs)[0] + 3, {"marked": True}

    def traces(envs: Any) -> list[Any]:
        zeros = np.zeros(2, np.int64)
        kind.step, kind.reset = step, reset
        seen = [envs.reset(seed=0), *(envs.step(zeros) for _ in range(5))]
        for name in names:
            setattr(kind, name, {"step": doubled, "reset": marked}[name])
            seen += [envs.step(zeros) for _ in range(10)]
        kind.step, kind.reset = step, reset
        seen += [envs.step(zeros) for _ in range(10)]
        envs.close()
        return seen

    makers = [partial(wrapped, Plain, limit) for limit in (4, 20)]
    theirs = traces(SyncVectorEnv(makers, autoreset_mode=mode))
    # An importable class, which does not travel by value, and one process: what is changed here is what is stepped.
    ours = traces(ReactorVectorEnv(makers, autoreset_mode=mode, executor="inline"))
    assert_same(ours, theirs)
