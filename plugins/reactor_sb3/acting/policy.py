"""How actors act: a policy in two stages, the same for actors, evaluator and viewer.

A :class:`Policy` is a value without weights, of which everybody gets a copy. Bound to weights and to a round's record it is a
:class:`BoundPolicy`, which reads the weights that the learner has sent and writes what the round brings, both where they lie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

__all__ = ["BoundPolicy", "Bounds", "Field", "Policy", "Rollout", "Turn", "act_alike"]

Array = npt.NDArray[Any]


class Field(NamedTuple):
    """A field of a round's record: of each step's action, or about it.

    Attributes:
        name: Name of the field.
        dtype: Type of its numbers.
        shape: For one step of one environment.
        asked: Name of a method of the environment whose answer is written here before each action; empty for what policies write.
        per_step: Whether each step has one: ``(steps, envs, *shape)``; else a round has one, ``(envs, *shape)``.
        told: Whether it is a column of the environments', see :attr:`~reactor_gymnasium.environments.rows.EnvRows.columns`: of what
            is so ``"before"`` each action, or ``"after"`` it; empty if it is not.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    asked: str = ""
    per_step: bool = True
    told: Literal["", "before", "after"] = ""


@dataclass(frozen=True)
class Bounds:
    """Makes actions of a policy fit a ``Box``, as SB3 does.

    Attributes:
        low: The lowest of each number.
        high: The highest of each number.
        squashed: Whether actions of the policy lie between -1 and 1 and are stretched, or anywhere and are clipped.
    """

    low: Array
    high: Array
    squashed: bool

    def __call__(self, actions: Array) -> Array:
        """Actions for environments, of the policy's actions ``(envs, *shape)``."""
        if self.squashed:
            actions = self.low + 0.5 * (actions + 1.0) * (self.high - self.low)
        return np.clip(actions, self.low, self.high)

    @staticmethod
    def fields(space: spaces.Box) -> tuple[Field, Field]:
        """Fields for ``"actions"``, as environments are given them, and for ``"policy_actions"``, as the policy has them."""
        number = np.dtype(np.float32)
        return Field("actions", np.result_type(number, space.dtype), space.shape), Field("policy_actions", number, space.shape)


class Rollout(Mapping[str, Array]):
    """A round of one actor: views of the fields of its record by name, ``(steps, envs, ...)``, to be written.

    Args:
        record: Fields of :attr:`Policy.fields`, and ``"rewards"``, ``"dones"`` and ``"timeouts"``; where nobody learns, only those
            that environments write or are asked for.
        observations: By key, ``(steps, envs, *shape)``; an observation that is an array has the key ``""``.
        next_observations: Likewise; of an episode that has ended, its last ones.

    Attributes:
        observations: As given.
        next_observations: As given.
        steps: How many.
        envs: How many.
    """

    def __init__(
        self, record: Mapping[str, Array], observations: Mapping[str, Array], next_observations: Mapping[str, Array]
    ) -> None:
        self._record, self.observations, self.next_observations = record, observations, next_observations
        self.steps, self.envs = next(iter(observations.values())).shape[:2]

    def __getitem__(self, name: str) -> Array:
        return self._record[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._record)

    def __len__(self) -> int:
        return len(self._record)


@dataclass(frozen=True)
class Turn:
    """An actor's inputs for one round.

    Attributes:
        random: The actor's random stream.
        rates: The rate of exploration at each step, ``(steps,)``, float32.
        memory: What :meth:`Policy.memory` has made for the actor's environments.
        index: Number of the actor.
        actors: How many actors there are.
    """

    random: np.random.Generator
    rates: Array
    memory: Any
    index: int
    actors: int


class BoundPolicy(Protocol):
    """A policy that reads its weights and observations where they lie, and writes to its rollout."""

    def begin(self, turn: Turn) -> Callable[[int], Array]:
        """Draw what chance decides in a round.

        Returns:
            A function from a step to actions for its observations, as environments are given them, ``(envs, *shape)``, which is
            called once for each step, in order. It notes them in ``rollout["actions"]``.
        """

    def end(self, turn: Turn) -> None:
        """Add to the rollout what is known when all its steps have been taken."""

    def greedy(self, step: int, memory: Any) -> Array:
        """The best actions for the observations of a step, as environments are given them, ``(envs, *shape)``: without chance.

        Args:
            step: One of the rollout's.
            memory: As an actor has it; ``None`` for a policy that remembers nothing of observations.
        """


class Policy(Protocol):
    """How actors act, without weights: frozen, picklable, and light."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """Fields of a round's record: ``"actions"``, and whatever the learner wants to know besides."""

    @property
    def draws(self) -> bool:
        """Whether it may draw from torch's generator: then it is asked within a :func:`~reactor_torch.torch_stream`."""

    def memory(self, envs: range) -> Any:
        """State that outlives a round, for environments of these numbers; picklable. ``None`` if there is nothing.

        If greedy actions depend on it, it is a dict of arrays, as it is when episodes begin: an evaluator has one too.
        """

    def bind(self, weights: Array, rollout: Rollout) -> BoundPolicy:
        """The policy with weights.

        Args:
            weights: A record of the acting network's parameters and buffers, by name.
            rollout: Where observations are, and where actions go.
        """


def act_alike(one: Any, other: Any) -> bool:
    """Whether two policies, or two parts of such, say that actors act in the same way.

    Networks that torch evaluates are no values: each is another one.
    """
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if is_dataclass(one):
        return all(act_alike(getattr(one, field.name), getattr(other, field.name)) for field in fields(one))
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(act_alike, one, other))
    return np.array_equal(one, other) if isinstance(one, np.ndarray) else bool(one == other)
