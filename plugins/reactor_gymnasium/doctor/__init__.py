"""What ``python -m reactor_rl doctor ENV_ID`` finds out about an environment."""
