"""What every ``EnvRows`` has to do, whatever steps it. A new kind of environment is a new :class:`Case`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import gymnasium
import numpy as np
import pytest
from compare import assert_same
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array
from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit, TransformReward
from loops import DISABLED, IDLE, NEXT, SAME, Loop, Now, Plain, Single
from reusing_envs import HABITS, Reusing
from stable_baselines3.common.monitor import Monitor

from reactor_gymnasium import ReactorVectorEnv
from reactor_gymnasium.environments.gym_rows import GymRows
from reactor_gymnasium.environments.rows import EnvRows, StepBuffers
from reactor_gymnasium.environments.storage import ObservationLayout
from reactor_rl.pickling import encode

STEPS = 20
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
        envs: From makers and mode to the vector environment that has such rows.
        modes: Those that it has.
        unusual: How it uses arrays, and keeps actions, is the only thing that is new about it.
        saved: Whether its state is all there is of it.
    """

    rows: Callable[..., EnvRows]
    env: Any
    kind: type[Plain]
    space: spaces.Space[Any]
    twin: Any = None
    envs: Callable[..., VectorEnv[Any, Any, Any]] | None = None
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


def gym_envs(makers: Any, mode: Any, **place: Any) -> Any:
    return ReactorVectorEnv(makers, autoreset_mode=mode, **place)


def gym(env: Any, **more: Any) -> Case:
    return Case(GymRows, env, Single, env().observation_space, envs=gym_envs, **more)


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
    "lake": gym(partial(gymnasium.make, "FrozenLake-v1", max_episode_steps=7)),
    "blackjack": gym(partial(gymnasium.make, "Blackjack-v1")),
    "statistics": gym(partial(recorded, RecordEpisodeStatistics, "CartPole-v1")),
    "statistics, python": gym(lambda: RecordEpisodeStatistics(limited())),
    "monitor": gym(partial(recorded, Monitor, "MountainCar-v0")),
}  # fmt: skip
USUAL = [name for name, case in CASES.items() if not case.unusual]


def cases(names: Sequence[str], modes: Sequence[Any] = (*MODES, None)) -> Any:
    """A test for each of them, in each of these modes that it has."""
    found = [(name, mode) for name in names for mode in CASES[name].modes if mode in modes]
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
        given, awake = self.draw().copy(), self.awake
        memory, now = self.turn(), self.loop.step(given)
        self.rows.step(self.actions, memory.out)
        self.rows.raise_failure()
        np.testing.assert_array_equal(self.actions, given)  # what the caller has is the caller's
        self.actions[...] = 0
        self.same_rows(now, awake, where)
        if len(awake) < self.rows.num_rows:  # what is idle need not be written in each step
            self.rows.show(memory.out)
        self.same(now, where)
        self.same_ends(now, range(self.rows.num_rows), where)
        equal(self.rows.finals, now.finals, where)
        if self.led_to:
            equal(self.seen(memory.led_to), self.batched(now.led_to), where)
        self.hand(self.rows.finals)
        return now

    @property
    def awake(self) -> list[int]:
        """Rows of environments that are not idle."""
        bounds = zip(pairwise(self.loop.bounds), self.loop.pending, strict=True)
        return [row for (lo, hi), pending in bounds if pending != IDLE for row in range(lo, hi)]

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
        self.nothing_changed()
        return seen

    def nothing_changed(self) -> None:
        """What was handed out is what it was."""
        for found, before in self.handed:
            equal(found, before)

    def same(self, now: Now, where: str = "") -> None:
        """What rows show, and what is told besides."""
        rows, memory = self.rows, self.memory
        self.same_rows(now, range(rows.num_rows), where)
        if getattr(rows, "stepped", None) is None:  # else they are the kernel's, as are the ends
            self.same_infos(now, where)
            assert rows.over == now.over, where
        assert memory.columns.keys() == now.columns.keys()
        equal({name: column.tolist() for name, column in memory.columns.items()}, now.columns, where)

    def same_infos(self, now: Now, where: str = "") -> None:
        """By row; or as they are, where environments put them together themselves."""
        equal({row: info for row, info in self.rows.infos.items() if row in self.awake}, now.infos, where)
        equal(getattr(self.rows, "batched", []), now.batched, where)
        self.hand(self.rows.infos)

    def same_rows(self, now: Now, rows: Sequence[int], where: str = "") -> None:
        """Some rows show what they should."""
        found = self.seen(self.memory.observations, rows)
        equal(found, self.batched([now.shown[row] for row in rows]), where)

    def same_ends(self, now: Now, rows: Sequence[int], where: str = "") -> None:
        """Rewards and ends of some rows."""
        memory = self.memory
        assert [memory.rewards[row] for row in rows] == [now.rewards[row] for row in rows], where
        ends = list(zip(memory.terminations.tolist(), memory.truncations.tolist(), strict=True))
        assert [ends[row] for row in rows] == [now.ends[row] for row in rows], where

    def hand(self, value: Any) -> None:
        """Note what was handed out, which never changes later."""
        if value:
            self.handed.append((value, deepcopy(value)))

    def seen(self, observations: Any, rows: Sequence[int] | None = None) -> Any:
        """In the form in which Gymnasium has them."""
        rows = list(range(self.rows.num_rows)) if rows is None else list(rows)
        objects = self.rows.objects(self.layout)
        return self.layout.batched(observations[rows], [objects[row] for row in rows], True)

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
        assert found == expected or (found != found and expected != expected), f"{where}: {found!r} is not {expected!r}"


