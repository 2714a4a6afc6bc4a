"""What the trainers have in common: the program of actors, learner, evaluator and logger, and the loop that runs it."""

from __future__ import annotations

import contextlib
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from types import SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from stable_baselines3.common import utils
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback, ConvertCallback
from stable_baselines3.common.type_aliases import MaybeCallback
from stable_baselines3.common.vec_env import VecEnv

from reactor_rl import Program, RunError
from reactor_rl.plugin import FORKED, Pickled, canonical, dumps, new_hash
from reactor_sb3.checkpoints.resumable import Resumable
from reactor_sb3.environments.makers import maker_of, spare_envs
from reactor_sb3.streams import Purpose, seed_of
from reactor_sb3.training.actor import Blueprint, StepInfo
from reactor_sb3.training.arguments import check_parallelism
from reactor_sb3.training.evaluator import EvaluationPlan
from reactor_sb3.training.learner import LocalRef
from reactor_sb3.training.networks import network_of
from reactor_sb3.training.placing import choose, recommendations
from reactor_sb3.training.records import Observations
from reactor_sb3.training.reporter import Reporter
from reactor_sb3.training.specification import Specification, program_of
from reactor_torch import parameter_record, torch_state, write_parameters

if TYPE_CHECKING:
    from reactor_rl import Run
    from reactor_rl.plugin import Tracing

__all__ = ["Trainer"]

Array = npt.NDArray[Any]


