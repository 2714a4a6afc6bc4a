"""``SeatedUnit``: a copy of a PettingZoo environment as trainers' actors step it, its agents ordered by their policies.

To a trainer it is one environment. What its policies see is the observation; who acts, what is allowed, and what a step was to whom
are columns, each with a place for every seat.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from reactor_gymnasium.plugin import StepBuffers, UnitRows
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
    """Rows of such environments, as trainers step them.

    Args:
        seats: Their agents.
        first: Number of the first environment.
    """
    return UnitRows(first, AutoresetMode.SAME_STEP, _unit_in, SeatedLayout(seats), seats.told)


def _unit_in(env: Any, index: int) -> Any:
    """The unit of an environment that a maker has made: to whoever looks, it is that environment."""
    unit = env.unwrapped.unit
    unit.env = env
    return unit


class SeatedLayout:
    """How a :class:`SeatedUnit` shows what its policies see: as a record, which it writes itself.

    Args:
        seats: The agents.
    """

    whole = True
    arrays: Sequence[Any] = ("record",)
    objects: Sequence[Any] = ()

    def __init__(self, seats: Seats) -> None:
        self.seats = seats

    def storage(self) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """See :class:`~reactor_gymnasium.environments.unit_rows.UnitLayout`."""
        return (), self.seats.record

    def writer(self, rows: Array) -> Callable[[int, Any], None]:
        """See :class:`~reactor_gymnasium.environments.unit_rows.UnitLayout`."""
        return rows.__setitem__

    def batch_writer(self, rows: Any) -> None:
        """One by one is as cheap."""


class SeatedUnit(AgentsUnit):
    """A copy of which one row shows all agents.

    Rows of agents that do not act are zeros, or what they saw last; their masks allow everything. Where agents take turns, a policy
    has one row: that of the agent whose turn it is.

    Args:
        env: The environment.
        seats: Its agents.
    """

    def __init__(self, env: Any, seats: Seats) -> None:
        super().__init__(copy_of(env, seats.specs.agents, seats.specs.turns), [])
        self.rows, self.seats, self.specs = 1, seats, seats.specs
        self.observation_space, self.action_space = seats.observation_space(), seats.action_space()
        self.record = np.zeros((), seats.record)
        self.columns = {name: np.zeros(shape, dtype) for name, (dtype, shape) in seats.told.items()}
        self.order = -1  # number of the episode's order of seats
        self.at: dict[AgentID, int] = {}
        self.totals: list[float] = []
        self.length = 0
        self._bound: dict[int, list[tuple[Array, Array]]] = {}
        self._doing = [Doing(block) for block in seats.blocks]
        self._sees = [
            Place(number, block, row, self.record, self.columns)
            for number, block in enumerate(seats.blocks)
            for row in range(block.agents)
        ]

    def __getstate__(self) -> dict[str, Any]:
        kept = {name: getattr(self, name) for name in ("order", "at", "totals", "length", "columns")}
        return {**super().__getstate__(), "record": self.record.tobytes(), **kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        env = self.env  # which holds this unit
        super().__setstate__(state)
        self.env, self.record[...] = env, np.frombuffer(state["record"], self.record.dtype)[0]
        self.order, self.totals, self.length = state["order"], state["totals"], state["length"]
        self._sit(state["at"])
        for name, column in state["columns"].items():
            self.columns[name][...] = column

    def _sit(self, at: dict[AgentID, int]) -> None:
        """Have agents on these seats."""
        self.at, self._known = at, None
        self.places = [(place.number, place.row) for place in map(self._sees.__getitem__, map(at.__getitem__, self.copy.agents))]

    # ------------------------------------------------------------------ episodes

    def reset(self, **kwargs: Any) -> None:
        """Begin an episode."""
        orders, seed = self.seats.orders, kwargs.get("seed")
        # By the seed, where there is one: what happens after it can be repeated from the actions alone.
        self.order = (self.order + 1 if seed is None else seed) % len(orders)
        self._sit({agent: seat for seat, agent in enumerate(orders[self.order])})
        self.totals, self.length, self.infos = [0.0] * self.seats.count, 0, {}
        self.record[...] = np.zeros((), self.record.dtype)
        for place in self._sees:
            place.free()
        super().reset(**kwargs)
        self._see()

    def step(self, actions: Any) -> None:
        """Take a step: an action of everybody who is there or, where agents take turns, of one."""
        self.length += 1
        if isinstance(actions, np.ndarray) and actions.ndim:
            actions = actions[0]  # its only row
        super().step([doing(actions) for doing in self._doing])
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
        return {name: self.record[name] for name in self.observation_space.spaces}

    def show(self, out: StepBuffers, lo: int) -> None:
        """See :class:`~reactor_gymnasium.environments.unit_rows.Unit`."""
        out.observations[lo] = self.record
        for row, column in self._bound.get(id(out)) or self._of(out, lo):
            row[...] = column

    def _of(self, out: StepBuffers, lo: int) -> list[tuple[Array, Array]]:
        """Rows of a memory, and what belongs there. There are two memories, which stay."""
        bound = self._bound[id(out)] = [(column[lo], self.columns[name]) for name, column in out.columns.items()]
        return bound

    def last(self, row: int) -> None:
        """See :class:`~reactor_gymnasium.environments.unit_rows.Unit`; it is in the record."""

    def allowed(self, actions: Mapping[str, Any]) -> dict[str, Array]:
        """Copies of actions, or the next ones that are allowed in the place of those that masks forbid.

        No policy chooses what is forbidden. Random actions may, by which it is tried whether an environment can be saved.
        """
        found = {block.policy: np.array(actions[block.policy]) for block in self.seats.blocks}
        for place in self._sees:
            place.allow(found[place.policy])
        return found


class Doing:
    """Actions of the agents of a block, of those of all.

    Args:
        block: The block.
    """

    def __init__(self, block: Block) -> None:
        self.policy, space = block.policy, block.group.action_space
        self.choices = isinstance(space, spaces.Discrete)
        self.start = space.start if isinstance(space, spaces.Discrete | spaces.MultiDiscrete) else None
        if self.start is not None and not np.any(self.start):
            self.start = None

    def __call__(self, actions: Any) -> list[Any]:
        """An action for each row, as the environment takes it: what is chosen among several is an int."""
        of_block = actions[self.policy]
        if self.start is not None:
            of_block = of_block + self.start
        found: list[Any] = of_block.tolist() if self.choices else [of_block[row, ...] for row in range(len(of_block))]
        return found


class Place:
    """Where what an agent on a seat sees is.

    Args:
        number: Of the block.
        block: Of its policy.
        member: Number of the seat in the block.
        record: What everybody sees.
        columns: With the masks.
    """

    def __init__(self, number: int, block: Block, member: int, record: Array, columns: Mapping[str, Array]) -> None:
        self.number, self.block, self.policy = number, block, block.policy
        self.row = row = member if block.rows > 1 else 0
        self.parts = [
            (record[block.key(key)][row], block.group.path(key), tuple(part.shape or ()), block.parts[key].shape != part.shape)
            for key, part in block.group.parts.items()
        ]
        self.mask = columns[block.mask_key][row] if block.masked else None
        self.segments = segments(choices_of(block.group.action_space))

    def see(self, copy: Copy, agent: AgentID, acts: bool = True) -> None:
        """Write down what the agent sees, and its mask if it acts next.

        Raises:
            ValueError: If something has another shape than its space, or a mask comes where none is expected.
        """
        observation = copy.observation(agent)
        for row, path, shape, turned in self.parts:
            value = observation
            for step in path:
                try:
                    value = value[step]
                except (KeyError, TypeError, IndexError) as error:
                    raise copy.broken(f"there is no {step!r} in the observation of agent {agent!r}") from error
            array = np.asarray(value)
            if array.shape != shape:
                raise ValueError(f"what agent {agent!r} observes has shape {array.shape}, its space says {shape}")
            if turned:
                array = array.transpose(2, 0, 1)
            row[...] = array.reshape(-1)
        if self.mask is not None:
            self.mask.fill(True)
            if acts:
                copy.mask(self.block.group, agent, self.mask)
        elif acts and copy.mask(self.block.group, agent) is not None:
            raise ValueError(
                f"agent {agent!r} has an {MASK!r} in its info, where no agent had one after reset(seed=0): give one in each info"
            )

    def clear(self) -> None:
        """Show nothing to the block's policy."""
        for row, *_ in self.parts:
            row.fill(0)
        self.free()

    def free(self) -> None:
        """Allow everything."""
        if self.mask is not None:
            self.mask.fill(True)

    def allow(self, actions: Array) -> None:
        """Have the seat's action, of those of its block, be one that its mask allows."""
        if self.mask is None:
            return
        choices = actions[self.row : self.row + 1].reshape(-1)  # a view
        for number, part in enumerate(self.segments):
            mask, choice = self.mask[part], int(choices[number])
            if mask.any():
                choices[number] = (choice + int(np.roll(mask, -choice).argmax())) % len(mask)
