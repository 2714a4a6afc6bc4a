"""Trainers whose ``env`` is a live vector environment: its environments become the actors', one by one."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor, load_results
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    SubprocVecEnv,
    VecEnv,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    VecTransposeImage,
)
from trainers import ALGORITHMS, BOX, EVALUATED, INLINE, PLACES, SPACES, Seen, Toy, alone, each, new, outcome, suited

from reactor_sb3 import ReactorVecEnv, SyncPPO
from reactor_sb3.trainers.costs import actor_cost
from reactor_sb3.trainers.options import most_actors, shared_out

pytestmark = pytest.mark.timeout(60)


class Numbered(Toy):
    """Pays its number."""

    def __init__(self, number: int = 0) -> None:
        super().__init__()
        self.number = number

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward + 100 * self.number, terminated, truncated, info | {"number": self.number}


def numbered(count: int = 4, algorithm: str = "dqn") -> VecEnv:
    return DummyVecEnv([partial(Monitor, suited(algorithm, Numbered(number))) for number in range(count)])


FORKED = partial(SubprocVecEnv, start_method="fork")


@pytest.mark.slow
@pytest.mark.parametrize("kind", [DummyVecEnv, FORKED, ReactorVecEnv], ids=["dummy", "subproc", "reactor"])
@each
def test_environments_like_those_of_an_id_give_what_the_id_gives(algorithm: str, kind: Any) -> None:
    venv = make_vec_env(suited(algorithm, "CartPole-v1"), n_envs=4, seed=7, vec_env_cls=kind)
    with new(algorithm, venv, n_actors=4, **EVALUATED) as model:
        assert model.get_env() is venv and model.n_envs == 4
        assert outcome(model.learn(640)) == alone(algorithm, 0)
    venv.close()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The environment is already wrapped with a `Monitor`")
@pytest.mark.parametrize("pipeline", [0, 1])
@each
def test_environments_that_differ_give_the_same_everywhere(algorithm: str, pipeline: int) -> None:
    found = []
    for place in PLACES:
        with new(algorithm, VecMonitor(numbered(4, algorithm)), pipeline=pipeline, **{**place, **EVALUATED}) as model:
            found.append(outcome(model.learn(320)))
    assert all(one == found[0] for one in found)
    with new(algorithm, Numbered, pipeline=pipeline, **EVALUATED) as model:
        assert outcome(model.learn(320)) != found[0]


def test_each_row_is_of_the_environment_with_that_index() -> None:
    with new("dqn", numbered(6), n_actors=None, envs_per_actor=2) as model:
        model.learn(96, callback=(seen := Seen()))
        for row in seen.rows:
            assert [info["number"] for info in row[-1]] == list(range(6))


SHARES: list[tuple[dict[str, Any], tuple[int, int]]] = [
    ({}, (6, 1)), ({"n_actors": 6}, (6, 1)), ({"n_actors": 3}, (3, 2)), ({"envs_per_actor": 3}, (2, 3)),
    ({"n_actors": 2, "envs_per_actor": 3}, (2, 3)),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "shared"), SHARES)
def test_they_are_shared_out(asked: dict[str, int], shared: tuple[int, int]) -> None:
    model = new("pqn", numbered(6), **{"n_actors": None, **asked})
    assert (model.n_actors, model.envs_per_actor) == shared and model.n_envs == 6


@pytest.mark.parametrize(("count", "most", "shared"), [
    (1, 8, (1, 1)), (8, 8, (8, 1)), (16, 8, (8, 2)), (64, 8, (8, 8)), (10, 8, (5, 2)), (8, 4, (4, 2)), (6, 4, (3, 2)),
    (3, 4, (3, 1)), (11, 8, (11, 1)), (22, 8, (11, 2)), (2, 8, (2, 1)), (5, 4, (5, 1)),
])  # fmt: skip
def test_the_usual_number_of_actors(count: int, most: int, shared: tuple[int, int]) -> None:
    assert shared_out(None, None, count, 1, most) == shared


def test_fewer_actors_see_images() -> None:
    for observed, actors in ((SPACES["image"][1], 4), (BOX, 8)):
        venv = make_vec_env(partial(Toy, observed), n_envs=8)
        policy = "CnnPolicy" if actors == 4 else "MlpPolicy"
        model = SyncPPO(policy, venv, policy_kwargs={"net_arch": [4]}, n_steps=8, batch_size=8)
        assert (model.n_actors, model.envs_per_actor) == (actors, 8 // actors)


def doubled(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    return gymnasium.wrappers.TransformReward(env, double)


def double(reward: Any) -> Any:
    return 2 * reward


@pytest.mark.parametrize(("count", "shared"), [(1, (1, 1)), (4, (1, 4)), (6, (2, 3)), (16, (4, 4))])
def test_load_with_any_number_of_them(count: int, shared: tuple[int, int], tmp_path: Path) -> None:
    SyncPPO("MlpPolicy", make_vec_env("CartPole-v1", 8), n_steps=8, batch_size=8).save(tmp_path / "model")  # 2 actors with 4 each
    with SyncPPO.load(tmp_path / "model", make_vec_env("CartPole-v1", count), **INLINE) as model:
        assert (model.n_actors, model.envs_per_actor) == shared
        assert model.learn(8 * count).num_timesteps == 8 * count


def test_what_is_timed_is_in_no_log_of_episodes(tmp_path: Path) -> None:
    venv = make_vec_env(Toy, 4, monitor_dir=str(tmp_path))
    model = new("dqn", venv, n_actors=None)
    before = [file.read_text() for file in sorted(tmp_path.iterdir())]
    assert actor_cost(model.program_config()) > 0
    assert [file.read_text() for file in sorted(tmp_path.iterdir())] == before and len(before) == 4
    venv.close()


SHARED_OUT: list[tuple[Any, int, int, int]] = [
    ("CartPole-v1", 8, 2, 2), ("CartPole-v1", 96, 3, 3), ("HalfCheetah-v5", 8, 8, 2), (Toy, 8, 8, 8),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "env", "count", "on_policy", "off_policy"), [
    *((kind, *case) for kind in (DummyVecEnv, ReactorVecEnv) for case in SHARED_OUT),
    (FORKED, *SHARED_OUT[2]),
])  # fmt: skip
def test_fewer_actors_share_out_what_kernels_step(kind: Any, env: Any, count: int, on_policy: int, off_policy: int) -> None:
    venv = make_vec_env(env, count, vec_env_cls=kind)
    try:
        assert most_actors(venv, few_steps=False) == on_policy
        assert most_actors(VecNormalize(venv), few_steps=True) == off_policy
        assert most_actors(VecFrameStack(venv, 2), few_steps=True) == 8
    finally:
        venv.close()


class Mine(gymnasium.Wrapper[Any, Any, Any, Any]):
    pass


def test_kernels_do_not_step_what_is_wrapped_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    mixed = DummyVecEnv([partial(gymnasium.make, name) for name in ("CartPole-v1", "CartPole-v1")])
    assert most_actors(VecMonitor(mixed), few_steps=True) == 2
    mixed.envs[1] = doubled(mixed.envs[1])
    assert most_actors(mixed, few_steps=True) == 2
    mixed.envs[1] = Mine(mixed.envs[1])
    assert most_actors(mixed, few_steps=True) == 8
    # How many there are is part of the algorithm: no setting of a machine may change it.
    monkeypatch.setenv("REACTOR_RL_KERNELS", "0")
    plain = make_vec_env("CartPole-v1", 8)
    model = SyncPPO("MlpPolicy", plain, n_steps=8, batch_size=8)
    assert (model.n_actors, model.envs_per_actor) == (2, 4)


@pytest.mark.parametrize("asked", [{"n_actors": 4}, {"n_actors": 7}, {"envs_per_actor": 4}, {"n_actors": 3, "envs_per_actor": 3}])
def test_they_cannot_be_shared_out_like_that(asked: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"cannot share out the 6 environments .* give numbers whose product is 6"):
        new("pqn", numbered(6), **{"n_actors": None, **asked})


@each
def test_load_and_set_env(algorithm: str, tmp_path: Path) -> None:
    with new(algorithm, numbered(4, algorithm)) as model:
        model.learn(128)
        model.save(tmp_path / "model")
    cls = ALGORITHMS[algorithm][0]
    with cls.load(tmp_path / "model", env=(venv := numbered(6, algorithm))) as loaded:
        assert (loaded.n_actors, loaded.envs_per_actor, loaded.n_envs) == (6, 1, 6) and loaded.get_env() is venv
        loaded.learn(96)
        loaded.set_env(other := numbered(6, algorithm))
        assert loaded.get_env() is other
        loaded.learn(96, callback=(seen := Seen()))
        assert [info["number"] for info in seen.rows[0][-1]] == list(range(6))
        assert isinstance(evaluate_policy(loaded, other, n_eval_episodes=6)[0], float)


@each
def test_a_checkpoint_has_all_of_them(algorithm: str, tmp_path: Path) -> None:
    cls = ALGORITHMS[algorithm][0]
    with new(algorithm, numbered(4, algorithm), **EVALUATED) as model:
        model.learn(192)
        model.save_checkpoint(tmp_path / "run")
        model.learn(192, reset_num_timesteps=False)
        straight = outcome(model)
    for env in (None, numbered(4, algorithm)):
        with cls.resume(tmp_path / "run", env) as resumed:
            assert outcome(resumed.learn(192, reset_num_timesteps=False)) == straight


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The environment is already wrapped with a `Monitor`")
@pytest.mark.parametrize("watched", [False, True])
def test_a_log_of_all_episodes_is_written(watched: bool, tmp_path: Path) -> None:
    venv = VecMonitor(make_vec_env(Numbered, n_envs=4), str(tmp_path / "all"), info_keywords=("number",))
    with new("dqn", venv, stats_window_size=3, executor="processes", workers=2) as model:
        model.learn(640, callback=Seen() if watched else None)
        results = load_results(str(tmp_path))
        assert len(results) == model.n_episodes > 60
        written = [float(line.partition(",")[0]) for line in (tmp_path / "all.monitor.csv").read_text().splitlines()[-3:]]
        assert written == [info["r"] for info in model.ep_info_buffer]  # load_results sorts by time, of which several have the same
        assert results["number"].tolist() == [0] * len(results)
    venv.close()


IMAGE = spaces.Box(0, 255, (36, 36, 1), np.uint8)


@pytest.mark.slow
@each
def test_images_are_stacked_and_turned(algorithm: str) -> None:
    found = []
    for wrap in (lambda venv: VecFrameStack(venv, 2), lambda venv: VecTransposeImage(VecFrameStack(venv, 2))):
        venv = wrap(make_vec_env(suited(algorithm, partial(Toy, IMAGE)), n_envs=2))
        with new(algorithm, venv, "CnnPolicy", n_actors=None, executor="processes", workers=2) as model:
            assert model.observation_space.shape == (2, 36, 36)
            found.append(outcome(model.learn(64)))
    assert found[0] == found[1]


def test_evaluations_may_have_one_of_their_own() -> None:
    with new("dqn", evaluate_env=make_vec_env("CartPole-v1", n_envs=2), **EVALUATED) as model:
        assert outcome(model.learn(640)) == alone("dqn", 0)
