"""What a block of environments says of a step: where episodes ended, what they led to, who failed."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import TimeLimit
from reusing_envs import HABITS, SPACES, Reusing

from reactor_gymnasium.environments.gym_rows import GymRows
from reactor_gymnasium.environments.rows import StepBuffers
from reactor_gymnasium.environments.storage import ObservationLayout
from reactor_rl.pickling import encode

N, LENGTH, STEPS = 3, 4, 10


class ByName:
    """Rows in arrays by name, as a record has them."""

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        self.leaves = ObservationLayout(space)

    def writer(self, rows: Any) -> Any:
        return self.leaves.writer(rows["x"])

    def batch_writer(self, rows: Any) -> Any:
        return self.leaves.batch_writer(rows["x"])


class Counting(gymnasium.Env[Any, Any]):
    """Shows its number and step; fails, ends or shows what does not fit when the action says so."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(4)

    def __init__(self, number: int) -> None:
        self.number, self.t = number, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self._seen(), {"seed": seed}

    def step(self, action: Any) -> Any:
        self.t += 1
        if action == 1:
            raise ZeroDivisionError(self.number)
        return self._seen()[: 1 if action == 3 else 2], float(self.t), action == 2, False, {"t": self.t}

    def _seen(self) -> Any:
        return np.array([self.number, self.t], np.float32)


def block_of(makers: list[Any], autoreset: AutoresetMode, **options: Any) -> GymRows:
    block = GymRows(0, autoreset, **options)
    block.build([encode(maker) for maker in makers])
    block.reset({row: {"seed": row} for row in range(len(makers))}, None)
    return block


def counting(autoreset: AutoresetMode = AutoresetMode.SAME_STEP, **options: Any) -> tuple[GymRows, Any, StepBuffers]:
    shown = np.zeros((N, 2), np.float32)
    block = block_of([lambda number=number: Counting(number) for number in range(N)], autoreset, **options)
    return block, shown, StepBuffers(ObservationLayout(Counting.observation_space), shown)


@pytest.mark.parametrize("last", [False, True], ids=["within", "at the end"])
@pytest.mark.parametrize("space", ["small", "large"])
@pytest.mark.parametrize("habit", HABITS)
def test_what_a_step_led_to_is_written_before_a_reset(habit: str, space: str, last: bool) -> None:
    def make(*habits: str) -> gymnasium.Env[Any, Any]:
        return TimeLimit(Reusing(habits, space, "box", LENGTH + 1), LENGTH)

    block = block_of([lambda: make(habit)] * N, AutoresetMode.SAME_STEP)
    plain = [make() for _ in range(N)]
    for row, env in enumerate(plain):
        env.reset(seed=row)
    shape = SPACES[space].shape
    shown, led_to = np.zeros((2, N, *shape), np.float32)
    out = StepBuffers(ByName(SPACES[space]), None if last else {"x": shown}, {"x": led_to})
    random = np.random.default_rng(0)
    for _ in range(STEPS):
        actions = random.uniform(-1, 1, (N, 2)).astype(np.float32)
        given = actions.copy()
        block.step(actions, out)
        assert not block.failures
        np.testing.assert_array_equal(actions, given)
        for row, env in enumerate(plain):
            expected, _, terminated, truncated, _ = env.step(given[row].copy())
            np.testing.assert_array_equal(led_to[row], expected)
            assert (row in block.finals) == (terminated or truncated) == (row in [ended for ended, _, _ in block.ended])
            if row in block.finals:
                np.testing.assert_array_equal(block.finals[row][0], expected)
                expected, _ = env.reset()
            np.testing.assert_array_equal(block.observations[row], expected)
            if not last:
                np.testing.assert_array_equal(shown[row], expected)


def test_the_others_take_their_step_where_one_fails() -> None:
    block, shown, out = counting()
    block.step([0, 0, 0], out)
    block.step([0, 1, 0], out)
    assert [(row, type(error)) for row, error in block.failures] == [(1, ZeroDivisionError)]
    with block.opened() as envs:
        assert [env.unwrapped.t for env in envs] == [2, 2, 2]  # type: ignore[attr-defined]
    block.step([0, 0, 0], out)
    assert not block.failures
    np.testing.assert_array_equal(shown, [[0, 3], [1, 3], [2, 3]])


def test_who_returned_what_does_not_fit_is_found_out() -> None:
    block, shown, out = counting()
    block.step([0, 0, 3], out)
    assert [(row, type(error)) for row, error in block.failures] == [(2, ValueError)]
    np.testing.assert_array_equal(shown[:2], [[0, 1], [1, 1]])


def test_a_reset_after_an_episode_is_given_its_arguments() -> None:
    block, _, out = counting(seeds=lambda row: {"seed": 70 + row})
    block.step([0, 2, 0], out)
    assert block.ended == [(1, True, False)]
    assert block.finals[1][1] == {"t": 1}
    assert block.infos == {0: {"t": 1}, 1: {"seed": 71}, 2: {"t": 1}}


def test_of_infos_is_kept_what_is_wanted() -> None:
    block, _, out = counting()
    taken = []

    def before_reset(row: int, info: Any) -> Any:
        with block.opened() as envs:
            taken.append((row, info["t"], envs[row].unwrapped.t))  # type: ignore[attr-defined]  # there has been no reset yet
        return "kept"

    block.keep_infos, block.before_reset = False, before_reset
    block.step([0, 0, 0], out)
    block.step([2, 0, 0], out)
    assert taken == [(0, 2, 2)]
    assert block.finals[0][1] == "kept"
    assert not block.infos


def test_the_next_step_resets_or_none_does() -> None:
    block, shown, out = counting(AutoresetMode.NEXT_STEP)
    block.step([2, 0, 0], out)
    assert block.pending == [True, False, False]
    block.step([1, 0, 0], out)  # no account is taken of the action
    assert not block.failures and block.rewards == [0.0, 2.0, 2.0]
    np.testing.assert_array_equal(shown, [[0, 0], [1, 2], [2, 2]])

    block, shown, out = counting(AutoresetMode.DISABLED)
    block.step([2, 0, 0], out)
    assert not block.finals and block.pending == [False] * N
    np.testing.assert_array_equal(shown, [[0, 1], [1, 1], [2, 1]])


def test_steps_are_taken_again() -> None:
    block, _, _ = counting()
    block.replay(1, {"seed": 3}, np.array([0, 0, 2, 0]))
    np.testing.assert_array_equal(block.observations[1], [1, 1])


def test_who_could_not_be_constructed_is_named_and_the_others_are_closed() -> None:
    class Closing(Counting):
        closed = False

        def close(self) -> None:
            self.closed = True

    block = GymRows(5, AutoresetMode.SAME_STEP)
    with pytest.raises(ZeroDivisionError) as raised:
        block.build([encode(lambda: Closing(0)), encode(lambda: 1 / 0)])
    assert raised.value.__notes__ == ["while environment 6 was constructed"]
    with block.opened() as (env,):
        pass
    block.close()
    assert env.closed and not block.num_envs  # type: ignore[attr-defined]
