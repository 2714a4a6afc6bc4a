"""Kernels: all rows of a block, taken over from Python environments, and given back before anybody looks at those."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode

from reactor_gymnasium.environments.infos import Group, by_row
from reactor_gymnasium.environments.owning import looked_at, shared
from reactor_rl.plugin import Code, code_of

__all__ = [
    "GENERATOR",
    "REFUSED",
    "ROOTS",
    "BlockKernel",
    "StandsFor",
    "Taken",
    "error_state",
    "found_by_name",
    "name_of",
    "reseeded",
]

Array = npt.NDArray[Any]
Env = gymnasium.Env[Any, Any]

REFUSED = -1
"""The answer of a kernel if Python has to take a step."""

ROOTS = ("step", "reset")
"""The methods that are done otherwise."""
GENERATOR = frozenset({"_np_random", "_np_random_seed"})
"""Attributes that ``reset`` writes in any environment."""


@dataclass
class Taken:
    """A block's knowledge of its rows, besides their environments.

    Attributes:
        envs: The environments, without wrappers.
        left: Steps until the time limit truncates each one's episode.
        limits: That of a new episode.
        pending: Whether the next step resets it.
        observations: What it shows.
        mode: When that happens: ``DISABLED`` if somebody else does it.
    """

    envs: Sequence[Env]
    left: Sequence[int]
    limits: Sequence[int]
    pending: Sequence[int]
    observations: Sequence[Any]
    mode: AutoresetMode


class StandsFor(ABC):
    """The work of a class's methods, done otherwise."""

    module: ClassVar[str]
    """Module of the class."""
    owner: ClassVar[str]
    """Name of the class."""
    written_from: ClassVar[tuple[str, ...]]
    """Fingerprints of the code that it was written from: of all that ``step`` and ``reset`` come to, in releases that differ."""

    @classmethod
    def original(cls) -> type:
        """Return the class."""
        kind: type = getattr(import_module(cls.module), cls.owner)
        return kind

    @classmethod
    def comes_to(cls) -> Code:
        """Find all that the class's methods come to."""
        return code_of(cls.original(), ROOTS)