# ---------------------------------------------------------------------- what they have to do


@cases(list(CASES))
def test_it_gives_what_a_plain_loop_gives(name: str, mode: Any) -> None:
    with Bench(CASES[name], mode) as bench:
        assert list(bench.rows.bounds) == bench.loop.bounds
        seen = bench.run()
    assert any(any(map(any, now.ends)) for now in seen)  # else little was tried


@cases([name for name, case in CASES.items() if not ObservationLayout(case.space).objects], [SAME])
def test_what_a_step_led_to_is_written_before_a_reset(name: str, mode: Any) -> None:
    with Bench(CASES[name], mode, led_to=True) as bench:
        assert any(now.over for now in bench.run())


@one_mode(list(CASES))
def test_those_that_a_reset_leaves_alone_show_what_they_showed(name: str, mode: Any) -> None:
    """Although others of the class may have written into the same arrays since."""
    with Bench(CASES[name], mode) as bench:
        bench.run(4)
        bench.reset({1: {"seed": 77}})
        bench.step()
        bench.reset({2: {}, 0: {"seed": 3}})
        assert bench.rows.rewards == [] and not bench.rows.ended
        bench.rows.show(bench.turn().out)
        equal(bench.seen(bench.memory.observations), bench.batched([one for told in bench.loop.told for one in told.seen]))
        bench.run(4, reset=False)


@cases(list(CASES))
def test_who_gives_no_buffer_for_rewards_takes_them_as_they_are(name: str, mode: Any) -> None:
    """Ends, too."""
    with Bench(CASES[name], mode) as bench:
        bench.reset()
        rows, observations = bench.rows, bench.memory.observations
        out = StepBuffers(bench.layout, observations)
        for step in range(STEPS):
            given = bench.draw().copy()
            now = bench.loop.step(given)
            rows.step(bench.actions, None if step % 4 == 3 else out)
            rows.raise_failure()
            assert [float(np.asarray(reward).item()) for reward in rows.rewards] == now.rewards
            bench.hand(list(rows.rewards))
            assert ends_of(rows) == now.ends
            assert rows.over == now.over
            equal(rows.finals, now.finals)
            bench.same_infos(now)
            if step % 4 != 3:
                bench.same_rows(now, range(rows.num_rows))
            if mode is DISABLED and now.over:
                bench.reset(dict.fromkeys(now.over, {}))
                out = StepBuffers(bench.layout, observations := bench.memory.observations)
        bench.nothing_changed()


