"""A live vector environment of SB3's, in its wrappers, is taken apart into environments that behave as its own do."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.env_util import is_wrapped, make_atari_env, make_vec_env
from stable_baselines3.common.monitor import Monitor, load_results
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    SubprocVecEnv,
    VecCheckNan,
    VecEnv,
    VecFrameStack,
    VecMonitor,
    VecTransposeImage,
)
from trainers import Toy

from reactor_sb3 import ReactorVecEnv
from reactor_sb3.environments.live_vec_env import env_fns_of
from reactor_sb3.environments.makers import maker_of

pytestmark = pytest.mark.timeout(60)
IMAGE = spaces.Box(0, 255, (36, 36, 3), np.uint8)
KINDS: dict[str, Any] = {
    "dummy": DummyVecEnv,
    "subproc": partial(SubprocVecEnv, start_method="fork"),
    "inline": partial(ReactorVecEnv, executor="inline"),
    "processes": partial(ReactorVecEnv, executor="processes", workers=2),
}
LAYERS: dict[str, tuple[gymnasium.Space[Any], Any]] = {
    "nothing": (spaces.Box(-1, 1, (3,), np.float32), lambda venv: venv),
    "monitor": (spaces.Box(-1, 1, (3,), np.float32), VecMonitor),
    "numbers": (spaces.Box(-1, 1, (3,), np.float32), lambda venv: VecFrameStack(venv, 3)),
    "images": (IMAGE, lambda venv: VecFrameStack(venv, 2)),
    "transposed": (IMAGE, lambda venv: VecFrameStack(VecMonitor(VecTransposeImage(venv)), 2, channels_order="first")),
    "skipped": (IMAGE, lambda venv: VecFrameStack(VecTransposeImage(venv, skip=True), 2)),
    "dict": (
        spaces.Dict(image=IMAGE, vector=spaces.Box(-1, 1, (3,), np.float32)),
        lambda venv: VecMonitor(VecFrameStack(VecTransposeImage(venv), 2, {"image": "first", "vector": None})),
    ),
}


def walk(venv: VecEnv, steps: int = 20) -> list[Any]:
    """Observations, rewards, ends and last observations, by environment."""
    venv.seed(5)
    observed = [venv.reset()]
    for step in range(steps):
        observations, rewards, dones, infos = venv.step(np.full(venv.num_envs, step % 3))
        last = [info.get("terminal_observation") for info in infos]
        lengths = [info.get("episode", {}).get("l") for info in infos]
        observed.append((observations, rewards.astype(np.float32), dones, last, lengths))
    return observed


@pytest.mark.filterwarnings("ignore:The environment is already wrapped with a `Monitor`")
@pytest.mark.parametrize("layers", sorted(LAYERS))
def test_copies_in_a_vector_environment_give_what_the_wrapped_one_gives(layers: str) -> None:
    space, wrap = LAYERS[layers]
    venv = wrap(make_vec_env(partial(Toy, space), n_envs=3))
    copied = DummyVecEnv(env_fns_of(venv))
    assert copied.observation_space == venv.observation_space and copied.action_space == venv.action_space
    np.testing.assert_equal(walk(copied), walk(venv))


class Changing(Toy):
    """Has a level, which its rewards are, and a number of its own."""

    def __init__(self, number: int = 0) -> None:
        super().__init__()
        self.level, self.number = 0, number

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, _, terminated, truncated, info = super().step(action)
        return observation, float(self.level), terminated, truncated, info


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_copies_are_as_the_environments_are_now(kind: str) -> None:
    venv = KINDS[kind]([partial(Monitor, Changing(number)) for number in range(3)])
    try:
        venv.reset()
        venv.step(np.zeros(3, int))
        venv.env_method("set_wrapper_attr", "level", 4, indices=1)
        makes = maker_of(venv)
        copies = [makes.of(number)() for number in range(3)]
        assert [copy.get_wrapper_attr("number") for copy in copies] == [0, 1, 2]
        assert [copy.get_wrapper_attr("level") for copy in copies] == [0, 4, 0]
        assert all(is_wrapped(copy, Monitor) for copy in copies)
        copies[1].reset(seed=0)
        assert copies[1].step(0)[1] == 4.0
        venv.step(np.zeros(3, int))  # the vector environment goes on
        assert not any(venv.has_attr(name) for name in ("_reactor_rl_copies",))
    finally:
        venv.close()


def locked() -> Toy:
    env = Toy()
    env.lock = threading.Lock()  # type: ignore[attr-defined]
    return env


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_what_cannot_be_copied_is_refused_and_goes_on(kind: str) -> None:
    venv = KINDS[kind]([Toy, locked])
    try:
        with pytest.raises(TypeError, match=r"cannot be made again: .*Pass a function that makes one environment instead"):
            env_fns_of(venv)
        venv.reset()
        venv.step_async(np.zeros(2, int))
        if kind != "dummy":
            with pytest.raises(RuntimeError, match=r"in the middle of a step: call step_wait\(\)"):
                env_fns_of(venv)
        venv.step_wait()
    finally:
        venv.close()


def test_what_is_wrapped_around_all_and_not_known_for_one_is_refused() -> None:
    with pytest.raises(TypeError, match=r"what VecCheckNan does around all of them is not known for one: wrap each environment"):
        env_fns_of(VecFrameStack(VecCheckNan(DummyVecEnv([Toy])), 2))


def refuse(env: Any) -> None:
    raise ZeroDivisionError("not mine")


def test_a_worker_that_is_asked_in_vain_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reactor_sb3.environments.live_vec_env.copies_in", refuse)
    venv = SubprocVecEnv([Toy] * 2, start_method="fork")
    try:
        said = r"environment 0 of the SubprocVecEnv: its worker does not let go of it \(ZeroDivisionError: not mine\); pass an id"
        with pytest.raises(TypeError, match=said):
            env_fns_of(venv)
        assert venv.reset().shape == (2, 3)
    finally:
        venv.close()


@pytest.mark.slow
def test_a_closed_one_is_refused() -> None:
    venv = SubprocVecEnv([Toy])
    venv.close()
    with pytest.raises(RuntimeError, match="has been closed: give it to a trainer before that"):
        env_fns_of(venv)


def test_copies_add_to_the_logs_that_are_there(tmp_path: Path) -> None:
    venv = make_vec_env(Toy, n_envs=2, monitor_dir=str(tmp_path), monitor_kwargs={"info_keywords": ("pid",)})
    walk(venv)
    before = len(load_results(str(tmp_path)))
    copied = DummyVecEnv(env_fns_of(venv))
    assert len(load_results(str(tmp_path))) == before
    walk(copied)
    copied.close()
    results = load_results(str(tmp_path))
    assert len(results) == 2 * before and "pid" in results
    maker_of(venv).throw_away().reset()
    assert len(load_results(str(tmp_path))) == 2 * before
    venv.close()


@pytest.mark.slow
def test_atari_as_sb3_makes_it() -> None:
    pytest.importorskip("ale_py")
    venv = VecFrameStack(make_atari_env("ALE/Pong-v5", n_envs=2), 4)
    copied = DummyVecEnv(env_fns_of(venv))
    np.testing.assert_equal(walk(copied, 5), walk(venv, 5))
    copied.close()
    venv.close()
