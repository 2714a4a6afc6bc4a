"""SyncA2C: SB3's updates by SB3's optimisers, what it logs, and one result on any number of cores."""

from __future__ import annotations

import inspect
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
from stable_baselines3 import A2C
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import configure
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
from stable_baselines3.common.vec_env import VecNormalize
from torch import nn
from trainers import BOX, EVALUATED, INLINE, PLACES, PROCESSES, SPACES, THREADS, Toy, outcome

from reactor_sb3.acting.forwards import copied
from reactor_sb3.algorithms.sync_a2c import SyncA2C

ACTIONS: dict[str, gymnasium.Space[Any]] = {
    "discrete": spaces.Discrete(3), "several": spaces.MultiDiscrete([2, 3, 4]), "binary": spaces.MultiBinary(3),
    "box": spaces.Box(np.array([-0.5, -2], np.float32), np.array([0.5, 1], np.float32)),
}  # fmt: skip
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "normalised": {"normalize_advantage": True, "ent_coef": 0.01, "gae_lambda": 0.9, "rms_prop_eps": 1e-3},
    "Adam": {"use_rms_prop": False, "learning_rate": lambda left: 1e-3 * left, "vf_coef": 0.25, "max_grad_norm": 0.01},
    "as TensorFlow": {"policy_kwargs": {"optimizer_class": RMSpropTFLike, "optimizer_kwargs": {"eps": 1e-5}}, "ent_coef": 0.1},
    "by autograd": {"policy_kwargs": {"activation_fn": nn.ELU}, "normalize_advantage": True, "ent_coef": 0.1},
}


class Watched(SyncA2C):
    """Keeps what there was before and after each round's update."""

    rounds: list[dict[str, Any]]

    def begin_updates(self) -> None:
        self.found: dict[str, Any] = {
            "before": copied(self.policy, {}), "buffer": deepcopy(self.rollout_buffer),
            "progress": self._current_progress_remaining, "updates": self._n_updates,
        }  # fmt: skip
        super().begin_updates()

    def log_round(self, passes: Any) -> None:
        super().log_round(passes)
        self.found |= {"after": copied(self.policy, {}), "told": dict(self.logger.name_to_value)}
        self.rounds = [*getattr(self, "rounds", []), self.found]


def new(env: Any = "CartPole-v1", policy: Any = "MlpPolicy", kind: Any = SyncA2C, **changed: Any) -> Any:
    usual: dict[str, Any] = {"net_arch": [16]}
    if policy == "CnnPolicy":
        usual = {"net_arch": [], "features_extractor_kwargs": {"features_dim": 16}}
    network = {**usual, **deepcopy(changed.pop("policy_kwargs", {}))}
    given = {"n_actors": 2, "envs_per_actor": 2, "n_steps": 8, "seed": 3, "policy_kwargs": network, **INLINE}
    return kind(policy, env, **{**given, **changed})


# ---------------------------------------------------------------------- the updates are SB3's


def sb3_with(model: Watched, found: dict[str, Any]) -> A2C:
    """SB3's own algorithm as ours was before a round's update."""
    names = inspect.signature(A2C.__init__).parameters
    other = A2C(env=model.get_env(), **{name: deepcopy(one) for name, one in model.arguments.items() if name in names})
    assert type(other.policy.optimizer) is type(model.policy.optimizer)
    assert other.policy.optimizer.defaults == model.policy.optimizer.defaults
    other.policy.load_state_dict(found["before"].state_dict())
    other.policy.optimizer.load_state_dict(found["before"].optimizer.state_dict())
    other.rollout_buffer = found["buffer"]
    other.set_logger(configure(None, []))
    other._current_progress_remaining, other._n_updates = found["progress"], found["updates"]
    return other


CASES = [(acted, variant) for acted in ACTIONS for variant in VARIANTS]


@in_turn("acted, variant", [*CASES, ("box", "noise"), ("box", "squashed")], kept=6)
def test_updates_are_those_of_sb3(acted: str, variant: str) -> None:
    """Given the rollout, SB3's own ``train()`` ends with the same weights and logs the same."""
    noisy: dict[str, Any] = {
        "noise": {"use_sde": True, "sde_sample_freq": 4}, "squashed": {"use_sde": True, "policy_kwargs": {"squash_output": True}},
    }  # fmt: skip
    with new(partial(Toy, BOX, ACTIONS[acted]), kind=Watched, **(VARIANTS | noisy)[variant]) as model:
        model.learn(4 * 32)
        assert model.nets.compiled == (variant not in ("by autograd", "squashed"))
    assert len(model.rounds) == 4
    for found in model.rounds:
        theirs = sb3_with(model, found)
        theirs.train()
        for name, weights in theirs.policy.state_dict().items():
            torch.testing.assert_close(found["after"].state_dict()[name], weights, rtol=1e-5, atol=1e-5)
        told, told_by_sb3 = found["told"], theirs.logger.name_to_value
        assert {name for name in told if name.startswith("train/")} == {name for name in told_by_sb3 if name.startswith("train/")}
        for name in told_by_sb3:
            assert told[name] == pytest.approx(told_by_sb3[name], rel=1e-3, abs=1e-5), name


