"""Networks as those who act evaluate them: bound to weights and observations that lie where they are, round by round.

A form of a network is a value without weights, which travels: dense layers, images, LSTMs, or a module of torch for all others. All
choices are made when it is bound. What it gives then are functions of a step that only do what has to be done: a step of a small
network takes less than a microsecond, and a look-up in Python a tenth of that.

Weights are a record of parameters and buffers by name. Observations are ``(steps, rows, *shape)`` by key; an array has the key
``""``. They are written before the step is asked for, and weights before a round begins.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch

from reactor_torch.convolved import ConvolvedForward
from reactor_torch.dense import Layer, bound_layers
from reactor_torch.forward import BoundDense, DenseForward, TorchForward
from reactor_torch.lstm import Lstm, LstmWeights

__all__ = [
    "Answer",
    "AskedNet",
    "BoundNet",
    "Calls",
    "DenseNet",
    "ImageNet",
    "Net",
    "OwnCalls",
    "RecurrentNet",
    "TorchNet",
]

Array = npt.NDArray[Any]
Seen = Mapping[str, Array]
_NONE = np.zeros((0, 0, 0), np.float32)
"""The state of a network that remembers nothing."""


class Net(Protocol):
    """The form of a network: frozen, picklable and light."""

    @property
    def draws(self) -> bool:
        """Whether it may draw from torch's generator: then it is asked within a :func:`~reactor_torch.torch_stream`."""

    @property
    def why_torch(self) -> str | None:
        """Why torch evaluates it; ``None`` if the extension does, wherever there is one."""

    def bind(self, weights: Array, seen: Seen, judges: bool, starts: Array | None = None) -> BoundNet:
        """The network with weights.

        Args:
            weights: A record of parameters.
            seen: Observations.
            judges: Whether the critic's values are wanted.
            starts: Whether an episode begins with a step, ``(steps, rows)``, bool; for a network that remembers.
        """


class BoundNet:
    """A network that reads its weights at the beginning of a round, and observations where they lie.

    Args:
        outputs: From a step to outputs, ``(rows, n)``, float32; valid until the next call.
        argmax: From a step to where they are largest, ``(rows,)``, int64; likewise. By default NumPy's.

    Attributes:
        outputs: As given.
        argmax: Likewise.
        state: What it remembers of each row, ``(parts, rows, hidden)``, float32. The first step reads it, and after the last one it
            is overwritten. Without a memory there are no parts.
        states: The same before each step and after the last one, ``(steps + 1, parts, rows, hidden)``.
    """

    def __init__(self, outputs: Callable[[int], Array], argmax: Callable[[int], Array] | None = None) -> None:
        def found(step: int) -> Array:  # no method: the views of ports must not wait for the garbage collector
            return outputs(step).argmax(1)  # type: ignore[no-any-return]

        self.outputs, self.argmax = outputs, argmax or found
        self.state = self.states = _NONE

    def begin(self) -> None:
        """Begin a round: weights may be others now."""

    def values(self) -> Array:
        """The critic's values of a round, all of whose steps there have been outputs of, ``(steps, rows)``, float32."""
        raise TypeError("values are wanted of a network that was bound without a critic")

    def value_of(self, seen: Seen, which: Array) -> Array:
        """The critic's values of what is seen after some steps, ``(count,)``, float32.

        Args:
            seen: Observations, ``(count, *shape)`` by key.
            which: After which steps, ``(steps, rows)``, bool.
        """
        raise TypeError("values are wanted of a network that was bound without a critic")


# ---------------------------------------------------------------------- dense layers


@dataclass(frozen=True)
class DenseNet:
    """Dense layers on flat or one-hot observations, or on arrays side by side.

    Attributes:
        body: The actor's layers.
        heads: Two networks on what the body gives, whose outputs lie side by side; one without layers repeats the body's.
        critic: A network of its own on the same observations.
    """

    body: DenseForward
    heads: tuple[tuple[Layer, ...], ...] = ()
    critic: DenseForward | None = None

    draws, why_torch = False, None

    def bind(self, weights: Array, seen: Seen, judges: bool, starts: Array | None = None) -> BoundNet:
        return _BoundDense(self, weights, seen, judges)


