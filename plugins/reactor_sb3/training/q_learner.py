"""What learns from minibatches of Q-learning: networks of SB3's kind with the losses of :mod:`reactor_torch`.

Q-networks of dense layers are differentiated by formulas, any other by autograd; parameters are one array either way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3.common.preprocessing import preprocess_obs
from stable_baselines3.common.utils import polyak_update
from torch import nn

from reactor_sb3.training.networks import layered_of
from reactor_torch import Autograd, Dense, DQNBatch, FlatOptimizer, FlatParameters, Function, Learner, Loss, QBatch

__all__ = ["QLearner"]

Array = npt.NDArray[Any]


class QLearner:
    """Updates of a Q-network.

    Args:
        policy: It has the network, ``q_net``, and its ``optimizer``.
        loss: From the network, and the target network if there is one, to what is made smaller.
        max_grad_norm: What gradients are clipped to.
        target: The target network.

    Attributes:
        dense: Whether gradients come from formulas, and not from autograd.
    """

    def __init__(
        self, policy: Any, loss: Callable[..., Loss], max_grad_norm: float | None, target: nn.Module | None = None
    ) -> None:
        self.policy = policy
        self._networks = [policy.q_net] if target is None else [policy.q_net, target]
        self._flat = [_optimised(policy)]
        if target is not None:
            self._flat.append(FlatParameters(target.named_parameters(), learned=False))
        structures = [layered_of(network, policy.observation_space) for network in self._networks]
        whole = self._flat[0].names == tuple(name for name, _ in policy.q_net.named_parameters())
        self.dense = whole and all(
            one is not None and Dense.knows(one.layers, flat) for one, flat in zip(structures, self._flat, strict=True)
        )
        functions: list[Function] = []
        for network, structure, flat in zip(self._networks, structures, self._flat, strict=True):
            if self.dense and structure is not None:
                functions.append(Dense(structure.layers, flat))
            else:
                functions.append(Autograd(network, flat))
        self.loss: Any = loss(*functions)
        self._learner = Learner(self.loss, FlatOptimizer(policy.optimizer, self._flat[0]), max_grad_norm)

    def begin_round(self, max_grad_norm: float | None) -> None:
        """Take over what has been loaded or replaced since the last round.

        Args:
            max_grad_norm: What gradients are clipped to from now on.
        """
        self._learner.max_grad_norm = max_grad_norm
        self._learner.begin()

    def observations(self, given: Any) -> Any:
        """Observations ``(rows, ...)`` as the loss takes them; a dict stays one."""
        if not self.dense:
            return given
        seen: Any = preprocess_obs(given, self.policy.observation_space, normalize_images=self.policy.normalize_images)
        return seen.flatten(1)

    def learn(self, batches: Iterable[DQNBatch | QBatch]) -> Array:
        """An update from each of some minibatches.

        Args:
            batches: Their observations as :meth:`observations` gives them; each is asked for when the one before is learned.

        Returns:
            The loss of each, ``(updates,)``, float32.
        """
        losses = []
        for batch in batches:
            losses.append(self._learner.gradients(batch))
            self._learner.step()
        return np.concatenate(losses)

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
