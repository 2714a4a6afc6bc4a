"""Checkpoints of a trainer, taken between two ticks: a run that is killed and resumed ends with the same weights, bit for bit.

A checkpoint is an archive (:mod:`reactor_sb3.checkpoints.archive`) of everything that the coming rounds depend on: weights,
optimiser, replay buffer, counters, the state of every random stream, slots in flight, and each environment, which is saved in the
way that :mod:`reactor_gymnasium.environments.saving` has seen to work for it.
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
import stable_baselines3
import torch
from stable_baselines3.common.vec_env import VecEnv, unwrap_vec_normalize

import reactor_rl
from reactor_sb3.acting.normalization import normalized_again
from reactor_sb3.checkpoints import archive
from reactor_sb3.checkpoints.alike import alike, anything, want
from reactor_sb3.checkpoints.archive import RefusedError
from reactor_sb3.checkpoints.document import Bag, take
from reactor_sb3.checkpoints.expected import check_outline, expected_run
from reactor_sb3.checkpoints.saved_arguments import check_amounts, check_arguments, check_policy
from reactor_sb3.checkpoints.state import go_on, made_of, restore, state_to_write
from reactor_sb3.environments.makers import live_count, maker_of, spare_envs
from reactor_sb3.trainers.arguments import taken_over
from reactor_sb3.trainers.display import WATCHING, checked_place
from reactor_sb3.trainers.model import Model
from reactor_sb3.trainers.options import DEVICES, check_devices, check_executor, check_places
from reactor_torch import differentiating

__all__ = [
    "PLACES",
    "RUN_FORMAT",
    "check_loadable",
    "expected_run",
    "load",
    "machine",
    "made_of",
    "save",
    "versions",
    "warn_if_elsewhere",
]


def versions() -> dict[str, str]:
    """Versions of what computes."""
    return {
        "reactor_rl": reactor_rl.__version__, "stable_baselines3": stable_baselines3.__version__, "torch": str(torch.__version__),
        "gymnasium": gymnasium.__version__, "numpy": np.__version__,
    }  # fmt: skip


def machine() -> dict[str, str]:
    """The parts of this machine that decide about the last bit of a sum, besides the versions."""
    return {
        "processor": platform.machine(),
        "vector instructions (torch)": torch.backends.cpu.get_cpu_capability(),
        "learner's layers": differentiating(),
    }


def warn_if_elsewhere(path: str | os.PathLike[str], document: dict[str, Any], stacklevel: int) -> None:
    """One warning of all that may give other numbers here."""
    now = versions() | machine()
    then = document["versions"] | document["machine"]
    different = ", ".join(f"{name} {then[name][:100]} (now {now[name]})" for name in now if then[name] != now[name])
    if different:
        warnings.warn(
            f"{path} was written with {different}; numbers may differ in their last bits from those that an uninterrupted run "
            "would have given there",
            stacklevel=stacklevel + 1,
        )


RUN_FORMAT = "run 1"
"""In the place of a trainer's ``checkpoint_format``, in the files of :mod:`reactor_sb3.checkpoints.saved_run`."""
PLACES = (
    "n_learners", "workers", "executor", "nodes", "start_method", "restarts", "round_timeout", "verbose", "tensorboard_log",
    *WATCHING,
)  # fmt: skip
"""Arguments that never change results: where a run is, how long it waits, where it writes. Only a trusted file has a say."""


# ---------------------------------------------------------------------- saving


def save(path: str | os.PathLike[str], model: Model) -> None:
    """Write a checkpoint of a trainer, between two rounds.

    Raises:
        TypeError: If it could not be read again.
        ValueError: If its policy is no longer as its constructor makes it.
        OSError: If it cannot be written.
    """
    model.session.check_remade(model)
    bag, state = Bag(), state_to_write(model)
    document = {
        "format": type(model).checkpoint_format,
        "algorithm": type(model).__name__,
        "versions": versions(),
        "machine": machine(),
        "timesteps": state["counters"]["num_timesteps"],
        "environments": _ways(state["run"]),
        "state": bag.put("state", state),
    }
    archive.write(path, document, bag.arrays, bag.pickles)


def _ways(run: dict[str, Any] | None) -> dict[str, int]:
    """How many environments were saved in which way."""
    ways: dict[str, int] = {}
    for state in (run or {"reactors": {}})["reactors"].values():
        for saved in state["envs"]:
            way = saved["way"] or ("not at all" if saved["episode"] >= 0 else "not begun")
            ways[way] = ways.get(way, 0) + 1
    if "not at all" in ways:
        warnings.warn(
            f"{ways['not at all']} environment(s) can neither be saved nor replayed exactly: a resumed run begins new episodes "
            "there, and its weights will differ from those of an uninterrupted one. Usually they draw from a global random "
            "generator, or ignore the seed",
            stacklevel=4,
        )
    return ways


# ---------------------------------------------------------------------- resuming


@contextlib.contextmanager
def _fitting(path: str | os.PathLike[str]) -> Iterator[None]:
    """As :func:`archive.blaming`, where the caller has given an environment, which may be the one that does not fit."""
    try:
        with archive.blaming(path):
            yield
    except archive.CorruptError as error:
        raise ValueError(f"env= is not like the environment of the run that was saved, or {error}") from error


