"""Biases and activations of dense layers, and their derivatives, compiled."""

import numpy as np
import numpy.typing as npt

_Floats = npt.NDArray[np.float32]

AVX2: int
"""Whether this processor has AVX2 and FMA, and the module code for them."""

def activate(kind: int, values: _Floats, bias: _Floats | None, /) -> None:
    """Add a bias to each row of ``values``, ``(rows, columns)``, and apply an activation: 0 none, 1 ReLU, 2 tanh."""

def differentiate(kind: int, values: _Floats, gradient: _Floats, sums: _Floats, /) -> None:
    """Take a gradient back through an activation that gave ``values``, in place; ``sums``, ``(columns,)``, are of its rows."""
