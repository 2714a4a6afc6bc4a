"""``evaluate`` of models of Stable-Baselines3 and modules of torch."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from every_other import in_turn
from gymnasium import spaces
from sb3_contrib import QRDQN, RecurrentPPO
from stable_baselines3 import DQN, PPO, SAC, TD3
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import VecNormalize
from torch import nn

from reactor_gymnasium import evaluate
from reactor_rl import RecoveryWarning
from reactor_sb3 import PQN, ReactorEvalCallback, SyncDQN, SyncQRDQN, SyncRecurrentPPO


class Pairs(gymnasium.Env[dict[str, Any], np.int64]):
    """Dict observations."""

    observation_space = spaces.Dict(a=spaces.Box(-1, 1, (3,), np.float32), b=spaces.Discrete(4))
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed, options=options)
        return self._seen(), {}

    def _seen(self) -> dict[str, Any]:
        return {"a": self.np_random.uniform(-1, 1, 3).astype(np.float32), "b": self.np_random.integers(4)}

    def step(self, action: np.int64) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        seen = self._seen()
        return seen, float(action * seen["a"][0]), bool(self.np_random.random() < 0.05), False, {"is_success": bool(action == 1)}


class Actions(Pairs):
    """The same, with plain observations and actions of another space."""

    observation_space = Pairs.observation_space["a"]  # type: ignore[assignment]

    def __init__(self, action_space: Any) -> None:
        self.action_space = action_space

    def _seen(self) -> Any:
        return super()._seen()["a"]

    def step(self, action: Any) -> Any:
        assert action in self.action_space
        return self._seen(), float(np.sum(action)), bool(self.np_random.random() < 0.05), False, {}


class Pictures(Actions):
    """Small pictures, channels last unless the shape says otherwise."""

    def __init__(self, action_space: Any, shape: tuple[int, ...] = (36, 36, 1)) -> None:
        super().__init__(action_space)
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)  # type: ignore[assignment]

    def _seen(self) -> Any:
        return self.np_random.integers(0, 256, self.observation_space.shape, np.uint8)


def small() -> dict[str, Any]:
    return {"policy_kwargs": {"net_arch": [16]}, "seed": 0}


MULTI = partial(Actions, spaces.MultiDiscrete([2, 3]))
BITS = partial(Actions, spaces.MultiBinary(3))
IMAGES = partial(Pictures, spaces.Discrete(3))


def pendulum() -> Any:
    return gymnasium.make("Pendulum-v1", max_episode_steps=40)


MODELS: dict[str, tuple[Callable[[], Any], Any]] = {
    "dense": (lambda: PPO("MlpPolicy", "CartPole-v1", **small()), "CartPole-v1"),
    "dict": (lambda: PPO("MultiInputPolicy", Pairs(), **small()), Pairs),
    "continuous": (lambda: PPO("MlpPolicy", pendulum(), **small()), pendulum),
    "sde": (lambda: PPO("MlpPolicy", pendulum(), use_sde=True, **small()), pendulum),
    "sac": (lambda: SAC("MlpPolicy", pendulum(), buffer_size=10, **small()), pendulum),
    "td3": (lambda: TD3("MlpPolicy", pendulum(), buffer_size=10, **small()), pendulum),
    "dqn": (lambda: DQN("MlpPolicy", "CartPole-v1", buffer_size=10, **small()), "CartPole-v1"),
    "multidiscrete": (lambda: PPO("MlpPolicy", MULTI(), **small()), MULTI),
    "multibinary": (lambda: PPO("MlpPolicy", BITS(), **small()), BITS),
    "lstm": (lambda: RecurrentPPO("MlpLstmPolicy", "CartPole-v1", seed=0), "CartPole-v1"),
    "sac sde": (lambda: SAC("MlpPolicy", pendulum(), use_sde=True, buffer_size=10, **small()), pendulum),
    "pictures": (lambda: PPO("CnnPolicy", IMAGES(), n_steps=64, seed=0), IMAGES),
}


@cache
def model_of(name: str) -> Any:
    return MODELS[name][0]()


@in_turn("deterministic", [True, False], kept=1)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in ("sde", "sac sde", "pictures") else []) for name in MODELS]
)
def test_one_report_on_workers(name: str, deterministic: bool) -> None:
    env = MODELS[name][1]
    ways = [(1, 1, "inline"), (5, 2, "inline"), (4, 2, "processes" if name in ("dense", "dict") else "threads")]
    reports = [
        evaluate(model_of(name), env, episodes=8, seed=3, num_envs=n, workers=w, executor=how, deterministic=deterministic)  # type: ignore[arg-type]
        for n, w, how in ways
    ]
    assert len({report.fingerprint() for report in reports}) == 1 and reports[0].row_independent


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "deterministic"), [("dense", False), ("dict", True)])
def test_one_report_on_anything(tmp_path: Path, name: str, deterministic: bool) -> None:
    """One report for any number of environments and workers, in the caller and in processes, and where one was killed."""
    env, found = MODELS[name][1], set()
    ways = (1, 1, "inline"), (32, 1, "inline"), (1, 1, "processes"), (3, 3, "processes"), (32, 2, "processes")
    for num_envs, workers, executor in ways:
        report = evaluate(
            model_of(name), env, episodes=40, seed=3, num_envs=num_envs, workers=workers, executor=executor,  # type: ignore[arg-type]
            deterministic=deterministic,
        )  # fmt: skip
        found.add(report.fingerprint())
    for num_envs, workers in ((3, 3), (32, 2)):
        marker = tmp_path / f"{num_envs}-{workers}"
        with pytest.warns(RecoveryWarning, match="started anew"):
            report = evaluate(
                model_of(name), partial(Killing, env, marker), episodes=40, seed=3, num_envs=num_envs, workers=workers,
                executor="processes", deterministic=deterministic, restarts=1,
            )  # fmt: skip
        found.add(report.fingerprint())
        assert marker.exists()
    assert len(found) == 1


class Killing(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Kills the helper process that first takes its 10th step."""

    def __init__(self, env: Any, marker: Path) -> None:
        super().__init__(gymnasium.make(env) if isinstance(env, str) else env())
        self.marker, self.steps = marker, 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == 10 and multiprocessing.parent_process() is not None and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(3, 36, 37), (12, 36, 37), (36, 37, 12)])
