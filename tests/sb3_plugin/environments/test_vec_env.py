"""``ReactorVecEnv`` gives what ``DummyVecEnv`` gives, element for element, and trains to the same weights."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from places import INLINE, PROCESSES, THREADS, WAITING
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecFrameStack, VecMonitor, VecNormalize

from reactor_rl import WorkerDiedError
from reactor_sb3 import ReactorVecEnv

PLACES = [INLINE, THREADS, PROCESSES, PROCESSES | {"workers": 3} | WAITING, {"executor": "auto"}]


class Short(gymnasium.Env[Any, Any]):
    """Episodes of a few steps that end in both ways; infos at every step, options and seeds seen; its arrays are used again."""

    def __init__(self, index: int, observation_space: gymnasium.Space[Any] | None = None) -> None:
        self.index, self.t, self.render_mode = index, 0, "rgb_array"
        self.observation_space = deepcopy(observation_space) or spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = spaces.Discrete(3)
        self.seen: Any = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.t, self.seen = 0, (seed, options)
        return self.observation_space.sample(), {"seed": seed, "options": options}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        terminated, truncated = self.t == 3 + self.index, self.t == 4
        info = {"t": self.t, "action": int(action), "list": [self.index]} if self.t != 2 else {}
        return self.observation_space.sample(), 0.1 * self.t, terminated, truncated, info

    def render(self) -> Any:
        return np.full((2, 2, 3), self.index, np.uint8)

    def add(self, a: int, b: int = 0) -> int:
        return self.index + a + b


SPACES: list[gymnasium.Space[Any] | None] = [
    None,
    spaces.Dict(image=spaces.Box(0, 255, (4, 4, 1), np.uint8), vector=spaces.Box(-1, 1, (2,), np.float32), kind=spaces.Discrete(3)),
    spaces.Tuple((spaces.Discrete(5), spaces.Box(-1, 1, (2, 2), np.float64))),
]


def same(ours: Any, theirs: Any, where: str = "") -> None:
    if isinstance(theirs, dict):
        assert isinstance(ours, dict) and ours.keys() == theirs.keys(), where
        for key in theirs:
            same(ours[key], theirs[key], f"{where}[{key!r}]")
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs), where
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            same(one, other, f"{where}[{index}]")
    elif isinstance(theirs, np.ndarray):
        assert ours.dtype == theirs.dtype and np.array_equal(ours, theirs), where
    else:
        assert type(ours) is type(theirs) and ours == theirs, where


def played(env: VecEnv, steps: int = 25) -> list[Any]:
    found: list[Any] = []
    try:
        env.seed(5)
        env.set_options([{"a": i} for i in range(env.num_envs)])
        found.append((env.reset(), env.reset_infos))
        actions = np.random.default_rng(0)
        for t in range(steps):
            if t == 15:
                found.append((env.reset(), list(env.reset_infos)))
            found.append((*env.step(actions.integers(0, 3, env.num_envs)), [dict(info) for info in env.reset_infos]))
    finally:
        env.close()
    return found


@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("space", SPACES, ids=["box", "dict", "tuple"])
def test_what_a_dummy_gives(space: Any, place: dict[str, Any]) -> None:
    env_fns = [partial(Short, i, space) for i in range(5)]
    same(played(ReactorVecEnv(env_fns, **place)), played(DummyVecEnv(env_fns)))


@pytest.mark.parametrize("place", PLACES[:3], ids=str)
def test_what_is_handed_out_is_yours(place: dict[str, Any]) -> None:
    env_fns = [partial(Short, i) for i in range(3)]
    with ReactorVecEnv(env_fns, **place) as env:
        first = env.reset()
        kept = first.copy()
        for _ in range(5):
            observations, rewards, dones, infos = env.step(np.zeros(3, int))
            observations[...], rewards[...], dones[...] = 7, 7, True
            for info in infos:
                info["list"] = None
        assert np.array_equal(first, kept)
        assert env.step(np.zeros(3, int))[3][0].get("list") in ([0], None)


@pytest.mark.parametrize("place", PLACES[:3], ids=str)
def test_calls(place: dict[str, Any]) -> None:
    env_fns = [partial(Short, i) for i in range(4)]
    with ReactorVecEnv([lambda f=f: Monitor(f()) for f in env_fns], **place) as env:
        assert env.get_attr("index") == [0, 1, 2, 3]
        assert env.get_attr("index", indices=[3, 0, 0]) == [3, 0, 0]
        assert env.get_attr("index", indices=-1) == [3]
        assert env.env_method("add", 1, b=2, indices=[2, 1]) == [5, 4]
        env.set_attr("tag", "x", indices=[1])
        assert env.get_attr("tag", indices=1) == ["x"]
        assert not env.has_attr("tag")
        assert env.has_attr("index")
        assert env.env_is_wrapped(Monitor) == [True] * 4
        assert env.env_is_wrapped(VecNormalize, indices=0) == [False]  # type: ignore[arg-type]
        assert [image[0, 0, 0] for image in env.get_images() if image is not None] == [0, 1, 2, 3]
        with pytest.raises(AttributeError):
            env.get_attr("nothing")
        with pytest.raises(IndexError):
            env.get_attr("index", indices=[4])
        env.reset()  # calls that raise do not end anything
        with pytest.raises(ValueError, match="actions"):
            env.step(np.zeros(3, int))
        env.step(np.zeros(4, int))


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="at least one environment"):
        ReactorVecEnv([])
    with pytest.raises(ValueError, match="cannot find context"):
        ReactorVecEnv([partial(Short, 0)], start_method="illegal")
    with pytest.raises(ValueError, match="workers"):
        ReactorVecEnv([partial(Short, 0)], workers=0)


def test_a_throw_away_environment_leaves_no_log(tmp_path: Path) -> None:
    """Monitor's logs are those that a DummyVecEnv writes, and an existing one is not touched by what is only timed."""
    logs: dict[str, list[str]] = {}
    for name, cls in (("ours", ReactorVecEnv), ("theirs", DummyVecEnv)):
        folder = tmp_path / name
        for seed in (0, 1):  # the second goes on with the logs of the first
            env = make_vec_env(
                "Blackjack-v1", n_envs=2, seed=seed, vec_env_cls=cls, monitor_dir=str(folder),
                monitor_kwargs={"override_existing": seed == 0},
            )  # fmt: skip
            env.reset()
            for _ in range(20):
                env.step(np.ones(2, int))
            env.close()
        files = sorted(folder.glob("*.csv"))
        logs[name] = [line.rpartition(",")[0] for file in files for line in file.read_text().splitlines()[1:]]
    assert logs["ours"] == logs["theirs"]
    assert len(logs["ours"]) > 10


