"""Which policies are asked together, about which rows, and where their answers go."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from reactor_pettingzoo.agents import AgentID
from reactor_pettingzoo.runner.policies import RandomPolicy, acting_part, structure
from reactor_pettingzoo.runner.roster import AgentBlock, Roster
from reactor_rl.plugin import encode
from reactor_torch import DenseNetwork, is_compiled

__all__ = ["Group", "groups_of"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Group:
    """Policies that are asked together about the rows of one block.

    Attributes:
        number: Number of the group.
        names: Names of the policies.
        policy: The only one, encoded, if it is asked by itself.
        layers: Layers of all of them, if they are stacked.
        block: The agents that they act for.
        first: Index of the first environment.
        copies: How many environments there are.
        seats: For each policy the rows that it may have to act for, as pairs of environment (from the first one on) and row of the
            block, ``(policies, rows, 2)``; the shorter ones are filled up with seats of their own.
        answers: For each environment and agent which answer is its action, counted over policies and rows; -1 if another group
            acts for it. ``(copies, agents of the environment)``.
        greedy: Whether the best action is taken, or one drawn.
        by_row: Whether the answer for a row depends on nothing but that row, to the last bit.
    """

    number: int
    names: tuple[str, ...]
    policy: Any
    layers: tuple[DenseNetwork, ...]
    block: AgentBlock
    first: int
    copies: int
    seats: Array
    answers: Array
    greedy: bool
    by_row: bool

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the actions."""
        return np.dtype(np.int64 if self.block.action_space.dtype is None else self.block.action_space.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the actions of one environment."""
        return (self.block.rows, *(self.block.action_space.shape or ()))

    @property
    def width(self) -> int:
        """Bytes of the actions of one environment."""
        return int(np.prod(self.shape)) * self.dtype.itemsize

    def view(self, actions: Array) -> Array:
        """Actions in a block of bytes ``(copies, >= width)``, as what they are."""
        return actions[:, : self.width].view(self.dtype).reshape(len(actions), *self.shape)

    def part(self, lo: int, hi: int) -> Group | None:
        """The same for environments ``lo`` to ``hi - 1`` alone; ``None`` if the group acts for nobody there."""
        served = [number for number, of_policy in enumerate(self.seats) if ((lo <= of_policy) & (of_policy < hi))[:, 0].any()]
        if not served:
            return None
        rows = self.seats.shape[1]
        answers = np.full((hi - lo, self.answers.shape[1]), -1, np.int64)
        kept: list[Array] = []
        moved: dict[int, tuple[int, int]] = {}  # answer -> policy and row among those that are kept
        for at, number in enumerate(served):
            copies = self.seats[number, :, 0]
            mine = np.flatnonzero((lo <= copies) & (copies < hi))
            moved.update((number * rows + row, (at, new)) for new, row in enumerate(mine.tolist()))
            kept.append(self.seats[number, mine])
        most = max(map(len, kept))
        for copy, agent in np.argwhere(self.answers[lo:hi] >= 0).tolist():
            policy, row = moved[int(self.answers[lo + copy, agent])]
            answers[copy, agent] = policy * most + row
        seats = np.array([np.concatenate([one, np.repeat(one[-1:], most - len(one), 0)]) for one in kept])
        seats[..., 0] -= lo
        return replace(
            self,
            names=tuple(self.names[number] for number in served),
            layers=tuple(self.layers[number] for number in served) if self.layers else (),
            first=self.first + lo,
            copies=hi - lo,
            seats=seats,
            answers=answers,
        )


def groups_of(roster: Roster, copies: int, policies: dict[str, Any], acts: list[dict[AgentID, str]], greedy: bool) -> list[Group]:
    """Which policies are asked together: those of one block that have equal layers, every other one by itself.

    Args:
        roster: The agents.
        copies: How many environments there are.
        policies: Policies by name.
        acts: For each environment the name of every agent's policy.
        greedy: Whether the best action is taken.
    """
    groups: list[Group] = []
    for block in roster.blocks:
        used = sorted({names[agent] for names in acts for agent in block.agents}, key=list(policies).index)
        layers = {name: structure(policies[name], block) for name in used}
        together: dict[Any, list[str]] = {}
        for name in used:
            shape = layers[name]
            together.setdefault(name if shape is None else ("layers", shape.kinds), []).append(name)
        for names in together.values():
            stacked = tuple(shape for name in names if (shape := layers[name]) is not None)
            seats, answers = _seats(roster, block, names, acts)
            policy = None if stacked else encode(acting_part(policies[names[0]]))
            by_row = is_compiled(stacked[0]) if stacked else isinstance(policies[names[0]], RandomPolicy)
            groups.append(Group(len(groups), tuple(names), policy, stacked, block, 0, copies, seats, answers, greedy, by_row))
    return groups


def _seats(roster: Roster, block: AgentBlock, names: list[str], acts: list[dict[AgentID, str]]) -> tuple[Array, Array]:
    of_policy: list[list[tuple[int, int]]] = [[] for _ in names]
    answers = np.full((len(acts), len(roster.agents)), -1, np.int64)
    row_of: dict[tuple[int, int, int], int] = {}
    for copy, by_agent in enumerate(acts):
        for agent in block.agents:
            if by_agent[agent] in names:
                number, row = names.index(by_agent[agent]), roster.block_of(agent)[1]
                if (number, copy, row) not in row_of:  # agents that take turns share a row
                    row_of[number, copy, row] = len(of_policy[number])
                    of_policy[number].append((copy, row))
    rows = max(map(len, of_policy))
    for copy, by_agent in enumerate(acts):
        for index, agent in enumerate(roster.agents):
            if agent in block.agents and by_agent[agent] in names:
                number, row = names.index(by_agent[agent]), roster.block_of(agent)[1]
                answers[copy, index] = number * rows + row_of[number, copy, row]
    return np.array([seats + seats[-1:] * (rows - len(seats)) for seats in of_policy], np.int64), answers
