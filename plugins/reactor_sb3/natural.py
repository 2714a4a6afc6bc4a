"""Natural gradients of any of SB3's policies, by autograd, and which of its parameters have one."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from stable_baselines3.common.distributions import kl_divergence
from torch import nn

from reactor_torch import FlatParameters, PPOBatch, torch_state, torch_stream

__all__ = ["WrittenActor", "line_search", "shared_out"]


class WrittenActor:
    """The same as :class:`~reactor_torch.NaturalActor`, for any policy: as sb3-contrib has it, by autograd.

    Args:
        policy: The policy.
        flat: The parameters that its distribution of actions depends on.
    """

    def __init__(self, policy: Any, flat: FlatParameters) -> None:
        self.policy, self.flat = policy, flat

    @torch.enable_grad()
    def begin(self, batch: PPOBatch) -> tuple[float, torch.Tensor]:
        """See :meth:`NaturalActor.begin <reactor_torch.NaturalActor.begin>`."""
        self.batch = batch
        with torch.no_grad():
            self.old = copy.copy(self.policy.get_distribution(batch.observations))
        objective, divergence = self._evaluate()
        self.slope = self._gradient(divergence, graph=True)
        return float(objective.detach()), self._gradient(-objective)

    def product(self, direction: torch.Tensor) -> torch.Tensor:
        """The divergence's second derivative along a direction, which is that product."""
        return self._gradient(self.slope @ direction)

    @torch.no_grad()
    def measure(self) -> tuple[float, float]:
        """See :meth:`NaturalActor.measure <reactor_torch.NaturalActor.measure>`."""
        objective, divergence = self._evaluate()
        return float(objective), float(divergence)

    def _evaluate(self) -> tuple[torch.Tensor, torch.Tensor]:
        now = self.policy.get_distribution(self.batch.observations)
        ratio = (now.log_prob(self.batch.actions) - self.batch.old_log_prob).exp()
        return (self.batch.advantages * ratio).mean(), kl_divergence(now, self.old).mean()

    def _gradient(self, of: torch.Tensor, graph: bool = False) -> torch.Tensor:
        """A gradient by all parameters, whose hooks are not called; perhaps with a graph of its own."""
        with self.flat.without_hooks(self.flat.hooked()):
            found = torch.autograd.grad(of, self.flat.parameters, retain_graph=True, create_graph=graph, materialize_grads=True)
        return torch.cat([part.reshape(-1) for part in found])


def line_search(
    actor: Any, flat: FlatParameters, direction: torch.Tensor, lengths: Sequence[float], objective: float, target_kl: float
) -> tuple[float, float, bool]:
    """Step back along a direction by the first length that keeps the divergence below a limit and makes the objective better.

    Args:
        actor: A :class:`WrittenActor` or a :class:`~reactor_torch.NaturalActor`, which has begun.
        flat: Its parameters. If no length will do, they stay as they are.
        direction: One number for each of them.
        lengths: To be tried, in units of the direction.
        objective: As it is without a step.
        target_kl: The limit.

    Returns:
        The objective, the divergence, and whether there was a step.
    """
    before = flat.data.clone()
    for length in lengths:
        flat.data.copy_(before - length * direction)
        found, divergence = actor.measure()
        if divergence < target_kl and found > objective:
            return found, divergence, True
    flat.data.copy_(before)
    return objective, 0.0, False


_Parts = tuple[nn.ParameterList, nn.ParameterList]
_SHARED_OUT: WeakKeyDictionary[nn.Module, tuple[Any, _Parts]] = WeakKeyDictionary()


def shared_out(policy: Any) -> _Parts:
    """Parameters of a policy's actor, which the distribution of actions depends on, and all others, which are its critic's.

    The same lists are returned as long as the policy has these parameters, frozen or not.

    Args:
        policy: An ``ActorCriticPolicy``.
    """
    named = list(policy.named_parameters())
    key = [(name, id(one), one.requires_grad) for name, one in named]
    known, parts = _SHARED_OUT.get(policy, (None, None))
    if parts is None or known != key:
        learned = [one for _, one in named if one.requires_grad]
        remembers, before = vars(policy.action_dist), dict(vars(policy.action_dist))
        with torch_stream(torch_state(0)), torch.enable_grad():
            seen, _ = policy.obs_to_tensor(copy.deepcopy(policy.observation_space).sample())
            now = policy.get_distribution(seen)
            divergence = kl_divergence(now, copy.copy(now)).sum()
            reached: Sequence[torch.Tensor | None] = [None] * len(learned)
            if divergence.requires_grad:  # else all of the actor is frozen
                reached = torch.autograd.grad(divergence, learned, allow_unused=True)
        remembers.clear()  # the last distribution, which has a graph
        remembers.update(before)
        acts = {id(one) for one, slope in zip(learned, reached, strict=True) if slope is not None}
        actor = [one for name, one in named if id(one) in acts and "value" not in name]  # by the name too, as sb3-contrib has it
        rest = {id(one) for one in actor}
        parts = nn.ParameterList(actor), nn.ParameterList([one for _, one in named if id(one) not in rest])
        _SHARED_OUT[policy] = key, parts
    return parts
