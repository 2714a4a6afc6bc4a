"""A model of the tick protocol, searched in breadth, and recorded runs of the real runtime that must be runs of the model.

``python -m tests.model`` searches all programs and faults, also those that are too many for the tests, and writes their table.
"""
