"""The learner that has shards: each minibatch is a microstep, in which all of them compute and one adds up and steps."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from reactor_rl import Input, LogicalAction, Output, Reactor, reaction
from reactor_sb3.acting.actor import StepInfo
from reactor_sb3.learning.learner import Learning, LocalRef
from reactor_torch import ShardPlan, SharedLoss, Task, Updates, torch_stream

__all__ = ["ShardedLearner", "SharedLearning"]

Array = npt.NDArray[Any]


class SharedLearning(Learning, Protocol):
    """What is asked of a trainer whose gradients are computed in slices."""

    shared_loss: SharedLoss
    learner_threads: int
    _torch_stream: torch.Tensor

    def updates_from(self, transitions: Array, infos: list[list[StepInfo]]) -> Updates[None]: ...

    def shard_seeds(self) -> list[int]: ...


class ShardedLearner(Reactor):
    """Stores a round of transitions, learns from it together with its shards, and sends the parameters out.

    The updates are the trainer's, which is asked for the next minibatch when there are gradients of the last one. The reaction to a
    new round is declared behind those to minibatches: nothing in a microstep then waits for the actors.
    """

    transitions = Input()
    """A record for each actor, ``(n_actors,)``."""
    infos = Input()
    beat = Input()
    """Present at every tick."""
    computed = Input()
    """Gradients and statistics of each shard, ``(slices - 1, size + statistics)``, float32."""
    parameters = Output((), np.uint8)
    weights = Output((0,), np.float32)
    slices = Output((0,), np.uint8)
    round = Output()
    minibatch = LogicalAction()

    def __init__(self, trainer: LocalRef, record: npt.DTypeLike, plan: ShardPlan) -> None:
        self.trainer = trainer
        self.parameters = Output((), record)
        self.weights = Output((plan.size,), np.float32)
        self.slices = Output((plan.slices - 1,), plan.layout.record)
        self.updates: Updates[None] | None = None
        self.tasks: tuple[Task, ...] = ()
        self.begins = False

    @reaction(minibatch, effects=(weights, slices, round))
    def send(self) -> None:
        """Hand out the weights and the slices."""
        trainer: SharedLearning = self.trainer.target
        if self.begins:
            self.begins = False
            self.round.set(trainer.shared_loss.begin_round(trainer.shard_seeds()))
        trainer.shared_loss.send(self.tasks, self.weights.buffer, self.slices.buffer)

    @reaction(minibatch)
    def compute(self) -> None:
        """The gradients of the first slice."""
        trainer: SharedLearning = self.trainer.target
        with trainer.limited_threads() if trainer.learner_threads > 1 else nullcontext():
            trainer.shared_loss.compute(self.tasks, trainer._torch_stream)

    @reaction(minibatch, uses=computed, effects=(parameters, minibatch))
    def step(self) -> None:
        """Add the gradients up and make the update."""
        trainer: SharedLearning = self.trainer.target
        self._go_on(trainer, trainer.shared_loss.add(self.computed.value))

    @reaction(beat, uses=(transitions, infos), effects=(parameters, minibatch))
    def learn(self) -> None:
        """Begin with a round, if one has arrived."""
        trainer: SharedLearning = self.trainer.target
        if np.all(self.transitions.present):
            trainer.add_statistics(self.transitions.value)
            self.updates = trainer.updates_from(self.transitions.value, self.infos.value if trainer.wants_infos else [])
            self.begins = True
            self._go_on(trainer, None)
        else:
            trainer.write_parameters(self.parameters.buffer)

    def _go_on(self, trainer: SharedLearning, statistics: Any) -> None:
        """To the next minibatch, or to the end of the round."""
        assert self.updates is not None
        first = torch_stream(trainer._torch_stream) if statistics is None else nullcontext()  # a round may begin with evaluations
        with trainer.limited_threads() if trainer.learner_threads > 1 else nullcontext(), first:
            try:
                self.tasks = self.updates.send(statistics)
            except StopIteration:
                self.updates, self.tasks = None, ()
        if self.updates is None:
            trainer.write_parameters(self.parameters.buffer)
        else:
            self.minibatch.schedule()
