"""Networks as losses see them that name their gradients: critics, actors, actors with critics, and these behind LSTMs.

Each is asked for numbers, and then given the derivatives of a loss by these numbers, from which it overwrites the gradients of its
parameters. Nothing of it has a graph, and what it gives is valid until the next call. Nothing is drawn here: noise comes with the
minibatch. The extension computes all of it; without it autograd learns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from reactor_torch import kernels
from reactor_torch.dense import Dense, Function, Layer, backward_all, forward_all, input_gradients, least_and_slopes
from reactor_torch.flat import FlatParameters
from reactor_torch.kept import keep
from reactor_torch.learned_distributions import EPSILON, HALF_LOG_2PI, HIGHEST, LOWEST, Evaluated, LearnedDistribution
from reactor_torch.lstm import Lstm, LstmWeights

__all__ = [
    "ActorCritic",
    "Critics",
    "QuantileCritics",
    "QuantileNetwork",
    "RecurrentActorCritic",
    "SquashedActor",
    "SquashedActorByRow",
    "lstm_of",
]

Array = npt.NDArray[Any]
EvaluatedActions = tuple[Array, Array, Array]
"""Values, log-probabilities and entropies, ``(rows,)`` each, float32."""


# ---------------------------------------------------------------------- values of actions that are numbers


class Critics:
    """Critics of dense layers without common parameters, each given observations and behind them actions.

    Gradients by parameters and by actions are two ways back: a loss of critics needs the former, an actor's the latter, so that
    neither pays for the other's.

    Args:
        networks: Layers of each critic; the first is linear, or renormalises batches.
        flat: Parameters of all critics.
        buffers: See :class:`~reactor_torch.Dense`.
    """

    adds_up = True

    def __init__(
        self, networks: Sequence[Sequence[Layer]], flat: FlatParameters, buffers: Mapping[str, torch.Tensor] | None = None
    ) -> None:
        self.flat, self.outputs = flat, networks[0][-1].outputs
        self.networks = [
            Dense(layers, flat, room=partial(self._room, number), buffers=buffers) for number, layers in enumerate(networks)
        ]
        self._of_rows: dict[int, torch.Tensor] = {}
        self._outputs: dict[int, torch.Tensor] = {}
        self._values: dict[int, torch.Tensor] = {}  # the first number that each critic says, (critics, rows)

    def _room(self, number: int, rows: int) -> torch.Tensor:
        """Where the extension puts what a critic says: they lie below each other."""
        room = self._outputs.get(rows)
        if room is None:
            room = keep(self._outputs, rows, torch.zeros(len(self.networks), rows, self.outputs))
            keep(self._values, rows, room[:, :, 0])
            if len(self._outputs) == 1:  # the others are forgotten, and so are the layers that write there
                for network in self.networks:
                    network.forget()
        return room[number]

    def values(self, observations: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """Each critic's values, ``(critics, rows)``.

        Args:
            observations: ``(rows, features)``, float32.
            actions: ``(rows, n)``, float32.
        """
        return self._values_of(self.inputs_of(observations, actions))

    def _values_of(self, inputs: torch.Tensor) -> torch.Tensor:
        forward_all(self.networks, inputs)
        return self._values[inputs.shape[0]]

    def outputs_of(self, inputs: torch.Tensor, training: bool = False) -> torch.Tensor:
        """Each critic's outputs, ``(critics, rows, outputs)``; ``training`` as for :meth:`Dense.forward`."""
        forward_all(self.networks, inputs, training)
        return self._outputs[inputs.shape[0]]

    def backward(self, gradient: torch.Tensor) -> None:
        """Overwrite the gradients of the parameters, from those of the loss by what was given last, of the same shape."""
        array = gradient.numpy()
        backward_all(self.networks, list(array.reshape(*array.shape[:2], self.outputs)))

    def action_gradient(
        self, observations: torch.Tensor, actions: torch.Tensor, first: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The values that an actor is to make larger, without gradients of parameters.

        Args:
            observations: ``(rows, features)``.
            actions: ``(rows, n)``.
            first: Whether the first critic alone is asked, and not the least of what all say.

        Returns:
            Values ``(rows,)`` and the derivative of each by its action, ``(rows, n)``, which may be overwritten. A critic is
            differentiated only where its value is the least.
        """
        inputs, features = self.inputs_of(observations, actions), observations.shape[1]
        if first or len(self.networks) == 1:
            values = self.networks[0].forward(inputs).view(-1)
            return values, self.networks[0].input_gradient(None, features)
        return least_and_slopes(self.networks, self._values_of(inputs), features)

    def inputs_of(self, observations: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """The input of each critic, ``(rows, features + n)``."""
        rows, width = actions.shape[0], observations.shape[1] + actions.shape[1]
        inputs = self._of_rows.get(rows)
        if inputs is None:
            inputs = keep(self._of_rows, rows, torch.zeros(rows, width))
        return torch.cat((observations, actions), 1, out=inputs)


class QuantileCritics(Critics):
    """Critics of quantiles; the value of an action is the mean of all that they say, which is what an actor makes larger."""

    def quantiles(self, observations: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """Each critic's quantiles, ``(critics, rows, n)``; arguments as of :meth:`Critics.values`."""
        return self.outputs_of(self.inputs_of(observations, actions))

    def action_gradient(
        self, observations: torch.Tensor, actions: torch.Tensor, first: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See :meth:`Critics.action_gradient`."""
        said, features = self.quantiles(observations, actions), observations.shape[1]
        weight = 1 / (said.shape[0] * said.shape[2])
        gradient = np.zeros(actions.shape, np.float32)
        for found in input_gradients(self.networks, features, weight):
            gradient += found.numpy()
        return torch.from_numpy(said.numpy().mean(2).mean(0)), torch.from_numpy(gradient)


class QuantileNetwork:
    """Quantiles of what each action brings.

    Args:
        network: Gives ``(rows, n * actions)``: quantiles of all actions, then the next one of all actions.
        actions: How many actions there are.
    """

    def __init__(self, network: Function, actions: int) -> None:
        self.network, self.actions, self.flat, self.adds_up = network, actions, network.flat, network.adds_up

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """``(rows, n, actions)``."""
        outputs = self.network.forward(observations)
        return outputs.view(outputs.shape[0], -1, self.actions)

    def backward(self, gradient: torch.Tensor) -> None:
        """Overwrite the gradients of the parameters, from those of the loss by what the last :meth:`forward` gave."""
        self.network.backward(gradient.flatten(1))


# ---------------------------------------------------------------------- actions that are numbers


class SquashedActor:
    """Dense layers, and on them two linear ones: means, and logarithms of standard deviations of actions between -1 and 1.

    An action is ``tanh(u)`` with ``u = mean + std * noise``, its log-probability that of ``u`` less ``log(1 - tanh(u)^2 + 1e-6)``:
    Haarnoja et al., "Soft Actor-Critic Algorithms and Applications", 2018, appendix C, with the constant of Stable-Baselines3. In
    terms of the noise the normal part is ``-noise^2 / 2 - log(std) - log(2 pi) / 2``, which depends on the network by ``log(std)``
    alone.

    Args:
        body: Layers that both have in common.
        mean: The layer that gives means.
        log_std: The layer that gives logarithms of standard deviations, as yet without bounds.
        flat: All their parameters.
        buffers: See :class:`~reactor_torch.Dense`.
    """

    adds_up = True

    def __init__(
        self,
        body: Sequence[Layer],
        mean: Layer,
        log_std: Layer,
        flat: FlatParameters,
        buffers: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        self.body, self.flat = Dense(body, flat, buffers=buffers), flat
        self.heads = Dense([mean], flat, passes_on=True), Dense([log_std], flat, passes_on=True)
        self._of_rows: dict[int, _Squashed] = {}
        self._squashed: _Squashed | None = None

    def act(self, observations: torch.Tensor, noise: torch.Tensor, training: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        """Actions ``(rows, n)`` and their log-probabilities ``(rows,)``.

        Args:
            observations: ``(rows, features)``, float32.
            noise: Standard normal, ``(rows, n)``, float32.
            training: Whether batches are normalised by their own statistics, and running ones change, if there are any.
        """
        squashed = self._of_rows.get(noise.shape[0])
        if squashed is None:
            squashed = keep(self._of_rows, noise.shape[0], _Squashed(noise))
        self._squashed = squashed
        latent = self.body.forward(observations, training)
        mean, log_std = forward_all(self.heads, latent)
        return squashed.forward(mean, log_std, noise)

    def backward(self, by_actions: torch.Tensor, by_log_prob: float) -> None:
        """Overwrite the gradients of the parameters, from those of the loss by what the last :meth:`act` gave.

        Args:
            by_actions: Gradient of the loss by the actions, ``(rows, n)``; may be overwritten.
            by_log_prob: Gradient of the loss by each log-probability.
        """
        assert self._squashed is not None, "act first"
        below, more = backward_all(self.heads, self._squashed.backward(by_actions, by_log_prob))
        kernels.compiled.add(below.numpy(), more.numpy())
        self.body.backward(below)


class _Squashed:
    """Squashed normal distributions for one number of rows."""

    def __init__(self, like: torch.Tensor) -> None:
        self.kernels: Any = kernels.compiled
        self.actions, self.log_prob = torch.zeros_like(like), torch.zeros(len(like))
        spread, slack, *self.gradients = (np.zeros(like.shape, np.float32) for _ in range(4))
        self.made = [self.actions.numpy(), spread, slack]
        self.raw: Array = spread

    def forward(self, mean: torch.Tensor, log_std: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.raw = log_std.numpy()
        given = mean.numpy(), self.raw, np.ascontiguousarray(noise.numpy())
        self.kernels.squashed_gaussian(*given, *self.made, self.log_prob.numpy(), self.gradients[0], LOWEST, HIGHEST)
        return self.actions, self.log_prob

    def backward(self, by_actions: torch.Tensor, by_log_prob: float) -> list[Array]:
        """Gradients by means and by logarithms of standard deviations."""
        by = np.ascontiguousarray(by_actions.numpy())
        self.kernels.squashed_gaussian_backward(by, by_log_prob, *self.made, self.raw, *self.gradients, LOWEST, HIGHEST)
        return self.gradients


class SquashedActorByRow:
    """Dense layers, on them a linear one that gives means, and the noise of gSDE: Raffin et al. 2022, as in SB3's SAC.

    An action is ``tanh(u)`` with ``u = mean + x @ (std * noise)``, where ``x`` is what the layers give, and ``std`` and ``noise``
    are matrices. Its log-probability is that of a normal ``u`` with variances ``x^2 @ std^2 + 1e-6``, less
    ``log(1 - tanh(u)^2 + 1e-6)``.

    Args:
        body: Layers that give ``x``.
        mean: The layer that gives means, as yet without bounds.
        bounds: Of means; the gradient by a mean beyond them is 0.
        flat: All their parameters, and ``log_std``, ``(features, n)``, or ``(features, 1)`` for all actions.
        buffers: See :class:`~reactor_torch.Dense`.
    """

    adds_up = False  # the derivative of an exponential is a factor of what is added up over rows

    def __init__(
        self,
        body: Sequence[Layer],
        mean: Layer,
        bounds: tuple[float, float],
        flat: FlatParameters,
        buffers: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        self.body, self.mean, self.flat = Dense(body, flat, buffers=buffers), Dense([mean], flat, passes_on=True), flat
        self.sizes, self.bounds = (mean.inputs, mean.outputs), bounds
        self._of_rows: dict[int, _SquashedByRow] = {}
        self._squashed: _SquashedByRow | None = None

    def act(self, observations: torch.Tensor, noise: torch.Tensor, training: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        """Actions ``(rows, n)`` and their log-probabilities ``(rows,)``.

        Args:
            observations: ``(rows, features)``, float32.
            noise: Standard normal, of the matrix, ``(features, n)``, float32.
            training: See :meth:`SquashedActor.act`.
        """
        squashed = self._of_rows.get(rows := len(observations))
        if squashed is None:
            squashed = keep(self._of_rows, rows, _SquashedByRow(rows, *self.sizes, self.bounds, self.flat))
        self._squashed = squashed
        latent = self.body.forward(observations, training)
        return squashed.forward(latent.numpy(), self.mean.forward(latent).numpy(), noise.numpy())

    def backward(self, by_actions: torch.Tensor, by_log_prob: float) -> None:
        """See :meth:`SquashedActor.backward`."""
        assert self._squashed is not None, "act first"
        by_means, by_latent = self._squashed.backward(by_actions, by_log_prob)
        below = self.mean.through(torch.from_numpy(by_means))
        kernels.compiled.add(below.numpy(), by_latent)
        self.body.backward(below)


class _SquashedByRow:
    """The part behind the layers for one number of rows: all arrays are ``(rows, n)`` unless it says more."""

    def __init__(self, rows: int, features: int, n: int, bounds: tuple[float, float], flat: FlatParameters) -> None:
        log_std, log_std_gradient = flat.value("log_std"), flat.gradient("log_std")
        assert log_std is not None and log_std_gradient is not None
        self.kernels: Any = kernels.compiled
        self.log_std, self.by_log_std, self.bounds = log_std.numpy(), log_std_gradient.numpy(), bounds
        self.variances_of_elements = np.zeros_like(self.log_std)
        self.latent, self.squares = (np.zeros((rows, features), np.float32) for _ in range(2))
        self.raw, self.moved = np.zeros((2, rows, n), np.float32)
        self.products = [_Product(rows, features, n) for _ in range(2)]  # with the matrix, and of squares with its variances
        (self.log_prob, self.entropy), self.by_log_prob = np.zeros((2, rows), np.float32), np.zeros(rows, np.float32)
        self.distances, self.inverse, self.by_means, self.by_variances = np.zeros((4, rows, n), np.float32)
        # The kernels of normal numbers and of tanh, each with nothing of what the other one is for.
        self.nothing, self.none, self.slack, self.by_moved, self.room = np.zeros((5, rows, n), np.float32)
        self.actions, self.by_tanh = torch.zeros(rows, n), np.zeros(rows, np.float32)

    def forward(self, latent: Array, raw: Array, noise: Array) -> tuple[torch.Tensor, torch.Tensor]:
        """Actions and log-probabilities, of ``x``, means without bounds, and the noise of the matrix."""
        self.latent, self.raw, (spread, spread_of_squares) = latent, raw, self.products
        self.kernels.exp_2x(self.log_std, self.variances_of_elements)
        spread_of_squares.weights[...] = self.variances_of_elements.T
        np.sqrt(spread_of_squares.weights, out=spread.weights)
        np.multiply(spread.weights, noise.T, out=spread.weights)
        np.multiply(latent, latent, out=self.squares)
        spread.network.run(latent)
        spread_of_squares.network.run(self.squares)
        np.add(raw.clip(*self.bounds), spread.out, out=self.moved)
        given = self.nothing, spread.out, spread_of_squares.out, EPSILON
        self.kernels.gaussian_by_row(*given, self.distances, self.inverse, self.log_prob, self.entropy)
        made = self.actions.numpy(), self.none, self.slack, self.by_tanh, self.room
        self.kernels.squashed_gaussian(self.moved, self.nothing, self.nothing, *made, LOWEST, HIGHEST)
        self.log_prob += self.by_tanh + np.float32(HALF_LOG_2PI * raw.shape[1])
        return self.actions, torch.from_numpy(self.log_prob)

    def backward(self, by_actions: torch.Tensor, by_log_prob: float) -> tuple[Array, Array]:
        """Gradients by means without bounds, and by ``x`` but for what comes through means; that by ``log_std`` is overwritten."""
        spread, spread_of_squares = self.products
        given = np.ascontiguousarray(by_actions.numpy()), by_log_prob, self.actions.numpy(), self.none, self.slack, self.nothing
        self.kernels.squashed_gaussian_backward(*given, self.by_moved, self.room, LOWEST, HIGHEST)
        self.by_log_prob.fill(by_log_prob)
        given_normal = self.distances, self.inverse, self.by_log_prob, 0.0
        self.kernels.gaussian_by_row_backward(*given_normal, self.by_means, self.by_variances)
        spread.network.back(np.subtract(self.by_moved, self.by_means, out=self.by_means))  # what is drawn moves away from a mean
        spread_of_squares.network.back(self.by_variances)
        by_elements = spread.by_weights * spread.weights + np.float32(2) * spread_of_squares.by_weights * spread_of_squares.weights
        self.by_log_std[...] = by_elements.T if self.log_std.shape[1] > 1 else by_elements.sum(0)[:, None]
        by_latent = spread.by_inputs + np.float32(2) * self.latent * spread_of_squares.by_inputs
        low, high = self.bounds
        self.by_moved[(self.raw <= low) | (self.raw >= high)] = 0
        return self.by_moved, by_latent


class _Product:
    """The product of rows and a matrix, ``(rows, n)``, with its gradients."""

    def __init__(self, rows: int, features: int, n: int) -> None:
        self.weights, self.by_weights = (np.zeros((n, features), np.float32) for _ in range(2))
        self.out, self.by_inputs = np.zeros((rows, n), np.float32), np.zeros((rows, features), np.float32)
        given = None, self.by_weights, None, self.out, self.by_inputs, None
        self.network: Any = kernels.compiled.Network(rows, (("linear", 0, features, n, 0.0, self.weights, *given),))


# ---------------------------------------------------------------------- actor and critic


class ActorCritic:
    """Two networks of dense layers, of observations or of features that they share.

    Args:
        actor: Layers that give the distribution's parameters.
        critic: Layers that give a value.
        distribution: Distribution of actions.
        flat: The parameters of all, and of the distribution if it has any.
        features: Makes features of observations; ``None`` if both networks are given observations.

    Attributes:
        adds_up: Whether gradients of leaves of rows, added up as a tree, have the bits of those of all rows.
    """

    def __init__(
        self,
        actor: Sequence[Layer],
        critic: Sequence[Layer],
        distribution: LearnedDistribution,
        flat: FlatParameters,
        features: Function | None = None,
    ) -> None:
        self.actor, self.critic = (Dense(layers, flat, passes_on=features is not None) for layers in (actor, critic))
        self.distribution, self.flat, self.features = distribution, flat, features
        self.adds_up = distribution.adds_up and (features is None or features.adds_up)
        self._of_rows: dict[int, Evaluated] = {}
        self._evaluated: Evaluated | None = None

    def evaluate(self, observations: torch.Tensor, actions: torch.Tensor, masks: torch.Tensor | None = None) -> EvaluatedActions:
        """Values, log-probabilities and entropies.

        Args:
            observations: ``(rows, numbers)``, float32, or what ``features`` is given.
            actions: Of each row.
            masks: Which choices are allowed, ``(rows, choices)``, bool; ``None`` if all are.
        """
        distribution = self._at(len(observations))
        seen = observations if self.features is None else self.features.forward(observations)
        outputs, values = forward_all((self.actor, self.critic), seen)
        distribution.evaluate(outputs, actions, masks)
        return values.numpy().reshape(-1), distribution.log_prob, distribution.entropy

    def _at(self, rows: int) -> Evaluated:
        """The distribution for so many rows, which those are from now on that gradients are about."""
        distribution = self._of_rows.get(rows)
        if distribution is None:
            distribution = keep(self._of_rows, rows, self.distribution.at(rows))
        self._evaluated = distribution
        return distribution

    def backward(self, by_values: Array, by_log_prob: Array, by_entropy: float) -> None:
        """Overwrite the gradients of the parameters, from those of the loss by what the last :meth:`evaluate` gave.

        Args:
            by_values: Gradient of the loss by each value, ``(rows,)``, float32.
            by_log_prob: Gradient of the loss by each log-probability, ``(rows,)``, float32.
            by_entropy: Gradient of the loss by each entropy.
        """
        assert self._evaluated is not None, "evaluate first"
        self._evaluated.differentiate(by_log_prob, by_entropy)
        below = backward_all((self.actor, self.critic), (self._evaluated.gradient.numpy(), by_values[:, None]))
        if self.features is not None:
            self.features.backward(below[0].add_(below[1]))


class RecurrentActorCritic(ActorCritic):
    """LSTMs, and on each of them dense layers, without common parameters.

    Args:
        lstms: The actor's LSTM, and the critic's; ``None`` for a critic of observations.
        actor, critic, distribution, flat: As for :class:`ActorCritic`.
    """

    def __init__(
        self,
        lstms: tuple[Lstm, Lstm | None],
        actor: Sequence[Layer],
        critic: Sequence[Layer],
        distribution: LearnedDistribution,
        flat: FlatParameters,
    ) -> None:
        super().__init__(actor, critic, distribution, flat)
        self.lstms = lstms
        self.actor, self.critic = Dense(actor, flat, passes_on=True), Dense(critic, flat, passes_on=lstms[1] is not None)
        self.adds_up = False  # rows of a minibatch are sequences, of which a leaf has no whole number
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
        """See :meth:`ActorCritic.evaluate`; rows are all steps of a sequence, then of the next one."""
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
        distribution = self._at(steps * rows)
        distribution.evaluate(self.actor.forward(latents[0]), actions, masks)
        return self.critic.forward(latents[1]).numpy().reshape(-1), distribution.log_prob, distribution.entropy

    def backward(self, by_values: Array, by_log_prob: Array, by_entropy: float) -> None:
        """See :meth:`ActorCritic.backward`."""
        assert self._evaluated is not None, "evaluate first"
        self._evaluated.differentiate(by_log_prob, by_entropy)
        steps, rows = self._starts.shape
        gradients = self._evaluated.gradient, torch.from_numpy(by_values[:, None])
        for lstm, network, gradient in zip(self.lstms, (self.actor, self.critic), gradients, strict=True):
            by_latents = network.through(gradient)
            if lstm is not None:
                # A copy, for the extension takes arrays without gaps: all rows of a step, then the next step.
                lstm.back(np.array(by_latents.numpy().reshape(rows, steps, -1).swapaxes(0, 1), order="C"))


def _turned(outputs: Array) -> Array:
    """``(steps, rows, n)`` as ``(rows * steps, n)``."""
    return np.array(outputs.swapaxes(0, 1), order="C").reshape(-1, outputs.shape[2])


_PARTS = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")


def lstm_of(flat: FlatParameters, name: str) -> Lstm:
    """The layer of a ``torch.nn.LSTM`` with one layer, all of whose parameters learn.

    Args:
        flat: The parameters.
        name: Of the module.
    """
    values = [flat.value(f"{name}.{part}") for part in _PARTS]
    gradients = [flat.gradient(f"{name}.{part}") for part in _PARTS]
    weights, learned = (LstmWeights(*(one.numpy() for one in parts if one is not None)) for parts in (values, gradients))
    return Lstm(weights, learned)