class BlockKernel(StandsFor):
    """Rows that are stepped together in the place of their environments, whose generators they draw from.

    Args:
        taken: The rows; each fits, and :meth:`constants` of all are equal.

    Attributes:
        observations: What each row shows, ``(n, ...)``; likewise ``rewards``, ``terminated`` and ``truncated``.
        was_reset: Which rows the last step has reset.
        left: Steps until the time limit truncates each row's episode.
        pending: Which rows the next step resets.
    """

    title: ClassVar[str]
    """Its name, for people."""
    parts: ClassVar[tuple[str, ...]] = ()
    """Attributes that steps or resets depend on, and that can be changed from outside."""
    actions: ClassVar[tuple[np.dtype[Any], ...]] = (np.dtype(np.int64),)
    """The dtypes of actions that it knows."""
    summed: ClassVar[type[float]] = float
    """The type of a sum of its environment's rewards."""

    paid: ClassVar[type | None] = None
    """The type of its environment's rewards, as the comparison with Python has found it; ``None`` if there are several."""
    keeps: ClassVar[bool] = False
    """Whether its environment keeps the array that it shows, likewise."""
    compared: ClassVar[tuple[int, int]] = (60, 3)
    """For how many steps, and with how many rows, it is compared with Python once a process; for none if it sees to that itself."""
    timed_rows: ClassVar[int] = 64
    """How many rows are stepped together to find out what one costs."""

    judged: ClassVar[bool] = False
    """Whether it may take longer than Python, where there are few rows."""

    observations: Array
    kind: tuple[np.dtype[Any], tuple[int, ...]]
    """Dtype and shape of ``observations``."""
    rewards: Array
    terminated: Array
    truncated: Array
    was_reset: Array
    left: Array
    pending: Array
    failures: Sequence[tuple[int, Exception]] = ()
    """Rows that could not be stepped in the last step, and why; the others were."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.title = cls.__name__

    # ------------------------------------------------------------------ what fits

    @classmethod
    def of(cls, kind: type) -> type[BlockKernel]:
        """The kernel for environments of a class that it was registered for."""
        return cls

    @classmethod
    def unfit(cls, env: Env) -> str | None:
        """Why it does not fit an environment of its class as it was made, whatever its state; ``None`` if it does."""
        if env.render_mode == "human":
            return "it is rendered for a human at every step"
        if own := vars(env).keys() & cls.comes_to().methods:
            return f"it has a {min(own)} of its own"
        return cls.strange(env)

    @classmethod
    def misfit(cls, env: Env) -> str | None:
        """Why it does not fit an environment of its class as it is now, ``None`` if it does."""
        if why := cls.unfit(env):
            return why
        generator = vars(env).get("_np_random")
        if type(generator) is not np.random.Generator:
            return "it was not reset" if generator is None else "its random generator is not numpy's"
        return cls.strange_state(env)

    @classmethod
    @abstractmethod
    def strange(cls, env: Env) -> str | None:
        """The part of an environment that is not as Gymnasium makes it, ``None`` if all is; it may be one that was never reset."""

    @classmethod
    def strange_state(cls, env: Env) -> str | None:
        """The part of its state that is not as its own steps and resets leave it, ``None`` if all is."""
        return None

    @classmethod
    def shared(cls, env: Any) -> str | None:
        """The part of an environment that somebody else refers to, and may look at or change; ``None`` if nobody does."""
        if looked_at(env):
            return "somebody else may look at its attributes"
        if shared(map(vars(env).get, cls.parts)):
            name = next(name for name in cls.parts if shared(map(vars(env).get, (name,))))
            return f"somebody else refers to its {name}"
        return None

    @classmethod
    def strange_constants(cls, env: Env) -> str | None:
        """The same of what all rows have in common; asked of the first one only."""
        return None

    @classmethod
    def remark(cls) -> str:
        """Tell users something more where it steps environments, after its name."""
        return ""

    @classmethod
    def unavailable(cls) -> str | None:
        """Why it cannot be used at all, ``None`` if it can."""
        return None

    @classmethod
    def state_of(cls, env: Env) -> dict[str, Any]:
        """All that steps and resets write in an environment, besides its random generator."""
        return {name: getattr(env, name) for name in sorted(cls.comes_to().written - GENERATOR)}

    @classmethod
    def make(cls, n: int) -> list[Any]:
        """Environments to compare it with."""
        return [cls.original()() for _ in range(n)]

    @classmethod
    def draw(cls, env: Env, random: np.random.Generator, n: int) -> Array:
        """Actions to compare it with."""
        space: Any = env.action_space
        if cls.actions[0].kind == "i":
            return random.integers(0, space.n, n)
        return random.uniform(space.low * 1.3, space.high * 1.3, (n, *space.shape)).astype(cls.actions[0])

    @classmethod
    @abstractmethod
    def constants(cls, env: Env) -> tuple[Any, ...]:
        """Everything that rows must have in common."""

    # ------------------------------------------------------------------ steps

    @abstractmethod
    def __init__(self, taken: Taken) -> None: ...

    @abstractmethod
    def step(self, actions: Array, shown: Array | None, led_to: Array | None) -> int:
        """Step all rows.

        Args:
            actions: ``(n, ...)``, of a dtype that the kernel knows.
            shown: Where to write what is seen afterwards, like ``observations``; ``None`` for nowhere.
            led_to: Where to write what the step led to, before a reset, likewise.

        Returns:
            How many rows ended or were reset; ``REFUSED`` if nothing has happened, and Python has to take this step.
        """

    @abstractmethod
    def final(self, row: int) -> Any:
        """The last observation of an episode, if its row was reset in the same step: a copy, of the environment's own type."""

    def infos(self) -> list[Group]:
        """The infos of the last step, of those rows that have one; new arrays each time."""
        return []

    def final_info(self, row: int) -> dict[str, Any]:
        """The last info of an episode, if its row was reset in the same step."""
        return {}

    def own(self, observation: Any) -> Any:
        """A copy of what a row shows, of its environment's own type."""
        return observation.copy()

    def infos_by_row(self) -> dict[int, dict[str, Any]]:
        """The infos of the last step as environments give them, by row."""
        return by_row(self.infos())

    def reset(self, seeds: dict[int, dict[str, Any]]) -> None:
        """Reset some rows, as environments are reset at the end of an episode.

        Args:
            seeds: By row the arguments of ``reset()``: nothing, or a ``seed``.
        """
        raise NotImplementedError

    @abstractmethod
    def give_back(self) -> list[Any]:
        """Let the environments have what the rows have become. Returns what each shows, of its own type."""

    def rows(self) -> list[Any]:
        """The observation of each row: views."""
        shown = self.observations
        return list(shown) if shown.ndim > 1 else [shown[row : row + 1].reshape(()) for row in range(len(shown))]


def _found() -> Any:
    try:
        from numpy._core.umath import _extobj_contextvar
    except ImportError:  # before numpy 2
        return None
    return _extobj_contextvar


_errors = _found()  # its value is a new object whenever somebody sets it
_usual: Any = object()


def error_state() -> str | None:
    """Why no kernel may step now, if numpy is to tell of what happens within arithmetic; ``None`` if it tells as usual.

    As usual it warns of what a kernel's ordinary numbers do not bring about, and is silent where numbers become too small.
    """
    global _usual
    now = _errors.get() if _errors is not None else None
    if now is _usual:
        return None
    state: dict[str, Any] = dict(np.geterr().items())
    if state.pop("under") == "ignore" and set(state.values()) <= {"warn", "ignore"}:
        # Before numpy 2 there is nothing to be compared, and geterr() is asked each time.
        _usual = object() if now is None else now
        return None
    return "numpy is to tell of floating point errors (np.seterr)"


def name_of(kind: type) -> tuple[str, str]:
    """Module and name of a class."""
    return kind.__module__, kind.__qualname__


def found_by_name(kind: type) -> bool:
    """Whether a class is the one that its module has by that name."""
    return getattr(sys.modules.get(kind.__module__), kind.__qualname__, None) is kind


def reseeded(env: Env, seed: int) -> np.random.Generator:
    """A generator in the place of an environment's own, as its ``reset(seed=...)`` makes it."""
    generator: np.random.Generator
    generator, env._np_random_seed = seeding.np_random(seed)
    env._np_random = generator
    return generator
