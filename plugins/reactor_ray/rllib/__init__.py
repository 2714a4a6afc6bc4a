"""Ray RLlib on reactor programs. Importing this imports RLlib."""

from reactor_rl.plugin import needs

with needs("rllib", "reactor_ray.rllib"):
    from reactor_ray.rllib.env_runner import ReactorEnvRunner
    from reactor_ray.rllib.environments import env_id

__all__ = ["ReactorEnvRunner", "env_id"]
