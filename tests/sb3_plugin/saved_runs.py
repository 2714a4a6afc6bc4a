"""Small trainings by SB3's own algorithms, saved as they go: shared by a test and the process that it kills."""

from __future__ import annotations

import io
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.noise import OrnsteinUhlenbeckActionNoise
from stable_baselines3.common.save_util import load_from_zip_file
from stable_baselines3.common.vec_env import VecFrameStack, VecMonitor, VecNormalize

from reactor_sb3 import ReactorVecEnv, SaveRun

STEPS = 300
EVERY = 50


def envs(env_id: str, kind: Any = ReactorVecEnv) -> Any:
    where = {"executor": "inline"} if kind is ReactorVecEnv else {}
    return make_vec_env(env_id, n_envs=2, seed=3, vec_env_cls=kind, vec_env_kwargs=where)


def normalized(num_envs: int = 2, env_id: str = "CartPole-v1") -> Any:
    venv = ReactorVecEnv([partial(gymnasium.make, env_id)] * num_envs, executor="inline")
    return VecFrameStack(VecNormalize(VecMonitor(venv)), 2)


def new(name: str) -> Any:
    """A model that has learned nothing."""
    common: dict[str, Any] = {"policy_kwargs": {"net_arch": [8]}, "seed": 1, "device": "cpu"}
    replay: dict[str, Any] = {"learning_starts": 40, "batch_size": 16, **common}
    match name:
        case "PPO":
            return PPO("MlpPolicy", normalized(), n_steps=16, batch_size=16, n_epochs=2, **common)
        case "PPO, drawn noise":
            return PPO(
                "MlpPolicy", envs("Pendulum-v1"), n_steps=16, batch_size=16, n_epochs=1, use_sde=True,
                learning_rate=lambda left: left * 1e-3, **common,
            )  # fmt: skip
        case "A2C":
            return A2C("MlpPolicy", envs("CartPole-v1"), **common)
        case "DQN":  # the buffer is full before the end
            return DQN("MlpPolicy", envs("CartPole-v1"), buffer_size=200, target_update_interval=40, **replay)
        case "SAC":
            return SAC("MlpPolicy", VecNormalize(envs("Pendulum-v1")), buffer_size=1000, **replay)
        case "TD3":
            noise = OrnsteinUhlenbeckActionNoise(np.zeros(1), np.full(1, 0.3))
            return TD3("MlpPolicy", envs("Pendulum-v1"), buffer_size=1000, action_noise=noise, **replay)
    raise ValueError(name)


def saved_data(model: BaseAlgorithm) -> dict[str, Any]:
    """The attributes that ``model.save()`` writes."""
    file = io.BytesIO()
    model.save(file)
    data, *_ = load_from_zip_file(file)
    assert data is not None
    return data


def outcome(model: Any) -> dict[str, Any]:
    """What two trainings must have in common: weights and optimisers, buffers, counters, statistics, and the generators."""
    normalize = model.get_vec_normalize_env()
    buffer, data = getattr(model, "replay_buffer", None), saved_data(model)
    return {
        "weights": model.policy.state_dict(),
        "optimizers": {
            key: part.state_dict() for key, part in vars(model.policy).items() if isinstance(part, torch.optim.Optimizer)
        },
        "entropy": getattr(model, "log_ent_coef", None),
        "replay": None if buffer is None else [buffer.observations, buffer.actions, buffer.rewards, buffer.pos, buffer.full],
        "counters": [data[name] for name in ("num_timesteps", "_n_updates", "_episode_num", "_current_progress_remaining")],
        "exploration": getattr(model, "exploration_rate", None),
        "episodes": [(one["r"], one["l"]) for one in model.ep_info_buffer],
        "last": [data["_last_obs"], data["_last_episode_starts"]],
        "statistics": None if normalize is None else [normalize.obs_rms.mean, normalize.ret_rms.var, normalize.returns],
        "environments": model.env.get_attr("state"),
        "random": [np.random.get_state()[1], torch.get_rng_state(), model.action_space.np_random.bit_generator.state["state"]],
    }


def flat(value: Any) -> Any:
    """A value that can be compared: arrays and tensors as their bytes."""
    if isinstance(value, dict):
        return {key: flat(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [flat(part) for part in value]
    if isinstance(value, torch.Tensor):
        value = value.detach().numpy()
    return (value.shape, str(value.dtype), value.tobytes()) if isinstance(value, np.ndarray) else value


class Forgetful(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Draws from a generator of the process: nothing brings it back."""

    def step(self, action: Any) -> Any:
        observation, *rest = self.env.step(action)
        return observation + np.random.rand(), *rest


def main(folder: Path, names: list[str]) -> None:
    """Train each in a process of its own, which has to be killed; tells their numbers, and waits for their ends."""
    torch.set_num_threads(1)
    pids = []
    for name in names:
        pid = os.fork()
        if pid == 0:
            new(name).learn(STEPS, callback=SaveRun(folder / f"{name}.zip", every=EVERY))
            time.sleep(600)
        pids.append(pid)
    for numbers in (pids, (os.waitpid(pid, 0)[1] for pid in pids)):
        sys.stdout.write(" ".join(map(str, numbers)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
