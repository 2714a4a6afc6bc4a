"""Which kernel is for which class of environments: ours, those of packages, and those of users."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from reactor_gymnasium.native.kernel import BlockKernel, found_by_name, name_of
from reactor_gymnasium.native.own import incomplete
from reactor_gymnasium.native.row_kernel import driver_of

__all__ = ["KERNELS", "instead", "kernel_class", "register_kernel", "registered"]

GROUP = "reactor_rl.kernels"
"""The entry points of packages: ``"module:Class"`` of environments is the name, that of the kernel the value."""


MARK = "__reactor_kernel__"
"""The attribute of a class that has its kernel: who sends the class to another process by value sends that, too."""

KERNELS: dict[tuple[str, str], type | str] = {}
"""By module and name of an environment's class, its kernel, or where that is."""
instead: dict[tuple[str, str], type[BlockKernel]] = {}
"""Likewise, kernels that come before all others, for the time of a check."""


def register_kernel(env: type | str, kernel: type | str) -> None:
    """Let a kernel step the environments of a class, wherever nobody can tell the difference.

    To be called in every process that has such environments: best of all beside their class, in its module, script or notebook. A
    package with kernels for classes of others names them in the entry-point group ``reactor_rl.kernels``. The last kernel that is
    registered counts, and one for the class itself before one for its name.

    Args:
        env: The class, or ``"module:Class"``.
        kernel: A class like :class:`~reactor_gymnasium.Kernel`, or derived from :class:`~reactor_gymnasium.CRows`; or
            ``"module:Class"``, to be imported where such an environment is.

    Raises:
        TypeError: If one of them is something else.
    """
    for name, value in (("env", env), ("kernel", kernel)):
        if not isinstance(value, type) and not (isinstance(value, str) and all(value.partition(":"))):
            raise TypeError(f"{name} must be a class or 'module:Class', got {value!r}")
    if isinstance(kernel, type) and not issubclass(kernel, BlockKernel) and (why := incomplete(kernel)):
        raise TypeError(why)
    if isinstance(env, type):
        setattr(env, MARK, kernel)
    else:
        module, _, owner = env.partition(":")
        KERNELS[module, owner] = kernel


@cache
def _of_packages() -> dict[str, str]:
    """The kernels that installed packages name, by what they are for."""
    return {entry.name: entry.value for entry in entry_points(group=GROUP)}


def registered(kind: type) -> Any:
    """Find the kernel of a very class, or where that is; ``None`` if there is no kernel."""
    name = name_of(kind)
    if found := instead.get(name) or vars(kind).get(MARK):
        return found
    return (KERNELS.get(name) or _of_packages().get(":".join(name))) if found_by_name(kind) else None


def kernel_class(kind: type) -> type[BlockKernel] | None:
    """The kernel for environments of a very class; ``None`` if no kernel steps them.

    Raises:
        Exception: If it cannot be imported, or is no kernel.
    """
    kernel = registered(kind)
    if isinstance(kernel, str):
        module, _, name = kernel.partition(":")
        kernel = getattr(import_module(module), name)
    if kernel is None:
        return None
    return kernel.of(kind) if isinstance(kernel, type) and issubclass(kernel, BlockKernel) else driver_of(kernel, kind)


_OURS = {
    "classic_control.cartpole:CartPoleEnv": "classic:CartPole",
    "classic_control.pendulum:PendulumEnv": "classic:Pendulum",
    "classic_control.mountain_car:MountainCarEnv": "classic:MountainCar",
    "classic_control.continuous_mountain_car:Continuous_MountainCarEnv": "classic:MountainCarContinuous",
    "classic_control.acrobot:AcrobotEnv": "classic:Acrobot",
    "toy_text.frozen_lake:FrozenLakeEnv": "toy_text:FrozenLake",
    "toy_text.cliffwalking:CliffWalkingEnv": "toy_text:CliffWalking",
    "toy_text.taxi:TaxiEnv": "toy_text:Taxi",
    "toy_text.blackjack:BlackjackEnv": "toy_text:Blackjack",
    **{
        f"mujoco.{file}_{version}:{name}Env": f"mujoco_{version}:{name}{suffix}"
        for version, suffix in (("v5", ""), ("v4", "V4"))
        for file, name in {
            "half_cheetah": "HalfCheetah", "hopper": "Hopper", "walker2d": "Walker2d", "swimmer": "Swimmer", "ant": "Ant",
            "humanoid": "Humanoid", "humanoidstandup": "HumanoidStandup", "inverted_pendulum": "InvertedPendulum",
            "inverted_double_pendulum": "InvertedDoublePendulum", "reacher": "Reacher", "pusher": "Pusher",
        }.items()
        if (file, version) != ("pusher", "v4")  # which MuJoCo 3 cannot run
    },
}  # fmt: skip
for _env, _kernel in _OURS.items():
    register_kernel(f"gymnasium.envs.{_env}", f"reactor_gymnasium.native.{_kernel}")
