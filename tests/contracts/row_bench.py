"""Rows of environments beside the plain loop that they are held against, and environments in which something goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from compare import assert_same
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array
from plain_loops import DISABLED, IDLE, Now, Plain
from row_cases import Case

from reactor_gymnasium.environments.infos import by_row
from reactor_gymnasium.environments.rows import EnvRows, StepBuffers
from reactor_rl.pickling import encode

STEPS = 20


class ByName:
    """Rows in arrays by name, as a record has them."""

    def __init__(self, layout: Any) -> None:
        self.layout = layout

    def writer(self, rows: Any) -> Any:
        return self.layout.writer(rows["x"])

    def batch_writer(self, rows: Any) -> Any:
        return self.layout.batch_writer(rows["x"])


def whole(layout: Any) -> bool:
    """Whether there is one record for each environment, and not a row for each of its rows."""
    return getattr(layout, "whole", False)


class Memory:
    """A slot of a port, with rubbish in it: whatever is not written is noticed."""

    def __init__(self, layout: Any, rows: EnvRows, led_to: str = "") -> None:
        count, (shape, dtype) = rows.num_rows, layout.storage()
        self.observations, self.led_to = np.zeros((2, rows.num_envs if whole(layout) else count, *shape), dtype)
        self.rewards, (self.terminations, self.truncations) = np.zeros(count), np.zeros((2, count), np.bool_)
        self.columns = {name: np.zeros((count, *shape), dtype) for name, (dtype, shape) in rows.columns.items()}
        numbers = self.rewards, self.terminations, self.truncations, self.columns
        self.out = self.shows = StepBuffers(layout, self.observations, None, *numbers)
        if led_to:
            shown = None if led_to == "alone" else {"x": self.observations}
            self.out = StepBuffers(ByName(layout), shown, {"x": self.led_to}, *numbers)
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
    led_to: str = ""
    handed: list[tuple[Any, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        case = self.case
        self.layout = case.layout
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
        self.rows.reset(resets, memory.shows)
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
        self.rows.step(self.case.pack(self.actions), memory.out)
        self.rows.raise_failure()
        np.testing.assert_array_equal(self.actions, given)  # what the caller has is the caller's
        self.actions[...] = 0
        if memory.out.observations is not None:
            self.same_rows(now, awake, where)
        if memory.out.observations is None or len(awake) < self.rows.num_rows:  # what is idle need not be written in each step
            self.rows.show(memory.shows)
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
        self.same_infos(now, where)
        equal(
            {name: column.tolist() for name, column in memory.columns.items()}, {n: now.columns[n] for n in memory.columns}, where
        )

    def same_infos(self, now: Now, where: str = "") -> None:
        """By row; or as they are, where environments put them together themselves."""
        infos = self.rows.infos
        infos = infos if isinstance(infos, dict) else by_row(infos)  # as a kernel has them
        equal({row: info for row, info in infos.items() if row in self.awake}, now.infos, where)
        equal([(lo, rows, infos) for lo, rows, (_, infos) in self.rows.batched if infos], now.batched, where)
        self.hand(self.rows.infos)

    def same_rows(self, now: Now, rows: Sequence[int], where: str = "") -> None:
        """Some rows show what they should."""
        found = self.seen(self.memory.observations, rows)
        shown = [env for env, row in enumerate(self.rows.bounds[:-1]) if row in rows] if whole(self.layout) else rows
        equal(found, self.batched([now.shown[at] for at in shown]), where)

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
        """In the form in which Gymnasium has them; of records, a field each."""
        rows = list(range(self.rows.num_rows)) if rows is None else list(rows)
        if whole(self.layout):
            envs = [env for env, row in enumerate(self.rows.bounds[:-1]) if row in rows]
            return {name: observations[envs][name] for name in observations.dtype.names}
        objects = self.rows.objects(self.layout)
        return self.layout.batched(observations[rows], [objects[row] for row in rows], True)

    def batched(self, seen: Sequence[Any]) -> Any:
        if whole(self.layout):
            return {name: np.array([one[name] for one in seen]) for name in seen[0].dtype.names}
        return concatenate(self.case.space, seen, create_empty_array(self.case.space, len(seen)))


def equal(found: Any, expected: Any, where: str = "") -> None:
    """Numbers, whatever their type; keys, and the time that somebody's episode took is left out."""
    if isinstance(expected, dict):
        timed = {"t"} if {"r", "l"} <= expected.keys() else set()
        assert found.keys() - timed == expected.keys() - timed, where
        for key in expected.keys() - timed:
            equal(found[key], expected[key], f"{where}: {key}")
    elif isinstance(expected, (list, tuple)) or (isinstance(expected, np.ndarray) and expected.dtype == object):
        assert len(found) == len(expected), where
        for one, other in zip(found, expected, strict=True):
            equal(one, other, where)
    elif isinstance(expected, np.ndarray):
        assert np.array_equal(found, expected), f"{where}: {found!r} is not {expected!r}"
    else:
        assert found == expected or (found != found and expected != expected), f"{where}: {found!r} is not {expected!r}"


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