class _BoundDense(BoundNet):
    def __init__(self, net: DenseNet, weights: Array, seen: Seen, judges: bool) -> None:
        self.weights, self.critic, self.shape = weights, net.critic if judges else None, next(iter(seen.values())).shape[:2]
        body = net.body.bind(weights, seen)
        run, out = body.run, body.outputs
        self._parts = [body]

        def outputs(step: int) -> Array:
            run(step)
            return out

        if net.heads:
            joint, heads = _side_by_side(net, run, out, weights)
            super().__init__(joint)
            self._parts += heads
        else:
            super().__init__(outputs, body.argmax)
        if self.critic is not None:
            of_round = {key: part.reshape(1, -1, *part.shape[2:]) for key, part in seen.items()}
            self._judge = self.critic.bind(weights, of_round)
            self._parts.append(self._judge)

    def begin(self) -> None:
        for part in self._parts:
            part.begin()

    def values(self) -> Array:
        return super().values() if self.critic is None else self._judge(0).reshape(self.shape)

    def value_of(self, seen: Seen, which: Array) -> Array:
        if self.critic is None:
            return super().value_of(seen, which)
        rows = {key: np.ascontiguousarray(part)[None] for key, part in seen.items()}
        return self.critic.bind(self.weights, rows)(0)[:, 0]


def _side_by_side(
    net: DenseNet, run: Callable[[int], Any], features: Array, weights: Array
) -> tuple[Callable[[int], Array], list[BoundDense]]:
    """The outputs of two heads in one array, and the heads that have layers."""
    rows, width = features.shape
    widths = [head[-1].outputs if head else width for head in net.heads]
    joint = np.empty((rows, sum(widths)), np.float32)
    one, other = joint[:, : widths[0]], joint[:, widths[0] :]
    # A single row of each has no gap: there a head writes where its outputs are wanted.
    place = (one, other) if rows == 1 else (None, None)
    bound = [
        DenseForward(head, width, one_hot=False).bind(weights, {"": features[None]}, into) if head else None
        for head, into in zip(net.heads, place, strict=True)
    ]
    first, second = bound
    assert first is not None
    run_first, of_first = first.run, first.outputs
    if second is None:

        def with_features(step: int) -> Array:
            run(step)
            run_first(0)
            one[...], other[...] = of_first, features
            return joint

        return with_features, [first]
    run_second, of_second = second.run, second.outputs
    if rows == 1:

        def in_place(step: int) -> Array:
            run(step)
            run_first(0)
            run_second(0)
            return joint

        return in_place, [first, second]

    def copied(step: int) -> Array:
        run(step)
        run_first(0)
        run_second(0)
        one[...], other[...] = of_first, of_second
        return joint

    return copied, [first, second]


# ---------------------------------------------------------------------- images


@dataclass(frozen=True)
class ImageNet:
    """Convolutions and dense layers behind them, where there is the extension.

    Attributes:
        features: What actor and critic have in common.
        actor: The actor's layers behind it.
        critic: The critic's; ``()`` if there is no critic.
    """

    features: ConvolvedForward
    actor: tuple[Layer, ...] = ()
    critic: tuple[Layer, ...] = ()

    draws, why_torch = False, None

    def bind(self, weights: Array, seen: Seen, judges: bool, starts: Array | None = None) -> BoundNet:
        return _BoundImages(self, weights, seen[""], judges)


class _BoundImages(BoundNet):
    def __init__(self, net: ImageNet, weights: Array, images: Array, judges: bool) -> None:
        steps, rows = images.shape[:2]
        self.some = some = np.zeros_like(images[0])  # it lies in memory as images do
        self.features = see = net.features.with_weights(weights, some)
        act = bound_layers(net.actor, weights, rows) if net.actor else None
        self.judge = judge = bound_layers(net.critic, weights, rows) if judges and net.critic else None
        self.judged = judged = np.empty((steps, rows), np.float32)

        def outputs(step: int) -> Array:
            features = see(images[step])
            if judge is not None:
                judged[step] = judge(features)[:, 0]
            return features if act is None else act(features)

        super().__init__(outputs)

    def values(self) -> Array:
        return super().values() if self.judge is None else self.judged

    def value_of(self, seen: Seen, which: Array) -> Array:
        if self.judge is None:
            return super().value_of(seen, which)
        images, some = seen[""], self.some
        values = np.empty(len(images), np.float32)
        for begin in range(0, len(images), len(some)):  # as many as a step has: the extension has memory for those
            count = len(images[begin : begin + len(some)])
            some[:count] = images[begin : begin + count]
            values[begin : begin + count] = self.judge(self.features(some))[:count, 0]
        return values


