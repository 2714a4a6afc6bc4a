"""``AgentsUnit``: a copy of a PettingZoo environment whose agents are rows. Rewards, ends, who acts and who is there are fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reactor_gymnasium.plugin import ColumnSpec, StepBuffers
from reactor_pettingzoo.copies import Copy
from reactor_pettingzoo.reading import AgentID

__all__ = ["AGENT_COLUMNS", "AgentsUnit"]

Array = npt.NDArray[Any]
Ends = list[tuple[int, bool, bool]]

AGENT_COLUMNS: Mapping[str, ColumnSpec] = {"acting": (np.bool_, ()), "present": (np.bool_, ())}
"""What there is of each agent besides rewards and ends: whether it acts next, and whether it is there, or was until this step."""


class AgentsUnit:
    """A copy as a :class:`~reactor_gymnasium.environments.unit_rows.Unit`: row = index of the agent.

    The layout of its rows is an :class:`~reactor_pettingzoo.agent_record.AgentRecord`, or another whose ``writer`` takes a copy.

    Args:
        copy: The copy.
        places: Where the action of each agent is: the number of a group of actions, and a row of that group. Then ``step()`` is
            given the groups. ``None`` if it is given an action for each agent.
    """

    flags = None
    batched = None
    infos: Mapping[int, Any] = {}

    def __init__(self, copy: Copy, places: Sequence[tuple[int, int]] | None = None) -> None:
        self.copy, self.env, self.rows, self.places = copy, copy.env, len(copy.agents), places
        self.takes_batch, self.over = places is not None, True
        self.rewards: Sequence[Any] = copy.none
        self.ended: Sequence[tuple[int, bool, bool]] = ()
        self.there: Sequence[AgentID] = ()  # who is there, or was until the last step
        self._shown: dict[int, ShownColumns] = {}
        # Looked up once per change of agents: where their actions are.
        self._known: Sequence[AgentID] | None = None
        self._whole = False
        self._does: list[tuple[AgentID, Any]] = []
        # The group that acts for all of them, each with its own row, in their order.
        groups = {group for group, _ in places or ()}
        in_order = [row for _, row in places or ()] == list(range(self.rows))
        self._only = groups.pop() if len(groups) == 1 and in_order else None

    def __getstate__(self) -> dict[str, Any]:
        """The state that an episode depends on, for :func:`~reactor_gymnasium.environments.saving.save_env`."""
        copy = {name: value for name, value in vars(self.copy).items() if name not in _NO_STATE}
        return {"copy": copy, "over": self.over}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self.copy).update(state["copy"])
        self.env, self.over = self.copy.env, state["over"]

    # ------------------------------------------------------------------ episodes

    def reset(self, **kwargs: Any) -> None:
        """Begin an episode; arguments that are ``None`` are not given."""
        copy = self.copy
        copy.begin(**kwargs)
        self.rewards, self.ended, self.over, self.there = copy.none, (), copy.over, copy.live

    def step(self, actions: Any) -> None:
        """Take a step: an action of everybody who is there or, where agents take turns, of one."""
        copy = self.copy
        before = copy.live
        if copy.turns:
            row = copy.index[copy.acts[0]]
            if self.places is not None:
                group, row = self.places[row]
                actions = actions[group]
            copy.act(actions[row])
        else:
            if before is not self._known:
                self._look(before)
            if self._whole:
                copy.act(dict(zip(before, actions if self._only is None else actions[self._only], strict=True)))
            elif self.places is None:
                copy.act({agent: actions[row] for agent, row in self._does})
            else:
                copy.act({agent: actions[group][row] for agent, (group, row) in self._does})
        self.rewards, live, ends = copy.gains, copy.live, copy.ends
        self.ended = [(copy.index[agent], terminated, truncated) for agent, terminated, truncated in ends] if ends else ()
        if live is before:  # as in nearly every step
            self.there = live
        else:
            self.there = [*before, *[agent for agent in live if agent not in before]]
            self.over = copy.over

    def _look(self, agents: Sequence[AgentID]) -> None:
        """Find out where the actions of those are who are there."""
        index = self.copy.index
        self._known = agents
        self._whole = tuple(agents) == self.copy.agents and (self.places is None or self._only is not None)
        self._does = [(agent, index[agent] if self.places is None else self.places[index[agent]]) for agent in agents]

    # ------------------------------------------------------------------ what is shown

    def show(self, out: StepBuffers, lo: int) -> None:
        """See :class:`~reactor_gymnasium.environments.unit_rows.Unit`."""
        if out.put is not None:
            out.put(lo // self.rows, self.copy)
        if out.columns:
            self._show_columns(out, lo)

    def _show_columns(self, out: StepBuffers, lo: int) -> None:
        shown = self._shown.get(id(out))
        if shown is None:
            shown = self._shown[id(out)] = ShownColumns(out, slice(lo, lo + self.rows))
        acts, index = self.copy.acts, self.copy.index
        if acts is not shown.acts:
            shown.acts = acts
            _mark(shown.acting, acts, index)
        if self.there is not shown.there:
            shown.there = self.there
            _mark(shown.present, self.there, index)

    def leaves(self, layout: Any) -> list[tuple[Any, ...] | None]:
        """See :class:`~reactor_gymnasium.environments.unit_rows.Unit`; a record has nothing but arrays."""
        return [None] * self.rows

    def last(self, row: int) -> Any:
        """What an agent saw last, ``None`` if the environment has not said it."""
        return self.copy.observations.get(self.copy.agents[row])


class ShownColumns:
    """Columns of a memory, and what they show.

    Args:
        out: The memory.
        rows: Rows of a copy.
    """

    def __init__(self, out: StepBuffers, rows: slice) -> None:
        self.out = out  # so that nothing else gets its id
        self.acting, self.present = (out.columns[name][rows] if name in out.columns else None for name in AGENT_COLUMNS)
        self.acts: Sequence[AgentID] | None = None
        self.there: Sequence[AgentID] | None = None


def _mark(column: Array | None, agents: Sequence[AgentID], index: Mapping[AgentID, int]) -> None:
    if column is not None:
        column.fill(False)
        column[[index[agent] for agent in agents]] = True


_NO_STATE = frozenset({"observations", "infos", "gains", "ends", "none"})
"""Attributes that a copy has for the step that it takes."""
