"""A training as something that can be verified, drawn and traced from the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any

from reactor_rl.plugin import Target, global_random_state
from reactor_sb3.algorithms.table import ALGORITHMS, Algorithm
from reactor_sb3.trainers.trainer import Trainer

__all__ = ["TARGETS", "Training"]


class Training(Target[Trainer]):
    """A few rounds of a trainer.

    Args:
        trainer: The class.
        env: The environment, as the trainer takes it.
        policy: Its policy, likewise.
        **arguments: Of its constructor.
    """

    def __init__(self, trainer: type[Trainer], env: Any, policy: str = "MlpPolicy", **arguments: Any) -> None:
        self.trainer, self.env, self.policy, self.arguments = trainer, env, policy, arguments

    def make(self, executor: Any = "auto", workers: int | None = None) -> Trainer:
        """The trainer."""
        trainer: Any = self.trainer
        with global_random_state():  # SB3 seeds the process's generators; the training itself leaves them alone
            model: Trainer = trainer(self.policy, self.env, executor=executor, workers=workers, **self.arguments)
        return model

    def play(self, model: Trainer, ticks: int) -> Iterator[Any]:
        """Learn from ``ticks`` rounds; yields weights (as a hash), episodes and evaluations."""
        model.learn(ticks * model.rollout_steps * model.n_envs, log_interval=None)
        episodes = [(info["r"], info["l"]) for info in model.ep_info_buffer or ()]
        yield model.fingerprint(), episodes, [(one.timesteps, one.returns, one.lengths) for one in model.evaluations]

    def __repr__(self) -> str:
        return f"Training({self.trainer.__name__}, {self.env!r})"


def _target(row: Algorithm, **changed: Any) -> Training:
    """A few rounds of an algorithm with all that goes on beside them: evaluations, and rounds that are sampled meanwhile."""
    beside: dict[str, Any] = {"n_actors": 4, "seed": 0, "evaluate_every": 10, "evaluate_episodes": 3, "evaluate_steps": 200}
    arguments = {**row.settings, **beside, "policy_kwargs": dict(row.network), **changed}
    if row.kind != "search":  # which does not know it
        arguments = {"pipeline": 1, **arguments}
    if row.env == "Pendulum-v1":  # whose episodes are 200 steps long
        arguments |= {"train_freq": 25}
    return Training(row.cls, _masked if row.masks else row.env, row.policy, **arguments)


def _masked() -> Any:
    """An environment that does not allow every action at every step."""
    return import_module("sb3_contrib.common.envs").InvalidActionEnvDiscrete()


TARGETS: Mapping[str, Callable[[], Training]] = MappingProxyType({
    **{row.key: partial(_target, row) for row in ALGORITHMS.values()},
    "sync_sac_split": partial(_target, ALGORITHMS["SyncSAC"], split=True, n_learners=2),
    "sync_ppo_slices": partial(_target, ALGORITHMS["SyncPPO"], n_learners=3, pipeline=0),
})  # fmt: skip
"""Trainings that ``python -m reactor_rl verify sync_ppo`` verifies, by name."""
