"""What other settings would bring is predicted from measured costs, and told; nothing is changed."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize
from trainers import Toy, new

import reactor_sb3
from reactor_rl.plugin import UsageError
from reactor_sb3 import SyncDQN, SyncPPO, SyncSAC
from reactor_sb3.cli.tune import call_of, main, predictions
from reactor_sb3.trainers.costs import LearnerCost
from reactor_torch import kernels

HELPED = {1: 1.75, 2: 1.0} if kernels.compiled else {1: 1.0}
"""What an update takes on one thread, and on two."""
SETTINGS: dict[str, Any] = {"train_freq": 10, "gradient_steps": 4, "batch_size": 32, "n_actors": 4, "seed": 0}


@pytest.fixture
def two_cores(monkeypatch: Any) -> None:
    """An environment's part of a round takes 1 ms, and so do 32 rows of an update; workers cost nothing."""
    costs = {
        "cli.tune.actor_cost": lambda config: 1e-3 * config.actors.envs,
        "trainers.placing.learner_cost": lambda model, threads: LearnerCost(
            *(3 * 1e-3 * len(model.example()) / 32 * HELPED[number] for number in (1, threads)), 3
        ),
        "trainers.placing.usable_cores": lambda: 2,
        "trainers.placing.tick_cost": lambda **_: 0.0,
        "trainers.placing.may_start_processes": lambda: True,
    }
    for name, cost in costs.items():
        monkeypatch.setattr(f"reactor_sb3.{name}", cost)
    monkeypatch.setattr("reactor_sb3.trainers.placing.MEETING", 0.0)


@pytest.mark.usefixtures("two_cores")
def test_rates_follow_from_costs() -> None:
    with SyncDQN("MlpPolicy", "CartPole-v1", **SETTINGS) as model:
        found = {tuple(one.changed.items()): one for one in predictions(model)}
    steps, rows, milliseconds = 40, 4 * 32, 1e-3
    expected = {
        (): (steps, rows, 2 + 4),  # two actors one after the other, then four updates
        (("pipeline", 1),): (steps, rows, min(4 * HELPED[1], 2 + 4)),  # the actors' core is theirs, or has a thread, too
        (("n_actors", 8),): (2 * steps, rows, 4 + 4),
        (("envs_per_actor", 2),): (2 * steps, rows, 2 * 2 + 4),
        (("batch_size", 64),): (steps, 2 * rows, 2 + 8),
        (("batch_size", 128),): (steps, 4 * rows, 2 + 16),
        (("gradient_steps", 2),): (steps, rows / 2, 2 + 2),
        (("gradient_steps", 8),): (steps, 2 * rows, 2 + 8),
    }
    assert found.keys() == expected.keys()
    for changed, (sampled, learned, length) in expected.items():
        assert found[changed].sampling == pytest.approx(sampled / (length * milliseconds), rel=2e-3), changed
        assert found[changed].update_frames == pytest.approx(learned / (length * milliseconds), rel=2e-3), changed
    assert [changed for changed, one in found.items() if one.keeps_balance] == [(), (("pipeline", 1),)]


@pytest.mark.usefixtures("two_cores")
def test_what_cannot_be_is_left_out() -> None:
    def changed(model: Any) -> set[str]:
        with model:
            return {name for one in predictions(model) for name in one.changed}

    venv = VecNormalize(make_vec_env(partial(Toy), n_envs=4))  # whose statistics are of so many environments
    model = SyncPPO("MlpPolicy", venv, n_steps=8, batch_size=16)  # 64 rows are more than a round has
    with model:
        found = [dict(one.changed) for one in predictions(model)]
    assert found == [{}, {"pipeline": 1}, {"batch_size": 32}]
    assert "split" in changed(SyncSAC("MlpPolicy", "Pendulum-v1", n_actors=2, policy_kwargs={"net_arch": [8]}))


@pytest.mark.parametrize("algorithm", ["dqn", "pqn", "ppo"])
def test_the_call_makes_the_same_trainer(algorithm: str) -> None:
    with new(algorithm, n_actors=2, learning_rate=0.01) as model:
        for changed in ({}, {"pipeline": 1, "n_learners": 2}):
            with eval(call_of(model, changed), vars(reactor_sb3)) as other:
                assert other.arguments == {**model.arguments, **changed}


def test_what_has_no_source_is_named() -> None:
    with new("ppo", Toy, clip_range=lambda remaining: 0.1 * remaining, policy_kwargs={"net_arch": {"pi": [4], "vf": []}}) as model:
        call = call_of(model, {})
    assert call.startswith("SyncPPO('MlpPolicy', env, ") and "clip_range=clip_range" in call
    assert "policy_kwargs={'net_arch': {'pi': [4], 'vf': []}}" in call and "verbose" not in call


def made(kind: str = "trainer") -> Any:
    """The command's target."""
    return SyncDQN("MlpPolicy", partial(Toy, spaces.Discrete(4)), **SETTINGS) if kind == "trainer" else kind


def test_the_command_measures_and_changes_nothing(capsys: Any, monkeypatch: Any) -> None:
    model = made()
    monkeypatch.setattr(f"{__name__}.made", lambda: model)
    weights, random = model.fingerprint(), np.random.get_state()[1].tolist()  # type: ignore[index]
    assert main([f"{__name__}:made"]) == 0
    assert not model.running and model.fingerprint() == weights and model.num_timesteps == 0
    assert np.random.get_state()[1].tolist() == random  # type: ignore[index]
    told = capsys.readouterr().out
    rows = re.findall(r"^  (\S.*?)\s+([\d,]+)\s+([\d,]+)$", told, re.MULTILINE)
    assert {"as it is", "pipeline=1", "batch_size=64", "gradient_steps=2"} <= {name for name, *_ in rows}
    assert all(int(number.replace(",", "")) > 0 for _, *numbers in rows for number in numbers)
    assert told.splitlines()[-1].startswith("SyncDQN('MlpPolicy', env, ")


@pytest.mark.usefixtures("two_cores")
def test_the_line_of_the_tutorial(capsys: Any) -> None:
    page = (Path(__file__).parents[3] / "docs" / "start" / "training.md").read_text()
    (arguments,) = re.findall(r"^python -m reactor_rl tune (.*)$", page, re.MULTILINE)
    assert main(arguments.split()) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("SyncPPO('MlpPolicy', 'CartPole-v1', ")


def test_a_target_that_is_no_trainer_is_refused() -> None:
    with pytest.raises(UsageError, match=r"must make a trainer of reactor_sb3, got .something"):
        main([f"{__name__}:made", "something"])
