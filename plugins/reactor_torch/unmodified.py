"""Whether a module computes what its class was written to compute: torch's part of the question of ``reactor_rl.plugin.reason``."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.modules import module as of_all_modules

from reactor_rl import plugin

__all__ = ["GLOBAL_HOOKS", "LIBRARIES", "ROOTS", "hook_of", "hooks_of", "reason", "shadows_of"]

LIBRARIES = ("torch", "stable_baselines3", "sb3_contrib", "reactor_sb3")
"""Packages whose networks are known."""
ROOTS = (
    "forward", "forward_actor", "forward_critic", "_predict", "get_distribution", "evaluate_actions", "predict_values",
    "action_log_prob", "q1_forward", "reset_noise",
)  # fmt: skip
"""Methods by which actors, learners and evaluations ask a policy or a network, as far as it has them."""

_HOOKS = ("forward", "forward_pre", "backward", "backward_pre")
GLOBAL_HOOKS = tuple(getattr(of_all_modules, f"_global_{name}_hooks") for name in _HOOKS)
"""Hooks of all modules of the process, of each sort."""


def reason(
    module: nn.Module,
    like: type | None = None,
    roots: tuple[str, ...] = ROOTS,
    named: str = "",
    calls: tuple[str, ...] = (),
) -> str | None:
    """Say why a fast form of methods of a class may not stand in for those of a module; ``None`` if it may.

    Args:
        module: The module.
        like: The class that the fast form is of; ``None`` for its own.
        roots: Names of the methods.
        named: What the module is of something else: ``"features_extractor"``.
        calls: Methods of the module that the fast form calls itself, so that they may do anything.
    """
    if (hook := hook_of(module)) is not None:
        return f"{f'its {named}' if named else f'this {type(module).__name__}'} has a {hook}"
    return plugin.reason(module, like or type(module), roots, named, calls)


def shadows_of(module: nn.Module) -> list[str]:
    """Names of attributes of a module's own that hide methods of its class."""
    kind = type(module)
    return [name for name in vars(module) if callable(getattr(kind, name, None))]


def hook_of(module: nn.Module) -> str | None:
    """Name a sort of hook that runs before or after a module's forward or backward pass; ``None`` if there is no hook."""
    if not any(hooks := (*hooks_of(module), *GLOBAL_HOOKS)):
        return None
    at = next(number for number, some in enumerate(hooks) if some)
    return f"{_HOOKS[at % len(_HOOKS)].replace('_', '-')} hook{' of all modules' if at >= len(_HOOKS) else ''}"


def hooks_of(module: nn.Module) -> tuple[dict[int, Any], ...]:
    """The hooks that run before or after a module's forward or backward pass, of each sort."""
    return module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks
