"""Commands that the plugin adds to ``python -m reactor_rl``."""
