"""``ReactorVecEnv``, and the environments of trainers: how they are made, kept, and saved between two steps."""
