"""What this package adds to ``python -m reactor_rl``."""
