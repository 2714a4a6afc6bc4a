"""``python -m reactor_rl check-kernel CartPole-v1``: a kernel against the Python class that it stands for."""

from __future__ import annotations

import argparse
from ast import literal_eval
from functools import partial
from importlib import import_module
from typing import Any

import gymnasium

from reactor_gymnasium.testing import check_kernel
from reactor_rl.plugin import UsageError

__all__ = ["main"]


def main(argv: list[str]) -> int:
    """Compare all that steps and resets bring and leave behind, to the bit."""
    parser = argparse.ArgumentParser(
        prog="python -m reactor_rl check-kernel",
        description="Steps an environment in Python and by its kernel, whatever release that was written from, and compares "
        "observations, rewards, flags, infos, states and generators to the bit. The exit status is 0 if nothing differs, 1 if "
        "something does.",
    )
    parser.add_argument("id", metavar="ENV", help="an id of Gymnasium's, or MODULE:CLASS")
    parser.add_argument("--steps", type=int, default=100_000, help="steps of all rows together (default: 100,000)")
    parser.add_argument("kwargs", metavar="NAME=VALUE", nargs="*", help="arguments of the environment")
    options = parser.parse_args(argv)
    if options.steps < 1:
        raise UsageError("--steps must be at least 1")
    make = _maker(options.id, dict(map(_argument, options.kwargs)))
    try:
        env = make()
        env.reset(seed=0)
        env.close()
    except Exception as error:
        raise UsageError(f"{options.id!r} cannot be made: {error}") from error
    try:
        print(check_kernel(make, options.steps, seeds=1, rows=(1, 5)))
    except ValueError as error:
        raise UsageError(str(error)) from error
    except AssertionError as error:
        print(error)
        return 1
    return 0


def _argument(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"{text!r} is no NAME=VALUE")
    try:
        return name, literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def _maker(name: str, kwargs: dict[str, Any]) -> partial[Any]:
    """Makes the environment: of a class of a module, or by its id, which may name a module, too."""
    module, colon, owner = name.partition(":")
    if colon:
        try:
            found = getattr(import_module(module), owner, None)
        except ImportError as error:
            raise UsageError(f"{name!r} cannot be made: {error}") from error
        if found is not None:
            return partial(found, **kwargs)
    return partial(gymnasium.make, name, **kwargs)
