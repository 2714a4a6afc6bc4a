"""Cars on crossing roads, in the shape of ma_gym's TrafficJunction, with dynamics that cost next to nothing.

What a multi-agent framework costs is seen only beside an environment that is cheaper than it. Everything that a step needs is
looked up in tables: where a car gets to, which cell that is, and its five float32 values as bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import add, itemgetter
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.utils import seeding
from pettingzoo import ParallelEnv

Array = np.ndarray[Any, Any]

SPEEDS = 5
FEATURES = 5
"""Of each car: x, y, the way it goes (two numbers), its speed."""
SLOTS = 10
"""Cars that an observation has room for, so that four agents see as many numbers as ten do."""
GAIN = 0.25
CRASH = 2.0
"""Rewards are multiples of a quarter, which float adds exactly: a total is the same in whatever order it is summed."""


class JunctionEnv(ParallelEnv[str, Array, int]):
    """Two roads of two lanes each that cross in the middle of a grid.

    An action is a speed: so many cells does the car go. One that leaves the grid enters it at the other end of its lane, so the
    agents are the same for the whole episode. The reward of an agent is a quarter of its speed, less 2 if it ends in a cell with
    another car. An agent sees all cars, itself first: 50 float32 values for up to 10 agents. Each step's observations are rows of
    one new array and share no memory with anything earlier.

    Args:
        n_agents: Number of cars.
        max_cycles: Steps until the episode is truncated.
        size: Length of the lanes, even.
    """

    metadata = {"name": "junction_v0", "render_modes": [], "is_parallelizable": True}
    render_mode = None

    def __init__(self, n_agents: int = 10, max_cycles: int = 100, size: int = 14) -> None:
        if n_agents < 2 or size < 4 or size % 2:
            raise ValueError("a junction has at least two agents and an even size of at least 4")
        self.n_agents, self.max_cycles, self.size = n_agents, max_cycles, size
        self.possible_agents = [f"car_{i}" for i in range(n_agents)]
        self.agents: list[str] = []
        slots = max(n_agents, SLOTS)
        width = slots * FEATURES
        self._observation_spaces = {agent: Box(-1.0, 1.0, (width,), np.float32) for agent in self.possible_agents}
        self._action_spaces = {agent: Discrete(SPEEDS) for agent in self.possible_agents}

        # A place is a cell of a lane: the number of the lane times the size, plus how far along it. Cars take lanes in turn.
        half = size // 2
        ways = ((1, 0), (0, 1), (-1, 0), (0, -1))
        cells: list[int] = []
        rows: list[list[bytes]] = []
        for dx, dy in ways:
            for along in range(size):
                at = along if dx + dy > 0 else size - 1 - along
                x, y = (at, half - (dx > 0)) if dx else (half - (dy > 0), at)
                cells.append(y * size + x)
                rows.append([
                    np.array((x / size, y / size, dx, dy, speed / (SPEEDS - 1)), np.float32).tobytes() for speed in range(SPEEDS)
                ])  # fmt: skip
        self._standing = [of_speed[0] for of_speed in rows]
        self._moves: list[list[tuple[int, int, bytes, float]]] = []
        for place in range(len(cells)):
            lane, along = divmod(place, size)
            reached = [lane * size + (along + speed) % size for speed in range(SPEEDS)]
            self._moves.append([(to, cells[to], rows[to][speed], speed * GAIN) for speed, to in enumerate(reached)])
        self._first = [i % len(ways) * size for i in range(n_agents)]
        self._speeds_of = itemgetter(*self.possible_agents)
        self._empty = [bytes(4 * FEATURES)] * (slots - n_agents)
        self._shape, self._strides = (n_agents, width), (4 * FEATURES, 4)
        self._places = tuple(self._first)
        self._cycle = 0
        self._random: np.random.Generator | None = None

    def observation_space(self, agent: str) -> Box:
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> Discrete:
        return self._action_spaces[agent]

    def _observe(self, rows: Iterable[bytes]) -> dict[str, Array]:
        """Agent i sees cars i, i + 1, ...: a window of the rows repeated twice, moved on by one row for each agent."""
        windows = np.ndarray(self._shape, np.float32, b"".join((*rows, *self._empty)) * 2, 0, self._strides)
        return dict(zip(self.possible_agents, windows.copy(), strict=True))

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Array], dict[str, Any]]:
        if seed is not None or self._random is None:
            self._random, _ = seeding.np_random(seed)
        starts = self._random.integers(self.size, size=self.n_agents).tolist()
        self._places = tuple(map(add, self._first, starts))
        self._cycle = 0
        self.agents = list(self.possible_agents)
        return self._observe([self._standing[place] for place in self._places]), {agent: {} for agent in self.agents}

    def step(
        self, actions: dict[str, int]
    ) -> tuple[dict[str, Array], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Any]]:
        agents, moves = self.possible_agents, self._moves
        # Indexing a list takes any kind of integer, so numpy's actions do not turn the places into numpy's integers.
        found = [moves[place][speed] for place, speed in zip(self._places, self._speeds_of(actions), strict=True)]
        self._places, cells, rows, rewards = zip(*found, strict=True)
        if len(set(cells)) < self.n_agents:
            count = cells.count
            rewards = tuple([gain - CRASH if count(cell) > 1 else gain for gain, cell in zip(rewards, cells, strict=True)])
        observations = self._observe(rows)
        self._cycle += 1
        over = self._cycle >= self.max_cycles
        if over:
            self.agents = []
        return (
            observations, dict(zip(agents, rewards, strict=True)), dict.fromkeys(agents, False), dict.fromkeys(agents, over),
            {agent: {} for agent in agents},
        )  # fmt: skip

    def render(self) -> None:
        """There is nothing to see."""

    def close(self) -> None:
        """There is nothing to end."""