def test_images_with_channels_first_or_stacked(shape: tuple[int, ...]) -> None:
    env = partial(Pictures, spaces.Discrete(3), shape)
    model = PPO("CnnPolicy", env(), n_steps=64, seed=0, device="cpu")
    nn.init.normal_(model.policy.action_net.weight)  # else all actions are alike
    report = evaluate(model, env, episodes=4, seed=3, executor="inline")
    by_predict = evaluate(lambda seen: model.predict(seen, deterministic=True)[0], env, episodes=4, seed=3, executor="inline")
    assert report.digests == by_predict.digests and len(set(report.returns)) > 1


@pytest.mark.parametrize("name", MODELS)
def test_what_the_extension_evaluates_is_asked_row_by_row(name: str) -> None:
    how = evaluate(model_of(name), MODELS[name][1], episodes=1, executor="inline", deterministic=name != "sac").policy
    assert ("by construction" in how) == (name != "dict")


class Shown:
    """A model that is shown normalised observations by hand."""

    def __init__(self, model: Any, env: VecNormalize) -> None:
        self.model, self.env = model, env

    def predict(self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False) -> Any:
        return self.model.predict(self.env.normalize_obs(observation), state, episode_start, deterministic)


@in_turn("kind", [DQN, QRDQN, RecurrentPPO, SyncDQN, PQN, SyncQRDQN, SyncRecurrentPPO], kept=2)
@pytest.mark.parametrize("deterministic", [True, False])
def test_models_that_remember_or_explore_see_normalised_observations(kind: Any, deterministic: bool) -> None:
    """Also in the callback, whose model goes on learning."""
    env = VecNormalize(make_vec_env("CartPole-v1", 1))
    remembers = hasattr(kind, "policy_aliases") and "MlpLstmPolicy" in kind.policy_aliases
    policy = "MlpLstmPolicy" if remembers else "MlpPolicy"
    network: dict[str, Any] = {} if kind is PQN else {"net_arch": [8]}
    if remembers:  # of few numbers: of many random ones the last bit grows into other actions
        network["lstm_hidden_size"] = 8
    ours: dict[str, Any] = {"executor": "inline"} if kind.__module__.startswith("reactor") else {}
    model = kind(policy, env, policy_kwargs=network, seed=0, **ours)
    env.obs_rms.mean[:], env.obs_rms.var[:] = [0.5, -0.5, 0.02, 1.0], [0.01, 0.1, 0.001, 0.1]  # type: ignore[union-attr]
    with torch.no_grad():
        torch.manual_seed(3)  # policies that do something else without the statistics
        for one in model.policy.parameters():
            one += torch.randn_like(one)
    explores = hasattr(model, "exploration_rate") and not deterministic
    if explores:
        model.exploration_rate = 0.3
    played: dict[str, Any] = {"episodes": 4, "executor": "inline", "deterministic": deterministic}
    random = model.action_space.np_random.bit_generator.state
    report = evaluate(model, "CartPole-v1", **played)
    assert report.digests == evaluate(model, "CartPole-v1", num_envs=1, **played).digests
    assert "by construction" in report.policy
    if deterministic:  # what is drawn is drawn from other noise
        assert report.digests == evaluate(Shown(model, env), "CartPole-v1", **played).digests
    assert model.action_space.np_random.bit_generator.state == random
    env.norm_obs = False
    assert report.digests != evaluate(model, "CartPole-v1", **played).digests
    env.norm_obs = True
    callback = ReactorEvalCallback("CartPole-v1", n_eval_episodes=4, eval_freq=1, deterministic=deterministic, verbose=0)
    model.set_logger(Logger(None, []))
    callback.init_callback(model)
    callback.on_step()
    assert callback.report is not None and callback.report.digests == report.digests
    callback.on_training_end()
    if ours:
        model.close()


