"""The table of algorithms: a row for each trainer, which zoo, ``verify``, pages, tests and benchmarks read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from stable_baselines3.common.noise import OrnsteinUhlenbeckActionNoise

from reactor_rl.plugin import require_extra

__all__ = ["ALGORITHMS", "Algorithm", "named"]

Actions = Literal["Box", "Discrete", "MultiDiscrete", "MultiBinary"]
_ALL: tuple[Actions, ...] = ("Box", "Discrete", "MultiDiscrete", "MultiBinary")


@dataclass(frozen=True)
class Algorithm:
    """A trainer, and whose algorithm it is.

    Attributes:
        name: Of the class, ``"SyncTD3"``.
        module: Of its file in :mod:`reactor_sb3.algorithms`; in tests without ``sync_``.
        host: The class whose algorithm it is, ``"stable_baselines3:TD3"``; empty if it is our own.
        kind: Whether it learns from a replay buffer, from each round once, or tries out weights.
        actions: Spaces of actions that it takes.
        zoo: Its name for ``--algo`` and ``verify``; empty for that of the module.
        tuned: The file of ``rl_zoo3`` that has its hyperparameters; empty if it has its own.
        searched: Whose hyperparameters ``rl_zoo3`` searches, of those that this algorithm has; empty for ``tuned``.
        train_freq: Steps of a round where ``rl_zoo3`` does not say; ``None`` for what does not have that argument.
        policy: Its usual policy.
        policies: Others, by the kind of observations: ``"image"``, ``"dict"``.
        settings: Arguments that make it quick: with these it is tested.
        network: Of its policy, likewise.
        masks: Whether it asks environments which actions are allowed.
    """

    name: str
    module: str
    host: str
    kind: Literal["off-policy", "on-policy", "search"]
    actions: tuple[Actions, ...]
    settings: Mapping[str, Any]
    network: Mapping[str, Any] = field(default_factory=lambda: {"net_arch": [32]})
    zoo: str = ""
    tuned: str = ""
    searched: str = ""
    train_freq: int | None = None
    policy: str = "MlpPolicy"
    policies: Mapping[str, str] = field(default_factory=lambda: {"image": "CnnPolicy", "dict": "MultiInputPolicy"})
    masks: bool = False

    @property
    def extra(self) -> str:
        """The extra of this package that it needs."""
        return "contrib" if self.host.startswith("sb3_contrib:") else "sb3"

    @property
    def key(self) -> str:
        """Its name for ``--algo`` and ``verify``."""
        return self.zoo or self.module

    @property
    def cls(self) -> Any:
        """The trainer.

        Raises:
            ImportError: If the extra that it needs is not installed. Says which.
        """
        with require_extra(self.extra, f"reactor_sb3.{self.name}"):
            return getattr(import_module(f"reactor_sb3.algorithms.{self.module}"), self.name)

    @property
    def host_cls(self) -> Any:
        """The class whose algorithm it is; ``None`` if it is our own."""
        module, _, name = self.host.partition(":")
        return getattr(import_module(module), name) if name else None

    @property
    def env(self) -> str:
        """An environment of Gymnasium's that it can learn in."""
        return "CartPole-v1" if "Discrete" in self.actions else "Pendulum-v1"


_REPLAY: dict[str, Any] = {
    "train_freq": 8, "gradient_steps": 2, "buffer_size": 1000, "learning_starts": 64, "batch_size": 16, "learning_rate": 1e-2,
}  # fmt: skip
"""Arguments by which an algorithm learns something within seconds, for ``verify``: small ones, so that each kind of event (an
update, a target's move, a full buffer) comes within a few hundred steps.
"""
_Q: dict[str, Any] = {**_REPLAY, "target_update_interval": 128}
_NOISE: dict[str, Any] = {"action_noise": OrnsteinUhlenbeckActionNoise(np.zeros(1), np.full(1, 2.0))}
_PASSES: dict[str, Any] = {"n_steps": 16, "batch_size": 32, "n_epochs": 2}
_QUANTILES: dict[str, Any] = {"net_arch": [32], "n_quantiles": 5}
"""Settings that some need besides, small for the same reason: a target moves and a round ends within a few hundred steps."""

