"""What actors experience, kept in the repository: not only alike on every number of workers, but what it was before.

Weights are not the same on every processor, so no network has a say here: all actions are drawn at random, in environments whose
numbers are whole or exact. What remains is all else that an actor does: its random streams, the seeds of episodes, ends and limits,
and the order in which transitions reach the replay buffer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from every_other import in_turn
from gymnasium import spaces
from trainers import ROWS, suited

from reactor_rl.fingerprint import canonical, new_hash
from reactor_torch import DenseForward

ROUNDS, STEPS, ACTORS, ENVS = 8, 25, 3, 2


class Numbers(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Blackjack's three numbers as an array, which SB3 asks for."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.observation_space = spaces.Box(0, 31, (3,), np.int64)

    def observation(self, observation: Any) -> Any:
        return np.array(observation, np.int64)


def blackjack() -> gymnasium.Env[Any, Any]:
    return Numbers(gymnasium.make("Blackjack-v1", sab=False, natural=True))


MADE: dict[str, Callable[[], Any]] = {
    "Blackjack": blackjack,
    "FrozenLake": partial(gymnasium.make, "FrozenLake-v1", max_episode_steps=20),
}
GOLDEN = {
    "Blackjack": "4cb03b768b2c6c9b5719dd23e69ea4cf",
    "FrozenLake": "24e9e6a175d899afa2ab081160aa2aa8",
    "sac": "e5b1b7adb8d4186d1ff58c7e9d81a279",
    "td3": "0e0122a563c987bfe19123cba1132003",
}
DISCRETE = sorted(MADE)


def experience(name: str, pipeline: int = 0, **how: Any) -> Any:
    """A model that has seen some rounds, and has learned nothing from them."""
    cls = ROWS["dqn" if name in MADE else name].cls
    model = cls(
        "MlpPolicy", suited(name, MADE.get(name, MADE["FrozenLake"])), n_actors=ACTORS, envs_per_actor=ENVS,
        train_freq=STEPS, learning_starts=2000, buffer_size=2000, pipeline=pipeline, policy_kwargs={"net_arch": [4]},
        seed=0, **how,
    )  # fmt: skip
    with model:
        model.learn((ROUNDS + pipeline) * STEPS * ACTORS * ENVS, log_interval=None)
    return model


def fingerprint(model: Any) -> str:
    """A hash over all transitions in the replay buffer, in types that do not depend on SB3 or the platform."""
    buffer, found = model.replay_buffer, new_hash()
    actions = np.float32 if isinstance(model.action_space, spaces.Box) else np.int64
    assert buffer is not None
    assert (buffer.pos, buffer.full) == (ROUNDS * STEPS, False)
    for part, kind in (
        ("observations", np.int64), ("next_observations", np.int64), ("actions", actions), ("rewards", np.float32),
        ("dones", np.bool_), ("timeouts", np.bool_),
    ):  # fmt: skip
        canonical((part, getattr(buffer, part)[: buffer.pos].astype(kind)), found)
    return str(found.hexdigest())


@pytest.mark.parametrize(
    ("executor", "workers", "pipeline"), [("inline", 1, 0), ("threads", 3, 1), ("processes", 2, 0), ("processes", 4, 1)]
)
@in_turn("name", sorted(GOLDEN), kept=2)
def test_the_fingerprint_is_the_one_on_record(name: str, executor: str, workers: int, pipeline: int) -> None:
    """With ``pipeline=1`` the learner is a round behind, and a round that nobody has learned from is the same as it would be."""
    assert fingerprint(experience(name, pipeline, executor=executor, workers=workers)) == GOLDEN[name]


@pytest.mark.parametrize("name", DISCRETE)
def test_no_network_is_asked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(step: int) -> Any:
        raise AssertionError("an action was not drawn at random")

    monkeypatch.setattr(DenseForward, "bind", lambda *given: SimpleNamespace(argmax=never, run=never, outputs=None, begin=list))
    assert fingerprint(experience(name, executor="inline")) == GOLDEN[name]


@pytest.mark.parametrize("name", DISCRETE)
def test_what_is_on_record_has_ends_of_every_kind(name: str) -> None:
    buffer: Any = experience(name, executor="inline").replay_buffer
    dones, timeouts = (part[: buffer.pos].astype(bool) for part in (buffer.dones, buffer.timeouts))
    assert (dones & ~timeouts).any(0).all()  # in each environment
    assert timeouts.any() == (name == "FrozenLake")
    assert not (timeouts & ~dones).any()
    assert set(np.unique(buffer.rewards[: buffer.pos])) == ({0.0, 1.0} if name == "FrozenLake" else {-1.0, 0.0, 1.0, 1.5})
    assert len(np.unique(buffer.actions[: buffer.pos], axis=0)) > 20  # environments do not all do the same
