"""How many operations a second do the three products of a dense layer have, beside MKL, OpenBLAS and oneDNN?

Shapes are rows x inputs x outputs, of layers that policies of SB3 and RL Zoo have; seconds are the thread's own. One layer stays in
the nearest caches; with eight in turn, what each needs has to come from further away, as within an update. Ours and oneDNN's
forward products have bias and ReLU, and ours of the gradients of weights the bias's sums; torch's (MKL in wheels for x86) and
numpy's (OpenBLAS) are the product alone. oneDNN is given transposed copies that were made before.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from common import Contender, arguments, compared, run_cases, write_json
from showing import bar_plot, print_table

from reactor_rl.plugin import aligned_zeros

OURS, TORCH, NUMPY, ONEDNN = "reactor_rl", "torch.mm", "numpy.dot", "oneDNN"
SHAPES = (
    "64 x 4 x 64", "64 x 64 x 64", "64 x 64 x 2", "256 x 17 x 256", "256 x 256 x 256", "256 x 256 x 6", "256 x 400 x 300",
    "1024 x 256 x 256", "256 x 1024 x 1024",
    "256 x 256 x 256, 8 layers", "1024 x 256 x 256, 8 layers", "256 x 1024 x 1024, 8 layers",
)  # fmt: skip
PANELS = ("64 x 64 x 64", "256 x 17 x 256", "256 x 256 x 256", "256 x 256 x 6", "256 x 400 x 300", "1024 x 256 x 256")
PRODUCTS = ("forward", "by inputs", "by weights")


def _factors(product: str, x: Any, w: Any, g: Any) -> tuple[Any, Any]:
    return {"forward": (x, w.T), "by inputs": (g, w), "by weights": (g.T, x)}[product]


def _numpy(product: str, x: Any, w: Any, b: Any, g: Any, out: Any) -> Callable[[], Any]:
    return partial(np.dot, *_factors(product, x, w, g), out)


def _torch(product: str, x: Any, w: Any, b: Any, g: Any, out: Any) -> Callable[[], Any]:
    import torch

    return partial(torch.mm, *map(torch.from_numpy, _factors(product, x, w, g)), out=torch.from_numpy(out))


def _ours(product: str, x: Any, w: Any, b: Any, g: Any, out: Any) -> Callable[[], Any]:
    from reactor_torch import kernels

    if kernels.compiled is None:
        raise NotImplementedError("the extension is not compiled here")
    learns = product == "by weights"
    given = out if product == "forward" else aligned_zeros(g.shape, np.float32)
    by_weights = (out, np.zeros_like(b)) if learns else (None, None)
    layer = ("linear", 1 if product == "forward" else 0, x.shape[1], w.shape[0], 0.0, w, b, *by_weights, given, None)
    network = kernels.compiled.Network(len(x), (layer,))
    network.run(x)
    if product == "forward":
        return partial(network.run, x)
    return partial(network.back, g) if learns else partial(network.slopes, g, None, 0, out)


def _onednn(product: str, x: Any, w: Any, b: Any, g: Any, out: Any) -> Callable[[], Any]:
    import torch

    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        raise NotImplementedError("torch has no oneDNN here")
    x, w, b, g = (torch.from_numpy(one) for one in (x, w, b, g))
    given = {
        "forward": (x, w, b, "relu"),
        "by inputs": (g, w.t().contiguous(), None, "none"),
        "by weights": (g.t().contiguous(), x.t().contiguous(), None, "none"),
    }[product]
    return partial(torch.ops.mkldnn._linear_pointwise, *given, [], "")


class Product(Contender):
    """One product of some layers in turn."""

    def __init__(self, who: str, product: str, shape: str) -> None:
        size, _, layers = shape.partition(", ")
        rows, inputs, outputs = (int(one) for one in size.split(" x "))
        made = {OURS: _ours, TORCH: _torch, NUMPY: _numpy, ONEDNN: _onednn}[who]
        rng = np.random.default_rng(0)
        self.flops, self.calls = 2.0 * rows * inputs * outputs, []
        for _ in range(int(layers.split()[0]) if layers else 1):
            sizes = (rows, inputs), (outputs, inputs), (outputs,), (rows, outputs)
            x, w, b, g = (aligned_zeros(one, np.float32) for one in sizes)
            for one in (x, w, b, g):  # aligned, as tensors are: numpy's arrays begin in the middle of a vector
                one[...] = rng.standard_normal(one.shape)
            out = aligned_zeros({"forward": g.shape, "by inputs": x.shape, "by weights": w.shape}[product], np.float32)
            self.calls.append(made(product, x, w, b, g, out))

    def go(self, count: int) -> float:
        for _ in range(count):
            for call in self.calls:
                call()
        return count * len(self.calls) * self.flops

    def timed(self, count: int) -> tuple[float, float]:
        """As whoever has a core to itself would see it."""
        begin = time.thread_time()
        return self.go(count), time.thread_time() - begin


def measure(shape: str, options: argparse.Namespace) -> dict[str, Any]:
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    with threadpool_limits(1), torch.inference_mode():
        for product in PRODUCTS:
            makers = {who: partial(Product, who, product, shape) for who in (OURS, TORCH, NUMPY, ONEDNN)}
            found[product] = compared(makers, options, seconds=0.02, warm_up=0.01).as_json(OURS)
    return found


def show(shape: str, found: dict[str, Any]) -> None:
    rows = [[product, *(f"{rate['max'] / 1e9:.1f}" for rate in found[product]["rates"].values())] for product in found]
    print_table(shape, ["GFLOP/s", *found["forward"]["rates"]], rows)


def main() -> None:
    options = arguments(__doc__).parse_args()
    cases = run_cases(__file__, options, list(SHAPES), measure, show=show)
    if cases is None:
        return
    write_json(options, "products", cases)
    groups = {
        shape: {who: rate["median"] / 1e9 for who, rate in cases[shape]["forward"]["rates"].items()}
        for shape in PANELS
        if "forward" in cases.get(shape, {})
    }
    bar_plot(options.output / "products.png", "Forward products", groups, "GFLOP/s of one core")


if __name__ == "__main__":
    main()
