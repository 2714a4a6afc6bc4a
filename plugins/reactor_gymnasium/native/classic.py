"""Kernels of classic control."""

from __future__ import annotations

from math import pi
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

from reactor_gymnasium.native.compiled import CompiledKernel

__all__ = ["Acrobot", "CartPole", "MountainCar", "MountainCarContinuous", "Pendulum", "discrete"]

Env = gymnasium.Env[Any, Any]

PAIR, AN_ARRAY, STOPPED = range(3)
"""Forms that ``env.state`` of the mountain cars has; the same numbers as in ``_classic.h``."""


MOST, LEAST = 1e3, 1e-3
"""Between these constants are ordinary: nothing that is computed from them overflows. Gymnasium's own lie between 0.0015 and 50;
users change them by a factor, not by orders of magnitude.
"""


def numbers(names: tuple[str, ...], values: tuple[Any, ...]) -> str | None:
    """Complain of constants that are not ordinary floats or ints."""
    for name, value in zip(names, values, strict=True):
        if type(value) not in (float, int, bool) or not -MOST <= value <= MOST:
            return f"its {name} is {value!r}"
    return None


def discrete(env: Env, n: int) -> str | None:
    """Complain of an action space that is not the usual one."""
    space = env.action_space
    return None if type(space) is spaces.Discrete and space.n == n and space.start == 0 else f"its action space is {space}"


class Classic(CompiledKernel):
    names: ClassVar[tuple[str, ...]]
    """Names of constants."""
    dtypes: ClassVar[tuple[type, ...]] = (np.float64,)
    """Dtypes that a state may have."""
    choices: ClassVar[int] = 0
    """How many actions there are, 0 where they are floats."""
    length: ClassVar[int] = 2
    """How many numbers a state has."""
    divisors: ClassVar[tuple[str, ...]] = ()
    """Constants that something is divided by."""
    positive: ClassVar[tuple[str, ...]] = ()
    """Constants whose sign decides what numpy makes of them."""
    farthest: ClassVar[float] = 1e6
    """The largest number that a state may have."""
    parts = ("state", "action_space")

    @classmethod
    def constants(cls, env: Env) -> tuple[Any, ...]:
        return tuple([getattr(env, name) for name in cls.names])

    @classmethod
    def strange(cls, env: Env) -> str | None:
        complaint = discrete(env, cls.choices) if cls.choices else None
        return complaint or numbers(cls.names, cls.constants(env)[: len(cls.names)]) or cls.senseless(env)

    @classmethod
    def senseless(cls, env: Env) -> str | None:
        """Complain of constants that make no sense, for numpy then does what a kernel does not."""
        for name in cls.divisors:
            if abs(getattr(env, name)) < LEAST:
                return f"its {name} is {getattr(env, name)!r}"
        for name in cls.positive:
            if getattr(env, name) < 0:
                return f"its {name} is {getattr(env, name)!r}"
        return None

    @classmethod
    def strange_state(cls, env: Env) -> str | None:
        state: Any = env.state  # type: ignore[attr-defined]
        known = type(state) is np.ndarray and state.dtype in cls.dtypes and state.shape == (cls.length,)
        return None if known and (np.abs(state) <= cls.farthest).all() else f"its state is {state!r}"


