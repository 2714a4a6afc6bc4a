"""TorchRL and Tianshou collect from our environments what they collect from the host's, by the recipes of the guide."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from reactor_gymnasium import ReactorVectorEnv

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "other-libraries.md"
pytestmark = pytest.mark.filterwarnings("ignore")  # theirs


def make_env() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("CartPole-v1")


def test_torchrl_rolls_out_the_same() -> None:
    torch, envs = pytest.importorskip("torch"), pytest.importorskip("torchrl.envs")

    def rollout(vector_env: Any) -> Any:
        torch.manual_seed(0)
        env = envs.GymWrapper(vector_env)
        env.set_seed(0)
        found = env.rollout(60, break_when_any_done=False)
        env.close()
        return found

    theirs = rollout(gymnasium.vector.SyncVectorEnv([make_env] * 3, autoreset_mode="Disabled"))
    ours = rollout(ReactorVectorEnv([make_env] * 3, autoreset_mode="Disabled", workers=2, executor="threads"))
    assert bool(theirs["next", "done"].any())
    assert bool((theirs == ours).all())


def test_tianshou_collects_the_same() -> None:
    data, env = pytest.importorskip("tianshou.data"), pytest.importorskip("tianshou.env")
    algorithms = pytest.importorskip("tianshou.algorithm.random")
    (block,) = (one for one in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "class ReactorTianshouEnv" in one)
    recipe: dict[str, Any] = {}
    exec(block, recipe)

    def collected(make: Callable[..., Any], **options: Any) -> list[Any]:
        envs = make([make_env] * 3, **options)
        policy = algorithms.MARLRandomDiscreteMaskedOffPolicyAlgorithm(action_space=envs.action_space[0])
        collector = data.Collector(policy, envs, data.VectorReplayBuffer(600, 3))
        envs.seed(5)
        for space in collector._action_space:  # Tianshou seeds those of a DummyVectorEnv with the environments
            space.seed(0)
        collector.reset()
        collector.collect(n_step=60, random=True)
        collector.collect(n_episode=4, random=True)  # the last of them one or two environments alone
        buffer = collector.buffer
        envs.close()
        return [buffer.obs.copy(), buffer.act.copy(), buffer.rew.copy(), buffer.done.copy(), buffer.obs_next.copy()]

    theirs = collected(env.DummyVectorEnv)
    ours = collected(recipe["ReactorTianshouEnv"], workers=2, executor="threads")
    assert theirs[3].any()
    assert all(np.array_equal(one, other) for one, other in zip(theirs, ours, strict=True))
