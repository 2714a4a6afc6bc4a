"""The reactor that evaluates a snapshot of the parameters while training goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reactor_rl import Input, Output, Reactor, reaction, shutdown, startup
from reactor_rl.plugin import Pickled, aligned_zeros
from reactor_sb3.acting.normalization import Normalization
from reactor_sb3.acting.records import Observations
from reactor_sb3.environments.kept_env import KeptEnv
from reactor_sb3.streams import Purpose
from reactor_torch import Greedy, Network

__all__ = ["Evaluation", "EvaluationPlan", "Evaluator"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class EvaluationPlan:
    """What an evaluator is made from.

    Attributes:
        make: Makes an environment; encoded.
        observations: Layout of observations.
        network: Structure of the Q-network.
        seed: Of the trainer.
        every: Rounds from the beginning of one evaluation to that of the next one, at least.
        episodes: How many episodes an evaluation has.
        steps: How many steps are taken at a tick, at most.
        normalization: As for the actors.
    """

    make: Pickled
    observations: Observations
    network: Network
    seed: int
    every: int
    episodes: int
    steps: int
    normalization: Normalization | None = None


@dataclass(frozen=True)
class Evaluation:
    """What came out of one evaluation.

    Attributes:
        timesteps: Steps of training that the evaluated parameters have seen.
        returns: Of the episodes.
        lengths: Of the episodes.
    """

    timesteps: int
    returns: tuple[float, ...]
    lengths: tuple[int, ...]

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(np.mean(self.returns))


def _row(layout: Observations) -> dict[str, Array]:
    """Memory for one observation, ``(1, 1, *shape)``, by key."""
    return {key: aligned_zeros((1, 1, *shape), dtype) for key, (shape, dtype) in layout.parts.items()}


class Evaluator(Reactor):
    """Plays greedy episodes, a slice of steps at each tick, with the parameters as they were when it began."""

    parameters = Input()
    changed = Input()
    """See :class:`~reactor_sb3.acting.actor.Actor`."""
    timesteps = Input()
    """Steps of training that the parameters of this tick have seen, ``()``, int64."""
    result = Output()

    def __init__(self, plan: EvaluationPlan, parameters: npt.DTypeLike) -> None:
        self.plan, self.record = plan, np.dtype(parameters)
        self.env: KeptEnv | None = None

    @reaction(startup)
    def build(self) -> None:
        """Make the environment."""
        plan = self.plan
        self.env = KeptEnv(plan.make, plan.seed, Purpose.EVALUATION, 0)
        self.snapshot: Array = aligned_zeros((), self.record)
        self.given = self.rows = _row(plan.observations)
        if plan.normalization is not None:
            self.given = _row(plan.normalization.originals)
        self.put = (plan.observations if plan.normalization is None else plan.normalization.originals).writer(self.given)
        self.greedy: Greedy = plan.network.bind(self.snapshot, self.rows)
        self.began: int | None = None  # steps that the evaluated parameters have seen, while an evaluation goes on
        self.wait = 0
        self.returns: list[float] = []
        self.lengths: list[int] = []

    @reaction(timesteps, uses=(parameters, changed), effects=result)
    def evaluate(self) -> None:
        """A slice of an evaluation, or the beginning of one if it is time."""
        plan, env = self.plan, self.env
        assert env is not None
        self.wait -= 1
        if self.began is None:
            if self.wait > 0 or not self.parameters.present:
                return
            self.began, self.wait = int(self.timesteps.value), plan.every
            self.snapshot[...] = self.changed.value if self.changed.present else self.parameters.value
            self.returns, self.lengths = [], []
        env.begin_round(afresh=False)
        normalizing = None if plan.normalization is None else plan.normalization.by(self.snapshot)
        actions: list[Any] = []
        for step in range(plan.steps):
            self.put(0, env.observation)
            if normalizing is not None:
                normalizing.observations(self.given, self.rows)
            action = self.greedy(0)[0]
            actions.append(action)
            observation, reward, terminated, truncated, info = env.inner.step(action)
            env.length += 1
            env.total += reward
            if terminated or truncated or env.length >= env.limit:
                episode = info.get(
                    "episode", {"r": env.total, "l": env.length}
                )  # a Monitor's, which knows of other wrappers' changes
                self.returns.append(float(np.asarray(episode["r"]).item()))
                self.lengths.append(int(episode["l"]))
                env.reset(step + 1)
                if len(self.returns) == plan.episodes:
                    self.result.set(Evaluation(self.began, tuple(self.returns), tuple(self.lengths)))
                    self.began = None
                    break
            else:
                env.observation = observation
        env.end_round(np.array(actions))

    @reaction(shutdown)
    def close(self) -> None:
        """Close the environment."""
        if self.env is not None:
            env, self.env = self.env, None
            env.env.close()

    def __getstate__(self) -> dict[str, Any]:
        if self.env is None:
            return self.__dict__.copy()
        return {
            "envs": [self.env.saved()], "snapshot": self.snapshot.copy(), "began": self.began, "wait": self.wait,
            "returns": self.returns, "lengths": self.lengths,
        }  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "snapshot" not in state:
            self.__dict__.update(state)
            return
        assert self.env is not None
        self.env.put_back(state["envs"][0])
        self.snapshot[...] = state["snapshot"]
        self.began, self.wait = state["began"], state["wait"]
        self.returns, self.lengths = list(state["returns"]), list(state["lengths"])
