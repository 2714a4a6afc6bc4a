"""``AtariVectorEnv`` returns what ``ale_py.AtariVectorEnv`` returns, byte for byte, wherever its games are played."""

from __future__ import annotations

import inspect
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import places
import pytest
from compare import assert_same, debugged, fingerprint, played, trajectories
from every_other import in_turn
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, Error, NoAsyncCallError, ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from places import INLINE, THREADS, WAITING
from scripts import end_within

from reactor_gymnasium import AtariEnv, AtariVectorEnv, make_vec
from reactor_gymnasium.atari import game as game_module
from reactor_gymnasium.atari.game import AtariGame
from reactor_rl import RunError, WorkerDiedError

ale_py = pytest.importorskip("ale_py", reason="ale-py is not installed")

STEPS = int(os.environ.get("REACTOR_RL_ATARI_STEPS", "60"))
"""How long what is compared with ALE is played."""
LONG = STEPS >= 1000

pytestmark = [pytest.mark.timeout(120 + STEPS // 8), pytest.mark.filterwarnings("ignore:.* raised .*:UserWarning")]

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="ALE's random no-ops are those of the GNU library")

PLACES = [*places.PLACES, THREADS | {"workers": 3} | WAITING]


# ---------------------------------------------------------------------- the same as ALE


def random_actions(space: Any, n: int, rng: np.random.Generator) -> Any:
    """Random actions of ``n`` environments; of a joystick, every other one lies on an axis, and often at a threshold."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return rng.integers(0, space.n, n)
    anywhere = np.stack([rng.random(n), rng.uniform(-np.pi, np.pi, n), rng.random(n)], 1)
    special = np.stack([rng.choice([0, 0.2, 0.5, 1], n), rng.choice([0, np.pi / 2], n), rng.choice([0, 0.2, 0.5, 1], n)], 1)
    return np.where(rng.random((n, 1)) < 0.5, anywhere, special).astype(np.float32)


def assert_like_ale(ours: AtariVectorEnv, theirs: Any, steps: int, seeds: bool) -> int:
    """Play the same on both, resets in the middle included, with new seeds or without; returns how many episodes ended."""
    same_step = ours.autoreset_mode is AutoresetMode.SAME_STEP
    n, rng, ends = ours.num_envs, np.random.default_rng(0), 0
    mask = np.arange(n) % 2 == 0
    resets: dict[int, dict[str, Any]] = {
        steps // 2: {"seed": np.arange(7, 7 + mask.sum()) if seeds else None, "options": {"reset_mask": mask}},
        2 * steps // 3: {},
        3 * steps // 4: {"seed": 100 if seeds else None},
        4 * steps // 5: {"options": {"reset_mask": ~mask if n > 1 else mask}},
    }
    given = [ours.reset(seed=3), theirs.reset(seed=3)]
    assert_same(*given, "reset")
    for step in range(steps):
        before = given[0][-1]["episode_frame_number"]
        actions = random_actions(ours.single_action_space, n, rng)
        mine, other = ours.step(actions), theirs.step(actions.copy())
        ended = mine[2] | mine[3]
        if "final_obs" in other[4]:
            assert same_step and list(mine[4]) == list(other[4])
            last, expected = mine[4]["final_obs"], other[4].pop("final_obs")
            again = mine[4]["episode_frame_number"] <= before  # a life that was lost is reported without a reset if one asks for it
            assert_same(last[ended & again], expected[ended & again], f"step {step}, final_obs")
            assert_same(last[ended & ~again], mine[0][ended & ~again], f"step {step}, final_obs of lives lost")
            assert not last[~ended].any()
            given = [(*mine[:4], {key: value for key, value in mine[4].items() if key != "final_obs"}), other]
        else:
            given = [mine, other]
        assert_same(*given, f"step {step}")
        ends += int(ended.sum())
        if step in resets:
            given = [ours.reset(**resets[step]), theirs.reset(**resets[step])]
            assert_same(*given, f"reset after step {step}")
    return ends


def compare(game: str, n: int = 1, place: dict[str, Any] = INLINE, seeds: bool = LONG, **options: Any) -> int:
    if LONG:
        n = 4  # loading a game takes longer than hundreds of steps
    theirs = ale_py.AtariVectorEnv(game, n, **options)
    with AtariVectorEnv(game, n, **options, **place) as ours:
        for name in (
            "single_action_space",
            "single_observation_space",
            "action_space",
            "observation_space",
            "num_envs",
            "batch_size",
        ):
            assert getattr(ours, name) == getattr(theirs, name), name
        return assert_like_ale(ours, theirs, STEPS, seeds)


NEXT, SAME = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP
SHORT = {"max_num_frames_per_episode": 81}
OPTIONS: list[tuple[str, dict[str, Any], bool]] = [
    ("pong", {}, False),
    ("pong", {"frameskip": 1}, False),
    ("space_invaders", {"frameskip": 2, "max_num_frames_per_episode": 41}, True),
    ("pong", {"frameskip": 3} | SHORT, True),
    ("breakout", {"frameskip": 5, "episodic_life": True}, True),
    ("breakout", {"stack_num": 1, "episodic_life": True}, True),
    ("breakout", {"stack_num": 3, "episodic_life": True}, True),
    ("seaquest", {"grayscale": False} | SHORT, True),
    ("pong", {"grayscale": False, "maxpool": False, "img_height": 210, "img_width": 160, "stack_num": 2} | SHORT, True),
    ("space_invaders", {"maxpool": False} | SHORT, True),
    ("breakout", {"episodic_life": True, "autoreset_mode": SAME}, True),
    ("breakout", {"life_loss_info": True}, True),
    ("breakout", {"life_loss_info": True, "autoreset_mode": SAME}, True),
    ("breakout", {"life_loss_info": True, "episodic_life": True, "autoreset_mode": "SameStep"}, True),
    ("skiing", {} | SHORT, True),  # rewards of -7 from the beginning on
    ("carnival", {} | SHORT, True),  # soon of 60; 214 rows
    ("carnival", {"reward_clipping": False} | SHORT, True),
    ("pong", {"img_height": 210, "img_width": 160} | SHORT, True),
    ("breakout", {"max_num_frames_per_episode": 7, "autoreset_mode": SAME, "grayscale": False, "img_height": 40}, True),
    ("montezuma_revenge", {"max_num_frames_per_episode": 30, "autoreset_mode": SAME}, True),
    ("space_invaders", {"continuous": True} | SHORT, True),
    ("carnival", {"continuous": True, "continuous_action_threshold": 0.2} | SHORT, True),
    ("breakout", {"continuous": True, "continuous_action_threshold": 0.2, "episodic_life": True}, False),
    ("seaquest", {"img_height": 64, "img_width": 72} | SHORT, True),
    ("breakout", {"use_fire_reset": False, "episodic_life": True, "full_action_space": True}, False),
    ("seaquest", {"repeat_action_probability": 0.25, "full_action_space": True} | SHORT, True),
    ("keystone_kapers", {} | SHORT, True),  # 250 rows, PAL
    ("keystone_kapers", {"grayscale": False, "autoreset_mode": SAME} | SHORT, True),
    ("montezuma_revenge", {}, False),
]
"""Every other one is tried where time is short."""


@pytest.mark.slow
@pytest.mark.parametrize("number", range(0, len(OPTIONS), 1 if LONG else 2), ids=lambda i: f"{OPTIONS[i][0]}-{OPTIONS[i][1]}")
def test_without_random_no_ops(number: int) -> None:
    game, options, ends = OPTIONS[number]
    found = compare(game, *((2, PLACES[1]) if number % 5 == 0 else ()), noop_max=0, **options)
    assert found or not ends


RANDOM: list[tuple[str, dict[str, Any]]] = [
    ("pong", SHORT),
    ("breakout", {"repeat_action_probability": 0.25, "episodic_life": True}),
    ("breakout", {"life_loss_info": True, "autoreset_mode": SAME, "use_fire_reset": False}),
    ("space_invaders", {"noop_max": 7, "autoreset_mode": SAME, "grayscale": False} | SHORT),
]


@pytest.mark.slow
@on_linux
@pytest.mark.parametrize("number", range(len(RANDOM)), ids=lambda i: f"{RANDOM[i][0]}-{RANDOM[i][1]}")
def test_with_random_no_ops(number: int) -> None:
    game, options = RANDOM[number]
    compare(game, 3, PLACES[2 if number == 0 else 3], seeds=number < 2, **options)


@pytest.mark.slow
@on_linux
def test_every_number_of_no_ops_is_drawn_as_ale_draws_it() -> None:
    for most in (0, 1, 2, 3, 30, 31) if LONG else (3, 30):
        theirs = ale_py.AtariVectorEnv("pong", 1, noop_max=most, max_num_frames_per_episode=1, frameskip=1, autoreset_mode=SAME)
        options = {"noop_max": most, "max_num_frames_per_episode": 1, "frameskip": 1, "autoreset_mode": SAME}
        with AtariVectorEnv("pong", 1, **options, **INLINE) as ours:
            drawn = set()
            for seed in (0, 2**31 - 1)[: 2 if LONG else 1]:
                assert_same(ours.reset(seed=seed)[1], theirs.reset(seed=seed)[1])
                for _ in range(100 if most > 3 else 10):
                    found = ours.step(np.zeros(1, np.int64))[4]
                    assert_same(found, theirs.step(np.zeros(1, np.int64))[4] | {"final_obs": found["final_obs"]})
                    drawn.add(int(found["episode_frame_number"][0]))
            assert len(drawn) >= most // 2


def both(game: str, steps: int, actions: int, **options: Any) -> list[Any]:
    """The first actions in turn, on ALE and on ours, which must return the same; returns that."""
    theirs = ale_py.AtariVectorEnv(game, 1, noop_max=0, **options)
    with AtariVectorEnv(game, 1, noop_max=0, **options, **INLINE) as ours:
        assert_same(ours.reset(seed=3), theirs.reset(seed=3))
        seen = []
        for step in range(steps):
            action = np.array([step % actions])
            seen.append(ours.step(action))
            assert_same(seen[-1], theirs.step(action))
        return seen


@pytest.mark.slow
def test_a_life_that_is_lost_at_the_last_frame_is_no_truncation() -> None:
    lost = next(i for i, results in enumerate(both("breakout", 150, 1, frameskip=1, life_loss_info=True)) if results[2])
    for options in ({"life_loss_info": True}, {"episodic_life": True}, {}):
        *_, last = both("breakout", lost + 1, 1, frameskip=1, max_num_frames_per_episode=lost + 1, **options)
        assert (last[2].tolist(), last[3].tolist()) == ([options != {}], [options == {}])


@pytest.mark.slow
def test_the_last_life_is_not_lost_before_the_game_is_over() -> None:
    seen = both("frogger", 210, 2, life_loss_info=True)
    ended = [i for i, results in enumerate(seen) if results[2]]
    zero = next(i for i, results in enumerate(seen) if not results[4]["lives"])
    assert len(ended) == 4 and ended[-1] > zero


@pytest.mark.slow
def test_through_opencv_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(game_module, "_frames", None)
    assert compare("breakout", noop_max=0, episodic_life=True)


@pytest.mark.slow
def test_seeds_of_every_kind() -> None:
    with AtariVectorEnv("breakout", 2, **INLINE) as envs:
        expected = envs.reset(seed=5)
        for seeds in ([5, 6], (np.int64(5), 6), np.array([5, 6], np.uint8), np.int32(5)):
            assert_same(envs.reset(seed=seeds), expected)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("actions", [[3, 0], (np.int16(3), 0), np.array([3, 0], np.uint8), np.array([9, 3, 9, 0])[1::2]], ids=repr)
def test_actions_of_every_kind(actions: Any) -> None:
    with AtariVectorEnv("breakout", 2, **INLINE) as envs:
        envs.reset(seed=1)
        expected = [envs.step(np.array([3, 0])) for _ in range(6)]
        envs.reset(seed=1)
        assert_same([envs.step(actions) for _ in range(6)], expected)


# ---------------------------------------------------------------------- the same everywhere

EVERYWHERE: list[dict[str, Any]] = [
    {"executor": executor, "workers": workers, "caller_works": caller, "batch_size": batch_size}
    for executor in ("threads", "processes")
    for workers in (1, 2, 3, 4)
    for caller in (True, False)
    for batch_size in (0, 2, 1)
]
POISONED = {"max_num_frames_per_episode": 20, "autoreset_mode": SAME, "repeat_action_probability": 0.25, "img_height": 20}


@pytest.mark.slow
def test_one_fingerprint() -> None:
    actions = np.random.default_rng(0).integers(0, 4, (15, 4))

    def play(envs: Any) -> list[Any]:
        return trajectories(envs, actions, seed=11)

    expected = fingerprint(played(AtariVectorEnv("breakout", 4, **POISONED, **INLINE), play))
    for place in [INLINE | {"batch_size": 2}, *EVERYWHERE[:: 1 if LONG else 9]]:
        assert fingerprint(played(AtariVectorEnv("breakout", 4, **POISONED, **place), play)) == expected, place


@pytest.mark.slow
def test_masks_and_resets_are_the_same_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def play(envs: Any) -> list[Any]:
        envs.action_space.seed(3)
        mask = np.array([False, True, True, False])
        seen: list[Any] = [envs.reset(seed=4)]
        for step in range(16):
            seen.append(envs.step(envs.action_space.sample()))
            if step in (3, 9):
                seen.append(envs.reset(seed=[step, 1] if step == 3 else None, options={"reset_mask": mask}))
        return seen

    expected = played(AtariVectorEnv("breakout", 4, **POISONED, **INLINE), play)
    debugged(monkeypatch)
    for place in ({"executor": "auto"}, PLACES[1] | {"workers": 3}, PLACES[2]):
        assert_same(played(AtariVectorEnv("breakout", 4, **POISONED, **place), play), expected)


@pytest.mark.slow
def test_threads_that_play_what_another_one_has_made() -> None:
    begin = threading.Barrier(2)

    def play(envs: AtariVectorEnv, seen: list[Any], alone: bool = False) -> None:
        envs.reset(seed=1)
        if not alone:
            begin.wait(30)
        seen.append(fingerprint([envs.step(np.zeros(2, np.int64) + step % 4) for step in range(150)]))

    games = ("breakout", "space_invaders")
    expected: list[Any] = []
    found: list[list[Any]] = [[] for _ in games]
    for game in games:
        with AtariVectorEnv(game, 2, **INLINE) as envs:
            play(envs, expected, alone=True)
    together = [AtariVectorEnv(game, 2, **INLINE) for game in games]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=play, args=pair) for pair in zip(together, found, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    for envs in together:
        envs.close()
    assert [one for of_game in found for one in of_game] == expected


# ---------------------------------------------------------------------- the interface


def test_the_signature_begins_with_ales() -> None:
    ours = inspect.signature(AtariVectorEnv.__init__).parameters
    theirs = inspect.signature(ale_py.AtariVectorEnv.__init__).parameters
    assert list(ours)[: len(theirs)] == list(theirs)
    for name, parameter in theirs.items():
        assert (ours[name].default, ours[name].kind) == (parameter.default, parameter.kind), name
    assert {parameter.kind for name, parameter in ours.items() if name not in theirs} == {inspect.Parameter.KEYWORD_ONLY}
    for method in ("reset", "step", "send", "recv"):
        one, other = (inspect.signature(getattr(kind, method)).parameters for kind in (AtariVectorEnv, ale_py.AtariVectorEnv))
        expected = [(p.name, p.default, p.kind) for p in other.values()]
        assert [(p.name, p.default, p.kind) for p in one.values()][: len(expected)] == expected
        assert len(one) == len(expected) + (method == "send")  # which has EnvPool's env_id


def test_metadata_is_a_dict_of_its_own() -> None:
    before = dict(VectorEnv.metadata)
    envs = [AtariVectorEnv("pong", 1, autoreset_mode=mode, **INLINE) for mode in ("SameStep", NEXT)]
    pictures = {"render_modes": ["rgb_array"], "render_fps": 15}
    assert [one.metadata for one in envs] == [{"autoreset_mode": SAME} | pictures, {"autoreset_mode": NEXT} | pictures]
    assert [one.autoreset_mode for one in envs] == [SAME, NEXT]
    assert VectorEnv.metadata == before
    for one in envs:
        one.close()


@pytest.mark.slow
def test_what_is_returned_is_yours() -> None:
    for place in (PLACES[0], PLACES[2]):
        with AtariVectorEnv("breakout", 2, max_num_frames_per_episode=12, autoreset_mode=SAME, **place) as envs:
            given: list[Any] = [envs.reset(seed=0)]
            given += [envs.step(np.array([1, 2])) for _ in range(7)]
            assert [("final_obs" in results[-1]) for results in given] == [step in (3, 6) for step in range(8)]
            before = fingerprint(given)
            envs.step(np.array([3, 3]))
            envs.reset(options={"reset_mask": np.array([True, False])})
            envs.reset(seed=4)
            assert fingerprint(given) == before
            for results in given:
                for array in [*results[:-1], *results[-1].values()]:
                    array[:] = 1  # writable, and of no use to anybody else
            assert_same(envs.reset(seed=0)[1]["lives"], np.zeros(2, np.int32) + 5)


@pytest.mark.slow
def test_without_copies_observations_are_views() -> None:
    for place in (PLACES[0], PLACES[2]):
        with AtariVectorEnv("breakout", 2, **place) as envs, AtariVectorEnv("breakout", 2, copy=False, **place) as views:
            first, kept = views.reset(seed=0)[0], None
            np.testing.assert_array_equal(first, envs.reset(seed=0)[0])
            for _ in range(3):
                expected, (observations, *others) = envs.step(np.array([1, 3])), views.step(np.array([1, 3]))
                assert np.shares_memory(observations, first)
                np.testing.assert_array_equal(observations, expected[0])
                assert_same(others, list(expected[1:]))
                if kept is not None:
                    assert_same(kept[0], kept[1])  # only observations are views
                kept = others, list(expected[1:])


@pytest.mark.slow
def test_send_and_recv() -> None:
    with AtariVectorEnv("breakout", 2, **PLACES[3]) as envs:
        envs.reset(seed=0)
        expected = [envs.step(np.array([1, 3])) for _ in range(5)]
        envs.reset_async(seed=0)
        with pytest.raises(AlreadyPendingCallError):
            envs.send(np.array([1, 3]))
        envs.reset_wait()
        found = []
        for _ in range(5):
            actions = np.array([1, 3])
            envs.send(actions)
            actions[:] = 99
            with pytest.raises(AlreadyPendingCallError):
                envs.send(np.array([1, 3]))
            with pytest.raises(AlreadyPendingCallError):
                envs.reset()
            found.append(envs.recv())
            with pytest.raises(NoAsyncCallError):
                envs.recv()
        assert_same(found, expected)


@pytest.mark.slow
def test_repr_says_what_it_runs_on_and_why() -> None:
    with AtariVectorEnv("pong", 2, workers=1) as envs:
        assert repr(envs) == "AtariVectorEnv('pong', num_envs=2, executor='inline', workers=1 [one worker])"
    with AtariVectorEnv("pong", 2, batch_size=1, workers=2) as envs:
        assert "'pong', num_envs=2, batch_size=1, executor='processes', workers=2 [a step takes " in repr(envs)
    with AtariVectorEnv("pong", 3, num_threads=2, executor="threads") as envs:
        assert "num_envs=3, executor='threads', workers=2)" in repr(envs)
    assert "num_envs=3" in repr(envs)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="processes cannot be bound to cores here")
def test_helpers_are_bound_to_cores() -> None:
    def cores_of(pids: set[int]) -> list[set[int]]:
        return sorted(os.sched_getaffinity(pid) for pid in pids)

    mine = os.sched_getaffinity(0)
    core = min(mine)
    if (os.cpu_count() or 1) != len(mine) or len(mine) < 2:
        pytest.skip("not all cores may be used")
    for executor, expected in (("processes", [{core + 1}]), ("threads", [])):
        before = descendants()
        with AtariVectorEnv("pong", 2, executor=executor, workers=2, thread_affinity_offset=core) as envs:  # type: ignore[arg-type]
            envs.reset(seed=0)
            helpers = [pid for pid in descendants() - before if os.sched_getaffinity(pid) != mine]
            assert cores_of(set(helpers)) == expected
            assert os.sched_getaffinity(0) == mine


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="processes cannot be bound to cores here")
def test_cores_that_may_not_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 100_000)
    with AtariVectorEnv("pong", 2, executor="processes", workers=2, thread_affinity_offset=50_000) as envs:
        envs.reset(seed=0)


def descendants() -> set[int]:
    """Processes that descend from this one."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {os.getpid()}


# ---------------------------------------------------------------------- make_vec


@pytest.mark.slow
@on_linux
@pytest.mark.parametrize("name", ["ALE/Breakout-v5", "reactor/ALE.Breakout-v5"])
def test_make_vec_as_gymnasium_makes_it(name: str) -> None:
    theirs = gymnasium.make_vec("ALE/Breakout-v5", 2, episodic_life=True)
    with make_vec(name, 2, preprocess=True, episodic_life=True, **INLINE) as ours:
        assert type(ours) is AtariVectorEnv
        assert theirs.spec is not None and ours.spec is not None
        assert ours.spec.id == "ALE/Breakout-v5"
        assert ours.spec.kwargs["preprocess"] is True
        assert "AtariVectorEnv(ALE/Breakout-v5" in repr(ours) or "AtariVectorEnv('breakout'" in repr(ours)
        assert assert_like_ale(ours, theirs, 50, seeds=True) > 0


@pytest.mark.slow
def test_make_vec_without_preprocessing_gives_what_make_gives() -> None:
    single = gymnasium.make("ALE/Pong-v5")
    expected = single.reset(seed=3)[0]
    with make_vec("ALE/Pong-v5", 2, **INLINE) as envs:
        observations, _ = envs.reset(seed=3)
        assert observations.shape == (2, 210, 160, 3)
        assert_same(observations[0], expected)
    single.close()


def test_make_vec_refuses_what_makes_no_sense() -> None:
    for arguments, text in (
        ({"id": "CartPole-v1"}, "preprocess=True is for Atari games"),
        ({"wrappers": [gymnasium.wrappers.FlattenObservation]}, "no single environments"),
        ({"obs_type": "ram"}, "obs_type: not among the keywords of AtariVectorEnv, which are batch_size, num_threads"),
        ({"shared_memory": True}, "shared_memory: not among the keywords"),
        ({"vectorization_mode": "sync"}, "for vectorization_mode='sync' use gymnasium.make_vec"),
    ):
        with pytest.raises(Error, match=text):
            make_vec(**{"id": "ALE/Pong-v5", "num_envs": 2, "preprocess": True, **arguments})  # type: ignore[call-overload]


@pytest.mark.slow
def test_an_id_of_gymnasiums_names_its_game() -> None:
    for by_id, by_name in (("ALE/Pong-v5", "pong"), ("ALE/MsPacman-v5", "ms_pacman")):
        with AtariVectorEnv(by_id, 2, **INLINE) as one, AtariVectorEnv(by_name, 2, **INLINE) as other:
            assert one.game == other.game == by_name
            assert_same(one.reset(seed=1), other.reset(seed=1), "reset")
            actions = np.array([2, 3])
            assert_same(one.step(actions), other.step(actions), "step")
    with AtariEnv("ALE/Pong-v5") as env:
        assert env.reset(seed=1)[0].shape == (4, 84, 84)


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ({"game": "Pong"}, ValueError, "'Pong' is not the name of a game; names are in snake case"),
        ({"game": "no_such_game"}, ValueError, "not the name of a game"),
        ({"game": "ALE/NoSuchGame-v5"}, ValueError, 'or ids of Gymnasium\'s, "ALE/MsPacman-v5"'),
        ({"game": "PongNoFrameskip-v4"}, ValueError, "not the name of a game"),  # its frame skip is another
        ({"game": None}, ValueError, "not the name of a game"),
        ({"num_envs": 0}, ValueError, "`num_envs` must be positive"),
        ({"num_envs": 2.0}, ValueError, "`num_envs` must be an integer"),
        ({"batch_size": 2}, ValueError, "must be a divisor of 3"),
        ({"batch_size": 6}, ValueError, "must be a divisor of 3"),
        ({"batch_size": -1}, ValueError, "batch_size=-1"),
        ({"num_threads": -1}, ValueError, "`num_threads` must be at least 0"),
        ({"frameskip": 0}, Error, "frameskip"),
        ({"frameskip": -1}, Error, "frameskip must be positive"),
        ({"frameskip": 4.0}, Error, "Invalid frameskip type"),
        ({"frameskip": (2, 5)}, Error, "Invalid frameskip type"),
        ({"stack_num": 0}, ValueError, "`stack_num` must be positive"),
        ({"img_height": 0}, ValueError, "`img_height` must be positive"),
        ({"img_width": "84"}, ValueError, "`img_width` must be an integer"),
        ({"noop_max": -1}, ValueError, "`noop_max` must be at least 0"),
        ({"max_num_frames_per_episode": 0}, ValueError, "`max_num_frames_per_episode` must be positive"),
        ({"repeat_action_probability": 1.1}, ValueError, "not a probability"),
        ({"repeat_action_probability": float("nan")}, ValueError, "not a probability"),
        ({"autoreset_mode": AutoresetMode.DISABLED}, ValueError, "has the autoreset modes NEXT_STEP and SAME_STEP"),
        ({"autoreset_mode": "Disabled"}, ValueError, "has the autoreset modes"),
        ({"autoreset_mode": "Never"}, ValueError, "Never"),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:Rom .* not supported:UserWarning")
def test_bad_arguments(arguments: dict[str, Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        AtariVectorEnv(**{"game": "pong", "num_envs": 3, **arguments})


MASK = np.array([True, False, False])
REFUSED: list[tuple[str, Any, type[Exception], str]] = [
    ("step", np.array([0, 4, 0]), ValueError, r"action 4 of environment 1 is not one of Discrete\(4\)"),
    ("step", np.array([3, 0, -1]), ValueError, "action -1 of environment 2 is not one of"),
    ("step", np.array([0, 0, 2**64 - 1], np.uint64), ValueError, "action 18446744073709551615 of environment 2"),
    ("step", np.zeros(2, np.int64), ValueError, r"have shape \(2,\) and dtype int64; 3 actions of Discrete\(4\) have shape \(3,\)"),
    ("step", np.zeros((3, 1), np.int64), ValueError, "have shape"),
    ("step", np.zeros(3), ValueError, "dtype float64"),
    ("step", np.zeros(3, np.bool_), ValueError, "dtype bool"),
    ("step", ["0", "1", "2"], ValueError, "dtype <U1"),
    ("step", 1, ValueError, "have shape"),
    ("step", None, ValueError, "have shape"),
    ("step_async", [0, 0, 4], ValueError, "action 4 of environment 2"),
    ("reset", {"seed": -1}, ValueError, "a seed must be 0 or greater, got -1"),
    ("reset", {"seed": 2**31 - 2}, ValueError, "seed 2147483648 is not between"),
    ("reset", {"seed": [1, 2]}, ValueError, "one entry for each of the 3 games that are reset, got 2"),
    ("reset", {"seed": [1, 2, 3], "options": {"reset_mask": MASK}}, ValueError, "each of the 1 games that are reset, got 3"),
    ("reset", {"seed": [1, 2, 2.5]}, TypeError, "a seed must be an integer, got 2.5"),
    ("reset", {"seed": "123"}, TypeError, "123"),
    ("reset", {"options": {"reset_mask": [True, False, False]}}, TypeError, "numpy array"),
    ("reset", {"options": {"reset_mask": MASK[:2]}}, ValueError, "must have shape"),
    ("reset", {"options": {"reset_mask": MASK.astype(int)}}, TypeError, "bool"),
]


@pytest.mark.slow
@pytest.mark.parametrize("place", [PLACES[0], PLACES[1]], ids=str)
def test_refused_calls_change_nothing(place: dict[str, Any]) -> None:
    with AtariVectorEnv("breakout", 3, noop_max=0, **place) as envs:
        envs.reset(seed=1)
        expected = [envs.step(np.array([1, 3, 2])) for _ in range(len(REFUSED))]
        envs.reset(seed=1)
        for step, (method, argument, kind, text) in enumerate(REFUSED):
            with pytest.raises(kind, match=text):
                getattr(envs, method)(**argument) if method == "reset" else getattr(envs, method)(argument)
            with pytest.raises(NoAsyncCallError):
                envs.recv()
            assert_same(envs.step(np.array([1, 3, 2])), expected[step])


@pytest.mark.slow
def test_refused_actions_of_a_joystick() -> None:
    with AtariVectorEnv("breakout", 2, continuous=True, **INLINE) as envs:
        envs.reset(seed=1)
        for actions in (
            np.zeros(2, np.int64),
            np.zeros((2, 2), np.float32),
            np.zeros((2, 3), np.int64),
            np.zeros((3, 3), np.float32),
        ):
            with pytest.raises(ValueError, match=r"2 actions of Box\(.* have shape \(2, 3\) and dtype float32"):
                envs.step(actions)
        joystick = np.array([[1, 0, 0], [0.7, 3, 1]])
        single = envs.step(joystick.astype(np.float32))
        envs.reset(seed=1)
        assert_same(envs.step(joystick), single)


@pytest.mark.slow
def test_the_first_reset_is_of_all_games() -> None:
    with AtariVectorEnv("pong", 2, **INLINE) as envs:
        for call in (envs.step, envs.send):
            with pytest.raises(ResetNeeded, match="before the first step"):
                call(np.zeros(2, np.int64))
        with pytest.raises(ResetNeeded, match="first reset must be of all games"):
            envs.reset(options={"reset_mask": MASK[:2]})
        with pytest.raises(ResetNeeded):
            envs.step(np.zeros(2, np.int64))
        assert envs.reset(seed=0, options={"reset_mask": MASK[:2] | True})[0].any()
        assert_same(envs.step(np.zeros(2, np.int64))[4]["env_id"], np.arange(2, dtype=np.int32))


@pytest.mark.slow
def test_a_mask_of_none_reports_what_was_last_seen() -> None:
    with AtariVectorEnv("pong", 2, **INLINE) as envs:
        envs.reset(seed=0)
        *_, infos = last = envs.step(np.zeros(2, np.int64))
        assert_same(envs.reset(options={"reset_mask": MASK[:2] & False}), (last[0], infos))


@pytest.mark.slow
def test_masks_need_all_games_in_one_batch_and_actions_are_named_by_environment() -> None:
    with AtariVectorEnv("pong", 2, batch_size=1, **INLINE) as envs:
        envs.reset(seed=0)
        options = {"reset_mask": np.array([True, False])}
        with pytest.raises(ValueError, match="needs all environments in one batch"):
            envs.reset(options=options)
        assert list(options) == ["reset_mask"]
        assert envs.step(np.zeros(1, np.int64))[4]["env_id"].tolist() == [1]
        with pytest.raises(ValueError, match=r"action 6 of environment 1 is not one of Discrete\(6\)"):
            envs.step([6])


# ---------------------------------------------------------------------- what goes wrong

pytestmark.append(pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning"))


def steps(envs: AtariVectorEnv, actions: list[int]) -> None:
    for _ in range(3):
        envs.step(np.array(actions))


@pytest.mark.slow
def test_a_killed_worker_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    caller, step = os.getpid(), AtariGame.step

    def stepped(game: AtariGame, action: int, strength: float) -> None:
        if action == 3 and os.getpid() != caller:
            os.kill(os.getpid(), signal.SIGKILL)
        step(game, action, strength)

    monkeypatch.setattr(AtariGame, "step", stepped)  # which a fork knows
    for batch_size, held in ((4, r"games\[2:4\]"), (2, r"games\[3:4\]")):
        before = descendants()
        envs = AtariVectorEnv(
            "breakout", 4, executor="processes", workers=2, context="fork", batch_size=batch_size, caller_works=True
        )
        helpers = descendants() - before
        envs.reset(seed=0)
        with pytest.raises(WorkerDiedError, match="worker 1 was killed by SIGKILL; it held .*" + held):
            steps(envs, [0, 0, 0, 3] if batch_size == 4 else [0, 3])
        with pytest.raises(RunError):
            envs.reset()
        envs.close()
        assert end_within(list(helpers), 1) == []


@pytest.mark.parametrize("place", [PLACES[0], PLACES[2]], ids=str)
def test_nothing_works_after_close(place: dict[str, Any]) -> None:
    envs = AtariVectorEnv("pong", 2, **place)
    envs.reset()
    envs.close()
    envs.close()
    actions = np.zeros(2, np.int64)
    for call in (lambda: envs.step(actions), lambda: envs.send(actions), envs.reset, envs.recv, envs.reset_wait, envs.draw):
        with pytest.raises(ClosedEnvironmentError, match=r"`AtariVectorEnv`, after a call to `close\(\)`"):
            call()


@pytest.mark.slow
def test_what_is_dropped_or_closed_in_a_step_leaves_nothing() -> None:
    envs = AtariVectorEnv("pong", 4, batch_size=2, workers=2, executor="processes")
    envs.reset()
    envs.step(np.zeros(2, np.int64))
    del envs
    for batch_size in (4, 2):
        envs = AtariVectorEnv("pong", 4, batch_size=batch_size, workers=2, executor="threads")
        envs.reset()
        envs.send(np.zeros(batch_size, np.int64))
        with pytest.warns(UserWarning, match="while waiting for a pending call to `step`"):
            envs.close()


@pytest.mark.slow
@in_turn("place", PLACES[:3], ids=str, kept=1)
def test_games_and_their_emulators_are_called(place: dict[str, Any]) -> None:
    with AtariVectorEnv("breakout", 3, batch_size=0, **place) as envs:
        _, infos = envs.reset(seed=0)
        for _ in range(5):
            *_, infos = envs.step(np.ones(3, np.int64))
        assert envs.get_attr("lives") == tuple(infos["lives"].tolist()) == (5, 5, 5)
        assert envs.call("getEpisodeFrameNumber") == tuple(infos["episode_frame_number"].tolist())
        assert [screen.shape for screen in envs.call("render")] == [(210, 160, 3)] * 3
        envs.set_attr("name", ["a", "b", "c"])
        assert envs.get_attr("name") == ("a", "b", "c")
        with pytest.raises(AttributeError, match="'AtariGame' object has no attribute 'nothing'"):
            envs.get_attr("nothing")
        with pytest.raises(ValueError, match="use `step` directly"):
            envs.call("step", 0, 1.0)
        envs.step(np.ones(3, np.int64))  # the games live on


@pytest.mark.slow
@in_turn(
    "options",
    [
        {},
        {"grayscale": False},
        {"maxpool": False, "frameskip": 3},
        {"img_height": 64, "img_width": 96, "stack_num": 2},
        {"episodic_life": True, "use_fire_reset": True},
        {"autoreset_mode": "NextStep", "life_loss_info": True},
        {"noop_max": 30},
    ],
    ids=str,
)
def test_a_game_restored_before_any_step_goes_on_as_the_other(options: dict[str, Any]) -> None:
    """An episode's end comes within a step, which then shows what was seen before it."""
    given: dict[str, Any] = {"autoreset_mode": "SameStep", "max_num_frames_per_episode": 30, "noop_max": 1, **options}
    with (
        AtariVectorEnv("breakout", 1, executor="inline", **given) as one,
        AtariVectorEnv("breakout", 1, executor="inline", **given) as other,
    ):
        one.reset(seed=1)
        other.reset(seed=9)
        ends = 0
        for step in range(20):
            for action in (2, 3):  # what it has seen itself, and drawn, has to go
                other.step(np.array([action]))
            other._run.restore(one._run.snapshot())
            expected, found = (envs.step(np.array([step % 4])) for envs in (one, other))
            assert_same(found, expected)
            ends += int(expected[2][0] or expected[3][0])
        assert ends > 1
