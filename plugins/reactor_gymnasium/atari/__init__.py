"""``AtariVectorEnv``, ``AtariEnv``, and how their frames are made."""
