"""``AgentRecord``: what the agents of a copy see who act next, in a record: groups of agents with equal spaces, and their masks.

An agent's rows of the record are looked at before they are written: shape, dtype, action masks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import Space
from numpy import ndarray

from reactor_gymnasium.plugin import ObservationLayout
from reactor_pettingzoo.agents import AgentSpecs
from reactor_pettingzoo.copies import Copy
from reactor_pettingzoo.reading import MASK, AgentID

__all__ = ["AgentRecord", "CopyRecord", "ObservedArray"]

Array = npt.NDArray[Any]

_Plan = tuple[list[Any], list[Any], list[Any], list[Any]]
"""See :meth:`CopyRecord._plan`."""
PLANS = 64
"""How many are kept of a copy: one for each set of agents that acts together. In most games there are one or two; where every set
is new, keeping them gains nothing, and memory must not grow.
"""


class AgentRecord:
    """How a copy shows what its agents see: as a record for each environment, of the dtype of :meth:`AgentSpecs.record`.

    It is a :class:`~reactor_gymnasium.environments.unit_rows.UnitLayout`, and writes a :class:`~reactor_pettingzoo.copies.Copy`.
    Rows of agents that do not act next are zeros; they all are when the episode is over.
    """

    whole = True
    arrays: Sequence[Any] = ("record",)
    objects: Sequence[Any] = ()

    def __init__(self, specs: AgentSpecs) -> None:
        self.specs = specs

    def storage(self) -> tuple[tuple[int, ...], np.dtype[Any]]:
        return (), self.specs.record()

    def writer(self, rows: Any) -> Callable[[int, Any], None]:
        """See :class:`~reactor_gymnasium.environments.unit_rows.UnitLayout`; a copy's record is written by :class:`CopyRecord`."""
        return rows.__setitem__  # type: ignore[no-any-return]

    def batch_writer(self, rows: Any) -> None:
        """One by one is as cheap."""


class CopyRecord:
    """The record of a copy. What is looked up is looked up once per change of those who act.

    Args:
        specs: The agents.
        record: Of shape ``()``.
    """

    def __init__(self, specs: AgentSpecs, record: Array) -> None:
        self.places = {agent: AgentFields(specs, record, agent) for agent in specs.agents}
        self.fields = [record[name] for group in specs.groups for name, _, _ in group.fields()]
        self.acting: Array = record["acting"]
        self.masked = False  # whether an agent has a mask now, where nobody had one after the first reset
        self.acts: Sequence[AgentID] | None = None
        self.plans: dict[tuple[AgentID, ...], _Plan] = {}  # by those who act

    def write(self, copy: Copy) -> None:
        """Write what those see who act next.

        Raises:
            ValueError, TypeError: If something does not fit, or is not there.
        """
        if copy.acts is not self.acts:
            self._change(copy)
        observations, infos = copy.observations, copy.infos
        agent: AgentID = None
        try:
            for agent, array, dtype, shape, part in self.whole:
                seen = observations[agent]
                if type(seen) is not ndarray or seen.dtype != dtype or seen.shape != shape:
                    seen = part.fitting(copy.observation(agent))
                array[...] = seen
            for agent, part in self.nested:
                part.write(copy.observation(agent))
            for agent, place in self.masks:
                copy.mask(place.group, agent, place.mask)
            if self.may_be_masked and (self.masked or (infos and any(infos.values()))):
                self.masked = False
                for agent, place in self.may_be_masked:
                    self.masked |= place.write_mask(copy, agent)
        except KeyError as error:
            if agent not in observations:
                raise copy.blind(agent) from None
            what = f"there is no {error} in the observation or info of agent {agent!r} ({infos.get(agent)})"
            raise copy.broken(what) from None
        except (TypeError, ValueError) as error:
            error.add_note(f"in what agent {agent!r} is to see")
            raise

    def _change(self, copy: Copy) -> None:
        """Take account of who acts next: it is not who acted before."""
        acts, before, places = copy.acts, self.acts, self.places
        if copy.turns and acts:
            self.acting[...] = copy.index[acts[0]]
        elif before is None or before:
            self.acting[...] = 0
        if not (copy.turns and acts and before and places[acts[0]].group is places[before[0]].group):
            for field in self.fields:  # the rows of everybody else are zeros
                field[...] = 0
            for agent in acts:
                place = places[agent]
                place.alive[...] = True
                place.free()
        # Else they take turns and share a row, all of which is written anew.
        key = tuple(acts)
        plan = self.plans.get(key)
        if plan is None:
            if len(self.plans) >= PLANS:
                self.plans.clear()
            plan = self.plans[key] = self._plan(acts)
        self.whole, self.nested, self.masks, self.may_be_masked = plan
        self.acts = acts

    def _plan(self, agents: Sequence[AgentID]) -> _Plan:
        """Where what some agents see is written.

        Returns:
            Arrays that are all that an agent sees, with what does not fit one of them written by their last item; parts of what an
            agent sees; agents that have an action mask; and agents whose info may have one, which nobody had after the first reset.
        """
        places = [(agent, self.places[agent]) for agent in agents]
        observed = [(agent, part) for agent, place in places for part in place.observed]
        return (
            [(agent, part.array, part.dtype, part.shape, part) for agent, part in observed if not part.path],
            [(agent, part) for agent, part in observed if part.path],
            [(agent, place) for agent, place in places if place.group.mask in ("observation", "info")],
            [(agent, place) for agent, place in places if place.group.mask in ("later", "")],
        )


