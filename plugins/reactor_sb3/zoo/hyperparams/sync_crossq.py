"""Hyperparameters of ``sync_crossq``: those of ``rl_zoo3`` for ``crossq``, shared out among actors."""

from reactor_sb3.zoo.sharing import tuned

__all__ = ["hyperparams"]

hyperparams = tuned("crossq", train_freq=1)