def check_loadable(cls: Any, path: Any) -> None:
    """Refuse what ``load()`` cannot load, of files that are named.

    Raises:
        ValueError: If it is a checkpoint, damaged, or something else.
    """
    beside = f"{path}.zip" if isinstance(path, (str, os.PathLike)) else path  # which SB3 looks for too
    if archive.DOCUMENT in archive.entries(path) | archive.entries(beside):  # whole or not
        raise ValueError(
            f"{path} is a checkpoint: it has a run to go on with. Use {cls.__name__}.resume(), or load() with a file that "
            "save() has written"
        )
    if isinstance(path, (str, os.PathLike)):
        for one in (os.fspath(path), f"{os.fspath(path)}.zip"):  # in SB3's order
            if os.path.isfile(one):
                archive.check_whole(one)
                break


def load(cls: Any, path: str | os.PathLike[str], env: Any, allow_pickle: bool, changed: Mapping[str, Any]) -> Model:
    """Make a trainer from a checkpoint; see :meth:`reactor_sb3.trainers.trainer.Trainer.resume`."""
    try:
        return _load(cls, path, env, allow_pickle, changed)
    except MemoryError as error:
        if allow_pickle:
            raise
        raise RefusedError(f"{path} wants more memory than there is: {error}") from None


def _load(cls: Any, path: str | os.PathLike[str], env: Any, allow_pickle: bool, changed: Mapping[str, Any]) -> Model:
    check_places(changed)  # what is wrong with them is not the file's fault
    given_env = env is not None
    if {"data", "policy.pth"} <= archive.entries(path):
        raise ValueError(
            f"{path} was written by save(): it has weights and settings, and no run to go on with. Use {cls.__name__}.load(), or "
            "resume() with a file that save_checkpoint() has written"
        )
    with archive.opened(path, allow_pickle=allow_pickle) as opened:
        document = opened.document
        if document.get("format") == RUN_FORMAT:
            raise RefusedError(f"is a run of {str(document.get('algorithm'))[:100]}: use resume_run()")
        right, known = document.get("algorithm"), cls.checkpoint_format
        if isinstance(right, str) and right != cls.__name__:
            raise RefusedError(f"is a checkpoint of {right[:100]}, not of {cls.__name__}: use {right[:100]}.resume()")
        if document.get("format") != known:
            raise RefusedError(f"has the checkpoint format {str(document.get('format'))[:20]}, this version reads {known}")
        like = {
            "format": known, "algorithm": cls.__name__, "versions": versions(), "machine": machine(), "timesteps": 0,
            **dict.fromkeys(("environments", "state"), anything),
        }  # fmt: skip
        alike(document, like, "the manifest")
        state = take(document["state"], opened)
        opened.check_all_read()
        check_outline(state, opened.size)
        check_arguments(cls, state["arguments"])
        if not allow_pickle:
            check_amounts(state["arguments"])
        if env is None:
            env = _saved_env(state["environment"], allow_pickle)
    arguments = _of_the_file(state["arguments"], changed, allow_pickle)
    given = {**arguments, **changed}
    if changed:
        check_executor(given)
        if given.get("watch") is not None:
            checked_place(given["watch"], given.get("executor", "auto"))
    check_devices({name: given[name] for name in DEVICES if str(given.get(name)).startswith("cuda")})  # nor are missing ones
    count, normalized = arguments.get("n_actors", 1) * arguments.get("envs_per_actor", 1), state["normalization"]
    if live_count(env) not in (None, count):
        raise ValueError(f"the vector environment has {live_count(env)} environments, and the run that was saved {count}")
    venv = env if isinstance(env, VecEnv) else spare_envs(maker_of(env), count)  # what is wrong with them is not its fault either
    if normalized is None and unwrap_vec_normalize(venv) is not None:
        raise ValueError("the run that was saved has no VecNormalize: pass the vector environment without it")
    with _fitting(path) if given_env else archive.blaming(path):
        if normalized is not None and unwrap_vec_normalize(venv) is None:
            venv = normalized_again(venv, normalized)
        spare = cls._wrap_env(venv)
        arguments = {**arguments, "env": spare, **changed}
        if not allow_pickle:
            policy = str(arguments.get("policy"))
            want(policy in cls.policy_aliases, "the policy's name")
            check_policy(cls.policy_aliases[policy], cls.usual_policy_kwargs, arguments, spare, state["policy"])
        with taken_over():
            model: Model = cls(**arguments)
        restore(model, state)
    warn_if_elsewhere(path, document, stacklevel=4)
    try:
        go_on(model, state)
    except BaseException as error:
        model.close()
        if isinstance(error, archive.CorruptError):
            with archive.blaming(path):
                raise
        raise
    return model


def _of_the_file(saved: Mapping[str, Any], changed: Mapping[str, Any], allow_pickle: bool) -> dict[str, Any]:
    """Those of the constructor's arguments that come from a file: what to show never does, and nodes belong to their executor."""
    arguments = {name: value for name, value in saved.items() if name not in (WATCHING if allow_pickle else PLACES)}
    if "executor" in changed and changed["executor"] != arguments.get("executor"):
        arguments.pop("nodes", None)
    return arguments


def _saved_env(environment: dict[str, Any], allow_pickle: bool) -> Any:
    """The maker of a checkpoint's environments."""
    if "factory" in environment:
        want(callable(environment["factory"]), "what makes an environment")
        return environment["factory"]
    module, colon, _ = environment["id"].rpartition(":")
    if colon and not allow_pickle and sys.modules.get(module) is None:
        raise RefusedError(
            f"makes its environment from {environment['id'][:100]!r}, and with allow_pickle=False nothing is imported for it: "
            f"import {module[:100]} first, or pass env="
        )
    return environment["id"]
