"""What the program of a trainer is made from, and the program itself: who is connected with whom."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from reactor_gymnasium.plugin import repeat_registrations
from reactor_rl import Program
from reactor_rl.plugin import ExecutorName
from reactor_sb3.acting.actor import Actor, ActorConfig
from reactor_sb3.acting.evaluator import Evaluator
from reactor_sb3.acting.normalization import Normalization, normalized_keys
from reactor_sb3.acting.player import PlayConfig
from reactor_sb3.acting.records import Observations
from reactor_sb3.acting.viewer import ViewConfig, Viewer
from reactor_sb3.environments.live_vec_env import shown_to_actors
from reactor_sb3.trainers.learner import Learner, LocalRef, Logger, ParallelLearner
from reactor_torch import GradientWorker, SlicedGradients, WorkerConfig

__all__ = ["ProgramConfig", "program_of", "config_of"]


@dataclass(frozen=True)
class ProgramConfig:
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
        gradients: For every gradient worker; ``None`` if the learner computes all gradients itself.
        may_be_sliced: Whether it could have some.
        shares: Share of each loss in the time that gradients take; those of different lanes are computed at the same time.
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
    gradients: WorkerConfig | None = None
    may_be_sliced: bool = False
    shares: tuple[float, ...] = (1.0,)

    @property
    def largest_share(self) -> float:
        """The share of an update's gradients that one reactor has in any case: with ``split=True``, of the longest lane's."""
        config = self.gradients
        return 0.0 if config is None or not config.lanes.split else max(self.shares) / config.lanes.slices

    @property
    def learners(self) -> int:
        """How many reactors compute gradients at the same time, the learner included."""
        return 1 if self.gradients is None else 1 + self.gradients.lanes.workers

    @property
    def unwatched(self) -> ProgramConfig:
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


def config_of(model: Any) -> ProgramConfig:
    """What a trainer's program is made from; see :meth:`reactor_sb3.trainers.trainer.Trainer.program_config`."""
    if model.env is None:
        raise ValueError("the model has no environment: pass env= to load(), or call set_env()")
    session, seed = model.session, model._base_seed
    given, normalizer = shown_to_actors(model.env).observation_space, model._vec_normalize_env
    keys = () if normalizer is None else normalized_keys(normalizer)
    observations = Observations(given, model.observation_space, normalized=keys)
    originals = None if normalizer is None else Observations(given, model.observation_space, original=True)
    normalization = session.normalization = None if originals is None else Normalization(originals, keys)
    _, policy = model.acting()
    actors = ActorConfig(
        makes=session.makes.pickled(model.n_envs), observations=observations, action_space=model.action_space,
        policy=policy, steps=model.rollout_steps, envs=model.envs_per_actor, actors=model.n_actors, seed=seed,
        normalization=normalization,
    )  # fmt: skip
    steps = model.rollout_steps * model.envs_per_actor
    played = partial(
        PlayConfig, observations=observations, policy=policy, seed=seed, normalization=normalization
    )  # fmt: skip
    evaluation = None
    if model.evaluate_every is not None:
        evaluation = played(
            make=(session.evaluate_env or session.makes).pickled(1)[0], every=model.evaluate_every,
            episodes=model.evaluate_episodes, steps=model.evaluate_steps or steps,
        )  # fmt: skip
    return ProgramConfig(
        name=type(model).__name__, live=session.live, actors=actors, evaluation=evaluation,
        parameters=session.parameters(model), pipeline=model.pipeline, executor=model.executor, workers=model.workers,
        learner_threads=model.learner_threads, viewing=session.display.plan_of(model, played, steps), gradients=_workers_of(model),
        may_be_sliced=model.device.type == "cpu", shares=model.shares(),
    )  # fmt: skip


def _workers_of(model: Any) -> WorkerConfig | None:
    """What gradient workers are made from; ``None`` for a learner without. From now on its gradients are computed in slices."""
    model.session.sliced = None
    if model.n_learners == 1 and not model.split:
        return None
    model.session.sliced = SlicedGradients(model.nets, model.example(), model.n_learners, model.split)
    config: WorkerConfig = model.session.sliced.config(model.learner_threads, (model.device, model.policy_device()))
    return config


def program_of(config: ProgramConfig) -> Program:
    """The program, of which a tick is a round."""
    record, late = config.parameters.dtype, config.pipeline or None
    program = Program(config.name)
    actors = program.bank(Actor, config.actors.actors, config.actors, name="actor")
    learner = (
        _parallel(program, config, config.gradients)
        if config.gradients is not None
        else program.add(Learner, config.live, record, name="learner")
    )
    beat, orders = program.input("exploration", (config.actors.steps,), np.float32), program.input("orders", (2,), np.bool_)
    program.connect(beat, actors.exploration)
    program.connect(orders, actors.orders)
    program.connect(beat, learner.beat)
    program.connect(actors.transitions, learner.transitions.rows, after=late)
    program.connect(actors.infos, learner.infos.rows, after=late)
    changed = program.input("parameters", (), record)
    program.connect(learner.parameters, actors.parameters, after=1, initial=config.parameters)
    program.connect(changed, actors.changed)
    program.connect(actors.transitions, program.output("transitions").rows)
    program.connect(actors.infos, program.output("infos").rows)
    program.connect(actors.episodes, program.output("episodes").rows)
    timesteps = None
    if config.evaluation is not None:
        timesteps = program.input("timesteps", (), np.int64)
        evaluator = program.add(Evaluator, config.evaluation, record, name="evaluator")
        program.connect(learner.parameters, evaluator.parameters, after=1, initial=config.parameters)
        program.connect(changed, evaluator.changed)
        program.connect(timesteps, evaluator.timesteps)
        program.connect(evaluator.result, program.output("evaluation"))
    logger = program.add(Logger, config.live, name="logger")
    program.connect(program.input("records"), logger.records)
    if config.viewing is not None:  # last: see `unwatched`
        viewer = program.add(Viewer, config.viewing, record, name="viewer")
        program.connect(learner.parameters, viewer.parameters, after=1, initial=config.parameters)
        program.connect(changed, viewer.changed)
        program.connect(timesteps or program.input("timesteps", (), np.int64), viewer.timesteps)
        program.connect(viewer.showing, program.output("showing"))
    program.worker_setup(repeat_registrations())
    return program


def _parallel(program: Program, config: ProgramConfig, workers_config: WorkerConfig) -> Any:
    """A learner and its workers, which come first: what is wrong with a slice is raised before what follows from it."""
    workers = program.bank(GradientWorker, workers_config.lanes.workers, workers_config, name="gradient_worker")
    learner = program.add(ParallelLearner, config.live, config.parameters.dtype, workers_config, name="learner")
    program.connect(learner.weights, workers.weights)
    program.connect(learner.slices.rows, workers.slice)
    program.connect(learner.round, workers.round)
    program.connect(workers.computed, learner.computed.rows)
    return learner
