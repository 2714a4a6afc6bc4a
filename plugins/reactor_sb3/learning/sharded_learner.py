"""The learner that has shards: each minibatch is a microstep, in which all of them compute and one adds up and steps."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from reactor_rl import Input, LogicalAction, Output, Reactor, reaction
from reactor_sb3.acting.actor import StepInfo
from reactor_sb3.learning.learner import Learning, LocalRef
from reactor_torch import ShardPlan, SharedLosses, UpdaterTask, Updates, torch_stream

__all__ = ["ShardedLearner", "SharedLearning"]

Array = npt.NDArray[Any]
NONE: Array = np.zeros((0, 0), np.float32)
"""What no shards have computed."""


class SharedLearning(Learning, Protocol):
    """What is asked of a trainer whose gradients are computed in slices."""

    shared_losses: tuple[SharedLosses, ...]
    learner_threads: int
    draws_noise: ClassVar[bool]
    session: Any

    def updates_from(self, transitions: Array, infos: list[list[StepInfo]]) -> Updates[None]: ...

    def shard_seeds(self, group: int) -> list[int]: ...


class ShardedLearner(Reactor):
    """Stores a round of transitions, learns from it together with its shards, and sends the parameters out.

    The updates are the trainer's, which is asked for the next tasks when there are gradients of the last ones. The reaction to a
    new round is declared behind those to tasks: nothing in a microstep then waits for the actors.

    With ``split=True`` the policy's loss is computed by shards of its own, at the same time as the critics': they have the ports
    that are called ``policy_...``.

    Args:
        trainer: The trainer.
        record: Of the parameters that actors get.
        plans: Of the learner's shards, and of the policy's if it has some.
    """

    transitions = Input()
    """A record for each actor, ``(n_actors,)``."""
    infos = Input()
    beat = Input()
    """Present at every tick."""
    computed = Input()
    """Gradients and statistics of each shard, ``(plan.shards, plan.computed)``, float32."""
    policy_computed = Input()
    parameters = Output((), np.uint8)
    weights = Output((0,), np.float32)
    policy_weights = Output((0,), np.float32)
    slices = Output((0,), np.uint8)
    policy_slices = Output((0,), np.uint8)
    round = Output()
    policy_round = Output()
    minibatch = LogicalAction()

    def __init__(self, trainer: LocalRef, record: npt.DTypeLike, *plans: ShardPlan) -> None:
        self.trainer = trainer
        self.parameters = Output((), record)
        self.weights = Output((plans[0].weights,), np.float32)
        self.slices = Output((plans[0].shards,), plans[0].layout.record)
        if len(plans) > 1:
            self.policy_weights = Output((plans[1].weights,), np.float32)
            self.policy_slices = Output((plans[1].shards,), plans[1].layout.record)
        self.updates: Updates[None] | None = None
        self.tasks: tuple[UpdaterTask, ...] = ()
        self.told: set[int] = set()

    @reaction(minibatch, effects=(weights, slices, round, policy_weights, policy_slices, policy_round))
    def send(self) -> None:
        """Hand out the weights and the slices."""
        trainer: SharedLearning = self.trainer.target
        ports = (self.weights, self.slices, self.round), (self.policy_weights, self.policy_slices, self.policy_round)
        for group, (shared, (weights, slices, round)) in enumerate(zip(trainer.shared_losses, ports, strict=False)):
            task = shared.task_of(self.tasks)
            if task is None or not shared.shards:
                continue
            if group not in self.told:
                self.told.add(group)
                round.set(shared.begin_round(trainer.shard_seeds(group)))
            shared.send(task, weights.buffer, slices.buffer)

    @reaction(minibatch)
    def compute(self) -> None:
        """The gradients of the first slice."""
        trainer: SharedLearning = self.trainer.target
        task = trainer.shared_losses[0].task_of(self.tasks)
        if task is not None:
            with trainer.limited_threads() if trainer.learner_threads > 1 else nullcontext():
                trainer.shared_losses[0].compute(task, trainer.session.torch_stream)

    @reaction(minibatch, uses=(computed, policy_computed), effects=(parameters, minibatch))
    def step(self) -> None:
        """Add the gradients up and make the update."""
        trainer: SharedLearning = self.trainer.target
        found: dict[int, Array] = {}
        for shared, port in zip(trainer.shared_losses, (self.computed, self.policy_computed), strict=False):
            if (task := shared.task_of(self.tasks)) is not None:
                found[task.loss] = shared.add(task, port.value if shared.shards else NONE)
        self._go_on(trainer, tuple([found[task.loss] for task in self.tasks]))

    @reaction(beat, uses=(transitions, infos), effects=(parameters, minibatch))
    def learn(self) -> None:
        """Begin with a round, if one has arrived."""
        trainer: SharedLearning = self.trainer.target
        if np.all(self.transitions.present):
            trainer.add_statistics(self.transitions.value)
            self.updates = trainer.updates_from(self.transitions.value, self.infos.value if trainer.wants_infos else [])
            self.told = set()
            self._go_on(trainer, None)
        else:
            trainer.write_parameters(self.parameters.buffer)

    def _go_on(self, trainer: SharedLearning, statistics: Any) -> None:
        """To the next tasks, or to the end of the round."""
        assert self.updates is not None
        drawing = trainer.draws_noise or statistics is None  # a round may begin with evaluations
        stream = torch_stream(trainer.session.torch_stream) if drawing else nullcontext()
        with trainer.limited_threads() if trainer.learner_threads > 1 else nullcontext(), stream:
            try:
                self.tasks = self.updates.send(statistics)
            except StopIteration:
                self.updates, self.tasks = None, ()
        if self.updates is None:
            trainer.write_parameters(self.parameters.buffer)
        else:
            self.minibatch.schedule()
