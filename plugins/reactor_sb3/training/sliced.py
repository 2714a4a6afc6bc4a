"""The part of a trainer that is about its learner's shards: what they are made from, and what cannot be shared out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

import torch
from torch import nn

from reactor_sb3.streams import Purpose, seed_of
from reactor_torch import Batch, LossMaker, ShardPlan, SharedLosses, UpdaterLoss, check_sliceable, shared_losses

__all__ = ["Sliced"]


class Slicing(Protocol):
    """What is asked of a trainer's learner for its shards."""

    @property
    def policy(self) -> nn.Module: ...

    @property
    def losses(self) -> tuple[UpdaterLoss, ...]: ...

    def loss_maker(self) -> LossMaker: ...


class Sliced(ABC):
    """A trainer that may have shards.

    Attributes:
        n_learners: Slices that each minibatch is cut into.
        split: Whether the policy's loss is computed beside the critics'.
        learner_threads: Torch's threads in the learner and in each shard.
        shared_losses: The losses as the learner sees them that has shards; the policy's are the second, if it is split.
    """

    n_learners: int
    split: bool
    learner_threads: int
    shared_losses: tuple[SharedLosses, ...]
    device: torch.device
    _learner: Slicing
    _base_seed: int
    _n_updates: int

    @abstractmethod
    def example(self) -> Batch:
        """A minibatch of zeros, as large as there are any."""

    def critics_share(self) -> float | None:
        """The share of an update's gradients that are the critics', where an actor has others: of the time that they take."""
        return None

    def policy_device(self) -> torch.device:
        """Where the policy's loss is computed."""
        return self.device

    def shards(self) -> tuple[ShardPlan, ...]:
        """What the shards of the learner are made from, and those of the policy if it is split; empty for a learner without.

        Raises:
            ValueError: If the policy cannot learn in slices.
        """
        if self.n_learners == 1 and not self.split:
            return ()
        if self.n_learners > 1:
            check_sliceable(self._learner.policy)
        self.shared_losses = shared_losses(self._learner.losses, self._learner.policy, self.example(), self.n_learners, self.split)
        make, devices = self._learner.loss_maker(), (self.device, self.policy_device())
        return tuple(
            [shared.plan(make, self.learner_threads, device) for shared, device in zip(self.shared_losses, devices, strict=False)]
        )

    def shard_seeds(self, group: int) -> list[int]:
        """Of the random stream, in the round that begins, of each of the learner's shards (0) or the policy's (1)."""
        count = self.n_learners
        shards = range(count, 2 * count) if group else range(1, count)
        return [seed_of(self._base_seed, Purpose.TORCH, shard, self._n_updates) for shard in shards]

    def _check_shared(self) -> None:
        elsewhere = [device for device in (self.device, self.policy_device()) if device.type != "cpu"]
        if self.n_learners > 1 and elsewhere:
            raise ValueError(
                f"n_learners={self.n_learners} shares what is learned among cores, and networks are to be on {elsewhere[0]}: use "
                'device="cpu", or n_learners=1'
            )
