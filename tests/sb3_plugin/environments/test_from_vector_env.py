"""``from_vector_env`` makes of a Gymnasium vector environment what ``DummyVecEnv`` makes of its environments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from every_other import in_turn
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecMonitor, VecNormalize
from test_vec_env import SPACES, Short

from reactor_gymnasium import ReactorVectorEnv
from reactor_sb3 import from_vector_env

pettingzoo = pytest.importorskip("pettingzoo")

from reactor_pettingzoo import ParallelVectorEnv  # noqa: E402

SAME_STEP = AutoresetMode.SAME_STEP
EnvMaker = Callable[[Sequence[Any]], VectorEnv[Any, Any, Any]]
VECTORS: dict[str, EnvMaker] = {
    "sync": partial(SyncVectorEnv, autoreset_mode=SAME_STEP),
    "inline": partial(ReactorVectorEnv, autoreset_mode=SAME_STEP, executor="inline"),
    "processes": partial(ReactorVectorEnv, autoreset_mode=SAME_STEP, executor="processes", workers=2),
}


def assert_same(ours: Any, theirs: Any, where: str = "trace") -> None:
    """Dtypes too, but for infos, whose values are numpy's."""
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys(), where
        for key in theirs:
            assert_same(ours[key], theirs[key], f"{where}[{key!r}]")
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs), where
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            assert_same(one, other, f"{where}[{index}]")
    elif isinstance(theirs, np.ndarray):
        assert ours.dtype == theirs.dtype and np.array_equal(ours, theirs), where
    else:
        assert ours == theirs, where


def played(env: VecEnv, steps: int, sample: Callable[[np.random.Generator], Any]) -> list[Any]:
    """Everything that is returned, with two resets in between."""
    actions = np.random.default_rng(1)
    assert env.seed(11) == [11 + index for index in range(env.num_envs)]
    seen = [deepcopy((env.reset(), env.reset_infos))]
    for step in range(steps):
        seen.append(deepcopy((*env.step(sample(actions)), env.reset_infos)))
        if step == steps // 3:
            env.seed(3)
            env.set_options({"level": step})
            seen.append(deepcopy((env.reset(), env.reset_infos)))
        elif step == steps // 2:
            seen.append(deepcopy((env.reset(), env.reset_infos)))
    env.close()
    return seen


@in_turn("vector", VECTORS, kept=1)
def test_cart_pole(vector: str) -> None:
    env_fns = [partial(gymnasium.make, "CartPole-v1", max_episode_steps=15 + 5 * index) for index in range(4)]
    sample = lambda actions: actions.integers(0, 2, 4)  # noqa: E731
    theirs = played(DummyVecEnv(env_fns), 150, sample)
    ours = played(from_vector_env(VECTORS[vector](env_fns)), 150, sample)
    assert_same(ours, theirs)
    steps = [results for results in theirs if len(results) == 5]
    limits = [info["TimeLimit.truncated"] for results in steps for info in results[3]]
    ends = [info for results in steps for info in results[3] if "terminal_observation" in info]
    assert 5 < sum(limits) < len(ends) == sum(results[2].sum() for results in steps)
    assert all(type(info["TimeLimit.truncated"]) is bool for results in ours if len(results) == 5 for info in results[3])
    assert ours[1][1].dtype == np.float32


@pytest.mark.parametrize("vector", ["sync", "processes"])
@pytest.mark.parametrize("space", SPACES[:2], ids=["box", "dict"])
def test_infos_and_dicts(space: Any, vector: str) -> None:
    """Infos come and go, are nested and of any kind; arrays are used again."""
    env_fns = [partial(Copies, index, space) for index in range(3)]
    sample = lambda actions: actions.integers(0, 3, 3)  # noqa: E731
    theirs, ours = played(DummyVecEnv(env_fns), 30, sample), played(from_vector_env(VECTORS[vector](env_fns)), 30, sample)
    assert_same(ours, theirs)