class CartPole(Classic):
    code = "cartpole"
    module, owner = "gymnasium.envs.classic_control.cartpole", "CartPoleEnv"
    written_from = ("16ee44652d69",)
    names = (
        "gravity", "masspole", "total_mass", "length", "polemass_length", "force_mag", "tau", "theta_threshold_radians",
        "x_threshold", "_sutton_barto_reward",
    )  # fmt: skip
    bounds = (-0.05, 0.05)
    shape, choices, length = (4,), 2, 4
    divisors, positive, farthest = ("total_mass", "length"), ("total_mass", "masspole", "length"), MOST

    @classmethod
    def senseless(cls, env: Any) -> str | None:
        if env.kinematics_integrator != "euler":
            return f"its kinematics_integrator is {env.kinematics_integrator!r}"
        if env.masspole > env.total_mass:
            return f"its masspole is {env.masspole!r}"
        return super().senseless(env)

    @classmethod
    def strange_state(cls, env: Any) -> str | None:
        if env.steps_beyond_terminated not in (None, 0):
            return "it is stepped after the end of its episode"
        return super().strange_state(env)

    def load(self) -> None:
        envs: Any = self._envs
        self.state = np.array([env.state for env in envs]).T.copy()
        self.work = np.zeros(2 * len(envs))
        self.places = np.array([env.steps_beyond_terminated is not None for env in envs], np.uint8)

    def floats(self) -> tuple[float, ...]:
        return self.constant[:-1]

    def numbers(self) -> tuple[int, ...]:
        return (int(self.constant[-1]),)

    def unload(self) -> None:
        assert self.state is not None
        for env, state, over in zip(self._envs, self.state.T, self.places.tolist(), strict=True):
            env.state, env.steps_beyond_terminated = state.copy(), 0 if over else None  # type: ignore[attr-defined]


class Pendulum(Classic):
    code = "pendulum"
    module, owner = "gymnasium.envs.classic_control.pendulum", "PendulumEnv"
    written_from = ("b9ac5c3d0823",)
    names = ("max_speed", "max_torque", "dt", "g", "m", "l")
    actions = (np.dtype(np.float32), np.dtype(np.float64))
    bounds = (-pi, pi, -1.0, 1.0)
    shape, summed = (3,), np.float64
    kinds = (None, np.float32, np.float64)
    divisors, positive = ("m", "l"), ("max_speed", "max_torque")

    @classmethod
    def strange_state(cls, env: Any) -> str | None:
        if type(env.last_u) not in (type(None), np.float32, np.float64):
            return f"its last torque is {env.last_u!r}"
        return super().strange_state(env)

    def load(self) -> None:
        envs: Any = self._envs
        pairs = np.array([env.state for env in envs])
        torques = [env.last_u for env in envs]
        self.state = np.array([*pairs.T, [0.0 if torque is None else torque for torque in torques]])
        self.places = np.array([0 if torque is None else self.kinds.index(type(torque)) for torque in torques], np.uint8)

    def floats(self) -> tuple[float, ...]:
        max_speed, max_torque, dt, g, m, length = self.constant
        return max_speed, max_torque, dt, 3 * g / (2 * length), 3.0 / (m * length**2), np.pi

    def unload(self) -> None:
        assert self.state is not None
        for env, theta, speed, torque, place in zip(self._envs, *self.state, self.places.tolist(), strict=True):
            kind = self.kinds[place]
            env.state, env.last_u = np.array([theta, speed]), kind and kind(torque)


class MountainCar(Classic):
    code = "car"
    module, owner = "gymnasium.envs.classic_control.mountain_car", "MountainCarEnv"
    written_from = ("c27baadce401",)
    names = ("min_position", "max_position", "max_speed", "goal_position", "goal_velocity", "force", "gravity")
    bounds = (-0.6, -0.4)
    shape, choices = (2,), 3
    positive = ("max_speed",)

    @classmethod
    def senseless(cls, env: Any) -> str | None:
        return crossed(env) or super().senseless(env)

    @classmethod
    def strange_state(cls, env: Any) -> str | None:
        if type(env.state) is tuple and tuple(map(type, env.state)) in ((np.float64, np.float64), (np.float64, int)):
            near = all(-cls.farthest <= number <= cls.farthest for number in env.state)
            return None if near else f"its state is {env.state!r}"
        return super().strange_state(env)

    def load(self) -> None:
        envs: Any = self._envs
        self.state = np.array([env.state for env in envs]).T.copy()
        kinds = [AN_ARRAY if type(env.state) is np.ndarray else STOPPED if type(env.state[1]) is int else PAIR for env in envs]
        self.places = np.array(kinds, np.uint8)

    def floats(self) -> tuple[float, ...]:
        return self.constant

    def unload(self) -> None:
        assert self.state is not None
        for env, state, kind in zip(self._envs, self.state.T, self.places.tolist(), strict=True):
            given = state.copy() if kind == AN_ARRAY else (state[0], 0 if kind == STOPPED else state[1])
            env.state = given  # type: ignore[attr-defined]


