"""What may learn in slices: modules of which slices of a minibatch make what the whole would, and which of them draw."""

from __future__ import annotations

from torch import nn

__all__ = ["check_sliceable", "draws"]

_CERTAIN = ("linear", "conv", "activation", "container", "flatten", "normalization", "pooling")
"""Torch's families of layers that draw nothing, but for those named next."""
_DRAWING = (nn.RReLU, nn.MultiheadAttention)


def draws(module: nn.Module) -> bool:
    """Whether a module may draw from torch's generator while it learns: whether it has dropout, or parts that nobody knows."""

    def certain(part: nn.Module) -> bool:
        package, _, family = type(part).__module__.rpartition(".")
        torch_s = package == "torch.nn.modules" and family in _CERTAIN and not isinstance(part, _DRAWING)
        return torch_s or type(part).__module__.startswith("stable_baselines3.")

    return not all(map(certain, module.modules()))


def check_sliceable(module: nn.Module) -> None:
    """Refuse what makes slices of a minibatch something else than the minibatch.

    Raises:
        ValueError: If there is batch normalisation.
    """
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            raise ValueError(
                f"n_learners > 1 cuts minibatches into slices, each of which {name!r} ({type(part).__name__}) would normalise by "
                "itself, which is another loss: use LayerNorm or GroupNorm, or n_learners=1"
            )
