"""Where Optuna looks for the hyperparameters of PQN; for the other trainers, where ``rl_zoo3`` looks for those of SB3's."""

from __future__ import annotations

from typing import Any

__all__ = ["convert_pqn", "sample_pqn"]

WIDTHS = {"small": [64, 64], "medium": [120, 84], "big": [256, 256]}


def sample_pqn(trial: Any, n_actions: int, n_envs: int, additional_args: dict[str, Any]) -> dict[str, Any]:
    """Hyperparameters of one trial, as ``rl_zoo3`` asks for them.

    Args:
        trial: Of Optuna's.
        n_actions: Not used.
        n_envs: Not used: every number of minibatches divides a round.
        additional_args: Not used.

    Returns:
        Keywords of :class:`~reactor_sb3.PQN`.
    """
    return convert_pqn({
        "one_minus_gamma": trial.suggest_float("one_minus_gamma", 1e-4, 0.03, log=True),
        "learning_rate": trial.suggest_float("learning_rate", 1e-5, 2e-3, log=True),
        "q_lambda": trial.suggest_float("q_lambda", 0.0, 1.0),
        "rollout_steps_pow": trial.suggest_int("rollout_steps_pow", 4, 8),
        "n_minibatches_pow": trial.suggest_int("n_minibatches_pow", 0, 4),
        "n_epochs": trial.suggest_int("n_epochs", 1, 4),
        "exploration_fraction": trial.suggest_float("exploration_fraction", 0.05, 0.5),
        "exploration_final_eps": trial.suggest_float("exploration_final_eps", 1e-3, 0.1, log=True),
        "max_grad_norm": trial.suggest_float("max_grad_norm", 0.3, 10.0, log=True),
        "net_arch": trial.suggest_categorical("net_arch", list(WIDTHS)),
    })  # fmt: skip


def convert_pqn(sampled: dict[str, Any]) -> dict[str, Any]:
    """Keywords of :class:`~reactor_sb3.PQN` from what a trial has in its records."""
    found = dict(sampled)
    found["gamma"] = 1 - found.pop("one_minus_gamma")
    for name in ("rollout_steps", "n_minibatches"):
        found[name] = 2 ** found.pop(f"{name}_pow")
    found["policy_kwargs"] = {"net_arch": WIDTHS[found.pop("net_arch")]}
    return found
