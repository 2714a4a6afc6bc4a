"""SyncPPO: SB3's updates, SB3's view of a rollout, one result on any number of cores, and exact checkpoints."""

from __future__ import annotations

import copy
import csv
import inspect
import threading
from functools import cache, partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest
import torch
from every_other import every_other, in_turn
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import configure
from stable_baselines3.common.policies import ActorCriticPolicy
from torch import nn
from trainers import BOX, INLINE, PLACES, SPACES, Grainy, Toy

from reactor_sb3 import SaveCheckpoint, SyncPPO
from reactor_sb3.acting.forwards import copied
from reactor_torch import AskedNet, DenseNet, ImageNet, TorchNet, kernels

Array = npt.NDArray[Any]
ACTIONS: dict[str, gymnasium.Space[Any]] = {
    "discrete": spaces.Discrete(3),
    "several": spaces.MultiDiscrete([2, 3, 4]),
    "binary": spaces.MultiBinary(3),
    "box": spaces.Box(np.array([-0.5, -2], np.float32), np.array([0.5, 1], np.float32)),
    "matrix": spaces.Box(-1, 1, (2, 2), np.float64),
}


def new(env: Any = "CartPole-v1", policy: Any = "MlpPolicy", **changed: Any) -> SyncPPO:
    network: dict[str, Any] = {"net_arch": [16]}
    if policy == "CnnPolicy":
        network = {"net_arch": [], "features_extractor_kwargs": {"features_dim": 16}}
    given = {"n_actors": 4, "n_steps": 16, "batch_size": 16, "n_epochs": 2, "seed": 0, "policy_kwargs": network}
    return SyncPPO(policy, env, **{**given, **INLINE, **changed})


def outcome(model: SyncPPO) -> dict[str, Any]:
    return {
        "weights": model.fingerprint(),
        "evaluations": [(one.timesteps, one.returns, one.lengths) for one in model.evaluations],
        "counters": (model.num_timesteps, model.n_episodes, model.n_updates),
        "episodes": [(info["r"], info["l"]) for info in model.ep_info_buffer or ()],
    }


class Watched(SyncPPO):
    """Keeps what there was before and after each round's updates."""

    rounds: list[dict[str, Any]]

    def begin_updates(self) -> None:
        self.found: dict[str, Any] = {
            "before": copied(self.policy, {}), "buffer": copy.deepcopy(self.rollout_buffer),
            "stream": copy.deepcopy(self.session.streams["minibatches"]), "progress": self._current_progress_remaining,
            "updates": self._n_updates,
        }  # fmt: skip
        super().begin_updates()

    def log_round(self, passes: Any) -> None:
        super().log_round(passes)
        self.found |= {"after": copied(self.policy, {}), "told": dict(self.logger.name_to_value)}
        self.rounds = [*getattr(self, "rounds", []), self.found]


def watched(env: Any, policy: Any = "MlpPolicy", **changed: Any) -> Watched:
    model = Watched(policy, env, **{"n_actors": 2, "envs_per_actor": 2, "n_steps": 32, "batch_size": 32, "n_epochs": 2, "seed": 3,
                                    "learning_rate": 1e-3, **INLINE, **changed})  # fmt: skip
    with model:
        model.learn(2 * 32 * 4)
    return model


# ---------------------------------------------------------------------- the updates are SB3's

PARTS = spaces.Dict(place=spaces.Box(-1, 1, (2, 2), np.float64), vector=BOX)
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "parts": {"policy": "MultiInputPolicy"},
    "clipped values": {"clip_range_vf": 0.1, "ent_coef": 0.01, "normalize_advantage": False},
    "a rest": {"batch_size": 50, "ent_coef": 0.01, "clip_range": lambda remaining: 0.1 + 0.1 * remaining},
    "few updates": {"target_kl": 1e-5, "learning_rate": 3e-2},
}


def sb3_with(model: Watched, number: int) -> PPO:
    """SB3's own algorithm as ours was before a round's updates."""
    found = model.rounds[number]
    names = inspect.signature(PPO.__init__).parameters
    other = PPO(env=model.get_env(), **{name: value for name, value in model.arguments.items() if name in names})
    other.policy.load_state_dict(found["before"].state_dict())
    other.policy.optimizer.load_state_dict(found["before"].optimizer.state_dict())
    other.rollout_buffer = copy.deepcopy(found["buffer"])
    other.set_logger(configure(None, []))
    other._current_progress_remaining, other._n_updates = found["progress"], found["updates"]
    return other


