"""What ``SyncSAC`` and ``SyncTD3`` have in common: bounded continuous actions, an actor that acts, and critics that judge."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.common.utils import get_device

from reactor_sb3.acting.noise import check_noise
from reactor_sb3.checkpoints.state import optimizers_of
from reactor_sb3.learning.continuous import ContinuousLearner
from reactor_sb3.trainers.options import DEVICES
from reactor_sb3.training.off_policy import OffPolicy
from reactor_torch import Batch, Updates

__all__ = ["ContinuousControl", "standard_normal"]

Array = npt.NDArray[Any]


class ContinuousControl(OffPolicy):
    """A trainer of an actor and critics.

    A subclass says, besides what every trainer with a replay buffer does, what a round's updates are (:meth:`_updates_of`).
    """

    devices: ClassVar[tuple[str, ...]] = DEVICES
    draws_noise: ClassVar[bool] = True
    action_noise: ActionNoise | None
    _learner: ContinuousLearner

    def _set_options(self, env: Any) -> None:
        super()._set_options(env)
        learning_starts, buffer_size = self.arguments["learning_starts"], self.arguments["buffer_size"]
        if learning_starts > buffer_size:
            raise ValueError(
                f"learning_starts={learning_starts} is beyond what buffer_size={buffer_size} can hold: the first transitions would "
                "be lost before anything is learned from them"
            )
        check_noise(self.arguments["action_noise"], self.n_actors * self.envs_per_actor)
        self.actor_device: torch.device | str | None = self.arguments["actor_device"]
        self._check_devices()

    def _check_devices(self) -> None:
        named = {name: self.arguments[name] for name in ("critic_device", "actor_device") if self.arguments[name] is not None}
        critics, actor = (get_device(named.get(name, self.arguments["device"])) for name in ("critic_device", "actor_device"))
        if critics != actor and not self.split:
            raise ValueError(
                f"the critics on {critics} and the actor on {actor} learn side by side, which is a delayed variant of "
                f"{self.default_log_name}: pass split=True, or one device for both"
            )

    def _for_host(self) -> dict[str, Any]:  # the learner's device: it has the critics, and makes all steps
        return {**super()._for_host(), "device": self.arguments["critic_device"] or self.arguments["device"]}

    # ------------------------------------------------------------------ what a trainer says

    def policy_device(self) -> torch.device:
        """Where the actor's gradients are computed."""
        return self.device if self.actor_device is None else get_device(self.actor_device)

    @abstractmethod
    def _updates_of(self, batches: Iterator[Any], before: int) -> Updates[dict[str, Array]]:
        """The updates of a round.

        Args:
            batches: Minibatches.
            before: How many updates there have been before.

        Returns:
            Losses and the like by SB3's names, a number for each update that has one.
        """

    def _training(self, gradient_steps: int, sample: Callable[[], ReplayBufferSamples]) -> Updates[None]:
        self._update_learning_rate(list(optimizers_of(self).values()))
        self._learner.begin_round(None)
        before = self._n_updates
        found = yield from self._updates_of((self._batch_of(sample()) for _ in range(gradient_steps)), before)
        self._learner.end_round()
        self._n_updates += gradient_steps
        _check(found, before)
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        for name, values in found.items():
            if len(values):
                self.logger.record(f"train/{name}", float(values.mean()))

    def _batch_of(self, samples: ReplayBufferSamples) -> Batch:
        return self._with_noise(self._transitions(samples))

    @abstractmethod
    def _with_noise(self, transitions: dict[str, Any]) -> Batch:
        """A minibatch of transitions, by name, with noise that is drawn in SB3's order."""

    def __repr__(self) -> str:
        gradients, split = "formulas" if self._learner.dense else "autograd", ", split=True" if self.split else ""
        return f"{super().__repr__()[:-1]}{split}, gradients={gradients!r})"

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "actor", "critic", "critic_target", "actor_target", "actor_device"]


def _check(found: dict[str, Array], before: int) -> None:
    """Refuse losses that are no numbers: parameters are spoilt then, or about to be."""
    for name, values in found.items():
        wrong = np.flatnonzero(~np.isfinite(values))
        if len(wrong):
            raise ValueError(
                f"{name} is {values[wrong[0]]} in update {before + 1 + int(wrong[0])}, and so are the parameters from then on: "
                "lower the learning rate, or look at the rewards"
            )


def standard_normal(actions: torch.Tensor) -> torch.Tensor:
    """Numbers from torch's generator, one for each of some actions."""
    return torch.randn(actions.shape).to(actions.device)
