"""``python -m reactor_rl check-kernel CartPole-v1``: a kernel against the Python class that it stands for, after a new release."""

from __future__ import annotations

import argparse
import linecache
import sys
import warnings
from ast import literal_eval
from collections.abc import Callable, Iterator
from functools import partial
from types import CodeType
from typing import Any

import gymnasium

from reactor_gymnasium.native.guards import compared
from reactor_gymnasium.native.kernel import ROOTS, BlockKernel
from reactor_gymnasium.native.registered import kernel_class
from reactor_rl.plugin import UsageError, unmodified

__all__ = ["main", "never_run"]

CASES = [(rows, limit) for rows in (1, 5) for limit in (3, 70, 1000)]
"""Numbers of rows, and steps after which episodes are truncated."""
TRACED = 3000
"""Steps of which it is noted which lines Python runs, which is slow."""


def main(argv: list[str]) -> int:
    """Compare all that steps and resets bring and leave behind, to the bit."""
    parser = argparse.ArgumentParser(
        prog="python -m reactor_rl check-kernel",
        description="Steps an environment in Python and by its kernel, whatever release that was written from, and compares "
        "observations, rewards, flags, infos, states and generators to the bit. The exit status is 0 if nothing differs, 1 if "
        "something does.",
    )
    parser.add_argument("id", metavar="ENV_ID", help="an id of Gymnasium's")
    parser.add_argument("--steps", type=int, default=100_000, help="steps of all rows together (default: 100,000)")
    parser.add_argument("kwargs", metavar="NAME=VALUE", nargs="*", help="arguments of the environment")
    options = parser.parse_args(argv)
    if options.steps < 1:
        raise UsageError("--steps must be at least 1")
    make = partial(_made, options.id, dict(map(_argument, options.kwargs)))
    kernel = _kernel(options.id, make)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed, (rows, limit) in enumerate(CASES):
            steps = -(-options.steps // (len(CASES) * rows))
            if different := compared(kernel, [make() for _ in range(2 * rows)], steps, limit, 1000 * seed):
                print(f"rows {rows}, time limit {limit}, seed {1000 * seed}: {different}")
                return 1
            print(f"rows {rows}, time limit {limit}: {rows * steps:,} steps, the same bits", flush=True)
        left = list(never_run(kernel, make))
    print(*[f"never run, so not compared: {line}" for line in left], sep="\n", end="\n" if left else "")
    found = kernel.comes_to().fingerprint
    words = "which it has" if found in kernel.written_from else "to be added to the kernel"
    print(f'{kernel.title}: written_from "{found}", {words}')
    return 0


def _argument(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"{text!r} is no NAME=VALUE")
    try:
        return name, literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def _made(name: str, kwargs: dict[str, Any]) -> Any:
    return gymnasium.make(name, **kwargs).unwrapped


def _kernel(name: str, make: Callable[[], Any]) -> type[BlockKernel]:
    """The kernel for an environment."""
    try:
        env = make()
        env.reset(seed=0)
    except Exception as error:
        raise UsageError(f"{name!r} cannot be made: {error}") from error
    kernel = kernel_class(type(env))
    if kernel is None:
        raise UsageError(f"there is no kernel for {type(env).__name__}")
    if why := kernel.unavailable() or unmodified(type(env), ROOTS) or kernel.misfit(env):
        raise UsageError(f"{name!r} cannot be compared: {why}")
    return kernel


def never_run(kernel: type[BlockKernel], make: Callable[[], Any]) -> Iterator[str]:
    """Go through the lines of the class's module that steps and resets come to and that Python does not run in thousands of them.

    Args:
        kernel: Its kernel.
        make: Makes an environment.

    Yields:
        A function's name and the line.
    """
    left: dict[CodeType, set[int]] = {}
    for function in kernel.comes_to().functions.values():
        if function.__module__ == kernel.module:
            left[function.__code__] = {line for _, _, line in function.__code__.co_lines() if line}

    def run(frame: Any, event: str, arg: Any) -> Any:
        lines = left.get(frame.f_code)
        if not lines:
            return None
        lines.discard(frame.f_lineno)
        return run

    before = sys.gettrace()
    sys.settrace(run)
    try:
        compared(kernel, [make(), make()], TRACED, 70)
    finally:
        sys.settrace(before)
    for code, lines in left.items():
        for line in sorted(lines):
            yield f"{code.co_qualname}: {linecache.getline(code.co_filename, line).strip()}"
