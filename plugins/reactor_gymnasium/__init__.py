"""Gymnasium on reactor programs: vector environments that use every core and give the same results on any number of them."""

from reactor_rl.extras import needs
from reactor_rl.runtime.launch import preload

with needs("gymnasium", "reactor_gymnasium"):
    from reactor_gymnasium.atari import AtariVectorEnv
    from reactor_gymnasium.atari_env import AtariEnv
    from reactor_gymnasium.make import make_vec
    from reactor_gymnasium.rollout import Rollout, rollout
    from reactor_gymnasium.twins import follow, register
    from reactor_gymnasium.vector_env import ReactorVectorEnv

__all__ = ["AtariEnv", "AtariVectorEnv", "ReactorVectorEnv", "Rollout", "make_vec", "register", "rollout"]

preload("gymnasium", "gymnasium.vector", "gymnasium.wrappers", "reactor_gymnasium.shard", "reactor_gymnasium.atari_shard")
register()
follow()