def test_with_no_numbers_given_it_is_sb3s() -> None:
    """One environment and five steps a round, as often as SB3; its actors are those that one asks for."""
    theirs = A2C("MlpPolicy", "CartPole-v1", device="cpu").learn(100)
    with SyncA2C("MlpPolicy", "CartPole-v1", **INLINE) as model:
        model.learn(100)
        assert (model.num_timesteps, model.n_updates, model.n_envs) == (theirs.num_timesteps, theirs._n_updates, 1) == (100, 20, 1)
        assert type(model.policy.optimizer) is torch.optim.RMSprop
    with SyncA2C("MlpPolicy", "CartPole-v1", n_actors=8, **INLINE) as model:
        model.learn(80)
        assert (model.n_actors, model.envs_per_actor, model.n_updates) == (8, 1, 2)
        assert model.rollout_buffer.actions.shape == (5, 8, 1)
    theirs_first = list(inspect.signature(A2C).parameters)
    assert list(inspect.signature(SyncA2C).parameters)[: len(theirs_first)] == theirs_first


@pytest.mark.parametrize("count", [8, 64])
def test_as_many_updates_as_sb3_has_with_a_vector_environment(count: int) -> None:
    venv = make_vec_env("CartPole-v1", count)
    theirs = A2C("MlpPolicy", venv, device="cpu").learn(10 * count)
    with SyncA2C("MlpPolicy", make_vec_env("CartPole-v1", count), **INLINE) as model:
        model.learn(10 * count)
        assert (model.n_envs, model.n_updates) == (count, theirs._n_updates) == (count, 2)


# ---------------------------------------------------------------------- one result


@pytest.mark.parametrize(
    "place", [THREADS, pytest.param(PROCESSES, marks=pytest.mark.slow)], ids=lambda place: str(place["executor"])
)
@in_turn("pipeline", [0, 1], kept=1)
def test_one_result(pipeline: int, place: dict[str, Any]) -> None:
    found = []
    for where in (INLINE, place):
        with new(pipeline=pipeline, **EVALUATED, **where) as model:
            found.append(outcome(model.learn(640)))
    assert found[0] == found[1]
    assert found[0]["evaluations"] and found[0]["counters"][2] >= 19