def ends_of(rows: EnvRows) -> list[tuple[bool, bool]]:
    """Of all rows, from those that are told."""
    ends = [(False, False)] * rows.num_rows
    for row, *flags in rows.ended:
        assert any(flags)
        ends[row] = tuple(flags)
    return ends


# ---------------------------------------------------------------------- what goes wrong


class Rig:
    """What happens in environments that are :func:`rigged`, which are numbered as they were made.

    Attributes:
        stepped: Which were stepped, and what ``mark`` was.
        closed: Which were closed.
        raises: Which method of which raises.
        unfit: Of whom observations do not fit.
    """

    def __init__(self) -> None:
        self.made = 0
        self.stepped: list[int] = []
        self.marks: list[int] = []
        self.mark: Any = None
        self.closed: list[int] = []
        self.raises: dict[int, str] = {}
        self.unfit = -1


RIG = Rig()


@pytest.fixture
def rig() -> Iterator[Rig]:
    """One with nothing wrong yet."""
    RIG.__init__()  # type: ignore[misc]  # environments refer to it
    return RIG


def rigged(make: Callable[[], Any], kind: type[Plain]) -> Any:
    """An environment that notes what is done with it, and fails where it is told to."""
    env = make()
    inner = getattr(env, "unwrapped", env)
    number, RIG.made = RIG.made, RIG.made + 1

    def checked(method: str) -> None:
        if RIG.raises.get(number) == method:
            raise ZeroDivisionError(number)

    class Rigged(type(inner)):  # type: ignore[misc]
        def reset(self, **kwargs: Any) -> Any:
            checked("reset")
            return super().reset(**kwargs)

        def step(self, action: Any) -> Any:
            RIG.stepped.append(number)
            RIG.marks.append(0 if RIG.mark is None else int(RIG.mark))
            checked("step")
            returned = super().step(action)
            return kind.unfit(returned) if RIG.unfit == number else returned

        def close(self) -> None:
            RIG.closed.append(number)
            checked("close")
            super().close()

    checked("make")
    inner.__class__ = Rigged
    return env


def rigged_bench(name: str, mode: Any, **more: Any) -> Bench:
    """With environments that are rigged."""
    case = CASES[name]
    return Bench(replace(case, env=[partial(rigged, make, case.kind) for make in case.makers()], twin=case.twin or case.env), mode, **more)


def others(bench: Bench, number: int) -> list[int]:
    """Rows of all environments but one."""
    lo, hi = bench.rows.bounds[number : number + 2]
    return [*range(lo), *range(hi, bench.rows.num_rows)]


@one_mode(USUAL)
def test_one_that_fails_leaves_the_others_their_step(name: str, mode: Any, rig: Rig) -> None:
    with rigged_bench(name, mode) as bench:
        bench.reset()
        rig.raises = {1: "step"}
        given = bench.draw().copy()
        memory, now = bench.turn(), bench.loop.step(given)
        bench.rows.step(bench.actions, memory.out)
        assert rig.stepped == [0, 1, 2]
        assert [(number, type(error)) for number, error in bench.rows.failures] == [(1, ZeroDivisionError)]
        bench.same_ends(now, others(bench, 1))
        bench.rows.show(memory.out)  # nobody reads what a step wrote that raises
        bench.same_rows(now, others(bench, 1))
        assert not bench.rows.finals.keys() - others(bench, 1)
        with pytest.raises(ZeroDivisionError) as raised:
            bench.rows.raise_failure()
        assert raised.value.__notes__ == [f"raised in {bench.rows.unit} 1"]
        bench.rows.step(bench.draw(), bench.turn().out)  # it may be stepped on
        assert len(rig.stepped) == 6 and [number for number, _ in bench.rows.failures] == [1]


@pytest.mark.filterwarnings("ignore:.*obs returned")
@pytest.mark.parametrize("name", USUAL)
def test_an_observation_that_does_not_fit_is_its_environments_failure(name: str, rig: Rig) -> None:
    with rigged_bench(name, CASES[name].modes[0]) as bench:
        bench.reset()
        rig.unfit = 2
        given = bench.draw().copy()
        memory, now = bench.turn(), bench.loop.step(given)
        bench.rows.step(bench.actions, memory.out)
        assert [number for number, _ in bench.rows.failures] == [2]
        assert isinstance(bench.rows.failures[0][1], (TypeError, ValueError))
        bench.same_ends(now, others(bench, 2))
        bench.rows.show(bench.memory.out)
        bench.same_rows(now, others(bench, 2))


