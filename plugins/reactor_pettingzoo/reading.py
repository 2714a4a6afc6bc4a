"""Read what a PettingZoo environment returns: its agents, a reset, a step, rewards, infos, action masks.

All code that steps or inspects an environment uses these rules, so that all of it accepts and refuses the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence, Set
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import Space, spaces

from reactor_gymnasium.plugin import as_number

__all__ = [
    "MASK",
    "NUMBERS",
    "AgentID",
    "MaskReader",
    "agents_listed",
    "broken",
    "choices_of",
    "first_of",
    "info_of",
    "reset_with",
    "reward_number",
    "segments",
    "step_of",
]

Array = npt.NDArray[Any]
AgentID = Hashable
"""The id of an agent: a string as a rule, but anything hashable is allowed."""
Of = Mapping[AgentID, Any]
"""Something of each agent."""
Broken = Callable[[str], Exception]
"""The exception if an environment does not do as it should."""
MASK = "action_mask"
NUMBERS = frozenset({float, int, bool, np.float64, np.float32, np.int64, np.bool_})
"""Types of rewards that cannot change after they were returned: an array of one element may be the environment's own."""
STEP = ("observations", "rewards", "terminations", "truncations", "infos")


def broken(what: str) -> Exception:
    """The exception if an environment does not do as it should."""
    return ValueError(f"the environment breaks PettingZoo's API: {what}; pettingzoo.test.api_test and parallel_api_test say more")


# ---------------------------------------------------------------------- who is there


def agents_listed(names: Any, known: Mapping[AgentID, Any], broken: Broken, what: str = "env.agents") -> list[AgentID]:
    """The agents that an environment names, as a list: of a list, a tuple, an array, or what else has several.

    Args:
        names: What it names them by.
        known: The agents in their order, as far as they are known: that of a set depends on the process.
        broken: Makes the exception.
        what: What ``names`` is called.

    Raises:
        Exception: If it is nothing of the kind, or names one twice.
    """
    if type(names) is list:
        pass
    elif isinstance(names, np.ndarray):
        names = names.ravel().tolist()
    elif isinstance(names, str | bytes) or not isinstance(names, Collection):
        raise broken(f"{what} must be a list of agents, got {names!r} of type {type(names).__name__}")
    elif isinstance(names, Set):  # keys of a dict have an order, and are in it
        order = list(known)
        if not isinstance(names, type({}.keys())):
            names = sorted(names, key=lambda agent: (order.index(agent) if agent in known else len(order), _by_value(agent)))
    found: list[AgentID] = list(names)
    if len(set(found)) < len(found):
        twice = next(agent for agent in found if found.count(agent) > 1)
        raise broken(f"agent {twice!r} is more than once in {what} ({found})")
    return found


def _by_value(agent: AgentID) -> tuple[str, Any]:
    return (type(agent).__name__, agent) if isinstance(agent, str | int) else (type(agent).__name__, repr(agent))


# ---------------------------------------------------------------------- what is returned


def reset_with(env: Any, **kwargs: Any) -> Any:
    """Call ``env.reset()`` with only those arguments that were given, because it may not know the others.

    Raises:
        Exception: What it raises; with a note if it takes no seed, or no options.
    """
    given = {name: value for name, value in kwargs.items() if value is not None}
    try:
        return env.reset(**given)
    except TypeError as error:
        for name in given:
            if f"unexpected keyword argument {name!r}" in str(error):
                error.add_note(f"reset() must take {name}=: def reset(self, seed=None, options=None)")
        raise


def first_of(returned: Any, broken: Broken) -> tuple[Of, Of]:
    """The observations and infos that the reset of a ``ParallelEnv`` returned.

    Raises:
        Exception: If it returned something else, as the old API.
    """
    parts = _parts(returned)
    if parts is None or len(parts) != 2:
        raise broken(f"reset() must return (observations, infos), and it returned {_in_words(returned, parts)}")
    return _mapping(parts[0], "reset()", "observations", broken), _infos(parts[1], "reset()", broken)


def step_of(returned: Any, broken: Broken) -> tuple[Of, Of, Of, Of, Of]:
    """Observations, rewards, terminations, truncations and infos that the step of a ``ParallelEnv`` returned.

    Raises:
        Exception: If it returned something else, as the old API.
    """
    parts = _parts(returned)
    if parts is None or len(parts) != len(STEP):
        raise broken(f"step() must return ({', '.join(STEP)}), and it returned {_in_words(returned, parts)}")
    seen, paid, ends, cuts = [_mapping(part, "step()", name, broken) for part, name in zip(parts[:-1], STEP[:-1], strict=True)]
    return seen, paid, ends, cuts, _infos(parts[-1], "step()", broken)


def _parts(returned: Any) -> Sequence[Any] | None:
    """Convert what a call returned to a sequence; ``None`` if it is one thing instead, such as a dict of observations."""
    if isinstance(returned, Mapping | str | bytes | np.ndarray | Set) or not isinstance(returned, Iterable):
        return None
    return tuple(returned)


def _in_words(returned: Any, parts: Sequence[Any] | None) -> str:
    if returned is None:
        return "None"
    return f"one {type(returned).__name__}" if parts is None else f"{len(parts)} values"


def _mapping(given: Any, call: str, name: str, broken: Broken) -> Of:
    if isinstance(given, Mapping):
        return given
    raise broken(f"the {name} of {call} must be a dict by agent, got {given!r:.200} of type {type(given).__name__}")


def _infos(given: Any, call: str, broken: Broken) -> Of:
    return {} if given is None else _mapping(given, call, "infos", broken)


