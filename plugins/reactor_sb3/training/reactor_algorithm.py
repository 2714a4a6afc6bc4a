"""An SB3 algorithm as a reactor program: what the program is made from, and the run of it, from its start to its end."""

from __future__ import annotations

import inspect
import math
import os
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecEnv, unwrap_vec_normalize

from reactor_gymnasium.plugin import replacing
from reactor_rl import Program, Recover, RunError
from reactor_rl.plugin import FORKED, RunOwner, canonical, carrier_for, new_hash
from reactor_sb3.acting.actor import Blueprint, StepInfo
from reactor_sb3.acting.evaluator import Evaluation
from reactor_sb3.acting.normalization import Normalization, add_round, normalized_keys, statistics_of
from reactor_sb3.acting.player import PlayPlan
from reactor_sb3.acting.policy import Policy
from reactor_sb3.acting.records import Observations
from reactor_sb3.environments.live_vec_env import shown_to_actors
from reactor_sb3.environments.makers import EnvMaker, live_count, maker_of, spare_envs
from reactor_sb3.learning.learner import LocalRef
from reactor_sb3.streams import Purpose, seed_of
from reactor_sb3.trainers.options import RunOptions, check_devices, check_slices, shared_out
from reactor_sb3.training.placing import choose, recommendations, spread
from reactor_sb3.training.sliced import Sliced
from reactor_sb3.training.specification import Specification, program_of
from reactor_sb3.training.watching import Watched
from reactor_torch import (
    ParameterWriter,
    Updates,
    parameter_record,
    torch_state,
    torch_stream,
    torch_threads,
    write_parameters,
)

if TYPE_CHECKING:
    from reactor_rl import Run

__all__ = ["ReactorAlgorithm"]

Array = npt.NDArray[Any]


