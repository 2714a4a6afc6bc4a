"""Checks of what the user passes, before anything is built or changes."""

from __future__ import annotations

import contextlib
import io
import operator
from collections.abc import Callable, Iterable, Sequence
from types import FrameType
from typing import Any, TypeVar

import cloudpickle
import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import Space, spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorWrapper
from gymnasium.vector.utils import batch_differing_spaces, batch_space

from reactor_gymnasium.environments.returned import check_made, explain_made
from reactor_gymnasium.evaluation.contents import changes, contents, only_added, only_written
from reactor_gymnasium.traces import no_traces
from reactor_rl import ProgramError
from reactor_rl.plugin import Pickled, checked_number, decode, dumps, encode, loads, warn_caller

__all__ = [
    "Bools",
    "EnvFn",
    "check_actions",
    "check_flags",
    "checked_makers",
    "check_travel",
    "checked_batch_size",
    "checked_mask",
    "checked_number",
    "checked_seed",
    "checked_seeds",
    "encode_makers",
    "kind_of",
    "observation_spaces",
    "one_seed",
    "refuse_wrapper",
    "without_mask",
    "make_probe",
    "MakerTrial",
]

Bools = npt.NDArray[np.bool_]
Env = TypeVar("Env")
EnvFn = Callable[[], gymnasium.Env[Any, Any]]


def checked_makers(makers: Any, owner: str, name: str = "env_fns") -> tuple[Callable[[], Any], ...]:
    """Return the functions that make environments, as a tuple.

    Args:
        makers: What the user has passed.
        owner: Name of the class that the user makes.
        name: Its parameter.

    Raises:
        ValueError: If there is nothing.
        TypeError: If it is not a sequence, or if one cannot be called.
    """
    if isinstance(makers, str) or not isinstance(makers, Iterable):
        raise TypeError(
            f"{name} must be a sequence of functions, one for each environment, got {makers!r}: "
            f"pass [{_maker_of(makers, name)}] * n{_by_id(makers, name)}"
        )
    found = tuple(makers)
    if not found:
        raise ValueError(f"{owner} needs at least one environment: {name} is empty")
    for index, env_fn in enumerate(found):
        if not callable(env_fn):
            raise TypeError(
                f"{name}[{index}] must be a function that makes a new environment, got {env_fn!r}: "
                f"pass {_maker_of(env_fn, name)}{_by_id(env_fn, name)}"
            )
    return found


def _maker_of(value: Any, name: str) -> str:
    """How a user would write a function that makes what there is in its place."""
    if isinstance(value, str | EnvSpec):
        made = getattr(value, "id", value)
        return f"lambda: gymnasium.make({made!r})" if name == "env_fns" else f"lambda: gymnasium.make_vec({made!r}, ...)"
    made = getattr(value, "__name__", "") if callable(value) else ""
    return made if made.isidentifier() else "lambda: MyEnv(...)"


def _by_id(value: Any, name: str) -> str:
    """The shorter way, where there is an id."""
    made = getattr(value, "id", value)
    return f", or use make_vec({made!r}, num_envs=n)" if isinstance(value, str | EnvSpec) and name == "env_fns" else ""


def check_flags(**flags: Any) -> None:
    """Refuse what is neither true nor false, by the name of the argument; ``None`` is left to who gives it a meaning.

    Raises:
        TypeError: Naming it.
    """
    for name, flag in flags.items():
        if flag is not None and not isinstance(flag, bool | np.bool_) and flag not in (0, 1):
            raise TypeError(f"{name} must be True or False, got {flag!r}")


def checked_batch_size(batch_size: int | None, num_envs: int) -> int:
    """How many environments step together.

    Raises:
        ValueError: If the environments cannot be divided into batches of that size.
    """
    if batch_size is None:
        return num_envs
    if isinstance(batch_size, bool) or not isinstance(batch_size, (int, np.integer)) or batch_size < 1 or num_envs % batch_size:
        raise ValueError(
            f"batch_size={batch_size!r}: the {num_envs} environments are divided into equal batches that take turns, so it must be "
            f"a divisor of {num_envs} (num_envs // 2 for two batches)"
        )
    return int(batch_size)


def encode_makers(env_fns: tuple[Callable[[], Any], ...]) -> list[Any]:
    """The functions, each pickled by itself. One that cannot be pickled is left as it is: with ``fork`` it can do without."""
    kept: dict[int, Any] = {}
    for env_fn in env_fns:
        if id(env_fn) not in kept:
            try:
                kept[id(env_fn)] = encode(env_fn)
            except Exception:
                kept[id(env_fn)] = env_fn
    return [kept[id(env_fn)] for env_fn in env_fns]


def kind_of(encoded: Any) -> Any:
    """The same for functions of which there are equal pickles; see :func:`encode_makers`."""
    return encoded.data if type(encoded) is Pickled else id(encoded)


