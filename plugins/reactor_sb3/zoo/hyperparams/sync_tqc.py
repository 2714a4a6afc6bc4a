"""Hyperparameters of ``sync_tqc``: those of ``rl_zoo3`` for ``tqc``, shared out among actors."""

from reactor_sb3.zoo.sharing import tuned

__all__ = ["hyperparams"]

hyperparams = tuned("tqc", train_freq=1)