# ---------------------------------------------------------------------- LSTMs

_PARTS = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")


@dataclass(frozen=True)
class RecurrentNet:
    """An LSTM of one layer, and dense layers behind it, where there is the extension; the critic has its own, or none.

    Attributes:
        actor: Layers behind the actor's LSTM.
        critic: Layers behind the critic's, or on observations if it has none.
        lstms: Names of the LSTMs.
    """

    actor: DenseForward
    critic: DenseForward
    lstms: tuple[str, ...]

    draws, why_torch = False, None

    @property
    def parts(self) -> int:
        """See :class:`AskedNet`."""
        return 4

    @property
    def hidden(self) -> int:
        """Numbers of a part of a row's state."""
        return self.actor.features

    def bind(self, weights: Array, seen: Seen, judges: bool, starts: Array | None = None) -> BoundNet:
        assert starts is not None
        return _BoundRecurrent(self, weights, seen, starts, judges)


class _BoundRecurrent(BoundNet):
    """States are (hidden, cell) of the actor, then of the critic, whose LSTM is evaluated for all steps at once."""

    def __init__(self, net: RecurrentNet, weights: Array, seen: Seen, began: Array, judges: bool) -> None:
        steps, rows = began.shape
        observed = seen[""].reshape(steps, rows, -1)
        lstms = [Lstm(LstmWeights(*(weights[f"{name}.{part}"] for part in _PARTS))) for name in net.lstms]
        self.weights, self.critic, self.lstm = weights, net.critic, lstms[0]
        self.of_critic = lstms[1] if len(lstms) > 1 and judges else None
        self.inputs = inputs = np.zeros(observed.shape, np.float32)
        self.starts = starts = np.zeros((steps, rows), np.float32)
        states = np.zeros((steps + 1, 4, rows, net.hidden), np.float32)
        state = np.zeros(states.shape[1:], np.float32)
        latents = np.zeros((1, rows, net.hidden), np.float32)
        bound = net.actor.bind(weights, {"": latents})
        run, out, memory, last = bound.run, bound.outputs, lstms[0].run, steps - 1
        self.behind = bound

        def outputs(step: int) -> Array:
            if step == 0:
                states[0] = state
            inputs[step], starts[step] = observed[step], began[step]
            h, c = memory(inputs[step : step + 1], starts[step : step + 1], states[step, 0], states[step, 1])
            states[step + 1, 0], states[step + 1, 1] = h[0], c[0]
            latents[0] = h[0]
            run(0)
            if step == last:
                state[:2] = states[-1, :2]
            return out

        super().__init__(outputs)
        self.state, self.states = state, states
        self.begin()

    def begin(self) -> None:
        self.lstm.take_weights()
        self.behind.begin()
        if self.of_critic is not None:
            self.of_critic.take_weights()

    def values(self) -> Array:
        states, latents = self.states, self.inputs
        if self.of_critic is not None:
            latents, cells = self.of_critic.run(self.inputs, self.starts, states[0, 2], states[0, 3])
            states[1:, 2], states[1:, 3] = latents, cells
        else:  # sb3-contrib repeats the actor's
            states[:, 2:] = states[:, :2]
        self.state[2:] = states[-1, 2:]
        return self._judged(latents).reshape(self.starts.shape)

    def value_of(self, seen: Seen, which: Array) -> Array:
        inputs = np.array(seen[""], np.float32).reshape(1, len(seen[""]), -1)
        if self.of_critic is not None:
            h, c = self.states[1:, 2][which], self.states[1:, 3][which]
            inputs, _ = self.of_critic.run(inputs, np.zeros(inputs.shape[:2], np.float32), h, c)
        return self._judged(inputs)

    def _judged(self, latents: Array) -> Array:
        """The critic's values, ``(rows,)``, of its inputs, ``(..., n)``."""
        return self.critic.bind(self.weights, {"": latents.reshape(1, -1, latents.shape[-1])})(0)[:, 0]


# ---------------------------------------------------------------------- modules of torch


