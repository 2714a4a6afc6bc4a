"""Whoever looks at environments, or changes them, finds what SyncVectorEnv has; random programs of calls."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from reactor_gymnasium import ReactorVectorEnv, make_vec
from reactor_gymnasium.environments.saving import load_env, save_env
from reactor_gymnasium.native.compiled import missing
from tests.gymnasium_plugin.native.cases import MODES, ROWS, Counted, Policy, maker, pair, same, same_states

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

CONSTANTS = {"CartPole-v1": ("gravity", 9.8), "Pendulum-v1": ("g", 10.0), "FrozenLake-v1": ("window_size", (256, 256))}
SIMULATED = {"Hopper-v5": ("_healthy_reward", 1.0), "HalfCheetah-v4": ("_ctrl_cost_weight", 0.1)}


class Saved:
    """What SyncVectorEnv is to go back to."""

    NAMES = ("_autoreset_envs", "_observations", "_env_obs", "_terminations", "_truncations")

    def __init__(self, envs: SyncVectorEnv, shown: Any) -> None:
        self.envs, self.shown = [save_env(env) for env in envs.envs], shown
        self.arrays = deepcopy({name: vars(envs)[name] for name in self.NAMES})

    def restore(self, envs: SyncVectorEnv) -> Any:
        for env, saved in zip(envs.envs, self.envs, strict=True):
            load_env(env, saved)
        vars(envs).update(deepcopy(self.arrays))
        return self.shown


def refused(envs: Any, actions: Any) -> type[Exception] | None:
    try:
        envs.step(actions)
    except Exception as error:
        return type(error)
    return None


def program(case: str, mode: AutoresetMode, seed: int, length: int, **kwargs: Any) -> None:
    """A random program of calls, of both."""
    ours, theirs = pair(case, mode, **kwargs)
    saved: list[tuple[Any, Saved]] = []
    random = np.random.default_rng(seed)
    policy = Policy(case, theirs.single_action_space, seed)
    name, usual = (CONSTANTS | SIMULATED)[case]
    try:
        shown = theirs.reset(seed=seed)[0]
        same(ours.reset(seed=seed)[0], shown)
        for number in range(length):
            where = f"{case}, {mode.value}, seed {seed}, call {number}"
            over = np.zeros(ROWS, np.bool_)
            for step in range(int(random.integers(1, 60))):
                actions = policy(step, shown)
                expected = theirs.step(actions)
                same(ours.step(actions), expected, where)
                shown, over = expected[0], expected[2] | expected[3]
                if mode is AutoresetMode.DISABLED and over.any():
                    break
            what = str(random.choice(["reset", "get", "set", "call", "all", "save", "go back"]))
            match "reset" if mode is AutoresetMode.DISABLED and over.any() else what:
                case "save":
                    saved.append((ours._run.snapshot(), Saved(theirs, shown)))
                case "go back" if saved:
                    ours._run.restore(saved[-1][0])
                    shown = saved[-1][1].restore(theirs)
                case "reset":
                    mask = over | (random.random(ROWS) < 0.3)
                    mask[0] |= not mask.any()
                    one = [None, int(random.integers(1 << 20))][int(random.integers(2))]
                    again = theirs.reset(seed=one, options={"reset_mask": mask.copy()})
                    same(ours.reset(seed=one, options={"reset_mask": mask.copy()}), again, where)
                    shown = again[0]
                case "all":
                    again = theirs.reset(seed=number)
                    same(ours.reset(seed=number), again, where)
                    shown = again[0]
                case "get":
                    same_states(ours, theirs, where)
                case "set":
                    values = [usual] * ROWS
                    if random.random() < 0.5:
                        values[1] = usual + 1.0 if isinstance(usual, float) else (128, 128)
                    for envs in (ours, theirs):
                        envs.set_attr(name, values)
                case "call":
                    same(list(ours.call("has_wrapper_attr", name)), list(theirs.call("has_wrapper_attr", name)), where)
        same_states(ours, theirs, "at the end")
    finally:
        ours.close()
        theirs.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CONSTANTS)
def test_a_random_program(case: str, mode: AutoresetMode) -> None:
    program(case, mode, 1, 12)


@pytest.mark.parametrize("foreign", [1, ROWS])
def test_a_random_program_with_foreign_wrappers(foreign: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    program("CartPole-v1", AutoresetMode.NEXT_STEP, 1, 12, foreign=foreign)
    assert counted.taken == 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")
@pytest.mark.parametrize("seed", [2, 3])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", [*CONSTANTS, *SIMULATED])
def test_random_programs(case: str, mode: AutoresetMode, seed: int) -> None:
    if case in SIMULATED:
        pytest.importorskip("mujoco")
    program(case, mode, seed, 40)


@pytest.mark.filterwarnings("ignore:.*environment 2 raised AssertionError:UserWarning")
def test_an_invalid_action_is_for_python_to_complain_of() -> None:
    ours, theirs = pair("CartPole-v1", AutoresetMode.NEXT_STEP)
    try:
        for envs in (ours, theirs):
            envs.reset(seed=0)
            for _ in range(12):
                envs.step(np.zeros(ROWS, np.int64))
        bad = np.array([0, 1, 5, 0, 0])
        assert refused(ours, bad) is refused(theirs, bad) is AssertionError
    finally:
        ours.close()
        theirs.close()


def test_a_patched_step_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    with ReactorVectorEnv([maker("CartPole-v1")] * 3, workers=1) as envs:
        envs.reset(seed=0)
        for _ in range(12):
            envs.step(np.array([0, 1, 0]))
        assert counted.taken
        original = CartPoleEnv.step

        def step(self: CartPoleEnv, action: Any) -> Any:
            observation, _, *rest = original(self, action)
            return observation, 7.0, *rest

        with monkeypatch.context() as patch:
            patch.setattr(CartPoleEnv, "step", step)
            envs.reset(seed=0)
            assert envs.step(np.array([0, 1, 0]))[1].tolist() == [7.0] * 3
        envs.reset(seed=0)
        assert envs.step(np.array([0, 1, 0]))[1].tolist() == [1.0] * 3


HELD: list[Any] = []


def held_cartpole() -> Any:
    env = maker("CartPole-v1")()
    HELD.append(env.unwrapped)
    return env


def test_what_somebody_else_refers_to_is_stepped_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    try:
        with ReactorVectorEnv([held_cartpole] * 2, workers=1) as envs:
            envs.reset(seed=0)
            for _ in range(20):
                envs.step(np.array([0, 1]))
    finally:
        HELD.clear()
    assert counted.taken == 0


def test_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)

    def steps(**kwargs: Any) -> str:
        with make_vec("CartPole-v1", 2, workers=1, **kwargs) as envs:
            envs.reset(seed=0)
            for _ in range(20):
                envs.step(np.array([0, 1]))
            return repr(envs)

    assert "stepped by the CartPole kernel" in steps()
    taken, counted.taken = counted.taken, 0
    assert taken > 10
    assert "no kernel: kernels=False" in steps(kernels=False)
    assert counted.taken == 0
    monkeypatch.setenv("REACTOR_RL_KERNELS", "0")
    assert "no kernel: REACTOR_RL_KERNELS=0" in steps()
    assert counted.taken == 0
