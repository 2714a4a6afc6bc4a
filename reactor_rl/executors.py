"""The names of the executors."""

from __future__ import annotations

from typing import Literal, get_args

__all__ = ["EXECUTORS", "ExecutorName"]

ExecutorName = Literal["auto", "inline", "threads", "processes"]
EXECUTORS: tuple[ExecutorName, ...] = get_args(ExecutorName)
"""All of them; ``"auto"`` stands for the one that is found to be fastest."""
