"""An SB3 algorithm as a reactor program: what the program is made from, and the run of it, from its start to its end."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3.common.base_class import BaseAlgorithm

from reactor_rl import Program, RunError
from reactor_rl.plugin import FORKED, ExecutorName, Pickled, canonical, dumps, new_hash
from reactor_sb3.environments.makers import EnvMaker, maker_of
from reactor_sb3.training.actor import Behaviour, Blueprint, StepInfo
from reactor_sb3.training.evaluator import Evaluation, EvaluationPlan
from reactor_sb3.training.learner import LocalRef
from reactor_sb3.training.placing import choose, recommendations
from reactor_sb3.training.records import Observations
from reactor_sb3.training.specification import Specification, program_of
from reactor_torch import parameter_record, write_parameters

if TYPE_CHECKING:
    from reactor_rl import Run
    from reactor_rl.plugin import Tracing

__all__ = ["ReactorAlgorithm"]

Array = npt.NDArray[Any]


class ReactorAlgorithm(BaseAlgorithm):
    """An algorithm whose rounds are ticks of a reactor program of actors, learner, evaluator and logger."""

    n_actors: int
    envs_per_actor: int
    pipeline: int
    learner_threads: int
    evaluate_every: int | None
    evaluate_episodes: int
    evaluate_steps: int | None
    evaluations: list[Evaluation]
    workers: int | None
    executor: ExecutorName
    start_method: str | None
    wants_infos: bool
    _evaluate_env: EnvMaker | None
    _base_seed: int
    _live: LocalRef
    _layout: Observations
    """Of observations as the policy sees them."""
    _run: Run | None
    _sent: str
    """Fingerprint of the parameters that the actors have."""
    _advice: list[str]
    """What would make it faster."""
    _afresh: bool
    """Whether the actors are to begin new episodes."""

    # ------------------------------------------------------------------ what an algorithm says

    @property
    @abstractmethod
    def rollout_steps(self) -> int:
        """Steps of each environment in a round."""

    @abstractmethod
    def acting_network(self) -> torch.nn.Module:
        """The network whose parameters the actors get."""

    @abstractmethod
    def behaviour(self) -> Behaviour:
        """How the actors act."""

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

    # ------------------------------------------------------------------ parameters

    def broadcast_state(self) -> Mapping[str, torch.Tensor]:
        """The parameters and buffers that actors get."""
        return self.acting_network().state_dict()

    def _parameters(self) -> Array:
        """A record of the parameters that actors get."""
        record = np.zeros((), parameter_record(self.broadcast_state()))
        write_parameters(record, self.broadcast_state())
        return record

    def fingerprint(self) -> str:
        """A hash of the parameters that actors get: the same for every executor and number of workers."""
        digest = new_hash()
        for name, tensor in self.broadcast_state().items():
            canonical((name, tensor.detach().cpu().numpy()), digest)
        return str(digest.hexdigest())

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
        observations = Observations(self.env.unwrapped.observation_space, self.observation_space)
        behaviour = self.behaviour()
        make = Pickled(dumps(maker_of(self.env)))
        actors = Blueprint(
            make=make, observations=observations, action_space=self.action_space, behaviour=behaviour, steps=self.rollout_steps,
            envs=self.envs_per_actor, actors=self.n_actors, seed=self._base_seed,
        )  # fmt: skip
        evaluation = None
        if self.evaluate_every is not None:
            evaluation = EvaluationPlan(
                make=make if self._evaluate_env is None else Pickled(dumps(self._evaluate_env)), observations=observations,
                network=behaviour.network, seed=self._base_seed, every=self.evaluate_every, episodes=self.evaluate_episodes,
                steps=self.evaluate_steps or self.rollout_steps * self.envs_per_actor,
            )  # fmt: skip
        return Specification(
            name=type(self).__name__, live=self._live, actors=actors, evaluation=evaluation, parameters=self._parameters(),
            pipeline=self.pipeline, executor=self.executor, workers=self.workers, learner_threads=self.learner_threads,
        )  # fmt: skip

    # ------------------------------------------------------------------ its run

    def start(self) -> Run:
        """Start the workers, if they do not run yet; ``learn()`` does it by itself.

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
            self._set_exploration = self._run.writer("exploration")
            self._episodes: Array = self._run.view("episodes")
            self._sent = self.fingerprint()
            self._afresh = False  # they will begin with new episodes anyway
        return self._run

    def _all_envs(self) -> Array:
        return np.ones(self.n_envs, np.bool_)

    def close(self) -> None:
        """End the workers and their environments. The model stays usable; ``learn()`` would begin new episodes."""
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

    def __repr__(self) -> str:
        running = "" if self._run is None else f", executor={self._run.executor!r}, workers={self._run.workers}"
        return (
            f"{type(self).__name__}(n_actors={self.n_actors}, envs_per_actor={self.envs_per_actor}, "
            f"rollout_steps={self.rollout_steps}, pipeline={self.pipeline}{running})"
        )
