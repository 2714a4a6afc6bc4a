"""PettingZoo on reactor programs: many agents on every core, and the same results on any number of them."""

from reactor_pettingzoo.policies import RandomPolicy
from reactor_pettingzoo.runner import MultiAgentRunner
from reactor_pettingzoo.vector_env import ParallelVectorEnv
from reactor_rl.runtime.launch import preload

__all__ = ["MultiAgentRunner", "ParallelVectorEnv", "RandomPolicy"]

preload("gymnasium", "gymnasium.vector", "pettingzoo", "pettingzoo.utils.conversions", "reactor_pettingzoo.vector_shard")