class Calls:
    """How a module of torch is asked for outputs. A library derives its own class, without state: instances travel.

    Attributes:
        judges: Whether there is a critic.
    """

    judges: ClassVar[bool] = False

    def outputs(self, module: Any, seen: Any, judges: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Outputs of the actor, ``(rows, n)``, and values, ``(rows,)``, if they are wanted, of observations."""
        return module(seen).flatten(1), None

    def values(self, module: Any, seen: Any) -> torch.Tensor:
        """Values of observations, ``(rows,)``."""
        raise TypeError(f"{type(module).__name__} has no critic")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))


@dataclass(frozen=True)
class TorchNet:
    """Any module that gives outputs. Actor and critic may have layers in common, so that values come with the outputs.

    Attributes:
        forward: The module, without weights.
        calls: How it is asked.
    """

    forward: TorchForward
    calls: Calls

    @property
    def draws(self) -> bool:
        return self.forward.draws

    @property
    def why_torch(self) -> str:
        """See :class:`Net`."""
        return self.forward.why

    def bind(self, weights: Array, seen: Seen, judges: bool, starts: Array | None = None) -> BoundNet:
        return _BoundTorch(self, weights, seen, judges)


class _BoundTorch(BoundNet):
    def __init__(self, net: TorchNet, weights: Array, seen: Seen, judges: bool) -> None:
        steps, rows = next(iter(seen.values())).shape[:2]
        self.module, self.net, self.judges = net.forward.with_weights(weights), net, judges and net.calls.judges
        self.judged = judged = np.empty((steps, rows), np.float32)
        module, observed, ask = self.module, net.forward.steps(seen), net.calls.outputs

        def outputs(step: int) -> Array:
            with torch.inference_mode():
                found, values = ask(module, observed(step), judges)
                if values is not None:
                    judged[step] = values.cpu().numpy()
                return found.cpu().numpy()

        super().__init__(outputs)

    def values(self) -> Array:
        return self.judged if self.judges else super().values()

    def value_of(self, seen: Seen, which: Array) -> Array:
        with torch.inference_mode():
            return self.net.calls.values(self.module, self.net.forward.copies(seen)).numpy()


# ---------------------------------------------------------------------- modules that draw actions themselves


class Answer(NamedTuple):
    """The answer of a module that draws by itself.

    Attributes:
        actions: ``(rows, *shape)``, raw.
        values: Of the critic, ``(rows,)``, if there is one.
        log_prob: Logarithms of the probabilities of the actions, ``(rows,)``, if it knows them.
        state: What it remembers then, ``(parts, rows, hidden)``, if it remembers anything.
    """

    actions: torch.Tensor
    values: torch.Tensor | None = None
    log_prob: torch.Tensor | None = None
    state: torch.Tensor | None = None


class OwnCalls(Calls, ABC):
    """How a module is asked for actions. ``more`` are named: ``action_masks``, or ``state`` and ``episode_starts``."""

    def redraw(self, module: Any, rows: int) -> None:
        """Draw noise that holds for some steps."""

    @abstractmethod
    def draw(self, module: Any, seen: Any, more: Mapping[str, Any]) -> Answer:
        """Drawn actions."""

    @abstractmethod
    def mode(self, module: Any, seen: Any, more: Mapping[str, Any]) -> Answer:
        """The best actions."""

    def values_after(self, module: Any, seen: Any, state: torch.Tensor) -> torch.Tensor:
        """Values of observations, ``(rows,)``, by what is remembered before them."""
        return self.values(module, seen)


@dataclass(frozen=True)
class AskedNet:
    """A module that draws actions in a way of its own.

    Attributes:
        forward: The module, without weights.
        calls: How it is asked.
        every: Steps between two calls of :meth:`OwnCalls.redraw`; 0 for one a round, -1 if it is never called.
        quiet: Whether nothing else is drawn: then steps need not be intercepted, which takes time.
        parts: Parts of what it remembers of a row; 0 if it remembers nothing.
        hidden: Numbers of each.
    """

    forward: TorchForward
    calls: OwnCalls
    every: int = -1
    quiet: bool = False
    parts: int = 0
    hidden: int = 0

    draws = True

    @property
    def why_torch(self) -> str:
        """See :class:`Net`."""
        return self.forward.why