@pytest.mark.filterwarnings("ignore:You have specified a mini-batch size")
@every_other(acted=ACTIONS, variant=VARIANTS)
def test_updates_are_those_of_sb3(acted: str, variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given the rollout and the order, SB3's own ``train()`` ends with the same weights and logs the same."""
    model = watched(partial(Toy, PARTS if variant == "parts" else BOX, ACTIONS[acted]), **VARIANTS[variant])
    assert model.nets.compiled == (kernels.compiled is not None)
    for number in (0, 1):
        other, found = sb3_with(model, number), model.rounds[number]
        monkeypatch.setattr(np.random, "permutation", found["stream"].permutation)
        other.train()
        monkeypatch.undo()
        told = found["told"]
        for name, weights in other.policy.state_dict().items():
            torch.testing.assert_close(found["after"].state_dict()[name], weights, rtol=1e-5, atol=1e-5)
        told_by_sb3 = other.logger.name_to_value
        assert {name for name in told if name.startswith("train/")} == {name for name in told_by_sb3 if name.startswith("train/")}
        for name in told_by_sb3:
            assert told[name] == pytest.approx(told_by_sb3[name], rel=1e-3, abs=1e-5), name
    if variant == "few updates":
        assert len(model.rounds) == 2 and model.n_updates < 2 * model.n_epochs


# ---------------------------------------------------------------------- a rollout is SB3's


class Doubtful(ActorCriticPolicy):
    """A ``forward`` of its own: acts at random half of the time."""

    def forward(self, obs: Any, deterministic: bool = False) -> Any:
        actions, values, _ = super().forward(obs, deterministic)
        actions = torch.where(torch.rand(len(actions)) < 0.5, actions, torch.randint(3, (len(actions),)))
        return actions, values, self.evaluate_actions(obs, actions)[1]


POLICIES: dict[str, tuple[type[Any], Any, dict[str, Any]]] = {
    # By what it is to be evaluated, and what it takes.
    "dense": (DenseNet, "MlpPolicy", {}),
    "two kinds": (DenseNet, "MlpPolicy", {"net_arch": {"pi": [8], "vf": [32, 16]}, "activation_fn": nn.ReLU}),
    "no layers": (DenseNet, "MlpPolicy", {"net_arch": []}),
    "parts": (DenseNet, "MultiInputPolicy", {}),
    "torch": (TorchNet, "MlpPolicy", {"activation_fn": nn.ELU, "share_features_extractor": False}),
    "its own": (AskedNet, Doubtful, {}),
    "images": (
        TorchNet if kernels.compiled is None else ImageNet, "CnnPolicy",
        {"features_extractor_kwargs": {"features_dim": 33}, "net_arch": {"pi": [8], "vf": [16]}},
    ),
}  # fmt: skip


def round_of(model: SyncPPO) -> Array:
    """What the actors have written into the last round."""
    run = model.start()
    return np.array(run.transitions)


def check_round(model: SyncPPO, before: ActorCriticPolicy) -> None:
    """Values, probabilities and advantages are those that SB3 would have put into its buffer."""
    found = round_of(model)
    layout = model.session.layout
    tensors = {key: torch.from_numpy(np.array(part)) for key, part in layout.of(found, "observations").items()}
    nexts = {key: torch.from_numpy(np.array(part)) for key, part in layout.of(found, "next_observations").items()}
    drawn = torch.from_numpy(found["policy_actions" if "policy_actions" in (found.dtype.names or ()) else "actions"]).flatten(0, 2)
    drawn = drawn if isinstance(model.action_space, spaces.Discrete) else drawn.flatten(1).float()

    def flat(of: dict[str, torch.Tensor]) -> Any:
        return layout.outside({key: rows.flatten(0, 2) for key, rows in of.items()})

    with torch.no_grad():
        values, log_probs, _ = before.evaluate_actions(flat(tensors), drawn)
        following = before.predict_values(flat(nexts)).numpy().reshape(found["values"].shape)
    np.testing.assert_allclose(found["values"].ravel(), values.numpy().ravel(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["log_probs"].ravel(), log_probs.numpy(), rtol=1e-4, atol=1e-5)
    buffer = RolloutBuffer(
        model.n_steps, BOX, model.action_space, gamma=model.gamma, gae_lambda=model.gae_lambda, n_envs=model.n_envs
    )
    rewards, dones, values, following = (
        np.moveaxis(part, 0, 1).reshape(model.n_steps, -1)
        for part in (found["rewards"] + model.gamma * following * found["timeouts"], found["dones"], found["values"], following)
    )
    buffer.rewards, buffer.values = rewards, values
    buffer.episode_starts[1:] = dones[:-1]
    buffer.compute_returns_and_advantage(torch.from_numpy(following[-1]), dones[-1])
    ours = np.moveaxis(found["advantages"], 0, 1).reshape(model.n_steps, -1)
    np.testing.assert_allclose(ours, buffer.advantages, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(model.rollout_buffer.advantages, ours)
    np.testing.assert_allclose(model.rollout_buffer.returns, ours + values, rtol=1e-6)
    assert found["timeouts"].any() and (found["dones"] & ~found["timeouts"]).any()


@pytest.mark.parametrize("name", POLICIES)
def test_what_actors_compute(name: str) -> None:
    kind, policy, network = POLICIES[name]
    space = {"CnnPolicy": SPACES["image"][1], "MultiInputPolicy": PARTS}.get(policy, BOX)
    with new(partial(Toy, space), policy, policy_kwargs=network, n_actors=2, envs_per_actor=3) as model:
        assert type(model.acting()[1].policy.network) is kind
        before = copied(model.policy, {})
        model.learn(1)
        check_round(model, before)


# ---------------------------------------------------------------------- one result

EVALUATED: dict[str, Any] = {"evaluate_every": 2, "evaluate_episodes": 2, "evaluate_steps": 40}


@cache
def alone(pipeline: int, seed: int = 0) -> dict[str, Any]:
    with new(pipeline=pipeline, seed=seed, **EVALUATED) as model:
        return outcome(model.learn(640))


@pytest.mark.parametrize("place", PLACES, ids=lambda place: "-".join(map(str, place.values())))
@in_turn("pipeline", [0, 1], kept=1)
def test_one_result(pipeline: int, place: dict[str, Any]) -> None:
    with new(pipeline=pipeline, **EVALUATED, **place) as model:
        assert outcome(model.learn(640)) == alone(pipeline)
    assert len(alone(pipeline)["evaluations"]) >= 2 and len(alone(pipeline)["episodes"]) > 10


@pytest.mark.slow
def test_other_seeds_and_pipelines_give_other_results() -> None:
    assert len({alone(pipeline, seed)["weights"] for pipeline in (0, 1) for seed in (0, 1)}) == 4


OTHERS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "image": (partial(Toy, SPACES["image"][1]), "CnnPolicy", {}),
    "dict": (partial(Toy, SPACES["dict"][1], ACTIONS["several"]), "MultiInputPolicy", {}),
    "parts": (partial(Toy, PARTS), "MultiInputPolicy", {}),
    "its own": (Toy, Doubtful, {}),
    "noise": (partial(Toy, BOX, ACTIONS["box"]), "MlpPolicy", {"use_sde": True, "sde_sample_freq": 4}),
    "squashed": (partial(Toy, BOX, ACTIONS["box"]), "MlpPolicy", {"use_sde": True, "policy_kwargs": {"squash_output": True}}),
    "grainy": ("CartPole-v1", "MlpPolicy", {"policy_kwargs": {"features_extractor_class": Grainy}}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_one_result_of_other_policies(name: str) -> None:
    env, policy, given = OTHERS[name]
    found = []
    for place in PLACES:
        with new(env, policy, pipeline=1, n_actors=3, envs_per_actor=2, **given, **EVALUATED, **place) as model:
            found.append(outcome(model.learn(300)))
    assert found[0]["evaluations"] and all(one == found[0] for one in found)


# ---------------------------------------------------------------------- checkpoints


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dense", *OTHERS])
def test_resumed_is_uninterrupted(name: str, tmp_path: Path) -> None:
    env, policy, given = OTHERS.get(name, ("CartPole-v1", "MlpPolicy", {}))
    with new(env, policy, pipeline=1, **given, **EVALUATED) as model:
        expected = outcome(model.learn(640, callback=SaveCheckpoint(tmp_path / "run.zip", every=4)))
    with SyncPPO.resume(tmp_path / "run.zip", executor="processes", workers=2) as model:
        assert model.num_timesteps == 512
        assert outcome(model.learn(model.remaining_timesteps, reset_num_timesteps=False)) == expected


class Unsaved(Toy):
    """Holds what nobody can pickle, so that it is replayed."""

    def __init__(self) -> None:
        super().__init__(actions=ACTIONS["matrix"])
        self.lock = threading.Lock()


def test_replayed_actions_are_those_that_the_environment_got(tmp_path: Path) -> None:
    with new(Unsaved, n_steps=5, batch_size=10) as model:
        expected = outcome(model.learn(80, callback=SaveCheckpoint(tmp_path / "run.zip", every=3)))
    with SyncPPO.resume(tmp_path / "run.zip") as model:
        assert outcome(model.learn(model.remaining_timesteps, reset_num_timesteps=False)) == expected


def test_a_checkpoint_without_pickles(tmp_path: Path) -> None:
    with new("Pendulum-v1", use_sde=True, n_steps=32) as model:
        model.learn(128)
        model.close()
        model.save_checkpoint(tmp_path / "run.zip")
    with SyncPPO.resume(tmp_path / "run.zip", allow_pickle=False) as again:
        assert again.fingerprint() == model.fingerprint() and again.use_sde


# ---------------------------------------------------------------------- what SB3 promises


@pytest.mark.slow
def test_a_second_model_made_after_learning_can_start_again() -> None:
    """What a distribution remembers of the last minibatch is no obstacle to copies of the policy."""
    with new(executor="auto", pipeline=1, workers=2) as model:
        model.learn(64)
        model.close()
        assert model.learn(64).num_timesteps == 64


class Mine(RolloutBuffer):
    pass


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"rollout_buffer_class": Mine}, ValueError, "actors compute returns and advantages themselves"),
        ({"rollout_buffer_kwargs": {"gamma": 1}}, ValueError, "leave rollout_buffer_class= and rollout_buffer_kwargs= out"),
        ({"env": partial(Toy, BOX, spaces.Discrete(3, start=1))}, ValueError, "wrap the environment so that actions count from 0"),
        ({"env": partial(Toy, BOX, spaces.MultiDiscrete([2, 2], start=[0, 1]))}, ValueError, "counts from"),
    ],
)
def test_refusals(given: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        new(**given)


class Looking(BaseCallback):
    """Notes what SB3's loop has, and records a number after each round."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[dict[str, Any]] = []
        self.rounds: list[dict[str, Any]] = []

    def _on_step(self) -> bool:
        names = ("actions", "clipped_actions", "values", "log_probs", "n_steps")
        self.steps.append({name: copy.deepcopy(self.locals[name]) for name in names})
        return True

    def _on_rollout_end(self) -> None:
        buffer = self.locals["rollout_buffer"]
        self.rounds.append({name: getattr(buffer, name).copy() for name in ("actions", "values", "log_probs")})
        self.logger.record("my/rounds", len(self.rounds))


def test_callbacks_find_what_the_policy_has_said(tmp_path: Path) -> None:
    box = ACTIONS["box"]
    with new(partial(Toy, actions=box)) as model:
        model.set_logger(configure(str(tmp_path), ["csv"]))
        model.learn(3 * 64, callback=(looking := Looking()), log_interval=1)
        model.logger.close()
    assert len(looking.steps) == 3 * 16 and len(looking.rounds) == 3
    for number, step in enumerate(looking.steps):
        of_round = {name: part[number % 16] for name, part in looking.rounds[number // 16].items()}
        assert step["n_steps"] == number % 16 and np.array_equal(step["actions"], of_round["actions"])
        assert np.array_equal(step["clipped_actions"], np.clip(step["actions"], box.low, box.high))  # type: ignore[attr-defined]
        assert step["values"].shape == (4, 1) and step["log_probs"].shape == (4,)
        assert np.array_equal(step["values"][:, 0], of_round["values"]) and np.array_equal(step["log_probs"], of_round["log_probs"])
    assert any((step["actions"] != step["clipped_actions"]).any() for step in looking.steps)
    logged = [row["my/rounds"] for row in csv.DictReader((tmp_path / "progress.csv").read_text().splitlines())]
    assert logged == ["1", "2", "3"]


def test_save_load_and_predict(tmp_path: Path) -> None:
    observations = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    with new(gamma=0.9) as model:
        model.learn(128)
        model.save(tmp_path / "model")
        actions = model.predict(observations, deterministic=True)[0]
    with SyncPPO.load(tmp_path / "model", env="CartPole-v1") as loaded:
        assert (loaded.gamma, loaded.num_timesteps, loaded.n_envs) == (0.9, 128, 4)
        assert np.array_equal(loaded.predict(observations, deterministic=True)[0], actions)
        loaded.learn(64, reset_num_timesteps=False)
        assert loaded.num_timesteps == 192 and loaded.fingerprint() != model.fingerprint()
    plain = PPO.load(tmp_path / "model", custom_objects={"env": None})
    assert np.array_equal(plain.predict(observations, deterministic=True)[0], actions)
