"""Checkpoints of trainers: what is in one, and how it is written, checked and put back."""
