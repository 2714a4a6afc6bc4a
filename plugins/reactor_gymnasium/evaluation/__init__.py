"""Evaluating policies: the same report for any number of environments side by side, workers, and restarts."""