@one_mode(USUAL)
def test_a_reset_that_fails_leaves_the_others_theirs(name: str, mode: Any, rig: Rig) -> None:
    with rigged_bench(name, mode) as bench:
        bench.reset()
        rig.raises = {1: "reset"}
        resets = {number: {"seed": 5 + number} for number in range(3)}
        now = bench.loop.reset(resets)
        bench.rows.reset(resets, bench.turn().out)
        assert [(number, type(error)) for number, error in bench.rows.failures] == [(1, ZeroDivisionError)]
        bench.same_rows(now, others(bench, 1))


@cases(USUAL, (NEXT, SAME))
def test_a_reset_after_an_episode_that_fails(name: str, mode: Any, rig: Rig) -> None:
    with rigged_bench(name, mode) as bench:
        bench.reset()
        rig.raises = {number: "reset" for number in range(3)}
        for _ in range(20 * STEPS):
            stepped = len(rig.stepped)
            bench.rows.step(bench.draw(), bench.turn().out)
            if bench.rows.failures:
                break
        assert len(rig.stepped) == stepped + 3 - (len(bench.rows.failures) if mode is NEXT else 0)
        assert {type(error) for _, error in bench.rows.failures} == {ZeroDivisionError}


@one_mode(USUAL)
def test_it_is_marked_who_is_being_stepped(name: str, mode: Any, rig: Rig) -> None:
    with rigged_bench(name, mode) as bench:
        rig.mark = bench.rows.mark = np.zeros((), np.int64)
        bench.reset()
        for raises in ({}, {0: "step"}):
            rig.raises = raises
            rig.marks.clear()
            bench.rows.step(bench.draw(), bench.turn().out)
            assert rig.marks == [1, 2, 3] and int(rig.mark) == 0


@one_mode(USUAL)
def test_one_that_cannot_be_made_is_named_and_the_others_are_closed(name: str, mode: Any, rig: Rig) -> None:
    case = CASES[name]
    rows = case.rows(5, mode)
    rig.raises = {1: "make"}
    with pytest.raises(ZeroDivisionError) as raised:
        rows.build([encode(partial(rigged, make, case.kind)) for make in case.makers()])
    assert raised.value.__notes__ == [f"while {rows.unit} 6 was constructed"]
    rows.close()
    assert rig.closed == [0]


@one_mode(USUAL)
def test_all_are_closed_though_one_cannot_be(name: str, mode: Any, rig: Rig) -> None:
    case = CASES[name]
    rows = case.rows(5, mode)
    rows.build([encode(partial(rigged, make, case.kind)) for make in case.makers()])
    rig.raises = {1: "close"}
    with pytest.raises(ZeroDivisionError) as raised:
        rows.close()
    assert raised.value.__notes__ == [f"while {rows.unit} 6 was closed"]
    assert rig.closed == [0, 1, 2]
    rows.close()
    assert len(rig.closed) == 3


# ---------------------------------------------------------------------- between steps


@one_mode(USUAL)
def test_one_that_is_idle_takes_no_steps(name: str, mode: Any, rig: Rig) -> None:
    with rigged_bench(name, mode) as bench:
        bench.reset()
        bench.step()
        with bench.rows.opened():
            bench.rows.pending[0] = bench.loop.pending[0] = IDLE
        rig.stepped.clear()
        for _ in range(3):
            bench.step()
            assert 0 not in rig.stepped and 1 in rig.stepped
        bench.reset({0: {"seed": 3}})
        bench.step()
        assert 0 in rig.stepped


