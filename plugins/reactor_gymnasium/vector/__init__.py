"""``ReactorVectorEnv``, and what all vector environments on reactor programs have in common."""
