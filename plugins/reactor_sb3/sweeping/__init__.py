"""Searching hyperparameters: whole trainings are reactors, and a study is the same on any number of workers."""
