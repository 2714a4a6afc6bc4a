"""``AgentsUnit``: a copy of a PettingZoo environment whose agents are rows. Rewards, ends, who acts and who is there are fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import Space, spaces

from reactor_gymnasium.plugin import ColumnSpec, StepBuffers, make_probe, own
from reactor_pettingzoo.agent_record import AgentRecord, CopyRecord
from reactor_pettingzoo.agents import as_parallel, listed_agents, padding
from reactor_pettingzoo.copies import Copy, ParallelCopy
from reactor_pettingzoo.reading import AgentID
from reactor_rl.plugin import decode

__all__ = ["AGENT_COLUMNS", "PRESENT", "AgentsProbe", "AgentsUnit", "PaddedUnit", "PaddedUnits"]

Array = npt.NDArray[Any]

AGENT_COLUMNS: Mapping[str, ColumnSpec] = {"acting": (np.bool_, ()), "present": (np.bool_, ())}
"""Columns of each agent besides rewards and ends: whether it acts next, and whether it is there, or was until this step."""
PRESENT: Mapping[str, ColumnSpec] = {"present": AGENT_COLUMNS["present"]}
"""Columns of agents where it is known who acts."""


class AgentsUnit:
    """A copy as a :class:`~reactor_gymnasium.environments.unit_rows.Unit`: row = index of the agent.

    The layout of its rows is an :class:`~reactor_pettingzoo.agent_record.AgentRecord`.

    Args:
        copy: The copy.
        places: Where the action of each agent is: the number of a group of actions, and a row of that group. Then ``step()`` is
            given the groups. ``None`` if it is given an action for each agent.
    """

    flags: tuple[Array, Array] | None = None
    keeps, batched = False, None
    infos: Mapping[int, Any] = {}

    def __init__(self, copy: Copy, places: Sequence[tuple[int, int]] | None = None) -> None:
        self.copy, self.env, self.rows = copy, copy.env, len(copy.agents)
        self.places = [(0, row) for row in range(self.rows)] if places is None else places
        self.takes_batch, self.over = places is not None, True
        self.rewards: Sequence[Any] = copy.none
        self.ended: Sequence[tuple[int, bool, bool]] = ()
        self.there: Sequence[AgentID] = ()  # who is there, or was until the last step
        # The memory in which they are shown, and who acts and is there as it was shown there last.
        self._out: StepBuffers | None = None
        self._write: Callable[[Copy], None]
        # Looked up once per change of agents: where their actions are; or the group that acts for everybody, in their order.
        self._known: Sequence[AgentID] | None = None
        self._does: list[tuple[AgentID, tuple[int, int]]] = []
        self._only: int | None = None

    @property
    def state(self) -> AgentsUnit:
        return self

    def __getstate__(self) -> dict[str, Any]:
        """The state that an episode depends on, for :func:`~reactor_gymnasium.environments.saving.save_env`."""
        copy = {name: value for name, value in vars(self.copy).items() if name not in _NO_STATE}
        return {"copy": copy, "over": self.over}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self.copy).update(state["copy"])
        self.env, self.over = self.copy.env, state["over"]
        self._out = None  # what its memory shows is loaded, too

    # ------------------------------------------------------------------ episodes

    def reset(self, **kwargs: Any) -> None:
        """Begin an episode; arguments that are ``None`` are not given."""
        copy = self.copy
        copy.begin(**kwargs)
        self.rewards, self.ended, self.over, self.there = copy.none, (), copy.over, copy.live

    def step(self, actions: Any) -> None:
        """Take a step: an action of everybody who is there or, where agents take turns, of one."""
        copy, before = self.copy, self.copy.live
        groups = actions if self.takes_batch else (actions,)
        if copy.turns:
            group, row = self.places[copy.index[copy.acts[0]]]
            copy.act(groups[group][row])
        else:
            if before is not self._known:
                self._look(before)
            if self._only is not None:  # as in nearly every step
                copy.act(dict(zip(before, groups[self._only], strict=True)))
            else:
                copy.act({agent: groups[group][row] for agent, (group, row) in self._does})
        self.rewards = copy.gains
        if copy.live is before and not copy.ends:  # as in nearly every step
            self.there, self.ended = before, ()
        else:
            self.ended = [(copy.index[agent], terminated, truncated) for agent, terminated, truncated in copy.ends]
            self.there = [*before, *[agent for agent in copy.live if agent not in before]]
            self.over = copy.over

    def _look(self, agents: Sequence[AgentID]) -> None:
        """Find out where the actions of those are who are there."""
        places = [self.places[self.copy.index[agent]] for agent in agents]
        self._known, self._does = agents, list(zip(agents, places, strict=True))
        in_order = tuple(agents) == self.copy.agents and places == [(places[0][0], row) for row in range(len(agents))]
        self._only = places[0][0] if in_order else None

    # ------------------------------------------------------------------ what is shown

    def show(self, out: StepBuffers, lo: int) -> None:
        if out is not self._out:
            self._bind(out, lo)
        copy = self.copy
        if copy.acts is not self._acts or self.there is not self._there:
            self._show_columns()
        self._write(copy)

    def _bind(self, out: StepBuffers, lo: int) -> None:
        """Find out where a memory has what is shown."""
        self._out, rows = out, slice(lo, lo + self.rows)
        self._acting, self._present = (out.columns[name][rows] if name in out.columns else None for name in AGENT_COLUMNS)
        self._acts: Sequence[AgentID] | None = None
        self._there: Sequence[AgentID] | None = None
        self._bind_observations(out, rows)

    def _bind_observations(self, out: StepBuffers, rows: slice) -> None:
        assert isinstance(out.layout, AgentRecord)
        self._write = CopyRecord(out.layout.specs, out.observations[rows.start // self.rows, ...]).write

    def _show_columns(self) -> None:
        self._acts, self._there, index = self.copy.acts, self.there, self.copy.index
        for column, agents in ((self._acting, self._acts), (self._present, self._there)):
            if column is not None:
                column.fill(False)
                for agent in agents:
                    column[index[agent]] = True

    def leaves(self, layout: Any) -> list[tuple[Any, ...] | None]:
        """See :class:`~reactor_gymnasium.environments.unit_rows.Unit`; a record has nothing but arrays."""
        return [None] * self.rows

    def last(self, row: int) -> Any:
        """The last observation of an agent, ``None`` if the environment has not said it."""
        return self.copy.observations.get(self.copy.agents[row])


class PaddedUnit(AgentsUnit):
    """A copy whose agents have a row of observations each. A row whose agent is not there is padded.

    Args:
        copy: The copy.
        padding: The observation of padded rows.
        told: Whether infos say which rows are padded.
        check_agents: Raises if the agents of its environment are not those of the others, or have other spaces; called after the
            first reset, as some know their agents only then. ``None`` if that is known.
    """

    copy: NamedCopy

    def __init__(self, copy: NamedCopy, padding: Any, told: bool, check_agents: Callable[[Any], None] | None) -> None:
        super().__init__(copy)
        self.padding, self._told, self._check_agents = padding, told, check_agents
        self.seen: Sequence[Any] = [padding] * self.rows
        self.infos = {}
        self._padded: list[int] = []
        self._padded_of: Sequence[AgentID] = ()

    def reset(self, **kwargs: Any) -> None:
        self.copy.call = "reset()"
        super().reset(**kwargs)
        if self._check_agents is not None:
            self._check_agents(self.env)
            self._check_agents = None
        self._see()
        self._take_infos()

    def step(self, actions: Any) -> None:
        """See :class:`AgentsUnit`; actions of rows that are padded are ignored."""
        copy = self.copy
        copy.call = "step()"
        super().step(actions)
        self._see()
        self._take_infos()
        if self.over:  # for a learner the padding ends here, too
            self.ended = [*self.ended, *((row, True, False) for row in self._padded)]

    def _see(self) -> None:
        """Take down what those see who are there, or were until this step."""
        copy, there = self.copy, self.there
        if there is copy.live and len(there) == self.rows:  # as in nearly every step
            try:
                self.seen = copy.get(copy.observations)
                return
            except KeyError:  # whose is missing, is found out below
                pass
        observations, index = copy.observations, copy.index
        self.seen = all_seen = [self.padding] * self.rows
        for agent in there:
            seen, row = observations.get(agent), index[agent]
            if seen is not None:
                all_seen[row] = seen
            elif (row, True, False) not in self.ended:  # where nobody goes on from it, one may go without a last observation
                raise copy.blind(agent)

    def _take_infos(self) -> None:
        copy, there = self.copy, self.there
        if there is not self._padded_of:
            self._padded_of, rows = there, {copy.index[agent] for agent in there}
            self._padded = [row for row in range(self.rows) if row not in rows]
        infos: dict[int, Any] = {row: {"padded": True} for row in self._padded} if self._padded and self._told else {}
        if any(copy.infos.values()):
            infos.update((copy.index[agent], info) for agent in there if (info := copy.info(agent)))
            infos = dict(sorted(infos.items()))
        self.infos = infos

    # ------------------------------------------------------------------ what is shown

    def _bind_observations(self, out: StepBuffers, rows: slice) -> None:
        put_all: Any = None if out.put is None else out.layout.batch_writer(out.observations[rows])

        def write(copy: Copy) -> None:
            if out.put is None:
                return
            if put_all is not None:
                try:
                    put_all(self.seen)
                    return
                except (TypeError, ValueError):  # one of them has another shape: which, is found out below
                    pass
            for row, agent in enumerate(copy.agents):
                seen = self._given(row)
                try:
                    out.put(rows.start + row, seen)
                except Exception as error:
                    error.add_note(f"as {self.copy.call} of {self.copy.name} returned it for agent {agent!r}")
                    raise

        self._write = write

    def _given(self, row: int) -> Any:
        seen = self.seen[row]
        if seen is None:
            raise self.copy.blind(self.copy.agents[row])
        return seen

    def leaves(self, layout: Any) -> list[tuple[Any, ...] | None]:
        return [layout.take_objects(own(self._given(row))) for row in range(self.rows)]

    def last(self, row: int) -> Any:
        return self.seen[row]


class NamedCopy(ParallelCopy):
    """A copy that is named where it does what it should not.

    Args:
        env: The environment.
        agents: All agents that there may be.
        name: What errors call the environment.

    Attributes:
        call: What was called last.
    """

    def __init__(self, env: Any, agents: Sequence[AgentID], name: str) -> None:
        super().__init__(env, agents)
        self.name, self.call = name, ""

    def broken(self, what: str) -> Exception:
        return RuntimeError(f"{self.name}: {what}")

    def blind(self, agent: AgentID) -> Exception:
        return self.broken(f"{self.call} returned no observation for agent {agent!r}")


@dataclass(frozen=True)
class PaddedUnits:
    """Makes units of environments whose agents are all alike.

    Attributes:
        agents: The agents of every environment.
        observation_space: Every agent's observation space.
        action_space: Every agent's action space.
        told: Whether infos say which rows are padded.
    """

    agents: tuple[AgentID, ...]
    observation_space: Space[Any]
    action_space: Space[Any]
    told: bool = True

    def __call__(self, env: Any, index: int) -> PaddedUnit:
        """The unit of an environment.

        Raises:
            TypeError: If it is no ``ParallelEnv``.
            RuntimeError: If its agents are not these, or have other spaces.
        """
        env = as_parallel(env)
        known = bool(listed_agents(env))
        if known:
            self.check(env)
        copy = NamedCopy(env, self.agents, f"environment {index}")
        return PaddedUnit(copy, padding(self.observation_space), self.told, None if known else self.check)

    def check(self, env: Any) -> None:
        """Raise if an environment's agents are not these, or have other spaces."""
        named = listed_agents(env)
        if named and set(named) != set(self.agents):
            raise RuntimeError(f"the agents of every environment must be {list(self.agents)}, and here they are {list(named)}")
        for kind, space_of, space in (
            ("observation", env.observation_space, self.observation_space),
            ("action", env.action_space, self.action_space),
        ):
            for agent in self.agents:
                if space_of(agent) != space:
                    raise RuntimeError(f"the {kind} space of every agent must be {space}; {agent!r} has {space_of(agent)}")


