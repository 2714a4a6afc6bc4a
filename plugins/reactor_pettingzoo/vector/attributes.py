"""Methods and attributes of a PettingZoo environment, whichever of its wrappers has them, as Gymnasium's ``get_wrapper_attr``."""

from __future__ import annotations

from typing import Any

from pettingzoo import ParallelEnv

__all__ = ["call", "set_attribute"]


def call(env: ParallelEnv, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a method of an environment, or get an attribute of it.

    Raises:
        AttributeError: If neither it nor what it wraps has one of that name.
    """
    attribute = getattr(_holder(env, name), name)
    return attribute(*args, **kwargs) if callable(attribute) else attribute


def set_attribute(env: ParallelEnv, name: str, value: Any) -> None:
    """Set an attribute where it is, or of the outermost wrapper if nothing has it."""
    setattr(_holder(env, name), name, value)


def _holder(env: Any, name: str) -> Any:
    """The outermost of an environment and those that it wraps that has an attribute itself; the environment if none has.

    Wrappers' ``__getattr__`` is not asked: PettingZoo's pass on reading and not writing, and its conversions neither.
    """
    layer = env
    while layer is not None:
        if name in vars(layer) or hasattr(type(layer), name):
            return layer
        layer = vars(layer).get("env") or vars(layer).get("aec_env")
    return env
