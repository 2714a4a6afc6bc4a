"""The reactor program of a trainer: what its reactors are made from, and who is connected with whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from gymnasium import spaces

from reactor_gymnasium.plugin import repeat_registrations
from reactor_rl import Program
from reactor_rl.plugin import Pickled, dumps
from reactor_sb3.environments.makers import maker_of
from reactor_sb3.training.actor import Actor, Blueprint
from reactor_sb3.training.evaluator import EvaluationPlan, Evaluator
from reactor_sb3.training.learner import Learner, Logger
from reactor_sb3.training.networks import network_of
from reactor_sb3.training.records import Observations
from reactor_torch import write_parameters

if TYPE_CHECKING:
    from reactor_sb3.training.trainer import Trainer

__all__ = ["Plan", "plan_of", "program_of"]


@dataclass(frozen=True)
class Plan:
    """What the reactors of a trainer are made from.

    Attributes:
        actors: For every actor.
        evaluation: For the evaluator, ``None`` if there is none.
    """

    actors: Blueprint
    evaluation: EvaluationPlan | None

    @property
    def evaluator_cost(self) -> float | None:
        """What the evaluator does at a tick, in rounds of an actor; ``None`` if there is none."""
        return None if self.evaluation is None else self.evaluation.steps / (self.actors.steps * self.actors.envs)


def plan_of(trainer: Trainer) -> Plan:
    """The plan that follows from a trainer's arguments.

    Raises:
        ValueError: If the trainer has no environment.
    """
    if trainer.env is None:
        raise ValueError("the model has no environment: pass env= to load(), or call set_env()")
    observations = Observations(trainer.env.unwrapped.observation_space, trainer.observation_space)
    network = network_of(trainer.acting_network(), trainer.observation_space)
    make = Pickled(dumps(maker_of(trainer.env)))
    assert isinstance(trainer.action_space, spaces.Discrete)
    blueprint = Blueprint(
        make, observations, trainer.action_space, network, trainer.rollout_steps, trainer.envs_per_actor, trainer.n_actors,
        trainer._base_seed, trainer.epsilon_spread,
    )  # fmt: skip
    if trainer.evaluate_every is None:
        return Plan(blueprint, None)
    evaluation = EvaluationPlan(
        make if trainer._evaluate_env is None else Pickled(dumps(trainer._evaluate_env)), observations, network,
        trainer._base_seed, trainer.evaluate_every, trainer.evaluate_episodes,
        trainer.evaluate_steps or trainer.rollout_steps * trainer.envs_per_actor,
    )  # fmt: skip
    return Plan(blueprint, evaluation)


def program_of(trainer: Trainer, plan: Plan) -> Program:
    """The program, of which a tick is a round."""
    record = trainer.parameter_record()
    late = trainer.pipeline or None
    program = Program(type(trainer).__name__)
    actors = program.bank(Actor, trainer.n_actors, plan.actors, name="actor")
    learner = program.add(Learner, trainer._live, record, name="learner")
    beat, orders = program.input("epsilon", (plan.actors.steps,), np.float32), program.input("orders", (2,), np.bool_)
    program.connect(beat, actors.epsilon)
    program.connect(orders, actors.orders)
    program.connect(beat, learner.beat)
    program.connect(actors.transitions, learner.transitions.rows, after=late)
    program.connect(actors.infos, learner.infos.rows, after=late)
    first = np.zeros((), record)
    write_parameters(first, trainer.broadcast_state())
    changed = program.input("parameters", (), record)
    program.connect(learner.parameters, actors.parameters, after=1, initial=first)
    program.connect(changed, actors.changed)
    program.connect(actors.transitions, program.output("transitions").rows)
    program.connect(actors.infos, program.output("infos").rows)
    program.connect(actors.episodes, program.output("episodes").rows)
    if plan.evaluation is not None:
        evaluator = program.add(Evaluator, plan.evaluation, record, name="evaluator")
        program.connect(learner.parameters, evaluator.parameters, after=1, initial=first)
        program.connect(changed, evaluator.changed)
        program.connect(program.input("timesteps", (), np.int64), evaluator.timesteps)
        program.connect(evaluator.result, program.output("evaluation"))
    logger = program.add(Logger, trainer._live, name="logger")
    program.connect(program.input("records"), logger.records)
    program.worker_setup(repeat_registrations())
    return program
