"""SB3's action noise as actors have it: one process for each environment, drawn from the actor's own random stream."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import numpy.typing as npt
from stable_baselines3.common.noise import ActionNoise, NormalActionNoise, OrnsteinUhlenbeckActionNoise, VectorizedActionNoise

from reactor_sb3.streams import drawing_from

__all__ = ["ActionNoises", "check_noise"]

Array = npt.NDArray[Any]


def check_noise(noise: ActionNoise | None, envs: int) -> None:
    """Refuse a trainer's argument ``action_noise`` that does not fit.

    Args:
        noise: As given.
        envs: Environments of all actors together.

    Raises:
        TypeError: If it is not an ``ActionNoise``.
        ValueError: If it is vectorised for another number of environments.
    """
    if noise is not None and not isinstance(noise, ActionNoise):
        raise TypeError(f"action_noise={noise!r} must be an ActionNoise of stable_baselines3.common.noise, or of a derived class")
    if isinstance(noise, VectorizedActionNoise) and noise.n_envs != envs:
        raise ValueError(
            f"action_noise is for {noise.n_envs} environments, and the actors have {envs}: give the noise of one, "
            "which each of them gets a copy of"
        )


class ActionNoises:
    """The noise of an actor's environments; its state goes on from round to round.

    Args:
        noise: Of one environment, or vectorised for all those of all actors. It is copied.
        envs: Numbers of the actor's environments.
    """

    def __init__(self, noise: ActionNoise, envs: range) -> None:
        given = noise.noises[envs.start : envs.stop] if isinstance(noise, VectorizedActionNoise) else [noise] * len(envs)
        self.noises = [deepcopy(one) for one in given]
        for one in self.noises:
            one.reset()

    def begin(self, random: np.random.Generator, dones: Array) -> Callable[[int], Array]:
        """A function that gives the noise of each step, ``(envs, *shape)``, in order.

        Args:
            random: Where it comes from.
            dones: Which episodes have ended by now, ``(steps, envs)``: it is read as the round goes on.
        """
        if all(type(one) is NormalActionNoise for one in self.noises):
            noises: list[Any] = self.noises  # without a memory: those of a whole round are drawn at once
            mean, sigma = map(np.stack, zip(*(np.broadcast_arrays(one._mu, one._sigma) for one in noises), strict=True))
            return random.normal(mean, sigma, (len(dones), *mean.shape)).astype(noises[0]._dtype).__getitem__

        ours = all(type(one) in (NormalActionNoise, OrnsteinUhlenbeckActionNoise) for one in self.noises)

        def of_step(step: int) -> Array:
            if step:
                self._reset(dones[step - 1])
            if ours:
                draws = np.random.RandomState(random.bit_generator)  # whose numbers are those of np.random's functions
                return np.stack([_noise(one, draws) for one in self.noises])
            with drawing_from(random):  # all that a class of the user's can draw from
                return np.stack([one() for one in self.noises])

        return of_step

    def end(self, dones: Array) -> None:
        """Reset what belongs to episodes that ended with the last step."""
        self._reset(dones[-1])

    def _reset(self, dones: Array) -> None:
        for number in np.flatnonzero(dones):
            self.noises[number].reset()


def _noise(one: Any, draws: np.random.RandomState) -> Array:
    """Values of ``one()``, drawn from a generator that is not the process's."""
    if type(one) is NormalActionNoise:
        return np.asarray(draws.normal(one._mu, one._sigma)).astype(one._dtype)
    drift = one._theta * (one._mu - one.noise_prev) * one._dt
    one.noise_prev = one.noise_prev + drift + one._sigma * np.sqrt(one._dt) * draws.normal(size=one._mu.shape)
    return np.asarray(one.noise_prev).astype(one._dtype)
