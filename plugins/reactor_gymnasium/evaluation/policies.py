"""Policies as an evaluation asks them: in batches of one size, with noise that belongs to an episode's step."""

from __future__ import annotations

import inspect
import math
import random
import reprlib
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from reactor_gymnasium.environments.owning import own
from reactor_gymnasium.evaluation.contents import generators_of, seeded
from reactor_rl.plugin import NoiseKind, draw_rows, global_random_state

__all__ = [
    "AskedPolicy",
    "BoundPolicy",
    "PolicyNoise",
    "PolicyContext",
    "PredictPolicy",
    "Seeded",
    "PolicyCall",
    "adapted",
    "counted",
    "draws_of",
    "has_masks",
    "is_plain",
    "masks_of",
]

Array = npt.NDArray[Any]

GROUP = "reactor_gymnasium.policies"
"""Entry points of plugins that know how to ask the policies of their library; named after the package of those."""


class PolicyNoise(NamedTuple):
    """Random numbers that a policy needs for an action.

    Attributes:
        kind: A kind of :func:`~reactor_rl.plugin.draw_rows`, ``width`` numbers for each row; ``"generator"`` for the generator.
        width: How many.
    """

    kind: NoiseKind | Literal["generator"]
    width: int = 1


def draws_of(noise: PolicyNoise | None, generators: Sequence[np.random.Generator | None]) -> Any:
    """The random numbers that a policy is given, see :class:`Turn`.

    Args:
        noise: What it needs.
        generators: Of each row; of those that take nothing from one, ``None``.
    """
    if noise is None:
        return None
    if noise.kind == "generator":
        return [np.random.default_rng(0) if one is None else one for one in generators]
    return draw_rows(noise.kind, generators, (len(generators), noise.width))


class PolicyCall:
    """The moment at which a policy is asked: everything besides observations.

    Attributes:
        noise: ``(rows, width)``; a list of generators; or ``None``.
        memory: What the policy keeps of each row's episode, ``None`` at its beginning; to be replaced by the policy.
        masks: Which choices are allowed, ``(rows, choices)``, bool; ``None`` if nobody has asked.
        starts: Whether it is the beginning of each row's episode, ``(rows,)``, bool; ``None`` if it is for all.
    """

    __slots__ = ("masks", "memory", "noise", "starts")

    def __init__(self, noise: Any, memory: list[Any], masks: Array | None = None, starts: Array | None = None) -> None:
        self.noise, self.memory, self.masks, self.starts = noise, memory, masks, starts


BoundPolicy = Callable[[PolicyCall], Any]
"""Reads the observations that it was bound to, and returns an action for each row."""


@dataclass(frozen=True)
class PolicyContext:
    """The spaces that a policy is to act in.

    Attributes:
        observation_space: Of one environment.
        action_space: Likewise.
        deterministic: Whether it takes its best action, or draws one.
    """

    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    deterministic: bool


class AskedPolicy(ABC):
    """A policy as episodes ask it. Where it is asked in workers, each has a copy.

    Attributes:
        by_row: Whether an answer depends on its own row alone, to the last bit, by construction. Then any number of rows is asked.
        in_workers: Whether workers ask copies of it; else the caller asks it.
        noise: What it needs to draw an action.
        single: Whether one row is asked at a time, whatever ``batch_size`` says.
        masked: Whether it is told which choices are allowed, by the environments' ``action_masks()``.
        named: What it is called in messages.
        asks: The user's objects that it asks, so that one can see whether they change when they are asked.
        remedies: What whoever wrote it may do if it remembers earlier calls, or draws from a generator of its own.
    """

    by_row = False
    in_workers = False
    noise: PolicyNoise | None = None
    single = False
    masked = False
    named = ""
    asks: Sequence[Any] = ()
    remedies = (
        "Return what it remembers from predict(observations, state=...), which gets it back at the next step of the same episode; "
        "draw from the generators that a function gets by its parameter random; put a policy of LeRobot's into a LeRobotPolicy"
    )

    @abstractmethod
    def bind(self, observations: Any, rows: int) -> BoundPolicy:
        """Be asked about observations that are always in the same memory.

        Args:
            observations: Batched as Gymnasium batches them: arrays ``(rows, ...)``, in dicts and tuples.
            rows: How many.
        """

    def raw(self, observations: Any, rows: int) -> Callable[[PolicyCall], Any]:
        """Likewise, but for what actions are chosen by, in which a difference in the last bit can be seen."""
        return self.bind(observations, rows)

    def digest(self) -> str | None:
        """A hash of what it has learned, ``None`` if that cannot be told."""
        return None

    def held(self) -> Sequence[Any]:
        """Return :attr:`asks`, or what it asks now."""
        return self.asks

    def without_masks(self, env: Any) -> None:
        """Learn that an environment has no ``action_masks()``.

        Raises:
            ValueError: If the policy needs masks.
        """
        self.masked = False


Adapter = Callable[[Any, PolicyContext], AskedPolicy | None]
"""The kind of function that an entry point of :data:`GROUP` names. It gives the policy as it is asked, or ``None`` if it is not for
this plugin, and raises ``ValueError`` if it does not fit the environment."""


