"""``ReactorEvalCallback``: what ``EvalCallback`` does, with the same results on workers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback, CallbackList, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from reactor_gymnasium import evaluate
from reactor_sb3 import ReactorEvalCallback


class Counting(BaseCallback):
    """How often it was called."""

    times = 0

    def _on_step(self) -> bool:
        self.times += 1
        return True


def new(env: Any = "CartPole-v1") -> PPO:
    return PPO("MlpPolicy", env, n_steps=64, policy_kwargs={"net_arch": [16]}, seed=0, device="cpu")


@pytest.mark.slow
def test_the_best_model_has_its_statistics(tmp_path: Path) -> None:
    env = VecNormalize(make_vec_env("CartPole-v1", 2, seed=0))
    best, each = Counting(), Counting()
    callback = ReactorEvalCallback(
        "CartPole-v1", best, each, n_eval_episodes=4, eval_freq=100, log_path=str(tmp_path / "log"),
        best_model_save_path=str(tmp_path / "best"), verbose=0,
    )  # fmt: skip
    new(env).learn(1000, callback=callback)
    assert each.times == 5 and 1 <= best.times <= 5
    logged = np.load(tmp_path / "log" / "evaluations.npz")
    assert logged["timesteps"].tolist() == [200, 400, 600, 800, 1000] and logged["results"].shape == (5, 4)
    assert callback.best_mean_reward == logged["results"].mean(1).max()
    assert callback.report is not None and callback.report.mean == callback.last_mean_reward
    again = VecNormalize.load(str(tmp_path / "best" / "vecnormalize.pkl"), make_vec_env("CartPole-v1", 1))
    model = PPO.load(tmp_path / "best" / "best_model", env=again)
    assert evaluate(model, "CartPole-v1", episodes=4, executor="inline").mean == callback.best_mean_reward


@pytest.mark.slow
def test_it_changes_nothing_and_does_not_depend_on_workers() -> None:
    callbacks = [
        ReactorEvalCallback("CartPole-v1", n_eval_episodes=6, eval_freq=64, num_envs=n, workers=w, executor=how, verbose=0)  # type: ignore[arg-type]
        for n, w, how in ((1, 1, "inline"), (4, 2, "processes"))
    ]
    model = new()
    model.learn(128, callback=CallbackList(callbacks))  # type: ignore[arg-type]
    one, other = (callback.report for callback in callbacks)
    assert one is not None and other is not None and one.fingerprint() == other.fingerprint()
    alone = new()
    alone.learn(128)
    weights = alone.policy.state_dict()
    assert all(bool((part == weights[name]).all()) for name, part in model.policy.state_dict().items())


def test_what_cannot_be_made_again_is_refused() -> None:
    env = make_vec_env("CartPole-v1", 1)
    with pytest.raises(TypeError, match="env must be an id or a function"):
        ReactorEvalCallback(env)
    with pytest.raises(ValueError, match="`n_eval_episodes` must be positive"):
        ReactorEvalCallback("CartPole-v1", n_eval_episodes=0)


@pytest.mark.parametrize("verbose", [0, 1])
def test_it_prints_what_sb3_prints(verbose: int, capsys: pytest.CaptureFixture[str]) -> None:
    """The same lines, but for their numbers; nothing with ``verbose=0``."""
    said = []
    for callback in (
        EvalCallback(make_vec_env("CartPole-v1", 1, seed=0), n_eval_episodes=2, eval_freq=64, verbose=verbose),
        ReactorEvalCallback("CartPole-v1", n_eval_episodes=2, eval_freq=64, executor="inline", verbose=verbose),
    ):
        new().learn(64, callback=callback)
        said.append(re.sub(r"\d+\.\d+", "x", capsys.readouterr().out))
    assert said[0] == said[1] and bool(said[0]) == bool(verbose)
