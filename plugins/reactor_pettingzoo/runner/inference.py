"""Asking a group of policies, and the reactor that does it once a tick for all the rows that they may have to act for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from reactor_pettingzoo.runner.actions import Chooser, Draws, choose_discrete, width_of
from reactor_pettingzoo.runner.groups import Group
from reactor_pettingzoo.runner.policies import evaluator
from reactor_pettingzoo.runner.roster import MASK, Roster
from reactor_rl import Input, Output, Reactor, reaction, startup
from reactor_rl.plugin import aligned_zeros, decode
from reactor_torch import Stacked, stack

__all__ = ["GroupPolicies", "Inference"]

Array = npt.NDArray[Any]


class Inference(Reactor):
    """One group's policies, for the copies of all workers.

    Args:
        group: The group.
        roster: The agents.
        width: Bytes of the actions of an environment, of the group with the widest ones.
    """

    observations = Input()
    """A record for each environment, see :meth:`~reactor_pettingzoo.runner.roster.Roster.record`."""
    begin = Input()
    """What a run begins with, at its first tick."""
    actions = Output((0, 0), np.uint8)

    def __init__(self, group: Group, roster: Roster, width: int) -> None:
        self.group, self.roster = group, roster
        self.actions = Output((group.copies, width), np.uint8)

    @reaction(startup)
    def build(self) -> None:
        """Build the networks, here where they will be used."""
        self.policies = GroupPolicies(self.group, self.roster)
        self.views: dict[int, tuple[Array, Array]] = {}

    @reaction(observations, uses=begin, effects=actions)
    def ask(self) -> None:
        """Actions for every row; 0 where nobody is alive."""
        if self.begin.present:
            self.policies.begin(int(self.begin.value["seed"]))
        buffer = self.actions.buffer
        view = self.views.get(id(buffer))
        self.policies(self.observations.value, view[1] if view is not None else self._viewed(buffer))

    def _viewed(self, buffer: Array) -> Array:
        """The actions' slot as actions; what lies behind them is zeros."""
        buffer.fill(0)
        self.views[id(buffer)] = buffer, self.group.view(buffer)
        return self.views[id(buffer)][1]


