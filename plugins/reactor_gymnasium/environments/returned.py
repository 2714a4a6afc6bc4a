"""Errors for what environments, and the functions that make them, must not return."""

from __future__ import annotations

import linecache
import re
from collections.abc import Mapping
from typing import Any

from gymnasium.error import NameNotFound, NamespaceNotFound

__all__ = ["check_info", "check_made", "explain_made", "explain_returned"]

_CALL = re.compile(r"\.(step|reset)\(")
_VALUES = {"step": "observation, reward, terminated, truncated, info", "reset": "observation, info"}
_OLD = {
    ("step", 4): "four are those of OpenAI Gym before 0.26: `done` is `terminated or truncated` today",
    ("reset", 1): "an observation alone is that of OpenAI Gym before 0.26",
}
"""The most likely reason of a wrong number of values, by the method and the number."""


def check_info(info: Any, method: str) -> None:
    """Refuse what is no info.

    Raises:
        TypeError: If it is no dict, naming the method that returned it.
    """
    if not isinstance(info, Mapping):
        raise TypeError(f"{method}() returned {info!r} as the info, which must be a dict: {method}() returns {_VALUES[method]}")


def check_made(env: Any) -> None:
    """Refuse what is no environment, where a function was to make one.

    Raises:
        TypeError: Saying what the function has returned.
    """
    if env is None:
        raise TypeError("the function returned None, and must return the environment that it makes: its `return` may be missing")
    if isinstance(env, type):
        raise TypeError(f"the function returned the class {env.__name__}, and must return an environment: {env.__name__}()")
    if not (hasattr(env, "reset") and hasattr(env, "step")):
        raise TypeError(f"the function returned {env!r}, which is not an environment: it has no reset() or no step()")


def explain_made(error: Exception) -> None:
    """Add to an error by which no environment was made what would help, if that is known."""
    if isinstance(error, NameNotFound | NamespaceNotFound):
        error.add_note("an id is known once the module is imported that registers it: import that, or write 'module:id'")


def explain_returned(error: Exception) -> None:
    """Add to an error what ``step()`` or ``reset()`` must return, if it is that their result could not be unpacked.

    That is read from the line where it was raised, in whichever wrapper: nothing is checked while environments work. Without
    source text nothing is added.
    """
    if not isinstance(error, TypeError | ValueError) or "unpack" not in str(error):
        return
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    called = None if trace is None else _CALL.search(linecache.getline(trace.tb_frame.f_code.co_filename, trace.tb_lineno))
    if called is None:
        return
    method = called[1]
    got = re.search(r"got (\d+)", str(error))
    hint = _OLD.get((method, int(got[1]))) if got else None
    error.add_note(f"{method}() must return {_VALUES[method]}" + (f"; {hint}" if hint else ""))
