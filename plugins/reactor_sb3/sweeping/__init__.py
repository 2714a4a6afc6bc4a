"""Searching hyperparameters: whole trainings in processes of their own, and a study that is the same on any number of them."""
