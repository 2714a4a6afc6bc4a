"""Derivatives of dense layers along a direction in their parameters, by the extension: forwards, beside what the layers give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from reactor_torch import kernels
from reactor_torch.dense import Layer
from reactor_torch.flat import FlatParameters

__all__ = ["Tangents"]

Array = npt.NDArray[Any]


class Tangents:
    """How what dense layers give changes along a direction in their parameters, for one number of rows.

    Args:
        layers: Linear ones, each of which may have ReLU or tanh behind it.
        flat: Their parameters.
        rows: How many rows.
        moves: Whether what the layers are given changes too.
    """

    def __init__(self, layers: Sequence[Layer], flat: FlatParameters, rows: int, moves: bool = False) -> None:
        self.parts: list[_Tangent] = []
        for at, layer in enumerate(layers):
            if layer.kind == "linear":
                behind = layers[at + 1].kind if at + 1 < len(layers) else ""
                self.parts.append(_Tangent(layer, behind, flat, rows, moves or bool(self.parts)))

    @staticmethod
    def know(layers: Sequence[Layer]) -> bool:
        """Whether layers are of these kinds."""
        kinds = [layer.kind for layer in layers]
        pairs = zip(["", *kinds], kinds, strict=False)
        return all(kind == "linear" or (kind in ("relu", "tanh") and before == "linear") for before, kind in pairs)

    def begin(self, observations: torch.Tensor) -> None:
        """Take over the parameters, and what layers give for observations, ``(rows, features)``."""
        seen = observations.numpy()
        for part in self.parts:
            seen = part.begin(seen)

    def along(self, direction: Mapping[str, torch.Tensor], change: Array | None = None) -> Array:
        """The change of what the layers give, ``(rows, outputs)``; valid until the next call.

        Args:
            direction: In the space of the parameters, by name.
            change: Of what they are given, ``(rows, features)``; ``None`` where that stays.
        """
        for part in self.parts:
            change = part.along(direction, change)
        assert change is not None
        return change


class _Tangent:
    """A linear layer and its activation: what it is given changes, and so do its weights; both are one product.

    With ``h`` given, weights ``W`` and bias ``b``, the change is ``dW h + W dh + db``, times the slope of the activation.
    """

    def __init__(self, layer: Layer, behind: str, flat: FlatParameters, rows: int, moves: bool) -> None:
        self.layer, self.behind, self.moves = layer, behind, moves
        weight, bias = (flat.value(f"{layer.name}.{part}") for part in ("weight", "bias"))
        assert weight is not None
        self.weight, wide = weight.numpy(), layer.inputs * (2 if moves else 1)
        # dW and W side by side: dW h + W dh is one product with (h, dh) below each other, instead of two and a sum.
        self.both, self.shift = np.zeros((layer.outputs, wide), np.float32), np.zeros(layer.outputs, np.float32)
        self.given: Array = np.zeros((rows, wide if moves else 0), np.float32)
        self.out, self.change, self.slope = (np.zeros((rows, layer.outputs), np.float32) for _ in range(3))
        self.has_bias = bias is not None
        number = {"relu": 1, "tanh": 2}.get(behind, 0)
        head, own = (layer.inputs, layer.outputs, 0.0, self.weight), None if bias is None else bias.numpy()
        make = kernels.compiled.Network
        self.forward = make(rows, (("linear", number, *head, own, None, None, self.out, None, None),))
        both = "linear", 0, wide, layer.outputs, 0.0, self.both, self.shift, None, None, self.change, None, None
        self.network = make(rows, (both,))

    def begin(self, seen: Array) -> Array:
        inputs = self.layer.inputs
        if self.moves:
            self.given[:, :inputs] = seen
            self.both[:, inputs:] = self.weight
        else:
            self.given = seen
        self.forward.run(seen)
        if self.behind == "tanh":
            # From what tanh gave: its derivative is 1 - tanh^2, so no second tanh is needed.
            np.subtract(1, self.out * self.out, out=self.slope)
        elif self.behind == "relu":
            np.greater(self.out, 0, out=self.slope)
        return self.out

    def along(self, direction: Mapping[str, torch.Tensor], change: Array | None) -> Array:
        inputs, name = self.layer.inputs, self.layer.name
        self.both[:, :inputs] = direction[f"{name}.weight"].numpy()
        if self.has_bias:
            self.shift[...] = direction[f"{name}.bias"].numpy()
        if change is not None:
            self.given[:, inputs:] = change
        self.network.run(self.given)
        if self.behind in ("relu", "tanh"):
            np.multiply(self.change, self.slope, out=self.change)
        return self.change
