"""Hyperparameters of the trainers, in the form in which ``rl_zoo3`` reads them: a module for each algorithm.

Most are those that ``rl_zoo3`` has tuned for SB3's algorithms, shared out among actors that sample in parallel. They are read
from its own files when somebody asks for them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import resources
from types import ModuleType
from typing import Any

import yaml

from reactor_sb3.algorithms.table import ALGORITHMS, named

__all__ = ["ACTORS", "HyperparameterModule", "hyperparameters", "shared"]

ACTORS = 8
"""How many actors share the steps of an algorithm that has one environment in ``rl_zoo3``: enough for a machine with a few cores,
and few enough that learning still begins early. Chosen.
"""

OWN: dict[str, dict[str, dict[str, Any]]] = {
    "pqn": {
        "default": {"n_timesteps": 500_000, "policy": "MlpPolicy", "n_envs": 8},
        "atari": {
            "n_timesteps": 10_000_000,
            "policy": "CnnPolicy",
            "env_wrapper": ["stable_baselines3.common.atari_wrappers.AtariWrapper"],
            "frame_stack": 4,
            "n_envs": 8,
            "n_steps": 32,
            "n_minibatches": 4,
            "n_epochs": 2,
            "learning_rate": "lin_2.5e-4",
            "exploration_fraction": 0.1,
            "exploration_final_eps": 0.001,
        },
    },
}
"""Of algorithms that ``rl_zoo3`` does not have. Atari's differences from the defaults are those of Gallici et al. 2024, at a size
for one machine."""


class HyperparameterModule(ModuleType):
    """``reactor_sb3.zoo.hyperparams.<trainer>``, which ``rl_zoo3`` imports by this name."""

    def __init__(self, trainer: str) -> None:
        super().__init__(f"{__name__}.{trainer}", f"Hyperparameters of ``{trainer}``.")
        self.trainer = trainer

    @property
    def hyperparams(self) -> dict[str, dict[str, Any]]:
        """Keywords by environment, anew each time: ``rl_zoo3`` changes what it is given."""
        return hyperparameters(self.trainer)


def hyperparameters(trainer: str) -> dict[str, dict[str, Any]]:
    """The hyperparameters of a trainer, by environment."""
    row = named(trainer)
    if not row.tuned:
        return {env: dict(of_env) for env, of_env in OWN[trainer].items()}
    file = resources.files("rl_zoo3") / "hyperparams" / f"{row.tuned}.yml"
    found = {env: shared(of_env, row.train_freq) for env, of_env in yaml.safe_load(file.read_text()).items()}
    for of_env in found.values():
        if (
            of_env.get("policy", row.policy) not in row.cls.policy_aliases
        ):  # the zoo's default for ppo_lstm, which it has no policy for
            of_env["policy"] = row.policy
    return found


def shared(hyperparameters: Mapping[str, Any], train_freq: int | None = None, actors: int = ACTORS) -> dict[str, Any]:
    """An off-policy algorithm's hyperparameters for several environments in place of one.

    A round has as many steps as before if they can be shared out, else as few more as need be, and updates are as many for each
    step as before. Where ``n_envs`` is given, or a round is an episode, nothing changes; neither does on-policy learning, where a
    rollout's length says what returns are computed from.

    Args:
        hyperparameters: Of one environment, as in a file of ``rl_zoo3``.
        train_freq: Steps of a round where they do not say so; ``None``: they are an on-policy algorithm's.
        actors: Environments that there are to be, one for each actor.
    """
    found = dict(hyperparameters)
    steps, updates = found.get("train_freq", train_freq), found.get("gradient_steps", 1)
    if not isinstance(steps, int) or "n_envs" in found:
        return found
    each = -(-steps // actors)
    found |= {"n_envs": actors, "train_freq": each}
    found["gradient_steps"] = updates if updates < 0 else max(1, round(updates * each * actors / steps))
    return found


# The import system looks here again after it has imported this module, which is how a module without files is imported by name.
sys.modules.update({f"{__name__}.{row.key}": HyperparameterModule(row.key) for row in ALGORITHMS.values()})
