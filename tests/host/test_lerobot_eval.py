"""LeRobot's own evaluation on our environments, and its policies in our ``evaluate``: the same as with what is its own."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("lerobot.scripts.lerobot_eval", exc_type=ImportError)

import torch
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.envs import EnvConfig
from lerobot.policies import make_policy, make_pre_post_processors
from lerobot.policies.act.configuration_act import ACTConfig
from lerobot.processor import PolicyProcessorPipeline
from lerobot.scripts.lerobot_eval import eval_policy

sys.path.insert(0, str(Path(__file__).parent))
import lerobot_envs

from reactor_gymnasium import LeRobotPolicy, ReactorVectorEnv, evaluate
from reactor_gymnasium.evaluation.asking import seed_of

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]  # theirs

MAKE = partial(gymnasium.make, "lerobot_envs:gym_reach/Reach-v0")
SHAPES = {"action": ("ACTION", "action"), "agent_pos": ("STATE", "observation.state")}
SHAPES["environment_state"] = ("ENV", "observation.environment_state")


@EnvConfig.register_subclass("reach")
class Config(EnvConfig):
    def __init__(self) -> None:
        super().__init__(
            features={name: PolicyFeature(type=FeatureType[kind], shape=(2,)) for name, (kind, _) in SHAPES.items()},
            features_map={name: known for name, (_, known) in SHAPES.items()},
        )

    @property
    def gym_kwargs(self) -> dict[str, Any]:
        return {}


def act(**more: Any) -> Any:
    return ACTConfig(chunk_size=8, dim_model=16, dim_feedforward=16, n_heads=2, latent_dim=4, device="cpu", **more)


def diffusion() -> Any:
    pytest.importorskip("diffusers")
    from lerobot.policies.diffusion.configuration_diffusion import DiffusionConfig

    return DiffusionConfig(
        n_obs_steps=2, horizon=8, n_action_steps=3, down_dims=(8, 16), n_groups=4, diffusion_step_embed_dim=8,
        num_train_timesteps=10, num_inference_steps=2, device="cpu",
    )  # fmt: skip


POLICIES: dict[str, Callable[[], Any]] = {
    "queue": partial(act, n_action_steps=3),
    "ensemble": partial(act, n_action_steps=1, temporal_ensemble_coeff=0.01),
    "diffusion": diffusion,
}


def policy_of(name: str) -> tuple[Any, list[Any]]:
    """A policy that has learned nothing, and its pipelines in the order of ``eval_policy``'s arguments."""
    torch.manual_seed(0)
    config = POLICIES[name]()
    policy = make_policy(config, env_cfg=Config())
    span = {key: torch.full((2,), value) for key, value in (("mean", 0.1), ("std", 0.5), ("min", -1.0), ("max", 1.0))}
    normal = {known: span for _, known in SHAPES.values()}
    before, after = make_pre_post_processors(config, dataset_stats=normal)
    return policy, [PolicyProcessorPipeline(steps=[]), PolicyProcessorPipeline(steps=[]), before, after]


def played(envs: Any, name: str, episodes: int, seed: int = 7, **more: Any) -> dict[str, Any]:
    policy, pipelines = policy_of(name)
    torch.manual_seed(1)
    try:
        return eval_policy(envs, policy, *pipelines, n_episodes=episodes, start_seed=seed, return_episode_data=True, **more)
    finally:
        envs.close()


@pytest.fixture(autouse=True)
def no_monitor(one_thread: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tqdm.tqdm.monitor_interval", 0)  # else its thread stays


@pytest.mark.parametrize(
    "options",
    [{"executor": "inline"}, {"executor": "threads", "workers": 2}, *({"executor": "processes", "workers": n} for n in (1, 2, 3))],
)
@pytest.mark.parametrize("name", ["queue", "diffusion"])
def test_its_evaluation_is_the_same_on_our_environments(name: str, options: dict[str, Any]) -> None:
    theirs = played(gymnasium.vector.SyncVectorEnv([MAKE] * 3, autoreset_mode="SameStep"), name, 5)
    ours = played(ReactorVectorEnv([MAKE] * 3, autoreset_mode="SameStep", **options), name, 5)
    assert ours["per_episode"] == theirs["per_episode"]
    assert {one["success"] for one in ours["per_episode"]} == {True, False}
    assert len({one["sum_reward"] for one in ours["per_episode"]}) == 5
    assert list(ours["episodes"]) == list(theirs["episodes"])
    for key, value in theirs["episodes"].items():
        assert torch.equal(ours["episodes"][key], value), key


def test_it_makes_videos_and_finds_the_task(tmp_path: Path) -> None:
    told = []

    def look(given: dict[str, Any]) -> dict[str, Any]:
        told.append(given["task"])
        return given

    policy, (_, env_after, before, after) = policy_of("queue")
    envs = ReactorVectorEnv([MAKE] * 3, autoreset_mode="SameStep", executor="processes", workers=2)
    found = eval_policy(
        envs, policy, look, env_after, before, after, n_episodes=3, start_seed=7, max_episodes_rendered=2, videos_dir=tmp_path
    )
    envs.close()
    assert [Path(path).stat().st_size > 0 for path in found["video_paths"]] == [True, True]
    assert told and all(task == ["reach the target"] * 3 for task in told)


@pytest.mark.parametrize("name", POLICIES)
def test_its_policies_give_one_report(name: str) -> None:
    policy, (env_before, env_after, before, after) = policy_of(name)
    asked = LeRobotPolicy(policy, before, after, env_before, env_after)
    first, *others = [
        evaluate(asked, MAKE, 5, seed=3, **how)
        for how in (
            {"num_envs": 1, "executor": "inline"},
            {"num_envs": 4, "executor": "threads", "workers": 2},
            {"num_envs": 3, "executor": "processes", "workers": 2},
        )
    ]
    assert len(set(first.returns)) == 5 and "row by row" in first.policy
    for other in others:
        assert other.fingerprint() == first.fingerprint()


@pytest.mark.parametrize("name", ["queue", "ensemble"])
def test_an_episode_is_the_one_of_its_loop(name: str) -> None:
    policy, (env_before, env_after, before, after) = policy_of(name)
    asked = LeRobotPolicy(policy, before, after, env_before, env_after)
    report = evaluate(asked, MAKE, 4, num_envs=3, workers=1, executor="threads", seed=3)
    for episode in range(4):
        envs = gymnasium.vector.SyncVectorEnv([MAKE], autoreset_mode="SameStep")
        found = played(envs, name, 1, seed=seed_of(3, episode))
        rewards = found["episodes"]["next.reward"]
        assert len(rewards) - 1 == report.lengths[episode]  # the last one is repeated
        assert found["per_episode"][0]["success"] == report.infos["is_success"][episode]
        assert np.isclose(found["per_episode"][0]["sum_reward"], report.returns[episode], rtol=1e-12)


def test_what_is_no_policy_is_refused() -> None:
    with pytest.raises(TypeError, match="policy must be a PreTrainedPolicy of LeRobot, got 3"):
        LeRobotPolicy(3)
    assert lerobot_envs.Reach.task == "reach"
