"""``RecordEpisodeStatistics`` around environments that kernels step; see ``tests/sb3_plugin`` for SB3's ``Monitor``."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics

from reactor_gymnasium import ReactorVectorEnv, evaluate
from reactor_gymnasium.native import guards, recorders
from reactor_gymnasium.native.compiled import missing
from tests.gymnasium_plugin.native.cases import CASES, MODES, MUJOCO, ROWS, Counted, Policy, maker, same

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

KEPT = ("episode_returns", "episode_lengths", "episode_count", "return_queue", "length_queue", "_elapsed_steps")
SOME = ("CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Taxi-v4", "Blackjack, sab", "InvertedPendulum-v5", "HalfCheetah-v5")


def recorded(case: str, **kwargs: Any) -> Any:
    return RecordEpisodeStatistics(maker(case)(), buffer_length=7, **kwargs)


def pair(case: str, mode: AutoresetMode, **kwargs: Any) -> tuple[ReactorVectorEnv, SyncVectorEnv]:
    makers = [partial(recorded, case)] * ROWS
    return ReactorVectorEnv(makers, autoreset_mode=mode, **{"workers": 1, **kwargs}), SyncVectorEnv(makers, autoreset_mode=mode)


def without_times(infos: dict[str, Any]) -> dict[str, Any]:
    for of_ended in (infos, infos.get("final_info", {})):
        if "episode" in of_ended:
            times = of_ended["episode"].pop("t")
            assert times.dtype == np.float64 and (times >= 0).all()
    return infos


def walk(case: str, ours: ReactorVectorEnv, theirs: SyncVectorEnv, mode: AutoresetMode, steps: int, seed: int, look: int) -> int:
    """Step both and compare all that they return, and what wrappers keep every ``look`` steps. Returns how many episodes ended."""
    policy = Policy(case, theirs.single_action_space, seed)
    first = theirs.reset(seed=seed)
    same(ours.reset(seed=seed), first)
    shown, ended = first[0], 0
    for step in range(steps):
        actions = policy(step, shown, ROWS)
        *expected, infos = theirs.step(actions)
        *given, told = ours.step(actions)
        same(given, expected, f"step {step}")
        same(without_times(told), without_times(infos), f"infos of step {step}")
        shown, over = expected[0], expected[2] | expected[3]
        ended += int(over.sum())
        if mode is AutoresetMode.DISABLED and over.any():
            one = int(policy.random.integers(1 << 30)) if policy.random.random() < 0.5 else None
            again = theirs.reset(seed=one, options={"reset_mask": over.copy()})
            same(ours.reset(seed=one, options={"reset_mask": over.copy()}), again, f"reset after step {step}")
            shown = again[0]
        if step % look == look - 1:
            for name in KEPT if hasattr(theirs.envs[0], "_elapsed_steps") else KEPT[:-1]:
                kept = [[list(one) if hasattr(one, "__len__") else one for one in envs.get_attr(name)] for envs in (ours, theirs)]
                same(*kept, f"{name} after step {step}")
            if step % (2 * look) == look - 1:
                again = theirs.reset(seed=step)
                same(ours.reset(seed=step), again)
                shown = again[0]
    return ended


@pytest.mark.parametrize(
    ("case", "mode"), [*((SOME[0], mode) for mode in MODES), *((case, MODES[at % 3]) for at, case in enumerate(SOME[1:], 1))]
)
def test_what_sync_gives(case: str, mode: AutoresetMode, monkeypatch: pytest.MonkeyPatch) -> None:
    if case in MUJOCO:
        pytest.importorskip("mujoco")
    counted = Counted(monkeypatch)
    monkeypatch.setattr(recorders, "LENGTH", 16)
    ours, theirs = pair(case, mode)
    assert "stepped by the" in repr(ours)
    try:
        assert walk(case, ours, theirs, mode, 300, 5, look=71) > 5
    finally:
        ours.close()
        theirs.close()
    assert counted.taken > 150


TWO, THREE = {"executor": "threads", "workers": 2}, {"executor": "processes", "workers": 3}


@pytest.mark.parametrize(("place", "mode"), list(zip((TWO, THREE, THREE), MODES, strict=True)), ids=str)
def test_what_sync_gives_anywhere(place: dict[str, Any], mode: AutoresetMode) -> None:
    ours, theirs = pair("CartPole-v1", mode, **place)
    try:
        assert walk("CartPole-v1", ours, theirs, mode, 120, 3, look=41) >= 5
    finally:
        ours.close()
        theirs.close()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")
@pytest.mark.parametrize("case", [case for case in (CASES | MUJOCO) if case not in SOME])
def test_every_environment(case: str) -> None:
    """The types of their rewards add up as Python's do."""
    if case in MUJOCO:
        pytest.importorskip("mujoco")
    ours, theirs = pair(case, AutoresetMode.SAME_STEP)
    try:
        walk(case, ours, theirs, AutoresetMode.SAME_STEP, 200, 7, look=59)
    finally:
        ours.close()
        theirs.close()


def test_rows_that_are_wrapped_differently_are_stepped_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    makers = [partial(recorded, "CartPole-v1"), maker("CartPole-v1")]
    ours, theirs = ReactorVectorEnv(makers, workers=1), SyncVectorEnv(makers)
    for envs in (ours, theirs):
        envs.reset(seed=0)
    for _ in range(40):
        same(without_times(ours.step(np.array([0, 1]))[4]), without_times(theirs.step(np.array([0, 1]))[4]))
    ours.close()
    theirs.close()
    assert counted.taken == 0


def upwards(shown: Any) -> Any:
    return (np.asarray(shown)[:, 2] > 0).astype(np.int64)


def test_evaluations_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Episodes that begin by seeds, in rows some of which have no more to do."""
    counted = Counted(monkeypatch)
    found = []
    for setting in ("1", "0"):
        monkeypatch.setenv("REACTOR_RL_KERNELS", setting)
        report = evaluate(upwards, partial(recorded, "CartPole-v1"), episodes=40, num_envs=7, seed=3, workers=1)
        found.append((report.returns.tolist(), report.lengths.tolist(), counted.taken))
    assert found[0] == found[1]
    assert len(found[0][0]) == 40 and counted.taken > 30


@pytest.mark.parametrize("recorder", recorders.RECORDERS)
def test_it_was_written_from_this_release(recorder: type[recorders.Recorder]) -> None:
    """If this fails, there is a new release: compare the class with native/recorders.py, run the tests, and add the fingerprint."""
    pytest.importorskip(recorder.module)
    assert recorder.comes_to().fingerprint in recorder.written_from


def test_another_release_means_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "_known", set())
    monkeypatch.setattr(recorders.EpisodeStatistics, "written_from", ("0" * 12,))
    guards._warn.cache_clear()
    with pytest.warns(RuntimeWarning, match="RecordEpisodeStatistics of gymnasium .* is not the one that a faster"):
        envs = ReactorVectorEnv([partial(recorded, "CartPole-v1")] * 2, workers=1)
    with envs:
        assert "no kernel: it was not written from this RecordEpisodeStatistics (656d2a395c96)" in repr(envs)
