"""Hyperparameters of ``sync_dqn``: those of ``rl_zoo3`` for ``dqn``, shared out among actors."""

from reactor_sb3.zoo.sharing import tuned

__all__ = ["hyperparams"]

hyperparams = tuned("dqn", train_freq=4)
