"""What every ``EnvRows`` has to do, whatever steps it. A new kind of environment is a new :class:`Case`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import gymnasium
import numpy as np
import pytest
from envs import Facts
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array
from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit, TransformReward
from loops import DISABLED, IDLE, NEXT, SAME, Loop, Now, Plain, Single
from reusing_envs import HABITS, Reusing
from rows_today import BlockRows
from stable_baselines3.common.monitor import Monitor

from reactor_gymnasium.environments.rows import EnvRows, StepBuffers
from reactor_gymnasium.environments.storage import ObservationLayout
from reactor_rl.pickling import encode

STEPS = 24
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
        modes: Those that it has.
        unusual: How it uses arrays, and keeps actions, is the only thing that is new about it.
        saved: Whether its state is all there is of it.
    """

    rows: Callable[..., EnvRows]
    env: Any
    kind: type[Plain]
    space: spaces.Space[Any]
    twin: Any = None
    modes: tuple[Any, ...] = MODES
    unusual: bool = False
    saved: bool = True

    def makers(self, makers: Any = None) -> list[Any]:
        """Three of them."""
        makers = makers or self.env
        return list(makers) if isinstance(makers, (list, tuple)) else [makers] * 3

    def loop(self, mode: Any, seeds: Any = None) -> Loop:
        """The plain loop."""
        return Loop([self.kind(make(), number) for number, make in enumerate(self.makers(self.twin))], mode, seeds)


# ---------------------------------------------------------------------- cases


def limited(*habits: str, space: str = "small") -> Any:
    """In wrappers that are left out."""
    return TimeLimit(Reusing(habits, space, length=8), 7)


class Drawn(TransformReward[Any, Any]):
    """A wrapper that nothing is known of."""

    def __init__(self, env: Any) -> None:
        super().__init__(env, lambda reward: reward * 0.5)


def drawn() -> Any:
    return Drawn(gymnasium.make("CartPole-v1", max_episode_steps=9))


def recorded(recorder: Any, name: str) -> Any:
    return recorder(gymnasium.make(name, max_episode_steps=8))


class Texts(Reusing):
    """Shows texts besides."""

    def __init__(self) -> None:
        super().__init__(("own observation",), length=5)
        self.observation_space = spaces.Dict(facts=self.observation_space, name=spaces.Text(4))

    def _observation(self) -> Any:
        kept = self.mine.setdefault("facts", np.zeros(3, np.float32))
        kept[...] = self.np_random.standard_normal(3)
        return {"facts": kept, "name": f"n{self.t}"}


def gym(env: Any, space: Any = None, **more: Any) -> Case:
    return Case(BlockRows, env, Single, space or env().observation_space, **more)


CASES = {
    **{
        habit: gym(partial(Reusing, (habit,)), twin=Reusing, unusual=True, saved="class" not in habit) for habit in HABITS
    },
    "dict": gym(partial(limited, "own observation", "flags", space="dict"), twin=partial(limited, space="dict")),
    "large": gym(partial(limited, "class observation", space="large"), twin=partial(limited, space="large"), saved=False),
    "texts": gym(Texts),
    "python": gym(limited),
    "wrapped": gym(drawn),
    "cartpole": gym(partial(gymnasium.make, "CartPole-v1", max_episode_steps=12)),
    "taxi": gym(partial(gymnasium.make, "Taxi-v4", max_episode_steps=7)),
    "blackjack": gym(partial(gymnasium.make, "Blackjack-v1")),
    "statistics": gym(partial(recorded, RecordEpisodeStatistics, "CartPole-v1")),
    "statistics, python": gym(lambda: RecordEpisodeStatistics(limited())),
    "monitor": gym(partial(recorded, Monitor, "MountainCar-v0")),
}  # fmt: skip
USUAL = [name for name, case in CASES.items() if not case.unusual]


def cases(names: Sequence[str], only: Any = None) -> Any:
    """A test for each of them, in each of its modes, or in one."""
    found = [(name, mode) for name in names for mode in CASES[name].modes if only in (None, mode)]
    return pytest.mark.parametrize(("name", "mode"), found, ids=[f"{name}-{getattr(mode, 'name', mode)}" for name, mode in found])


def one_mode(names: Sequence[str]) -> Any:
    """A test for each of them, in one of its modes: not in the same one for all."""
    found = [(name, CASES[name].modes[at % len(CASES[name].modes)]) for at, name in enumerate(names)]
    return pytest.mark.parametrize(("name", "mode"), found, ids=[name for name, _ in found])


# ---------------------------------------------------------------------- the bench


class ByName:
    """Rows in arrays by name, as a record has them."""

    def __init__(self, layout: ObservationLayout) -> None:
        self.layout = layout

    def writer(self, rows: Any) -> Any:
        return self.layout.writer(rows["x"])

    def batch_writer(self, rows: Any) -> Any:
        return self.layout.batch_writer(rows["x"])


class Memory:
    """A slot of a port, with rubbish in it: whatever is not written is noticed."""

    def __init__(self, layout: ObservationLayout, rows: EnvRows, led_to: bool = False) -> None:
        count, (shape, dtype) = rows.num_rows, layout.storage()
        self.observations, self.led_to = np.zeros((2, count, *shape), dtype)
        self.rewards, (self.terminations, self.truncations) = np.zeros(count), np.zeros((2, count), np.bool_)
        self.columns = {name: np.zeros((count, *shape), dtype) for name, (dtype, shape) in rows.columns.items()}
        numbers = self.rewards, self.terminations, self.truncations, self.columns
        if led_to:
            self.out = StepBuffers(ByName(layout), {"x": self.observations}, {"x": self.led_to}, *numbers)
        else:
            self.out = StepBuffers(layout, self.observations, None, *numbers)
        self.turns = 0

    def spoil(self) -> None:
        """Put rubbish in."""
        self.turns += 1
        for array in (self.observations, self.led_to, self.rewards, *self.columns.values()):
            array.view(np.uint8)[...] = 0x55
        self.terminations[...] = self.truncations[...] = self.turns % 2