@pytest.mark.slow
def test_modules_of_torch() -> None:
    torch.manual_seed(0)
    dense = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))

    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = dense

        def forward(self, seen: torch.Tensor) -> torch.Tensor:
            return self.inner(seen)  # type: ignore[no-any-return]

    one, other = (evaluate(module, "CartPole-v1", episodes=6, executor="inline") for module in (dense, Wrapped()))
    assert "by construction" in one.policy and "in batches" in other.policy
    assert one.fingerprint() == other.fingerprint()
    drawn = [evaluate(module, "CartPole-v1", episodes=6, executor="inline", deterministic=False) for module in (dense, Wrapped())]
    assert drawn[0].fingerprint() == drawn[1].fingerprint() != one.fingerprint()
    with pytest.raises(ValueError, match=r"returned scores of shape \(1, 3\)"):
        evaluate(nn.Linear(4, 3), "CartPole-v1", episodes=1)
    bits = nn.Linear(3, 3)
    drawn = [evaluate(bits, BITS, episodes=6, num_envs=n, executor="inline", deterministic=False) for n in (1, 4)]
    assert drawn[0].fingerprint() == drawn[1].fingerprint()
    with pytest.raises(TypeError, match="actions must be of a Discrete, MultiDiscrete, MultiBinary or Box space"):
        evaluate(nn.Linear(3, 3), partial(Actions, spaces.Tuple([spaces.Discrete(2)])), episodes=1)


class Seeing(nn.Module):
    """Scores by observations of any kind."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2, dtype=dtype)

    def forward(self, seen: Any) -> torch.Tensor:
        parts = seen.values() if isinstance(seen, dict) else [seen]
        return self.layer(torch.cat([part.to(self.layer.weight.dtype).reshape(len(part), -1) for part in parts], 1))  # type: ignore[no-any-return]


class Showing(Actions):
    """Shows anything."""

    def __init__(self, observed: Any) -> None:
        super().__init__(spaces.Discrete(2))
        self.observation_space = observed

    def _seen(self) -> Any:
        self.observation_space.seed(int(self.np_random.integers(1000)))
        return self.observation_space.sample()


NUMBERS = spaces.Box(-9, 9, (4,), np.int32)


DICT = spaces.Dict(a=spaces.Discrete(3), b=spaces.Box(-1, 1, (3,), np.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("observed", [NUMBERS, spaces.Box(0, 255, (4,), np.uint8), DICT])
def test_modules_of_torch_see_what_is_shown(observed: Any, dtype: torch.dtype) -> None:
    module, env = Seeing(dtype), partial(Showing, observed)

    def by_hand(seen: Any) -> Any:
        parts = {key: torch.from_numpy(part) for key, part in seen.items()} if isinstance(seen, dict) else torch.from_numpy(seen)
        return module(parts).argmax(1).numpy()

    report, expected = (evaluate(policy, env, episodes=4, executor="inline") for policy in (module, by_hand))
    assert report.digests == expected.digests


def test_modules_of_torch_see_arrays_by_key() -> None:
    for observed in (spaces.Dict(a=spaces.Dict(b=NUMBERS)), spaces.Tuple([NUMBERS])):
        with pytest.raises(TypeError, match="may observe arrays or a Dict of arrays"):
            evaluate(Seeing(), partial(Showing, observed), episodes=1)


@pytest.mark.parametrize("in_use", [False, True])
def test_accelerators_are_seeded_where_one_is_in_use(monkeypatch: pytest.MonkeyPatch, in_use: bool) -> None:
    seeds: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: in_use)

    def drawing(seen: Any) -> Any:
        return torch.randint(0, 2, (len(seen),)).numpy()

    torch.manual_seed(0)
    seeds.clear()
    one, other = (evaluate(drawing, "CartPole-v1", episodes=4, num_envs=n, executor="inline") for n in (1, 3))
    assert "draws from the process's generators" in one.policy and one.fingerprint() == other.fingerprint()
    assert (len(set(seeds)) > 40) == in_use and bool(seeds) == in_use


def test_a_model_of_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match="PPO was trained to observe"):
        evaluate(model_of("dense"), pendulum, episodes=1)
    with pytest.raises(ValueError, match="PPO was trained for the actions"):
        evaluate(model_of("multibinary"), MULTI, episodes=1)


def test_batch_normalisation_is_found_out() -> None:
    """In training mode it looks at the other rows; evaluated it does not."""
    module = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2))
    assert evaluate(module, "CartPole-v1", episodes=2, executor="inline").row_independent

    class Always(nn.Module):
        def forward(self, seen: torch.Tensor) -> torch.Tensor:
            return torch.cat([seen - seen.mean(0), seen], 1)[:, :2]

    assert "row by row: in batches of 32" in evaluate(Always(), "CartPole-v1", episodes=2, executor="inline").policy