def rigged(make: Callable[[], Any], kind: type[Plain]) -> Any:
    """An environment that notes what is done with it, and fails where it is told to."""
    env = make()
    inner = getattr(env, "unwrapped", env)
    number, RIG.made = RIG.made, RIG.made + 1

    def checked(method: str) -> None:
        if RIG.raises.get(number) == method:
            raise ZeroDivisionError(number)

    def seen(method: str, returned: Any) -> Any:
        return kind.unfit(returned) if RIG.unfit == number and kind.observed == method else returned

    class Rigged(type(inner)):  # type: ignore[misc]
        def reset(self, **kwargs: Any) -> Any:
            checked("reset")
            return super().reset(**kwargs)

        def step(self, action: Any, *others: Any) -> Any:
            if action is not None:
                RIG.stepped.append(number)
                RIG.marks.append(0 if RIG.mark is None else int(RIG.mark))
                checked("step")
            return seen("step", super().step(action, *others))

        def observe(self, agent: Any) -> Any:
            return seen("observe", super().observe(agent))

        def close(self) -> None:
            RIG.closed.append(number)
            checked("close")
            super().close()

    checked("make")
    inner.__class__ = Rigged
    return env


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


def plays_as_a_loop(case: Case, mode: Any, steps: int = STEPS, **place: Any) -> list[Now]:
    """A vector environment of these environments says what comes of a plain loop, put together as Gymnasium does it."""
    seen = []
    loop = case.loop(mode)
    envs = case.envs(case.makers(), mode, **place)

    def told(now: Now, found: Any) -> None:
        count, *_, infos = len(now.shown), *found
        assert_same(found[0], concatenate(case.space, now.shown, create_empty_array(case.space, count)))
        if mode is not None:
            assert_same(timeless(infos), timeless(put_together(case, now)))

    def reset(numbers: Sequence[int], **kwargs: Any) -> None:
        mask = np.zeros(loop.bounds[-1], np.bool_)
        for number in numbers:
            mask[slice(*loop.bounds[number : number + 2])] = True
        told(loop.reset({number: {} for number in numbers}), envs.reset(options={"reset_mask": mask}))

    try:
        firsts = loop.bounds if mode is None else range(3)  # a vector environment has a seed for each of its rows
        told(loop.reset({number: {"seed": 10 + firsts[number]} for number in range(3)}), envs.reset(seed=10))
        for step in range(steps):
            actions = loop.actions()
            given = actions.copy()
            found, now = envs.step(actions), loop.step(given)
            np.testing.assert_array_equal(actions, given)
            told(now, found)
            seen.append(now)
            equal(found[1].tolist(), now.rewards)
            equal(list(zip(found[2].tolist(), found[3].tolist(), strict=True)), now.ends)
            if mode is DISABLED and now.over:
                reset(now.over)
            elif step == steps // 2:
                reset([0, 2])
    finally:
        envs.close()
    return seen
