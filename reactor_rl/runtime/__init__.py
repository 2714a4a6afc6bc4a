"""Execution of a schedule: one protocol, several executors."""
