"""Critics of states and continuous actions as losses see them: values, their derivatives by parameters, and those by actions.

The loss of the critics needs the former, the loss of an actor the latter: never both, so that neither pays for the other's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from reactor_torch.batches import TransitionBatch
from reactor_torch.dense import Dense
from reactor_torch.flat import FlatParameters
from reactor_torch.layers import Layer

__all__ = ["AutogradCritics", "Critics", "DenseCritics", "td_loss"]


class Critics(Protocol):
    """Several networks that value the same observations and actions."""

    flat: FlatParameters

    def q_values(self, observations: Any, actions: torch.Tensor) -> torch.Tensor:
        """What each critic says, ``(critics, rows)``, cut off from autograd's graph."""
        ...

    def backward(self, gradient: torch.Tensor) -> None:
        """Overwrite the gradients of the parameters, from those of the loss by what the last :meth:`q_values` gave."""
        ...

    def action_gradient(self, observations: Any, actions: torch.Tensor, first: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        """What an actor is to make larger, without gradients of parameters.

        Args:
            observations: ``(rows, ...)``.
            actions: ``(rows, n)``.
            first: Whether the first critic alone is asked, and not the least of what all say.

        Returns:
            Values ``(rows,)`` and the derivative of each by its action, ``(rows, n)``, which may be overwritten.
        """
        ...


def td_loss(critics: Critics, batch: TransitionBatch, following: torch.Tensor, weight: float, of: int | None) -> torch.Tensor:
    """Gradients of the squared errors of all critics.

    Args:
        critics: They.
        batch: TransitionBatch, or a slice of them.
        following: What comes after them is worth, ``(rows,)``, not discounted; may be overwritten.
        weight: Weight of the loss.
        of: Rows of the whole minibatch.

    Returns:
        The loss, or the slice's share of it: a scalar.
    """
    rows = following.shape[0]
    discounts = batch.discounts.view(rows) if isinstance(batch.discounts, torch.Tensor) else batch.discounts
    returns = following.mul_(1 - batch.dones.view(rows)).mul_(discounts).add_(batch.rewards.view(rows))
    errors = critics.q_values(batch.observations, batch.actions).sub_(returns)
    share, flat = weight / (of or rows), errors.view(-1)
    loss = torch.dot(flat, flat).mul_(share)
    critics.backward(errors.mul_(2 * share))
    return loss


class DenseCritics:
    """Critics of dense layers without common parameters, each given observations and behind them actions.

    Args:
        networks: Layers of each critic; the first is linear.
        flat: Parameters of all critics.
    """

    def __init__(self, networks: Sequence[Sequence[Layer]], flat: FlatParameters) -> None:
        self.networks, self.flat = [Dense(layers, flat) for layers in networks], flat
        self._of_rows: dict[int, torch.Tensor] = {}

    def q_values(self, observations: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """See :meth:`Critics.q_values`; observations are ``(rows, features)``, float32."""
        inputs = self._inputs(observations, actions)
        return torch.stack([network.forward(inputs).view(-1) for network in self.networks])

    def backward(self, gradient: torch.Tensor) -> None:
        """See :meth:`Critics.backward`."""
        for network, column in zip(self.networks, gradient[:, :, None], strict=True):
            network.backward(column)

    def action_gradient(
        self, observations: torch.Tensor, actions: torch.Tensor, first: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See :meth:`Critics.action_gradient`; each critic is differentiated only where its value is the least."""
        inputs, features = self._inputs(observations, actions), observations.shape[1]
        if first or len(self.networks) == 1:
            values = self.networks[0].forward(inputs).view(-1)
            return values, self.networks[0].input_gradient(None, features)
        values, which = torch.stack([network.forward(inputs).view(-1) for network in self.networks]).min(0)
        gradient = torch.empty_like(actions)
        for number, network in enumerate(self.networks):
            rows = (which == number).nonzero().view(-1)
            gradient.index_copy_(0, rows, network.input_gradient(rows, features))
        return values, gradient

    def _inputs(self, observations: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        rows, width = actions.shape[0], observations.shape[1] + actions.shape[1]
        inputs = self._of_rows.get(rows)
        if inputs is None:
            inputs = self._of_rows[rows] = torch.zeros(rows, width, device=self.flat.device)
        return torch.cat((observations, actions), 1, out=inputs)


class AutogradCritics:
    """Any critics, differentiated by autograd.

    Args:
        evaluate: From observations and actions to the values of each critic, ``(rows, 1)``, as SB3's ``ContinuousCritic``.
        first: The same for the first critic alone, as its ``q1_forward``.
        flat: Parameters of all critics.
    """

    def __init__(
        self,
        evaluate: Callable[[Any, torch.Tensor], Sequence[torch.Tensor]],
        first: Callable[[Any, torch.Tensor], torch.Tensor],
        flat: FlatParameters,
    ) -> None:
        self.evaluate, self.first, self.flat = evaluate, first, flat
        self._values = torch.empty(0)

    def q_values(self, observations: Any, actions: torch.Tensor) -> torch.Tensor:
        """See :meth:`Critics.q_values`; observations are what the critics take."""
        with torch.set_grad_enabled(bool(len(self.flat.gradients))):
            self._values = torch.cat([one.view(1, -1) for one in self.evaluate(observations, actions)])
        return self._values.detach().clone()

    def backward(self, gradient: torch.Tensor) -> None:
        """See :meth:`Critics.backward`."""
        self.flat.begin_gradients()
        self._values.backward(gradient)  # type: ignore[no-untyped-call]
        self._values = torch.empty(0)

    @torch.enable_grad()
    def action_gradient(self, observations: Any, actions: torch.Tensor, first: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        """See :meth:`Critics.action_gradient`."""
        actions = actions.detach().requires_grad_()
        if first:
            values = self.first(observations, actions).view(-1)
        else:
            values = torch.cat(tuple(self.evaluate(observations, actions)), 1).min(1).values
        (gradient,) = torch.autograd.grad(values.sum(), actions)
        return values.detach(), gradient
