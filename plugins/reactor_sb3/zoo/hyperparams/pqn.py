"""Hyperparameters of ``pqn``: what a game of Atari differs in is from Gallici et al. 2024, at a size for one machine."""

from typing import Any

__all__ = ["hyperparams"]

hyperparams: dict[str, dict[str, Any]] = {
    "default": {"n_timesteps": 500_000, "policy": "MlpPolicy", "n_envs": 8},
    "atari": {
        "n_timesteps": 10_000_000,
        "policy": "CnnPolicy",
        "env_wrapper": ["stable_baselines3.common.atari_wrappers.AtariWrapper"],
        "frame_stack": 4,
        "n_envs": 8,
        "rollout_steps": 32,
        "n_minibatches": 4,
        "n_epochs": 2,
        "learning_rate": "lin_2.5e-4",
        "exploration_fraction": 0.1,
        "exploration_final_eps": 0.001,
    },
}
