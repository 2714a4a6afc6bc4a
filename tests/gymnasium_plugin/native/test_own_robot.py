"""Robots of users, stepped by rows of their own: the bits of SyncVectorEnv, or Python steps them and says why."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from reactor_gymnasium import ReactorVectorEnv
from reactor_gymnasium.native.kernel import Taken
from tests.gymnasium_plugin.native.cases import MODES, Counted, same, walk

pytest.importorskip("mujoco")
simulated: Any = pytest.importorskip("reactor_gymnasium.native.simulated")
robots: Any = pytest.importorskip("tests.gymnasium_plugin.native.robots")

pytestmark = pytest.mark.skipif(simulated.MujocoRows.unavailable() is not None, reason="the kernels need numpy 2")

OWN = {"Follower-v0": ("command", "last_action", "stood", "gain", "pose", "mass", "level", "missed")}
"""What an environment keeps of its own."""


def pair(name: str, mode: AutoresetMode, rows: int = 3, **kwargs: Any) -> tuple[ReactorVectorEnv, SyncVectorEnv]:
    limit = {"max_episode_steps": 20} if name == "Spider-v0" else {}
    makers = [partial(gymnasium.make, name, **limit)] * rows
    ours = ReactorVectorEnv(makers, autoreset_mode=mode, **{"workers": 1, **kwargs})
    return ours, SyncVectorEnv(makers, autoreset_mode=mode)


def compare(name: str, mode: AutoresetMode, steps: int, seed: int, look: int = 17, **kwargs: Any) -> tuple[str, int]:
    """Who stepped, and how many episodes have ended."""
    ours, theirs = pair(name, mode, **kwargs)
    ended = 0
    try:
        for step, (_, _, over, cut, _) in walk(name, ours, theirs, mode, steps, seed, look=look):
            ended += int((over | cut).sum())
            if step % look == look - 1:
                for attribute in OWN.get(name, ()):
                    same(list(ours.get_attr(attribute)), list(theirs.get_attr(attribute)), f"{attribute} after step {step}")
            if step % 29 == 28:
                some = {"reset_mask": np.arange(theirs.num_envs) % 2 == 0}
                again = theirs.reset(seed=step, options=dict(some))
                same(ours.reset(seed=step, options=dict(some)), again, f"reset after step {step}")
        return repr(ours), ended
    finally:
        ours.close()
        theirs.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["Spider-v0", "Follower-v0"])
def test_bits(name: str, mode: AutoresetMode, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    _, ended = compare(name, mode, 75, 5)
    assert counted.taken > 40 and ended > 5


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["Spider-v0", "Follower-v0"])
def test_many_bits(name: str, mode: AutoresetMode, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    _, ended = compare(name, mode, 1500, 0, look=71, rows=5)
    assert counted.taken > 1000 and ended > 200


@pytest.mark.slow
@pytest.mark.parametrize("place", [{"executor": "threads", "workers": 2}, {"executor": "processes", "workers": 2}])
@pytest.mark.parametrize("name", ["Spider-v0", "Follower-v0"])
def test_on_helpers(name: str, place: dict[str, Any]) -> None:
    said, ended = compare(name, AutoresetMode.SAME_STEP, 120, 1, rows=4, **place)
    assert "no kernel" not in said and f"stepped by the {name[:-3]}Rows kernel" in said and ended > 5


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Wrong-v0", "it does not do here what Python does: .* in step 0"),
        ("Hoarder-v0", "its kept is a deque"),
        ("Untold-v0", "none steps Untold"),
        ("Forgetful-v0", "it does not do here what Python does: the counts after step 9"),
    ],
)
def test_python_steps_what_rows_do_not_do(name: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    ours, theirs = pair(name, AutoresetMode.NEXT_STEP, rows=2)
    try:
        assert ours.workers == 1
        for _ in walk(name, ours, theirs, AutoresetMode.NEXT_STEP, 12, 0):
            pass
        with pytest.raises(AssertionError, match=f"no kernel: {says}"):
            raise AssertionError(repr(ours))
    finally:
        ours.close()
        theirs.close()
    assert counted.taken == 0


def test_constants_are_those_of_all_rows() -> None:
    makers = [partial(robots.Follower, gain=gain) for gain in (4.0, 4.0, 5.0)]
    with ReactorVectorEnv(makers, workers=1) as envs:
        envs.reset(seed=0)
        for _ in range(6):
            envs.step(np.zeros((3, 8), np.float32))
        assert "no kernel: their constants differ" in repr(envs)
        envs.set_attr("gain", 5.0)
        for _ in range(12):
            envs.step(np.zeros((3, 8), np.float32))
        assert "stepped by the FollowerRows kernel" in repr(envs)


def test_actions_of_another_type_are_python_s_where_they_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pair("Follower-v0", AutoresetMode.SAME_STEP)
    random = np.random.default_rng(0)
    try:
        same(ours.reset(seed=0), theirs.reset(seed=0))
        for step in range(60):
            actions = random.uniform(-1, 1, (3, 8)).astype(np.float64 if step % 20 > 14 else np.float32)
            same(ours.step(actions), theirs.step(actions), f"step {step}")
        same(list(ours.get_attr("last_action")), list(theirs.get_attr("last_action")))
    finally:
        ours.close()
        theirs.close()


@pytest.mark.slow
def test_mjbatch_has_the_same_bits_if_resets_are_done_with_care() -> None:
    pytest.importorskip("mjbatch")
    from robot.spider_mjbatch import SpiderBatch

    theirs = SyncVectorEnv([partial(gymnasium.make, "Spider-v0")] * 4)
    ours = ReactorVectorEnv.of([partial(SpiderBatch, 2, 2)] * 2, executor="inline")
    random = np.random.default_rng(0)
    try:
        same(ours.reset(seed=0)[0], theirs.reset(seed=0)[0])
        for step in range(300):
            actions = random.uniform(-1, 1, (4, 8)).astype(np.float32)
            same(ours.step(actions)[:4], theirs.step(actions)[:4], f"step {step}")
    finally:
        ours.close()
        theirs.close()


def test_rows_whose_observation_nobody_has_show_zeros() -> None:
    env: Any = robots.Follower()
    env.reset(seed=0)
    taken = Taken([env], [9], [9], [False], [None], AutoresetMode.SAME_STEP)
    rows = robots.FollowerRows.of(robots.Follower)(taken)
    assert rows.observations.dtype == np.float32 and rows.observations.shape == (1, 37) and not rows.observations.any()
    assert rows.columns["stood"].tolist() == [0] and rows.columns["command"].tolist() == [env.command.tolist()]


def test_a_field_is_no_copy() -> None:
    data = simulated.mujoco.MjData(simulated.mujoco.MjModel.from_xml_path(str(robots.MODEL)))
    with pytest.raises(ValueError, match="must have views of a simulation's data, got a copy of 13 numbers"):
        simulated.GatheredField([[data.qpos[2:].copy()]])
    with pytest.raises(ValueError, match="got a copy of 20 numbers"):
        simulated.GatheredField([[data.xpos[:, :2]]])
    assert simulated.GatheredField([[data.xpos], [data.xpos]]).now().shape == (2, 30)
