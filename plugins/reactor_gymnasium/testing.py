"""For tests of one's own: does a kernel do what the Python class of its environments does, to the bit?"""

from __future__ import annotations

import linecache
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from types import CodeType
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit

from reactor_gymnasium.environments.owning import same_bits
from reactor_gymnasium.native.guards import differing, switched_off
from reactor_gymnasium.native.kernel import REFUSED, ROOTS, BlockKernel, name_of
from reactor_gymnasium.native.registered import instead, kernel_class
from reactor_gymnasium.vector.vector_env import ReactorVectorEnv
from reactor_rl.plugin import unmodified

__all__ = ["KernelReport", "check_kernel"]

Array = npt.NDArray[Any]
Draw = Callable[[np.random.Generator, Any, int], Array]

LIMITS = (None, 3, 70)
"""Steps after which episodes are truncated."""
SHORTEST = 150
"""Steps that a case has at least: several episodes at each of the limits above."""
TRACED = 2000
"""Steps of which it is noted which lines Python runs, which is slow. Rare branches may need more, and are reported as not run."""


@dataclass(frozen=True)
class KernelReport:
    """A comparison in which all was equal.

    Attributes:
        kernel: Name of the kernel.
        env: Name of the environments' class.
        steps: Steps of all rows together.
        by_kernel: Those of them that the kernel took; around resets and looks at environments Python takes some.
        ends: Episodes that have ended.
        cases: How often environments were made.
        never_run: Lines of the class that Python did not run, so that they were not compared.
        fingerprint: Of the class's code, for ``written_from``; ``None`` if that has no source text.
        known: Whether ``written_from`` has it.
    """

    kernel: str
    env: str
    steps: int
    by_kernel: int
    ends: int
    cases: int
    never_run: tuple[str, ...]
    fingerprint: str | None
    known: bool

    def __str__(self) -> str:
        done = f"{self.steps:,} steps, {self.by_kernel:,} of them by the kernel, {self.ends:,} ends of episodes, {self.cases} cases"
        lines = [f"{self.kernel} for {self.env}: {done}: the same bits"]
        lines += [f"never run, so not compared: {line}" for line in self.never_run]
        told = f'written_from "{self.fingerprint}", {"which it has" if self.known else "to be added to the kernel"}'
        if self.fingerprint is None:
            told = f"nothing for written_from, as {self.env} has no source text"
        return "\n".join([*lines, f"{self.kernel}: {told}"])


