"""PettingZoo on reactor programs: many agents on every core, and the same results on any number of them."""

import logging

from reactor_rl import __version__
from reactor_rl.plugin import preload, require_extra

with require_extra("pettingzoo", "reactor_pettingzoo"):
    from reactor_pettingzoo.evaluation import evaluate
    from reactor_pettingzoo.runner.policies import RandomPolicy
    from reactor_pettingzoo.runner.report import Report
    from reactor_pettingzoo.runner.runner import MultiAgentRunner
    from reactor_pettingzoo.runner.tournament import Tournament, tournament
    from reactor_pettingzoo.vector_env import ParallelVectorEnv

__all__ = ["MultiAgentRunner", "ParallelVectorEnv", "RandomPolicy", "Report", "Tournament", "evaluate", "tournament", "__version__"]

logging.getLogger(__name__).addHandler(logging.NullHandler())

preload("gymnasium", "gymnasium.vector", "pettingzoo", "pettingzoo.utils.conversions", "reactor_pettingzoo.rows")
