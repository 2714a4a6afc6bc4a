"""A trainer as its parts and its checkpoints see it, which the trainer itself imports: the base of all trainers."""

from __future__ import annotations

import os
from abc import abstractmethod
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import numpy.typing as npt
import torch
from stable_baselines3.common.base_class import BaseAlgorithm

from reactor_rl.plugin import ExecutorName, RunOwner
from reactor_sb3.acting.actor import StepInfo
from reactor_sb3.acting.behaviours import Behaviour
from reactor_sb3.acting.evaluator import Evaluation
from reactor_sb3.environments.seeded_envs import MakeRows, single_envs
from reactor_sb3.trainers.learner import shares_of
from reactor_sb3.trainers.program import ProgramConfig, config_of
from reactor_torch import Batch, Loss, Network, Networks, Update, torch_threads

__all__ = ["Model"]

Array = npt.NDArray[Any]


class Model(RunOwner, BaseAlgorithm):
    """The attributes of a trainer, what an algorithm says of itself, and what is asked before and after a round."""

    arguments: dict[str, Any]
    session: Any
    """A :class:`reactor_sb3.trainers.session.Session`."""
    nets: Networks
    split: bool
    pipeline: int
    learner_threads: int
    executor: ExecutorName
    nodes: Any
    workers: int | None
    start_method: str | None
    restarts: int
    timeout: float | None
    evaluate_every: int | None
    wants_infos: bool
    watch: str | os.PathLike[str] | None
    watch_every: int
    watch_episodes: int
    watch_steps: int | None
    policy: Any
    _learned_timesteps: int
    _n_updates: int
    _total_timesteps: int

    log_unit: ClassVar[str] = "episodes"
    """Unit of ``log_interval``."""

    @abstractmethod
    def start(self) -> Any:
        """See :meth:`reactor_sb3.trainers.trainer.Trainer.start`."""

    @abstractmethod
    def look(self) -> None:
        """See :meth:`reactor_sb3.trainers.trainer.Trainer.look`."""

    # ------------------------------------------------------------------ what an algorithm says

    @property
    @abstractmethod
    def rollout_steps(self) -> int:
        """Steps of each environment in a round."""

    @abstractmethod
    def acting(self) -> tuple[torch.nn.Module, Behaviour]:
        """The network whose parameters the actors get, and how they act by them."""

    @abstractmethod
    def exploration_rates(self) -> Array:
        """The coming round's rate of exploration at each step, shape ``(rollout_steps,)``, float32."""

    @abstractmethod
    def networks(self) -> dict[str, Network]:
        """The networks that learn, and those that losses read besides, by name: parts of ``self.policy``, which may be a copy."""

    @abstractmethod
    def losses(self) -> dict[str, Loss]:
        """The coming round's losses, by name; with ``split=True`` all of them are computed at the same time."""

    @abstractmethod
    def batch(self, given: Any) -> Batch:
        """The batch to learn from, with everything in it that chance decides.

        Args:
            given: What the base class has: sampled transitions by name, or a round of rollouts.
        """

    @abstractmethod
    def update(self, batch: Any) -> Update:
        """One update, as in the loop of SB3's ``train()``; returns what is to be logged."""

    @property
    def make_rows(self) -> MakeRows:
        """Makes what steps environments, from the number of the first one, wherever they are stepped."""
        return single_envs

    @abstractmethod
    def round(self, transitions: Array, infos: list[list[StepInfo]]) -> Update:
        """Store a round and make its updates.

        Args:
            transitions: A record for each actor, see :func:`reactor_sb3.acting.records.transition_record`.
            infos: Of each actor; empty unless somebody wants them.
        """

    @property
    @abstractmethod
    def minibatch_rows(self) -> int:
        """Rows of a minibatch."""

    @property
    def update_rows(self) -> int:
        """Rows that one of what ``train/n_updates`` counts is made from."""
        return self.minibatch_rows

    @abstractmethod
    def updates_due(self) -> int:
        """Updates of a round."""

    @abstractmethod
    def example(self) -> Batch:
        """A minibatch of zeros, as large as there are any."""

    # ------------------------------------------------------------------ what is asked before and after a round

    def round_done(self) -> None:
        """Called when callbacks have seen a round."""

    def check_shown(self) -> None:
        """Refuse what callbacks have changed where nobody looks at it again."""

    def further_settings(self) -> tuple[Any, ...]:
        """Settings that are no attributes of the trainer itself."""
        return ()

    def check_settings(self) -> None:
        """Refuse attributes that make no sense: when a run begins, and when some were changed between two rounds."""

    def cut_episodes(self, which: Array) -> None:
        """Note that the episodes of some environments were cut off after the last transition that has been learned from.

        Args:
            which: Environments to cut off, ``(n_envs,)``, bool.
        """
        if self._vec_normalize_env is not None:
            self._vec_normalize_env.returns[which] = 0

    def shares(self) -> tuple[float, ...]:
        """Share of each loss in the time that the gradients of a round take, reckoned from parameters."""
        return shares_of(self.nets)

    def policy_device(self) -> torch.device:
        """Where all losses but the first are computed, with ``split=True``."""
        return self.device

    def plan_blocks(self) -> None:
        """Decide of which blocks of rows gradients are the sum; see :meth:`reactor_torch.Networks.plan_blocks`."""
        self.nets.plan_blocks(dict.fromkeys(self.nets.losses, self.example()))

    def limited_threads(self) -> AbstractContextManager[None]:
        """As many threads for torch as the learner is to have, whatever a callback has left."""
        return torch_threads(self.learner_threads)

    def program_config(self) -> ProgramConfig:
        """The program's configuration.

        Raises:
            ValueError: If the model has no environment.
        """
        return config_of(self)

    @property
    def evaluations(self) -> list[Evaluation]:
        """All evaluations of ``evaluate_every``, the oldest first."""
        evaluations: list[Evaluation] = self.session.report.evaluations
        return evaluations

    def dump_logs(self, iteration: int = 0) -> None:
        """Record the usual statistics, and write them in a row; within :meth:`learn`, while the next round is sampled."""
        self.session.report.dump(self)