def check_kernel(
    make: Callable[[], Any],
    steps: int = 50_000,
    seeds: int = 2,
    rows: Sequence[int] = (1, 3, 16),
    draw: Draw | None = None,
) -> KernelReport:
    """Compare the kernel of an environment with its Python class, whatever code that was written from.

    In all autoreset modes, with time limits and without, there are random resets with seeds and without and of masks, and
    environments are looked at, states and generators included, at random moments.

    Args:
        make: Makes an environment; wrappers around it are taken off.
        steps: How many, of all rows together; no case has fewer than 150 of each row.
        seeds: How many seeds each case is tried with.
        rows: The numbers of rows.
        draw: Draws actions: of a generator, the action space of an environment and ``n`` it makes ``(n, *shape)`` of the space's
            dtype. By default they are random, of a ``Box`` some outside of it.

    Returns:
        What was compared.

    Raises:
        AssertionError: At the first difference, with its place. If the kernel cannot be used, has taken less than a third of a
            case's steps, or no episode has ended.
        ValueError: If there is no kernel for the environment.
    """
    if steps < 1 or seeds < 1 or not rows or min(rows) < 1:
        raise ValueError(f"steps, seeds and all rows must be at least 1, got {steps}, {seeds} and {tuple(rows)}")
    env = make().unwrapped
    env.reset(seed=0)
    kind = type(env)
    kernel = kernel_class(kind)
    if kernel is None:
        raise ValueError(f"there is no kernel for {kind.__name__}")
    plans = [(mode, limit, n, seed) for mode in AutoresetMode for limit in LIMITS for n in rows for seed in range(seeds)]
    each = max(SHORTEST, -(-steps // sum(n for _, _, n, _ in plans)))
    with warnings.catch_warnings(), _counted(kernel, kind) as counted:
        warnings.simplefilter("ignore")
        if why := switched_off() or kernel.unavailable() or unmodified(kind, ROOTS) or kernel.misfit(env):
            raise AssertionError(f"the {kernel.title} kernel cannot be used: {why}")
        cases = [_Case(make, counted, draw, *plan) for plan in plans]
        for case in cases:
            case.compare(each)
        left = tuple(_never_run(counted, make().unwrapped, draw))
    if not any(case.ends for case in cases):
        raise AssertionError("no episode has ended: draw= must give actions that end some")
    try:
        found = kernel.comes_to().fingerprint
    except (OSError, SyntaxError):
        found = None
    done = sum(each * case.n for case in cases)
    by_kernel = sum(case.taken * case.n for case in cases)
    return KernelReport(
        kernel.title, kind.__name__, done, by_kernel, sum(case.ends for case in cases), len(cases), left, found,
        found in kernel.written_from,
    )  # fmt: skip


@contextmanager
def _counted(kernel: Any, kind: type) -> Iterator[Any]:
    """The kernel in its own place for a while, as one that counts its steps, and is used without any comparison."""

    class Counted(kernel):  # type: ignore[misc]
        taken = 0
        compared = 0, 0
        trusted = True
        written_from = ()
        known: dict[Any, Any] = {}  # of one that was not compared

        def step(self, actions: Array, shown: Array | None, led_to: Array | None) -> int:
            count: int = super().step(actions, shown, led_to)
            Counted.taken += count != REFUSED
            return count

    Counted.title = kernel.title
    instead[name_of(kind)] = Counted
    try:
        yield Counted
    finally:
        del instead[name_of(kind)]


class _Case:
    """Rows in one mode, with one limit and one seed.

    Attributes:
        taken: Steps that the kernel took.
        ends: Episodes that have ended.
    """

    def __init__(
        self, make: Any, kernel: type[BlockKernel], draw: Draw | None, mode: AutoresetMode, limit: int | None, n: int, seed: int
    ) -> None:
        self.make, self.kernel, self.draw = make, kernel, draw
        self.mode, self.limit, self.n, self.seed = mode, limit, n, seed
        self.taken = self.ends = 0
        self.random = np.random.default_rng(seed)

    def __str__(self) -> str:
        return f"autoreset {self.mode.value}, time limit {self.limit}, {self.n} rows, seed {self.seed}"

    def _env(self) -> Any:
        env = self.make().unwrapped
        return env if self.limit is None else TimeLimit(env, self.limit)

    def compare(self, steps: int) -> None:
        before = self.kernel.taken  # type: ignore[attr-defined]
        makers = [self._env] * self.n
        theirs = SyncVectorEnv(makers, autoreset_mode=self.mode)
        ours = ReactorVectorEnv(makers, autoreset_mode=self.mode, executor="inline")
        try:
            self._equal("reset", theirs.reset(seed=self.seed), ours.reset(seed=self.seed))
            look = 0
            for step in range(steps):
                one = self._step(step, theirs, ours)
                if step == look:
                    self._states(f"after step {step}", theirs, ours)
                    look += int(self.random.integers(1, 200))
                self._reset(f"after step {step}", theirs, ours, one[2] | one[3])
            self.taken = self.kernel.taken - before  # type: ignore[attr-defined]
            if self.taken < steps // 3:
                raise AssertionError(f"{self}: the kernel took {self.taken} of {steps} steps: {ours!r}")
        except AssertionError:
            raise
        except Exception as error:
            raise AssertionError(f"{self}: {error!r} was raised") from error
        finally:
            theirs.close()
            ours.close()

    def _step(self, step: int, theirs: Any, ours: Any) -> Any:
        if self.draw is None:
            actions = self.kernel.draw(theirs.envs[0].unwrapped, self.random, self.n)
        else:
            actions = self.draw(self.random, theirs.single_action_space, self.n)
        one = theirs.step(actions.copy())
        self._equal(f"step {step}", one, ours.step(actions))
        self.ends += int((one[2] | one[3]).sum())
        return one

    def _reset(self, where: str, theirs: Any, ours: Any, over: Array) -> None:
        """Reset what is over where nobody else does, and all now and then."""
        kwargs: dict[str, Any] = {"seed": int(self.random.integers(1000))} if self.random.random() < 0.5 else {}
        if self.mode is AutoresetMode.DISABLED and over.any():
            kwargs["options"] = {"reset_mask": over}
        elif self.random.random() > 0.01:
            return
        self._equal(f"reset({kwargs}) {where}", *[envs.reset(**deepcopy(kwargs)) for envs in (theirs, ours)])

    def _states(self, where: str, theirs: Any, ours: Any) -> None:
        for row in range(self.n):
            if name := differing(self.kernel, theirs.envs[row].unwrapped, _Held(ours, row)):
                one, other = (getattr(env, name, "") for env in (theirs.envs[row].unwrapped, _Held(ours, row)))
                raise AssertionError(f"{self}, {where}: {name} of row {row}: {one!r} in Python, {other!r} by the kernel")

    def _equal(self, where: str, one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
        """Compare what a step or a reset gives."""
        names = ("observations", "rewards", "terminated", "truncated", "infos") if len(one) == 5 else ("observations", "infos")
        for name, in_python, by_kernel in zip(names, one, other, strict=True):
            if same_bits(in_python, by_kernel):
                continue
            row = ""
            if isinstance(in_python, np.ndarray) and in_python.shape == by_kernel.shape:
                number = next((row for row in range(self.n) if not same_bits(in_python[row], by_kernel[row])), None)
                if number is not None:
                    row, in_python, by_kernel = f" of row {number}", in_python[number], by_kernel[number]
            raise AssertionError(f"{self}, {where}: {name}{row}: {in_python!r} in Python, {by_kernel!r} by the kernel")


class _Held:
    """An environment in a vector environment, to be looked at."""

    def __init__(self, envs: Any, row: int) -> None:
        self._envs, self._row = envs, row

    def __getattr__(self, name: str) -> Any:
        return self._envs.call("get_wrapper_attr", name)[self._row]


def _never_run(kernel: type[BlockKernel], env: Any, draw: Draw | None) -> Iterator[str]:
    """Go through lines of the class's module that steps and resets come to and that Python does not run in thousands of them."""
    left: dict[CodeType, set[int]] = {}
    for function in kernel.comes_to().functions.values():
        if function.__module__ == kernel.module:
            code = function.__code__
            left[code] = {line for _, _, line in code.co_lines() if line and line > code.co_firstlineno}

    def run(frame: Any, event: str, arg: Any) -> Any:
        lines = left.get(frame.f_code)
        if not lines:
            return None
        lines.discard(frame.f_lineno)
        return run

    random = np.random.default_rng(0)
    before = sys.gettrace()
    sys.settrace(run)
    try:
        env.reset(seed=0)
        begun = 0
        for step in range(TRACED):
            actions = kernel.draw(env, random, 1) if draw is None else draw(random, env.action_space, 1)
            _, _, terminated, truncated, _ = env.step(actions[0])
            if terminated or truncated or step - begun == 1000:
                env.reset()
                begun = step
    finally:
        sys.settrace(before)
        env.close()
    for code, lines in left.items():
        for line in sorted(lines):
            yield f"{code.co_qualname}: {linecache.getline(code.co_filename, line).strip()}"