class Killed(Short):
    def step(self, action: Any) -> Any:
        if self.index == 3 and self.t == 1:
            import os
            import signal

            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


def test_a_killed_worker_is_reported() -> None:
    env = ReactorVecEnv([partial(Killed, i) for i in range(4)], executor="processes", workers=2)
    env.reset()
    env.step(np.zeros(4, int))
    with pytest.raises(WorkerDiedError, match="SIGKILL"):
        env.step(np.zeros(4, int))
    env.close()
    env.close()


TRAINED: dict[str, tuple[Any, str, str, dict[str, Any]]] = {
    "PPO": (PPO, "MlpPolicy", "CartPole-v1", {"n_steps": 32, "batch_size": 32}),
    "A2C": (A2C, "MlpPolicy", "CartPole-v1", {}),
    "DQN": (DQN, "MlpPolicy", "CartPole-v1", {"learning_starts": 50, "buffer_size": 1000}),
    **{
        cls.__name__: (
            cls, "MlpPolicy", "Pendulum-v1", {"learning_starts": 50, "buffer_size": 1000, "policy_kwargs": {"net_arch": [16]}},
        )
        for cls in (SAC, TD3, DDPG)
    },
}  # fmt: skip


def weights(name: str, cls: type[VecEnv], **kwargs: Any) -> list[Any]:
    algorithm, policy, env_id, arguments = TRAINED[name]
    env = make_vec_env(env_id, n_envs=4, seed=3, vec_env_cls=cls, vec_env_kwargs=kwargs)
    model = algorithm(policy, env, seed=1, device="cpu", **arguments)
    model.learn(200)
    env.close()
    return [parameter.detach().numpy().copy() for parameter in model.policy.parameters()]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", sorted(TRAINED))
