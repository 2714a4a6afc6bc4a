"""Asking policies for actions, the rows of many agents at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from reactor_pettingzoo.agents import AgentGroup, AgentSpecs
from reactor_pettingzoo.reading import MASK, AgentID
from reactor_pettingzoo.runner.asking import asked, illegal
from reactor_pettingzoo.runner.policies import part_of
from reactor_pettingzoo.runner.streams import OwnStreams, SeatStreams
from reactor_rl import Input, Output, Reactor, reaction, startup
from reactor_rl.plugin import decode, encode

__all__ = ["PolicyGroup", "groups_of", "GroupPolicies", "PolicyReactor"]

Array = npt.NDArray[Any]
AHEAD = 256
"""Ticks whose noise is drawn at once. A call of a generator costs more than many numbers of it, so it is spread over many ticks;
memory is the price. No bit depends on it, as each stream goes on where it was. Chosen.
"""
MOST_NUMBERS = 2**20
"""Numbers of noise that are drawn at once: of gSDE each is a matrix. 4 MB of float32; beyond that, fewer ticks are drawn at a time.
"""


@dataclass(frozen=True)
class PolicyGroup:
    """Policies that are asked together about the rows of one group of agents.

    Attributes:
        number: Number of the group.
        names: Names of the policies.
        parts: What travels of each, encoded.
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
    parts: tuple[Any, ...]
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
            parts=tuple(self.parts[number] for number in served),
            first=self.first + lo,
            seats=seats,
            agent_rows=agent_rows,
        )


