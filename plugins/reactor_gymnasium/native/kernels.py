"""Which kernel may step environments of a class in their place, or why none may."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal

import gymnasium
from gymnasium.wrappers import TimeLimit

from reactor_gymnasium.environments.bypass import LEFT_OUT, counts_plainly
from reactor_gymnasium.native.guards import distrusted, switched_off
from reactor_gymnasium.native.kernel import BlockKernel, Taken, error_state, found_by_name, name_of
from reactor_gymnasium.native.recorders import KNOWN, left_out

__all__ = [
    "KERNELS", "KernelKind", "choose_kernel", "forecast", "in_words", "kernel_class", "kernel_kind", "register_kernel",
    "take_over", "within",
]  # fmt: skip

Env = gymnasium.Env[Any, Any]
KernelKind = Literal["compiled", "simulated"]

_CLASSIC = "gymnasium.envs.classic_control."
_TOY_TEXT = "gymnasium.envs.toy_text."
_MUJOCO = {
    "half_cheetah": "HalfCheetah", "hopper": "Hopper", "walker2d": "Walker2d", "swimmer": "Swimmer", "ant": "Ant",
    "humanoid": "Humanoid", "humanoidstandup": "HumanoidStandup", "inverted_pendulum": "InvertedPendulum",
    "inverted_double_pendulum": "InvertedDoublePendulum", "reacher": "Reacher", "pusher": "Pusher",
}  # fmt: skip
KERNELS = {
    (_CLASSIC + "cartpole", "CartPoleEnv"): "classic:CartPole",
    (_CLASSIC + "pendulum", "PendulumEnv"): "classic:Pendulum",
    (_CLASSIC + "mountain_car", "MountainCarEnv"): "classic:MountainCar",
    (_CLASSIC + "continuous_mountain_car", "Continuous_MountainCarEnv"): "classic:MountainCarContinuous",
    (_CLASSIC + "acrobot", "AcrobotEnv"): "classic:Acrobot",
    (_TOY_TEXT + "frozen_lake", "FrozenLakeEnv"): "toy_text:FrozenLake",
    (_TOY_TEXT + "cliffwalking", "CliffWalkingEnv"): "toy_text:CliffWalking",
    (_TOY_TEXT + "taxi", "TaxiEnv"): "toy_text:Taxi",
    (_TOY_TEXT + "blackjack", "BlackjackEnv"): "toy_text:Blackjack",
    **{
        (f"gymnasium.envs.mujoco.{file}_{version}", f"{name}Env"): f"mujoco_{version}:{name}"
        for version in ("v5", "v4")
        for file, name in _MUJOCO.items()
        if (file, version) != ("pusher", "v4")  # which MuJoCo 3 cannot run
    },
}
"""By module and name of an environment's class, where its kernel is."""
_REGISTERED: dict[tuple[str, str], type[BlockKernel] | str] = {}


def register_kernel(env: type, kernel: type[BlockKernel] | str) -> None:
    """Have a kernel step environments of a class.

    Args:
        env: Their class.
        kernel: The kernel's, or ``"module:Class"``.
    """
    _REGISTERED[name_of(env)] = kernel


def kernel_class(kind: type) -> type[BlockKernel] | None:
    """The kernel for environments of a very class; ``None`` if no kernel steps them."""
    if name_of(kind) in _REGISTERED and found_by_name(kind):
        given = _REGISTERED[name_of(kind)]
        if isinstance(given, str):
            file, _, name = given.partition(":")
            given = getattr(import_module(file), name)
        assert isinstance(given, type)
        return given.of(kind)
    place = KERNELS.get(name_of(kind))
    if place is None or not found_by_name(kind):
        return None
    file, _, name = place.partition(":")
    kernel: type[BlockKernel] = getattr(import_module(f"reactor_gymnasium.native.{file}"), name)
    return kernel


def within(env: Env) -> tuple[Env, str | None]:
    """The environment inside of the wrappers that are left out where a kernel steps.

    Returns:
        It, and why an outer wrapper that records episodes is not left out, ``None`` if that is so or there is no such wrapper.
    """
    outermost = left_out(env, over=True)
    if isinstance(outermost, type):
        env = env.env  # type: ignore[attr-defined]
    return _as_made(env), outermost if isinstance(outermost, str) else None


def _as_made(env: Env) -> Env:
    """The environment inside of the wrappers that ``gymnasium.make`` adds."""
    for wrapper in LEFT_OUT:
        if type(env) is wrapper and (type(env) is not TimeLimit or counts_plainly(env)):
            env = env.env  # type: ignore[attr-defined]
    return env


def kernel_kind(env: Env) -> KernelKind | None:
    """Tell which kind of kernel there is for an environment, whether or not it can step it on this machine.

    Returns:
        ``"compiled"`` if C steps it, ``"simulated"`` if MuJoCo and numpy do, ``None`` if there is no kernel. This depends on the
        environment and its wrappers only.
    """
    if name_of(type(env)) in KNOWN:
        env = env.env  # type: ignore[attr-defined]
    place = KERNELS.get(name_of(type(_as_made(env))))
    if place is None:
        return None
    return "simulated" if place.startswith("mujoco") else "compiled"


def forecast(env: Env) -> str:
    """Who will step environments like this one, in words. What they are after some steps, and all of them together, may differ.

    Args:
        env: One of them in all its wrappers, reset or not. Nothing of it changes.
    """
    inner, why = within(env)
    kernel = switched_off() or why or choose_kernel(type(inner))
    if not isinstance(kernel, str):
        kernel = error_state() or kernel.unfit(inner) or kernel.strange_constants(inner) or kernel
    return in_words(kernel)


def in_words(kernel: type[BlockKernel] | BlockKernel | str) -> str:
    """Return the words of ``repr``: which kernel steps environments, or why no kernel does."""
    return f"no kernel: {kernel}" if isinstance(kernel, str) else f"stepped by the {kernel.title} kernel"


def choose_kernel(kind: type) -> type[BlockKernel] | str:
    """The kernel that may step environments of a class, without wrappers, or why none may."""
    if off := switched_off():
        return off
    kernel = kernel_class(kind)
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
