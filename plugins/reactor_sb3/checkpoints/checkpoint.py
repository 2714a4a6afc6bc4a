"""Checkpoints of a trainer, taken between two ticks: a run that is killed and resumed ends with the same weights, bit for bit.

A checkpoint is an archive (:mod:`reactor_sb3.checkpoints.archive`) of everything that the coming rounds depend on: weights,
optimiser, replay buffer, counters, the state of every random stream, slots in flight, and each environment, which is saved in the
way that :mod:`reactor_gymnasium.environments.saving` has seen to work for it.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any

from stable_baselines3.common.vec_env import VecEnv, unwrap_vec_normalize

from reactor_sb3.acting.normalization import normalized_again
from reactor_sb3.checkpoints import archive, document
from reactor_sb3.checkpoints.archive import CorruptError, RefusedError
from reactor_sb3.checkpoints.content import ENTRIES, templates_of
from reactor_sb3.checkpoints.made_from import (
    arguments_now,
    check_amounts,
    check_made_from,
    check_policy,
    environment_of,
    saved_environment,
)
from reactor_sb3.checkpoints.run_state import OUTLINE, go_on, run_state, run_template
from reactor_sb3.checkpoints.templates import ANYTHING, LARGE, check, like, want
from reactor_sb3.environments.makers import live_count, maker_of, spare_envs
from reactor_sb3.plain import plain
from reactor_sb3.trainers.arguments import taken_over
from reactor_sb3.trainers.display import WATCHING, checked_place
from reactor_sb3.trainers.model import Model
from reactor_sb3.trainers.options import DEVICES, check_devices, check_places

__all__ = ["PLACES", "check_loadable", "load", "save", "templates_of"]

PLACES = (
    "n_learners", "workers", "executor", "nodes", "start_method", "restarts", "timeout", "verbose", "tensorboard_log",
    *WATCHING,
)  # fmt: skip
"""Arguments that never change results: where a run is, how long it waits, where it writes. Only a trusted file has a say."""


def _check_outline(cls: Any, state: Any, size: int) -> None:
    """Refuse what no trainer of a class could be made from, or only one that is larger than the file says."""
    check(state, dict.fromkeys(("arguments", "environment", *ENTRIES, "run"), ANYTHING), "state")
    check_made_from(cls, state, size)
    if (run := state["run"]) is not None:
        check(run, OUTLINE, "state.run")
        actors = state["arguments"].get("n_actors", 1)
        others = len(run["reactors"]) - actors - (state["arguments"].get("evaluate_every") is not None)
        # Whether there is a referee is known when there is a program.
        want(others in (0, 1), "state.run.reactors", f"those of {actors} actors", list(run["reactors"]))


def _check_entries(state: dict[str, Any], templates: Mapping[str, Any]) -> None:
    for name, template in templates.items():
        check(state[name], template, f"state.{name}")


# ---------------------------------------------------------------------- saving


def save(path: str | os.PathLike[str], model: Model) -> None:
    """Write a checkpoint of a trainer, between two rounds.

    Raises:
        TypeError: If it could not be read again.
        ValueError: If its policy is no longer as its constructor makes it.
        OSError: If it cannot be written.
    """
    model.session.check_remade(model)
    state = _state_to_write(model)
    name = type(model).__name__
    document.write(
        path,
        state,
        algorithm=name,
        reader=f"{name}.resume()",
        timesteps=state["counters"]["num_timesteps"],
        environments=_ways(state["run"]),
    )


def _state_to_write(model: Model) -> dict[str, Any]:
    """Everything that the coming rounds depend on, between two rounds, held against what it will be held against when it is read.

    Raises:
        TypeError: If it could not be read again, naming what is wrong.
    """
    session = model.session
    try:
        values = {
            "arguments": arguments_now(model),
            "environment": environment_of(session.makes),
            **{name: entry.of(model) for name, entry in ENTRIES.items()},
            "run": run_state(model),
        }
        state = {name: plain(value) for name, value in values.items()}
        _check_outline(type(model), state, LARGE)
        # Statistics are those of the environments that the user has set since.
        _check_entries(state, {**session.made, "normalization": like(state["normalization"])})
        if state["run"] is not None:
            check(state["run"], run_template(session.config, model.wants_infos), "state.run")
    except CorruptError as error:
        said = f"a checkpoint of this {type(model).__name__} could not be read again: {error}. Nothing was written"
        raise TypeError(said) from None
    return state


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


def check_loadable(cls: Any, path: Any) -> None:
    """Refuse what ``load()`` cannot load, of files that are named.

    Raises:
        ValueError: If it is a checkpoint, damaged, or something else.
    """
    if isinstance(path, (str, os.PathLike)):
        instead = f"it has a run to go on with. Use {cls.__name__}.resume(), or load() with a file that save() has written"
        for one in (os.fspath(path), f"{os.fspath(path)}.zip"):  # in SB3's order
            if os.path.isfile(one):
                archive.check_saved(one, instead)
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
    check_devices(changed)
    check_places(changed)  # what is wrong with them is not the file's fault
    given_env = env is not None

    def look(state: Any, size: int) -> None:
        _check_outline(cls, state, size)
        if not allow_pickle:
            check_amounts(state["arguments"])

    manifest, state = document.read(
        path, look, reader=f"{cls.__name__}.resume()", loader=f"{cls.__name__}.load()", allow_pickle=allow_pickle
    )
    if env is None:
        with archive.blaming(path):
            env = saved_environment(state["environment"], allow_pickle)
    arguments = _of_the_file(state["arguments"], changed, allow_pickle)
    given = {**arguments, **changed}
    if changed:
        check_places(given)
        if given.get("watch") is not None:
            checked_place(given["watch"], given.get("executor", "auto"))
    check_devices({name: given[name] for name in DEVICES if str(given.get(name)).startswith("cuda")})  # nor are missing ones
    count, normalized = arguments.get("n_actors", 1) * arguments.get("envs_per_actor", 1), state["normalization"]
    if live_count(env) not in (None, count):
        raise ValueError(f"the vector environment has {live_count(env)} environments, and the run that was saved {count}")
    venv = env if isinstance(env, VecEnv) else spare_envs(maker_of(env), count)  # what is wrong with them is not its fault either
    if normalized is None and unwrap_vec_normalize(venv) is not None:
        raise ValueError("the run that was saved has no VecNormalize: pass the vector environment without it")
    with archive.blaming(path, "env= is not like the environment of the run that was saved" if given_env else "no checkpoint"):
        if normalized is not None and unwrap_vec_normalize(venv) is None:
            venv = normalized_again(venv, normalized)
        spare = cls._wrap_env(venv)
        arguments = {**arguments, "env": spare, **changed}
        if not allow_pickle:
            check_policy(cls, arguments, spare, state["policy"])
        with taken_over():
            model: Model = cls(**arguments)
        _restore(model, state)
    document.warn_if_elsewhere(path, manifest, stacklevel=4)
    try:
        go_on(model, state["run"], state["replay_buffer"], state["normalization"])
    except BaseException as error:
        model.close()
        if isinstance(error, CorruptError):
            with archive.blaming(path):
                raise
        raise
    return model


def _restore(model: Model, state: dict[str, Any]) -> None:
    """Make a trainer that was just made what a state says, but for its run and what it has learned from."""
    _check_entries(state, model.session.made)
    for name, entry in ENTRIES.items():
        if name != "replay_buffer":
            entry.put(model, state[name])
    if state["run"] is not None:
        check(state["run"], run_template(model.program_config(), model.wants_infos), "state.run")


def _of_the_file(saved: Mapping[str, Any], changed: Mapping[str, Any], allow_pickle: bool) -> dict[str, Any]:
    """Those of the constructor's arguments that come from a file: what to show never does, and nodes belong to their executor."""
    arguments = {name: value for name, value in saved.items() if name not in (WATCHING if allow_pickle else PLACES)}
    if "executor" in changed and changed["executor"] != arguments.get("executor"):
        arguments.pop("nodes", None)
    return arguments
