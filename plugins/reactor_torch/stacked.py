"""Networks of equal architecture, evaluated together.

Ten networks of 50-64-5 one by one spend nearly all their time in the dispatch of torch calls. Here they are one call of a compiled
extension; where it could not be built torch evaluates them, one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reactor_rl.plugin import aligned_zeros
from reactor_torch import kernels
from reactor_torch.dense import acting_network
from reactor_torch.forward import DenseForward

__all__ = ["Stacked"]

Array = npt.NDArray[Any]


class Stacked:
    """Several networks of equal architecture, of flat observations.

    Args:
        network: Their layers.
        weights: Of each a record of parameters.
        rows: How many observations each network is asked about at once.

    Attributes:
        inputs: What they are asked about, ``(networks, rows, inputs)``, float32; to be filled before they are called.
        scores: Score of each action, ``(networks, rows, actions)``, float32.
        best: The action with the highest score, ``(networks, rows)``, int64.
    """

    def __init__(self, network: DenseForward, weights: Sequence[Array], rows: int) -> None:
        layers, count = network.layers, len(weights)
        self.inputs: Array = aligned_zeros((count, rows, network.features), np.float32)
        self.scores: Array = np.zeros((count, rows, layers[-1].outputs), np.float32)
        self.best: Array = np.zeros((count, rows), np.int64)
        if kernels.compiled is None:
            self._bound = [
                network.bind(one, {"": inputs[None]}, scores)
                for one, inputs, scores in zip(weights, self.inputs, self.scores, strict=True)
            ]
            return
        self._networks = tuple(
            acting_network(layers, one, rows, scores)[0] for one, scores in zip(weights, self.scores, strict=True)
        )
        for taken, inputs, best in zip(self._networks, self.inputs, self.best, strict=True):
            taken.observe(inputs[None], False, best)
        self._evaluate = kernels.compiled.Network.greedy_of_all

    def __call__(self) -> None:
        """Evaluate them all."""
        if kernels.compiled is not None:
            self._evaluate(self._networks, 0)
            return
        for bound in self._bound:
            bound.run(0)
        self.scores.argmax(2, out=self.best)