class AgentsProbe:
    """A unit as :func:`~reactor_gymnasium.environments.saving.probe_save_strategy` tries one: no infos come out.

    Args:
        unit: The unit.
        action_space: What :meth:`step` is given: here an action of each agent.
    """

    def __init__(self, unit: Any, action_space: Space[Any]) -> None:
        self.unit, self.action_space = unit, action_space

    @classmethod
    def padded(cls, env_fn: Any, units: PaddedUnits) -> AgentsProbe:
        """A throw-away one, of an encoded function."""
        unit = units(make_probe(decode(env_fn)), 0)
        return cls(unit, spaces.Tuple([units.action_space] * unit.rows))

    def __getstate__(self) -> Any:
        return self.unit.__getstate__()

    def __setstate__(self, state: Any) -> None:
        self.unit.__setstate__(state)

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode. Returns what agents see, and no info."""
        self.unit.reset(seed=seed)
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        """Take a step. Returns what agents see, their rewards, who has ended, and whether the episode is over."""
        unit = self.unit
        unit.step(self._actions(action))
        return self._seen(), unit.rewards, unit.ended, unit.over

    def close(self) -> None:
        """Close the environment."""
        self.unit.env.close()

    def _seen(self) -> Any:
        """Return what agents see now."""
        return self.unit.seen

    def _actions(self, action: Any) -> Any:
        """Return what the unit is given for an action."""
        return action


_NO_STATE = frozenset({"observations", "infos", "gains", "ends", "none"})
"""Attributes that a copy has for the step that it takes."""
