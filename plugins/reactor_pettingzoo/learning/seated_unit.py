"""``SeatedUnit``: a copy of a PettingZoo environment as trainers' actors step it, its agents ordered by their policies.

To a trainer it is one environment. What its policies see is the observation; who acts, what is allowed, and what a step was to whom
are columns, each with a place for every seat.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from reactor_gymnasium.plugin import StepBuffers, UnitRows
from reactor_pettingzoo.agent_record import AgentRecord
from reactor_pettingzoo.agents import EnvFn
from reactor_pettingzoo.copies import Copy, copy_of
from reactor_pettingzoo.joint_env import JointEnv
from reactor_pettingzoo.learning.seats import ACTING, RETURNS, REWARDS, TERMINATIONS, TRUNCATIONS, Block, Seats
from reactor_pettingzoo.reading import MASK, AgentID, choices_of, segments
from reactor_pettingzoo.rows import AgentsUnit

__all__ = ["JointMaker", "SeatedUnit", "seated_rows"]

Array = npt.NDArray[Any]


class JointMaker:
    """Makes environments of all agents together.

    Args:
        env_fn: Makes a ``ParallelEnv`` or an ``AECEnv``.
        seats: Its agents.
    """

    def __init__(self, env_fn: EnvFn, seats: Seats) -> None:
        self.env_fn, self.seats = env_fn, seats

    def __call__(self) -> JointEnv:
        return JointEnv(self.env_fn, self.seats, SeatedUnit)

    @classmethod
    def of(cls, env_fn: EnvFn, seats: Seats) -> JointMaker:
        """One that can be asked for a render mode, where ``env_fn`` can."""
        try:
            parameters = inspect.signature(env_fn).parameters
        except (TypeError, ValueError):
            return cls(env_fn, seats)
        asked = "render_mode" in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values())
        return VisibleJointMaker(env_fn, seats) if asked else cls(env_fn, seats)


class VisibleJointMaker(JointMaker):
    """Makes environments that can be seen, if they are to be."""

    def __call__(self, render_mode: str | None = None) -> JointEnv:
        env_fn: Any = self.env_fn
        return JointEnv(env_fn if render_mode is None else partial(env_fn, render_mode=render_mode), self.seats, SeatedUnit)


def seated_rows(seats: Seats, first: int) -> UnitRows:
    """Rows of such environments, as trainers step them; ``first`` is the number of the first environment."""
    return UnitRows(first, AutoresetMode.SAME_STEP, _unit_in, AgentRecord(cast(Any, seats)), seats.told)


def _unit_in(env: Any, index: int) -> Any:
    """The unit of an environment that a maker has made: to whoever looks, it is that environment."""
    unit = env.unwrapped.unit
    unit.env = env
    return unit


class SeatedUnit(AgentsUnit):
    """A copy of which one row shows all agents.

    Rows of agents that do not act are zeros, or what they saw last; their masks allow everything. Where agents take turns, a policy
    has one row: that of the agent whose turn it is.
    """

    def __init__(self, env: Any, seats: Seats) -> None:
        super().__init__(copy_of(env, seats.specs.agents, seats.specs.turns), [])
        self.rows, self.seats, self.specs = 1, seats, seats.specs
        self.observation_space, self.action_space = seats.observation_space(), seats.action_space()
        self.record = np.zeros((), seats.record())
        self.columns = {name: np.zeros(shape, dtype) for name, (dtype, shape) in seats.told.items()}
        self.order = -1  # number of the episode's order of seats
        self.at: dict[AgentID, int] = {}
        self.totals: list[float] = []
        self.length = 0
        self._sees = [
            Place(number, block, row, self.record, self.columns)
            for number, block in enumerate(seats.blocks)
            for row in range(block.agents)
        ]

    def __getstate__(self) -> dict[str, Any]:
        kept = {name: getattr(self, name) for name in ("order", "totals", "length", "columns")}
        return {**super().__getstate__(), "record": self.record.tobytes(), **kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        env = self.env  # which holds this unit
        super().__setstate__(state)
        self.env, self.record[...] = env, np.frombuffer(state["record"], self.record.dtype)[0]
        self.order, self.totals, self.length = state["order"], state["totals"], state["length"]
        self._sit()
        for name, column in state["columns"].items():
            self.columns[name][...] = column

    def _sit(self) -> None:
        """Have agents on the seats of the episode's order."""
        self.at, self._known = {agent: seat for seat, agent in enumerate(self.seats.orders[self.order])}, None
        places = [self._sees[self.at[agent]] for agent in self.copy.agents]
        self.places = [(place.number, place.row) for place in places]

    # ------------------------------------------------------------------ episodes

    def reset(self, **kwargs: Any) -> None:
        """Begin an episode."""
        seed = kwargs.get("seed")
        # By the seed, where there is one: what happens after it can be repeated from the actions alone.
        self.order = (self.order + 1 if seed is None else seed) % len(self.seats.orders)
        self._sit()
        self.totals, self.length, self.infos = [0.0] * self.seats.count, 0, {}
        for place in self._sees:
            place.clear()
        super().reset(**kwargs)
        self._see()

    def step(self, actions: Any) -> None:
        """Take a step: an action of everybody who is there or, where agents take turns, of one."""
        self.length += 1
        if isinstance(actions, np.ndarray) and actions.ndim:
            actions = actions[0]  # its only row
        super().step([block.taken(actions[block.policy]) for block in self.seats.blocks])
        self.rewards = (self._gain(),)
        self._see()
        copy = self.copy
        self.ended, self.infos = (), {}
        if self.over:
            self.ended = ((0, not copy.cut, copy.cut),)
            of_agents = {str(agent): round(self.totals[seat], 6) for agent, seat in self.at.items() if agent in copy.present}
            total = sum(sum(self.totals[block.seats]) for block in self.seats.learning)
            if self.seats.rivals:
                total = 2 * total - sum(self.totals)
            self.infos = {0: {"episode": {**of_agents, "r": round(total, 6), "l": self.length}}}

    def _gain(self) -> float:
        """Note what the step was to those who were there; returns the sum of the rewards that count."""
        copy, columns, totals, counted = self.copy, self.columns, self.totals, self.seats.counted
        gains, index, total = [0.0] * self.seats.count, copy.index, 0.0
        for agent in self.there:
            seat, number = self.at[agent], float(copy.gains[index[agent]])
            gains[seat] = number
            totals[seat] += number
            if self._sees[seat].policy in counted:
                total += number
            elif number != number:  # of the others the trainer looks at nothing
                raise ValueError(f"the reward of agent {agent!r} is NaN")
        columns[REWARDS][...] = gains
        terminations, truncations = columns[TERMINATIONS], columns[TRUNCATIONS]
        terminations.fill(False)
        truncations.fill(False)
        for agent, terminated, truncated in copy.ends:
            terminations[self.at[agent]], truncations[self.at[agent]] = terminated, truncated
        if RETURNS in columns:
            columns[RETURNS][...] = totals
        return total

    # ------------------------------------------------------------------ what is seen

    def _see(self) -> None:
        """Write down what agents see, of those that have gone for the last time."""
        copy, acting, places, at = self.copy, self.columns[ACTING], self._sees, self.at
        acting.fill(False)
        if copy.turns and not copy.over:
            for block in self.seats.blocks:
                places[block.first].clear()
        for agent in copy.acts:
            acting[at[agent]] = True
            places[at[agent]].see(copy, agent)
        if not copy.turns:
            for agent, terminated, _ in copy.ends:
                # Nobody goes on from what an agent saw last when it was terminated: it may go without.
                if not terminated or agent in copy.observations:
                    places[at[agent]].see(copy, agent, acts=False)
        blocks, record = self.seats.blocks, self.record
        if blocks[0].state:  # for the critic of each agent
            env: Any = copy.env
            whole = self.seats.whole
            state = np.concatenate([record[block.key()].ravel() for block in blocks]) if whole else np.asarray(env.state()).ravel()
            for block in blocks:
                record[block.state_key][...] = state

    def seen(self) -> dict[str, Any]:
        """Return what everybody sees."""
        return {name: self.record[name] for name in self.observation_space}

    def show(self, out: StepBuffers, lo: int) -> None:
        out.observations[lo] = self.record
        columns = self.columns
        for name, column in out.columns.items():
            column[lo] = columns[name]

    def last(self, row: int) -> None:
        """See :class:`~reactor_gymnasium.environments.unit_rows.Unit`; it is in the record."""

    def allowed(self, actions: Mapping[str, Any]) -> dict[str, Array]:
        """Copies of actions, or the next ones that are allowed in the place of those that masks forbid.

        No policy chooses what is forbidden. Random actions may, by which it is tried whether an environment can be saved.
        """
        found = {block.policy: np.array(actions[block.policy]) for block in self.seats.blocks}
        for place in self._sees:
            if place.mask is not None:
                choices = found[place.policy][place.row : place.row + 1].reshape(-1)  # a view
                for number, part in enumerate(segments(choices_of(place.block.group.action_space))):
                    mask, choice = place.mask[part], int(choices[number])
                    choices[number] = (choice + int(np.roll(mask, -choice).argmax())) % len(mask)
        return found