def groups_of(specs: AgentSpecs, policies: dict[str, Any], acts: list[dict[AgentID, str]], greedy: bool) -> list[PolicyGroup]:
    """Which policies are asked together: those of one group of agents that are networks of one kind, every other one by itself.

    Arguments as for :class:`~reactor_pettingzoo.runner.multi_agent_program.MultiAgentProgram`.
    """
    groups: list[PolicyGroup] = []
    for agent_group in specs.groups:
        used = sorted({names[agent] for names in acts for agent in agent_group.agents}, key=list(policies).index)
        parts = {name: part_of(name, policies[name], agent_group) for name in used}
        together: list[list[str]] = []
        for name in used:
            found = next((names for names in together if parts[name].goes_with(parts[names[0]])), None)
            if found is None:
                together.append([name])
            else:
                found.append(name)
        for names in together:
            seats, agent_rows = _seats(specs, agent_group, names, acts)
            encoded, by_row = tuple(encode(parts[name]) for name in names), parts[names[0]].by_row
            groups.append(PolicyGroup(len(groups), tuple(names), encoded, agent_group, 0, seats, agent_rows, greedy, by_row))
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
        self.group, self.specs, self.own = group, specs, OwnStreams()
        agent_group, rows = group.agent_group, group.seats.shape[1]
        self.asked = asked(group.names, [decode(part) for part in group.parts], agent_group, rows, group.greedy, self.own)
        self.streams = SeatStreams(group.first, group.copies, len(specs.agents))
        self.ahead = min(AHEAD, max(1, MOST_NUMBERS // max(1, group.copies * len(specs.agents) * self.asked.width)))
        self.numbers = np.where(group.agent_rows < 0, -1, group.agent_rows // rows)  # of who acts for each agent
        self.copies, self.rows = group.seats[..., 0].ravel(), group.seats[..., 1].ravel()
        indices = [specs.agents.index(agent) for agent in agent_group.agents]
        # Agents that act together have a row each: who it is, and which row of the policies is theirs, never changes.
        self.agents = None if specs.turns else np.array(indices)
        self.agent_rows = None if specs.turns else group.agent_rows[:, indices]
        self.served = None if self.agent_rows is None else self.agent_rows >= 0
        space: Any = agent_group.action_space
        self.limited = bool(getattr(space, "is_bounded", lambda: True)())
        self.layout = self._layout()
        self.every = np.arange(group.copies)
        self.counts = self.asked.sound and self.layout is not None and space.shape == () and self.group.dtype == np.int64
        self.known: dict[int, _Known] = {}
        self.begin(0)

    def begin(self, seed: int) -> None:
        """Begin the random streams of a run."""
        self.own.begin(seed, self.group.number)
        if self.asked.noise != "none":
            self.streams.begin(seed)

    def __call__(self, record: Array, out: Array) -> None:
        """Write actions for every row; 0 where nobody is alive.

        Args:
            record: What each environment tells, ``(copies,)``, see :meth:`~reactor_pettingzoo.agents.AgentSpecs.record`.
            out: Their actions, ``(copies, rows of the agents, ...)``.

        Raises:
            Exception: What a policy raised.
            ValueError, TypeError: If it gives something that is not an action.
        """
        _, alive, acting, seen, pairs, masked, told = self.known.get(id(record)) or self._look(record)
        if self.agent_rows is None:
            agent_rows = self.group.agent_rows[self.every, acting][:, None]
            alive = alive & (agent_rows >= 0)
        else:
            agent_rows, alive = self.agent_rows, alive & self.served
        self.own.tick += 1
        # Noise is drawn also when nobody is alive: only ticks count.
        noise = None if self.asked.noise == "none" else self._drawn(acting)
        if not self.asked.sound and not alive.any():
            out.fill(0)
            return
        masks = told if told is not None and (masked is None or np.count_nonzero(masked)) else None
        layout = self.layout
        for place, rows in pairs or self._pairs(seen):
            place[...] = rows if layout is not None else rows[self.copies, self.rows]
        chosen = self.asked(None if masks is None else masks[self.copies, self.rows], noise)
        if self.asked.spoilt is not None:
            self._refuse(*self.asked.spoilt, agent_rows, alive, acting, record)
        taken = chosen[agent_rows] if layout is None else layout(chosen)
        if not self.asked.sound:
            self._check(taken, alive, masks, acting)
        elif self.counts:
            np.multiply(taken, alive, out=out)
            return
        out.fill(0)
        np.copyto(out, taken, where=alive.reshape(*alive.shape, *(1,) * (taken.ndim - 2)), casting="unsafe")

    def _look(self, record: Array) -> _Known:
        """The views of the observations' slot that every tick needs."""
        group = self.group.agent_group
        seen = {key: record[group.field(f"observation.{key}")] for key in group.parts}
        masked = record[group.field("masked")] if group.mask == "later" else None
        told = record[group.field(MASK)] if group.mask else None
        pairs = self._pairs(seen) if self.asked.keeps_room else None
        known = self.known[id(record)] = record, record[group.field("alive")], record["acting"], seen, pairs, masked, told
        return known

    def _pairs(self, seen: dict[str, Array]) -> list[tuple[Array, Array]]:
        """Where observations are to be written, and those."""
        layout = self.layout
        return [(array if layout is None else layout(array), seen[key]) for key, array in self.asked.room().items()]

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

    def _drawn(self, acting: Array) -> Array:
        """The noise of a tick for each row of the policies, ``(rows, width)``."""
        draw, rest = divmod(self.own.tick, self.asked.every)
        at = draw % self.ahead
        if at == 0 and rest == 0:
            self.block = self._block()
        noise: Array = self.block[at]
        return noise if self.agents is not None else noise[self.copies, acting[self.copies]]

    def _block(self) -> Array:
        """The noise of some ticks: of agents that act together for each row, else for each environment and agent."""
        block = self.streams.take(self.asked.noise, self.ahead, self.asked.width)
        for number in range(len(self.group.names)):
            mine = self.numbers == number
            block[:, mine] = self.asked.scaled(block[:, mine], number)
        of_rows: Array = block if self.agents is None else block[:, self.copies, self.agents[self.rows]]
        return of_rows

    def _check(self, actions: Array, alive: Array, masks: Array | None, acting: Array) -> None:
        """Refuse actions that no agent can take; those are the policies' mistake."""
        agent_group = self.group.agent_group
        space = agent_group.action_space
        wrong = illegal(space, actions, masks) & alive
        if not self.limited:
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


_Known = tuple[Array, Array, Array, dict[str, Array], list[tuple[Array, Array]] | None, Array | None, Array | None]
"""A record, and of it who is alive, who acts, what is observed, where that is to be written, who has a mask, and the masks."""