def test_the_same_weights(name: str) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        expected = weights(name, DummyVecEnv)
        for place in ({"executor": "inline"}, {"executor": "processes", "workers": 2}, {"executor": "threads", "workers": 3}):
            same(weights(name, ReactorVecEnv, **place), expected, str(place))
    finally:
        torch.set_num_threads(threads)


def without_seconds(infos: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for info in infos:
        info.get("episode", {}).pop("t", None)
    return infos


@pytest.mark.parametrize("place", PLACES[:3], ids=str)
def test_under_wrappers(place: dict[str, Any]) -> None:
    def wrapped(cls: type[VecEnv], **kwargs: Any) -> VecEnv:
        env = make_vec_env("Pendulum-v1", n_envs=3, seed=2, vec_env_cls=cls, vec_env_kwargs=kwargs)
        return VecFrameStack(VecNormalize(env), 2)

    ours, theirs = wrapped(ReactorVecEnv, **place), wrapped(DummyVecEnv)
    same(ours.reset(), theirs.reset())
    actions = np.random.default_rng(0)
    for _ in range(220):
        batch = actions.uniform(-2, 2, (3, 1)).astype(np.float32)
        one, other = ours.step(batch), theirs.step(batch)
        same(one[:3], other[:3])
        same(without_seconds(one[3]), without_seconds(other[3]))
    ours.close()
    theirs.close()


def test_under_a_monitor_of_all(tmp_path: Path) -> None:
    def wrapped(cls: type[VecEnv], **kwargs: Any) -> VecEnv:
        env = cls([partial(Short, i) for i in range(4)], **kwargs)  # type: ignore[call-arg]
        return VecNormalize(VecMonitor(env, str(tmp_path / cls.__name__), info_keywords=("t",)), gamma=0.9)

    ours, theirs = wrapped(ReactorVecEnv, executor="processes", workers=2), wrapped(DummyVecEnv)
    for env in (ours, theirs):
        env.seed(4)
    same(ours.reset(), theirs.reset())
    episodes = 0
    for _ in range(60):
        one, other = ours.step(np.ones(4, int)), theirs.step(np.ones(4, int))
        same(one[:3], other[:3])
        episodes += sum("episode" in info for info in other[3])
        same(without_seconds(one[3]), without_seconds(other[3]))
    assert isinstance(ours, VecNormalize) and isinstance(theirs, VecNormalize)
    same(vars(ours.obs_rms), vars(theirs.obs_rms))
    same(vars(ours.ret_rms), vars(theirs.ret_rms))
    ours.close()
    theirs.close()
    logs = [
        [(row.split(",")[0], row.split(",")[1]) for row in path.read_text().splitlines()[2:]]
        for path in sorted(tmp_path.glob("*.csv"))
    ]
    assert len(logs) == 2 and logs[0] == logs[1] and len(logs[0]) == episodes > 40


@pytest.mark.slow
@pytest.mark.parametrize("place", [PLACES[0], PLACES[2]], ids=str)
def test_atari(place: dict[str, Any]) -> None:
    gymnasium.register_envs(pytest.importorskip("ale_py"))

    def stacked(cls: type[VecEnv], **kwargs: Any) -> VecEnv:
        return VecFrameStack(make_atari_env("PongNoFrameskip-v4", n_envs=2, seed=1, vec_env_cls=cls, vec_env_kwargs=kwargs), 4)

    ours, theirs = stacked(ReactorVecEnv, **place), stacked(DummyVecEnv)
    same(ours.reset(), theirs.reset())
    actions = np.random.default_rng(0)
    for _ in range(100):
        batch = actions.integers(0, 6, 2)
        one, other = ours.step(batch), theirs.step(batch)
        same(one[:3], other[:3])
        same(without_seconds(one[3]), without_seconds(other[3]))
    assert len(np.unique(one[0])) > 5
    ours.close()
    theirs.close()
