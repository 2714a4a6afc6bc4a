"""RL Zoo on reactor programs: ``python -m reactor_sb3.zoo train --algo sync_ppo --env CartPole-v1``.

Importing this is all: ``rl_zoo3`` then makes a :class:`~reactor_sb3.ReactorVecEnv` wherever it made a ``DummyVecEnv`` or a
``SubprocVecEnv``, and knows the trainers as algorithms.
"""

from reactor_rl.plugin import require_extra

with require_extra("zoo", "reactor_sb3.zoo"):
    from reactor_sb3.zoo.registration import TRAINERS, register

__all__ = ["TRAINERS", "register"]

register()
