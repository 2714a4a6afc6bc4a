"""The trainers of sb3-contrib's algorithms that the tests make, small and quick: a row for each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from every_other import in_turn
from gymnasium import spaces
from sb3_contrib import QRDQN, TQC, CrossQ, MaskablePPO, RecurrentPPO
from trainers import ALGORITHMS, BOX, CHOICE, INLINE, Toy, new

from reactor_sb3.contrib import SyncCrossQ, SyncMaskablePPO, SyncQRDQN, SyncRecurrentPPO, SyncTQC

_OFF_POLICY: dict[str, Any] = {
    "rollout_steps": 8, "gradient_steps": 2, "buffer_size": 1000, "learning_starts": 64, "batch_size": 16, "learning_rate": 1e-2,
}  # fmt: skip


CONTINUOUS = ("crossq", "tqc")


class Masked(Toy):
    """Of its choices, some are forbidden at times; who takes one fails."""

    def step(self, action: Any) -> Any:
        assert self.allowed(action), action
        return super().step(action)

    def allowed(self, action: Any) -> bool:
        masks, at = self.action_masks(), 0
        sizes = sizes_of(self.action_space)
        for size, one in zip(sizes, np.atleast_1d(action), strict=True):
            if not masks[at + int(one)]:
                return False
            at += size
        return True

    def action_masks(self) -> Any:
        masks = np.ones(sum(sizes_of(self.action_space)), bool)
        masks[self.t % 2 :: 2] = False
        masks[::3] = True
        return masks


def sizes_of(space: Any) -> list[int]:
    """Among how many is chosen, for each choice."""
    if isinstance(space, spaces.MultiBinary):
        return [2] * int(space.n)
    return [int(space.n)] if isinstance(space, spaces.Discrete) else space.nvec.tolist()


class ToyOf:
    """Makes a :class:`trainers.Toy` that suits an algorithm; can be pickled."""

    def __init__(self, algorithm: str, space: Any = BOX, actions: Any = CHOICE) -> None:
        self.algorithm, self.space, self.actions = algorithm, space, actions

    def __call__(self) -> Toy:
        if self.algorithm == "maskable_ppo":
            return Masked(self.space, self.actions)
        return Toy(self.space, BOX if self.algorithm in CONTINUOUS else CHOICE)


_ROUNDS: dict[str, Any] = {"n_steps": 16, "batch_size": 32, "n_epochs": 2}


class Shown(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A CartPole that can be seen, and has masks."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(gymnasium.make("CartPole-v1", render_mode=render_mode))

    def action_masks(self) -> Any:
        return np.ones(2, bool)


@dataclass(frozen=True)
class Row:
    """An algorithm.

    Attributes:
        trainer: Ours.
        host: sb3-contrib's.
        arguments: Of ours, for short trainings.
        env: An environment for it.
        shown: One that can be watched.
        policy: Its usual policy.
        network: Arguments of that, for small networks.
        policies: By the kind of observations, other policies.
    """

    trainer: Any
    host: Any
    arguments: dict[str, Any]
    env: Any = "CartPole-v1"
    shown: Any = "CartPole-v1"
    policy: str = "MlpPolicy"
    network: dict[str, Any] = field(default_factory=lambda: {"net_arch": [32]})
    policies: dict[str, str] = field(default_factory=lambda: {"image": "CnnPolicy", "dict": "MultiInputPolicy"})


CONTRIB: dict[str, Row] = {
    "crossq": Row(
        SyncCrossQ, CrossQ, {**_OFF_POLICY, "policy_delay": 2}, ToyOf("crossq"), "Pendulum-v1", policies={},
    ),
    "maskable_ppo": Row(
        SyncMaskablePPO, MaskablePPO, _ROUNDS, ToyOf("maskable_ppo"), Shown,
    ),
    "qrdqn": Row(
        SyncQRDQN, QRDQN, {**_OFF_POLICY, "target_update_interval": 128}, network={"net_arch": [32], "n_quantiles": 5},
    ),
    "recurrent_ppo": Row(
        SyncRecurrentPPO, RecurrentPPO, {**_ROUNDS, "n_epochs": 1}, policy="MlpLstmPolicy",
        network={"net_arch": [16], "lstm_hidden_size": 8},
        policies={"image": "CnnLstmPolicy", "dict": "MultiInputLstmPolicy"},
    ),
    "tqc": Row(
        SyncTQC, TQC, _OFF_POLICY, ToyOf("tqc"), "Pendulum-v1", network={"net_arch": [32], "n_quantiles": 5},
    ),
}  # fmt: skip
each = in_turn("algorithm", sorted(CONTRIB), kept=1)


def make(algorithm: str, env: Any = None, policy: Any = None, **changed: Any) -> Any:
    """One of them."""
    row = CONTRIB[algorithm]
    policy = row.policy if policy is None else policy
    network = dict(row.network)
    if "Cnn" in str(policy):
        network |= {"net_arch": [], "features_extractor_kwargs": {"features_dim": 16}}
    given = {"n_actors": 4, "seed": 0, "policy_kwargs": network, **INLINE, **row.arguments, **changed}
    return row.trainer(policy, row.env if env is None else env, **given)


# ---------------------------------------------------------------------- SB3's and sb3-contrib's

EVERY: dict[str, Any] = {name: cls for name, (cls, _) in ALGORITHMS.items()} | {name: row.trainer for name, row in CONTRIB.items()}
"""The class of each trainer."""
every = in_turn("algorithm", sorted(EVERY), kept=1)


def make_any(algorithm: str, **changed: Any) -> Any:
    """One of all of them."""
    return new(algorithm, **changed) if algorithm in ALGORITHMS else make(algorithm, **changed)
