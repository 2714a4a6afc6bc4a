"""What every ``EnvRows`` has to do, whatever steps it."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit
from plain_loops import DISABLED, IDLE, NEXT, SAME, InTurns, Recorded, Together
from row_bench import RIG, STEPS, Bench, Rig, equal, plays_as_a_loop, rigged
from row_cases import CASES, MODES, USUAL, cases, habitual, one_mode, slow

from reactor_gymnasium.environments.player import EpisodeLog, EpisodePlayer, Numbered, OfRounds
from reactor_gymnasium.environments.rows import EnvRows, StepBuffers
from reactor_rl.pickling import encode

# ---------------------------------------------------------------------- what they have to do


@cases(list(CASES))
def test_it_gives_what_a_plain_loop_gives(name: str, mode: Any) -> None:
    with Bench(CASES[name], mode) as bench:
        assert list(bench.rows.bounds) == bench.loop.bounds
        seen = bench.run()
    assert any(any(map(any, now.ends)) for now in seen)  # else little was tried


@pytest.mark.parametrize("led_to", ["beside", "alone"])
@cases([name for name, case in CASES.items() if not case.layout.objects], [SAME])
def test_what_a_step_led_to_is_written_before_a_reset(name: str, mode: Any, led_to: str) -> None:
    """Beside what is shown after it; or alone, as at the end of a record."""
    with Bench(CASES[name], mode, led_to=led_to) as bench:
        assert any(now.over for now in bench.run(12))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gym", "rows", "records", "turns"])
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_it_does_so_whatever_habits_they_have(kind: str, mode: Any) -> None:
    for case in habitual(kind):
        with Bench(case, mode) as bench:
            bench.run()


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


@one_mode(list(CASES))
def test_who_gives_no_buffer_for_rewards_takes_them_as_they_are(name: str, mode: Any) -> None:
    """Ends, too."""
    with Bench(CASES[name], mode) as bench:
        bench.reset()
        rows, observations = bench.rows, bench.memory.observations
        out = StepBuffers(bench.layout, observations)
        for step in range(STEPS):
            given = bench.draw().copy()
            now = bench.loop.step(given)
            rows.step(bench.case.pack(bench.actions), None if step % 4 == 3 else out)
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
                bench.reset({number: {} for number in now.over})
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


@pytest.fixture
def rig() -> Rig:
    """One with nothing wrong yet."""
    vars(RIG).update(vars(Rig()))  # environments refer to it
    return RIG


def rigged_bench(name: str, mode: Any, **more: Any) -> Bench:
    """With environments that are rigged."""
    case = CASES[name]
    return Bench(
        replace(case, env=[partial(rigged, make, case.kind) for make in case.makers()], twin=case.twin or case.env), mode, **more
    )


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
        bench.rows.step(bench.case.pack(bench.actions), memory.out)
        assert rig.stepped == [0, 1, 2]
        assert [(number, type(error)) for number, error in bench.rows.failures] == [(1, ZeroDivisionError)]
        bench.same_ends(now, others(bench, 1))
        bench.rows.show(memory.out)  # nobody reads what a step wrote that raises
        bench.same_rows(now, others(bench, 1))
        assert not bench.rows.finals.keys() - others(bench, 1)
        with pytest.raises(ZeroDivisionError) as raised:
            bench.rows.raise_failure()
        assert raised.value.__notes__ == [f"raised in {bench.rows.unit} 1"]
        bench.rows.step(bench.case.pack(bench.draw()), bench.turn().out)  # it may be stepped on
        assert len(rig.stepped) == 6 and [number for number, _ in bench.rows.failures] == [1]


@pytest.mark.filterwarnings("ignore:.*obs returned")
@pytest.mark.parametrize("name", [name for name in USUAL if CASES[name].kind.observed])
def test_an_observation_that_does_not_fit_is_its_environments_failure(name: str, rig: Rig) -> None:
    with rigged_bench(name, CASES[name].modes[0]) as bench:
        bench.reset()
        rig.unfit = 2
        given = bench.draw().copy()
        memory, now = bench.turn(), bench.loop.step(given)
        bench.rows.step(bench.case.pack(bench.actions), memory.out)
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


@one_mode(USUAL, (NEXT, SAME))
def test_a_reset_after_an_episode_that_fails(name: str, mode: Any, rig: Rig) -> None:
    with rigged_bench(name, mode) as bench:
        bench.reset()
        rig.raises = dict.fromkeys(range(3), "reset")
        for _ in range(20 * STEPS):
            stepped = len(rig.stepped)
            bench.rows.step(bench.case.pack(bench.draw()), bench.turn().out)
            if bench.rows.failures:
                break
            bench.loop.step(bench.actions)
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
            bench.rows.step(bench.case.pack(bench.draw()), bench.turn().out)
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


@cases([name for name in USUAL if CASES[name].saved])
def test_it_goes_on_from_a_saved_state(name: str, mode: Any) -> None:
    with Bench(CASES[name], mode) as bench, Bench(CASES[name], mode) as other:
        other.reset({number: {"seed": 60 + number} for number in range(3)})  # nothing of it is what the saved ones have
        other.run(3, reset=False)
        bench.reset()
        ends = 0
        for step in range(STEPS):
            now = bench.step()
            ended = any(map(any, now.ends))
            ends += ended
            if step in (4, 9) or (ended and ends < 3):
                saved = [deepcopy(bench.rows.save(number)) for number in range(bench.rows.num_envs)]
                for number, of_env in enumerate(saved):
                    other.rows.load(number, of_env)
                bench.rows, other.rows = other.rows, bench.rows
                bench.rows.show(bench.turn().out)
                bench.same_rows(now, range(bench.rows.num_rows))
            if mode is DISABLED and now.over:
                bench.reset({number: {} for number in now.over})
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


@one_mode(USUAL, (NEXT, SAME))
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


@cases(USUAL, [SAME])
def test_of_infos_is_kept_what_is_wanted(name: str, mode: Any) -> None:
    with Bench(CASES[name], mode) as bench:
        bench.reset()
        bench.rows.keep_infos = False
        bench.rows.before_reset = lambda row, info: (row, len(info))
        for _ in range(STEPS):
            now = bench.loop.step(bench.draw().copy())
            bench.rows.step(bench.case.pack(bench.actions), bench.turn().out)
            assert not bench.rows.infos
            expected = {row: (seen, (row, len(info))) for row, (seen, info) in now.finals.items()}
            equal(bench.rows.finals, expected)


# ---------------------------------------------------------------------- who plays episodes

PLAYED = {
    "rounds": lambda: OfRounds(3, lambda env, number: 10 * env + number),
    "queue": lambda: Numbered(3, lambda number: 50 + number),
}


@pytest.mark.parametrize(("name", "kind"), [
    pytest.param(name, kind, marks=slow(name, (at + turn) % 3 > 0))
    for at, name in enumerate(USUAL)
    if SAME in CASES[name].modes and CASES[name].kind not in (InTurns, Recorded, Together)  # which have several rows
    for turn, kind in enumerate(PLAYED)
])  # fmt: skip
def test_a_player_counts_what_a_plain_loop_counts(name: str, kind: str) -> None:
    """One player for all: episodes of each environment, their sums and lengths, whichever of them comes next."""
    with Bench(CASES[name], SAME) as bench:
        rows, loop, (seeds, ours) = bench.rows, bench.loop, (PLAYED[kind](), PLAYED[kind]())
        for each in (seeds, ours):
            if isinstance(each, Numbered):
                each.queue.extend(range(5))
        numbers: dict[int, Any] = {}

        def following(env: int) -> Any:
            numbers[env] = ours.playing[env]
            return ours(env)

        loop.seeds = following
        player = EpisodePlayer(rows, seeds, EpisodeLog(rows.num_rows, floats=True))
        totals = np.zeros((rows.num_rows, 2))
        player.begin(bench.turn().out)
        first = {env: kwargs for env in range(3) if (kwargs := ours(env)) is not None}
        loop.pending = [IDLE] * 3
        now = loop.reset(first)
        assert [env for env, pending in enumerate(rows.pending) if pending != IDLE] == list(first)
        episodes = 0
        for step in range(3 * STEPS):
            if isinstance(seeds, OfRounds) and isinstance(ours, OfRounds) and step % 5 == 0:
                seeds.begin_round()
                ours.begin_round()
            awake = bench.awake
            numbers |= dict(enumerate(ours.playing))
            now = loop.step(bench.draw().copy())
            ended = player.step(bench.case.pack(bench.actions), StepBuffers(bench.layout, bench.turn().observations))
            bench.same_rows(now, awake)
            totals += np.stack([now.rewards, np.ones(rows.num_rows)], 1)
            expected = []
            for row, ends in enumerate(now.ends):
                if any(ends):
                    env = int(np.searchsorted(loop.bounds, row, "right")) - 1
                    expected.append((row, numbers[env], *totals[row], ends[0], env in now.over, now.finals[row][1]))
                    totals[row] = 0
            equal(sorted([one[:-1] for one in ended]), sorted(expected))
            episodes += len(expected)
            if player.idle:
                break
        assert player.idle == (kind != "rounds") and episodes >= 5


# ---------------------------------------------------------------------- vector environments, which have such rows


@one_mode([name for name, case in CASES.items() if case.envs])
def test_a_vector_environment_says_what_a_plain_loop_says(name: str, mode: Any) -> None:
    plays_as_a_loop(CASES[name], mode, executor="inline")


@pytest.mark.slow
@one_mode(["own observation", "texts", "agents, joining"])
def test_in_processes_it_says_so_too(name: str, mode: Any) -> None:
    plays_as_a_loop(CASES[name], mode, executor="processes", workers=2)


PLACES = [("inline", 1), ("threads", 2), ("processes", 2), ("processes", 3)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mode", "executor", "workers", "works"), [
    (name, CASES[name].modes[(at + turn) % len(CASES[name].modes)], *place, bool((at // 2 + turn) % 2))
    for at, name in enumerate(name for name, case in CASES.items() if case.envs)
    for turn, place in enumerate(PLACES)
    if CASES[name].saved or place[0] != "threads"  # what they share they would write at once
], ids=str)  # fmt: skip
def test_wherever_it_is_it_says_so_too(name: str, mode: Any, executor: str, workers: int, works: bool) -> None:
    """Each kind in each place, in one of its modes: a place does not know the mode, nor whether the caller works."""
    plays_as_a_loop(CASES[name], mode, executor=executor, workers=workers, caller_works=works)
