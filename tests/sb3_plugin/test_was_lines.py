"""Every line of README and docs that says what it was before (`# was:`) holds what it promises: both are run, and compared.

Vector environments give the same for the same actions; an algorithm on SB3's ends with the same weights; a trainer in the place of
one of SB3's algorithms makes as many updates from as many steps.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
import sb3_contrib
import stable_baselines3
import torch
from gymnasium.vector import AsyncVectorEnv, VectorEnv
from saved_runs import saved_data
from sb3_contrib.common.envs import InvalidActionEnvDiscrete
from stable_baselines3 import PPO, HerReplayBuffer
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.vec_env import SubprocVecEnv, VecEnv

import reactor_gymnasium
import reactor_sb3

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINE = re.compile(r"^ *(\S.*?)  # was: (.*)$", re.MULTILINE)
EXPRESSION = re.compile(r"(?:\w+ = |with )?(.*?)(?: as \w+:)?")
STEPS = 200


class Was(NamedTuple):
    """A line of a page, and what it was."""

    page: str
    now: str
    before: str


def _lines() -> list[Was]:
    found = []
    for page in PAGES:
        for block in BLOCK.findall(page.read_text()):
            found += [Was(page.relative_to(ROOT).as_posix(), now, before) for now, before in LINE.findall(block)]
    return found


LINES = _lines()


def cartpole() -> Any:
    return gymnasium.make("CartPole-v1")


def names() -> dict[str, Any]:
    """What the pages' scripts have at hand."""
    modules: list[Any] = [stable_baselines3, sb3_contrib, reactor_gymnasium, reactor_sb3]
    known = {name: getattr(module, name) for module in modules for name in getattr(module, "__all__", dir(module))}
    return {
        **known, "gym": gymnasium, "AsyncVectorEnv": AsyncVectorEnv, "make_vec_env": make_vec_env, "SubprocVecEnv": SubprocVecEnv,
        "make": cartpole, "env_fns": [cartpole] * 3, "pole": "CartPole-v1", "swing": "Pendulum-v1",
        "masked": InvalidActionEnvDiscrete(), "bits": BitFlippingEnv(continuous=True),
        "her": {"replay_buffer_class": HerReplayBuffer, "seed": 0},
    }  # fmt: skip


def value_of(line: str) -> Any:
    """What a line makes, of a few environments: there may be a process for each."""
    found = EXPRESSION.fullmatch(line)
    assert found
    return eval(re.sub(r"\* \d+", "* 3", re.sub(r"n_envs=\d+", "n_envs=2", found[1])), names())


def test_there_are_such_lines() -> None:
    said = [(line.page, line.before) for line in LINES]
    assert ("README.md", 'DQN("MlpPolicy", "CartPole-v1", seed=0)') in said and len(said) >= 6
    assert {line.page for line in LINES} == {
        page.relative_to(ROOT).as_posix() for page in PAGES if any("# was: " in block for block in BLOCK.findall(page.read_text()))
    }


def weights(model: Any) -> dict[str, Any]:
    return {name: tensor.numpy().tobytes() for name, tensor in model.policy.state_dict().items()}


def played(envs: VectorEnv[Any, Any, Any]) -> list[Any]:
    """What some steps of a vector environment give."""
    envs.action_space.seed(1)
    found: list[Any] = [envs.reset(seed=0)[0].copy()]
    for _ in range(60):
        found += [np.array(part) for part in envs.step(envs.action_space.sample())[:4]]
    envs.close()
    return found


def learned(venv: VecEnv) -> Any:
    """The weights of an algorithm of SB3's."""
    model = PPO("MlpPolicy", venv, n_steps=16, batch_size=32, n_epochs=2, seed=0, device="cpu")
    found = weights(model.learn(256))
    venv.close()
    return found


def updates(model: BaseAlgorithm) -> tuple[int, int]:
    """Of how many steps how many updates were made."""
    before = weights(model)
    model.learn(STEPS)
    assert weights(model) != before
    if hasattr(model, "close"):
        model.close()
    return model.num_timesteps, saved_data(model)["_n_updates"]


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("line", LINES, ids=lambda line: f"{line.page}: {line.before}")
def test_a_line_holds_what_it_promises(line: Was) -> None:
    if line.now.startswith(("from ", "import ")):  # another line uses it
        for imports in (line.now, line.before):
            exec(imports, {})
        return
    argument = re.match(r"(\w+)=\w+$", line.before)
    before = re.sub(rf"{argument[1]}=\w+", line.before, line.now) if argument else line.before
    assert before != line.now
    torch.manual_seed(0)
    ours, theirs = value_of(line.now), value_of(before)
    assert "reactor" in type(ours).__module__ and "reactor" not in type(theirs).__module__
    if isinstance(ours, VectorEnv):
        for one, other in zip(played(ours), played(theirs), strict=True):
            np.testing.assert_array_equal(one, other)
    elif isinstance(ours, VecEnv):
        assert learned(ours) == learned(theirs)
    else:
        whole = reactor_sb3.ALGORITHMS[type(ours).__name__].kind == "search"  # episodes, which differ
        assert updates(ours)[whole:] == updates(theirs)[whole:]
