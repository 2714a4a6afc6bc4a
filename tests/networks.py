"""Networks of every kind of layer that is computed without torch's dispatch."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

KINDS = ("linear", "linear without bias", "normalised", "relu", "tanh")


def network_of(kinds: Sequence[str], sizes: Sequence[int], features: int, outputs: int) -> nn.Sequential:
    """Layers of the given kinds, with weights for which order and epsilon matter, and a linear one at the end."""
    found: list[nn.Module] = []
    width = features
    for kind, size in zip(kinds, sizes, strict=True):
        if kind.startswith("linear"):
            found.append(nn.Linear(width, size, bias=kind == "linear"))
            width = size
        elif kind == "normalised":
            normalisation = nn.LayerNorm(width, eps=0.01)
            nn.init.normal_(normalisation.weight)
            nn.init.normal_(normalisation.bias)
            found.append(normalisation)
        else:
            found.append(nn.ReLU() if kind == "relu" else nn.Tanh())
    return nn.Sequential(*found, nn.Linear(width, outputs))