class Trainer(Resumable, Reporter):
    """An SB3 algorithm whose rounds are ticks of a reactor program.

    A subclass says what it learns from a round (:meth:`learn_from`), which network the actors use (:meth:`acting_network`), and how
    much they explore (:meth:`exploration_rates`).
    """

    default_log_name: ClassVar[str] = "run"

    # ------------------------------------------------------------------ construction

    def _set_parallelism(self) -> None:
        """Check and keep what SB3's own constructor does not know, of all the arguments of this one."""
        check_parallelism(self.arguments)
        given = SimpleNamespace(**self.arguments)
        self.n_actors, self.envs_per_actor = int(given.n_actors), int(given.envs_per_actor)
        self.epsilon_spread, self.pipeline = float(given.epsilon_spread), int(given.pipeline)
        self.learner_threads = int(given.learner_threads)
        self.evaluate_every, self.evaluate_episodes = given.evaluate_every, given.evaluate_episodes
        self.evaluate_steps = given.evaluate_steps
        self.workers, self.executor, self.start_method = given.workers, given.executor, given.start_method
        self._evaluate_env = None if given.evaluate_env is None else maker_of(given.evaluate_env)
        self.arguments = {**self.arguments, "evaluate_env": self._evaluate_env}
        entropy: Any = np.random.SeedSequence().entropy
        self._base_seed = int(entropy) % 2**63 if given.seed is None else int(given.seed)
        self.evaluations = []
        self._run: Run | None = None
        self._advice: list[str] = []  # what would make it faster
        self._afresh = True  # whether the actors are to begin new episodes
        self._late_cut: Array | None = None  # environments whose episodes end with the round that is still under way
        self._learned_timesteps = 0  # steps that the learner has seen; with pipeline=1 a round behind num_timesteps
        self.wants_infos = False
        self._in_round, self._due = False, []

    def _spare(self, env: Any) -> VecEnv | None:
        """What SB3 is given as environment: as many as the actors have, made when somebody uses them."""
        return None if env is None else spare_envs(maker_of(env), self.n_actors * self.envs_per_actor)

    @staticmethod
    def _wrap_env(env: Any, verbose: int = 0, monitor_wrapper: bool = True) -> VecEnv:
        made = maker_of(env)  # refuses what actors cannot be given
        if not isinstance(env, VecEnv):
            env = spare_envs(made, 1)
        return BaseAlgorithm._wrap_env(env, 0, monitor_wrapper)

    def _setup_actors(self) -> None:
        """What an algorithm's ``_setup_model`` begins with."""
        self.n_envs = self.n_actors * self.envs_per_actor
        if self.env is not None and self.env.num_envs != self.n_envs:  # a model that has been loaded
            spare = self._spare(self.env)
            assert spare is not None
            self.env = self._wrap_env(spare)
        self._torch_stream = torch_state(seed_of(self._base_seed, Purpose.TORCH))
        self._live = LocalRef(self)
        self._layout = Observations(self.observation_space, self.observation_space)

    # ------------------------------------------------------------------ what an algorithm says

    @abstractmethod
    def acting_network(self) -> torch.nn.Module:
        """The Q-network that the actors use."""

    @abstractmethod
    def exploration_rates(self) -> Array:
        """The coming round's rate of exploration at each step, shape ``(rollout_steps,)``, float32."""

    @abstractmethod
    def learn_from(self, transitions: Array, infos: list[list[StepInfo]]) -> None:
        """Learn from one round.

        Args:
            transitions: A record for each actor, see :func:`reactor_sb3.training.records.transition_record`.
            infos: Of each actor; empty unless somebody wants them.
        """

    def cut_episodes(self, which: Array) -> None:
        """Note that the episodes of some environments were cut off after the last transition that has been learned from.

        Args:
            which: Of which environments, ``(n_envs,)``, bool.
        """

    @abstractmethod
    def streams(self) -> dict[str, np.random.Generator]:
        """The learner's random streams, by name."""

    @abstractmethod
    def throw_away_update(self) -> tuple[Callable[[], object], int]:
        """A function that makes one update of a throw-away copy of the networks, and how many updates a round has."""

    def parameter_record(self) -> np.dtype[Any]:
        """Layout of the parameters that actors get."""
        return parameter_record(self.broadcast_state())

    def broadcast_state(self) -> Mapping[str, torch.Tensor]:
        """The parameters and buffers that actors get."""
        return self.acting_network().state_dict()

    # ------------------------------------------------------------------ the program

    def program(self) -> Program:
        """The reactor program that :meth:`learn` runs, one tick a round."""
        return program_of(self.specification())

    def specification(self) -> Specification:
        """What the program is made from.

        Raises:
            ValueError: If the model has no environment.
        """
        if self.env is None:
            raise ValueError("the model has no environment: pass env= to load(), or call set_env()")
        assert isinstance(self.action_space, spaces.Discrete)
        observations = Observations(self.env.unwrapped.observation_space, self.observation_space)
        network = network_of(self.acting_network(), self.observation_space)
        make = Pickled(dumps(maker_of(self.env)))
        actors = Blueprint(
            make=make, observations=observations, action_space=self.action_space, network=network, steps=self.rollout_steps,
            envs=self.envs_per_actor, actors=self.n_actors, seed=self._base_seed, spread=self.epsilon_spread,
        )  # fmt: skip
        evaluation = None
        if self.evaluate_every is not None:
            evaluation = EvaluationPlan(
                make=make if self._evaluate_env is None else Pickled(dumps(self._evaluate_env)), observations=observations,
                network=network, seed=self._base_seed, every=self.evaluate_every, episodes=self.evaluate_episodes,
                steps=self.evaluate_steps or self.rollout_steps * self.envs_per_actor,
            )  # fmt: skip
        return Specification(
            name=type(self).__name__, live=self._live, actors=actors, evaluation=evaluation, parameters=self._parameters(),
            pipeline=self.pipeline, executor=self.executor, workers=self.workers, learner_threads=self.learner_threads,
        )  # fmt: skip

    def _parameters(self) -> Array:
        """A record of the parameters that actors get."""
        record = np.zeros((), self.parameter_record())
        write_parameters(record, self.broadcast_state())
        return record

    def start(self) -> Run:
        """Start the workers, if they do not run yet. :meth:`learn` does it by itself.

        Raises:
            RunError: In a forked child of the process that started them.
        """
        if self._run is not None and self._run.foreign:
            raise RunError(f"cannot go on with this {type(self).__name__}, for {FORKED}")
        if self._run is None or self._run.stopped:
            given = self.specification()
            self.cut_episodes(self._all_envs())
            choice = choose(given, self)
            self._advice = recommendations(given, choice)
            self._run = program_of(given).start(
                executor=choice.executor,
                workers=choice.workers,
                context=self.start_method,
                placement=choice.placement,
                fingerprint="off",
            )
            self._set_order = self._run.writer("orders")
            self._set_epsilon = self._run.writer("epsilon")
            self._episodes = self._run.view("episodes")
            self._sent = self.fingerprint()
            self._afresh = False  # they will begin with new episodes anyway
        return self._run

    def close(self) -> None:
        """End the workers and their environments. The model stays usable; :meth:`learn` would begin new episodes."""
        if self._run is not None and not self._run.foreign:
            try:
                self._run.close()
            except Exception:
                self._run = None
                raise
            self._run = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.close()

    def draw(self, path: str | None = None, *, format: Literal["mermaid", "dot", "svg"] | None = None) -> str:
        """The program as a picture; see :meth:`reactor_rl.Program.draw`."""
        return self.start().draw(path, format=format)

    def trace(self, path: str) -> AbstractContextManager[Tracing]:
        """Record what each worker does: ``with model.trace("trace.json"): model.learn(...)`` writes a file that Perfetto opens."""
        return self.start().trace(path)

    def fingerprint(self) -> str:
        """A hash of the parameters that actors get: the same for every executor and number of workers."""
        digest = new_hash()
        for name, tensor in self.broadcast_state().items():
            canonical((name, tensor.detach().cpu().numpy()), digest)
        return str(digest.hexdigest())

    def __repr__(self) -> str:
        running = "" if self._run is None else f", executor={self._run.executor!r}, workers={self._run.workers}"
        return (
            f"{type(self).__name__}(n_actors={self.n_actors}, envs_per_actor={self.envs_per_actor}, "
            f"rollout_steps={self.rollout_steps}, pipeline={self.pipeline}{running})"
        )

    # ------------------------------------------------------------------ learning

    def learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int | None = 4,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Train.

        Callbacks are called when a round is done: ``on_step`` once for each step of all environments, in the order in which they
        were taken, with the arrays that SB3 gives them (a row for each environment, in actor order). One that returns ``False``
        ends the training with that round.

        Args:
            total_timesteps: Steps to take in all environments together; whole rounds of ``rollout_steps * n_envs`` are taken.
            callback: As for any SB3 algorithm.
            log_interval: Episodes between two logs; at most one log a round.
            tb_log_name: Name of the run in TensorBoard.
            reset_num_timesteps: Whether to count steps from 0 and begin new episodes, or to go on.
            progress_bar: Whether to show one.

        Returns:
            The model.

        Raises:
            Exception: What an environment raised, with its actor and the tag.
            WorkerDiedError: If a worker process ended.
        """
        total_timesteps, callback = self._setup_learn(
            total_timesteps, callback, reset_num_timesteps, tb_log_name or self.default_log_name, progress_bar
        )
        callback.on_training_start(locals(), globals())
        watched = not (isinstance(callback, ConvertCallback) and callback.callback is None)
        try:
            run = self.start()
            if self._sent != self.fingerprint():  # set_parameters(), say: what is under way is out of date
                run.set(parameters=self._parameters())
            for sentence in self._advice:
                self.logger.info(sentence)
            while self.num_timesteps < total_timesteps:
                callback.on_rollout_start()
                self._in_round = True
                self._tick(run, watched)
                go_on = self._account(run, callback if watched else None, log_interval)
                self._in_round = False
                self._save_due()
                if not go_on:
                    break
                callback.on_rollout_end()
            self._write_records()
            self._sent = self.fingerprint()
        except BaseException:
            with contextlib.suppress(Exception):
                self.close()
            raise
        finally:
            self._in_round, self._due = False, []
        callback.on_training_end()
        return self

    def _setup_learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        reset_num_timesteps: bool = True,
        tb_log_name: str = "run",
        progress_bar: bool = False,
    ) -> tuple[int, BaseCallback]:
        # SB3's own would reset the environments of `get_env()`, which the actors do not use.
        self._begin_learning(reset_num_timesteps)
        self.start_time = time.time_ns()
        if self.ep_info_buffer is None or self.ep_success_buffer is None or reset_num_timesteps:
            self.ep_info_buffer = deque(maxlen=self._stats_window_size)
            self.ep_success_buffer = deque(maxlen=self._stats_window_size)
        if reset_num_timesteps:
            self._learned_timesteps -= self.num_timesteps  # not 0 if a round is still under way
            self.num_timesteps = self._episode_num = 0
            self._afresh = True
        else:
            total_timesteps += self.num_timesteps
        self._total_timesteps, self._num_timesteps_at_start = total_timesteps, self.num_timesteps
        self._update_current_progress_remaining(self.num_timesteps, max(total_timesteps, 1))
        if not self._custom_logger:
            self._logger = utils.configure_logger(self.verbose, self.tensorboard_log, tb_log_name, reset_num_timesteps)
        self._records = None
        return total_timesteps, self._init_callback(callback, progress_bar)

    def _begin_learning(self, reset_num_timesteps: bool) -> None:
        """What an algorithm does before :meth:`learn` begins."""

    @contextlib.contextmanager
    def limited_threads(self) -> Iterator[None]:
        """As many threads for torch as the learner is to have, whatever a callback has left."""
        before = torch.get_num_threads()
        if before != self.learner_threads:
            torch.set_num_threads(self.learner_threads)
        try:
            yield
        finally:
            if before != self.learner_threads:
                torch.set_num_threads(before)

    def _all_envs(self) -> Array:
        return np.ones(self.n_envs, np.bool_)

    def _tick(self, run: Run, watched: bool) -> None:
        if self._afresh and self.pipeline:
            self._late_cut = self._all_envs()
        elif self._afresh:
            self.cut_episodes(self._all_envs())
        self._set_epsilon(self.exploration_rates())
        self._set_order(np.array([self._afresh, watched or self.wants_infos]))
        self._afresh = False
        if self.evaluate_every is not None:
            run.set(timesteps=np.array(max(self._learned_timesteps, 0)))
        if self._records is not None:
            run.set(records=self._records)
            self._records = None
        run.tick()
        self._late_cut = None

    # ------------------------------------------------------------------ SB3's other methods

    def set_env(self, env: Any, force_reset: bool = True) -> None:
        """Go on with other environments: an id, a function that makes one, or one that can be made again.

        Args:
            env: The environment. What :meth:`get_env` gives stands for the environments that the actors have.
            force_reset: Whether the next :meth:`learn` begins new episodes; other environments always do.

        Raises:
            ValueError: If its spaces differ.
            TypeError: If no more of it can be made.
        """
        if env is not None and env is self.env:
            self._afresh = self._afresh or force_reset
            return
        spare = self._spare(env)
        if spare is None:
            raise ValueError("set_env() needs an environment")
        wrapped = self._wrap_env(spare)
        utils.check_for_correct_spaces(wrapped, self.observation_space, self.action_space)
        self.close()
        self.env = wrapped

    def _excluded_save_params(self) -> list[str]:
        return [
            *super()._excluded_save_params(), "_run", "_live", "_advice", "_late_cut", "_set_order", "_set_epsilon", "_episodes",
            "_sent", "_records", "_torch_stream", "_evaluate_env", "_layout", "evaluations", "_in_round", "_due",
        ]  # fmt: skip