_ROWS = (
    Algorithm("SyncDQN", "sync_dqn", "stable_baselines3:DQN", "off-policy", ("Discrete",), _Q, tuned="dqn", train_freq=4),
    Algorithm(
        "PQN", "pqn", "", "on-policy", ("Discrete",), {"n_steps": 16, "n_minibatches": 2, "n_epochs": 2},
    ),
    Algorithm("SyncPPO", "sync_ppo", "stable_baselines3:PPO", "on-policy", _ALL, _PASSES, tuned="ppo"),
    Algorithm(
        "SyncA2C", "sync_a2c", "stable_baselines3:A2C", "on-policy", _ALL, {"n_steps": 8, "learning_rate": 3e-3}, tuned="a2c",
    ),
    Algorithm("SyncSAC", "sync_sac", "stable_baselines3:SAC", "off-policy", ("Box",), _REPLAY, tuned="sac", train_freq=1),
    Algorithm(
        "SyncTD3", "sync_td3", "stable_baselines3:TD3", "off-policy", ("Box",), _REPLAY | _NOISE, tuned="td3", train_freq=1,
    ),
    Algorithm(
        "SyncDDPG", "sync_ddpg", "stable_baselines3:DDPG", "off-policy", ("Box",), _REPLAY | _NOISE, tuned="ddpg", train_freq=1,
    ),
    Algorithm(
        "SyncQRDQN", "sync_qrdqn", "sb3_contrib:QRDQN", "off-policy", ("Discrete",), _Q, _QUANTILES, tuned="qrdqn", train_freq=4,
    ),
    Algorithm(
        "SyncTQC", "sync_tqc", "sb3_contrib:TQC", "off-policy", ("Box",), _REPLAY, _QUANTILES, tuned="tqc", train_freq=1,
    ),
    Algorithm(
        "SyncCrossQ", "sync_crossq", "sb3_contrib:CrossQ", "off-policy", ("Box",), {**_REPLAY, "policy_delay": 2},
        tuned="crossq", searched="sac", train_freq=1, policies={},
    ),
    Algorithm(
        "SyncMaskablePPO", "sync_maskable_ppo", "sb3_contrib:MaskablePPO", "on-policy",
        ("Discrete", "MultiDiscrete", "MultiBinary"), _PASSES, zoo="sync_ppo_mask", tuned="ppo", masks=True,
    ),
    Algorithm(
        "SyncRecurrentPPO", "sync_recurrent_ppo", "sb3_contrib:RecurrentPPO", "on-policy", _ALL, {**_PASSES, "n_epochs": 1},
        {"net_arch": [16], "lstm_hidden_size": 8}, zoo="sync_ppo_lstm", tuned="ppo_lstm", policy="MlpLstmPolicy",
        policies={"image": "CnnLstmPolicy", "dict": "MultiInputLstmPolicy"},
    ),
    Algorithm(
        "SyncTRPO", "sync_trpo", "sb3_contrib:TRPO", "on-policy", _ALL,
        {"n_steps": 16, "batch_size": 32, "n_critic_updates": 2}, tuned="trpo",
    ),
    Algorithm(
        "SyncARS", "sync_ars", "sb3_contrib:ARS", "search", ("Box", "Discrete"), {"n_delta": 3}, tuned="ars", policies={},
    ),
)  # fmt: skip

ALGORITHMS: Mapping[str, Algorithm] = MappingProxyType({row.name: row for row in _ROWS})
"""All of them, by the trainers' names. Reading it imports no algorithm."""


def named(key: str) -> Algorithm:
    """The row of an algorithm by its name for ``--algo``.

    Raises:
        KeyError: If there is no such algorithm.
    """
    found = {row.key: row for row in _ROWS}
    if key not in found:
        raise KeyError(f"there is no algorithm {key!r}: it is one of {', '.join(found)}")
    return found[key]
