"""Asking policies for actions, the rows of many agents at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from numpy import vdot

from reactor_pettingzoo.agents import AgentGroup, AgentSpecs
from reactor_pettingzoo.reading import MASK, AgentID
from reactor_pettingzoo.runner.actions import ActionSampler, Draws, choose_discrete, illegal, width_of
from reactor_pettingzoo.runner.policies import RandomPolicy, acting_part, callable_policy, dense_layers
from reactor_rl import Input, Output, Reactor, reaction, startup
from reactor_rl.plugin import aligned_zeros, decode, encode
from reactor_torch import DenseNetwork, Stacked, is_compiled

__all__ = ["PolicyGroup", "groups_of", "GroupPolicies", "PolicyReactor"]

Array = npt.NDArray[Any]
LINE = 64
TOGETHER = 2**15
"""Bytes of observations that memory is taken for at once."""


@dataclass(frozen=True)
class PolicyGroup:
    """Policies that are asked together about the rows of one group of agents.

    Attributes:
        number: Number of the group.
        names: Names of the policies.
        policy: The only one, encoded, if it is asked by itself.
        layers: Layers of all of them, if they are stacked.
        agent_group: The agents that they act for.
        first: Index of the first environment.
        seats: For each policy the rows that it may have to act for, as pairs of environment (from the first one on) and row of the
            group, ``(policies, rows, 2)``; the shorter ones are filled up with seats of their own.
        agent_rows: For each environment and agent which row of the policies is its own, counted over all of them; -1 if another
            group acts for it. ``(copies, agents of the environment)``.
        greedy: Whether the best action is taken, or one drawn.
        by_row: Whether what is done for a row depends on nothing but that row, to the last bit.
    """

    number: int
    names: tuple[Any, ...]
    policy: Any
    layers: tuple[DenseNetwork, ...]
    agent_group: AgentGroup
    first: int
    seats: Array
    agent_rows: Array
    greedy: bool
    by_row: bool

    @property
    def copies(self) -> int:
        """How many environments there are."""
        return len(self.agent_rows)

    @property
    def title(self) -> str:
        """The names in one line."""
        return ", ".join(map(str, self.names))

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the actions."""
        return np.dtype(np.int64 if self.agent_group.action_space.dtype is None else self.agent_group.action_space.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the actions of one environment."""
        return (self.agent_group.rows, *(self.agent_group.action_space.shape or ()))

    @property
    def width(self) -> int:
        """Bytes of the actions of one environment."""
        return int(np.prod(self.shape)) * self.dtype.itemsize

    def view(self, actions: Array) -> Array:
        """Actions in a block of bytes ``(copies, >= width)``, as what they are."""
        return actions[:, : self.width].view(self.dtype).reshape(len(actions), *self.shape)

    def part(self, lo: int, hi: int) -> PolicyGroup | None:
        """The same for environments ``lo`` to ``hi - 1`` alone; ``None`` if the group acts for nobody there."""
        rows, mine = self.seats.shape[1], self.agent_rows[lo:hi]
        served = np.unique(mine[mine >= 0] // rows).tolist()
        if not served:
            return None
        used = [np.unique(mine[mine // rows == number]) for number in served]  # rows of each policy
        most = max(map(len, used))
        agent_rows = np.full_like(mine, -1)
        for at, of_policy in enumerate(used):
            kept = np.isin(mine, of_policy)
            agent_rows[kept] = at * most + np.searchsorted(of_policy, mine[kept])
        seats = self.seats.reshape(-1, 2)[[np.pad(of_policy, (0, most - len(of_policy)), "edge") for of_policy in used]] - (lo, 0)
        return replace(
            self,
            names=tuple(self.names[number] for number in served),
            layers=tuple(self.layers[number] for number in served) if self.layers else (),
            first=self.first + lo,
            seats=seats,
            agent_rows=agent_rows,
        )


def groups_of(specs: AgentSpecs, policies: dict[str, Any], acts: list[dict[AgentID, str]], greedy: bool) -> list[PolicyGroup]:
    """Which policies are asked together: those of one group of agents that have equal layers, every other one by itself.

    Arguments as for :class:`~reactor_pettingzoo.runner.multi_agent_program.MultiAgentProgram`.
    """
    groups: list[PolicyGroup] = []
    for agent_group in specs.groups:
        used = sorted({names[agent] for names in acts for agent in agent_group.agents}, key=list(policies).index)
        layers = {name: dense_layers(policies[name], agent_group, greedy) for name in used}
        together: dict[Any, list[str]] = {}
        for name in used:
            shape = layers[name]
            together.setdefault(name if shape is None else ("layers", shape.layers), []).append(name)
        for names in together.values():
            stacked = tuple(shape for name in names if (shape := layers[name]) is not None)
            seats, agent_rows = _seats(specs, agent_group, names, acts)
            policy = None if stacked else encode(acting_part(policies[names[0]]))
            by_row = is_compiled() if stacked else isinstance(policies[names[0]], RandomPolicy)
            groups.append(
                PolicyGroup(len(groups), tuple(names), policy, stacked, agent_group, 0, seats, agent_rows, greedy, by_row)
            )
    return groups


def _seats(specs: AgentSpecs, agent_group: AgentGroup, names: list[str], acts: list[dict[AgentID, str]]) -> tuple[Array, Array]:
    """See :class:`PolicyGroup`."""
    rows_of: list[dict[tuple[int, int], int]] = [{} for _ in names]  # by environment and row of the agents
    found = []
    for copy, by_agent in enumerate(acts):
        for agent in agent_group.agents:
            if by_agent[agent] in names:
                number = names.index(by_agent[agent])
                row = rows_of[number].setdefault((copy, specs.group_of(agent)[1]), len(rows_of[number]))
                found.append((copy, specs.agents.index(agent), number, row))
    rows = max(map(len, rows_of))
    agent_rows = np.full((len(acts), len(specs.agents)), -1, np.int64)
    for copy, index, number, row in found:
        agent_rows[copy, index] = number * rows + row
    return np.array([[*seats, *[*seats][-1:] * (rows - len(seats))] for seats in rows_of], np.int64), agent_rows


class PolicyReactor(Reactor):
    """One group's policies, for the copies of all workers.

    Args:
        group: The group.
        specs: The agents.
        width: Bytes of the actions of an environment, of the group with the widest ones.
    """

    observations = Input()
    """A record for each environment, see :meth:`~reactor_pettingzoo.agents.AgentSpecs.record`."""
    begin = Input()
    """The seeds and options of a run, at its first tick."""
    actions = Output((0, 0), np.uint8)

    def __init__(self, group: PolicyGroup, specs: AgentSpecs, width: int) -> None:
        self.group, self.specs = group, specs
        self.actions = Output((group.copies, width), np.uint8)

    @reaction(startup)
    def build(self) -> None:
        """Build the networks, here where they will be used."""
        self.policies = GroupPolicies(self.group, self.specs)
        self.views: dict[int, tuple[Array, Array]] = {}

    @reaction(observations, uses=begin, effects=actions)
    def ask(self) -> None:
        """Actions for every row; 0 where nobody is alive."""
        if self.begin.present:
            self.policies.begin(int(self.begin.value["seed"]))
        buffer = self.actions.buffer
        view = self.views.get(id(buffer))
        if view is None:
            buffer.fill(0)  # what lies behind the actions is zeros
            view = self.views[id(buffer)] = buffer, self.group.view(buffer)
        self.policies(self.observations.value, view[1])


class GroupPolicies:
    """A group's policies, ready to be asked.

    Args:
        group: The group, or its part for some environments.
        specs: The agents.
    """

    def __init__(self, group: PolicyGroup, specs: AgentSpecs) -> None:
        self.group, self.specs = group, specs
        agent_group = group.agent_group
        self.stacked = Stacked(group.layers, group.seats.shape[1]) if group.layers else None
        self.single = None if group.layers else callable_policy(group.names[0], decode(group.policy), agent_group, group.greedy)
        self.sampler = ActionSampler()
        self.draws: Draws | None = None
        if not group.greedy or getattr(self.single, "draws", False):
            self.draws = Draws(group.first, group.copies, len(specs.agents), width_of(agent_group.action_space))
        self.copies, self.rows = group.seats[..., 0], group.seats[..., 1]
        indices = [specs.agents.index(agent) for agent in agent_group.agents]
        # Agents that act together have a row each: who it is, and which row of the policies is theirs, never changes.
        self.agents = None if specs.turns else np.array(indices)
        self.agent_rows = None if specs.turns else group.agent_rows[:, indices]
        self.served = None if self.agent_rows is None else self.agent_rows >= 0
        self.start = int(getattr(agent_group.action_space, "start", 0)) if self.stacked is not None else 0
        # Outputs of the stacked networks for all rows, where they always are.
        self.scores: Array = np.empty(0) if self.stacked is None else self.stacked.scores.reshape(-1, self.stacked.scores.shape[-1])
        self.outputs = self.scores.ravel()
        self.unbounded = isinstance(agent_group.action_space, spaces.Box) and not agent_group.action_space.is_bounded()
        self.layout = self._layout()
        self.every = np.arange(group.copies)
        self.records: dict[int, tuple[Array, Array, Array, Array, Array | None]] = {}
        self.unused: dict[str, list[Array]] = {}  # arrays of observations that no policy has been given

    def begin(self, seed: int) -> None:
        """Begin the random streams of a run."""
        self.sampler.begin(seed, self.group.number)
        if self.draws is not None:
            self.draws.begin(seed)

    def __call__(self, record: Array, out: Array) -> None:
        """Write actions for every row; 0 where nobody is alive.

        Args:
            record: What each environment tells, ``(copies,)``, see :meth:`~reactor_pettingzoo.agents.AgentSpecs.record`.
            out: Their actions, ``(copies, rows of the agents, ...)``.

        Raises:
            Exception: What a policy raised.
            ValueError, TypeError: If it gives something that is not an action.
        """
        _, alive, acting, seen, masked = self.records.get(id(record)) or self._known(record)
        if self.agent_rows is None:
            agent_rows = self.group.agent_rows[self.every, acting][:, None]
            alive = alive & (agent_rows >= 0)
        else:
            agent_rows, alive = self.agent_rows, alive & self.served
        drawn = None if self.draws is None else self.draws.next()  # also when nobody is alive: only ticks count
        self.sampler.own.tick += 1
        self.sampler.spoilt = None
        agent_group = self.group.agent_group
        masks = record[agent_group.field(MASK)] if agent_group.mask and (masked is None or np.count_nonzero(masked)) else None
        if self.stacked is not None:
            chosen = self._by_layers(self.stacked, masks, seen, acting, drawn)
        elif alive.any():
            chosen = self._by_policy(record, masks, acting, drawn)
        else:
            out.fill(0)
            return
        if self.sampler.spoilt is not None:
            self._refuse(*self.sampler.spoilt, agent_rows, alive, acting, record)
        taken = chosen[agent_rows] if self.layout is None else self.layout(chosen)
        if self.stacked is None or masks is not None:  # else it cannot be anything that nobody can do
            self._check(taken, alive, masks, acting)
        elif self.layout is not None:
            np.multiply(taken, alive, out=out)
            return
        out.fill(0)
        np.copyto(out, taken, where=alive.reshape(*alive.shape, *(1,) * (taken.ndim - 2)), casting="unsafe")

    def _known(self, record: Array) -> tuple[Array, Array, Array, Array, Array | None]:
        """The views of the observations' slot that every tick needs."""
        agent_group = self.group.agent_group
        seen = record[agent_group.field(f"observation.{next(iter(agent_group.parts))}")]
        masked = record[agent_group.field("masked")] if agent_group.mask == "later" else None
        known = self.records[id(record)] = record, record[agent_group.field("alive")], record["acting"], seen, masked
        return known

    def _layout(self) -> Callable[[Array], Array] | None:
        """Of what has a row for each row of the policies, a view as ``(copies, rows of the agents, ...)``: where each agent has its
        own policy everywhere, or all of them have the same one. ``None`` if it is less simple.
        """
        copies, agents = self.group.copies, self.group.agent_group.rows

        def by_copy(rows: Array) -> Array:
            return rows.reshape(copies, agents, *rows.shape[1:])

        def by_agent(rows: Array) -> Array:
            return rows.reshape(agents, copies, *rows.shape[1:]).swapaxes(0, 1)

        layout = {(agents, copies): by_agent, (1, copies * agents): by_copy}.get(self.group.seats.shape[:2])
        if layout is None or self.agent_rows is None or not np.array_equal(self.agent_rows, layout(np.arange(copies * agents))):
            return None
        return layout

    def _masks(self, masks: Array | None, acting: Array, drawn: Array | None) -> Array | None:
        """Masks of every row, ``(policies, rows, actions)``, if there are any; lets the sampler have its random numbers."""
        if drawn is not None:
            agents = acting[self.copies] if self.agents is None else self.agents[self.rows]
            self.sampler.uniform = drawn[self.copies, agents].reshape(-1, drawn.shape[2])
        return None if masks is None else masks[self.copies, self.rows]

    def _by_layers(self, stacked: Stacked, masks: Array | None, seen: Array, acting: Array, drawn: Array | None) -> Array:
        """The choices of stacked networks for every row of every policy, ``(policies * rows,)``."""
        if self.layout is None:
            stacked.inputs[...] = seen[self.copies, self.rows].reshape(stacked.inputs.shape)
        else:
            self.layout(stacked.inputs.reshape(-1, *seen.shape[2:]))[...] = seen
        stacked()
        if not isfinite(vdot(self.outputs, self.outputs)):  # which takes less time than to call the sampler
            self.sampler.look(self.scores, scores=True)
        chosen = stacked.best.reshape(-1)
        if drawn is not None or masks is not None:
            masks = self._masks(masks, acting, drawn)
            actions = stacked.scores.shape[-1]
            masks = None if masks is None else masks.reshape(-1, actions)
            chosen = choose_discrete(self.scores, masks, self.sampler.uniform)
        return chosen + self.start if self.start else chosen

    def _by_policy(self, record: Array, masks: Array | None, acting: Array, drawn: Array | None) -> Array:
        """The choices for every row of a policy that is asked by itself, ``(rows, ...)``."""
        assert self.single is not None
        agent_group = self.group.agent_group
        masks = self._masks(masks, acting, drawn)
        parts = {key: self._aligned(key, record[agent_group.field(f"observation.{key}")]) for key in agent_group.parts}
        actions = self.single(parts[""] if agent_group.single else parts, None if masks is None else masks[0], self.sampler)
        if self.group.dtype.kind in "iu" and actions.dtype.kind not in "iub":
            finite = "" if actions.dtype.kind != "f" or np.isfinite(actions).all() else ", some of which are not finite numbers"
            raise ValueError(
                f"the policy {self.group.names[0]!r} returned actions of type {actions.dtype}{finite}; expected are whole numbers"
            )
        return actions

    def _aligned(self, key: str, seen: Array) -> Array:
        """A copy of all rows that begins with a cache line: the last bits of what a policy multiplies it with depend on where it
        begins. It is the policy's to keep.
        """
        unused = self.unused.setdefault(key, [])
        if not unused:
            unused += _aligned_arrays((self.rows.shape[1], *seen.shape[2:]), seen.dtype)
        aligned = unused.pop()
        if self.layout is None:
            aligned[...] = seen[self.copies[0], self.rows[0]]
        else:
            self.layout(aligned)[...] = seen
        return aligned

    def _check(self, actions: Array, alive: Array, masks: Array | None, acting: Array) -> None:
        """Refuse actions that no agent can take; those are the policies' mistake."""
        agent_group = self.group.agent_group
        space = agent_group.action_space
        wrong = illegal(space, actions, masks) & alive
        if self.unbounded:
            wrong |= ~np.isfinite(actions).reshape(*alive.shape, -1).all(-1) & alive
        if wrong.any():
            copy, row = np.argwhere(wrong)[0].tolist()
            agent = self.specs.agents[int(acting[copy])] if self.agents is None else agent_group.agents[row]
            legal = "" if masks is None else f" and the action mask {masks[copy, row].tolist()}"
            if not np.isfinite(actions[copy, row]).all():
                legal += ": those are not finite numbers"
            raise ValueError(
                f"a policy ({self.group.title}) chose the action {actions[copy, row]} for agent {agent!r} of "
                f"environment {self.group.first + copy}, which has {space}{legal}"
            )

    def _refuse(self, spoilt: Array, outputs: Array, agent_rows: Array, alive: Array, acting: Array, record: Array) -> None:
        """Refuse outputs that are not finite, if they are about an agent that is there: of others nobody knows what is observed."""
        wrong = spoilt[agent_rows] & alive
        if not wrong.any():
            return
        group = self.group.agent_group
        copy, row = np.argwhere(wrong)[0].tolist()
        agent = self.specs.agents[int(acting[copy])] if self.agents is None else group.agents[row]
        at = int(agent_rows[copy, row])
        name = self.group.names[at // self.group.seats.shape[1]]
        seen = [record[group.field(f"observation.{key}")][copy, row] for key in group.parts]
        known = all(np.isfinite(part).all() for part in seen if part.dtype.kind == "f")
        raise ValueError(
            f"the policy {name!r} answered {outputs[at].tolist()}, which are not finite numbers, for agent {agent!r} of "
            f"environment {self.group.first + copy}" + ("" if known else f", which observes {[part.tolist() for part in seen]}")
        )


def _aligned_arrays(shape: tuple[int, ...], dtype: np.dtype[Any]) -> list[Array]:
    """Some arrays of zeros that begin with a cache line each; to make one by itself takes as long as many a policy."""
    size = math.prod(shape) * dtype.itemsize
    step = max(-(-size // LINE), 1) * LINE
    block = aligned_zeros((max(1, TOGETHER // step), step), np.uint8)
    return [row[:size].view(dtype).reshape(shape) for row in block]
