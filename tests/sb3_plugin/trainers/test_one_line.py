"""One changed line, `SAC(...)` to `SyncSAC(...)`: as much is learned from each step as in SB3, unless numbers say otherwise."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from every_other import in_turn
from stable_baselines3.common.env_util import make_vec_env
from trainers import ROWS

HOSTS = {row.host.partition(":")[2]: row for row in ROWS.values() if row.host}
STEPS = {"DQN": 400, "QRDQN": 400, "PPO": 2_100}
PAIRS: dict[str, tuple[Any, Any, str, int]] = {
    name: (row.cls, row.host_cls, row.env, STEPS.get(name, 160))
    for name, row in HOSTS.items()
    if row.kind == "off-policy" or name == "PPO"
}
OFF_POLICY = [name for name in PAIRS if HOSTS[name].kind == "off-policy"]
each = in_turn("name", OFF_POLICY)


def small() -> dict[str, Any]:
    return {"policy_kwargs": {"net_arch": [8]}, "seed": 0, "device": "cpu"}  # SB3 writes into it


def ours_of(name: str, env: Any = None, **given: Any) -> Any:
    ours, _, usual, _ = PAIRS[name]
    few = {} if name == "PPO" else {"buffer_size": 2_000}
    return ours("MlpPolicy", env or usual, **{**small(), **few, "executor": "inline", **given})


def theirs_of(name: str, env: Any = None, **given: Any) -> Any:
    _, theirs, usual, _ = PAIRS[name]
    return theirs("MlpPolicy", env or usual, **{**small(), **given})


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", sorted(PAIRS))
def test_with_no_numbers_given_it_learns_as_often(name: str) -> None:
    steps = PAIRS[name][3]
    theirs = theirs_of(name).learn(steps)
    with ours_of(name) as ours:
        ours.learn(steps)
        assert (ours.num_timesteps, ours._n_updates) == (theirs.num_timesteps, theirs._n_updates)
        assert ours._n_updates > 0


@pytest.mark.slow
@each
@pytest.mark.parametrize("given", [{}, {"train_freq": 8}, {"train_freq": (2, "step")}], ids=str)
@pytest.mark.parametrize("actors", [{}, {"n_actors": 4}, {"n_actors": 2, "envs_per_actor": 3}], ids=str)
def test_updates_for_each_step_do_not_depend_on_actors(name: str, given: dict[str, Any], actors: dict[str, Any]) -> None:
    """As SB3 with one environment has them, which makes an update every ``train_freq`` steps."""
    host = theirs_of(name, **given)
    assert ours_of(name, **given, **actors).update_to_data == 1 / host.train_freq.frequency
    assert host.gradient_steps == 1


@each
def test_one_environment_unless_there_are_more(name: str) -> None:
    assert ours_of(name).n_envs == 1
    venv = make_vec_env(PAIRS[name][2], n_envs=3)
    model = ours_of(name, venv)
    assert model.n_envs == 3 and model.update_to_data == ours_of(name).update_to_data


@each
@pytest.mark.usefixtures("one_thread")
def test_numbers_mean_what_they_mean_in_sb3_with_as_many_environments(name: str) -> None:
    given: dict[str, Any] = {"train_freq": 5, "gradient_steps": 2, "learning_starts": 20}
    theirs = theirs_of(name, make_vec_env(PAIRS[name][2], n_envs=4), **given).learn(160)
    with ours_of(name, n_actors=4, **given) as ours:
        ours.learn(160)
        assert (ours.num_timesteps, ours._n_updates) == (theirs.num_timesteps, theirs._n_updates)


@each
def test_few_updates_are_told_with_the_number_to_give(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours_of(name, n_actors=8, gradient_steps=2)  # a quarter of SB3's
        ours_of(name, n_actors=8, gradient_steps=0)  # none on purpose
        ours_of(name, n_actors=8)
        ours_of(name, n_actors=8, gradient_steps=8)
    with pytest.warns(UserWarning, match="pass gradient_steps=8 for as many") as caught:
        model = ours_of(name, n_actors=8, gradient_steps=1)
    assert [Path(one.filename) for one in caught] == [Path(__file__)]
    rate = 1 / model.usual_train_freq
    assert model.update_to_data == rate / 8 and f"{model.host}'s {name} has {rate:g} by default" in str(caught[0].message)
    with pytest.warns(UserWarning, match=f"pass gradient_steps={round(256 * rate)} for as many"):
        ours_of(name, train_freq=256)


@each
def test_a_model_that_is_loaded_with_more_environments_learns_as_much(name: str, tmp_path: Path) -> None:
    model = ours_of(name, n_actors=2)
    model.save(tmp_path / "model.zip")
    loaded = type(model).load(tmp_path / "model.zip", make_vec_env(PAIRS[name][2], n_envs=6))
    assert loaded.n_envs == 6 and loaded.update_to_data == model.update_to_data


@pytest.mark.parametrize(
    ("given", "steps"),
    [
        ({}, 256),
        ({"n_actors": 1}, 2048),
        ({"n_actors": 1, "batch_size": 128}, 2048),
        ({"n_actors": 4, "envs_per_actor": 4}, 128),
        ({"n_actors": 6}, 320),  # 30 minibatches of 64; with 341 the last one would be shorter
        ({"n_actors": 3, "batch_size": 90}, 660),
        ({"n_steps": 100, "batch_size": 100}, 100),
    ],
    ids=str,
)
def test_a_rollout_is_sb3s_in_total(given: dict[str, Any], steps: int) -> None:
    model = ours_of("PPO", **given)
    assert model.n_steps == model.rollout_steps == steps
    assert model.rollout_buffer.buffer_size == steps


def test_a_rollout_of_a_live_environment() -> None:
    assert ours_of("PPO", make_vec_env("CartPole-v1", n_envs=16)).n_steps == 128


@pytest.mark.filterwarnings("ignore:You have specified a mini-batch size")
def test_a_rollout_that_no_minibatch_divides() -> None:
    assert ours_of("PPO", n_actors=3, batch_size=1_999).n_steps == 682
    assert ours_of("PPO", make_vec_env("CartPole-v1", n_envs=2), batch_size=3_000).n_steps == 1024


@pytest.mark.parametrize("cls", [row.cls for row in ROWS.values()], ids=lambda cls: str(cls.__name__))
def test_n_envs_is_answered_with_n_actors(cls: Any) -> None:
    with pytest.raises(TypeError, match=rf"{cls.__name__} has no n_envs: .*pass n_actors=8"):
        cls("MlpPolicy", "Pendulum-v1", n_envs=8)


def test_what_is_computed_on_the_processor_by_default() -> None:
    assert all(str(PAIRS[name][0]("MlpPolicy", gymnasium.make(PAIRS[name][2])).device) == "cpu" for name in PAIRS)
