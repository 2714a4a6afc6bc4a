"""The program of a trainer, who is connected with whom in it, and its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from torch import nn

from reactor_gymnasium.plugin import repeat_registrations
from reactor_rl import Program
from reactor_rl.plugin import ExecutorName, Topology
from reactor_sb3.acting.actor import Actor, ActorConfig
from reactor_sb3.acting.evaluator import Evaluator
from reactor_sb3.acting.normalization import Normalization, by_key
from reactor_sb3.acting.player import PlayConfig
from reactor_sb3.acting.records import Observations
from reactor_sb3.acting.viewer import ViewConfig, Viewer
from reactor_sb3.environments.live_vec_env import shown_to_actors
from reactor_sb3.streams import Purpose
from reactor_sb3.trainers.learner import Learner, LocalRef, Logger, ParallelLearner
from reactor_torch import GradientWorker, Networks, SlicedGradients, WorkerConfig, exchanged_bytes

__all__ = ["ProgramConfig", "SavedParts", "config_of", "program_of", "saved_parts", "with_learners"]


@dataclass(frozen=True)
class ProgramConfig:
    """A trainer as far as its program and its placement are concerned, as it was when the program was made.

    Attributes:
        name: Of the algorithm.
        live: Names the trainer, for the reactors that live with it.
        actors: For every actor.
        evaluation: For the evaluator; ``None`` without one.
        parameters: The parameters that actors and evaluator begin with, a record.
        pipeline: Rounds by which the learner is behind the actors, 0 or 1.
        executor: As the user has named it.
        workers: Likewise, ``None`` for the cores that this process may use.
        learner_threads: Threads of torch that the learner has.
        viewing: For the viewer; ``None`` without one.
        matches: For the referee, with whom somebody has episodes played beside the training; ``None`` without one.
        gradients: For every gradient worker; ``None`` if the learner computes all gradients itself.
        n_learners: As the user has given it: slices of a minibatch at most; ``None`` for as many as pay.
        blocks: Blocks of rows of the largest minibatch: it has no more slices than that.
        split: Whether losses have lanes of their own.
        exchanged: Bytes that go to a gradient worker and back for each minibatch, but for the minibatch itself.
        shares: Share of each loss in the time that gradients take; those of different lanes are computed at the same time.
        helped: Whether threads can help a learner that computes all gradients itself.
        independent: Whether there are losses none of which looks at what another one learns: side by side they have the same bits.
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
    matches: PlayConfig | None = None
    gradients: WorkerConfig | None = None
    n_learners: int | None = None
    blocks: int = 1
    split: bool = False
    exchanged: int = 0
    shares: tuple[float, ...] = (1.0,)
    helped: bool = False
    independent: bool = False

    @property
    def learners_are_fixed(self) -> bool:
        """Whether ``n_learners`` is taken as it is: the number, and an executor, were named."""
        return self.n_learners is not None and self.executor != "auto"

    @property
    def lanes(self) -> int:
        """How many losses are computed at the same time."""
        return len(self.shares) if self.split else 1

    def largest_share(self, slices: int) -> float:
        """The share of an update's gradients that one reactor has in any case: with ``split=True``, of the longest lane's."""
        return max(self.shares) / slices if self.split else 0.0

    @property
    def slices(self) -> int:
        """How many slices a minibatch has, at most."""
        return 1 if self.gradients is None else self.gradients.lanes.slices

    @property
    def saved(self) -> ProgramConfig:
        """The same without a viewer and gradient workers, of which nothing is saved."""
        return replace(self, viewing=None, gradients=None)

    def aside(self, actor: float, picture: float) -> dict[str, float]:
        """Work of evaluator, referee and viewer at a tick, by name of those that there are.

        Args:
            actor: Seconds of an actor's round.
            picture: Seconds that it takes to show one.
        """
        step = actor / self.actors.steps_taken
        plans = {"evaluator": self.evaluation, "referee": self.matches}
        seconds = {name: plan.steps * step for name, plan in plans.items() if plan is not None}
        return seconds if self.viewing is None else {**seconds, "viewer": self.viewing.play.steps * (step + picture)}


def config_of(model: Any) -> ProgramConfig:
    """The configuration of a trainer's program; see :meth:`reactor_sb3.trainers.trainer.Trainer.program_config`."""
    if model.env is None:
        raise ValueError("the model has no environment: pass env= to load(), or call set_env()")
    session, seed = model.session, model._base_seed
    given, normalizer = shown_to_actors(model.env).observation_space, model._vec_normalize_env
    keys = tuple(by_key(normalizer))
    observations = Observations(given, model.observation_space, normalized=keys)
    originals = None if normalizer is None else Observations(given, model.observation_space, original=True)
    normalization = session.normalization = None if originals is None else Normalization(originals, keys)
    _, policy = model.acting()
    actors = ActorConfig(
        makes=session.makes.pickled(model.n_envs), observations=observations, action_space=model.action_space,
        policy=policy, steps=model.rollout_steps, envs=model.envs_per_actor, actors=model.n_actors, seed=seed,
        normalization=normalization, make_rows=model.make_rows,
    )  # fmt: skip
    steps = model.rollout_steps * model.envs_per_actor
    played = partial(
        PlayConfig, observations=observations, policy=policy, seed=seed, normalization=normalization, make_rows=model.make_rows
    )  # fmt: skip
    evaluation = None
    if model.evaluate_every is not None:
        evaluation = played(
            make=(session.evaluate_env or session.makes).pickled(1)[0], every=model.evaluate_every,
            episodes=model.evaluate_episodes, steps=model.evaluate_steps or steps,
        )  # fmt: skip
    matches = None if session.referee is None else session.referee.plan(model, played)
    on_cpu = model.device.type == model.policy_device().type == "cpu"
    blocks = model.nets.most_blocks if on_cpu else 1
    config = ProgramConfig(
        name=type(model).__name__, live=session.live, actors=actors, evaluation=evaluation,
        parameters=session.parameters(model), pipeline=model.pipeline, executor=model.executor, workers=model.workers,
        learner_threads=model.learner_threads, viewing=session.display.plan_of(model, played, steps), matches=matches,
        n_learners=model.n_learners, blocks=blocks, split=model.split, exchanged=exchanged_bytes(model.nets), shares=model.shares(),
        helped=on_cpu and model.nets.may_be_helped, independent=_independent(model.nets),
    )  # fmt: skip
    return with_learners(config, model, min(model.n_learners or 1, blocks))


