"""How long do convolutions take that a policy of images has, beside oneDNN's in torch?

The layers of SB3's ``NatureCNN`` (Mnih et al., 2015) by themselves and together: forwards with bias and ReLU, as an actor needs it,
and forwards and backwards, as a learner does. Images are 84 x 84 x 4; seconds are the thread's own. torch is given images in both
orders of memory; ours are float32 in its own order, or bytes as an environment of Atari gives them, which others have to convert.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from typing import Any

from common import Contender, arguments, compared, run_cases, write_json
from showing import bar_plot, print_table

OURS, LAST, FIRST = "reactor_rl", "torch, channels last", "torch, channels first"
LAYERS: dict[str, tuple[int, int, int, int, int]] = {
    "8x8, stride 4, 4 to 32": (4, 32, 8, 4, 84), "4x4, stride 2, 32 to 64": (32, 64, 4, 2, 20), "3x3, 64 to 64": (64, 64, 3, 1, 9),
}  # fmt: skip
"""Channels of inputs and outputs, kernel, stride, and height and width of the images."""
BYTES = "bytes to features"
CASES = [f"{layer}, {images} images" for images in (256, 2) for layer in (*LAYERS, "all three", BYTES)]


class Convolves(Contender):
    """One pass, again and again."""

    def __init__(self, who: str, case: str, learns: bool) -> None:
        import torch
        from torch import nn

        from reactor_torch import kernels
        from reactor_torch.images import Images
        from reactor_torch.layers import CompiledLayers

        if who == OURS and kernels.compiled is None:
            raise NotImplementedError("the extension is not compiled here")
        name, _, images = case.rpartition(", ")
        layers = list(LAYERS.values()) if name not in LAYERS else [LAYERS[name]]
        modules = [
            part for inputs, outputs, size, stride, _ in layers for part in (nn.Conv2d(inputs, outputs, size, stride), nn.ReLU())
        ]
        self.module, rows = nn.Sequential(*modules), int(images.split()[0])
        self.rows, self.learns, self.bytes = rows, learns, name == BYTES
        channels, side = layers[0][0], layers[0][4]
        order = torch.contiguous_format if who == FIRST else torch.channels_last
        if who != OURS:
            self.module.to(memory_format=order)
        if self.bytes:
            given = torch.randint(0, 256, (rows, channels, side, side), dtype=torch.uint8)
            self.inputs: Any = Images.of(given) if who == OURS else given
            self.order = None if who == OURS else order
        else:
            self.inputs = torch.randn(rows, channels, side, side).contiguous(memory_format=order)
            self.inputs.requires_grad_(learns and name in list(LAYERS)[1:])
        for parameter in self.module.parameters():
            parameter.grad = torch.zeros_like(parameter)
        if who == OURS:
            CompiledLayers(self.module, dict(self.module.named_parameters()).get, kernels.compiled).enter()
        self.gradient = torch.ones_like(self.module(self.seen()))

    def seen(self) -> Any:
        if not self.bytes:
            return self.inputs
        given = self.inputs if self.order is None else self.inputs.contiguous(memory_format=self.order)
        return given.float() / 255.0

    def go(self, count: int) -> float:
        import torch

        for _ in range(count):
            if self.learns:
                self.module(self.seen()).backward(self.gradient)
            else:
                with torch.inference_mode():
                    self.module(self.seen())
        return float(count)

    def timed(self, count: int) -> tuple[float, float]:
        """As whoever has a core to itself would see it."""
        begin = time.thread_time()
        return self.go(count), time.thread_time() - begin


def measure(case: str, options: argparse.Namespace) -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    for learns in (False, True) if int(case.rpartition(", ")[2].split()[0]) > 16 else (False,):
        makers = {who: partial(Convolves, who, case, learns) for who in (OURS, LAST, FIRST)}
        found["forwards and backwards" if learns else "forwards"] = compared(makers, options, seconds=0.2).as_json(OURS)
    return found


def show(case: str, found: dict[str, Any]) -> None:
    rows = [[what, *(f"{1e3 / rate['max']:.2f}" for rate in found[what]["rates"].values())] for what in found]
    print_table(case, ["ms", *found["forwards"]["rates"]], rows)


def main() -> None:
    options = arguments(__doc__).parse_args()
    cases = run_cases(__file__, options, CASES, measure, show=show)
    if cases is None:
        return
    write_json(options, "convolutions", cases)
    groups = {
        f"{case}, {what}": {who: rate["median"] for who, rate in found[what]["rates"].items()}
        for case, found in cases.items()
        if case.startswith((BYTES, "all"))
        for what in found
        if what != "error"
    }
    bar_plot(options.output / "convolutions.png", "Convolutions of NatureCNN", groups, "passes a second, one core")


if __name__ == "__main__":
    main()