@cases([name for name in CASES if CASES[name].saved])
def test_it_goes_on_from_a_saved_state(name: str, mode: Any) -> None:
    with Bench(CASES[name], mode) as bench, Bench(CASES[name], mode) as other:
        other.run(3)
        bench.reset()
        ends = 0
        for step in range(STEPS):
            now = bench.step()
            ends += bool(now.over)
            if step in (4, 9) or (now.over and ends < 3):
                saved = [deepcopy(bench.rows.save(number)) for number in range(bench.rows.num_envs)]
                for number, of_env in enumerate(saved):
                    other.rows.load(number, of_env)
                bench.rows, other.rows = other.rows, bench.rows
                bench.rows.show(bench.turn().out)
                bench.same_rows(now, range(bench.rows.num_rows))
            if mode is DISABLED and now.over:
                bench.reset(dict.fromkeys(now.over, {}))
        assert ends


def refused(env: Any) -> bytes:
    raise ArithmeticError("it cannot be saved")


@one_mode(USUAL)
def test_what_cannot_be_saved_goes_on(name: str, mode: Any) -> None:
    with Bench(CASES[name], mode) as bench:
        bench.run(3)
        with pytest.raises(ArithmeticError, match="it cannot be saved"):
            bench.rows.save(1, refused)
        bench.run(5, reset=False)


def stack(env: Any) -> list[type]:
    """An environment's wrappers, and what is within."""
    kinds = [type(env)]
    while (env := vars(env).get("env")) is not None:
        kinds.append(type(env))
    return kinds


def counted(env: Any) -> int | None:
    """The steps that its time limit has counted."""
    while env is not None and not isinstance(env, TimeLimit):
        env = vars(env).get("env")
    return env and env._elapsed_steps


@one_mode(USUAL)
def test_calls_see_environments_as_if_nothing_was_left_out(name: str, mode: Any) -> None:
    with Bench(CASES[name], mode) as bench:
        bench.run(6)
        plains = bench.loop.plains
        twins = [case_env() for case_env in bench.case.makers()]
        assert bench.rows.call(lambda env, what: (stack(env), what), {0: ("a",), 2: ("b",)}) == {
            0: (stack(twins[0]), "a"), 2: (stack(twins[2]), "b")
        }  # fmt: skip
        assert not bench.rows.failures
        assert bench.rows.call(counted, dict.fromkeys(range(3), ())) == {n: counted(plain.env) for n, plain in enumerate(plains)}
        with bench.rows.opened(changes=False) as envs:
            assert list(map(counted, envs)) == [counted(plain.env) for plain in plains]
        assert envs == []
        bench.run(4, reset=False)


@one_mode(USUAL)
def test_a_call_that_fails_leaves_the_others_theirs(name: str, mode: Any) -> None:
    with Bench(CASES[name], mode) as bench:
        bench.run(3)
        assert bench.rows.call(lambda env, there: 1 / there, {0: (1,), 1: (0,), 2: (2,)}) == {0: 1.0, 2: 0.5}
        assert [(number, type(error)) for number, error in bench.rows.failures] == [(1, ZeroDivisionError)]
        bench.run(4, reset=False)
        assert not bench.rows.failures


def count_on(env: Any) -> None:
    """Let its time limit come two steps earlier."""
    while not isinstance(env, TimeLimit):
        env = env.env
    env._elapsed_steps += 2


@one_mode([name for name in USUAL if name in ("python", "cartpole", "monitor", "lake", "statistics, python")])
def test_a_count_that_somebody_changes_counts(name: str, mode: Any) -> None:
    with Bench(CASES[name], mode) as bench:
        bench.run(2)
        bench.rows.call(count_on, {1: ()})
        count_on(bench.loop.plains[1].env)
        bench.run(reset=False)


@cases(USUAL, (NEXT, SAME))
def test_seeds_of_resets_that_follow_an_episode(name: str, mode: Any) -> None:
    """In the same step, or in the next one; ``None`` is for no reset."""

    class Seeds:
        def __init__(self) -> None:
            self.numbers = [0] * 3

        def __call__(self, number: int) -> dict[str, Any] | None:
            self.numbers[number] += 1
            if mode is SAME and number and self.numbers[number] > number:
                return None
            return {"seed": 100 * number + self.numbers[number]}

    with Bench(CASES[name], mode) as bench:
        bench.rows.seeds, bench.loop.seeds = asked, expected = Seeds(), Seeds()
        bench.run(2 * STEPS)
        assert asked.numbers == expected.numbers
        assert mode is not SAME or [bool(pending == IDLE) for pending in bench.rows.pending] == [False, True, True]


