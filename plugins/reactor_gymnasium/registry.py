"""The ids ``reactor/...`` in Gymnasium's registry, and registrations repeated in helpers."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial, wraps
from typing import Any, NoReturn

import gymnasium
from gymnasium.envs import registration
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import NameNotFound

from reactor_rl.plugin import dumps, loads, names_modules

__all__ = ["repeat_registrations", "follow", "original", "register"]


def _modules_of_ids(data: bytes, modules: Sequence[str]) -> Iterator[str]:
    """The modules of those environments whose ids a pickle has."""
    known = set(modules)
    for name, spec in gymnasium.registry.items():
        for point in (spec.entry_point, spec.vector_entry_point):
            module = point.partition(":")[0] if isinstance(point, str) else getattr(point, "__module__", None)
            if module in known and name.encode() in data:
                yield str(module)


names_modules(_modules_of_ids)


def repeat_registrations() -> Callable[[], None]:
    """A function that registers in a helper what is registered here, entry points defined in ``__main__`` included."""
    pickled: dict[str, bytes] = {}
    for name, spec in gymnasium.registry.items():
        with contextlib.suppress(Exception):  # one that cannot travel is missed only if it is made
            pickled[name] = dumps(spec)
    return partial(_register, pickled)


def _register(pickled: dict[str, bytes]) -> None:
    # A package that registers its environments when it is imported will find them there already.
    warnings.filterwarnings("ignore", message=".*Overriding environment .* already in registry")
    for name, data in pickled.items():
        known = gymnasium.registry.get(name)
        try:
            if (spec := loads(data)) != known:  # it may have been changed, or registered anew
                gymnasium.registry[name] = spec
        except Exception as error:  # on a machine without its module, say, which matters only if it is made
            gymnasium.registry[name] = known or EnvSpec(name, entry_point=partial(_missing, error))


def _missing(error: Exception, **_: Any) -> NoReturn:
    raise error


_NAMESPACE = "reactor/"
_MAKER = "reactor_gymnasium.make"


def register() -> int:
    """Give every id that is registered by now its twin. Returns how many are new.

    Importing ``reactor_gymnasium`` does this once, and what is registered afterwards with ``gymnasium.register`` needs it no more.
    """
    known = len(gymnasium.registry)
    for name in list(gymnasium.registry):
        if _twin(name) not in gymnasium.registry:
            _add(name)
    return len(gymnasium.registry) - known


def follow() -> None:
    """Give what is registered from now on its twin at once."""
    plain = registration.register
    if hasattr(plain, "__reactor_twins__"):
        return

    @wraps(plain)
    def register_with_twin(id: str, *args: Any, **kwargs: Any) -> None:
        plain(id, *args, **kwargs)
        _add(next(reversed(gymnasium.registry)))
        if id in gymnasium.registry:  # it may have been there before
            _add(id)

    register_with_twin.__reactor_twins__ = True  # type: ignore[attr-defined]
    for module in (registration, gymnasium.envs, gymnasium):
        if vars(module).get("register") is plain:
            module.register = register_with_twin  # type: ignore[attr-defined]


def _twin(name: str) -> str:
    return _NAMESPACE + name.replace("/", ".")


def _add(name: str) -> None:
    spec, twin = gymnasium.registry[name], _twin(name)
    if name.startswith(_NAMESPACE) or spec.entry_point is None:
        return
    changes: dict[str, Any] = {"kwargs": dict(spec.kwargs)}
    if spec.additional_wrappers:  # with which no twin could be made by make_vec
        changes = {
            "entry_point": partial(gymnasium.make, name), "kwargs": {}, "additional_wrappers": (), "max_episode_steps": None,
            "order_enforce": False, "disable_env_checker": True,
        }  # fmt: skip
    gymnasium.registry[twin] = replace(spec, id=twin, vector_entry_point=f"{_MAKER}:{name}", **changes)


def original(name: str) -> str:
    """The id whose twin is ``reactor/<name>``.

    Raises:
        gymnasium.error.NameNotFound: If no id has this twin.
    """
    for registered in gymnasium.registry:
        if not registered.startswith(_NAMESPACE) and registered.replace("/", ".") == name:
            return registered
    raise NameNotFound(
        f"no registered environment has the twin reactor/{name}; register it first, then call reactor_gymnasium.register()"
    )
