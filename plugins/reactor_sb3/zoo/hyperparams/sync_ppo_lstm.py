"""Hyperparameters of ``sync_ppo_lstm``: those of ``rl_zoo3`` for ``ppo_lstm``."""

from reactor_sb3.zoo.sharing import tuned

__all__ = ["hyperparams"]

hyperparams = tuned("ppo_lstm")
