"""Agents at play as something that can be verified, drawn and traced from the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Any

import torch

from reactor_pettingzoo.runner.policies import RandomPolicy
from reactor_pettingzoo.runner.runner import MultiAgentRunner
from reactor_rl.plugin import Target

__all__ = ["Playing", "connect_four", "simple_spread"]


class Playing(Target[MultiAgentRunner]):
    """A few steps of some agents.

    Args:
        module: Module of the environment.
        make: Name of the function there that makes it.
        policies: Makes the policies.
        **arguments: Arguments of the function.
    """

    def __init__(self, module: str, make: str, policies: Callable[[], Mapping[str, Any]], **arguments: Any) -> None:
        self.module, self.policies = module, policies
        self.env_fn = partial(getattr(import_module(module), make), **arguments)

    def make(self, executor: Any = "auto", workers: int | None = None) -> MultiAgentRunner:
        """The runner."""
        return MultiAgentRunner(
            self.env_fn, self.policies(), num_envs=4, executor=executor, workers=workers, deterministic=False
        )  # fmt: skip

    def play(self, runner: MultiAgentRunner, ticks: int) -> Iterator[Any]:
        """Take ``ticks`` steps of each copy; yields a hash of actions and rewards, and the episodes."""
        report = runner.run(4 * ticks, seed=0, progress_bar=False)
        yield report.fingerprint, [(one.copy, *one.returns.values(), *one.lengths.values()) for one in report.episodes]

    def __repr__(self) -> str:
        return f"Playing({self.module!r})"


def _networks(inputs: int, outputs: int, names: tuple[str, ...]) -> dict[str, Any]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return {
            name: torch.nn.Sequential(
                torch.nn.Flatten(), torch.nn.Linear(inputs, 64), torch.nn.Tanh(), torch.nn.Linear(64, outputs)
            )
            for name in names
        }  # fmt: skip


def _one_against_another() -> dict[str, Any]:
    return {"player_0": RandomPolicy(), **_networks(84, 7, ("player_1",))}


simple_spread = partial(
    Playing, "mpe2.simple_spread_v3", "parallel_env", partial(_networks, 18, 5, ("agent_0", "agent_1", "agent_2")), max_cycles=25
)
connect_four = partial(Playing, "pettingzoo.classic.connect_four.connect_four", "env", _one_against_another)
