"""The algorithms, and what they have in common: a program of actors, learner, evaluator and logger, and where it runs."""