class ObservedArray:
    """One array of what an agent sees.

    Args:
        array: Where it belongs.
        space: What it is.
        path: The keys that lead to it in what the environment returns.
    """

    def __init__(self, array: Array, space: Space[Any], path: tuple[Any, ...]) -> None:
        assert space.shape is not None and space.dtype is not None
        self.array, self.space, self.path = array, space, path
        self.shape, self.dtype = tuple(space.shape), np.dtype(space.dtype)
        self._leaves = ObservationLayout(space)

    def write(self, observation: Any) -> None:
        """Write it down from an observation.

        Raises:
            ValueError, TypeError: As :meth:`fitting` does.
        """
        for key in self.path:
            observation = observation[key]
        self.array[...] = self.fitting(observation)

    def fitting(self, value: Any) -> Array:
        """The value as an array that may be written.

        Raises:
            ValueError: If it has another shape, which a write would hide by broadcasting, or is a number that its space lacks.
            TypeError: If it does not cast to the dtype of its space.
        """
        array = np.asarray(value)
        if array.dtype == self.dtype and array.shape == self.shape:
            return array
        self._leaves.check(array)
        if self.dtype.kind in "iu" and not np.can_cast(array.dtype, self.dtype):
            narrow = array.astype(self.dtype)
            if not np.array_equal(narrow, array) or not self.space.contains(narrow if narrow.shape else narrow[()]):
                raise ValueError(f"the observation {array.tolist()} of dtype {array.dtype} is not in {self.space}")
        return array


class AgentFields:
    """The fields of a record that belong to one agent.

    Args:
        specs: The agents.
        record: The environment's record, of shape ``()``.
        agent: The agent.

    Attributes:
        group: The agents with equal spaces.
        alive: Its flag, of shape ``()``.
        observed: The arrays that it sees.
        mask: Its action mask; ``None`` where there is no room for one.
        masked: Where masks may come later, whether it has one now; else ``None``.
    """

    def __init__(self, specs: AgentSpecs, record: Array, agent: AgentID) -> None:
        group, row = specs.group_of(agent)
        self.group = group
        self.alive: Array = record[group.field("alive")][row, ...]
        fields = ((record[group.field(f"observation.{key}")][row, ...], part, group.path(key)) for key, part in group.parts.items())
        self.observed = [ObservedArray(*field) for field in fields]
        self.mask: Array | None = record[group.field(MASK)][row].view(np.bool_) if group.mask else None
        self.masked: Array | None = record[group.field("masked")][row, ...] if group.mask == "later" else None

    def write_mask(self, copy: Copy, agent: AgentID) -> bool:
        """Write down the agent's action mask, if it has one; whether it has."""
        if copy.mask(self.group, agent, self.mask) is None:
            self.free()
            return False
        if self.masked is not None:
            self.masked[...] = True
        return True

    def free(self) -> None:
        """Any action is legal."""
        if self.mask is not None and self.masked is not None:
            self.mask[...] = 1
            self.masked[...] = False
