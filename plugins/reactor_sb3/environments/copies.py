"""How an environment that is there already is made again: from its pickle, else from its specification.

The pickle comes first, for it has what was changed since the environment was made. Logs that are open go on where they are: a copy
adds to the same file.
"""

from __future__ import annotations

import contextlib
import io
import os
import time
import warnings
from collections.abc import Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import cloudpickle
import gymnasium
from stable_baselines3.common import monitor
from stable_baselines3.common.monitor import ResultsWriter

from reactor_gymnasium.plugin import EnvFn
from reactor_rl.plugin import dumps, loads

__all__ = ["Copies", "LogPickler", "copies_in", "copies_of", "without_logs"]


class Copies:
    """Makes copies of an environment as it was when this was made.

    Raises:
        Exception: What pickling raises, of any type.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        out = io.BytesIO()
        LogPickler(out).dump(env)
        self.pickled = out.getvalue()

    def __call__(self) -> gymnasium.Env[Any, Any]:
        env: gymnasium.Env[Any, Any] = loads(self.pickled)
        return env


class LogPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles open logs of episodes so that they go on where they are.

    Args:
        file: Where to.
        standing: What is not pickled but named, by its ``id()``: whoever loads the pickle has it.
    """

    def __init__(self, file: io.BytesIO, standing: Mapping[int, tuple[Any, ...]] = MappingProxyType({})) -> None:
        super().__init__(file, protocol=5)
        self._standing = standing

    def persistent_id(self, obj: Any) -> tuple[Any, ...] | None:
        return self._standing.get(id(obj))

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, ResultsWriter):
            return _log_again, (obj.file_handler.name, tuple(obj.logger.fieldnames)[3:])
        return super().reducer_override(obj)


def _log_again(path: str, extra_keys: tuple[str, ...]) -> ResultsWriter:
    header: dict[str, float | str] = {"t_start": time.time()}
    return monitor.ResultsWriter(path, header, extra_keys, override_existing=not os.path.exists(path))


@contextlib.contextmanager
def without_logs() -> Iterator[None]:
    """Environments that are made in the block open no log of episodes, even if they have a ``Monitor`` that should."""
    writer = monitor.ResultsWriter
    monitor.ResultsWriter = lambda *_, **__: None  # type: ignore[misc, assignment]
    try:
        yield
    finally:
        monitor.ResultsWriter = writer  # type: ignore[misc]


def copies_of(env: gymnasium.Env[Any, Any]) -> EnvFn:
    """A function that makes environments like one that is there.

    Raises:
        TypeError: If there is no way.
    """
    try:
        copies = Copies(env)
        with without_logs():
            copies()
    except Exception as error:
        again = _by_specification(env)
        if again is not None:
            return again
        raise TypeError(
            f"{env} cannot be made again: Gymnasium has no complete specification of it, and it cannot be pickled "
            f"({type(error).__name__}: {error}). Pass a function that makes one environment instead"
        ) from error
    return copies


def copies_in(env: gymnasium.Env[Any, Any]) -> bytes | str:
    """The pickle of a function that makes environments like one that is there; where that is impossible, why."""
    try:
        return dumps(copies_of(env))
    except Exception as error:  # some workers would end with it
        return str(error)


def _by_specification(env: gymnasium.Env[Any, Any]) -> EnvFn | None:
    spec = getattr(env, "spec", None)
    if spec is not None:
        # A specification may be of no use here: its id is not registered, say, or a wrapper does not say what it was made with.
        with contextlib.suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            again = gymnasium.make(spec)
            again.close()
            if str(again) == str(env):  # the same wrappers, in the same order
                return partial(gymnasium.make, spec)
    return None
