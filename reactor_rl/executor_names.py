"""The names of the executors."""

from __future__ import annotations

from typing import Literal, get_args

__all__ = ["CHOICES", "EXECUTORS", "LOCAL", "ExecutorName", "LocalName", "NamedExecutor"]

NamedExecutor = Literal["inline", "threads", "processes"]
LocalName = Literal["auto", "inline", "threads", "processes"]
ExecutorName = Literal["auto", "inline", "threads", "processes", "federated", "ray"]
"""``"auto"`` stands for the one of this machine that is found to be fastest, ``"ray"`` for the machines of a Ray cluster, and
``"federated"`` for several nodes in this process, with which one can see how a program would be cut."""
EXECUTORS: tuple[NamedExecutor, ...] = get_args(NamedExecutor)
LOCAL: tuple[LocalName, ...] = get_args(LocalName)
CHOICES: tuple[ExecutorName, ...] = get_args(ExecutorName)
