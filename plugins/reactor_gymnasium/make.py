"""``make_vec``: the arguments of ``gymnasium.make_vec``, and ours; and what that calls for a ``reactor/`` twin."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Literal, overload

import gymnasium
from gymnasium.envs.registration import EnvSpec, _find_spec
from gymnasium.error import Error

from reactor_gymnasium.arguments import check_flags, checked_number
from reactor_gymnasium.atari.vector_env import AtariVectorEnv
from reactor_gymnasium.registry import original
from reactor_gymnasium.vector.joined import JoinedVectorEnv
from reactor_gymnasium.vector.vector_env import ReactorVectorEnv

__all__ = ["OURS", "find_spec", "make_vec"]

Wrap = Callable[[gymnasium.Env[Any, Any]], gymnasium.Env[Any, Any]]

OURS = tuple(name for name in inspect.signature(ReactorVectorEnv).parameters if name not in ("env_fns", "worker"))
"""Keywords that are meant for :class:`ReactorVectorEnv` and not for the environment."""


@overload
def make_vec(
    id: str | EnvSpec, num_envs: int = 1, vectorization_mode: None = None, vector_kwargs: dict[str, Any] | None = None,
    wrappers: Sequence[Wrap] | None = None, *, preprocess: Literal[False] = False, shards: None = None, **kwargs: Any,
) -> ReactorVectorEnv: ...  # fmt: skip
@overload
def make_vec(
    id: str | EnvSpec, num_envs: int = 1, vectorization_mode: None = None, vector_kwargs: dict[str, Any] | None = None,
    wrappers: Sequence[Wrap] | None = None, *, preprocess: Literal[True], shards: None = None, **kwargs: Any,
) -> AtariVectorEnv: ...  # fmt: skip
@overload
def make_vec(
    id: str | EnvSpec, num_envs: int = 1, vectorization_mode: None = None, vector_kwargs: dict[str, Any] | None = None,
    wrappers: Sequence[Wrap] | None = None, *, preprocess: Literal[False] = False, shards: int, **kwargs: Any,
) -> JoinedVectorEnv: ...  # fmt: skip
def make_vec(
    id: str | EnvSpec,
    num_envs: int = 1,
    vectorization_mode: None = None,
    vector_kwargs: dict[str, Any] | None = None,
    wrappers: Sequence[Wrap] | None = None,
    *,
    preprocess: bool = False,
    shards: int | None = None,
    **kwargs: Any,
) -> ReactorVectorEnv | AtariVectorEnv | JoinedVectorEnv:
    """Make a :class:`ReactorVectorEnv` of a registered environment, or with ``preprocess=True`` an :class:`AtariVectorEnv`.

    Args:
        id: An id, ``"module:id"``, or a spec. Of a ``reactor/`` twin, what it is the twin of.
        num_envs: How many copies.
        vectorization_mode: Only ``None``: the mode is this.
        vector_kwargs: Keywords of the vector environment.
        wrappers: Put around each environment, in order.
        preprocess: Of an Atari game, what ``gymnasium.make_vec`` makes of the same id: finished stacks of small grey frames,
            clipped rewards and so on, with the keywords of :class:`AtariVectorEnv`. Without it, what ``gymnasium.make`` gives.
        shards: Of how many shards of about equal size, each an object that steps its rows by itself, as
            ``vectorization_mode="vector_entry_point"`` of Gymnasium's makes one of all: see :meth:`ReactorVectorEnv.of`. Their
            number is a part of what is computed. ``None``: every environment is stepped by itself.
        **kwargs: ``workers``, ``executor``, ``autoreset_mode`` and the other keywords of :class:`ReactorVectorEnv`; everything
            else goes to ``gymnasium.make``. With ``preprocess=True``, all are keywords of :class:`AtariVectorEnv`; with
            ``shards``, of the id's vector environment, but for those of :meth:`ReactorVectorEnv.of`.

    Raises:
        gymnasium.error.Error: If there is no such id, a vectorization mode is given, there is nothing to preprocess, or no
            environment that steps many rows by itself.
        ValueError: If a number makes no sense, or there are more shards than environments.
        TypeError: If ``id`` is neither an id nor a spec, or another argument is of another kind.
    """
    if vectorization_mode is not None:
        raise Error(
            "make_vec of reactor_gymnasium makes a ReactorVectorEnv: leave vectorization_mode out; for "
            f"vectorization_mode={vectorization_mode!r} use gymnasium.make_vec (or shards=, for vector_entry_point)"
        )
    if not isinstance(id, str | EnvSpec):
        raise TypeError(
            f"id must be the id of an environment or an EnvSpec, got {id!r}; ReactorVectorEnv takes functions that make one"
        )
    if not isinstance(vector_kwargs, Mapping | None):
        raise TypeError(f"vector_kwargs must be a dict of keywords, got {vector_kwargs!r}")
    check_flags(preprocess=preprocess)
    if "n_envs" in kwargs:
        raise TypeError(f"make_vec has no n_envs: it is num_envs={kwargs['n_envs']!r} here, as in gymnasium.make_vec")
    spec = copy.deepcopy(id if isinstance(id, EnvSpec) else find_spec(id))
    if spec.entry_point is None:
        raise Error(f"Cannot create vectorized environment for {spec.id} because it doesn't have an entry point defined.")
    # What the spec of a vector environment says, as for Gymnasium's own.
    num_envs, wrappers = spec.kwargs.pop("num_envs", num_envs), spec.kwargs.pop("wrappers", wrappers)
    checked_number("num_envs", num_envs, -1 << 63)
    if num_envs < 1:
        raise ValueError(f"`num_envs` must be positive: make_vec needs at least one environment, got {num_envs}.")
    if wrappers is not None and not (isinstance(wrappers, Sequence) and all(map(callable, wrappers))):
        raise TypeError(f"wrappers must be a sequence of functions of an environment, got {wrappers!r}")
    vector = dict(spec.kwargs.pop("vector_kwargs", vector_kwargs) or {})
    if isinstance(id, EnvSpec):
        preprocess, shards = spec.kwargs.pop("preprocess", preprocess), spec.kwargs.pop("shards", shards)
    for name in OURS:
        if name in kwargs:
            if name in vector:
                raise TypeError(f"{name} was given twice, in vector_kwargs and by itself")
            vector[name] = kwargs.pop(name)
    make_kwargs = {**spec.kwargs, **kwargs}
    if preprocess:
        if shards is not None:
            raise Error("shards is not for preprocess=True: AtariVectorEnv steps each game by itself. Leave one of them out")
        envs: ReactorVectorEnv | AtariVectorEnv | JoinedVectorEnv = _make_atari(spec, num_envs, wrappers, {**make_kwargs, **vector})
    elif shards is not None:
        spec.kwargs = {}
        envs = _make_joined(spec, num_envs, shards, wrappers, make_kwargs, vector)
    else:
        spec.kwargs = {}
        make_one = partial(_make_one, spec, make_kwargs, tuple(wrappers or ()))
        envs = ReactorVectorEnv([make_one] * num_envs, **vector)
    said = {"num_envs": num_envs, "vector_kwargs": vector, "preprocess": bool(preprocess), "shards": shards, "wrappers": wrappers}
    if num_envs == 1:
        del said["num_envs"]
    envs.spec = copy.deepcopy(spec)
    envs.spec.kwargs = make_kwargs | {name: value for name, value in said.items() if value}
    return envs


def _make_atari(spec: EnvSpec, num_envs: int, wrappers: Sequence[Wrap] | None, kwargs: dict[str, Any]) -> AtariVectorEnv:
    if "game" not in spec.kwargs or "frameskip" not in spec.kwargs:
        raise Error(f"preprocess=True is for Atari games, such as ALE/Pong-v5, and {spec.id} is not one")
    if wrappers:
        raise Error("preprocess=True leaves no single environments to put wrappers around; use wrappers of vector environments")
    known = inspect.signature(AtariVectorEnv).parameters
    if unknown := sorted(set(kwargs) - set(known)):
        raise Error(f"{', '.join(unknown)}: not among the keywords of AtariVectorEnv, which are {', '.join(list(known)[2:])}")
    return AtariVectorEnv(num_envs=num_envs, **kwargs)


def _make_joined(
    spec: EnvSpec, num_envs: int, shards: int, wrappers: Sequence[Wrap] | None, kwargs: dict[str, Any], vector: dict[str, Any]
) -> JoinedVectorEnv:
    if spec.vector_entry_point is None:
        raise Error(
            f"shards={shards!r} is for environments that step many rows by themselves, by their vector_entry_point; {spec.id} has "
            "none. Leave it out"
        )
    if wrappers:
        raise Error("shards leaves no single environments to put wrappers around; use wrappers of vector environments")
    checked_number("shards", shards, 1)
    if shards > num_envs:
        raise ValueError(f"shards={shards}, but there are {num_envs} environments: each shard needs one")
    cuts = [num_envs * shard // shards for shard in range(shards + 1)]
    return ReactorVectorEnv.of([partial(_make_shard, spec, hi - lo, kwargs) for lo, hi in pairwise(cuts)], **vector)


def _make_shard(spec: EnvSpec, num_envs: int, kwargs: dict[str, Any]) -> Any:
    return gymnasium.make_vec(spec, num_envs, "vector_entry_point", **copy.copy(kwargs))


def _make_one(spec: EnvSpec, kwargs: dict[str, Any], wrappers: tuple[Wrap, ...]) -> gymnasium.Env[Any, Any]:
    env = gymnasium.make(spec, **copy.copy(kwargs))
    for wrap in wrappers:
        env = wrap(env)
    return env


def find_spec(id: str) -> EnvSpec:
    """The specification of an id, `module:id` and twins included; see :func:`make_vec`.

    Raises:
        gymnasium.error.Error: If there is no such id.
        ModuleNotFoundError: If there is no such module.
    """
    if id.startswith(("ALE/", "reactor/ALE.")) and importlib.util.find_spec("ale_py") is not None:
        importlib.import_module("ale_py")  # registers its games
    return _find_spec(_base(id))


def _base(id: str) -> str:
    """The id that a twin stands for: ``ALE/Pong-v5`` for ``reactor/ALE.Pong-v5``."""
    module, colon, name = id.rpartition(":")
    if not name.startswith("reactor/"):
        return id
    return f"{module}{colon}{original(name.removeprefix('reactor/'))}"


def __getattr__(name: str) -> Callable[..., Any]:
    """The function that ``gymnasium.make_vec`` calls for a twin: it looks up ``reactor_gymnasium.make:<id>``."""
    if name in gymnasium.registry:
        return partial(make_vec, name)
    raise AttributeError(name)