class ReactorAlgorithm(Watched, Sliced, RunOwner, BaseAlgorithm):
    """An algorithm whose rounds are ticks of a reactor program of actors, learner, evaluator, logger and viewer.

    A model that is closed stays usable: the next ``learn()`` starts workers again, and begins new episodes.
    """

    arguments: dict[str, Any]
    """Of the constructor."""
    _writer: ParameterWriter
    _buffers: list[str]
    _makes: EnvMaker
    """Makes the actors' environments."""

    usual_actors: ClassVar[int] = 8
    """How many actors there are if nobody says how many."""
    devices: ClassVar[tuple[str, ...]] = ("device",)
    """Arguments that say where something is computed."""
    draws_noise: ClassVar[bool] = False
    """Whether minibatches have noise in them, from torch's generator."""

    # ------------------------------------------------------------------ construction

    def construct(self, host: Any) -> None:
        """Make what SB3's class makes, of the arguments of this constructor that it knows; what a constructor ends with.

        Args:
            host: SB3's class.

        Raises:
            TypeError: If an argument has a wrong type.
            ValueError: If one makes no sense, or some do not go together.
        """
        given = vars(self).pop("given")
        self._set_options(given["env"])
        if given.get("policy_kwargs") is not None:
            given["policy_kwargs"] = dict(given["policy_kwargs"])  # SB3 writes into it
        given |= {"env": self._spare(given["env"]), **self._for_host()}  # SB3 takes None too, for load()
        host.__init__(self, **{name: given[name] for name in inspect.signature(host.__init__).parameters if name in given})

    def _for_host(self) -> dict[str, Any]:
        """Arguments that SB3's constructor gets in the place of those that were given."""
        return {}

    def _set_options(self, env: Any) -> None:
        """Check and keep what SB3's own constructor does not know, of all the arguments of this one."""
        options = RunOptions.of(self.arguments)
        check_devices(self.arguments)
        check_slices(options.n_learners, rows := self.arguments.get("batch_size", math.inf), f"batch_size={rows}")
        self._share_out(options.n_actors, options.envs_per_actor, live_count(env))
        self.pipeline, self.learner_threads = int(options.pipeline), int(options.learner_threads)
        self.n_learners, self.split = int(options.n_learners), bool(options.split)
        self.evaluate_every, self.evaluate_episodes = options.evaluate_every, options.evaluate_episodes
        self.evaluate_steps = options.evaluate_steps
        self.workers, self.executor, self.start_method = options.workers, options.executor, options.start_method
        self.nodes, self.restarts, self.round_timeout = options.nodes, options.restarts, options.round_timeout
        self._evaluate_env = None if options.evaluate_env is None else maker_of(options.evaluate_env)
        self.arguments["evaluate_env"] = self._evaluate_env
        self.arguments = self._set_watching(self.arguments)
        entropy: Any = np.random.SeedSequence().entropy
        self._base_seed = int(entropy) % 2**63 if self.arguments["seed"] is None else int(self.arguments["seed"])
        self.evaluations: list[Evaluation] = []
        self._sent: Array | None = None  # the parameters that the actors have
        self._acting_module: tuple[Any, torch.nn.Module] | None = None  # what acts, of which policy
        self._advice: list[str] = []  # what would make it faster
        self._afresh = True  # whether the actors are to begin new episodes
        self._normalization: Normalization | None = None
        self._late_cut: Array | None = None  # environments whose episodes end with the round that is still under way
        self._learned_timesteps = 0  # steps that the learner has seen; with pipeline=1 a round behind num_timesteps
        self.wants_infos = False
        self._in_round = False  # whether a round is under way that callbacks have not seen in full
        self._due: list[str | os.PathLike[str]] = []  # checkpoints to be written when they have

    def _share_out(self, n_actors: int | None, envs_per_actor: int | None, count: int | None) -> None:
        """Decide how many actors there are, and how many environments each has; see :func:`shared_out`."""
        self.n_actors, self.envs_per_actor = shared_out(n_actors, envs_per_actor, count, self.usual_actors)
        self.arguments = {**self.arguments, "n_actors": self.n_actors, "envs_per_actor": self.envs_per_actor}

    def _spare(self, env: Any) -> VecEnv | None:
        """What SB3 is given as environment: a live vector environment, or as many as the actors have, made when they are used."""
        if env is None or live_count(env) is not None or (isinstance(env, VecEnv) and unwrap_vec_normalize(env) is not None):
            return env  # type: ignore[no-any-return]
        return spare_envs(maker_of(env), self.n_actors * self.envs_per_actor)

    @staticmethod
    def _wrap_env(env: Any, verbose: int = 0, monitor_wrapper: bool = True) -> VecEnv:
        if not isinstance(env, VecEnv):
            env = spare_envs(maker_of(env), 1)
        return BaseAlgorithm._wrap_env(env, 0, monitor_wrapper)

    def _setup_actors(self) -> None:
        """What an algorithm's ``_setup_model`` begins with."""
        self._check_shared()
        count = live_count(self.env)
        if count not in (None, self.n_actors * self.envs_per_actor):  # a model that has been loaded, with other environments
            self._share_out(None, self.envs_per_actor, count)
        self.n_envs = self.n_actors * self.envs_per_actor
        self._layout = Observations(self.observation_space, self.observation_space)
        if self.env is not None:
            makes = maker_of(self.env)
            if self.env.num_envs != self.n_envs:  # a model that has been loaded
                self.env = self._wrap_env(spare_envs(makes, self.n_envs))
            self._take_env(self.env, makes)
            self._visible()  # what cannot be shown is refused now
        self._torch_stream = torch_state(seed_of(self._base_seed, Purpose.TORCH))
        self._live = LocalRef(self)

    def _take_env(self, env: VecEnv, makes: EnvMaker) -> None:
        """Have these environments from now on, and the actors what ``makes`` makes."""
        self.env, self._makes, self._vec_normalize_env = env, makes, unwrap_vec_normalize(env)
        keys = () if self._vec_normalize_env is None else normalized_keys(self._vec_normalize_env)
        self._layout = Observations(self.observation_space, self.observation_space, normalized=keys)

    # ------------------------------------------------------------------ what an algorithm says

    @property
    @abstractmethod
    def rollout_steps(self) -> int:
        """Steps of each environment in a round."""

    @abstractmethod
    def acting(self) -> tuple[torch.nn.Module, Policy]:
        """The network whose parameters the actors get, and how they act by them."""

    @abstractmethod
    def exploration_rates(self) -> Array:
        """The coming round's rate of exploration at each step, shape ``(rollout_steps,)``, float32."""

    @abstractmethod
    def learn_from(self, transitions: Array, infos: list[list[StepInfo]]) -> None:
        """Learn from one round.

        Args:
            transitions: A record for each actor, see :func:`reactor_sb3.acting.records.transition_record`.
            infos: Of each actor; empty unless somebody wants them.
        """

    @abstractmethod
    def updates_from(self, transitions: Array, infos: list[list[StepInfo]]) -> Updates[None]:
        """As :meth:`learn_from`, for gradients that shards compute: asked for in its place where there are some."""

    def cut_episodes(self, which: Array) -> None:
        """Note that the episodes of some environments were cut off after the last transition that has been learned from.

        Args:
            which: Of which environments, ``(n_envs,)``, bool.
        """
        if self._vec_normalize_env is not None:
            self._vec_normalize_env.returns[which] = 0

    def add_statistics(self, transitions: Array) -> None:
        """Add a round that is about to be learned from to the statistics of ``VecNormalize``, if there is one."""
        if self._vec_normalize_env is not None and self._normalization is not None:
            add_round(self._vec_normalize_env, self._normalization.originals, transitions)
            if self._late_cut is not None:
                self._vec_normalize_env.returns[self._late_cut] = 0

    @abstractmethod
    def streams(self) -> dict[str, np.random.Generator]:
        """The learner's random streams, by name."""

    @abstractmethod
    def throw_away_update(self) -> tuple[Callable[[], object], int]:
        """A function that makes one update of a throw-away copy of the networks, and how many updates a round has."""

    # ------------------------------------------------------------------ parameters

    def acting_state(self) -> Mapping[str, torch.Tensor]:
        """The parameters and buffers of what the actors evaluate, each of them once: what is shared has several names."""
        if self._acting_module is None or self._acting_module[0] is not self.policy:  # the structure beside it takes a copy
            self._acting_module = self.policy, self.acting()[0]
        first_names: dict[int, str] = {}
        state = self._acting_module[1].state_dict(keep_vars=True)
        return {name: tensor for name, tensor in state.items() if first_names.setdefault(id(tensor), name) == name}

    def _statistics(self) -> Mapping[str, torch.Tensor]:
        """What observations and rewards are normalised by."""
        return {} if self._vec_normalize_env is None else statistics_of(self._vec_normalize_env)

    def broadcast_state(self) -> Mapping[str, torch.Tensor]:
        """What the actors get: parameters and buffers, and the statistics that observations and rewards are normalised by."""
        return {**self.acting_state(), **self._statistics()}

    def _parameters(self) -> Array:
        """A record of what the actors get; from now on :meth:`write_parameters` writes those of the networks that there are."""
        state = self.broadcast_state()
        record = np.zeros((), parameter_record(state))
        self._writer = ParameterWriter(state, record.dtype)
        self._buffers = [name for name in self.acting_state() if name not in self._writer.parameters]
        write_parameters(record, state)
        return record

    def write_parameters(self, record: Array) -> None:
        """Fill a record with what the actors get."""
        self._writer.write(record)
        if self._buffers:
            state = self.acting_state()
            write_parameters(record, {name: state[name] for name in self._buffers})
        write_parameters(record, self._statistics())

    def _outdated(self) -> bool:
        """Whether the actors have other parameters than there are: somebody may have set some."""
        return self._sent is None or self._sent.tobytes() != self._parameters().tobytes()

    def fingerprint(self) -> str:
        """A hash of the parameters that actors get: the same for every executor and number of workers."""
        digest = new_hash()
        for name, tensor in self.broadcast_state().items():
            canonical((name, tensor.detach().cpu().numpy()), digest)
        return str(digest.hexdigest())

    def _initial_stream(self) -> AbstractContextManager[None]:
        """What the first weights are drawn from: the numbers that SB3's seeding gives, whoever else draws from torch meanwhile."""
        return nullcontext() if self.seed is None else torch_stream(torch_state(self.seed))

    def limited_threads(self) -> AbstractContextManager[None]:
        """As many threads for torch as the learner is to have, whatever a callback has left."""
        return torch_threads(self.learner_threads)

    # ------------------------------------------------------------------ the program

    def program(self) -> Program:
        """The reactor program that ``learn()`` runs, one tick a round."""
        return program_of(self.specification())

    def specification(self) -> Specification:
        """What the program is made from.

        Raises:
            ValueError: If the model has no environment.
        """
        if self.env is None:
            raise ValueError("the model has no environment: pass env= to load(), or call set_env()")
        given, normalizer = shown_to_actors(self.env).observation_space, self._vec_normalize_env
        keys = () if normalizer is None else normalized_keys(normalizer)
        observations = Observations(given, self.observation_space, normalized=keys)
        if normalizer is not None:
            self._normalization = Normalization(Observations(given, self.observation_space, original=True), keys)
        else:
            self._normalization = None
        _, policy = self.acting()
        actors = Blueprint(
            makes=self._makes.pickled(self.n_envs), observations=observations, action_space=self.action_space, policy=policy,
            steps=self.rollout_steps, envs=self.envs_per_actor, actors=self.n_actors, seed=self._base_seed,
            normalization=self._normalization,
        )  # fmt: skip
        steps = self.rollout_steps * self.envs_per_actor
        played = partial(
            PlayPlan, observations=observations, policy=policy, seed=self._base_seed, normalization=self._normalization
        )
        evaluation = None
        if self.evaluate_every is not None:
            evaluation = played(
                make=(self._evaluate_env or self._makes).pickled(1)[0], every=self.evaluate_every, episodes=self.evaluate_episodes,
                steps=self.evaluate_steps or steps,
            )  # fmt: skip
        return Specification(
            name=type(self).__name__, live=self._live, actors=actors, evaluation=evaluation, parameters=self._parameters(),
            pipeline=self.pipeline, executor=self.executor, workers=self.workers, learner_threads=self.learner_threads,
            viewing=self._viewing(played, steps), shards=self.shards(),
            may_be_sliced=self.device.type == "cpu",
            critics_share=self.critics_share(),
        )  # fmt: skip

    # ------------------------------------------------------------------ its run

    def start(self) -> Run:
        """Start the workers, if they do not run yet; ``learn()`` does it by itself.

        Raises:
            RunError: In a forked child of the process that started them.
            ValueError: If there are ``restarts`` and environments that could not be brought back.
        """
        if self._run is not None and self._run.foreign:
            raise RunError(f"cannot go on with this {type(self).__name__}, for {FORKED}")
        if self._run is None or self._run.stopped:
            specification = self.specification()
            self.cut_episodes(self._all_envs())
            carrier = carrier_for(self.executor, self.nodes, self.workers)
            choice = choose(specification, self) if carrier is None else spread(specification, carrier.workers)
            self._advice = recommendations(specification, choice)
            self._shows = specification.viewing
            self._saved_ports = len(program_of(specification.unwatched).topology().outputs)
            self._run = program_of(specification).start(
                executor=choice.executor if carrier is None else carrier,
                workers=choice.workers if carrier is None else None,
                context=self.start_method,
                placement=choice.placement,
                on=choice.on,
                fingerprint="off",
                recover=self._replacing(specification, choice.executor),
                tick_timeout=self.round_timeout,
            )
            self._set_order = self._run.writer("orders")
            self._set_exploration = self._run.writer("exploration")
            self._episodes: Array = self._run.view("episodes")
            self._sent = specification.parameters
            self._afresh = False  # they will begin with new episodes anyway
        return self._run

    def _replacing(self, specification: Specification, executor: str) -> Recover | None:
        """How often workers are replaced, if every environment could be brought back that a result depends on."""
        recover, evaluation = replacing(self.restarts, executor, specification.actors.makes), specification.evaluation
        if evaluation is not None:
            replacing(self.restarts, executor, [evaluation.make], "evaluation environment")
        return recover

    def _all_envs(self) -> Array:
        return np.ones(self.n_envs, np.bool_)

    def _running(self) -> Run:
        return self.start()

    def _assert_runs(self, run: Run) -> None:
        """Within ``learn()``: see to it that a callback has not ended what it goes on with."""
        if self._run is not run:
            raise RunError(
                "the workers were ended in the middle of learn(), by close() or set_env() in a callback. Let the callback return "
                "False, which ends the training, and call it after learn()"
            )

    def __repr__(self) -> str:
        running = "" if self._run is None else f", executor={self._run.executor!r}, workers={self._run.workers}"
        learners = f", n_learners={self.n_learners}" if self.n_learners > 1 else ""
        return (
            f"{type(self).__name__}(n_actors={self.n_actors}, envs_per_actor={self.envs_per_actor}, "
            f"rollout_steps={self.rollout_steps}, pipeline={self.pipeline}{learners}{running})"
        )
