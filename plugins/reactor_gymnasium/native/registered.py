"""Which kernel is for which class of environments: ours, those of packages, and those of users."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, NamedTuple

from reactor_gymnasium.native.kernel import BlockKernel, found_by_name, name_of
from reactor_gymnasium.native.own import driver_of, incomplete

__all__ = ["KERNELS", "Registered", "kernel_class", "register_kernel", "registered"]

GROUP = "reactor_rl.kernels"
"""The entry points of packages: ``"module:Class"`` of environments is the name, that of the kernel the value."""


class Registered(NamedTuple):
    """A kernel.

    Attributes:
        kernel: Its class, or ``"module:Class"``.
        env: The class that it is for; ``None`` if that is known by its name only.
    """

    kernel: Any
    env: type | None = None

    @property
    def simulated(self) -> bool:
        """Whether it is one of ours that leaves physics to MuJoCo."""
        return isinstance(self.kernel, str) and self.kernel.startswith("reactor_gymnasium.native.mujoco_")


KERNELS: dict[tuple[str, str], Registered] = {}
"""By module and name of an environment's class, its kernel."""


def register_kernel(env: type | str, kernel: type | str) -> None:
    """Let a kernel step the environments of a class, wherever nobody can tell the difference.

    To be called in every process that has such environments: best of all in the module of their class. A package with kernels for
    classes of others names them in the entry-point group ``reactor_rl.kernels``. The last kernel that is registered counts.

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
        KERNELS[name_of(env)] = Registered(kernel, env)
    else:
        module, _, owner = env.partition(":")
        KERNELS[module, owner] = Registered(kernel)


@cache
def _of_packages() -> dict[str, str]:
    """The kernels that installed packages name, by what they are for."""
    return {entry.name: entry.value for entry in entry_points(group=GROUP)}


def registered(kind: type) -> Registered | None:
    """Find what is registered for a class of this name; ``None`` if nothing is."""
    if (found := KERNELS.get(name_of(kind))) is None and (place := _of_packages().get(":".join(name_of(kind)))):
        return Registered(place)
    return found


def kernel_class(kind: type) -> type[BlockKernel] | None:
    """The kernel for environments of a very class; ``None`` if no kernel steps them.

    Raises:
        Exception: If it cannot be imported, or is no kernel.
    """
    found = registered(kind)
    if found is None or not (found.env is kind or (found.env is None and found_by_name(kind))):
        return None
    kernel = found.kernel
    if isinstance(kernel, str):
        module, _, name = kernel.partition(":")
        kernel = getattr(import_module(module), name)
    return kernel if isinstance(kernel, type) and issubclass(kernel, BlockKernel) else driver_of(kernel, kind)


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
        f"mujoco.{file}_{version}:{name}Env": f"mujoco_{version}:{name}"
        for version in ("v5", "v4")
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