def adapted(policy: Any, context: PolicyContext) -> AskedPolicy:
    """A policy of any kind as it is asked.

    Args:
        policy: A model or policy of a library that a plugin knows, an object with ``predict``, or a function of a batch of
            observations.
        context: What it is to act in.

    Raises:
        TypeError: If it is something else.
        ValueError: If it does not fit the environment.
    """
    if isinstance(policy, AskedPolicy):
        return policy
    if isinstance(policy, type):
        raise TypeError(f"the policy is the class {policy.__name__}; pass an object of it")
    packages = {cls.__module__.partition(".")[0] for cls in type(policy).__mro__}
    # Plain functions are no library's: there is no need to read the list of all that is installed.
    for entry in sorted(entry_points(group=GROUP) if packages != {"builtins"} else (), key=lambda entry: entry.name):
        if entry.name in packages:
            adapter: Adapter = entry.load()
            found = adapter(policy, context)
            if found is not None:
                return found
    if callable(getattr(policy, "predict", None)):
        return PredictPolicy(policy, context)
    if callable(policy):
        return FunctionPolicy(policy, context)
    raise TypeError(
        f"policy must be a function of a batch of observations, an object with predict(), or a model of Stable-Baselines3 or "
        f"torch, got {policy!r}"
    )


# ---------------------------------------------------------------------- functions, and objects with predict


class FunctionPolicy(AskedPolicy):
    """A function of a batch of observations, and of generators for the rows if it has a parameter ``random``."""

    def __init__(self, function: Callable[..., Any], context: PolicyContext) -> None:
        self.function, self.context, self.asks = function, context, (function,)
        self.named = getattr(function, "__name__", type(function).__name__)
        if "random" in _parameters(function):
            self.noise = PolicyNoise("generator")

    def bind(self, observations: Any, rows: int) -> BoundPolicy:
        function, random_too, space = self.function, self.noise is not None, self.context.action_space

        def ask(turn: PolicyCall) -> Any:
            given = own(observations)  # it may keep it, or change it
            return counted(function(given, random=turn.noise) if random_too else function(given), rows, space, self.named)

        return ask


class PredictPolicy(AskedPolicy):
    """An object with ``predict``, which returns actions, or actions and a state."""

    def __init__(self, policy: Any, context: PolicyContext) -> None:
        self.policy, self.context, self.asks, self.named = policy, context, (policy,), f"{type(policy).__name__}.predict"
        known = _parameters(policy.predict)
        self.fixed = {"deterministic": context.deterministic} if "deterministic" in known else {}
        self.stateful, self.starts, self.masked = "state" in known, "episode_start" in known, "action_masks" in known

    def bind(self, observations: Any, rows: int) -> BoundPolicy:
        predict, space, fixed, named = self.policy.predict, self.context.action_space, self.fixed, self.named

        def ask(turn: PolicyCall) -> Any:
            more: dict[str, Any] = dict(fixed)
            if self.stateful:
                more["state"] = turn.memory[0] if rows == 1 else None
            if self.starts:
                more["episode_start"] = np.ones(rows, np.bool_) if turn.starts is None else turn.starts.copy()
            if self.masked:
                more["action_masks"] = turn.masks
            given = predict(own(observations), **more)
            actions, state = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
            if state is not None:
                turn.memory[:] = [state] * rows
            return counted(actions, rows, space, named)

        return ask


_generators = threading.RLock()
"""The threads of a process share its generators."""


class Seeded(AskedPolicy):
    """A policy that draws from the generators of the process, or its own: they are seeded by episode and step before it is asked.

    Args:
        policy: The policy.
        own: Whether it has generators of its own.
    """

    noise = PolicyNoise("generator")
    single = True

    def __init__(self, policy: AskedPolicy, own: bool = False) -> None:
        self.policy, self.in_workers, self.masked, self.own = policy, policy.in_workers, policy.masked, own
        self.named, self.remedies = policy.named, policy.remedies

    def bind(self, observations: Any, rows: int) -> BoundPolicy:
        ask, needed = self.policy.bind(observations, rows), self.policy.noise
        reached = generators_of(*self.policy.held()) if self.own else ()

        def drawing(turn: PolicyCall) -> Any:
            generators = turn.noise
            word = int(generators[0].integers(2**32))
            inner = PolicyCall(draws_of(needed, generators), turn.memory, turn.masks, turn.starts)
            with _generators, global_random_state(), seeded(reached, word):
                _seed_process(word)
                return ask(inner)

        return drawing

    def digest(self) -> str | None:
        return self.policy.digest()

    def held(self) -> Sequence[Any]:
        return self.policy.held()


def _seed_process(word: int) -> None:
    """Seed the generators of the process.

    Those of accelerators only where one is in use: for one that is not, ``torch.manual_seed`` formats the stack each time, which
    takes longer than all else, and leaves a seed for the day when it is.
    """
    random.seed(word)
    np.random.seed(word)
    torch = sys.modules.get("torch")
    if torch is not None:
        accelerated = torch.cuda.is_initialized() or torch.xpu.is_initialized() or torch.backends.mps.is_available()
        (torch.manual_seed if accelerated else torch.default_generator.manual_seed)(word)


