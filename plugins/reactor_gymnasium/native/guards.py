"""Whether a kernel is true here: written from these sources, and equal to what Python does on this machine.

A kernel is used only where each of its sources is known. After a new release of Gymnasium whose file differs, the kernel is
compared with it, the tests of ``tests/gymnasium_plugin/native`` are run with it, and its digest is added to :data:`KNOWN`.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from reactor_gymnasium.environments.owning import same_bits
from reactor_gymnasium.native.kernel import BlockKernel, StandsFor, Taken, as_written, watch_of
from reactor_rl.plugin import global_random_state

__all__ = ["KNOWN", "digest", "distrusted", "sources_of", "switched_off", "unknown_source"]

VARIABLE = "REACTOR_RL_KERNELS"

KNOWN: dict[str, tuple[str, ...]] = {
    "cartpole.py": ("8c034275500ff9c6",),
    "pendulum.py": ("f349a2160b54fce7",),
    "mountain_car.py": ("37ab120a8e931da6",),
    "continuous_mountain_car.py": ("3ad16d3f27bfb867",),
    "acrobot.py": ("4ea2699f41516c61",),
    "utils.py": ("5077e47a6ef0e49a", "3739667fe0ded696"),
    "frozen_lake.py": ("d640d8289c7046eb",),
    "cliffwalking.py": ("24f48ac450a39935",),
    "taxi.py": ("63c51638c652f31b",),
    "blackjack.py": ("8774358584c30a76",),
    "mujoco_env.py": ("77e8205c380d8e0d",),
    "ant_v4.py": ("a27201f0fe071608",),
    "ant_v5.py": ("03be9596a1fbc171",),
    "half_cheetah_v4.py": ("4810409fe42f8d2d",),
    "half_cheetah_v5.py": ("c6520e364985f471",),
    "hopper_v4.py": ("2148f81627c28abf",),
    "hopper_v5.py": ("daa2951970f5f558",),
    "humanoid_v4.py": ("7e309f094c6bfc26",),
    "humanoid_v5.py": ("53792f8fd48efbee",),
    "humanoidstandup_v4.py": ("4ddefc45628ead5d",),
    "humanoidstandup_v5.py": ("ff0524040964ebd6",),
    "inverted_double_pendulum_v4.py": ("43d80146560c39b8",),
    "inverted_double_pendulum_v5.py": ("a4ce6cadb4daf557",),
    "inverted_pendulum_v4.py": ("201ae53714cd8e89",),
    "inverted_pendulum_v5.py": ("860e8436475689a4",),
    "pusher_v5.py": ("e51893fd93ab0e72",),
    "reacher_v4.py": ("a06022f166ef32bb",),
    "reacher_v5.py": ("be2f75d48b6b19e6",),
    "swimmer_v4.py": ("b8698696c7ec5ac7",),
    "swimmer_v5.py": ("5bdb513ea955bc2e",),
    "walker2d_v4.py": ("bc4b14f1c27d1584",),
    "walker2d_v5.py": ("10219f0e6b5208d6",),
    "common.py": ("ef31d8b3c302ba12",),
    "atari_preprocessing.py": ("23ab5a578ee04df9", "abbf79c1a65e7260", "9d37dc8b68297130"),
    "atari_wrappers.py": ("a7d00cf945809aab", "4e1a42ae65a568ad"),
    "env.py": ("67f96880539dfc1c", "72af67f64444cbc9", "e9b70f7a6b99c7f7", "eca5ad0607935fed"),
    "monitor.py": ("e2267b522427acfc", "123c968eff11deb8", "f3c9dd25dee5b613", "0b1eb191650a498d"),
}
"""By name of a file the first 16 digits of its sha256: of Gymnasium 1.4, for its ``AtariPreprocessing`` from 1.2 on, of
Stable-Baselines3 2.7 to 2.9, and of ale-py 0.11 and 0.12."""

LIMIT, EVERY = 17, 10
"""Of the comparison: the limit is short, so that all kinds of ends occur; states are compared every so many steps."""


def switched_off() -> str | None:
    """The setting that says that no kernel may be used, ``None`` if nothing does."""
    return f"{VARIABLE}=0" if os.environ.get(VARIABLE, "1").strip().lower() in ("0", "no", "off", "false") else None


@cache
def digest(path: Path) -> str:
    """A short hash of the content of a source file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def sources_of(kernel: type[StandsFor]) -> list[Path]:
    """The files that a kernel, or what stands for a wrapper, was written from."""
    modules = [import_module(name) for name in (kernel.module, *kernel.sources)]
    return [Path(module.__file__ or "") for module in modules]


