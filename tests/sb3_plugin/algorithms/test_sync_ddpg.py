"""SyncDDPG: SB3's updates, settings of now, and one result on any number of cores."""

from __future__ import annotations

import inspect
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from every_other import in_turn
from gymnasium import spaces
from stable_baselines3 import DDPG
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise
from trainers import BOX, BUFFERS, EVALUATED, INLINE, PROCESSES, SPACES, THREADS, Toy, outcome, same_draws

from reactor_sb3 import SyncTD3
from reactor_sb3.algorithms.sync_ddpg import SyncDDPG
from reactor_sb3.streams import Purpose, stream

Reach = partial(Toy, actions=spaces.Box(np.array([-3, 0], np.float32), np.array([1, 8], np.float32)))


def new(env: Any = Reach, policy: Any = "MlpPolicy", **changed: Any) -> SyncDDPG:
    given: dict[str, Any] = {
        "n_actors": 2, "train_freq": 8, "gradient_steps": 2, "buffer_size": 1000, "learning_starts": 32, "batch_size": 16,
        "learning_rate": 1e-3, "seed": 0, "policy_kwargs": {"net_arch": [16]}, **INLINE,
    }  # fmt: skip
    return SyncDDPG(policy, env, **{**given, **changed})


# ---------------------------------------------------------------------- the updates are SB3's

UPDATED: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("box", {}),
    "two critics": ("box", {"policy_kwargs": {"net_arch": [16], "n_critics": 2}}),
    "by autograd": ("box", {"policy_kwargs": {"net_arch": [16], "activation_fn": torch.nn.ELU}}),
    **{name: BUFFERS[name] for name in ("3 steps", "one array", "dict", "image")},
}


@pytest.mark.filterwarnings("ignore:`n_steps:UserWarning")  # SB3's, about loading
@in_turn("name", UPDATED, kept=3)
def test_updates_are_those_of_sb3(name: str, tmp_path: Path) -> None:
    """Given the sampled transitions, SB3's own ``train()`` ends with the same weights."""
    kind, given = UPDATED[name]
    policy, space = SPACES[kind]
    network = {"net_arch": [16], "features_extractor_kwargs": {"features_dim": 16}} if kind == "image" else {"net_arch": [16]}
    with new(partial(Reach, space), policy, **{"policy_kwargs": network, **given}) as ours:
        ours.learn(160)
        assert ours.n_updates > 0 and ours.nets.compiled == (name not in ("by autograd", "dict", "image"))
        ours.save(tmp_path / "model")
        theirs = DDPG.load(tmp_path / "model", device="cpu")
        theirs.replay_buffer, theirs._logger = ours.replay_buffer, ours.logger
        before = ours.fingerprint()
        for train in (ours.train, theirs.train):
            torch.manual_seed(3)
            with same_draws(ours, stream(7, Purpose.REPLAY)):
                train(7, 16)
        assert ours.fingerprint() != before and ours.n_updates == theirs._n_updates
        wanted = theirs.policy.state_dict()
        for parameter, one in ours.policy.state_dict().items():
            torch.testing.assert_close(one, wanted[parameter], rtol=1e-5, atol=1e-5)


def test_with_no_numbers_given_it_is_sb3s() -> None:
    """One environment, one critic, an update for each step, in which the actor learns too."""
    theirs = DDPG("MlpPolicy", "Pendulum-v1", seed=0, policy_kwargs={"net_arch": [8]}, device="cpu").learn(120)
    with SyncDDPG("MlpPolicy", "Pendulum-v1", seed=0, policy_kwargs={"net_arch": [8]}, **INLINE) as ours:
        ours.learn(120)
        assert (ours.n_envs, ours.num_timesteps, ours.n_updates) == (1, theirs.num_timesteps, theirs._n_updates) == (1, 120, 20)
        for name in ("policy_delay", "target_noise_clip", "target_policy_noise", "tau", "gamma", "batch_size"):
            assert getattr(ours, name) == getattr(theirs, name)
        assert len(ours.policy.critic.q_networks) == len(theirs.policy.critic.q_networks) == 1
    assert isinstance(ours, SyncTD3) and isinstance(ours, DDPG)
    names = list(inspect.signature(DDPG).parameters)
    assert list(inspect.signature(SyncDDPG).parameters)[: len(names)] == names


# ---------------------------------------------------------------------- one result

PLACES = [THREADS, pytest.param(PROCESSES, marks=pytest.mark.slow)]
NOISE = OrnsteinUhlenbeckActionNoise(np.zeros(2), np.full(2, 0.3))


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES, ids=lambda place: str(place["executor"]))
@in_turn("given", [{}, {"pipeline": 1}, {"n_learners": 2}, {"split": True, "pipeline": 1}, {"n_steps": 3}], kept=1, ids=str)
def test_one_result(given: dict[str, Any], place: dict[str, Any]) -> None:
    found = []
    for where in (INLINE, place):
        with new(action_noise=NOISE, **given, **EVALUATED, **where) as model:
            found.append(outcome(model.learn(256)))
    assert found[0] == found[1]
    assert found[0]["evaluations"] and found[0]["counters"][2] > 8


