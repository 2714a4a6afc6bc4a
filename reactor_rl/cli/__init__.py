"""The commands of ``python -m reactor_rl``."""