@one_mode(USUAL)
def test_of_infos_is_kept_what_is_wanted(name: str, mode: Any) -> None:
    with Bench(CASES[name], SAME) as bench:
        bench.rows.keep_infos = False
        bench.rows.before_reset = lambda row, info: (row, len(info))
        bench.reset()
        for _ in range(STEPS):
            now = bench.loop.step(bench.draw().copy())
            bench.rows.step(bench.actions, bench.turn().out)
            assert not bench.rows.infos
            expected = {row: (seen, (row, len(info))) for row, (seen, info) in now.finals.items()}
            equal(bench.rows.finals, expected)


# ---------------------------------------------------------------------- vector environments, which have such rows


def put_together(case: Case, now: Now) -> dict[str, Any]:
    """Infos row by row, as Gymnasium puts them together."""
    envs: Any = VectorEnv()
    envs.num_envs = len(now.shown)
    infos: dict[str, Any] = {}
    for row in range(len(now.shown)):
        if row in now.finals:
            last, info = now.finals[row]
            infos = envs._add_info(infos, {"final_obs": last, "final_info": info}, row)
        infos = envs._add_info(infos, now.infos.get(row, {}), row)
    return infos


def timeless(infos: dict[str, Any]) -> dict[str, Any]:
    """In the order of keys, and without the time that somebody's episode took."""
    parts = {key: timeless(value) if isinstance(value, dict) else value for key, value in sorted(infos.items())}
    return {key: value for key, value in parts.items() if not (key in ("t", "_t") and "r" in infos)}


def plays_as_a_loop(case: Case, mode: Any, **place: Any) -> None:
    """A vector environment of these environments says what comes of a plain loop, put together as Gymnasium does it."""
    loop = case.loop(mode)
    envs = case.envs(case.makers(), mode, **place)

    def told(now: Now, found: Any) -> None:
        count, *_, infos = len(now.shown), *found
        assert_same(found[0], concatenate(case.space, now.shown, create_empty_array(case.space, count)))
        assert_same(timeless(infos), timeless(put_together(case, now)))

    def reset(numbers: Sequence[int], **kwargs: Any) -> None:
        mask = np.zeros(loop.bounds[-1], np.bool_)
        for number in numbers:
            mask[slice(*loop.bounds[number : number + 2])] = True
        told(loop.reset({number: {} for number in numbers}), envs.reset(options={"reset_mask": mask}))

    try:
        told(loop.reset({number: {"seed": 10 + number} for number in range(3)}), envs.reset(seed=10))
        for step in range(STEPS):
            actions = loop.actions()
            given = actions.copy()
            found, now = envs.step(actions), loop.step(given)
            np.testing.assert_array_equal(actions, given)
            told(now, found)
            equal(found[1].tolist(), now.rewards)
            equal(list(zip(found[2].tolist(), found[3].tolist(), strict=True)), now.ends)
            if mode is DISABLED and now.over:
                reset(now.over)
            elif step == STEPS // 2:
                reset([0, 2])
    finally:
        envs.close()


@cases([name for name, case in CASES.items() if case.envs])
def test_a_vector_environment_says_what_a_plain_loop_says(name: str, mode: Any) -> None:
    plays_as_a_loop(CASES[name], mode, executor="inline")


@one_mode(["own observation", "lake", "texts"])
def test_a_vector_environment_in_processes_says_so_too(name: str, mode: Any) -> None:
    plays_as_a_loop(CASES[name], mode, executor="processes", workers=2)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 3])
@one_mode([name for name, case in CASES.items() if case.envs])
def test_vector_environments_in_processes_say_so_too(name: str, mode: Any, workers: int) -> None:
    plays_as_a_loop(CASES[name], mode, executor="processes", workers=workers)
