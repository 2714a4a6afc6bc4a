"""``repr`` says that a kernel steps where one does, and elsewhere why none does."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest

from reactor_gymnasium import ReactorVectorEnv
from reactor_gymnasium.native.compiled import missing
from tests.gymnasium_plugin.native.cases import Counted, of_another_release

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


def made(env_id: str, attributes: Any = (), **kwargs: Any) -> gymnasium.Env[Any, Any]:
    env = gymnasium.make(env_id, **kwargs)
    for name, value in attributes:
        setattr(env.unwrapped, name, value)
    return env


class Mine(gymnasium.Wrapper[Any, Any, Any, Any]):
    pass


CASES: dict[str, tuple[list[Any], str]] = {
    "as made": ([partial(made, "CartPole-v1")] * 2, "stepped by the CartPole kernel"),
    "two alike": ([partial(made, "CartPole-v1"), partial(made, "CartPole-v1")], "stepped by the CartPole kernel"),
    "integrator": ([partial(made, "CartPole-v1", [("kinematics_integrator", "semi-implicit")])] * 2, "kinematics_integrator"),
    "constants differ": ([partial(made, "Pendulum-v1", g=g) for g in (9.0, 10.0)], "their constants differ"),
    "maps differ": ([partial(made, "FrozenLake-v1", is_slippery=slips) for slips in (True, False)], "their constants differ"),
    "classes differ": ([partial(made, name) for name in ("FrozenLake8x8-v1", "FrozenLake8x8-v1")], "stepped by the FrozenLake"),
    "noise": ([partial(made, "Acrobot-v1", [("torque_noise_max", 1.0)])] * 2, "torque_noise_max"),
    "bounds": ([partial(made, "MountainCar-v0", [("min_position", 0.7)])] * 2, "min_position"),
    "a wrapper": ([lambda: Mine(made("CartPole-v1"))] * 2, "no row form of Mine"),
    "a method of its own": (
        [partial(made, "Pendulum-v1", [("_get_obs", partial(np.zeros, 3, np.float32))])] * 2,
        "it has a _get_obs of its own",
    ),
    "an attribute of its own": ([partial(made, "CartPole-v1", [("note", print)])] * 2, "stepped by the CartPole kernel"),
    "a limit": ([partial(made, "CartPole-v1", max_episode_steps=10**20)] * 2, "its time limit is 100000000000000000000"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_said_is_so(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    makers, words = CASES[case]
    counted = Counted(monkeypatch)
    envs = ReactorVectorEnv(makers, executor="inline")
    alike = "differ" not in words
    assert (words in repr(envs)) if alike else repr(envs).endswith("kernel if all are alike])")
    envs.reset(seed=0)
    for _ in range(20):
        envs.step(envs.action_space.sample())
    assert words in repr(envs)
    assert (counted.taken > 0) == ("stepped by" in repr(envs))
    envs.close()


def test_what_happens_later_is_said_later() -> None:
    envs = ReactorVectorEnv([partial(made, "CartPole-v1")] * 2, executor="inline")
    envs.reset(seed=0)
    actions = np.array([0, 1])

    def after(steps: int = 9) -> str:
        for _ in range(steps):
            envs.step(actions)
        return repr(envs)

    assert "stepped by" in after()
    envs.set_attr("gravity", [9.8, 3.0])
    assert "their constants differ" in after()
    envs.set_attr("gravity", 3.0)
    assert "stepped by" in after(40)
    with np.errstate(all="raise"):
        assert "np.seterr" in after(20)
    envs.close()


@pytest.mark.skipif(of_another_release("Taxi-v4"), reason="it has other code")
@pytest.mark.parametrize("how", [{"executor": "processes"}, {"executor": "threads"}], ids=str)
def test_shards_elsewhere_tell_it_too(how: dict[str, Any]) -> None:
    makers = [partial(made, "Taxi-v4", fickle_passenger=fickle) for fickle in (False, False, True, False)]
    envs = ReactorVectorEnv(makers, workers=2, **how)
    envs.reset(seed=0)
    for _ in range(9):
        envs.step(np.zeros(4, np.int64))
    assert "stepped by the Taxi kernel and no kernel: their constants differ" in repr(envs)
    envs.close()


def test_actions_of_another_kind() -> None:
    envs = ReactorVectorEnv([partial(made, "CartPole-v1")] * 2, executor="inline")
    envs.reset(seed=0)
    for _ in range(9):
        envs.step([0, 1])
    assert "it was given other actions than a kernel takes" in repr(envs)
    envs.close()
