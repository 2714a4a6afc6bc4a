"""The part of a trainer that is never saved: its run, and all that belongs to it."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3.common.callbacks import BaseCallback, ConvertCallback
from torch import nn

from reactor_gymnasium.plugin import recover_for
from reactor_rl import Recover, RunError
from reactor_rl.plugin import Execution, decode, dumps, transport_for
from reactor_sb3.acting.evaluator import Evaluation
from reactor_sb3.acting.normalization import Normalization, add_round, statistics_of
from reactor_sb3.acting.player import PlayConfig
from reactor_sb3.acting.records import Observations
from reactor_sb3.checkpoints import checkpoint
from reactor_sb3.environments.makers import EnvMaker
from reactor_sb3.environments.reached import EnvRequest, forget_play
from reactor_sb3.trainers.display import Display
from reactor_sb3.trainers.finite import check_parameters
from reactor_sb3.trainers.hindsight import GoalEnv
from reactor_sb3.trainers.learner import Alone, LocalRef, Sharing
from reactor_sb3.trainers.model import Model
from reactor_sb3.trainers.options import RunOptions
from reactor_sb3.trainers.placing import choose_placement, may_learn_alone, recommendations, spread, threads_of
from reactor_sb3.trainers.program import ProgramConfig, SavedParts, program_of, saved_parts, with_learners
from reactor_sb3.trainers.replay import KeptArrays
from reactor_sb3.trainers.report import TrainingReport, noting_read_only
from reactor_sb3.trainers.settings import Settings, check_settings
from reactor_torch import (
    Network,
    ParameterWriter,
    SlicedGradients,
    Structure,
    Team,
    differences,
    parameter_record,
    tensors_of,
    write_parameters,
)

if TYPE_CHECKING:
    from reactor_rl import Run

__all__ = ["Referee", "Session", "listed"]

Array = npt.NDArray[Any]


class Referee(Protocol):
    """Has matches played beside the training, a slice of steps a round on a worker that would wait: those of a league, say.

    It is asked and told between two rounds, so that nothing depends on where matches are played.
    """

    def plan(self, model: Any, played: Callable[..., PlayConfig]) -> PlayConfig:
        """The episodes of a match.

        Args:
            model: The trainer.
            played: Makes the plan, with what is the same for all who play.
        """

    def due(self) -> int | None:
        """Number of the match that may begin in the coming round, with the parameters that actors have then; ``None`` to pause."""

    def over(self, match: Evaluation) -> None:
        """Note a match: its number, which is in ``timesteps``, and its returns."""


class Session:
    """Everything of a trainer that ``save()`` leaves out: its parts, its run, and the parameters that the run was sent.

    Args:
        evaluate_env: Makes the evaluator's environment, ``None`` for one like the actors'.
        watch_env: Likewise, the viewer's.

    Attributes:
        report: Callbacks, logs and evaluations.
        display: What is shown.
        settings: What the run has been told of the trainer's settings.
        live: Names the trainer, for the reactors that live with it.
        layout: Where observations are in a round's record.
        makes: Makes the actors' environments.
        normalization: ``VecNormalize``'s part, for the actors; ``None`` without it.
        generator: What the learner draws from where torch's functions draw.
        episodes: What the actors say of episodes that ended in the last round, ``(actors, steps, envs)``.
        set_order: Writes orders to the actors: whether to begin new episodes, and whether somebody wants infos.
        set_exploration: Writes rates of exploration.
        saved_parts: Where what is saved of the run is in it.
        advice: What would make the run faster.
        streams: The learner's random streams, by name.
        arrays: The arrays of the replay buffer.
        sampler: Samples the replay buffer, ``None`` before the first minibatch.
        goals: The environment that hindsight asks for rewards, ``None`` until it is asked; see :meth:`goal_env`.
        rollouts: The last round of a trainer without a replay buffer, ``None`` before it.
        acting: The policy, and what of it acts; ``None`` if nobody has asked.
        sent: The record of parameters that the actors have, ``None`` if that is not known.
        afresh: Whether the actors are to begin new episodes.
        referee: Who has matches played beside the training, ``None`` for nobody.
        late_cut: Environments whose episodes end with the round that is still under way, ``(n_envs,)``, bool.
        discounts: Those that model and rollout buffer both have, by name, as they were last.
        draws: Whether batches, updates or networks may draw from torch's generator.
        unseen: Whether the last round's observations have not been shown to anybody.
        unasked: What actors' environments are to be asked as soon as there are any.
        changed_envs: What was called last that may have changed those of the run; empty if nothing was.
        threads: How many threads compute gradients where the learner does so itself.
        team: Threads that help the learner within ``learn()``; ``None`` if nobody does.
        sliced: Gradients in slices, as the learner sees them; ``None`` if it has no gradient workers.
        sharing: Whether these, or the team, take part in a round; ``None`` if they always do.
        in_round: Whether a round is under way that callbacks have not seen in full.
        due: Checkpoints to be written when they have.
        config: The configuration of the run's program, ``None`` before there is a run.
        made: The templates of its checkpoints, as its constructor makes it; see :mod:`reactor_sb3.checkpoints.content`.
        parts: The networks as they were when a round began.
        structure: What they, and the policy, consisted of when the learner's side was made of them.
        changed: What they consisted of when the run was started, if they have changed since; ``None`` if they have not.
    """

    live: LocalRef
    layout: Observations
    makes: EnvMaker
    generator: torch.Generator
    episodes: Array
    set_order: Callable[[Any], None]
    set_exploration: Callable[[Any], None]
    saved_parts: SavedParts
    parts: Mapping[str, Network]
    structure: Structure
    _aliases: dict[str, nn.Module]
    _contents: dict[str, dict[str, Any]]
    _acts: tuple[Any, np.dtype[Any]]
    arrays: KeptArrays
    _writer: ParameterWriter
    _buffers: list[str]

    def __init__(self, evaluate_env: EnvMaker | None, watch_env: EnvMaker | None) -> None:
        self.report, self.display, self.settings = TrainingReport(), Display(watch_env), Settings()
        self.evaluate_env = evaluate_env
        self.normalization: Normalization | None = None
        self.streams: dict[str, np.random.Generator] = {}
        self.sampler: Any = None
        self.goals: GoalEnv | None = None
        self.rollouts: Any = None
        self.advice: list[str] = []
        self.acting: tuple[Any, torch.nn.Module] | None = None
        self.sent: bytes | None = None
        self.afresh = True
        self.referee: Referee | None = None
        self.late_cut: Array | None = None
        self.discounts: dict[str, float] = {}
        self.unseen = False
        self.unasked: list[tuple[EnvRequest, tuple[int, ...]]] = []
        self.changed_envs = ""
        self.threads = 1
        self.team: Team | None = None
        self.in_round = False
        self.sliced: SlicedGradients | None = None
        self.sharing: Sharing | None = None
        self.draws = True
        self.due: list[str | os.PathLike[str]] = []
        self.made: dict[str, Any] | None = None
        self.config: ProgramConfig | None = None
        self.changed: Structure | None = None

    # ------------------------------------------------------------------ what the policy consists of

    def made_from(self, model: Model, parts: Mapping[str, Network]) -> None:
        """Note of what the learner's networks have just been made, in the place of earlier ones if there were any."""
        before: Structure | None = vars(self).get("structure")
        self.parts, self.structure = parts, Structure({"policy": model.policy}, parts)
        self._aliases = {
            name: part
            for name, part in vars(model).items()
            if isinstance(part, nn.Module) and model.policy._modules.get(name) is part
        }
        self.acting = None
        parameter_record(self.acting_state(model))  # which refuses what actors could not be sent
        if before is None:
            self._contents = self.structure.contents()
            return
        self.changed = self.changed or before
        if self.sliced is not None:  # gradient workers have copies of what there was: no bit depends on who computes
            self.sliced, self.sharing = None, Alone()

    def has_other_parts(self, model: Model) -> bool:
        """Whether the policy has other networks than the model has by the same names, as SB3's algorithms have them.

        Raises:
            ValueError: If one of the model's was replaced.
        """
        parts, own, stale = model.policy._modules, vars(model), False
        for name, known in self._aliases.items():
            if own[name] is parts.get(name):
                continue
            if own[name] is not known:
                raise ValueError(
                    f"model.{name} was replaced, and model.policy.{name} is another network: what acts and learns is what the "
                    f"policy has. Set model.policy.{name}, with an optimizer of its own parameters; model.{name} follows"
                )
            stale = True
        return stale

    def acts_otherwise(self, model: Model) -> list[str]:
        """Why the actors of the run act in another way than the policy does by now, in words; empty if they do not."""
        before, self.changed = self.changed, None
        if before is None or before.acts_as(self.structure):
            return []
        policy, record = self._acts
        alike = model.acting()[1] == policy and parameter_record(self.state(model)) == record
        return [] if alike else before.difference(self.structure)

    def check_remade(self, model: Model) -> None:
        """Refuse to save a policy that the constructor would not make again as it is.

        Raises:
            ValueError: If somebody has changed more about it than values of parameters and buffers that are saved.
        """
        now = Structure({"policy": model.policy}, model.networks())
        now.forget_moving(self._contents)
        if changed := differences(self._contents, now.contents()):
            raise ValueError(
                f"the policy is no longer as the constructor makes it ({listed(changed)}), and with one that is a run would not go "
                "on as it does: make the change in a class of policies, or save the weights alone with save()"
            )

    # ------------------------------------------------------------------ what the actors get

    def acting_state(self, model: Model) -> Mapping[str, torch.Tensor]:
        """The parameters and buffers of what the actors evaluate, each of them once: what is shared has several names."""
        if self.acting is None or self.acting[0] is not model.policy:  # the structure beside it takes a copy
            self.acting = model.policy, model.acting()[0]
        return tensors_of(self.acting[1])

    def state(self, model: Model) -> Mapping[str, torch.Tensor]:
        """The tensors that the actors get: parameters, buffers, and the statistics of ``VecNormalize``."""
        return {**self.acting_state(model), **_statistics(model)}

    def parameters(self, model: Model) -> Array:
        """A record of what the actors get; from now on :meth:`write_parameters` writes those of the networks that there are."""
        state = self.state(model)
        record = np.zeros((), parameter_record(state))
        self._writer = ParameterWriter(state, record.dtype)
        self._buffers = [name for name in self.acting_state(model) if name not in self._writer.parameters]
        write_parameters(record, state)
        return record

    def write_parameters(self, model: Model, record: Array) -> None:
        """Fill a record with what the actors get."""
        self._writer.write(record)
        if self._buffers:
            state = self.acting_state(model)
            write_parameters(record, {name: state[name] for name in self._buffers})
        write_parameters(record, _statistics(model))

    def send_parameters(self, model: Model, record: Array) -> None:
        """Fill the record that travels to the actors, and note what they get."""
        self.write_parameters(model, record)
        # Bytes, for the record is a slot of a port and will be written over.
        self.sent = record.tobytes()

    # ------------------------------------------------------------------ the run

    def start(self, model: Model) -> Run:
        """Start the workers.

        Raises:
            ValueError: If there are ``restarts`` and environments that could not be brought back.
        """
        RunOptions.of(vars(model))  # load(path, workers=2) sets attributes
        model.look()
        check_settings(model)
        if self.changed_envs:
            warnings.warn(
                f"the environments of this run are new ones: what {self.changed_envs} of get_env() or training_env has changed in "
                "those of the last run is gone; call it again if it is still wanted",
                stacklevel=4,
            )
            self.changed_envs = ""
        model.plan_blocks()  # batch_size may be another one by now
        config = model.program_config()
        self.changed, self._acts = None, (config.actors.policy, config.parameters.dtype)
        model.cut_episodes(np.ones(model.n_envs, np.bool_))
        execution = Execution.of(vars(model))  # as it is set now: each of them may be changed between two calls of learn()
        transport = transport_for(execution.executor, execution.nodes, execution.workers)
        choice = choose_placement(config, model) if transport is None else spread(config, transport.workers)
        model.split = choice.split
        config = with_learners(replace(config, split=choice.split), model, choice.slices)
        alone = may_learn_alone(config) and not model.restarts
        self.threads = 1 if transport is not None else threads_of(config, replace(choice, slices=1) if alone else choice)
        self.sharing = Sharing() if alone or self.threads > 1 else None
        program = program_of(config)
        run = program.start(
            executor=choice.executor if transport is None else transport,
            workers=choice.workers if transport is None else None,
            start_method=execution.start_method,
            placement=choice.placement,
            on=choice.on,
            fingerprint="off",
            recover=_replacing(execution.restarts, config, choice.executor),
            timeout=execution.timeout,
        )
        self.config = config
        self.advice = recommendations(config, choice)
        self.display.plan = config.viewing
        self.saved_parts = saved_parts(program.topology(), program_of(config.saved).topology())
        self.set_order, self.set_exploration = run.writer("orders"), run.writer("exploration")
        self.episodes = run.view("episodes")
        self.sent = config.parameters.tobytes()
        self.afresh = False  # they will begin with new episodes anyway
        self.settings.begin(model, config)
        self.structure.let_move()  # blocks were planned, and costs measured
        return run

    def tick(self, model: Model, run: Run, watched: bool) -> None:
        """Sample a round, and learn from one."""
        if (news := self.settings.news(model)) is not None:
            run.set(acting=news)
        # With a pipeline, the last transitions of episodes that end here are still on their way to the learner.
        if self.afresh and model.pipeline:
            self.late_cut = np.ones(model.n_envs, np.bool_)
        elif self.afresh:
            model.cut_episodes(np.ones(model.n_envs, np.bool_))
        forget_play(model.env)
        self.set_exploration(model.exploration_rates())
        self.set_order(np.array([self.afresh, watched or model.wants_infos]))
        self.afresh = False
        if model.evaluate_every is not None or self.display.plan:
            run.set(timesteps=np.array(max(model._learned_timesteps, 0)))
        if self.report.records:
            run.set(records=True)
        due = None if self.referee is None else self.referee.due()
        if due is not None:
            run.set(pairing=np.array(due))
        run.tick()
        self.structure.let_move()
        if self.referee is not None and (match := run.match) is not None:
            self.referee.over(match)
        self.late_cut = None

    def ask(self, model: Model, asked: EnvRequest, numbers: Sequence[int]) -> list[Any] | None:
        """Ask the actors' environments something; see :meth:`reactor_sb3.trainers.trainer.Trainer.ask_actors`."""
        run: Run | None = model._run
        if run is None or run.stopped:
            entry = asked, tuple(numbers)
            if asked.changes and (not self.unasked or dumps(self.unasked[-1]) != dumps(entry)):
                self.unasked.append(entry)
            return None
        run.set(question=(asked, frozenset(numbers)))
        run.tick()
        self.sent = None  # what was under way to the actors came in that tick
        self.changed_envs = asked.title if asked.changes else self.changed_envs
        answers: dict[int, Any] = {}
        for of_actor in run.values("answers"):
            answers |= of_actor
        found = []
        for number in numbers:
            good, answer = decode(answers[number])
            if not good:
                answer.add_note(f"raised in environment {number}")
                raise answer
            found.append(answer)
        if self.goals is not None and asked.changes and 0 in numbers:
            self.goals.follow(asked)
        return found

    def ask_first(self, model: Model) -> None:
        """Ask what was asked before there were actors."""
        unasked, self.unasked = self.unasked, []
        for asked, numbers in unasked:
            self.ask(model, asked, numbers)

    def goal_env(self) -> GoalEnv:
        """The environment that hindsight asks for rewards; with a run ends what was changed in it."""
        if self.goals is None:
            self.goals = GoalEnv(self.makes)
        return self.goals

    def leave_goal_env(self) -> None:
        """Close it, if there is one."""
        goals, self.goals = self.goals, None
        if goals is not None:
            goals.close()

    def learn(self, model: Model, total_timesteps: int, callback: BaseCallback, log_interval: int | None) -> None:
        """Train, round by round; see :meth:`reactor_sb3.trainers.trainer.Trainer.learn`.

        Args:
            model: The trainer.
            total_timesteps: Steps after which no other round begins.
            callback: Whom to tell.
            log_interval: Episodes or rounds between two logs, ``None`` for none.
        """
        watched = not (isinstance(callback, ConvertCallback) and callback.callback is None)
        updates = model._n_updates
        try:
            model.look()
            run, record = self._begin(model)
            model.start_time = time.time_ns()  # starting workers does not count as sampling
            self.report.begin(model)
            self.report.later = True
            for sentence in self.advice:
                model.logger.info(sentence)
            while model.num_timesteps < total_timesteps:
                callback.on_rollout_start()
                self.in_round = True
                self.assert_runs(model, run)
                model.look()
                if self.changed is not None:
                    run, record = self._begin(model)
                if watched:  # a callback may have set some
                    self.write_parameters(model, record)
                    self._replace_sent(run, record)
                self.tick(model, run, watched)
                self.display.show_round(model, run)
                go_on = self.report.round(model, run, callback if watched else None, log_interval)
                self.in_round = False
                due, self.due = self.due, []  # checkpoints that were wanted within the round that is over
                for path in due:
                    checkpoint.save(path, model)
                if go_on:
                    with noting_read_only():
                        callback.on_rollout_end()
                model.check_shown()
                self.report.dump_due(model)
                if not go_on:
                    break
            self.report.write(model)
            if model._n_updates > updates:
                check_parameters(model.nets, "lower the learning rate, or look at the rewards")
            if model.num_timesteps > model._num_timesteps_at_start:
                with model.limited_threads():
                    self.display.show_trained(model, max(model._learned_timesteps, 0), self.parameters(model))
        finally:
            self.in_round, self.due, self.report.later = False, [], False
            self.report.write(model)  # what was recorded before something went wrong
            if self.team is not None:
                self.team.close()
                self.team = None

    def _begin(self, model: Model) -> tuple[Run, Array]:
        """The run, and a record of what its actors are to have; another run if the actors of the one that there is act otherwise.

        Warns:
            UserWarning: If episodes are cut off thereby that were to go on.
        """
        if model._run is not None and not model._run.stopped and (why := self.acts_otherwise(model)):
            if not self.afresh:
                warnings.warn(
                    f"the policy acts in another way than its actors ({listed(why)}): they are made anew, and begin new episodes",
                    stacklevel=4,
                )
            model.close()
        run = model.start()
        if self.team is not None:
            self.team.close()
        self.team = Team(self.threads) if self.threads > 1 else None
        record = self.parameters(model)
        self._replace_sent(run, record)  # set_parameters(), say: what is under way is out of date
        return run, record

    def _replace_sent(self, run: Run, record: Array) -> None:
        """Let the actors have these parameters, if others are under way."""
        if (given := record.tobytes()) != self.sent:
            run.set(parameters=record)
            self.sent = given

    def assert_runs(self, model: Model, run: Run) -> None:
        """Within ``learn()``: see to it that a callback has not ended what it goes on with."""
        if model._run is not run:
            raise RunError(
                "the workers were ended in the middle of learn(), by close() or set_env() in a callback. Let the callback return "
                "False, which ends the training, and call it after learn()"
            )

    # ------------------------------------------------------------------ for the learner

    def add_statistics(self, model: Model, transitions: Array) -> None:
        """Add a round that is about to be learned from to the statistics of ``VecNormalize``, if there is one."""
        if model._vec_normalize_env is not None and self.normalization is not None:
            add_round(model._vec_normalize_env, self.normalization.originals, transitions)
            if self.late_cut is not None:
                model._vec_normalize_env.returns[self.late_cut] = 0


def listed(differences: list[str]) -> str:
    """The first of what has changed, in words."""
    return ", ".join(differences[:3]) + (", ..." if len(differences) > 3 else "")


def _statistics(model: Model) -> Mapping[str, torch.Tensor]:
    """The statistics that observations and rewards are normalised by; empty without ``VecNormalize``."""
    return {} if model._vec_normalize_env is None else statistics_of(model._vec_normalize_env)


def _replacing(restarts: int, config: ProgramConfig, executor: str) -> Recover | None:
    """How often workers are replaced, if every environment could be brought back that a result depends on."""
    recover = recover_for(restarts, executor, config.actors.makes)
    if config.evaluation is not None:
        recover_for(restarts, executor, [config.evaluation.make], "evaluation environment")
    return recover
