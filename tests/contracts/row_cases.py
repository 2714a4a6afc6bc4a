"""Kinds of environments, and what steps each of them. A new kind is a new :class:`Case`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from agent_envs import Crowd
from aliasing_envs import ACTIONS, OBSERVATIONS, Hoarders, Players
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import SyncVectorEnv, VectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit, TransformReward
from pettingzoo.classic.tictactoe import tictactoe
from plain_loops import DISABLED, NEXT, SAME, Batch, Game, InTurns, Loop, Plain, Recorded, Single, Together
from reusing_envs import HABITS, Reusing
from stable_baselines3.common.monitor import Monitor

from reactor_gymnasium import AtariEnv, ReactorVectorEnv
from reactor_gymnasium.atari.game import AtariGame, AtariOptions
from reactor_gymnasium.atari.unit import COLUMNS, AtariUnit
from reactor_gymnasium.atari.vector_env import rom_path
from reactor_gymnasium.environments.gym_rows import GymRows
from reactor_gymnasium.environments.rows import EnvRows
from reactor_gymnasium.environments.storage import ObservationLayout
from reactor_gymnasium.environments.unit_rows import UnitRows
from reactor_gymnasium.vector.vector_unit import VectorRows, sub_env_spec
from reactor_pettingzoo import ParallelVectorEnv
from reactor_pettingzoo.agent_record import AgentRecord
from reactor_pettingzoo.agents import probe_agents
from reactor_pettingzoo.copies import copy_of
from reactor_pettingzoo.rows import AGENT_COLUMNS, AgentsUnit, PaddedUnits
from tests.gymnasium_plugin.native.own_kernels import Board

MODES = (NEXT, SAME, DISABLED)


@dataclass
class Case:
    """A kind of environment, and what steps it.

    Attributes:
        rows: From the first index, the mode and the seeds to rows without environments.
        env: Makes an environment; or several that make one each.
        kind: How a plain loop steps one.
        space: Of the observation of a row.
        twin: Makes one for the plain loop, which has no habits; by default it is the same.
        layout: Of the observation of a row; by default as a vector environment has it.
        pack: From the actions of all rows to what is given.
        envs: From makers and mode to the vector environment that has such rows.
        modes: Those that it has.
        unusual: How it uses arrays, and keeps actions, is the only thing that is new about it.
        dear: Whether it takes so long that some checks of it are ``slow``.
        saved: Whether its state is all there is of it.
    """

    rows: Callable[..., EnvRows]
    env: Any
    kind: type[Plain]
    space: spaces.Space[Any] | None = None
    layout: Any = None
    twin: Any = None
    pack: Callable[[Any], Any] = lambda actions: actions
    envs: Callable[..., VectorEnv[Any, Any, Any]] | None = None
    modes: tuple[Any, ...] = MODES
    unusual: bool = False
    dear: bool = False
    saved: bool = True

    def __post_init__(self) -> None:
        self.layout = self.layout or ObservationLayout(self.space)

    def makers(self, makers: Any = None) -> list[Any]:
        """Three of them."""
        makers = makers or self.env
        return list(makers) if isinstance(makers, (list, tuple)) else [makers] * 3

    def loop(self, mode: Any, seeds: Any = None) -> Loop:
        """The plain loop."""
        return Loop([self.kind(make(), number) for number, make in enumerate(self.makers(self.twin))], mode, seeds)


# ---------------------------------------------------------------------- cases


def limited(*habits: str, space: str = "small", actions: str = "box") -> Any:
    """In wrappers that are left out."""
    return TimeLimit(Reusing(habits, space, actions, 8), 7)


class Drawn(TransformReward[Any, Any]):
    """A wrapper that nothing is known of."""

    def __init__(self, env: Any) -> None:
        super().__init__(env, lambda reward: reward * 0.5)


def drawn() -> Any:
    return Drawn(gymnasium.make("CartPole-v1", max_episode_steps=9))


def recorded(recorder: Any, name: str) -> Any:
    return recorder(gymnasium.make(name, max_episode_steps=8))


def board() -> Any:
    return TimeLimit(Board(), 9)


class Texts(Reusing):
    """Shows texts besides."""

    def __init__(self) -> None:
        super().__init__(("own observation",), length=5)
        self.observation_space = spaces.Dict(facts=self.observation_space, name=spaces.Text(4))

    def _observation(self) -> Any:
        kept = self.mine.setdefault("facts", np.zeros(3, np.float32))
        kept[...] = self.np_random.standard_normal(3)
        return {"facts": kept, "name": f"n{self.t}"}


def gym_envs(makers: Any, mode: Any, **place: Any) -> Any:
    return ReactorVectorEnv(makers, autoreset_mode=mode, **place)


def gym(env: Any, **more: Any) -> Case:
    return Case(GymRows, env, Single, env().observation_space, envs=gym_envs, **more)


def reusing(make: Any, *habits: str, space: str = "small", actions: str = "box", **more: Any) -> Case:
    """Of environments with habits, beside such that have none."""
    of = {"space": space, "actions": actions}
    return gym(partial(make, *habits, **of), twin=partial(make, **of), **more)


CASES = {
    **{habit: reusing(limited, habit, unusual=True, saved="class" not in habit) for habit in HABITS},
    "dict": reusing(limited, "own observation", "changes actions", space="dict", actions="choices"),
    "large": reusing(limited, "class observation", "class info", space="large", actions="choice", saved=False),
    "texts": gym(Texts, pack=list),
    "python": gym(limited),
    "wrapped": gym(drawn),
    "cartpole": gym(partial(gymnasium.make, "CartPole-v1", max_episode_steps=12)),
    "lake": gym(partial(gymnasium.make, "FrozenLake-v1", max_episode_steps=7)),
    "blackjack": gym(partial(gymnasium.make, "Blackjack-v1")),
    "own kernel": gym(board),
    "statistics": gym(partial(recorded, RecordEpisodeStatistics, "CartPole-v1")),
    "statistics, python": gym(lambda: RecordEpisodeStatistics(limited())),
    "monitor": gym(partial(recorded, Monitor, "MountainCar-v0")),
}


class Sharing(CartPoleVectorEnv):
    """All of its class write what they show into one array."""

    everybody: ClassVar[Any] = np.zeros((9, 4), np.float32)

    def reset(self, **kwargs: Any) -> Any:
        self.everybody[: self.num_envs], info = super().reset(**kwargs)
        return self.everybody[: self.num_envs], info

    def step(self, actions: Any) -> Any:
        self.everybody[: self.num_envs], *others = super().step(actions)
        return self.everybody[: self.num_envs], *others


def sync(*habits: str, rows: int = 2, space: str = "small", mode: Any = NEXT) -> Any:
    """A vector environment of environments with habits, which uses its arrays again, too."""
    makers = [partial(Reusing, habits, space, length=4 + row) for row in range(rows)]
    return SyncVectorEnv(makers, copy=not habits, autoreset_mode=mode)


def vector(makers: Sequence[Any], **more: Any) -> Case:
    envs = [make() for make in makers]
    specs = [sub_env_spec(env, "") for env in envs]
    layout = ObservationLayout(envs[0].single_observation_space)

    def rows(first: int, mode: Any, seeds: Any = None) -> EnvRows:
        return VectorRows(first, layout, dict(enumerate(specs, first)))

    def vector_env(makers: Any, mode: Any, **place: Any) -> Any:
        return ReactorVectorEnv.of(makers, **place)

    return Case(rows, list(makers), Batch, layout.space, envs=vector_env, modes=(None,), **more)


WIDTHS = [partial(CartPoleVectorEnv, rows, max_episode_steps=9) for rows in (4, 1, 2)]
HABITUAL = ("own observation", "own reward", "own info", "keeps actions")
CASES |= {
    "vector": vector(WIDTHS),
    "vector, sharing": vector(
        [partial(Sharing, rows, max_episode_steps=9) for rows in (2, 3, 4)],
        twin=[partial(CartPoleVectorEnv, rows, max_episode_steps=9) for rows in (2, 3, 4)],
        unusual=True,
        saved=False,
    ),
    "vector, next step": vector([partial(sync, *HABITUAL)] * 3, twin=[sync] * 3, saved=False),
    # Within SyncVectorEnv an environment must not use its array of observations again where last ones are kept.
    "vector, same step": vector([partial(sync, *HABITUAL[1:], mode=SAME)] * 3, twin=[partial(sync, mode=SAME)] * 3, saved=False),
    "vector, dict": vector(
        [partial(sync, "own observation", rows=rows, space="dict") for rows in (1, 3, 2)],
        twin=[partial(sync, rows=rows, space="dict") for rows in (1, 3, 2)],
    ),
}


def padded(make: Any, columns: Any = None, **more: Any) -> Case:
    env = make()
    agents, agent = tuple(env.possible_agents), env.possible_agents[0]
    units = PaddedUnits(agents, env.observation_space(agent), env.action_space(agent))
    layout = ObservationLayout(env.observation_space(agent))

    def rows(first: int, mode: Any, seeds: Any = None) -> EnvRows:
        return UnitRows(first, mode, units, layout, columns, seeds=seeds)

    def vector_env(makers: Any, mode: Any, **place: Any) -> Any:
        return ParallelVectorEnv(makers[0], 3, autoreset_mode=mode, **place)

    return Case(rows, make, Together, layout.space, envs=vector_env, **more)


def agents(make: Any, kind: type[Plain] = Recorded, grouped: bool = False, **more: Any) -> Case:
    """Of a record each; ``grouped`` if there is an array of actions for each group of agents that are alike."""
    specs = probe_agents(make)
    found = [(group.number, row) for group, row in map(specs.group_of, specs.agents)]
    if grouped:
        count = len(specs.agents)
        more["pack"] = lambda actions: [[actions[lo : lo + count].copy()] for lo in range(0, len(actions), count)]

    def rows(first: int, mode: Any, seeds: Any = None) -> EnvRows:
        def unit(env: Any, index: int) -> Any:
            return AgentsUnit(copy_of(env, specs.agents, specs.turns), found if grouped else None)

        return UnitRows(first, mode, unit, AgentRecord(specs), AGENT_COLUMNS, seeds=seeds)

    return Case(rows, make, kind, layout=AgentRecord(specs), **more)


def hoarding(
    maker: Any, env: Any, seen: str, done: str, masks: bool = False, shared: bool = True, views: bool = True, **more: Any
) -> Case:
    """Of environments that use arrays again, which all of them may share, keep actions and change them."""
    of = {"observations": seen, "actions": done, "masks": masks}
    twin = partial(env, shared=False, views=False, **of)
    return maker(partial(env, shared=shared, views=views, **of), twin=twin, unusual=True, saved=False, **more)


CASES |= {
    "agents": padded(partial(Crowd, "together")),
    "agents, joining": padded(partial(Crowd, "joins"), AGENT_COLUMNS),
    "agents, masked": padded(partial(Crowd, "masks")),
    "agents, texts": padded(partial(Crowd, "texts")),
    "agents, hoarding": hoarding(padded, Hoarders, "dict", "box"),
    "records": agents(partial(Crowd, "together")),
    "records, joining": agents(partial(Crowd, "masks")),
    "records, grouped": agents(partial(Crowd, "deaths"), grouped=True),
    "records, hoarding": hoarding(agents, Hoarders, "dict", "discrete", True),
    "turns": agents(tictactoe.raw_env, InTurns),
    "turns, hoarding": hoarding(agents, Players, "box", "discrete", True, kind=InTurns),
}  # fmt: skip


SCREEN = np.zeros((210, 160), np.uint8)


def played(options: Any) -> Any:
    """A game whose screen is that of the others, too."""
    return AtariGame(options, SCREEN)


def games() -> Case:
    """Of Atari, which have columns; in the plain loop each is an environment by itself."""
    changed = {"max_num_frames_per_episode": 45, "img_height": 20, "img_width": 24, "noop_max": 4}
    options = AtariOptions(rom_path("breakout")[1], 45, 0.0, False, 20, 24, True, 4, 4, True, 4, False, False, True, True)
    layout = ObservationLayout(spaces.Box(0, 255, (4, 20, 24), np.uint8))

    def rows(first: int, mode: Any, seeds: Any = None) -> EnvRows:
        return UnitRows(first, mode, partial(AtariUnit, threshold=None), layout, COLUMNS, "game", seeds)

    twin = partial(AtariEnv, "breakout", **changed)
    return Case(rows, partial(played, options), Game, layout.space, twin=twin, modes=(NEXT, SAME), dear=True)


CASES["games"] = games()


def habitual(kind: str) -> Iterator[Case]:
    """Of environments with several habits, of whatever spaces."""
    if kind == "gym":
        some = [*((habit,) for habit in HABITS), *list(combinations(HABITS, 2))[::7]]
        for habits, of in product(some, (("small", "box"), ("large", "choices"), ("dict", "choice"))):
            yield reusing(limited, *habits, space=of[0], actions=of[1])
        return
    for shared, views, seen, done, masks in product((True, False), (True, False), OBSERVATIONS, ACTIONS, (True, False)):
        if kind == "turns" and done == "discrete":
            yield hoarding(agents, Players, seen, done, masks, shared, views, kind=InTurns)
        elif kind != "turns" and (done == "discrete" or not masks):
            yield hoarding({"rows": padded, "records": agents}[kind], Hoarders, seen, done, masks, shared, views)


USUAL = [name for name, case in CASES.items() if not case.unusual]


def cases(names: Sequence[str], modes: Sequence[Any] = (*MODES, None)) -> Any:
    """A test for each of them, in each of these modes that it has; of unusual ones, and dear ones, in one by default."""
    marked = []
    for at, name in enumerate(names):
        case, having = CASES[name], [mode for mode in CASES[name].modes if mode in modes]
        for turn, mode in enumerate(having):
            later = (case.unusual or case.dear) and turn != at % len(having)
            later = later or (case.dear and len(names) < len(CASES))  # what all have to do, those do that are dear
            marked.append(pytest.param(name, mode, id=f"{name}-{getattr(mode, 'name', mode)}", marks=[pytest.mark.slow] * later))
    return pytest.mark.parametrize(("name", "mode"), marked)


def one_mode(names: Sequence[str], modes: Sequence[Any] = (*MODES, None)) -> Any:
    """A test for each of them, in one of these modes that it has: not in the same one for all."""
    having = [(name, [mode for mode in CASES[name].modes if mode in modes]) for name in names]
    found = [(name, modes[at % len(modes)]) for at, (name, modes) in enumerate(having) if modes]
    return pytest.mark.parametrize(("name", "mode"), [pytest.param(*one, id=one[0], marks=slow(one[0])) for one in found])


def slow(name: str, others: bool = False) -> list[Any]:
    """The marks of a test of a case that is dear, or of ``others`` that time is not taken for."""
    return [pytest.mark.slow] * (others or CASES[name].dear)