class Copies(Short):
    """Its first observation space stands for all."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        observation, info = super().reset(seed=seed, options=options)
        return observation, {key: value for key, value in info.items() if value is not None}  # None has no batch


@pytest.mark.slow
def test_trains_the_same_weights() -> None:
    def weights(make: Callable[[Sequence[Any]], VecEnv]) -> list[Any]:
        env = VecNormalize(VecMonitor(make([partial(gymnasium.make, "CartPole-v1", max_episode_steps=30)] * 4)))
        model = DQN("MlpPolicy", env, learning_starts=50, train_freq=4, seed=0, device="cpu", policy_kwargs={"net_arch": [8]})
        model.learn(300)
        env.close()
        assert len(model.ep_info_buffer or ()) > 5
        return [value.clone() for value in model.policy.state_dict().values()]

    theirs = weights(lambda env_fns: DummyVecEnv(list(env_fns)))
    ours = weights(lambda env_fns: from_vector_env(VECTORS["processes"](env_fns)))
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


def test_calls() -> None:
    env = from_vector_env(VECTORS["processes"]([partial(Short, index) for index in range(3)]))
    env.reset()
    assert env.get_attr("index") == [0, 1, 2] and env.get_attr("index", [2, 0]) == [2, 0] and env.get_attr("index", -1) == [2]
    assert env.env_method("add", 1, b=2) == [3, 4, 5] and env.has_attr("index") and not env.has_attr("nothing")
    env.set_attr("seen", [1, 2])
    assert env.get_attr("seen") == [[1, 2]] * 3
    with pytest.raises(ValueError, match="all its environments or none"):
        env.env_method("add", 1, indices=[0])
    assert env.env_is_wrapped(Monitor) == [False] * 3 and env.env_is_wrapped(Monitor, [1]) == [False]
    assert env.render_mode == "rgb_array" and [image.mean() for image in env.get_images()] == [0, 1, 2]  # type: ignore[union-attr]
    picture = env.render()
    assert picture is not None and picture.shape == (4, 4, 3)
    assert "autoreset_mode" not in env.metadata and repr(env).startswith("from_vector_env(ReactorVectorEnv(")
    env.set_options([{"a": 1}, {}, {}])
    with pytest.raises(ValueError, match="these differ"):
        env.reset()
    env.close()
    env.close()


def test_refuses() -> None:
    env_fns = [partial(gymnasium.make, "CartPole-v1")] * 2
    for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED):
        with ReactorVectorEnv(env_fns, executor="inline", autoreset_mode=mode) as envs:
            with pytest.raises(ValueError, match=r"autoreset_mode=AutoresetMode\.SAME_STEP"):
                from_vector_env(envs)
    with ReactorVectorEnv(env_fns, executor="inline", autoreset_mode=SAME_STEP, copy=False) as envs:
        with pytest.raises(ValueError, match="copy=True"):
            from_vector_env(envs)
    with ReactorVectorEnv(env_fns, executor="inline", autoreset_mode=SAME_STEP, batch_size=1) as envs:
        with pytest.raises(ValueError, match=r"take turns, 1 of 2 in a step.*make it without batch_size"):
            from_vector_env(envs)
    with pytest.raises(TypeError, match=r"expected a gymnasium.vector.VectorEnv"):
        from_vector_env(gymnasium.make("CartPole-v1"))  # type: ignore[arg-type]


def test_under_gymnasiums_statistics() -> None:
    env = from_vector_env(RecordEpisodeStatistics(VECTORS["inline"]([partial(Short, index) for index in range(3)])))
    assert env.get_attr("index") == [0, 1, 2]
    env.reset()
    found = [info for _ in range(8) for info in env.step(np.zeros(3, int))[3]]
    episodes = [info["episode"] for info in found if "terminal_observation" in info]
    assert len(episodes) == 6 and sum("episode" in info for info in found) == 6
    assert {(round(float(episode["r"]), 6), int(episode["l"])) for episode in episodes} == {(0.6, 3), (1.0, 4)}
    env.close()


@pytest.mark.slow
def test_atari() -> None:
    pytest.importorskip("ale_py")
    from reactor_gymnasium import AtariVectorEnv

    envs = AtariVectorEnv("pong", 2, autoreset_mode=SAME_STEP, max_num_frames_per_episode=60, executor="inline")
    env = from_vector_env(envs)
    env.seed(1)
    env.reset()
    ends = 0
    for _ in range(30):
        observations, rewards, dones, infos = env.step(np.zeros(2, int))
        for info, done in zip(infos, dones, strict=True):
            assert ("terminal_observation" in info) == done == info["TimeLimit.truncated"] and "final_obs" not in info
            ends += done
    assert ends > 2 and rewards.dtype == np.float32 and observations.shape == (2, 4, 84, 84)
    env.close()


# ---------------------------------------------------------------------- agents


class Mayflies(pettingzoo.ParallelEnv):  # type: ignore[misc]
    """Four agents who get 1 at each step; the second one dies at the second step of six, the last one comes never."""

    metadata = {"name": "mayflies"}
    possible_agents = ["a", "b", "c", "d"]
    _space, _actions = spaces.Box(0, 10, (2,), np.float32), spaces.Discrete(2)

    def observation_space(self, agent: str) -> Any:
        return self._space

    def action_space(self, agent: str) -> Any:
        return self._actions

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.t, self.agents = 0, ["a", "b", "c"]
        return self._seen(self.agents), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> Any:
        self.t += 1
        there, over = self.agents, self.t == 6
        dies = {agent: agent == "b" and self.t == 2 for agent in there}
        self.agents = [] if over else [agent for agent in there if not dies[agent]]
        ones = dict.fromkeys(there, 1.0)
        return self._seen(there), ones, dies, dict.fromkeys(there, over), {agent: {"t": self.t} for agent in there}

    def _seen(self, agents: list[str]) -> dict[str, Any]:
        return {agent: np.full(2, self.t + 1, np.float32) for agent in agents}


def test_padding() -> None:
    """Padding ends with a boundary for learners that is no episode for who counts them."""
    env = from_vector_env(ParallelVectorEnv(Mayflies, 2, executor="inline"))
    env.reset()
    assert env.num_envs == 8 and env.get_attr("t") == [0] * 8
    seen = [env.step(np.zeros(8, int)) for _ in range(6)]
    dones = np.array([results[2] for results in seen])
    assert np.argwhere(dones[:, :4]).tolist() == [[1, 1], [5, 0], [5, 1], [5, 2], [5, 3]]
    assert np.array_equal(dones[:, :4], dones[:, 4:])
    padded = np.array([["padded" in info for info in results[3]] for results in seen])
    assert padded[:, :4].tolist() == [[False, False, False, True]] * 2 + [[False, True, False, True]] * 4
    died, ended, ended_padded = seen[1][3][1], seen[5][3][0], seen[5][3][1]
    assert died["terminal_observation"].tolist() == [3, 3] and not died["TimeLimit.truncated"] and died["t"] == 2
    assert seen[1][0][1].tolist() == [3, 3] and seen[2][0][1].tolist() == [0, 0]  # the last one is seen, then there is nothing
    assert ended["terminal_observation"].tolist() == [7, 7] and ended["TimeLimit.truncated"]
    assert ended_padded["terminal_observation"].tolist() == [0, 0] and not ended_padded["TimeLimit.truncated"]
    assert seen[5][0].tolist() == [[1, 1]] * 3 + [[0, 0]] + [[1, 1]] * 3 + [[0, 0]]
    env.close()


def test_padding_is_no_episode(tmp_path: Path) -> None:
    for wrap in (
        lambda envs: VecMonitor(from_vector_env(envs), str(tmp_path / "log"), info_keywords=("t",)),
        lambda envs: from_vector_env(RecordEpisodeStatistics(envs)),
    ):
        env = wrap(ParallelVectorEnv(Mayflies, 2, executor="inline"))
        env.reset()
        found = [info["episode"] for _ in range(12) for info in env.step(np.zeros(8, int))[3] if "episode" in info]
        assert sorted((float(episode["r"]), int(episode["l"])) for episode in found) == [(2.0, 2)] * 4 + [(6.0, 6)] * 8
        env.close()


@pytest.mark.slow
def test_shared_policy() -> None:
    """PPO trains one policy for all agents, to the same weights on one worker and on two."""
    simple_spread_v3 = pytest.importorskip("mpe2.simple_spread_v3")

    def trained(**place: Any) -> list[Any]:
        envs = ParallelVectorEnv(lambda: simple_spread_v3.parallel_env(max_cycles=25), 2, **place)
        env = VecMonitor(from_vector_env(envs))
        model = PPO("MlpPolicy", env, n_steps=32, batch_size=64, n_epochs=2, seed=0, device="cpu")
        model.learn(32 * 6 * 2)
        assert [int(episode["l"]) for episode in model.ep_info_buffer or ()] == [25] * 12
        env.close()
        return [value.clone() for value in model.policy.state_dict().values()]

    one, two = trained(workers=1), trained(executor="processes", workers=2)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


class NoneMissing(Mayflies):
    possible_agents = ["a", "b", "c"]


class Still:
    def predict(self, observations: Any, **kwargs: Any) -> tuple[Any, None]:
        return np.zeros(len(observations), int), None


def test_evaluate_policy() -> None:
    """Episodes are evaluated, and padding is none."""
    env = VecMonitor(from_vector_env(ParallelVectorEnv(NoneMissing, 1, executor="inline")))
    found = evaluate_policy(Still(), env, n_eval_episodes=6, return_episode_rewards=True)  # type: ignore[arg-type]
    env.close()
    assert found == ([2.0, 6.0, 6.0] * 2, [2, 6, 6] * 2)


# ---------------------------------------------------------------------- shards that step their rows by themselves


def _sync(first: int, rows: int) -> gymnasium.vector.SyncVectorEnv:
    env_fns = [partial(gymnasium.make, "CartPole-v1", max_episode_steps=5 + first + row) for row in range(rows)]
    return gymnasium.vector.SyncVectorEnv(env_fns, autoreset_mode=AutoresetMode.SAME_STEP)


def test_rows_of_shards_are_environments() -> None:
    together = from_vector_env(ReactorVectorEnv.of([partial(_sync, 0, 1), partial(_sync, 1, 3)], executor="threads", workers=2))
    alone = from_vector_env(_sync(0, 4))
    for env in (together, alone):
        env.seed(3)
    np.testing.assert_array_equal(together.reset(), alone.reset())
    for step in range(20):
        found, expected = (env.step(np.full(4, step % 2)) for env in (together, alone))
        for one, other in zip(found[:3], expected[:3], strict=True):
            np.testing.assert_array_equal(one, other, strict=True)
        for one, other in zip(found[3], expected[3], strict=True):
            assert one.keys() == other.keys() and one["TimeLimit.truncated"] == other["TimeLimit.truncated"]
    assert together.get_attr("num_envs") == [1, 3, 3, 3]
    together.set_attr("note", "x")
    assert together.get_attr("note") == ["x"] * 4
    for env in (together, alone):
        env.close()
