"""Environments that are stepped one after the other, as anybody would write it down: what whoever steps them is held against."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode

IDLE = 2
NEXT, SAME, DISABLED = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED


class Told(NamedTuple):
    """What a step or a reset of one environment says, row by row: copies."""

    seen: Sequence[Any]
    rewards: Sequence[Any]
    ends: Sequence[tuple[bool, bool]]
    """Terminated, truncated."""
    infos: Sequence[dict[str, Any]]
    over: bool = False
    """Whether nothing is left to do but a reset."""
    batched: dict[str, Any] | None = None
    """Infos of all rows, where the environment puts them together itself."""
    columns: Mapping[str, Sequence[Any]] = {}


class Plain(ABC):
    """One environment in a plain loop; how many rows it has, how they act and what they are told is known to its class."""

    rows = 1

    def __init__(self, env: Any, number: int) -> None:
        self.env = env
        self.choices = deepcopy(env.action_space)  # others have the same one
        self.choices.seed(number)

    @abstractmethod
    def reset(self, **kwargs: Any) -> Told:
        """Begin an episode."""

    @abstractmethod
    def step(self, actions: Any) -> Told:
        """Take a step; ``actions`` of its rows."""

    @abstractmethod
    def draw(self) -> Any:
        """Actions of its rows."""

    @staticmethod
    def unfit(returned: Any) -> Any:
        """What its step returned, with observations that do not fit."""
        return unfit(returned[0]), *returned[1:]


class Single(Plain):
    """A Gymnasium environment."""

    def reset(self, **kwargs: Any) -> Told:
        seen, info = deepcopy(self.env.reset(**kwargs))
        return Told([seen], [0.0], [(False, False)], [info])

    def step(self, actions: Any) -> Told:
        seen, reward, terminated, truncated, info = deepcopy(self.env.step(actions[0]))
        ends = bool(terminated), bool(truncated)
        return Told([seen], [float(np.asarray(reward).item())], [ends], [info], any(ends))

    def draw(self) -> Any:
        return [self.choices.sample()]


class Batch(Plain):
    """A vector environment, which resets its rows itself."""

    def __init__(self, env: Any, number: int) -> None:
        super().__init__(env, number)
        self.rows = env.num_envs

    def reset(self, **kwargs: Any) -> Told:
        seen, infos = deepcopy(self.env.reset(**kwargs))
        none = [0.0] * self.rows, [(False, False)] * self.rows
        return Told(list(seen), *none, [{}] * self.rows, batched=infos)

    def step(self, actions: Any) -> Told:
        seen, rewards, terminations, truncations, infos = deepcopy(self.env.step(actions))
        ends = list(zip(terminations.tolist(), truncations.tolist(), strict=True))
        return Told(list(seen), rewards.tolist(), ends, [{}] * self.rows, batched=infos)

    def draw(self) -> Any:
        return self.choices.sample()


class Now(NamedTuple):
    """What there is to see after a step or a reset of all."""

    shown: list[Any]
    led_to: list[Any]
    rewards: list[Any]
    ends: list[tuple[bool, bool]]
    over: list[int]
    finals: dict[int, tuple[Any, Any]]
    infos: dict[int, Any]
    batched: list[tuple[int, int, dict[str, Any]]]
    columns: dict[str, list[Any]]
    pending: list[int]


class Loop:
    """A plain loop over environments, which are reset as the mode says.

    Args:
        plains: The environments.
        mode: ``None`` if they reset their rows themselves.
        seeds: From an environment to the arguments of a reset that follows an episode; ``None`` for no reset.
    """

    def __init__(
        self, plains: Iterable[Plain], mode: AutoresetMode | None, seeds: Callable[[int], dict[str, Any] | None] | None = None
    ) -> None:
        self.plains, self.mode, self.seeds = list(plains), mode, seeds or (lambda number: {})
        self.bounds = list(accumulate((plain.rows for plain in self.plains), initial=0))
        self.pending = [0] * len(self.plains)
        self.told: list[Told] = []

    def actions(self) -> Any:
        """One for each row."""
        return np.array([action for plain in self.plains for action in plain.draw()])

    def reset(self, resets: Mapping[int, Mapping[str, Any]]) -> Now:
        """Reset some environments, or all; the others show what they showed."""
        self.told = self.told or [Told([], [], [], [])] * len(self.plains)
        begun = {}
        for number, kwargs in resets.items():
            self.told[number] = begun[number] = self.plains[number].reset(**kwargs)
            self.pending[number] = False
        return self._now({number: told for number, told in begun.items()})

    def step(self, actions: Any) -> Now:
        """Step each of them."""
        led_to, over, finals = [], [], {}
        for number, (plain, (lo, hi)) in enumerate(zip(self.plains, pairwise(self.bounds), strict=True)):
            told = self.told[number]
            if self.pending[number] == IDLE:
                told = told._replace(rewards=[0.0] * plain.rows, ends=[(False, False)] * plain.rows, infos=[{}] * plain.rows)
                led_to.append(told.seen)
            elif self.pending[number]:
                self.pending[number] = False
                told = plain.reset(**(self.seeds(number) or {}))
                led_to.append(told.seen)
            else:
                told = plain.step(deepcopy(actions[lo:hi]))
                led_to.append(told.seen)
                if told.over:
                    over.append(number)
                if self.mode is SAME:
                    finals |= {lo + row: (told.seen[row], told.infos[row]) for row, ends in enumerate(told.ends) if any(ends)}
                if told.over and self.mode is NEXT:
                    self.pending[number] = True
                if told.over and self.mode is SAME:
                    kwargs = self.seeds(number)
                    if kwargs is None:
                        self.pending[number] = IDLE
                        told = told._replace(infos=[{}] * plain.rows)
                    else:
                        begun = plain.reset(**kwargs)
                        told = told._replace(seen=begun.seen, infos=begun.infos, columns=begun.columns)
            self.told[number] = told
        return self._now(dict(enumerate(self.told)), [one for rows in led_to for one in rows], over, finals)

    def _now(
        self, news: Mapping[int, Told], led_to: Sequence[Any] = (), over: Sequence[int] = (), finals: Mapping[int, Any] = {}
    ) -> Now:
        infos = {self.bounds[n] + row: info for n, told in news.items() for row, info in enumerate(told.infos) if info}
        batched = [(self.bounds[n], self.plains[n].rows, told.batched) for n, told in news.items() if told.batched]
        columns: dict[str, list[Any]] = {}
        for told in self.told:
            for name, column in told.columns.items():
                columns.setdefault(name, []).extend(column)
        rows = [[one for told in self.told for one in getattr(told, part)] for part in ("seen", "rewards", "ends")]
        return Now(rows[0], list(led_to), *rows[1:], list(over), dict(finals), infos, batched, columns, list(self.pending))


def unfit(value: Any) -> Any:
    """Something of the same form, with arrays of another shape."""
    if isinstance(value, dict):
        return {key: unfit(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(map(unfit, value))
    return np.zeros((2, 3, 5), np.float32)
