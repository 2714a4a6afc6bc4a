"""The names of the executors."""

from __future__ import annotations

from typing import Literal, get_args

__all__ = ["CHOICES", "EXECUTORS", "ExecutorName", "NamedExecutor"]

NamedExecutor = Literal["inline", "threads", "processes"]
ExecutorName = Literal["auto", "inline", "threads", "processes"]
"""``"auto"`` stands for the one that is found to be fastest."""
EXECUTORS: tuple[NamedExecutor, ...] = get_args(NamedExecutor)
CHOICES: tuple[ExecutorName, ...] = get_args(ExecutorName)
