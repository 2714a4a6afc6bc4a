"""What learns from minibatches of Q-learning: networks of SB3's kind with the losses of :mod:`reactor_torch`.

Q-networks of dense layers are differentiated by formulas, any other by autograd; parameters are one array either way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3.common.utils import polyak_update
from torch import nn

from reactor_sb3.acting.forwards import dense_forward
from reactor_sb3.learning.policy_learner import PolicyLearner
from reactor_torch import (
    AutogradFunction,
    Dense,
    FlatOptimizer,
    FlatParameters,
    Function,
    LossMaker,
    QBatch,
    TransitionBatch,
    Updater,
    UpdaterLoss,
    UpdaterTask,
    Updates,
    carry_out,
)

__all__ = ["QLearner", "q_losses"]

Array = npt.NDArray[Any]


class QLearner(PolicyLearner):
    """Updates of a Q-network.

    Args:
        policy: It has the network, ``q_net``, and its ``optimizer``.
        loss: From the network, and the target network if there is one, to what is made smaller.
        max_grad_norm: What gradients are clipped to.
        target: The target network.
    """

    def __init__(
        self, policy: Any, loss: Callable[..., UpdaterLoss], max_grad_norm: float | None, target: nn.Module | None = None
    ) -> None:
        self._make_loss = loss
        self._networks = [policy.q_net] if target is None else [policy.q_net, target]
        self._flat = [_optimised(policy)]
        if target is not None:
            self._flat.append(FlatParameters(target.named_parameters(), learned=False))
        functions = _functions(policy, self._networks, self._flat)
        self.loss: Any = loss(*functions)
        updater = Updater(self.loss, FlatOptimizer(policy.optimizer, self._flat[0]), max_grad_norm)
        super().__init__(policy, isinstance(functions[0], Dense), updater)

    def loss_maker(self) -> LossMaker:
        """What makes the same losses again, of a copy of the policy."""
        return partial(q_losses, self.learning_copy(), self._flat[0].names, self._make_loss, len(self._networks) > 1)

    def updates(self, batches: Iterable[TransitionBatch | QBatch]) -> Updates[Array]:
        """An update from each of some minibatches, for gradients that somebody else computes.

        Args:
            batches: Their observations as :meth:`observations` gives them; each is asked for when the one before is learned.

        Returns:
            The loss of each, ``(updates,)``, float32.
        """
        losses: list[Array] = []
        for batch in batches:
            losses += yield (UpdaterTask(0, batch, slice(0, len(batch))),)
            self._updaters[0].step()
        return np.concatenate(losses)

    def learn(self, batches: Iterable[TransitionBatch | QBatch]) -> Array:
        """An update from each of some minibatches; see :meth:`updates`."""
        return carry_out(self.updates(batches), self.gradients)

    def update_target(self, tau: float) -> None:
        """Move the target network's parameters towards those of the network, ``tau`` of the way."""
        flat, target = self._flat
        if flat.names == target.names:
            flat.bind()
            target.bind()
            target.blend(flat, tau)
        else:  # some are frozen, and may have been exchanged nevertheless
            source, destination = self._networks
            polyak_update(source.parameters(), destination.parameters(), tau)


def _optimised(policy: Any) -> FlatParameters:
    """What the optimiser has of a policy, named as in its Q-network where it is there."""
    optimised: set[torch.Tensor] = {one for group in policy.optimizer.param_groups for one in group["params"]}
    named = [*policy.q_net.named_parameters(), *policy.named_parameters()]
    return FlatParameters([(name, parameter) for name, parameter in named if parameter in optimised])


def _functions(policy: Any, networks: Sequence[nn.Module], flats: Sequence[FlatParameters]) -> list[Function]:
    """Networks as a loss sees them, all of them dense or none."""
    structures = [dense_forward(network, policy.observation_space) for network in networks]
    layers = [structure.layers for structure in structures if structure is not None]
    whole = flats[0].names == tuple(name for name, _ in policy.q_net.named_parameters())
    if whole and len(layers) == len(flats) and all(map(Dense.knows, layers, flats)):
        return [Dense(one, flat) for one, flat in zip(layers, flats, strict=True)]
    return [AutogradFunction(network, flat) for network, flat in zip(networks, flats, strict=True)]


def q_losses(
    policy: Any, names: Sequence[str], loss: Callable[..., UpdaterLoss], has_target: bool, device: torch.device
) -> tuple[tuple[UpdaterLoss], nn.Module]:
    """The only loss of a policy that has no optimiser, and the policy.

    Args:
        policy: It.
        names: Of the parameters that learn, as :class:`QLearner` has them.
        loss: As for :class:`QLearner`.
        has_target: Whether there is a target network.
        device: Where both are to be.
    """
    policy.to(device)
    by_name = dict([*policy.named_parameters(), *policy.q_net.named_parameters()])
    networks, flats = [policy.q_net], [FlatParameters([(name, by_name[name]) for name in names])]
    if has_target:
        networks.append(policy.q_net_target)
        flats.append(FlatParameters(policy.q_net_target.named_parameters(), learned=False))
    return (loss(*_functions(policy, networks, flats)),), policy
