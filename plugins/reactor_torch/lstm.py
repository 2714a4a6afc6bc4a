"""A layer of LSTM cells over sequences, by the extension: through torch a step of a few rows is nearly all dispatch."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reactor_rl.plugin import aligned_zeros
from reactor_torch import kernels
from reactor_torch.kept import keep

__all__ = ["Lstm", "LstmWeights"]

Array = npt.NDArray[Any]
WIDEST = 32
"""Numbers of the widest panel that the extension lays out, ``WIDEST`` in ``_c/numbers.h``: memory for panels is taken for any of
its forms.
"""


class LstmWeights(NamedTuple):
    """Parameters of a layer as torch's ``LSTM`` has them, float32, or their gradients.

    Attributes:
        inputs: ``(4 * hidden, features)``.
        recurrent: ``(4 * hidden, hidden)``.
        input_bias: ``(4 * hidden,)``.
        recurrent_bias: ``(4 * hidden,)``.
    """

    inputs: Array
    recurrent: Array
    input_bias: Array
    recurrent_bias: Array


class Lstm:
    """LSTM cells (Hochreiter, Schmidhuber 1997) with torch's gates.

    A row's numbers are those that it has alone, whatever other rows there are.

    Args:
        weights: Parameters, views of where they lie.
        gradients: Where their gradients go, if they learn.
    """

    def __init__(self, weights: LstmWeights, gradients: LstmWeights | None = None) -> None:
        self.kernels, self.weights, self.gradients = kernels.compiled, weights, gradients
        wide, self.features = weights.inputs.shape
        self.hidden = wide // 4
        self.panels = aligned_zeros((self.hidden * _whole(wide),), np.float32)
        self.panels_back = aligned_zeros((wide * _whole(self.hidden),), np.float32)
        self.bias = np.zeros(wide, np.float32)
        self._of_shapes: dict[tuple[int, int], _Buffers] = {}
        self._last: tuple[tuple[int, ...], Array, Array, _Buffers] | None = None

    def take_weights(self) -> None:
        """Look at the weights: what follows is computed from those that there are now."""
        recurrent = np.ascontiguousarray(self.weights.recurrent)
        self.kernels.pack_panels(self.hidden, 4 * self.hidden, recurrent, True, self.panels)
        if self.gradients is not None:
            self.kernels.pack_panels(4 * self.hidden, self.hidden, recurrent, False, self.panels_back)
        # Torch keeps two biases for cuDNN's sake; only their sum enters the gates.
        np.add(self.weights.input_bias, self.weights.recurrent_bias, out=self.bias)

    def run(self, inputs: Array, starts: Array, h: Array, c: Array) -> tuple[Array, Array]:
        """Go through sequences.

        Args:
            inputs: ``(steps, rows, features)``, float32 and without gaps, as everything else.
            starts: Whether an episode starts with a step, before which there is nothing: ``(steps, rows)``.
            h: Hidden states before the first step, ``(rows, hidden)``.
            c: Cell states before it.

        Returns:
            Hidden and cell states after each step, ``(steps, rows, hidden)``; valid until the next call with as many.
        """
        steps, rows = starts.shape
        buffers = self._of_shapes.get((steps, rows))
        if buffers is None:
            buffers = keep(self._of_shapes, (steps, rows), _Buffers(steps, rows, self.hidden))
        shape = steps, rows, self.features, self.hidden
        self.kernels.lstm(
            *shape, inputs, starts, h, c, self.weights.inputs, self.bias, self.panels, buffers.gates, buffers.before, buffers.cells,
            buffers.outputs,
        )  # fmt: skip
        self._last = shape, inputs, starts, buffers
        return buffers.outputs, buffers.cells

    def back(self, by_outputs: Array) -> None:
        """Overwrite the gradients, from those of the loss by the hidden states that the last :meth:`run` gave.

        Args:
            by_outputs: ``(steps, rows, hidden)``; overwritten.
        """
        assert self._last is not None and self.gradients is not None, "run first, with gradients"
        shape, inputs, starts, buffers = self._last
        if buffers.slopes is None:
            # As large as the gates, and of no use to an actor that only plays: taken when something is learned.
            buffers.slopes = np.zeros_like(buffers.gates)
        gradients = self.gradients
        self.kernels.lstm_backward(
            *shape, inputs, starts, self.panels_back, buffers.gates, buffers.before, buffers.cells, by_outputs, buffers.slopes,
            gradients.inputs, gradients.recurrent, gradients.input_bias,
        )  # fmt: skip
        # Gates see the sum of both biases, so the gradients by the two are the same.
        gradients.recurrent_bias[...] = gradients.input_bias


class _Buffers:
    """The arrays that so many sequences of so many steps need."""

    def __init__(self, steps: int, rows: int, hidden: int) -> None:
        self.gates = np.zeros((steps, rows, 4 * hidden), np.float32)
        self.before = np.zeros((2, steps, rows, hidden), np.float32)
        self.cells, self.outputs = (np.zeros((steps, rows, hidden), np.float32) for _ in range(2))
        self.slopes: Array | None = None


def _whole(count: int) -> int:
    return -(-count // WIDEST) * WIDEST
