"""Ray RLlib on reactor programs. Importing this imports RLlib."""

from typing import Any

from reactor_rl.plugin import require_extra

with require_extra("rllib", "reactor_ray.rllib"):
    from reactor_ray.rllib.env_runner import ReactorEnvRunner
    from reactor_ray.rllib.environments import env_id
    from reactor_ray.rllib.ppo_learner import ReactorPPOTorchLearner

__all__ = ["ReactorEnvRunner", "ReactorMultiAgentEnvRunner", "ReactorPPOTorchLearner", "env_id"]


def __getattr__(name: str) -> Any:
    """The runner of many agents is imported when it is asked for: it needs PettingZoo, and the others do not."""
    if name == "ReactorMultiAgentEnvRunner":
        from reactor_ray.rllib.multi_agent_env_runner import ReactorMultiAgentEnvRunner

        return ReactorMultiAgentEnvRunner
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
