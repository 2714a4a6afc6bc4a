"""Hyperparameters that ``rl_zoo3`` has tuned for SB3's algorithms, for trainers whose actors sample in parallel."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import Any

import yaml

__all__ = ["ACTORS", "shared", "tuned"]

ACTORS = 8
"""How many actors share the steps of an algorithm that has one environment in ``rl_zoo3``."""


def tuned(algo: str, train_freq: int | None = None) -> dict[str, dict[str, Any]]:
    """What the installed ``rl_zoo3`` has for one of its algorithms, by environment, shared out among actors.

    Args:
        algo: As ``rl_zoo3`` calls it: ``"dqn"``.
        train_freq: SB3's, for an environment that has none; ``None`` for an algorithm that learns on-policy.
    """
    file = resources.files("rl_zoo3") / "hyperparams" / f"{algo}.yml"
    return {env: shared(of_env, train_freq) for env, of_env in yaml.safe_load(file.read_text()).items()}


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
