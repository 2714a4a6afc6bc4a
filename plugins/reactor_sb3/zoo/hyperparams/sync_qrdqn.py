"""Hyperparameters of ``sync_qrdqn``: those of ``rl_zoo3`` for ``qrdqn``, shared out among actors."""

from reactor_sb3.zoo.sharing import tuned

__all__ = ["hyperparams"]

hyperparams = tuned("qrdqn", train_freq=4)