OTHERS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "image": (partial(Toy, SPACES["image"][1]), "CnnPolicy", {}),
    "dict": (partial(Toy, SPACES["dict"][1], ACTIONS["several"]), "MultiInputPolicy", {}),
    "noise": (partial(Toy, BOX, ACTIONS["box"]), "MlpPolicy", {"use_sde": True, "sde_sample_freq": 4}),
    "learners": ("CartPole-v1", "MlpPolicy", {"n_learners": 2, "n_steps": 64}),
    "one environment": (
        "CartPole-v1",
        "MlpPolicy",
        {"n_actors": 1, "envs_per_actor": 1, "n_steps": 1, "normalize_advantage": True},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_one_result_of_others(name: str) -> None:
    env, policy, given = OTHERS[name]
    found = []
    for place in PLACES:
        with new(env, policy, pipeline=1, **{**given, **place}) as model:
            found.append(outcome(model.learn(600)))
    assert all(one == found[0] for one in found) and found[0]["counters"][2]


@in_turn("variant", VARIANTS, kept=2)
def test_a_run_that_is_resumed_ends_as_it_would_have(variant: str, tmp_path: Path) -> None:
    """With the moments of every optimiser."""
    given = {**VARIANTS[variant], "learning_rate": 1e-3}  # a lambda would be pickled by value
    with new(**given) as model:
        model.learn(96)
        model.save_checkpoint(tmp_path / "run.zip")
        straight = model.learn(96, reset_num_timesteps=False).fingerprint()
    with SyncA2C.resume(tmp_path / "run.zip", **THREADS) as model:
        assert model.learn(96, reset_num_timesteps=False).fingerprint() == straight


def test_a_checkpoint_without_pickles(tmp_path: Path) -> None:
    with new("Pendulum-v1", use_sde=True) as model:
        model.learn(64)
        model.close()
        model.save_checkpoint(tmp_path / "run.zip")
    with SyncA2C.resume(tmp_path / "run.zip", allow_pickle=False) as again:
        assert again.fingerprint() == model.fingerprint() and again.use_sde


def test_save_and_load(tmp_path: Path) -> None:
    observations = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    with new(gamma=0.9, normalize_advantage=True) as model:
        model.learn(96)
        model.save(tmp_path / "model")
        actions = model.predict(observations, deterministic=True)[0]
    with SyncA2C.load(tmp_path / "model", env="CartPole-v1") as loaded:
        assert (loaded.gamma, loaded.num_timesteps, loaded.n_envs, loaded.normalize_advantage) == (0.9, 96, 4, True)
        assert loaded.policy.optimizer.state_dict()["state"][0]["step"] == 3
        loaded.learn(32, reset_num_timesteps=False)
        assert loaded.n_updates == 4 and loaded.fingerprint() != model.fingerprint()
    plain = A2C.load(tmp_path / "model", custom_objects={"env": None})
    assert np.array_equal(plain.predict(observations, deterministic=True)[0], actions)


def test_loaded_with_the_arguments_that_it_was_made_with(tmp_path: Path) -> None:
    """SB3's A2C writes into its ``policy_kwargs``, and compares them when it loads a model."""
    network = {"net_arch": [8]}
    new(policy_kwargs=network).save(tmp_path / "model")
    for given in (network, None):
        assert SyncA2C.load(tmp_path / "model", policy_kwargs=given).policy_kwargs["net_arch"] == [8]
    with pytest.raises(ValueError, match=r"^policy_kwargs must be those that the model was saved with, .*, got \{\}$"):
        SyncA2C.load(tmp_path / "model", policy_kwargs={})


def test_normalised_and_other_environments() -> None:
    with new(VecNormalize(make_vec_env("CartPole-v1", 4)), n_actors=None, envs_per_actor=None) as model:
        model.learn(64)
        assert model.get_vec_normalize_env().obs_rms.count > 60
        model.set_env(VecNormalize(make_vec_env("CartPole-v1", 4)))
        assert model.learn(64, reset_num_timesteps=False).num_timesteps == 128


# ---------------------------------------------------------------------- settings


class Sets(BaseCallback):
    """Changes a setting before the third round."""

    def __init__(self, name: str, value: Any) -> None:
        super().__init__()
        self.name, self.value, self.rounds = name, value, 0

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        self.rounds += 1
        if self.rounds == 3:
            setattr(self.model, self.name, self.value)


SETTINGS: dict[str, Any] = {
    "gamma": 0.3, "gae_lambda": 0.2, "ent_coef": 1.0, "vf_coef": 0.01, "max_grad_norm": 1e-3, "normalize_advantage": True,
    "lr_schedule": lambda _: 0.5,
}  # fmt: skip


@in_turn("name", SETTINGS, kept=3)
def test_a_changed_setting_counts(name: str) -> None:
    prints = []
    for value in (SETTINGS[name], None):
        with new() as model:
            model.learn(4 * 32, callback=Sets(name, getattr(model, name) if value is None else value))
            prints.append(model.fingerprint())
    assert prints[0] != prints[1]


def test_a_frozen_layer_stays() -> None:
    with new() as model:
        model.learn(64)
        model.policy.value_net.requires_grad_(False)
        before = deepcopy(model.policy.state_dict())
        model.learn(64, reset_num_timesteps=False)
        after = model.policy.state_dict()
        assert torch.equal(before["value_net.weight"], after["value_net.weight"])
        assert not torch.equal(before["action_net.weight"], after["action_net.weight"])


def test_rounds_have_one_length() -> None:
    with new() as model:
        model.learn(32)
        model.n_steps = 4
        with pytest.raises(ValueError, match=r"^n_steps was 8 when the run began, and is 4 now: .*close\(\)"):
            model.learn(32, reset_num_timesteps=False)
        model.close()
        assert model.learn(1, reset_num_timesteps=False).num_timesteps == 32 + 4 * 4


class Rich(Toy):
    """Pays more than can be squared."""

    def step(self, action: Any) -> Any:
        observation, _, *others = super().step(action)
        return observation, 1e30 if self.t == 3 else 0.0, *others


@pytest.mark.parametrize("variant", ["plain", "by autograd"])
def test_losses_that_are_no_numbers_end_it(variant: str) -> None:
    said = r"^loss is (nan|inf) in update 1, .*: environment 0 returned the reward 1e\+30 at step 2 of this round"
    with new(partial(Rich, rate=0.0), **VARIANTS[variant]) as model, pytest.raises(ValueError, match=said):
        model.learn(32)


# ---------------------------------------------------------------------- refusals


class Mine(RolloutBuffer):
    pass


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"rollout_buffer_class": Mine}, ValueError, "actors compute returns and advantages themselves"),
        ({"n_steps": 0}, ValueError, "n_steps must be a whole number from 1 on, got 0"),
        ({"rms_prop_eps": -1e-5}, ValueError, "rms_prop_eps must be a number from 0 on, got -1e-05"),
        ({"policy": BasePolicy}, TypeError, "SyncA2C needs a ActorCriticPolicy, got BasePolicy"),
        ({"n_envs": 8}, TypeError, "SyncA2C has no n_envs: .*n_actors=8"),
        ({"batch_size": 8}, TypeError, "batch_size"),
        ({"env": partial(Toy, BOX, spaces.Discrete(3, start=1))}, ValueError, "wrap the environment so that actions count from 0"),
    ],
)
def test_refusals(given: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        new(**given)


# ---------------------------------------------------------------------- it learns


@pytest.mark.slow
@pytest.mark.parametrize("envs", [1, 8])
def test_cartpole_is_learned(envs: int) -> None:
    with SyncA2C("MlpPolicy", "CartPole-v1", envs_per_actor=envs, seed=0, **INLINE) as model:
        model.learn(100_000)
        assert np.mean([episode["r"] for episode in model.ep_info_buffer]) > 200
