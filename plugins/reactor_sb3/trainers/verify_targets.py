"""A training as something that can be verified, drawn and traced from the command line."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib import import_module
from typing import Any

import gymnasium

from reactor_rl.plugin import Target, global_random_state
from reactor_sb3.algorithms.pqn import PQN
from reactor_sb3.algorithms.sync_dqn import SyncDQN
from reactor_sb3.algorithms.sync_ppo import SyncPPO
from reactor_sb3.algorithms.sync_sac import SyncSAC
from reactor_sb3.algorithms.sync_td3 import SyncTD3
from reactor_sb3.trainers.trainer import Trainer

__all__ = [
    "Training", "pqn", "sync_crossq", "sync_dqn", "sync_ppo", "sync_ppo_lstm", "sync_ppo_mask", "sync_ppo_slices", "sync_qrdqn",
    "sync_sac", "sync_sac_split", "sync_td3", "sync_tqc",
]  # fmt: skip


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


_shared: dict[str, Any] = {"n_actors": 4, "seed": 0, "evaluate_every": 10, "evaluate_episodes": 3}
sync_dqn = partial(Training, SyncDQN, "CartPole-v1", rollout_steps=16, gradient_steps=4, pipeline=1, **_shared)
pqn = partial(Training, PQN, "CartPole-v1", envs_per_actor=2, rollout_steps=16, **_shared)
sync_ppo = partial(
    Training, SyncPPO, "CartPole-v1", n_steps=32, batch_size=32, n_epochs=2, pipeline=1, evaluate_steps=1000, **_shared
)  # fmt: skip
_pendulum: dict[str, Any] = {
    **_shared, "train_freq": 25, "gradient_steps": 25, "batch_size": 32, "learning_starts": 64, "pipeline": 1,
    "evaluate_steps": 200, "policy_kwargs": {"net_arch": [32, 32]},
}  # fmt: skip
sync_sac = partial(Training, SyncSAC, "Pendulum-v1", **_pendulum)
sync_td3 = partial(Training, SyncTD3, "Pendulum-v1", **_pendulum)
sync_sac_split = partial(Training, SyncSAC, "Pendulum-v1", split=True, n_learners=2, **_pendulum)
sync_ppo_slices = partial(Training, SyncPPO, "CartPole-v1", n_steps=32, batch_size=32, n_epochs=2, n_learners=3, **_shared)


# ---------------------------------------------------------------------- of sb3-contrib's algorithms


def _of_contrib(trainer: str, env: Any, policy: str = "MlpPolicy", **arguments: Any) -> Training:
    """The same of a trainer of :mod:`reactor_sb3.contrib`, which needs an extra and is imported only here."""
    return Training(getattr(import_module("reactor_sb3.contrib"), trainer), env, policy, **arguments)


def _masked_env() -> gymnasium.Env[Any, Any]:
    """An environment that does not allow every action at every step."""
    made: gymnasium.Env[Any, Any] = import_module("sb3_contrib.common.envs").InvalidActionEnvDiscrete()
    return made


_ahead: dict[str, Any] = {**_shared, "pipeline": 1}
sync_qrdqn = partial(
    _of_contrib, "SyncQRDQN", "CartPole-v1", rollout_steps=16, gradient_steps=4, policy_kwargs={"n_quantiles": 25}, **_ahead
)
_few: dict[str, Any] = {**_pendulum, "gradient_steps": 3}
sync_tqc = partial(_of_contrib, "SyncTQC", "Pendulum-v1", **_few)
sync_crossq = partial(_of_contrib, "SyncCrossQ", "Pendulum-v1", **_few)
_rounds: dict[str, Any] = {**_ahead, "n_steps": 32, "batch_size": 32, "n_epochs": 2}
sync_ppo_mask = partial(_of_contrib, "SyncMaskablePPO", _masked_env, **_rounds)
sync_ppo_lstm = partial(
    _of_contrib, "SyncRecurrentPPO", "CartPole-v1", policy="MlpLstmPolicy", policy_kwargs={"lstm_hidden_size": 32}, **_rounds
)