def _parameters(function: Callable[..., Any]) -> Sequence[str]:
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # some of C's have none
        return ()


# ---------------------------------------------------------------------- what they are told, and what they return

MASKS = "action_masks"
"""Method of environments, as sb3-contrib has it, and argument of ``predict``."""


def has_masks(env: Any) -> bool:
    """Whether an environment, or a wrapper around it, says which choices are allowed."""
    try:
        return callable(env.get_wrapper_attr(MASKS))
    except AttributeError:
        return False


def masks_of(env: Any) -> Array:
    """Which choices an environment allows now, ``(choices,)``, bool.

    Raises:
        AttributeError: If it does not say.
    """
    return np.array(env.get_wrapper_attr(MASKS)(), np.bool_).ravel()


def is_plain(space: gymnasium.Space[Any]) -> bool:
    """Whether a batch of actions is one array."""
    return isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary)


def counted(actions: Any, rows: int, space: gymnasium.Space[Any], named: str) -> Any:
    """Actions, if there is one for each row: an array where the space is one of arrays and they have one dtype, else a list.

    What one row's action is does not depend on the others: numbers in a list have the dtypes that they have by themselves.

    Args:
        actions: What a policy has returned.
        rows: How many observations it was asked about.
        space: Of one action.
        named: The policy, for messages.

    Raises:
        ValueError: If they are of another shape or kind, not finite, or outside of a ``Discrete`` space.
    """
    if not is_plain(space):
        return _checked_objects(actions, rows, space, named)
    if hasattr(actions, "detach"):
        actions = actions.detach().cpu()
    wanted = (rows, *(space.shape or ()))
    try:
        if isinstance(actions, list | tuple) and len(actions) == rows and all(one is not None for one in actions):
            each = [_numbers(one, space) for one in actions]
            mixed = len({(one.dtype, one.shape) for one in each}) > 1
            arrays = [one[None] for one in each] if mixed else [np.stack(each)]
        else:
            mixed, arrays = False, [_numbers(actions, space)]
    except (ValueError, TypeError) as error:
        raise _refused(actions, rows, space, named) from error
    for array in arrays:
        _check_numbers(array, actions, (1, *wanted[1:]) if mixed else wanted, rows, space, named)
    return [array[0] for array in arrays] if mixed else arrays[0]


def _numbers(actions: Any, space: gymnasium.Space[Any]) -> Array:
    """Convert actions to an array; whole numbers for a space of floats get the dtype that Python's have beside fractions."""
    array = np.asarray(actions.detach().cpu() if hasattr(actions, "detach") else actions)
    floats = np.dtype(space.dtype).kind == "f" and array.dtype.kind in "biu"
    return array.astype(np.float64) if floats else array


def _check_numbers(array: Array, actions: Any, wanted: tuple[int, ...], rows: int, space: gymnasium.Space[Any], named: str) -> None:
    """Refuse an array that does not hold actions."""
    if array.dtype.kind not in "biuf":
        raise _refused(actions, rows, space, named, f" of dtype {array.dtype}")
    if array.shape != wanted:
        raise ValueError(
            f"the policy {named} returned actions of shape {array.shape} for {rows} observations; actions of {space} have the "
            f"shape {wanted}"
        )
    kind, dtype = array.dtype.kind, np.dtype(space.dtype)
    # The sum of squares first: that takes half the time.
    if kind == "f" and not math.isfinite(np.vdot(array, array)) and not np.isfinite(array).all():
        raise ValueError(f"the policy {named} returned the actions {array.tolist()}, of which some are not finite numbers")
    if dtype.kind in "iub" and kind == "f":
        raise ValueError(f"the policy {named} returned actions of dtype {array.dtype}; {space} has {dtype}")
    if isinstance(space, spaces.Discrete) and not ((array >= space.start) & (array < space.start + space.n)).all():
        raise ValueError(f"the policy {named} returned the actions {array.tolist()}, of which some are not in {space}")


def _refused(actions: Any, rows: int, space: gymnasium.Space[Any], named: str, what: str = "") -> ValueError:
    return ValueError(
        f"the policy {named} returned {reprlib.repr(actions)}{what} for {rows} observations; it must return as many actions of "
        f"{space}, each of the shape {space.shape or ()}"
    )


def _checked_objects(actions: Any, rows: int, space: gymnasium.Space[Any], named: str) -> list[Any]:
    """Actions of a space that is not one of arrays."""
    if not isinstance(actions, list | tuple) or len(actions) != rows:
        raise ValueError(f"the policy {named} must return a list of {rows} actions of {space}, got {reprlib.repr(actions)}")
    for action in actions:
        alike = action is not None
        if isinstance(space, spaces.Dict):
            alike = isinstance(action, Mapping) and set(action) == set(space.spaces)
        elif isinstance(space, spaces.Tuple):
            alike = isinstance(action, tuple | list | np.ndarray) and len(action) == len(space.spaces)
        if not alike:
            raise ValueError(f"the policy {named} returned {reprlib.repr(action)} among its actions, which is not one of {space}")
    return list(actions)
