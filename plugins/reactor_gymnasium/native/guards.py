"""Whether something is true here: written from this very code, and equal to what Python does on this machine.

After a release of Gymnasium in which the code of a class is another, ``python -m reactor_rl check-kernel`` compares its kernel with
it. If all is equal, the fingerprint is added to ``written_from`` of the kernel.
"""

from __future__ import annotations

import os
import sys
import warnings
from functools import cache
from multiprocessing import parent_process
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from reactor_gymnasium.environments.owning import same_bits
from reactor_gymnasium.native.kernel import ROOTS, BlockKernel, Taken
from reactor_gymnasium.native.watching import watch_of
from reactor_rl.plugin import code_of, fingerprint, global_random_state, unmodified, warn_caller

__all__ = ["PASSING", "compared", "differing", "distrusted", "switched_off", "unlike"]

VARIABLE = "REACTOR_RL_KERNELS"

PASSING: dict[type, tuple[str, ...]] = {
    TimeLimit: ("66185d30d8da",),
    OrderEnforcing: ("97cbc1952505",),
    PassiveEnvChecker: ("d1a404bb8133", "11f1eacb90a7", "8b79bfc12c97"),  # of Gymnasium 1.2, 1.3, 1.4
}
"""The wrappers of ``gymnasium.make``, which pass on what they are given, and fingerprints of those that are known to."""
_known: set[tuple[type, tuple[str, ...]]] = set()  # that are what something was written from

LIMIT, EVERY = 17, 10
"""Of the comparison: the limit is short, so that all kinds of ends occur; states are compared every so many steps. The two have no
common divisor, so that hand-overs meet all moments of an episode.
"""


def switched_off() -> str | None:
    """The setting that says that no kernel may be used, ``None`` if nothing does."""
    return f"{VARIABLE}=0" if os.environ.get(VARIABLE, "1").strip().lower() in ("0", "no", "off", "false") else None


def unlike(kind: type, written_from: tuple[str, ...], by: str = "", roots: tuple[str, ...] = ROOTS) -> str | None:
    """Complain of a class that is not what something was written from, by its release or because somebody has changed it.

    Of another release there is a warning, once a process.

    Args:
        kind: The class.
        written_from: Fingerprints.
        by: Which kernel was written from it, if one was.
        roots: The methods that count.
    """
    if (kind, written_from) not in _known:
        if why := unmodified(kind, roots):
            return why
        try:
            why = unmodified(kind, roots, written_from)
        except (OSError, SyntaxError) as error:
            return f"the source of {kind.__name__} cannot be read: {error}"
        if why:
            _warn(kind, by, roots)
            return why
        _known.add((kind, written_from))
    return watch_of(code_of(kind, roots)).changed()


@cache
def _warn(kind: type, by: str, roots: tuple[str, ...]) -> None:
    if parent_process() is not None:  # the caller's process has warned
        return
    package = kind.__module__.partition(".")[0]
    release = f"{kind.__name__} of {package} {getattr(sys.modules.get(package), '__version__', '')}".rstrip()
    found = fingerprint(kind, roots)
    if by:
        point = f"{kind.__module__}:{kind.__qualname__}"
        ids = [name for name, spec in gymnasium.registry.items() if spec.entry_point == point and "/" not in name]
        warn_caller(
            f"{release} is not the one that the {by} kernel was written from ({found}): Python steps it, with the same results. "
            f"`python -m reactor_rl check-kernel {max(ids, default=point)}` compares them"
        )
    else:
        warn_caller(f"{release} is not the one that a faster form was written from ({found}): it is called, with the same results")


def distrusted(kernel: type[BlockKernel]) -> str | None:
    """Why a kernel may not be used here, ``None`` if it may. Compared once a process, but for what somebody may change later."""
    return kernel.unavailable() or unlike(kernel.original(), kernel.written_from, kernel.title) or _untrue(kernel)


@cache
def _untrue(kernel: type[BlockKernel]) -> str | None:
    steps, rows = kernel.compared
    if not steps:
        return None
    try:
        with global_random_state(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            different = compared(kernel, kernel.make(2 * rows), steps)
    except Exception as error:
        return f"it could not be compared with Python: {error!r}"
    return f"it does not do here what Python does: {different}" if different else None


def compared(kernel: type[BlockKernel], envs: list[Any], steps: int, limit: int = LIMIT, seed: int = 0) -> str | None:
    """Step throw-away environments in Python and by a kernel; return what differs, ``None`` if nothing does.

    Args:
        kernel: The kernel.
        envs: The environments; Python steps one half of them.
        steps: How many.
        limit: Steps after which an episode is truncated.
        seed: Of actions, and of the environments of the first row; that of each other row is one more.
    """
    rows = len(envs) // 2
    theirs, ours = envs[:rows], envs[rows:]
    paid, keeps = set[type](), False
    random = np.random.default_rng(seed)
    shown = [env.reset(seed=seed + row)[0] for row, env in enumerate(theirs)]
    last = [env.reset(seed=seed + row)[0] for row, env in enumerate(ours)]
    left = [max(1, limit - 3 * row) for row in range(rows)]
    for step in range(steps):
        if step % EVERY == 0:
            taken = kernel(Taken(ours, list(left), [limit] * rows, [False] * rows, last, AutoresetMode.SAME_STEP))
        actions = kernel.draw(theirs[0], random, rows)
        count = taken.step(actions, None, None)
        infos, ended = taken.infos_by_row(), 0
        for row, env in enumerate(theirs):
            shown[row], reward, terminated, truncated, info = env.step(actions[row])
            paid.add(type(reward))
            keeps = keeps or (type(shown[row]) is np.ndarray and sys.getrefcount(shown[row]) > 2)
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
                left[row] = limit
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
    kernel.paid, kernel.keeps = paid.pop() if len(paid) == 1 else None, keeps
    return None


def differing(kernel: type[BlockKernel], one: Any, other: Any) -> str | None:
    """Find the first of the states of two environments that differs, in a bit or a type; their generators are states, too."""
    theirs, ours = kernel.state_of(one), kernel.state_of(other)
    for name in theirs:
        if not same_bits(theirs[name], ours[name]):
            return name
    same = one.np_random.bit_generator.state == other.np_random.bit_generator.state
    return None if same else "random generator"


def _same_infos(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return list(one) == list(other) and same_bits(one, other)
