"""Actor and critic with a memory as losses see them, and the loss of PPO over sequences, with gradients derived by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from reactor_torch.dense import Dense, Layer
from reactor_torch.flat import FlatParameters
from reactor_torch.formulas.actor_critic import EvaluatedActions
from reactor_torch.formulas.distributions import Distribution, Evaluated
from reactor_torch.formulas.ppo import PPOFormula
from reactor_torch.kept import keep
from reactor_torch.lstm import Lstm, LstmWeights

__all__ = ["RecurrentActorCritic", "RecurrentPPOFormula", "lstm_of"]

Array = npt.NDArray[Any]
_PARTS = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")


def lstm_of(flat: FlatParameters, name: str) -> Lstm | None:
    """The layer of a ``torch.nn.LSTM`` with one layer, if all its parameters learn.

    Args:
        flat: The parameters.
        name: Of the module.
    """
    values = [flat.value(f"{name}.{part}") for part in _PARTS]
    gradients = [flat.gradient(f"{name}.{part}") for part in _PARTS]
    if any(one is None for one in (*values, *gradients)):
        return None
    weights, learned = (LstmWeights(*(one.numpy() for one in parts if one is not None)) for parts in (values, gradients))
    return Lstm(weights, learned)


class RecurrentActorCritic:
    """LSTMs, and on each of them dense layers, without common parameters; an :class:`~reactor_torch.ActorCritic`.

    Args:
        lstms: The actor's LSTM, and the critic's; ``None`` for a critic of observations.
        actor: Layers that give the distribution's parameters.
        critic: Layers that give a value.
        distribution: Distribution of actions.
        flat: The parameters of all, and of the distribution if it has any.
    """

    adds_up = False  # rows of a minibatch are sequences, of which a leaf has no whole number

    def __init__(
        self,
        lstms: tuple[Lstm, Lstm | None],
        actor: Sequence[Layer],
        critic: Sequence[Layer],
        distribution: Distribution,
        flat: FlatParameters,
    ) -> None:
        self.lstms, self.flat, self.distribution = lstms, flat, distribution
        self.actor, self.critic = Dense(actor, flat, passes_on=True), Dense(critic, flat, passes_on=lstms[1] is not None)
        self._of_rows: dict[int, Evaluated] = {}
        self._evaluated: Evaluated | None = None
        self._states, self._starts = np.zeros((0, 4, 0), np.float32), np.zeros((0, 0), np.float32)

    def begin(self, states: torch.Tensor, starts: torch.Tensor) -> None:
        """Say what sequences begin with, before they are evaluated.

        Args:
            states: Hidden and cell states of the actor's LSTM and of the critic's, ``(rows, 4 * hidden)``.
            starts: Whether an episode starts with a step, ``(rows, steps)``, float32.
        """
        self._states = states.numpy().reshape(len(states), 4, -1).swapaxes(0, 1)
        self._starts = np.ascontiguousarray(starts.numpy().T)

    def evaluate(self, observations: torch.Tensor, actions: torch.Tensor, masks: torch.Tensor | None = None) -> EvaluatedActions:
        """See :meth:`~reactor_torch.ActorCritic.evaluate`; rows are all steps of a sequence, then of the next one."""
        steps, rows = self._starts.shape
        seen = np.ascontiguousarray(observations.numpy().reshape(rows, steps, -1).swapaxes(0, 1))
        latents = []
        for number, lstm in enumerate(self.lstms):
            if lstm is None:
                latents.append(observations)
                continue
            lstm.take_weights()
            h, c = (np.ascontiguousarray(one) for one in self._states[2 * number : 2 * number + 2])
            outputs, _ = lstm.run(seen, self._starts, h, c)
            latents.append(torch.from_numpy(_turned(outputs)))
        count = steps * rows
        distribution = self._of_rows.get(count)
        if distribution is None:
            distribution = keep(self._of_rows, count, self.distribution.at(count, self.flat.device))
        self._evaluated = distribution
        distribution.evaluate(self.actor.forward(latents[0]), actions, masks)
        return self.critic.forward(latents[1]).view(-1), distribution.log_prob, distribution.entropy

    def backward(self, by_values: torch.Tensor, by_log_prob: torch.Tensor, by_entropy: float) -> None:
        """See :meth:`~reactor_torch.ActorCritic.backward`."""
        assert self._evaluated is not None, "evaluate first"
        self._evaluated.differentiate(by_log_prob, by_entropy)
        steps, rows = self._starts.shape
        for lstm, network, gradient in zip(
            self.lstms, (self.actor, self.critic), (self._evaluated.gradient, by_values[:, None]), strict=True
        ):
            by_latents = network.through(gradient)
            if lstm is not None:
                lstm.back(np.array(by_latents.numpy().reshape(rows, steps, -1).swapaxes(0, 1), order="C"))


def _turned(outputs: Array) -> Array:
    """``(steps, rows, n)`` as ``(rows * steps, n)``."""
    return np.array(outputs.swapaxes(0, 1), order="C").reshape(-1, outputs.shape[2])


class RecurrentPPOFormula(PPOFormula):
    """PPO's loss over sequences, with states computed anew along each; see :class:`PPOFormula`.

    Args:
        loss: The loss.
        policy: Actor and critic.
    """

    policy: RecurrentActorCritic

    def gradients(self, batch: Any, of: int | None = None) -> Array:
        """See :meth:`Formula.gradients <reactor_torch.Formula.gradients>`; fields are ``(rows, steps, ...)``."""
        self.policy.begin(batch.states, batch.starts)
        return super().gradients(_Steps(batch), None if of is None else of * batch.starts.shape[1])


class _Steps:
    """All steps of sequences, as rows."""

    def __init__(self, batch: Any) -> None:
        self.observations, self.actions = batch.observations.flatten(0, 1), batch.actions.flatten(0, 1)
        self.advantages, self.returns = batch.advantages.flatten(), batch.returns.flatten()
        self.old_log_prob, self.old_values = batch.old_log_prob.flatten(), batch.old_values.flatten()

    def __len__(self) -> int:
        return len(self.actions)