def _independent(nets: Networks) -> bool:
    """Whether losses may be computed side by side: none looks at what another one learns, nothing draws or keeps statistics."""
    losses = list(nets.losses.values())
    apart = len({loss.learns for loss in losses}) == len(losses) > 1 and not any(loss.reads for loss in losses)
    normalised = any(isinstance(part, nn.modules.batchnorm._BatchNorm) for module in nets.modules() for part in module.modules())
    return apart and not nets.draws and not normalised and not nets.touched and not nets.writes


def with_learners(config: ProgramConfig, model: Any, slices: int) -> ProgramConfig:
    """The same with minibatches in so many slices, at most. From now on the model's gradients are computed in these.

    Args:
        config: What the program is made from.
        model: The trainer.
        slices: How many there are; with one, and without ``split``, there are no gradient workers.
    """
    model.session.sliced = None
    if slices == 1 and not model.split:
        return replace(config, split=False, gradients=None)
    model.session.sliced = SlicedGradients(model.nets, model.example(), slices, model.split)
    workers: WorkerConfig = model.session.sliced.config(model.learner_threads, (model.device, model.policy_device()))
    return replace(config, split=model.split, gradients=workers)


class SavedParts(NamedTuple):
    """Where what is saved of a run is in the run's topology, by names that are the same for any number of gradient workers.

    Attributes:
        reactors: Numbers of actors and evaluator.
        outputs: Numbers of output ports.
    """

    reactors: Mapping[str, int]
    outputs: Mapping[str, int]


BETWEEN_ROUNDS = frozenset({"acting", "question", "answers"})
"""Ports that carry nothing from one round to the next: nothing of them is saved."""


def saved_parts(topology: Topology, saved: Topology) -> SavedParts:
    """Find what is saved of a run.

    Args:
        topology: The run's.
        saved: The one of :attr:`ProgramConfig.saved`.
    """
    reactors = {reactor.name: reactor.index for reactor in topology.reactors}
    outputs = dict(zip(_output_names(topology), range(len(topology.outputs)), strict=True))
    return SavedParts(
        {reactor.name: reactors[reactor.name] for reactor in saved.reactors if reactor.kind in ("Actor", "Evaluator")},
        {name: outputs[name] for name in _output_names(saved) if name.rpartition(".")[2] not in BETWEEN_ROUNDS},
    )


def _output_names(topology: Topology) -> list[str]:
    """Names of output ports, each with its reactor's; those of the caller have none."""
    names = {reactor.index: f"{reactor.name}." for reactor in topology.reactors}
    return [names.get(port.reactor, "") + port.name for port in topology.outputs]


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
    program.connect(program.input("acting"), actors.acting)
    program.connect(program.input("question"), actors.question)
    program.connect(beat, learner.beat)
    program.connect(actors.transitions, learner.transitions.rows, after=late)
    program.connect(actors.infos, learner.infos.rows, after=late)
    changed = program.input("parameters", (), record)
    program.connect(learner.parameters, actors.parameters, after=1, initial=config.parameters)
    program.connect(changed, actors.changed)
    if late:
        program.connect(actors.transitions, actors.under_way, after=late)
        program.connect(actors.infos, actors.infos_under_way, after=late)
    program.connect(actors.transitions, program.output("transitions").rows)
    program.connect(actors.infos, program.output("infos").rows)
    program.connect(actors.episodes, program.output("episodes").rows)
    program.connect(actors.answers, program.output("answers").rows)

    def playing(player: Any, asked: Any) -> Any:
        """Let somebody play with the learner's parameters when asked."""
        program.connect(learner.parameters, player.parameters, after=1, initial=config.parameters)
        program.connect(changed, player.changed)
        program.connect(asked, player.timesteps)
        return player

    timesteps = None
    if config.evaluation is not None:
        timesteps = program.input("timesteps", (), np.int64)
        evaluator = playing(program.add(Evaluator, config.evaluation, record, name="evaluator"), timesteps)
        program.connect(evaluator.result, program.output("evaluation"))
    if config.matches is not None:
        referee = program.add(Evaluator, config.matches, record, Purpose.MATCHES, name="referee")
        program.connect(playing(referee, program.input("pairing", (), np.int64)).result, program.output("match"))
    logger = program.add(Logger, config.live, name="logger")
    program.connect(program.input("records"), logger.records)
    if config.viewing is not None:
        viewer = program.add(Viewer, config.viewing, record, name="viewer")
        program.connect(playing(viewer, timesteps or program.input("timesteps", (), np.int64)).showing, program.output("showing"))
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
