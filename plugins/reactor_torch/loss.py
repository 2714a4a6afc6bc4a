"""Declarations of what an algorithm learns: networks with their optimisers, and losses, each a value that can be called.

A loss is written as a paper has it, in torch, over whole networks and a minibatch. It may have a :class:`Formula` besides, the same
with gradients derived by hand, which is taken where the networks consist of nothing but dense layers and convolutions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy.typing as npt
import torch
from torch import nn

__all__ = ["Formula", "Loss", "Network", "Task", "Update"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Network:
    """A part of a policy with its optimiser.

    Attributes:
        module: A module, or tensors by name that learn without one, as SB3's ``log_ent_coef``.
        optimizer: Optimiser of its parameters; ``None`` for a network that nobody steps, as a target.
        max_grad_norm: Norm that gradients are clipped to before a step; ``None`` for no clipping.
        excluding: Module whose parameters are learned elsewhere, even where this network has them too (SB3's shared extractors).
        fixed: Whether the network stays as it is during a round (DQN's target): gradient workers are told once a round.
        buffers: Whether buffers (statistics of batch normalisation) are changed by the loss that learns this network.
    """

    module: nn.Module | Mapping[str, torch.Tensor]
    optimizer: torch.optim.Optimizer | None = None
    max_grad_norm: float | None = None
    excluding: nn.Module | None = None
    fixed: bool = False
    buffers: bool = False


class Loss(ABC):
    """A quantity that a network's parameters make smaller.

    A subclass is a frozen dataclass of numbers: it holds no tensor, can be pickled, and is compared by its values. Each round has
    losses of its own, so that a schedule is a number by the time it arrives here.

    Attributes:
        learns: Name of the network that the gradients are of.
        reads: Names of other networks that are evaluated.
        statistics: Names of what a call returns; the first is what is made smaller.
        fields: Names of the fields of a minibatch that are looked at, besides ``actions``; ``None`` for all.
    """

    learns: str
    reads: tuple[str, ...] = ()
    statistics: tuple[str, ...]
    fields: tuple[str, ...] | None = None

    @abstractmethod
    def __call__(self, nets: Mapping[str, Any], batch: Any) -> tuple[torch.Tensor, ...]:
        """Evaluate a minibatch, or a slice of one.

        Args:
            nets: The networks, by name.
            batch: Fields ``(rows, ...)``, and numbers.

        Returns:
            :attr:`statistics`, scalars, each a mean over the rows; the first with a graph.
        """

    def formula(self, nets: Any) -> Formula | None:
        """The same with gradients derived by hand, ``None`` if nobody has derived them for these networks.

        Args:
            nets: The :class:`~reactor_torch.Networks`. Where one loss has none, autograd computes all of them.
        """
        return None


class Formula(Protocol):
    """A loss with its gradients.

    Attributes:
        loss: The loss, replaced when a round has another value of it.
        block: Rows of the blocks that it adds up as a tree, see :func:`reactor_torch.networks.halved`; ``None`` if it adds up all
            rows in an order that depends on how many there are.
    """

    loss: Any
    block: int | None

    def gradients(self, batch: Any, of: int | None = None) -> Array:
        """Overwrite the gradients of the network that learns.

        Args:
            batch: A minibatch, or a slice of one.
            of: Rows of the whole minibatch: gradients and statistics of its slices add up to those of the whole.

        Returns:
            The loss's statistics, float32.
        """
        ...


class Task(NamedTuple):
    """Gradients that an update waits for.

    Attributes:
        loss: Name of the loss.
        batch: The batch that the minibatch is a part of.
        rows: Rows of the minibatch.
    """

    loss: str
    batch: Any
    rows: slice


Update = Generator[tuple[Task, ...], list[Mapping[str, float]], dict[str, float]]
"""An update whose gradients somebody else computes.

Yields tasks that may be done at the same time. When it goes on the gradients are in the networks' flat arrays, and it is sent the
statistics of each task, by name. Returns what is to be logged.
"""