class GroupPolicies:
    """A group's policies, ready to be asked.

    Args:
        group: The group, or its part for some environments.
        roster: The agents.
    """

    def __init__(self, group: Group, roster: Roster) -> None:
        self.group, self.roster = group, roster
        block = group.block
        self.stacked = stack(group.layers, group.seats.shape[1]) if group.layers else None
        self.single = None if group.layers else evaluator(group.names[0], decode(group.policy), block, group.greedy)
        self.chooser = Chooser()
        self.draws: Draws | None = None
        if not group.greedy or getattr(self.single, "draws", False):
            self.draws = Draws(group.first, group.copies, len(roster.agents), width_of(block.action_space))
        self.copies, self.rows = group.seats[..., 0], group.seats[..., 1]
        indices = [roster.agents.index(agent) for agent in block.agents]
        # Agents that act together have a row each: who it is, and which answer is theirs, never changes.
        self.agents = None if roster.turns else np.array(indices)
        self.answers = None if roster.turns else group.answers[:, indices]
        self.served = None if self.answers is None else self.answers >= 0
        self.start = int(getattr(block.action_space, "start", 0)) if self.stacked is not None else 0
        self.layout = self._layout()
        self.every = np.arange(group.copies)
        self.records: dict[int, tuple[Array, Array, Array, Array, Array | None]] = {}

    def begin(self, seed: int) -> None:
        """Begin the random streams of a run."""
        self.chooser.begin(seed, self.group.number)
        if self.draws is not None:
            self.draws.begin(seed)

    def __call__(self, record: Array, out: Array) -> None:
        """Write actions for every row; 0 where nobody is alive.

        Args:
            record: What each environment tells, ``(copies,)``, see :meth:`~reactor_pettingzoo.runner.roster.Roster.record`.
            out: Their actions, ``(copies, rows of the block, ...)``.

        Raises:
            Exception: What a policy raised.
            ValueError, TypeError: If it gives something that is no action.
        """
        known = self.records.get(id(record))
        _, alive, acting, seen, masked = known or self._known(record)
        if self.answers is None:
            answers = self.group.answers[self.every, acting][:, None]
            alive = alive & (answers >= 0)
        else:
            answers, alive = self.answers, alive & self.served
        drawn = None if self.draws is None else self.draws.next()  # also when nobody is alive: only ticks count
        self.chooser.own.tick += 1
        block = self.group.block
        masks = record[block.field(MASK)] if block.mask and (masked is None or np.count_nonzero(masked)) else None
        if self.stacked is not None:
            chosen = self._by_layers(self.stacked, masks, seen, acting, drawn)
        elif alive.any():
            chosen = self._by_policy(record, masks, acting, drawn)
        else:
            out.fill(0)
            return
        taken = chosen[answers] if self.layout is None else self.layout(chosen)
        if self.stacked is None or masks is not None:  # else it cannot be anything that nobody can do
            self._check(taken, alive, masks, acting)
        elif self.layout is not None:
            np.multiply(taken, alive, out=out)
            return
        out.fill(0)
        np.copyto(out, taken, where=alive.reshape(*alive.shape, *(1,) * (taken.ndim - 2)), casting="unsafe")

    def _known(self, record: Array) -> tuple[Array, Array, Array, Array, Array | None]:
        """The views of the observations' slot that every tick needs."""
        block = self.group.block
        seen = record[block.field(f"observation.{next(iter(block.parts))}")]
        masked = record[block.field("masked")] if block.mask == "later" else None
        known = self.records[id(record)] = record, record[block.field("alive")], record["acting"], seen, masked
        return known

    def _layout(self) -> Callable[[Array], Array] | None:
        """Of what has a row for each answer, a view as ``(copies, rows of the block, ...)``: where each agent has its own policy
        everywhere, or all of them have the same one. ``None`` if it is less simple.
        """
        group = self.group
        policies, rows = group.seats.shape[:2]
        copies, agents = group.copies, group.block.rows
        if (policies, rows) == (1, copies * agents):
            layout = _by_copy(copies, agents)
        elif (policies, rows) == (agents, copies):
            layout = _by_agent(copies, agents)
        else:
            return None
        return layout if self.answers is not None and np.array_equal(self.answers, layout(np.arange(copies * agents))) else None

    def _masks(self, masks: Array | None, acting: Array, drawn: Array | None) -> Array | None:
        """Masks of every row, ``(policies, rows, actions)``, if there are any; lets the chooser have its random numbers."""
        if drawn is not None:
            agents = acting[self.copies] if self.agents is None else self.agents[self.rows]
            self.chooser.uniform = drawn[self.copies, agents].reshape(-1, drawn.shape[2])
        return None if masks is None else masks[self.copies, self.rows]

    def _by_layers(self, stacked: Stacked, masks: Array | None, seen: Array, acting: Array, drawn: Array | None) -> Array:
        """What stacked networks choose for every row of every policy, ``(policies * rows,)``."""
        if self.layout is None:
            stacked.inputs[...] = seen[self.copies, self.rows].reshape(stacked.inputs.shape)
        else:
            self.layout(stacked.inputs.reshape(-1, *seen.shape[2:]))[...] = seen
        stacked()
        chosen = stacked.best.reshape(-1)
        if drawn is not None or masks is not None:
            masks = self._masks(masks, acting, drawn)
            actions = stacked.scores.shape[-1]
            masks = None if masks is None else masks.reshape(-1, actions)
            chosen = choose_discrete(stacked.scores.reshape(-1, actions), masks, self.chooser.uniform)
        return chosen + self.start if self.start else chosen

    def _by_policy(self, record: Array, masks: Array | None, acting: Array, drawn: Array | None) -> Array:
        """What a policy that is asked by itself chooses for every row, ``(rows, ...)``."""
        assert self.single is not None
        block = self.group.block
        masks = self._masks(masks, acting, drawn)
        parts = {key: self._aligned(record[block.field(f"observation.{key}")]) for key in block.parts}
        actions = self.single(parts[""] if block.single else parts, None if masks is None else masks[0], self.chooser)
        if self.group.dtype.kind in "iu" and actions.dtype.kind not in "iub":
            raise ValueError(
                f"the policy {self.group.names[0]!r} returned actions of type {actions.dtype}; expected are whole numbers"
            )
        return actions

    def _aligned(self, seen: Array) -> Array:
        """A copy of all rows that begins with a cache line: the last bits of what a policy multiplies it with depend on where it
        begins.
        """
        aligned = aligned_zeros((self.rows.shape[1], *seen.shape[2:]), seen.dtype)
        if self.layout is None:
            aligned[...] = seen[self.copies[0], self.rows[0]]
        else:
            self.layout(aligned)[...] = seen
        return aligned

    def _check(self, actions: Array, alive: Array, masks: Array | None, acting: Array) -> None:
        """Refuse actions that no agent can take; those are the policies' mistake."""
        block = self.group.block
        space = block.action_space
        if isinstance(space, spaces.Discrete):
            wrong = (actions < space.start) | (actions >= space.start + space.n)
            if masks is not None:
                at = np.where(wrong, 0, actions - space.start)
                wrong |= np.take_along_axis(masks, at[..., None], -1)[..., 0] == 0
        else:
            low, high = _bounds(space)
            wrong = ~((actions >= low) & (actions <= high)).reshape(*alive.shape, -1).all(-1)  # a NaN is neither
        wrong &= alive
        if wrong.any():
            copy, row = np.argwhere(wrong)[0].tolist()
            agent = self.roster.agents[int(acting[copy])] if self.agents is None else block.agents[row]
            legal = "" if masks is None else f" and the action mask {masks[copy, row].tolist()}"
            raise ValueError(
                f"a policy ({', '.join(self.group.names)}) chose the action {actions[copy, row]} for agent {agent!r} of "
                f"environment {self.group.first + copy}, which has {space}{legal}"
            )


def _bounds(space: Any) -> tuple[Any, Any]:
    if isinstance(space, spaces.Box):
        return space.low, space.high
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    return 0, 1


def _by_copy(copies: int, agents: int) -> Callable[[Array], Array]:
    return lambda rows: rows.reshape(copies, agents, *rows.shape[1:])


def _by_agent(copies: int, agents: int) -> Callable[[Array], Array]:
    return lambda rows: rows.reshape(agents, copies, *rows.shape[1:]).swapaxes(0, 1)
