"""Trainings for tests of ``sweep``."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import torch
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from stable_baselines3 import PPO

from reactor_sb3 import SyncPPO, Trial

SPACE = {"x": FloatDistribution(0, 4), "width": IntDistribution(8, 32, step=8), "how": CategoricalDistribution(["tanh", "relu"])}
STEPS = (100, 200, 300)


def curve(trial: Trial) -> None:
    """Reports a curve that ends near -(x - 2) ** 2, with noise of the process's generators; slow and fast trainings by turns."""
    for step in STEPS:
        time.sleep(0.002 * (trial.number % 4))
        noise = random.random() + np.random.random() + float(torch.rand(1))
        trial.report(-((trial.params["x"] - 2) ** 2) - 100 / step + 0.01 * noise + 0.01 * trial.seed, step)
        if trial.should_prune():
            return


def by_function(trial: optuna.Trial) -> dict[str, Any]:
    """A space with a hyperparameter that depends on another one."""
    kind = trial.suggest_categorical("kind", ["small", "big"])
    x = trial.suggest_float("x", 0, 2) if kind == "small" else trial.suggest_float("big_x", 2, 4)
    return {"x": x, "kind": kind}


def brittle(trial: Trial) -> float:
    """Fails where x is small."""
    if trial.params["x"] < 1.5:
        raise ArithmeticError(f"x is {trial.params['x']:.1f}")
    return float(trial.params["x"])


def mortal(marker: str, number: int, trial: Trial) -> None:
    """A curve, whose process is killed in the middle of one trial; once, if ``marker`` names a file."""
    if trial.number == number and multiprocessing.parent_process() is not None and not (marker and Path(marker).exists()):
        trial.report(-100.0, STEPS[0] - 1)
        if marker:
            Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    elif trial.number == number:
        trial.report(-100.0, STEPS[0] - 1)
    curve(trial)


def small_ppo(trial: Trial) -> PPO:
    """A short training of SB3's."""
    model = PPO(
        "MlpPolicy", "CartPole-v1", n_steps=64, batch_size=32, n_epochs=2, learning_rate=10 ** -(1 + trial.params["x"]),
        policy_kwargs={"net_arch": [trial.params["width"]]}, seed=trial.seed, device="cpu",
    )  # fmt: skip
    return model.learn(256, callback=trial.callback())


def mortal_ppo(marker: str, number: int, trial: Trial) -> PPO:
    """The same, whose process is killed once when it has begun."""
    if trial.number == number and not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return small_ppo(trial)


def small_trainer(trial: Trial) -> SyncPPO:
    """The same by a trainer of ours."""
    with SyncPPO(
        "MlpPolicy", "CartPole-v1", n_actors=2, n_steps=64, batch_size=32, n_epochs=2, learning_rate=10 ** -(1 + trial.params["x"]),
        policy_kwargs={"net_arch": [trial.params["width"]]}, seed=trial.seed, workers=1, device="cpu",
    ) as model:  # fmt: skip
        return model.learn(256, callback=trial.callback())
