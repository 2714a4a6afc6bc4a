"""Hyperparameters of ``sync_sac``: those of ``rl_zoo3`` for ``sac``, shared out among actors."""

from reactor_sb3.zoo.sharing import tuned

__all__ = ["hyperparams"]

hyperparams = tuned("sac", train_freq=1)