@dataclass
class Bench:
    """Rows and the plain loop that they are held against, over two memories that take turns."""

    case: Case
    mode: Any
    seeds: Any = None
    led_to: bool = False
    handed: list[tuple[Any, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        case = self.case
        self.layout = ObservationLayout(case.space)
        self.rows = case.rows(0, self.mode, self.seeds)
        self.rows.build([encode(make) for make in case.makers()])
        self.loop = case.loop(self.mode, self.seeds)
        self.memories = [Memory(self.layout, self.rows, self.led_to) for _ in range(2)]
        self.actions = self.loop.actions()

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: Any) -> None:
        self.rows.close()
        for plain in self.loop.plains:
            plain.env.close()

    @property
    def memory(self) -> Memory:
        """That of the last step or reset."""
        return self.memories[0]

    def turn(self) -> Memory:
        """The other one."""
        self.memories.reverse()
        self.memory.spoil()
        return self.memory

    def reset(self, resets: Any = None) -> Now:
        """Reset some, and compare what all show."""
        resets = {number: {"seed": 10 + number} for number in range(self.rows.num_envs)} if resets is None else resets
        memory, now = self.turn(), self.loop.reset(resets)
        self.rows.reset(resets, memory.out)
        self.rows.raise_failure()
        self.same(now, "reset")
        return now

    def draw(self) -> Any:
        """Actions in the caller's memory, which is the same for all steps."""
        self.actions[...] = self.loop.actions()
        return self.actions

    def step(self, where: str = "") -> Now:
        """Step all, and compare everything; the caller's actions are others afterwards."""
        given = self.draw().copy()
        memory, now = self.turn(), self.loop.step(given)
        self.rows.step(self.actions, memory.out)
        self.rows.raise_failure()
        np.testing.assert_array_equal(self.actions, given)  # what the caller has is the caller's
        self.actions[...] = 0
        self.same(now, where)
        assert memory.rewards.tolist() == now.rewards, where
        ends = list(zip(memory.terminations.tolist(), memory.truncations.tolist(), strict=True))
        assert ends == now.ends, where
        assert self.rows.over == now.over, where
        equal(self.rows.finals, now.finals, where)
        if self.led_to:
            equal(self.seen(memory.led_to), self.batched(now.led_to), where)
        self.hand(self.rows.finals)
        return now

    def run(self, steps: int = STEPS, reset: bool = True) -> list[Now]:
        """Play on; where nobody resets what is over, it is reset here."""
        seen: list[Now] = []
        if reset:
            self.reset()
        for step in range(steps):
            seen.append(self.step(f"step {step}"))
            if self.mode is DISABLED and (over := seen[-1].over):
                self.reset({number: {"seed": 50 + step} if step % 2 else {} for number in over})
        with self.rows.opened(changes=False):  # a kernel has them to itself before
            assert list(map(int, self.rows.pending)) == list(map(int, self.loop.pending))
        for found, before in self.handed:
            equal(found, before)
        return seen

    def same(self, now: Now, where: str = "") -> None:
        """What rows show, and what is told besides."""
        rows, memory = self.rows, self.memory
        equal(self.seen(memory.observations), self.batched(now.shown), where)
        equal(rows.infos, now.infos, where)
        equal(getattr(rows, "batched", []), now.batched, where)
        assert memory.columns.keys() == now.columns.keys()
        equal({name: column.tolist() for name, column in memory.columns.items()}, now.columns, where)
        self.hand(rows.infos)

    def hand(self, value: Any) -> None:
        """What is handed out never changes later."""
        if value:
            self.handed.append((value, deepcopy(value)))

    def seen(self, observations: Any) -> Any:
        """In the form in which Gymnasium has them."""
        return self.layout.batched(observations, self.rows.objects(self.layout), True)

    def batched(self, seen: Sequence[Any]) -> Any:
        return concatenate(self.case.space, seen, create_empty_array(self.case.space, len(seen)))


def equal(found: Any, expected: Any, where: str = "") -> None:
    """Numbers, whatever their type; keys, and the time that somebody's episode took is left out."""
    if isinstance(expected, dict):
        timed = {"t"} if {"r", "l"} <= expected.keys() else set()
        assert found.keys() - timed == expected.keys() - timed, where
        for key in expected.keys() - timed:
            equal(found[key], expected[key], f"{where}: {key}")
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected), where
        for one, other in zip(found, expected, strict=True):
            equal(one, other, where)
    elif isinstance(expected, np.ndarray) and expected.dtype != object:
        assert np.array_equal(found, expected), f"{where}: {found!r} is not {expected!r}"
    else:
        np.testing.assert_equal(found, expected, where)


# ---------------------------------------------------------------------- what they have to do


@cases(list(CASES))
def test_it_gives_what_a_plain_loop_gives(name: str, mode: Any) -> None:
    with Bench(CASES[name], mode) as bench:
        assert list(bench.rows.bounds) == bench.loop.bounds
        seen = bench.run()
    assert any(any(map(any, now.ends)) for now in seen)  # else little was tried


@cases([name for name, case in CASES.items() if SAME in case.modes and not ObservationLayout(case.space).objects], only=SAME)
def test_what_a_step_led_to_is_written_before_a_reset(name: str, mode: Any) -> None:
    with Bench(CASES[name], mode, led_to=True) as bench:
        assert any(now.over for now in bench.run())
