"""Networks of SB3's that torch evaluates for actors, and copies of modules that can travel."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import torch
from gymnasium import spaces
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from reactor_torch import HeldForward, TorchForward, computed_in, torch_state, torch_stream

__all__ = ["copied", "held_forward", "sent"]

M = TypeVar("M", bound=nn.Module)


def held_forward(module: Any, why: str = "") -> HeldForward:
    """A copy of any network or policy of SB3's, without its optimisers.

    Args:
        module: The network.
        why: Why nothing else evaluates it.
    """
    optimizers = {id(part.optimizer): None for part in module.modules() if hasattr(part, "optimizer")}
    return HeldForward(copied(module, optimizers), isinstance(module.observation_space, spaces.Dict), why)


def sent(forward: HeldForward) -> TorchForward:
    """Take the weights from a network that is to be sent to actors.

    Raises:
        ValueError: If it cannot be sent to actors, or be evaluated without autograd, or if it changes buffers where it acts.
    """
    module = forward.module
    for path, part in module.named_modules():
        made_by = "torch.jit" if isinstance(part, torch.jit.ScriptModule) else "torch.nn.utils.parametrize"
        if made_by == "torch.jit" or is_parametrized(part):
            raise ValueError(
                f"{path!r} of {type(module).__name__} is made by {made_by}, and such modules cannot be sent to actors: use a plain "
                "module, and compute what it does in forward()"
            )
    _try_out(module, type(module).__name__)
    return TorchForward(module, forward.keyed, forward.why)


def _try_out(module: Any, name: str) -> None:
    """Have a copy of a network act once, as actors do: with weights and buffers that are not theirs to change."""
    space = copy.deepcopy(module.observation_space)
    space.seed(0)
    seen = space.sample()
    rows = (
        {key: torch.as_tensor(part)[None] for key, part in seen.items()} if isinstance(seen, dict) else torch.as_tensor(seen)[None]
    )
    before = {path: (one, one._version) for path, one in module.named_buffers()}
    methods = ("extract_features",) if hasattr(module, "lstm_actor") else ("_predict", "predict_values")
    if (error := _fails(module, methods, rows, torch.inference_mode)) and not _fails(module, methods, rows, torch.no_grad):
        raise ValueError(
            f"{name} cannot be evaluated as actors do it, in torch.inference_mode() ({error}): let its forward() compute no "
            "gradients, or use SB3's algorithm with ReactorVecEnv"
        ) from error
    for path, one in module.named_buffers():
        if before[path][0] is not one or before[path][1] != one._version:
            raise ValueError(
                f"{name} changes the buffer {path!r} where it acts, and each actor would change one of its own: change it only "
                "where it learns (if self.training: ...), or use SB3's algorithm with ReactorVecEnv"
            )


def _fails(module: Any, methods: tuple[str, ...], rows: Any, mode: Any) -> Exception | None:
    """Call those of the methods that a network has. Return the exception of the first that fails; ``None`` if all work."""
    try:
        with mode(), torch_stream(torch_state(0)):
            for method in methods:
                if hasattr(module, method):
                    getattr(module, method)(rows)
    except Exception as error:
        return error
    return None


def copied(module: M, memo: dict[int, Any]) -> M:
    """A deep copy, without what cannot be copied since it was computed, see :func:`reactor_torch.computed_in`.

    Args:
        module: What is copied.
        memo: What is to be found in the copy, by the ``id`` of what it stands for; see :func:`copy.deepcopy`.
    """
    return copy.deepcopy(module, memo | computed_in(module))
