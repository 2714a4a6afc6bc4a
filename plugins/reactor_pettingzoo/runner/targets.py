"""Agents at play as something that can be verified, drawn and traced from the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

import torch

from reactor_pettingzoo.runner.policies import RandomPolicy
from reactor_pettingzoo.runner.runner import MultiAgentRunner
from reactor_rl.plugin import canonical, new_hash

__all__ = ["Playing", "connect_four", "simple_spread"]


class Playing:
    """A few steps of some agents.

    Args:
        module: Of the environment.
        make: Name of the function there that makes it.
        policies: Makes the policies.
        **arguments: Of the function.
    """

    def __init__(self, module: str, make: str, policies: Callable[[], Mapping[str, Any]], **arguments: Any) -> None:
        self.module, self.policies = module, policies
        self.env_fn = partial(getattr(import_module(module), make), **arguments)

    def _runner(self, executor: Any = "auto", workers: int | None = None) -> MultiAgentRunner:
        return MultiAgentRunner(
            self.env_fn, self.policies(), num_envs=4, executor=executor, workers=workers, deterministic=False
        )  # fmt: skip

    def fingerprint(self, executor: str, workers: int, ticks: int) -> str:
        """A hash over actions, rewards and episodes of ``ticks`` steps of each copy."""
        total = new_hash()
        with self._runner(executor, workers) as runner:
            report = runner.run(4 * ticks, seed=0, progress_bar=False)
            episodes = [(one.copy, *one.returns.values(), *one.lengths.values()) for one in report.episodes]
            canonical((report.fingerprint, episodes), total)
        return str(total.hexdigest())

    def draw(self, path: str) -> str:
        """Draw the program behind it, as it would run here."""
        with self._runner() as runner:
            return runner.draw(path)

    def trace(self, path: str, ticks: int = 100, executor: str = "auto", workers: int | None = None) -> None:
        """Write a trace of ``ticks`` steps of each copy."""
        with self._runner(executor, workers) as runner:
            runner.run(4, seed=0, progress_bar=False)
            with runner.trace(path):
                runner.run(4 * ticks, seed=0, progress_bar=False)

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
