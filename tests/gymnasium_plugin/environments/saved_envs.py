"""Environments of all kinds, by how they can be continued elsewhere: by their state, or by a replay."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import ale_py
import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import EzPickle
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation, TimeLimit
from stable_baselines3.common.atari_wrappers import AtariWrapper
from stable_baselines3.common.monitor import Monitor

gymnasium.register_envs(ale_py)

Make = Callable[[], gymnasium.Env[Any, Any]]


def pong() -> gymnasium.Env[Any, Any]:
    env = gymnasium.make("ALE/Pong-v5", frameskip=1, repeat_action_probability=0.0)
    return FrameStackObservation(AtariPreprocessing(env), 4)


def atari(game: str) -> gymnasium.Env[Any, Any]:
    return AtariWrapper(Monitor(gymnasium.make(f"ALE/{game}-v5", frameskip=1, repeat_action_probability=0.0)))


class Walk(gymnasium.Env[Any, Any]):
    """Random walks of random length; its observation is always the same array."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = spaces.Discrete(3)
        self.at = np.zeros(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.at[:] = self.np_random.normal(size=2)
        return self.at, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.at += self.draw() * (int(action) - 1)
        return self.at, float(self.at.sum()), bool(self.np_random.random() < 0.05), False, {}

    def draw(self) -> Any:
        return self.np_random.normal(size=2)


class Locked(Walk):
    """Holds what nobody can pickle."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class Generated(Walk):
    """Draws from a generator, which nobody can pickle, or tell where it stands."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        given = super().reset(seed=seed, options=options)
        if seed is not None:
            self.drawn = (np.full(2, 0.1 * i) for i in range(10**9))
        return given

    def draw(self) -> Any:
        return next(self.drawn)


class Easy(Walk, EzPickle):
    """Would come out of a pickle as good as new."""

    def __init__(self, scale: float) -> None:
        Walk.__init__(self)
        EzPickle.__init__(self, scale)
        self.scale, self.inner, self.steps = scale, None if scale == 0 else Easy(0), 0

    def draw(self) -> Any:
        self.steps += 1
        if self.inner is not None:
            self.inner.steps += 2
        return super().draw() * (self.steps + (self.inner.steps if self.inner else 0))


class OwnWay(Walk):
    """Says itself what its state is, and rebuilds the rest."""

    def __init__(self) -> None:
        super().__init__()
        self.lock, self.count = threading.Lock(), 0

    def draw(self) -> Any:
        self.count += 1
        return self.np_random.normal(size=2) * self.count

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, lock=threading.Lock())


class View(Walk):
    """Its state is two views of the same numbers, which a pickle tears apart."""

    def __init__(self) -> None:
        super().__init__()
        self.view = self.at[:1]

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.view *= 0.5
        return super().step(action)


class Unseeded(Walk):
    """Ignores seeds: what it did cannot be repeated, but what it is can be saved."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return super().reset(seed=None)


class Slotted(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Keeps its state in a slot, and calls a method of what it wraps that it has fetched once."""

    __slots__ = ("offset",)

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.offset, self.fetched = 0.0, env.step

    def step(self, action: Any) -> Any:
        observation, *others = self.fetched(action)
        self.offset += 0.5
        return (observation + self.offset, *others)


def script() -> Make:
    """What a script defines, with a class that only it knows."""

    class Board:
        def __init__(self) -> None:
            self.sum = 0.0

        def __eq__(self, other: object) -> bool:
            return type(other) is Board and other.sum == self.sum

        def __hash__(self) -> int:
            return 0

    class Scripted(Walk):
        def __init__(self) -> None:
            super().__init__()
            self.board = Board()

        def draw(self) -> Any:
            self.board.sum += 1.0
            same = Board()
            same.sum = self.board.sum
            return super().draw() * self.board.sum * (1 if self.board == same else -1)

    return Scripted


STATE: dict[str, Make] = {
    "CartPole": partial(gymnasium.make, "CartPole-v1"),
    "Blackjack": partial(gymnasium.make, "Blackjack-v1"),
    "FrozenLake": partial(gymnasium.make, "FrozenLake-v1"),
    "HalfCheetah": partial(gymnasium.make, "HalfCheetah-v5"),
    "Pong, preprocessed": pong,
    "Breakout, SB3": partial(atari, "Breakout"),
    "Qbert, SB3": partial(atari, "Qbert"),
    "Monitor": lambda: Monitor(gymnasium.make("CartPole-v1")),
    "EzPickle": lambda: Easy(2.0),
    "its own way": OwnWay,
    "slots": lambda: Slotted(Walk()),
    "no seeds": Unseeded,
    "script": script(),
}
REPLAY: dict[str, Make] = {
    "Pong, sticky": partial(gymnasium.make, "ALE/Pong-v5"),
    "lock": Locked,
    "generator": lambda: TimeLimit(Generated(), 7),
    "views": View,
}
