"""Commands and targets that this package adds to ``python -m reactor_rl``."""
