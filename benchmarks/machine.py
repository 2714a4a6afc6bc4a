"""The machine that a benchmark runs on: what it is, which versions, and how much of it others take while figures are taken."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from pathlib import Path
from typing import Any

PACKAGES = (
    "reactor-rl", "numpy", "gymnasium", "ale-py", "mujoco", "stable-baselines3", "ray", "envpool", "xronos", "pykka", "torch",
    "pettingzoo", "mpe2", "supersuit", "sb3-contrib", "sbx-rl",
)  # fmt: skip
MUCH = 0.1
"""Others take more than this share of the cores: figures that are taken then are of another machine."""


def cores() -> int:
    """Cores that this process may use: its affinity, less the quota of its control group."""
    from reactor_rl.runtime.limits import usable_cores

    return usable_cores()


def machine() -> dict[str, Any]:
    """The machine, and the versions that were measured."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
    versions: dict[str, str] = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "cores": cores(),
        "cpu": model,
        "memory_gb": round(memory / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": versions,
    }


def load(seconds: float = 1.0) -> dict[str, float | None]:
    """What others do here: the load average of the last minute, and the share of all cores that is taken while this process sleeps.

    Args:
        seconds: How long it sleeps.

    Returns:
        ``average``, in processes; ``taken``, from 0 to 1, with what the hypervisor gives to other machines. None where the system
        does not tell.
    """
    average = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
    before = _times()
    time.sleep(seconds)
    after = _times()
    if before is None or after is None or after[1] <= before[1]:
        return {"average": average, "taken": None}
    return {"average": average, "taken": round((after[0] - before[0]) / (after[1] - before[1]), 3)}


def is_much(found: dict[str, float | None]) -> bool:
    """Whether figures that are taken under such a load are not to be trusted."""
    taken, average = found["taken"], found["average"]
    return taken > MUCH if taken is not None else (average or 0.0) > 0.5


def _times() -> tuple[int, int] | None:
    """Of all cores together, in ticks of the kernel's clock: busy, or stolen by the hypervisor; and altogether."""
    try:
        first = Path("/proc/stat").read_text().splitlines()[0].split()
    except OSError:
        return None
    user, nice, system, idle, waiting, interrupts, soft, stolen = (int(field) for field in first[1:9])
    busy = user + nice + system + interrupts + soft + stolen
    return busy, busy + idle + waiting
