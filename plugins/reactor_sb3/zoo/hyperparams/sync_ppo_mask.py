"""Hyperparameters of ``sync_ppo_mask``: those of ``rl_zoo3`` for ``ppo``."""

from reactor_sb3.zoo.sharing import tuned

__all__ = ["hyperparams"]

hyperparams = tuned("ppo")
