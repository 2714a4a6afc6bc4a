"""The trainers, and where their hyperparameters are and are searched, entered in ``rl_zoo3``'s own tables.

Only for the place of hyperparameters there is no table: a method of its ``ExperimentManager`` is wrapped.
"""

from __future__ import annotations

from functools import partial, wraps
from pathlib import Path
from typing import Any

from rl_zoo3 import ALGOS
from rl_zoo3.exp_manager import ExperimentManager
from rl_zoo3.hyperparams_opt import HYPERPARAMS_CONVERTER, HYPERPARAMS_SAMPLER
from stable_baselines3.common.vec_env import DummyVecEnv

from reactor_sb3.algorithms.table import ALGORITHMS, Algorithm
from reactor_sb3.environments.vec_env import ReactorVecEnv
from reactor_sb3.trainers.options import constructor_names
from reactor_sb3.trainers.trainer import Trainer
from reactor_sb3.zoo import hyperparams

__all__ = ["TRAINERS", "register"]

TRAINERS: dict[str, type[Trainer]] = {row.key: row.cls for row in ALGORITHMS.values()}
"""The trainers by the names that ``--algo`` knows them by."""


def register() -> None:
    """Tell ``rl_zoo3`` of the vector environment and the trainers. Importing :mod:`reactor_sb3.zoo` does it; again is harmless."""
    ExperimentManager.default_vec_env_cls = ReactorVecEnv
    ALGOS.update(TRAINERS)
    for row in ALGORITHMS.values():
        HYPERPARAMS_SAMPLER[row.key], HYPERPARAMS_CONVERTER[row.key] = _search_of(row)
    plain = ExperimentManager.read_hyperparameters
    if hasattr(plain, "__wrapped__"):
        return

    @wraps(plain)
    def read_hyperparameters(self: ExperimentManager) -> Any:
        if self.algo in TRAINERS:
            # Actors have copies of these environments, and nobody steps the originals: they need no workers.
            self.vec_env_class = DummyVecEnv
            if not Path(self.config).exists() and Path(self.config).name == f"{self.algo}.yml":  # nobody has named another
                self.config = f"{hyperparams.__name__}.{self.algo}"
        return plain(self)

    ExperimentManager.read_hyperparameters = read_hyperparameters


def _search_of(row: Algorithm) -> tuple[Any, Any]:
    """The zoo's sampler and converter of an algorithm's hyperparameters; where it has none, those of the most similar algorithm."""
    if not row.tuned:
        return OWN[row.key]
    tables = HYPERPARAMS_SAMPLER, HYPERPARAMS_CONVERTER
    if not row.searched:
        return tuple(table[row.tuned] for table in tables)
    known = constructor_names(row.cls)

    def of_similar(found: Any, *given: Any) -> dict[str, Any]:
        return {name: value for name, value in found(*given).items() if name in known}

    return tuple(partial(of_similar, table[row.searched]) for table in tables)  # type: ignore[return-value]


# ---------------------------------------------------------------------- the search for PQN's hyperparameters

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
        "n_steps_pow": trial.suggest_int("n_steps_pow", 4, 8),
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
    for name in ("n_steps", "n_minibatches"):
        found[name] = 2 ** found.pop(f"{name}_pow")
    found["policy_kwargs"] = {"net_arch": WIDTHS[found.pop("net_arch")]}
    return found


OWN = {"pqn": (sample_pqn, convert_pqn)}
"""Samplers and converters of algorithms that ``rl_zoo3`` does not have."""
