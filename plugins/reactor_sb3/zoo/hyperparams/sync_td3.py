"""Hyperparameters of ``sync_td3``: those of ``rl_zoo3`` for ``td3``, shared out among actors."""

from reactor_sb3.zoo.sharing import tuned

__all__ = ["hyperparams"]

hyperparams = tuned("td3", train_freq=1)
