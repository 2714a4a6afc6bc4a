"""Agents that learn as something that can be verified, drawn and traced from the command line."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

from reactor_pettingzoo.learning.league import League
from reactor_pettingzoo.learning.sync_ippo import SyncIPPO
from reactor_sb3.plugin import Training

__all__ = ["self_play", "sync_ippo"]


def _training(module: str, make: str, env: dict[str, Any], **arguments: Any) -> Training:
    """A few rounds in an environment, which ``make`` of a module makes with the arguments ``env``. It is imported only here."""
    return Training(SyncIPPO, partial(getattr(import_module(module), make), **env), **arguments)


_shared: dict[str, Any] = {
    "n_actors": 4, "n_steps": 32, "batch_size": 32, "n_epochs": 2, "seed": 0, "pipeline": 1, "evaluate_every": 10,
    "evaluate_episodes": 3,
}  # fmt: skip
sync_ippo = partial(_training, "mpe2.simple_spread_v3", "parallel_env", {"N": 3, "max_cycles": 25}, **_shared)
self_play = partial(
    _training, "pettingzoo.classic.connect_four.connect_four", "env", {}, league=League(every=2, size=4, opponents=3), **_shared
)