def info_of(agent: AgentID, infos: Mapping[AgentID, Any] | None, broken: Broken) -> dict[str, Any]:
    """The info of an agent, which may have none.

    Raises:
        Exception: If it is no dict.
    """
    info = infos.get(agent) if infos else None
    if type(info) is dict:
        return info
    if info is None or isinstance(info, Mapping):
        return dict(info or {})
    raise broken(f"the info of agent {agent!r} must be a dict, got {info!r:.200} of type {type(info).__name__}")


# ---------------------------------------------------------------------- what was paid


def reward_number(agent: AgentID, reward: Any) -> Any:
    """The reward of an agent as a number; of an array of one element that element.

    Raises:
        ValueError: If it is not one number.
    """
    try:
        number = as_number(reward)
    except ValueError:
        number = None
    if isinstance(number, float | int | np.floating | np.integer | np.bool_):
        return number
    if isinstance(number, Real):  # of other libraries
        return float(number)
    raise ValueError(f"the reward of agent {agent!r} must be a number, got {reward!r} of type {type(reward).__name__}")


# ---------------------------------------------------------------------- what is allowed


def choices_of(space: Space[Any]) -> tuple[int, ...]:
    """Among how many is chosen, for each part of an action; empty if masks cannot say which choices are allowed."""
    if isinstance(space, spaces.Discrete):
        return (int(space.n),)
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(space.nvec.ravel().tolist())
    return ()


def segments(choices: tuple[int, ...]) -> tuple[slice, ...]:
    """Where the choices of each part of an action are in its mask."""
    ends = np.cumsum((0, *choices)).tolist()
    return tuple(map(slice, ends[:-1], ends[1:]))


class MaskReader:
    """Reads action masks: for each choice whether it is allowed, which is whatever is not 0.

    Of a ``MultiDiscrete`` a mask is one for each part, or all of them in a row. An agent that acts together with others and has no
    legal action only waits: of a part with nothing but zeros the first choice stands for all, as in Gymnasium's ``sample(mask)``.
    """

    def __init__(self, space: Space[Any]) -> None:
        self.space, self.choices = space, choices_of(space)
        self.shape = (sum(self.choices),)
        self.parts = segments(self.choices) if len(self.choices) > 1 else ()

    def read(self, agent: AgentID, given: Any, waits: bool, out: Array | None = None) -> Array:
        """A mask, as bool.

        Args:
            agent: The agent.
            given: Its mask, as the environment gives it.
            waits: Whether it may have no legal action, as others act besides.
            out: Where the mask is written; ``None`` for a new array.

        Raises:
            ValueError: If that is no mask of these actions, or allows nothing to an agent that has to act.
        """
        if type(given) is not np.ndarray or given.shape != self.shape or given.dtype.kind not in "biu":
            given = self._numbers(agent, given)
        if out is None:
            out = given.astype(np.bool_)
        else:
            out[...] = given
        if self.parts:
            for part in self.parts:
                if not np.count_nonzero(out[part]):
                    out[part.start] = self._waits(agent, given, waits)
        elif not np.count_nonzero(out):
            out[0] = self._waits(agent, given, waits)
        return out

    def _waits(self, agent: AgentID, given: Array, waits: bool) -> bool:
        if waits:
            return True
        raise ValueError(
            f"agent {agent!r} has no legal action: it is its turn, and its action mask {given.tolist()} for {self.space} forbids "
            "every choice; an episode that has nothing left to do should have ended"
        )

    def _numbers(self, agent: AgentID, given: Any) -> Array:
        """A mask of another form as numbers in a row."""
        choices, (size,) = self.choices, self.shape
        if not choices:
            raise ValueError(
                f"agent {agent!r} has an action mask, and its actions are {self.space}: only those of Discrete and MultiDiscrete "
                f"spaces can be masked; leave {MASK!r} out, or wrap the environment so that the choices are discrete"
            )
        array = given if type(given) is np.ndarray else _in_a_row(given, choices)
        if array.dtype.kind == "O":
            array = _of_objects(array)
        if len(choices) > 1 and array.ndim > 1 and array.shape[-1] == choices[0] and array.size == size:
            array = array.reshape(size)  # parts of equal size
        if array.shape != (size,) or array.dtype.kind not in "biuf":
            wanted = f"an array of {size} numbers" if len(choices) == 1 else f"arrays of {list(choices)} numbers, or one of {size}"
            raise ValueError(
                f"the action mask of agent {agent!r} has shape {array.shape} and dtype {array.dtype} ({given!r:.200}); of "
                f"{self.space} it is {wanted}, not 0 where an action is legal"
            )
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise ValueError(f"the action mask of agent {agent!r} has NaN among its numbers: {array.tolist()}")
        return array


def _in_a_row(given: Any, choices: tuple[int, ...]) -> Array:
    """A mask as one array; of one for each part all of them in a row."""
    if len(choices) > 1 and isinstance(given, tuple | list) and any(map(_deep, given)):
        leaves = [np.asarray(leaf) for leaf in _leaves(given)]
        return np.concatenate(leaves) if tuple(leaf.size for leaf in leaves) == choices else np.asarray(None)
    try:
        return np.asarray(given)
    except ValueError:  # lists of unequal lengths
        return np.asarray(None)


def _deep(part: Any) -> bool:
    return isinstance(part, tuple | list) or getattr(part, "ndim", 0) > 0


def _leaves(parts: Any) -> list[Any]:
    """The masks of all parts of an action: of an array of parts they are nested."""
    return [leaf for part in parts for leaf in _leaves(part)] if any(map(_deep, parts)) else [parts]


def _of_objects(array: Array) -> Array:
    """Numbers and truth values that are objects, as an array of numbers; the same array if they are something else."""
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError):
        return array