class Place:
    """Where what an agent sees is in the record of all, and its mask in the columns: the agent is a member of a numbered block."""

    def __init__(self, number: int, block: Block, member: int, record: Array, columns: Mapping[str, Array]) -> None:
        self.number, self.block, self.policy = number, block, block.policy
        self.row = row = member if block.rows > 1 else 0
        self.parts = []  # arrays of the shape that the environment gives, and where it gives them
        for (key, part), seen in zip(block.group.parts.items(), block.parts.values(), strict=False):  # but the state
            array = record[block.key(key)][row].reshape(seen.shape or ())
            self.parts.append((array if seen.shape == part.shape else array.transpose(1, 2, 0), block.group.path(key)))
        self.mask = columns[block.mask_key][row] if block.masked else None

    def see(self, copy: Copy, agent: AgentID, acts: bool = True) -> None:
        """Write down what the agent sees, and its mask if it acts next.

        Raises:
            ValueError: If something has another shape than its space, or a mask comes where none is expected.
        """
        observation = copy.observation(agent)
        for row, path in self.parts:
            value = observation
            for step in path:
                try:
                    value = value[step]
                except (KeyError, TypeError, IndexError) as error:
                    raise copy.broken(f"there is no {step!r} in the observation of agent {agent!r}") from error
            array = np.asarray(value)
            if array.shape != row.shape:
                raise ValueError(f"what agent {agent!r} observes has shape {array.shape}, its space says {row.shape}")
            row[...] = array
        if self.mask is not None:
            self.mask.fill(True)
            if acts:
                copy.mask(self.block.group, agent, self.mask)
        elif acts and copy.mask(self.block.group, agent) is not None:
            raise ValueError(
                f"agent {agent!r} has an {MASK!r} in its info, where no agent had one after reset(seed=0): give one in each info"
            )

    def clear(self) -> None:
        """Show nothing to the block's policy, and allow everything."""
        for row, _ in self.parts:
            row.fill(0)
        if self.mask is not None:
            self.mask.fill(True)
