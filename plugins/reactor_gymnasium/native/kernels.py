"""Which kernel may step environments of a class in their place, or why none may."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium
from gymnasium.wrappers import TimeLimit

from reactor_gymnasium.environments.bypass import counts_plainly
from reactor_gymnasium.native.guards import PASSING, distrusted, switched_off
from reactor_gymnasium.native.kernel import BlockKernel, Taken, error_state
from reactor_gymnasium.native.levels import form_of, known_by_name
from reactor_gymnasium.native.registered import kernel_class, registered

__all__ = ["KernelKind", "choose_kernel", "forecast", "in_words", "kernel_kind", "take_over", "within"]

Env = gymnasium.Env[Any, Any]
KernelKind = Literal["compiled", "simulated"]


def within(env: Env) -> tuple[Env, str | None]:
    """The environment inside of the wrappers that are left out where a kernel steps, or whose work forms do.

    Returns:
        It, and ``None``; or the first wrapper that is not left out, and why it is not.
    """
    while isinstance(env, gymnasium.Wrapper):
        if type(env) not in PASSING:
            found = form_of(env, over=True)
            if isinstance(found, str):
                return env, found
        elif type(env) is TimeLimit and not counts_plainly(env):
            return env, f"its time limit is {env._max_episode_steps!r}"
        env = env.env
    return env, None


def kernel_kind(env: Env) -> KernelKind | None:
    """Tell which kind of kernel there is for an environment, whether or not it can step it on this machine.

    Returns:
        ``"compiled"`` if C steps it, or a user's kernel, ``"simulated"`` if MuJoCo and numpy do, ``None`` if there is no kernel.
        This depends on the environment and its wrappers only.
    """
    while isinstance(env, gymnasium.Wrapper) and known_by_name(env):
        env = env.env
    if registered(type(env)) is None:
        return None
    of_mujoco = any(base.__module__.startswith("gymnasium.envs.mujoco.") for base in type(env).__mro__)
    return "simulated" if of_mujoco else "compiled"


def forecast(env: Env) -> str:
    """Who will step environments like this one, in words. What they are after some steps, and all of them together, may differ.

    Args:
        env: One of them in all its wrappers, reset or not. Nothing of it changes.
    """
    inner, why = within(env)
    if why and isinstance(unused := choose_kernel(type(env.unwrapped)), type):
        why += f": the {unused.title} kernel inside of it is not used"
    kernel = switched_off() or why or choose_kernel(type(inner))
    if not isinstance(kernel, str):
        kernel = error_state() or kernel.unfit(inner) or kernel.strange_constants(inner) or kernel
    return in_words(kernel)


def in_words(kernel: type[BlockKernel] | BlockKernel | str) -> str:
    """Return the words of ``repr``: which kernel steps environments, or why no kernel does."""
    return f"no kernel: {kernel}" if isinstance(kernel, str) else f"stepped by the {kernel.title} kernel{kernel.remark()}"


def choose_kernel(kind: type) -> type[BlockKernel] | str:
    """The kernel that may step environments of a class, without wrappers, or why none may."""
    if off := switched_off():
        return off
    try:
        kernel = kernel_class(kind)
    except Exception as error:
        return f"it cannot be imported: {error!r}"
    if kernel is None:
        return f"none steps {kind.__name__}"
    return distrusted(kernel) or kernel


def take_over(taken: Taken, tried: bool = False) -> BlockKernel | str:
    """Let a kernel take environments over.

    Args:
        taken: All of a block; nobody else refers to one.
        tried: Whether they are thrown away, so that it is of no account who else refers to parts of them.

    Returns:
        The kernel, or why none may: then they stay as they are.
    """
    envs, kind = taken.envs, type(taken.envs[0])
    kernel = choose_kernel(kind)
    if isinstance(kernel, str):
        return kernel
    if any(observation is None for observation in taken.observations):
        return "they were not reset yet"
    if why := error_state():
        return why
    for env in envs:
        if type(env) is not kind:
            return "they are of several classes"
        if why := kernel.misfit(env):
            return why
        if not tried and (why := kernel.shared(env)):
            return why
    if why := kernel.strange_constants(envs[0]):
        return why
    first = kernel.constants(envs[0])
    for env in envs[1:]:
        if kernel.constants(env) != first:
            return "their constants differ"
    try:
        return kernel(taken)
    except Exception as error:  # they are as they were: Python knows what to make of them
        return f"it cannot take them over: {error!r}"