@in_turn("given", [{}, {"split": True}, {"n_steps": 3}], kept=1, ids=str)
def test_a_run_that_is_resumed_ends_as_it_would_have(given: dict[str, Any], tmp_path: Path) -> None:
    with new(action_noise=NOISE, **given) as model:
        model.learn(96)
        model.save_checkpoint(tmp_path / "run.zip")
        straight = model.learn(96, reset_num_timesteps=False).fingerprint()
    with SyncDDPG.resume(tmp_path / "run.zip", **THREADS) as model:
        assert len(model.policy.critic.q_networks) == 1
        assert model.learn(96, reset_num_timesteps=False).fingerprint() == straight


def test_a_checkpoint_without_pickles(tmp_path: Path) -> None:
    """Its policy has the one critic that the arguments do not name."""
    with new("Pendulum-v1") as model:
        model.learn(96)
        model.close()
        model.save_checkpoint(tmp_path / "run.zip")
    with SyncDDPG.resume(tmp_path / "run.zip", allow_pickle=False) as again:
        assert again.fingerprint() == model.fingerprint()


def test_save_and_load(tmp_path: Path) -> None:
    observations = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    with new() as model:
        model.learn(96)
        model.save(tmp_path / "model")
        actions = model.predict(observations, deterministic=True)[0]
    with SyncDDPG.load(tmp_path / "model", env=Reach) as loaded:
        assert (loaded.num_timesteps, loaded.n_envs) == (96, 2)
        loaded.learn(64, reset_num_timesteps=False)
        assert loaded.n_updates > model.n_updates and loaded.fingerprint() != model.fingerprint()
    plain = DDPG.load(tmp_path / "model", custom_objects={"env": None})
    assert np.array_equal(plain.predict(observations, deterministic=True)[0], actions)


# ---------------------------------------------------------------------- settings


class Sets(BaseCallback):
    """Changes a setting before the fifth round."""

    def __init__(self, name: str, value: Any) -> None:
        super().__init__()
        self.name, self.value, self.rounds = name, value, 0

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        self.rounds += 1
        if self.rounds == 5:
            setattr(self.model, self.name, self.value)


SETTINGS: dict[str, Any] = {
    "gamma": 0.3, "tau": 0.5, "batch_size": 8, "gradient_steps": 1, "learning_starts": 10**6, "lr_schedule": lambda _: 0.5,
    "policy_delay": 2, "target_noise_clip": 0.5, "action_noise": NormalActionNoise(np.full(2, 5.0), np.zeros(2)),
}  # fmt: skip


@in_turn("name", SETTINGS, kept=3)
def test_a_changed_setting_counts(name: str) -> None:
    prints = []
    for changes in (True, False):
        with new() as model:
            model.learn(160, callback=Sets(name, deepcopy(SETTINGS[name]) if changes else getattr(model, name)))
            prints.append(model.fingerprint())
    assert prints[0] != prints[1]


# ---------------------------------------------------------------------- refusals

GOALS = spaces.Dict(observation=BOX, achieved_goal=BOX, desired_goal=BOX)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"action_noise": 3}, TypeError, "action_noise=3 must be an ActionNoise"),
        ({"train_freq": (1, "episode")}, ValueError, "train_freq in episodes"),
        ({"policy_delay": 2}, TypeError, "policy_delay"),
        ({"env": partial(Toy, BOX, spaces.Discrete(3))}, AssertionError, "only supports"),
        ({"actor_device": "meta"}, ValueError, "delayed variant of DDPG: pass split=True"),
        ({"learning_starts": 2000}, ValueError, "learning_starts=2000 is beyond what buffer_size=1000 can hold"),
    ],
)
def test_refusals(given: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        new(**given)


# ---------------------------------------------------------------------- it learns


@pytest.mark.slow
def test_pendulum_is_learned() -> None:
    noise = NormalActionNoise(np.zeros(1), np.full(1, 0.3))
    with SyncDDPG(
        "MlpPolicy", "Pendulum-v1", batch_size=128, learning_starts=600, seed=0, buffer_size=10_000, gamma=0.98,
        policy_kwargs={"net_arch": [64, 64]}, learning_rate=1e-3, action_noise=noise, **INLINE,
    ) as model:  # fmt: skip
        model.learn(10_000)
        assert np.mean([episode["r"] for episode in [*model.ep_info_buffer][-10:]]) > -400
