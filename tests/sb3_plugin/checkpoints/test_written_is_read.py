"""What a checkpoint is written of can be read again, or nothing is written: one set of templates is for both."""

from __future__ import annotations

import inspect
import math
import threading
from collections import OrderedDict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from contrib_trainers import CONTRIB, EVERY, every, make_any
from every_other import in_turn
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.type_aliases import TrainFreq, TrainFrequencyUnit
from stable_baselines3.common.vec_env import VecNormalize
from trainers import ALGORITHMS, INLINE, Toy, new

from reactor_sb3 import ReactorVecEnv, SaveCheckpoint, SaveRun, resume_run


def resumed(model: Any, path: Path) -> None:
    """Save, train on; resume, train on: the weights are the same."""
    model.save_checkpoint(path)
    with model:
        expected = model.learn(32, reset_num_timesteps=False).fingerprint()
    with type(model).resume(path, **INLINE) as again:
        assert again.learn(32, reset_num_timesteps=False).fingerprint() == expected


# ---------------------------------------------------------------------- seeds and numbers

BOUNDS = [2**62 - 1, 2**62, 2**63 - 1, 0x9E3779B97F4A7C15]


@in_turn("algorithm, entropy", [(name, BOUNDS[at % len(BOUNDS)]) for at, name in enumerate(sorted(EVERY))], kept=4)
def test_without_a_seed(algorithm: str, entropy: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever is drawn: one of the bounds for each algorithm, since all draw it in one place."""

    class Drawn(np.random.SeedSequence):
        def __init__(self, entropy: Any = None, **more: Any) -> None:
            super().__init__(drawn if entropy is None else entropy, **more)

    drawn = entropy
    monkeypatch.setattr(np.random, "SeedSequence", Drawn)
    resumed(make_any(algorithm, seed=None, n_actors=2).learn(32), tmp_path / "run.zip")


SEEDS = [0, 2**31, 2**32 - 1]


@pytest.mark.parametrize(("algorithm", "seed"), [(name, SEEDS[at % len(SEEDS)]) for at, name in enumerate(sorted(EVERY))])
def test_with_a_seed(algorithm: str, seed: int, tmp_path: Path) -> None:
    make_any(algorithm, seed=seed, n_actors=2).save_checkpoint(tmp_path / "run.zip")
    EVERY[algorithm].resume(tmp_path / "run.zip", **INLINE).close()


KINDS: dict[str, tuple[Any, Any]] = {
    "64 bits": (np.int64, np.float64),
    "32 bits": (np.uint32, np.float32),
    "arrays": (np.array, np.array),
}


@every
@pytest.mark.parametrize("kind", KINDS)
def test_numbers_of_numpys_as_arguments(algorithm: str, kind: str, tmp_path: Path) -> None:
    whole, real = KINDS[kind]

    def of_numpy(value: Any) -> Any:
        if isinstance(value, (bool, str)):
            return np.bool_(value) if isinstance(value, bool) else np.str_(value)
        if isinstance(value, int):
            return np.int32(value) if value < 0 else whole(value)
        return real(value) if isinstance(value, float) else value

    row = CONTRIB.get(algorithm)
    usual = ALGORITHMS[algorithm][1] if row is None else row.settings
    kept = ("policy", "env", "_init_setup_model", "device", "executor", "verbose")
    arguments = {
        name: usual.get(name, one.default)
        for name, one in inspect.signature(EVERY[algorithm]).parameters.items()
        if name not in kept
    }
    network = {**({} if row is None else row.network), "net_arch": [8]}
    if algorithm not in ("crossq", "ars"):
        network["optimizer_kwargs"] = {"eps": 2.0**-10}
    given = {**arguments, **({"gamma": 0.75} if "gamma" in arguments else {}), "seed": 3, "n_actors": 2, "policy_kwargs": network}
    plain = make_any(algorithm, **given)
    network = {name: np.array(value) if name == "net_arch" else of_numpy(value) for name, value in network.items()}
    changed = {name: of_numpy(value) for name, value in given.items()} | {"policy_kwargs": network}
    model = make_any(algorithm, **changed)
    with plain:
        assert model.learn(whole(64)).fingerprint() == plain.learn(64).fingerprint() or kind == "32 bits"  # 0.1, say, is another
    resumed(model, tmp_path / "run.zip")


CHANGED: list[tuple[str, str, Any]] = [
    ("dqn", "gamma", np.float32(0.5)), ("dqn", "batch_size", np.int64(8)), ("dqn", "tau", np.array(0.5)),
    ("dqn", "learning_starts", np.uint8(3)), ("sac", "target_update_interval", np.int64(3)), ("td3", "policy_delay", np.int32(1)),
    ("ppo", "ent_coef", np.float32(0.1)), ("ppo", "vf_coef", np.float16(0.5)), ("ppo", "n_epochs", np.int64(1)),
    ("ppo", "normalize_advantage", np.bool_(False)), ("ppo", "clip_range", lambda left: np.float32(0.1)),
    ("ppo", "lr_schedule", lambda left: 1e-2 * left), ("ppo", "learning_rate", 1e-2), ("pqn", "max_grad_norm", np.float64(0.1)),
]  # fmt: skip


@in_turn("algorithm, name, value", CHANGED, kept=4, ids=[f"{one} {name}" for one, name, _ in CHANGED])
def test_attributes_that_were_changed(algorithm: str, name: str, value: Any, tmp_path: Path) -> None:
    model = new(algorithm, n_actors=2)
    setattr(model, name, value)
    resumed(model.learn(64), tmp_path / "run.zip")


# ---------------------------------------------------------------------- what else there may be

OPTIMIZERS = [
    "Adam", "AdamW", "SGD", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop", "Adafactor",
]  # fmt: skip


@in_turn("name", [one for one in OPTIMIZERS if hasattr(torch.optim, one)], kept=3)
def test_optimizers_of_torchs(name: str, tmp_path: Path) -> None:
    network = {"net_arch": [8], "optimizer_class": getattr(torch.optim, name)}
    resumed(new("ppo", n_actors=2, policy_kwargs=network).learn(64), tmp_path / "run.zip")


class Factored(torch.optim.SGD):
    """Remembers something of another shape than the parameter's."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["sum"] = self.state[parameter].get("sum", 0) + parameter.detach().sum()
        return super().step(closure)


def test_an_optimizer_of_your_own(tmp_path: Path) -> None:
    network = {"net_arch": [8], "optimizer_class": Factored}
    resumed(new("ppo", n_actors=2, policy_kwargs=network).learn(64), tmp_path / "run.zip")


class Huge(Toy):
    """Returns that are larger than any whole number of usual size."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, _, *others = super().step(action)
        return observation, 1e25, *others


class Recorded(Toy):
    """Tells of episodes in numbers of numpy's, and of a success that it does not know of."""

    def info(self) -> dict[str, Any]:
        return {"is_success": float("nan"), "episode": {"r": np.array([1.5], np.float32), "l": np.int64(3), "t": np.float64(1)}}


@pytest.mark.parametrize("env", [Huge, Recorded])
def test_episodes(env: Any, tmp_path: Path) -> None:
    # Nothing is learned from such rewards: losses would not be finite.
    resumed(new("dqn", env, learning_starts=10_000, n_actors=2).learn(64), tmp_path / "run.zip")


class Bounded(Toy):
    """Cannot be pickled, and has bounds that a reckoned action may miss by a last bit."""

    def __init__(self) -> None:
        super().__init__(actions=spaces.Box(np.float32(-0.1), np.float32(0.3), (40,), np.float32), length=60, rate=0.01)
        self.lock = threading.Lock()


@pytest.mark.parametrize("algorithm", ["sac", "td3"])
def test_actions_at_their_bounds(algorithm: str, tmp_path: Path) -> None:
    resumed(new(algorithm, Bounded, **{"action_noise": None} if algorithm == "td3" else {}).learn(256), tmp_path / "run.zip")


def test_a_training_without_an_end(tmp_path: Path) -> None:
    model = new("pqn").learn(math.inf, callback=lambda local, _: local["self"].num_timesteps < 64)
    model.save_checkpoint(tmp_path / "run.zip")
    model.close()
    assert type(model).resume(tmp_path / "run.zip", **INLINE).remaining_timesteps == math.inf


def test_limits_that_are_none(tmp_path: Path) -> None:
    env = VecNormalize(make_vec_env("CartPole-v1", 2), clip_obs=np.inf, clip_reward=np.float32(5), gamma=np.float32(0.5))
    resumed(new("ppo", env, n_actors=None, max_grad_norm=math.inf, target_kl=math.inf).learn(32), tmp_path / "run.zip")


def test_arguments_of_classes_that_are_like_pythons(tmp_path: Path) -> None:
    rounds = TrainFreq(4, TrainFrequencyUnit.STEP)
    model = new("dqn", train_freq=rounds, policy_kwargs=OrderedDict(net_arch=[8]), n_actors=2)
    resumed(model.learn(32), tmp_path / "run.zip")


class Keys(torch.nn.Module):
    """The features of observations as they are, of any arguments."""

    def __init__(self, space: Any, given: Any) -> None:
        super().__init__()
        self.features_dim, self.given = space.shape[0], given

    def forward(self, observations: Any) -> Any:
        return observations


def test_keys_that_look_alike(tmp_path: Path) -> None:
    given = {1: np.zeros(2), "1": np.ones(2), "a.b": np.full(2, 2.0), "a": {"b": np.full(2, 3.0)}, "empty": np.zeros(0)}
    network = {"features_extractor_class": Keys, "features_extractor_kwargs": {"given": given}}
    new("ppo", policy_kwargs=network).save_checkpoint(tmp_path / "run.zip")
    again = ALGORITHMS["ppo"][0].resume(tmp_path / "run.zip", **INLINE).policy.features_extractor.given
    assert [part.tolist() for part in (again[1], again["1"], again["a.b"], again["a"]["b"], again["empty"])] == [
        [0, 0], [1, 1], [2, 2], [3, 3], []
    ]  # fmt: skip


def test_runs_of_sb3s_own(tmp_path: Path) -> None:
    env = make_vec_env("CartPole-v1", 2, seed=0, vec_env_cls=ReactorVecEnv)
    arguments = {"n_steps": np.int64(16), "batch_size": np.int64(16), "n_epochs": np.int32(1), "gamma": np.float32(0.5)}
    model = PPO("MlpPolicy", env, seed=0, device="cpu", **arguments)  # type: ignore[arg-type]
    model.learn(np.int64(64), callback=SaveRun(tmp_path / "run.zip", every=32))
    env.close()
    with resume_run(tmp_path / "run.zip", executor="inline") as run:
        assert run.learn().num_timesteps == 64
        assert all(map(torch.equal, run.model.policy.state_dict().values(), model.policy.state_dict().values()))


# ---------------------------------------------------------------------- what nobody could read


def other_optimizer(model: Any) -> None:
    model.policy.optimizer = torch.optim.SGD(model.policy.parameters(), lr=0.1)


def other_head(model: Any) -> None:
    model.policy.q_net.q_net = torch.nn.Sequential(torch.nn.Linear(4, 2))


def other_buffer(model: Any) -> None:
    model.replay_buffer = ReplayBuffer(80, model.observation_space, model.action_space, n_envs=4, device="cpu")


def other_kind(model: Any, name: str, value: Any) -> None:
    setattr(model, name, value)


UNREADABLE: list[tuple[Any, str]] = [
    (partial(other_kind, name="gamma", value=torch.tensor(0.5)), r"gamma must be a number, got tensor\(0\.5000\)"),
    (partial(other_kind, name="gamma", value="0.5"), "gamma must be a number, got '0.5'"),
    (partial(other_kind, name="gamma", value=math.nan), "gamma must be a number, got nan"),
    (partial(other_kind, name="max_grad_norm", value=lambda left: left), "max_grad_norm must be a number, got <function"),
    (
        partial(other_kind, name="batch_size", value=np.array([8, 8])),
        r"batch_size must be a number, got an int64 array of shape \(2,\)",
    ),
    (partial(other_kind, name="batch_size", value=2**62), "batch_size must be a whole number .*, got 4611686018427387904"),
    (partial(other_kind, name="num_timesteps", value=-3), "state.counters.num_timesteps must be a whole number from 0 on, got -3"),
    (
        partial(other_kind, name="_n_updates", value="many"),
        "state.counters._n_updates must be a whole number from 0 on, got 'many'",
    ),
    (other_optimizer, "the optimizer of q_net is replaced"),
    (other_head, r"q_net\.q_net\.0 is replaced"),
    (other_buffer, "state.replay_buffer.size must be [0-9]+, got 20"),
]


@in_turn("change, said", UNREADABLE, kept=5, ids=[said for _, said in UNREADABLE])
def test_what_could_not_be_read_is_not_written(change: Any, said: str, tmp_path: Path) -> None:
    path = tmp_path / "run.zip"
    with new("dqn") as model:
        model.learn(128).save_checkpoint(path)
        before = path.read_bytes()
        change(model)
        unreadable = rf"^a checkpoint of this SyncDQN could not be read again: {said}.*\. Nothing was written$"
        with pytest.raises((TypeError, ValueError), match=rf"{unreadable}|^the policy is no longer as .* makes it \({said}"):
            model.save_checkpoint(path)
    assert path.read_bytes() == before and [one.name for one in tmp_path.iterdir()] == ["run.zip"]


def test_a_callback_says_so_too(tmp_path: Path) -> None:
    with new("dqn") as model:
        model.gamma = "0.5"
        with pytest.raises(TypeError, match=r"gamma must be a number, got '0\.5'"):
            model.learn(64, callback=SaveCheckpoint(tmp_path / "run.zip", every=1))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["learner_threads", "n_learners"])
def test_more_threads_than_a_file_may_ask_for(name: str) -> None:
    with pytest.raises(ValueError, match=f"`{name}` must be at most 1024, got 1025"):
        new("dqn", **{name: 1025})