def check_travel(
    env_fns: tuple[Callable[[], Any], ...], encoded: Sequence[Any], owner: str, option: str, name: str = "env_fns"
) -> None:
    """Refuse functions that cannot be pickled, where there is nothing but a pickle to hand them over by.

    Args:
        env_fns: What the user has passed.
        encoded: The same, see :func:`encode_makers`.
        owner: Name of the class that the user makes.
        option: Its parameter that says how processes start; ``""`` if none does without a pickle.
        name: Its parameter that the functions are.

    Raises:
        ProgramError: Naming the first one.
    """
    for index, (env_fn, kept) in enumerate(zip(env_fns, encoded, strict=True)):
        if type(kept) is not Pickled:
            try:
                encode(env_fn)
            except Exception as error:
                which = f"{name}[{index}]" if name.endswith("s") else name
                without = (
                    f'; or use {option}="fork", executor="processes" and workers=2 or more, which need no pickle (where processes '
                    "can be forked)"
                )
                raise ProgramError(
                    f"{which} of {owner} cannot be pickled ({type(error).__name__}: {error}), and every environment is "
                    "made from a pickle, so that none shares anything with another one or with you. Let the function make "
                    f"what it needs, inside of it, instead of holding it{without if option else ''}"
                ) from error


def make_probe(env_fn: Callable[[], Env], what: str = "environment 0") -> Env:
    """An environment that is only looked at and timed. A function may have a method for those, if they must leave no traces."""
    try:
        env: Env = getattr(env_fn, "throw_away", env_fn)()
        check_made(env)
        return env
    except Exception as error:
        explain_made(error)
        error.add_note(f"while {what} was constructed")
        raise


SHARED = 1 << 24
"""Bytes of functions that are compared at most. Two pickles are unpickled and compared for it; beyond 16 MB that takes longer than
it can be worth. Chosen.
"""


