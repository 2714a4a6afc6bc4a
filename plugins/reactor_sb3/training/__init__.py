"""The trainers: their program of actors, learner, evaluator and logger, and the algorithms."""
