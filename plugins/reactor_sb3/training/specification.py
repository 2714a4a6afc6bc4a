"""What the program of a trainer is made from, and the program itself: who is connected with whom."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from reactor_gymnasium.plugin import repeat_registrations
from reactor_rl import Program
from reactor_rl.plugin import ExecutorName
from reactor_sb3.acting.actor import Actor, ActorConfig
from reactor_sb3.acting.evaluator import Evaluator
from reactor_sb3.acting.player import PlayConfig
from reactor_sb3.acting.viewer import ViewConfig, Viewer
from reactor_sb3.learning.learner import Learner, LocalRef, Logger
from reactor_sb3.learning.sharded_learner import ShardedLearner
from reactor_torch import LearnerShard, ShardPlan

__all__ = ["SHARDS", "Specification", "program_of"]

SHARDS = ("shard", "policy_shard")
"""Names of the learner's shards, and of those that compute the policy's loss."""


@dataclass(frozen=True)
class Specification:
    """A trainer as far as its program and its placement are concerned, as it was when the program was made.

    Attributes:
        name: Of the algorithm.
        live: Names the trainer, for the reactors that live with it.
        actors: For every actor.
        evaluation: For the evaluator, ``None`` if there is none.
        parameters: The parameters that actors and evaluator begin with, a record.
        pipeline: Rounds by which the learner is behind the actors, 0 or 1.
        executor: As the user has named it.
        workers: Likewise, ``None`` for the cores that this process may use.
        learner_threads: Threads of torch that the learner has.
        viewing: For the viewer, ``None`` if there is none.
        shards: For every shard of the learner, and for those that compute the policy's loss if it is split; empty if the learner
            computes all gradients itself.
        may_be_sliced: Whether it could have some.
        critics_share: Share of its gradients that are the critics', ``None`` where there are no others.
    """

    name: str
    live: LocalRef
    actors: ActorConfig
    evaluation: PlayConfig | None
    parameters: npt.NDArray[Any]
    pipeline: int
    executor: ExecutorName
    workers: int | None
    learner_threads: int
    viewing: ViewConfig | None = None
    shards: tuple[ShardPlan, ...] = ()
    may_be_sliced: bool = False
    critics_share: float | None = None

    @property
    def largest_share(self) -> float:
        """The share of an update's gradients that one reactor has in any case: with ``split=True``, of the critics'."""
        if len(self.shards) < 2 or self.critics_share is None:
            return 0.0
        return max(self.critics_share, 1 - self.critics_share) / self.shards[0].slices

    @property
    def learners(self) -> int:
        """How many reactors compute gradients at the same time, the learner included."""
        return 1 + sum(plan.shards for plan in self.shards)

    @property
    def unwatched(self) -> Specification:
        """The same without a viewer. Its ports come first among those of the program with one, and have the same numbers."""
        return replace(self, viewing=None)

    def aside(self, actor: float, picture: float) -> dict[str, float]:
        """What evaluator and viewer do at a tick, by name of those that there are.

        Args:
            actor: Seconds of an actor's round.
            picture: Seconds that it takes to show one.
        """
        step = actor / (self.actors.steps * self.actors.envs)
        seconds = {} if self.evaluation is None else {"evaluator": self.evaluation.steps * step}
        return seconds if self.viewing is None else {**seconds, "viewer": self.viewing.play.steps * (step + picture)}


def program_of(specification: Specification) -> Program:
    """The program, of which a tick is a round."""
    record, late = specification.parameters.dtype, specification.pipeline or None
    program = Program(specification.name)
    actors = program.bank(Actor, specification.actors.actors, specification.actors, name="actor")
    learner = (
        _sharded(program, specification)
        if specification.shards
        else program.add(Learner, specification.live, record, name="learner")
    )
    beat, orders = program.input("exploration", (specification.actors.steps,), np.float32), program.input("orders", (2,), np.bool_)
    program.connect(beat, actors.exploration)
    program.connect(orders, actors.orders)
    program.connect(beat, learner.beat)
    program.connect(actors.transitions, learner.transitions.rows, after=late)
    program.connect(actors.infos, learner.infos.rows, after=late)
    changed = program.input("parameters", (), record)
    program.connect(learner.parameters, actors.parameters, after=1, initial=specification.parameters)
    program.connect(changed, actors.changed)
    program.connect(actors.transitions, program.output("transitions").rows)
    program.connect(actors.infos, program.output("infos").rows)
    program.connect(actors.episodes, program.output("episodes").rows)
    timesteps = None
    if specification.evaluation is not None:
        timesteps = program.input("timesteps", (), np.int64)
        evaluator = program.add(Evaluator, specification.evaluation, record, name="evaluator")
        program.connect(learner.parameters, evaluator.parameters, after=1, initial=specification.parameters)
        program.connect(changed, evaluator.changed)
        program.connect(timesteps, evaluator.timesteps)
        program.connect(evaluator.result, program.output("evaluation"))
    logger = program.add(Logger, specification.live, name="logger")
    program.connect(program.input("records"), logger.records)
    if specification.viewing is not None:  # last: see `unwatched`
        viewer = program.add(Viewer, specification.viewing, record, name="viewer")
        program.connect(learner.parameters, viewer.parameters, after=1, initial=specification.parameters)
        program.connect(changed, viewer.changed)
        program.connect(timesteps or program.input("timesteps", (), np.int64), viewer.timesteps)
        program.connect(viewer.showing, program.output("showing"))
    program.worker_setup(repeat_registrations())
    return program


def _sharded(program: Program, specification: Specification) -> Any:
    """A learner and its shards, which come first: what is wrong with a slice is raised before what follows from it."""
    plans = specification.shards
    banks = [
        program.bank(LearnerShard, plan.shards, plan, name=name) if plan.shards else None
        for plan, name in zip(plans, SHARDS, strict=False)
    ]
    learner = program.add(ShardedLearner, specification.live, specification.parameters.dtype, *plans, name="learner")
    ports = (
        (learner.weights, learner.slices, learner.round, learner.computed),
        (learner.policy_weights, learner.policy_slices, learner.policy_round, learner.policy_computed),
    )
    for shards, (weights, slices, round, computed) in zip(banks, ports, strict=False):
        if shards is not None:
            program.connect(weights, shards.weights)
            program.connect(slices.rows, shards.slice)
            program.connect(round, shards.round)
            program.connect(shards.computed, computed.rows)
    return learner