def distrusted(kernel: type[BlockKernel]) -> str | None:
    """Why a kernel may not be used here, ``None`` if it may. Found out once a process, but for what somebody may change later."""
    return _untrue(kernel) or kernel.changed()


def unknown_source(kernel: type[StandsFor]) -> str | None:
    """Complain of what is not as it was written, or was not yet known when this was."""
    if not as_written(kernel.watched()):
        return f"somebody has changed {kernel.module}"
    if why := watch_of(kernel).strange():
        return why
    for path in sources_of(kernel):
        if digest(path) not in KNOWN.get(path.name, ()):
            return f"it was not written from this version of {path.name}"
    return None


@cache
def _untrue(kernel: type[BlockKernel]) -> str | None:
    if why := kernel.unavailable():
        return why
    try:
        if why := unknown_source(kernel):
            return why
        with global_random_state(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            different = _compared(kernel)
    except Exception as error:
        return f"it could not be compared with Python: {error!r}"
    return f"it does not do here what Python does: {different}" if different else None


def _compared(kernel: type[BlockKernel]) -> str | None:
    """Step throw-away environments in Python and by the kernel; what differs, ``None`` if nothing does."""
    steps, rows = kernel.compared
    envs = kernel.make(2 * rows)
    theirs, ours = envs[:rows], envs[rows:]
    random = np.random.default_rng(0)
    shown = [env.reset(seed=row)[0] for row, env in enumerate(theirs)]
    last = [env.reset(seed=row)[0] for row, env in enumerate(ours)]
    left = [LIMIT - 3 * row for row in range(rows)]
    for step in range(steps):
        if step % EVERY == 0:
            taken = kernel(Taken(ours, list(left), [LIMIT] * rows, [False] * rows, last, AutoresetMode.SAME_STEP))
        actions = kernel.draw(theirs[0], random, rows)
        count = taken.step(actions, None, None)
        infos, ended = taken.infos_by_row(), 0
        for row, env in enumerate(theirs):
            shown[row], reward, terminated, truncated, info = env.step(actions[row])
            left[row] -= 1
            cut = truncated or left[row] <= 0
            given = float(taken.rewards[row]), bool(taken.terminated[row]), bool(taken.truncated[row])
            if given != (float(reward), bool(terminated), bool(cut)):
                return f"{given} and {reward, terminated, cut} in step {step}"
            if terminated or cut:
                ended += 1
                if not (same_bits(taken.final(row), shown[row]) and _same_infos(taken.final_info(row), info)):
                    return f"the end of an episode in step {step}"
                shown[row], info = env.reset()
                left[row] = LIMIT
            if not _same_infos(infos.get(row, {}), info):
                return f"{infos.get(row)} and {info} in step {step}"
            if np.asarray(shown[row]).tobytes() != np.ascontiguousarray(taken.observations[row]).tobytes():
                return f"the observation of step {step}"
        if ended != count:
            return f"{count} episodes, not {ended}, in step {step}"
        if step % EVERY == EVERY - 1:
            last = taken.give_back()
            for one, other in zip(theirs, ours, strict=True):
                if name := differing(kernel, one, other):
                    return f"the {name} after step {step}"
    return None


def differing(kernel: type[BlockKernel], one: Any, other: Any) -> str | None:
    """The first of the states of two environments that differs, in a bit or a type; their generators are states, too."""
    theirs, ours = kernel.state_of(one), kernel.state_of(other)
    for name in theirs:
        if not same_bits(theirs[name], ours[name]):
            return name
    same = one.np_random.bit_generator.state == other.np_random.bit_generator.state
    return None if same else "random generator"


def _same_infos(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return list(one) == list(other) and same_bits(one, other)
