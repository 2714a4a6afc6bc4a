"""How the actors of SAC and TD3 act: as their network says, with action noise, and at random until learning starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from stable_baselines3.common.noise import ActionNoise

from reactor_sb3.acting.action_noise import EnvNoises
from reactor_sb3.acting.bounded_actor import BoundActor, BoundedActor
from reactor_sb3.acting.records import Fields

__all__ = ["Continuous"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Continuous:
    """The :class:`~reactor_sb3.acting.actor.Behaviour` of actors with bounded continuous actions.

    Attributes:
        network: Structure of the actor's network.
        action_space: Of the environments.
        action_noise: What is added to actions between -1 and 1, if anything is.
    """

    network: BoundedActor
    action_space: gymnasium.Space[Any]
    action_noise: ActionNoise | None

    @property
    def fields(self) -> Fields:
        """See :class:`~reactor_sb3.acting.actor.Behaviour`; ``"drawn"`` are the actions between -1 and 1."""
        space, number = self.action_space, np.dtype(np.float32)
        assert space.shape is not None
        return (("actions", np.result_type(number, space.dtype), space.shape), ("drawn", number, space.shape))

    def memory(self, first: int, envs: int) -> EnvNoises | None:
        """See :class:`~reactor_sb3.acting.actor.Behaviour`: the action noise of each environment."""
        return None if self.action_noise is None else EnvNoises(self.action_noise, first, envs)

    def begin_round(
        self, index: int, actors: int, rates: Array, random: np.random.Generator, bound: BoundActor, record: Array,
        memory: EnvNoises | None,
    ) -> Callable[[int], Array]:  # fmt: skip
        """See :class:`~reactor_sb3.acting.actor.Behaviour`; a rate is 1 for actions that are drawn evenly, or 0."""
        drawn, actions, bounds = record["drawn"], record["actions"], self.network.bounds
        at_random: list[bool] = (rates > 0).tolist()
        evenly = random.uniform(-1, 1, drawn.shape).astype(np.float32) if any(at_random) else drawn
        own = bound.begin_round(random)
        noise = None if memory is None else memory.begin_round(random, record["dones"])
        shape = drawn.shape[1:]

        def act(step: int) -> Array:
            chosen = evenly[step] if at_random[step] else own(step).reshape(shape)
            drawn[step] = chosen if noise is None else np.clip(chosen + noise(step), -1, 1)
            if step == 0:  # before an environment is given what spoilt parameters say
                _check(drawn[:1])
            actions[step] = bounds(drawn[step])
            return actions[step]  # type: ignore[no-any-return]

        return act

    def end_round(self, bound: BoundActor, record: Array, memory: EnvNoises | None) -> None:
        """Refuse actions that are NaN, which would spoil what is stored."""
        if memory is not None:
            memory.end_round(record["dones"])
        _check(record["drawn"])


def _check(drawn: Array) -> None:
    if np.isnan(drawn.sum(dtype=np.float64)):
        step, env = np.argwhere(np.isnan(drawn.reshape(*drawn.shape[:2], -1)).any(-1))[0].tolist()
        raise ValueError(
            f"the policy's action at step {step} of this round in environment {env} of this actor is NaN: its parameters are "
            "spoilt, by a learning rate that is too high, say, or its observation was infinite"
        )