class MountainCarContinuous(Classic):
    code = "engine"
    module, owner = "gymnasium.envs.classic_control.continuous_mountain_car", "Continuous_MountainCarEnv"
    written_from = ("e1e7ed2781c9",)
    names = ("min_position", "max_position", "max_speed", "goal_position", "goal_velocity", "power")
    actions = (np.dtype(np.float32),)
    bounds = (-0.6, -0.4)
    shape, dtypes = (2,), (np.float32, np.float64)
    positive = ("max_speed",)

    @classmethod
    def senseless(cls, env: Any) -> str | None:
        if (env.min_action, env.max_action) != (-1.0, 1.0):
            return "its actions have other bounds"
        return crossed(env) or super().senseless(env)

    def load(self) -> None:
        envs: Any = self._envs
        self.state = np.array([env.state for env in envs], np.float64).T.copy()
        self.places = np.array([AN_ARRAY if env.state.dtype == np.float64 else PAIR for env in envs], np.uint8)

    def floats(self) -> tuple[float, ...]:
        return self.constant

    def unload(self) -> None:
        assert self.state is not None
        for env, state, kind in zip(self._envs, self.state.T, self.places.tolist(), strict=True):
            env.state = state.astype(np.float64 if kind == AN_ARRAY else np.float32)  # type: ignore[attr-defined]


def crossed(env: Any) -> str | None:
    """Complain of bounds of which the lower one is above the upper one."""
    return f"its min_position is {env.min_position!r}" if env.min_position > env.max_position else None


class Acrobot(Classic):
    code = "acrobot"
    module, owner = "gymnasium.envs.classic_control.acrobot", "AcrobotEnv"
    written_from = ("044683f9d03f",)
    names = (
        "LINK_MASS_1", "LINK_MASS_2", "LINK_LENGTH_1", "LINK_COM_POS_1", "LINK_COM_POS_2", "LINK_MOI", "dt", "MAX_VEL_1",
        "MAX_VEL_2",
    )  # fmt: skip
    bounds = (-0.1, 0.1)
    shape, choices, length, dtypes = (6,), 3, 4, (np.float32, np.float64)
    divisors, positive = ("LINK_MOI",), ("LINK_MASS_1", "LINK_MASS_2", "LINK_MOI")

    @classmethod
    def constants(cls, env: Any) -> tuple[Any, ...]:
        return (*super().constants(env), env.book_or_nips)

    @classmethod
    def senseless(cls, env: Any) -> str | None:
        for name, usual in (("AVAIL_TORQUE", [-1.0, 0.0, 1.0]), ("torque_noise_max", 0.0)):
            if getattr(env, name) != usual:
                return f"its {name} is {getattr(env, name)!r}"
        return super().senseless(env)

    def load(self) -> None:
        from reactor_gymnasium.native import _kernels

        envs: Any = self._envs
        self.state = np.array([env.state for env in envs], np.float64)
        self.places = np.array([AN_ARRAY if env.state.dtype == np.float32 else PAIR for env in envs], np.uint8)
        self.work = np.zeros(_kernels.ACROBOT_WORK * len(envs))

    def floats(self) -> tuple[float, ...]:
        m1, m2, l1, lc1, lc2, moi, dt, fast1, fast2, _ = self.constant
        g = 9.8
        return (
            m1 * lc1**2, l1**2 + lc2**2, 2 * l1 * lc2, m2, moi, lc2**2, l1 * lc2, m2 * lc2 * g, -m2 * l1 * lc2, 2 * m2 * l1 * lc2,
            (m1 * lc1 + m2 * l1) * g, m2 * l1 * lc2, m2 * lc2**2, dt, fast1, fast2, pi,
        )  # fmt: skip

    def numbers(self) -> tuple[int, ...]:
        return (int(self.constant[-1] == "nips"),)

    def unload(self) -> None:
        assert self.state is not None
        for env, state, kind in zip(self._envs, self.state, self.places.tolist(), strict=True):
            env.state = state.astype(np.float32 if kind == AN_ARRAY else np.float64)  # type: ignore[attr-defined]
