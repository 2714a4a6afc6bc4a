"""The compiled kernel that evaluates small networks."""

from typing import Any

import numpy as np
import numpy.typing as npt

_Floats = npt.NDArray[np.float32]
_Integers = npt.NDArray[np.int64]
_Plain = tuple[str, _Floats | None, _Floats | None, int, float]
_Layer = _Plain | tuple[str, _Floats | None, _Floats | None, int, float, _Floats, _Floats]

AVX2: int
"""Whether this processor has AVX2 and FMA, and the module code for them."""

class Network:
    """Greedy actions of a network for ``observations``, ``(steps, envs, ...)``, float32 or float64, or numbers below ``numbers``.

    A layer is its kind, its weight and its bias or None, its number of outputs, and epsilon for a normalisation; one of batches has
    their mean and variance behind them. What the last one makes of a step is in ``outputs``, ``(envs, actions)``. Arrays are
    C-contiguous, and read again at each call.
    """

    def __new__(
        cls,
        observations: npt.NDArray[Any],
        numbers: int,
        layers: tuple[_Layer, ...],
        outputs: _Floats,
        actions: _Integers,
        avx2: bool = True,
    ) -> Network: ...
    def greedy(self, step: int, /) -> _Integers:
        """The greedy actions for the observations of a step, in ``actions``."""

    @classmethod
    def greedy_of_all(cls, networks: tuple[Network, ...], step: int, /) -> None:
        """Fill in the ``actions`` of each network, for the observations of a step."""
