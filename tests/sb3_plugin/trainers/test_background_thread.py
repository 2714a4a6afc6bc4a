"""Another thread of the program may draw from the global generators meanwhile: neither changes what the other draws."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from every_other import in_turn
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize
from trainers import new, outcome


@contextmanager
def drawing(on: bool) -> Iterator[None]:
    """Draws from all global generators in a thread of its own, as often as it can."""
    stop, begun = threading.Event(), threading.Event()

    def draw() -> None:
        while not stop.is_set():
            np.random.rand(3)
            torch.rand(3)
            random.random()
            begun.set()

    thread, interval = threading.Thread(target=draw), sys.getswitchinterval()
    if not on:
        yield
        return
    sys.setswitchinterval(1e-4)
    thread.start()
    try:
        assert begun.wait(20)
        yield
    finally:
        stop.set()
        thread.join(20)
        sys.setswitchinterval(interval)


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "dqn": ("dqn", {"train_freq": 8, "gradient_steps": 8, "learning_starts": 0}),
    "dqn, 3 steps": ("dqn", {"n_steps": 3, "learning_starts": 32}),
    "normalized": ("dqn", {"env": "normalized", "n_actors": 2, "learning_starts": 0}),
    "pqn": ("pqn", {}),
    "ppo": ("ppo", {}),
    "own policy": ("ppo", {"policy_kwargs": {"net_arch": [16], "activation_fn": torch.nn.ELU}}),
    "dropout": ("ppo", {"policy_kwargs": {"net_arch": [16], "activation_fn": torch.nn.Dropout}}),
    "sde": ("ppo", {"env": "Pendulum-v1", "use_sde": True, "sde_sample_freq": 4}),
    "sac": ("sac", {"env": "Pendulum-v1", "learning_starts": 0}),
    "td3 with noise": ("td3", {"env": "Pendulum-v1", "learning_starts": 0}),
}


def trained(case: str, on: bool, **changed: Any) -> dict[str, Any]:
    algorithm, arguments = CASES[case]
    arguments = dict(arguments)
    with drawing(on):
        if arguments.get("env") == "normalized":
            arguments["env"] = VecNormalize(make_vec_env("CartPole-v1", n_envs=2, seed=0))
        with new(algorithm, **arguments, **changed) as model:
            return outcome(model.learn(256, log_interval=None))


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("case", sorted(CASES))
def test_weights_are_those_of_a_quiet_program(case: str) -> None:
    assert trained(case, True) == trained(case, False)


@pytest.mark.slow
@pytest.mark.timeout(120)
@in_turn("case", ["sac", "own policy"], kept=1)
def test_on_threads(case: str) -> None:
    assert trained(case, True, executor="threads", workers=2) == trained(case, False)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("case", ["sac", "td3 with noise", "sde", "dqn"])
def test_what_others_draw_is_what_they_drew(case: str) -> None:
    """The numbers that a program draws are the same with a training between them."""
    np.random.seed(5), torch.manual_seed(5)
    algorithm, arguments = CASES[case]
    with new(algorithm, **arguments) as model:
        before = str(np.random.get_state()), torch.get_rng_state()
        model.learn(128, log_interval=None)
        assert str(np.random.get_state()) == before[0]
        assert torch.equal(torch.get_rng_state(), before[1])
