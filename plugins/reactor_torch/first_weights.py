"""First weights that depend on no processor: what torch makes of the numbers that it draws is computed here in its place.

Torch's generator gives whole numbers, the same ones everywhere. What becomes of them is a matter of the processor: ``uniform_`` is
a fused multiply-add or none, ``normal_`` has logarithms and cosines of its own for AVX2, and ``linalg.qr``, by which orthogonal
weights are made, is LAPACK's, whose last bits depend on its version, the processor and the number of threads. These three are
replaced, in one thread only, by others with as many draws and the same results but for last bits.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from reactor_rl.plugin import compiled_module

__all__ = ["portable_first_weights"]

Array = npt.NDArray[np.float64]

_extension = compiled_module("reactor_torch._products")
"""Needs no form of it: it is there on processors, too, that have no fused multiply-adds."""

BLOCK = 16
"""Uniform numbers that torch makes into as many normal ones: eight of them say how far, the others in which direction. A number of
torch's own (``normal_fill`` of ATen), which first weights depend on.
"""
_AT_A_TIME = 1 << 10
"""Blocks: what is computed of them, 64 KB in float64 for each half, stays in a near cache."""
_LOG = [1 / (2 * power + 1) for power in range(1, 10)]
_LOG_2 = 0.6931471805599453
"""The natural logarithm of 2, written out: ``math.log`` is the C library's, and this must be the same bits everywhere."""
_COSINE = [(-1) ** power / math.factorial(2 * power) for power in range(1, 9)]
_SINE = [(-1) ** power / math.factorial(2 * power + 1) for power in range(1, 9)]


def portable_first_weights() -> contextlib.AbstractContextManager[object]:
    """Within the block, float32 weights that this thread draws on the CPU have the same bits on any processor, orthogonal ones too.

    Uniform ones have the bits that torch gives on x86-64 with AVX2. Without our extension orthogonal ones remain LAPACK's. What is
    made of fewer than 16 normal numbers remains torch's, which computes these few in double precision.
    """
    return _Portable()  # type: ignore[no-untyped-call]


class _Portable(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Operations, whoever calls them: ``nn.init``, layers, a user's own policy."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch asks. To skip it, it would import the whole compiler, which takes a second."""
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Torch asks. Else ``torch.compile`` would do nothing meanwhile, and after blocks of two threads that overlap not ever."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        ours = _OURS.get(func)
        answer = None if ours is None else ours(*args, **kwargs or {})
        return func(*args, **kwargs or {}) if answer is None else answer


def _plain(tensor: torch.Tensor) -> bool:
    """Whether its numbers lie in memory, as float32: others, and subclasses, remain torch's."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return False
    return tensor.dtype is torch.float32 and tensor.device.type == "cpu" and tensor.layout is torch.strided


def _uniform(tensor: torch.Tensor, low: float = 0.0, high: float = 1.0, *, generator: Any = None) -> torch.Tensor | None:
    """``low + (high - low) u``, rounded once: in double precision the product is exact, as is the sum of numbers of like size."""
    # Well below the largest float32 (3.4e38), beyond which torch refuses.
    if not _plain(tensor) or not 0 < high - low < 1e38:  # torch says what is wrong with others
        return None
    begin, width = float(np.float32(low)), float(np.float32(high) - np.float32(low))
    tensor.uniform_(generator=generator)
    tensor.copy_(tensor.double().mul_(width).add_(begin))
    return tensor


def _normal(tensor: torch.Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> torch.Tensor | None:
    """As torch does, block by block, the last one of which overlaps the one before and is drawn anew."""
    if not _plain(tensor) or not tensor.is_contiguous() or tensor.numel() < BLOCK or not std >= 0:
        return None
    flat = tensor.detach().view(-1)
    tensor.uniform_(generator=generator)
    rest = len(flat) % BLOCK
    numbers = flat.numpy()
    _make_normal(numbers[: len(flat) - rest], mean, std)
    if rest:
        flat[-BLOCK:].uniform_(generator=generator)
        _make_normal(numbers[-BLOCK:], mean, std)
    return tensor


def _make_normal(numbers: npt.NDArray[np.float32], mean: float, std: float) -> None:
    """Make uniform numbers into normal ones (Box, Muller 1958)."""
    blocks = numbers.reshape(-1, 2, BLOCK // 2)
    for begin in range(0, len(blocks), _AT_A_TIME):
        some = blocks[begin : begin + _AT_A_TIME]
        far = np.sqrt(-2.0 * _log(1.0 - some[:, 0].astype(np.float64))) * std
        cosine, sine = _direction(some[:, 1].astype(np.float64))
        some[:, 0], some[:, 1] = far * cosine + mean, far * sine + mean


def _series(x: Array, coefficients: list[float]) -> Array:
    """``c0 x + c1 x^2 + ...``, by products and sums alone: numpy's own functions have other bits on other processors."""
    total = coefficients[-1] * x
    for one in coefficients[-2::-1]:
        total = (total + one) * x
    return total


def _log(x: Array) -> Array:
    """``log(x) = e log 2 + log m``, ``x = m 2^e``, and ``log m = 2 atanh f`` with ``f = (m - 1) / (m + 1)``."""
    half, exponent = np.frexp(x)
    small = half < math.sqrt(0.5)
    mantissa = np.where(small, 2.0 * half, half)
    f = (mantissa - 1.0) / (mantissa + 1.0)
    return (exponent - small) * _LOG_2 + 2.0 * f * (1.0 + _series(f * f, _LOG))


def _direction(turns: Array) -> tuple[Array, Array]:
    """Cosine and sine, of whole turns: of at most an eighth of one by series, which quarters exchange."""
    quarters = np.rint(4.0 * turns)
    angle = (turns - 0.25 * quarters) * (2.0 * math.pi)
    square = angle * angle
    cosine, sine = 1.0 + _series(square, _COSINE), angle * (1.0 + _series(square, _SINE))
    quarter = quarters.astype(np.int64) & 3
    odd = quarter & 1 == 1
    across, along = np.where(odd, sine, cosine), np.where(odd, cosine, sine)
    return np.where((quarter == 1) | (quarter == 2), -across, across), np.where(quarter >= 2, -along, along)


def _decomposed(matrix: torch.Tensor, mode: str = "reduced") -> tuple[torch.Tensor, torch.Tensor] | None:
    if _extension is None or not _plain(matrix) or matrix.dim() != 2 or 0 in matrix.shape or mode == "r":
        return None
    rows, columns = matrix.shape
    wanted = rows if mode == "complete" else min(rows, columns)
    q, upper = matrix.new_empty(rows, wanted), matrix.new_empty(wanted, columns)
    _extension.orthonormal(matrix.detach().contiguous().numpy(), q.numpy(), upper.numpy())
    return q, upper


_OURS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.uniform_.default: _uniform,
    torch.ops.aten.normal_.default: _normal,
    torch.ops.aten.linalg_qr.default: _decomposed,
}
