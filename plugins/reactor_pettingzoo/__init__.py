"""PettingZoo on reactor programs: many agents on every core, and the same results on any number of them."""

from reactor_rl.extras import needs
from reactor_rl.runtime.launch import preload

with needs("pettingzoo", "reactor_pettingzoo"):
    from reactor_pettingzoo.policies import RandomPolicy
    from reactor_pettingzoo.report import Report
    from reactor_pettingzoo.runner import MultiAgentRunner
    from reactor_pettingzoo.tournament import Tournament, tournament
    from reactor_pettingzoo.vector_env import ParallelVectorEnv

__all__ = ["MultiAgentRunner", "ParallelVectorEnv", "RandomPolicy", "Report", "Tournament", "tournament"]

preload("gymnasium", "gymnasium.vector", "pettingzoo", "pettingzoo.utils.conversions", "reactor_pettingzoo.vector_shard")
