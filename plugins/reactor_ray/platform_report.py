"""Whether the machines of a run compute alike: other processors and versions may give other bits."""

from __future__ import annotations

import platform
import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from threadpoolctl import threadpool_info

__all__ = ["PACKAGES", "platform_report", "loaded_packages", "warn_of_differences"]

PACKAGES = {
    "reactor_rl": "reactor-rl",
    "numpy": "numpy",
    "torch": "torch",
    "gymnasium": "gymnasium",
    "ale_py": "ale-py",
    "mujoco": "mujoco",
    "stable_baselines3": "stable-baselines3",
    "pettingzoo": "pettingzoo",
}
"""Modules that results depend on besides the user's own code, and the distributions that have them."""


def loaded_packages() -> tuple[str, ...]:
    """Those of them that this process uses."""
    return tuple(name for name in PACKAGES if name in sys.modules)


def platform_report(packages: Sequence[str]) -> dict[str, str]:
    """List what the results of this machine depend on, by name: its processor, what numeric libraries make of it, and versions.

    Args:
        packages: Names of modules whose versions count; they are not imported.
    """
    found = {"processor": _processor(), "Python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}"}
    kernels = {str(one.get("architecture")) for one in threadpool_info() if "numpy" in str(one.get("filepath"))}  # not of others
    found["BLAS kernels"] = ", ".join(sorted(kernels))
    for name in packages:
        try:
            found[name] = version(PACKAGES[name])
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def warn_of_differences(home: Mapping[str, str], others: Mapping[str, Mapping[str, str]]) -> None:
    """Warn of nodes on which something is not as it is here: bits may differ from those of a run on one machine.

    Args:
        home: What is here.
        others: What is on each node, by its name.
    """
    told = []
    for name, found in others.items():
        differing = [f"{what} {found.get(what)} (here {here})" for what, here in home.items() if found.get(what) != here]
        if differing:
            told.append(f"{name} has {', '.join(differing)}")
    if told:
        warnings.warn(
            f"not all nodes compute alike: {'; '.join(told)}. The run repeats itself on these nodes, but its bits may not be "
            "those of a run elsewhere",
            RuntimeWarning,
            stacklevel=2,
        )