class _Contents(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles what objects contain. Classes are theirs who wrote them, and a space's generator is nobody's counter."""

    def persistent_id(self, obj: Any) -> str | None:
        if isinstance(obj, type):
            return f"{obj.__module__}.{obj.__qualname__}"
        return repr(obj) if isinstance(obj, Space) else None


def _contents(value: Any) -> bytes:
    file = io.BytesIO()
    _Contents(file, protocol=5).dump(value)
    return file.getvalue()


class MakerTrial:
    """One call of what makes environments, on a copy: nothing of the caller's is changed, and what a call changes is seen.

    Args:
        makers: What makes each environment.

    Attributes:
        maker: A copy of the first one; itself, if it cannot be pickled.
    """

    def __init__(self, makers: Sequence[Any]) -> None:
        self.maker: Any = makers[0]
        self._after: Any = None  # what makes another environment, next to the copy
        others = makers[1:]
        other = next((one for one in others if one is makers[0]), others[0] if others else None)
        with contextlib.suppress(Exception):
            self._data = data = dumps((makers[0], other))
            self.maker, after = loads(data)
            if other is not None and len(data) <= SHARED:
                self._before = _contents(after)
                if _contents(after) == self._before:
                    self._after = after

    def warn(self, name: str) -> None:
        """Warn if the call has changed what makes another environment: a counter, an iterator, a list that it takes from.

        Args:
            name: What the user calls the functions.
        """
        with contextlib.suppress(Exception):
            if self._after is None or _contents(self._after) == self._before or self._only_keeps():
                return
            warn_caller(
                f"calling {name}[0] changes what makes the next environment (a counter, an iterator, a list that it takes from), "
                "but every environment is made from a copy of its function as it is now, so that none depends on the others: they "
                f"all begin with the same state. Give each its own: {name}=[partial(make, number) for number in range(n)]"
            )

    def _only_keeps(self) -> bool:
        """Whether the call has kept what later ones take from there, as a cache does, or has noted what no code reads."""
        fresh, first = contents(loads(self._data)[1]), contents(self._after)
        if not only_added(fresh, first, only_written(changes(fresh, first)[0], self._after)):
            return False
        with no_traces():
            self.maker().close()
        again, drawn = changes(first, contents(self._after))
        return not drawn and only_written(again, self._after) >= {*again}


def observation_spaces(
    mode: Any, dummy: gymnasium.Env[Any, Any], encoded: Sequence[Any], batch_size: int
) -> tuple[Space[Any], Space[Any]]:
    """The batched observation space and the single one that ``observation_mode`` says.

    Args:
        mode: ``"same"``, ``"different"``, or both spaces.
        dummy: A throw-away instance of environment 0.
        encoded: What makes the environments, see :func:`encode_makers`; with ``"different"`` each makes one.
        batch_size: How many environments step together.
    """
    if isinstance(mode, tuple) and len(mode) == 2:
        if not isinstance(mode[0], Space) or not isinstance(mode[1], Space):
            raise TypeError(f"Expected both elements of observation_mode to be Spaces, got {type(mode[0])} and {type(mode[1])}")
        return mode
    if mode == "same":
        return batch_space(dummy.observation_space, batch_size), dummy.observation_space
    if mode == "different":
        every = [dummy.observation_space]
        for index, one in enumerate(encoded[1:], 1):
            env = make_probe(decode(one), f"environment {index}")
            every.append(env.observation_space)
            env.close()
        return batch_differing_spaces(every), every[0]
    raise ValueError(
        "Invalid `observation_mode`, expected: 'same' or 'different' or tuple of single and batch observation space, "
        f"actual got {mode}"
    )


_OF_ANY_ROWS = ("ArrayConversion", "ClipReward", "JaxToNumpy", "JaxToTorch", "NumpyToTorch", "TransformReward")
"""Gymnasium's wrappers of vector environments that keep nothing of a row, and do not care which rows a step is of."""


def refuse_wrapper(caller: FrameType | None) -> None:
    """Refuse to be reset by those of Gymnasium's wrappers that take a step for one of all environments, where they take turns.

    Args:
        caller: The frame that calls ``reset``, in the innermost wrapper if there are some.

    Raises:
        ValueError: Naming the wrapper.
    """
    while caller is not None and isinstance(wrapper := caller.f_locals.get("self"), VectorWrapper):
        kind = type(wrapper)
        if kind.__module__.startswith("gymnasium.") and kind.__name__ not in _OF_ANY_ROWS:
            raise ValueError(
                f"{kind.__name__} takes every step for one of all environments, and with batch_size they take turns: leave out "
                "batch_size, or put wrappers around the single environments (gymnasium.wrappers has nearly the same ones)"
            )
        caller = caller.f_back


def checked_mask(mask: Any, num_envs: int) -> Bools:
    if not isinstance(mask, np.ndarray):
        raise TypeError(f"`options['reset_mask']` must be a numpy array, got {type(mask)}")
    if mask.shape != (num_envs,):
        raise ValueError(f"`options['reset_mask']` must have shape `({num_envs},)`, got {mask.shape}")
    if mask.dtype != np.bool_:
        raise TypeError(f"`options['reset_mask']` must have `dtype=np.bool_`, got {mask.dtype}")
    if not np.any(mask):
        raise ValueError(
            f"`options['reset_mask']` must contain a boolean array with at least one True value, got reset_mask={mask}"
        )
    return mask


def checked_seed(seed: Any) -> int:
    """A seed as a whole number of Python's: what Gymnasium takes, and whole numbers of numpy's.

    Raises:
        TypeError: If it is something else.
        ValueError: If it is negative.
    """
    try:
        number = operator.index(seed)
    except TypeError:
        raise TypeError(f"a seed must be an integer, got {seed!r}") from None
    if number < 0:
        raise ValueError(f"a seed must be 0 or greater, got {number}")
    return number


def one_seed(seed: Any) -> bool:
    """Whether a seed is one for all, and not one for each; see :func:`checked_seed` for whether it is one at all."""
    return isinstance(seed, (str, bytes)) or not hasattr(seed, "__len__") or getattr(seed, "shape", None) == ()


def checked_seeds(seed: Any, num_envs: int) -> list[int | None]:
    """One seed for each environment: an int ``s`` stands for ``s, s + 1, ...``.

    Raises:
        ValueError: If there are not as many, or one is negative.
        TypeError: If one is not an integer.
    """
    if seed is None:
        return [None] * num_envs
    if one_seed(seed):
        first = checked_seed(seed)
        return [first + i for i in range(num_envs)]
    if len(seed) != num_envs:
        raise ValueError(f"If seeds are passed as a list the length must match num_envs={num_envs} but got length={len(seed)}.")
    return [None if one is None else checked_seed(one) for one in seed]


def without_mask(options: dict[str, Any]) -> dict[str, Any]:
    """The options that environments are given, for ``reset_mask`` is not theirs; the caller's dict is left alone."""
    return {name: value for name, value in options.items() if name != "reset_mask"}


def check_actions(actions: npt.NDArray[Any], space: Space[Any], num_envs: int) -> None:
    """Refuse an array of actions that cannot be a batch of ``num_envs`` actions of an array-like space.

    Floats for whole numbers are refused of choices only: SB3's algorithms send them for boxes and for binary actions, and what an
    environment makes of them is its own.

    Raises:
        ValueError: If the shape differs, or the dtype is of another kind.
    """
    assert space.shape is not None
    dtype = np.dtype(space.dtype)
    if actions.shape != (num_envs, *space.shape):
        raise ValueError(
            f"the actions have shape {actions.shape}; {num_envs} actions of {space} have shape {(num_envs, *space.shape)}"
        )
    numbers = "iu" if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)) else "biuf"
    alike = actions.dtype.kind in numbers and dtype.kind in "biuf"
    if not alike and not np.can_cast(actions.dtype, dtype, "same_kind") and actions.dtype != object:
        raise ValueError(f"the actions have dtype {actions.dtype}, which does not cast to {dtype} of {space}")
