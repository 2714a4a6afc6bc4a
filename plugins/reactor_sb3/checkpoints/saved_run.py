"""Runs of SB3's own algorithms on a ``ReactorVecEnv``, saved between two rollouts.

SB3 keeps all that a training depends on in attributes: of the model, of the wrappers around the vector environment, of what these
refer to. They are one pickle, so that what shares an object shares it afterwards. Three things are kept apart: the arrays of a
replay buffer, of which only the filled part is written; the environments, which live on workers; and the process-wide random
generators, which SB3 draws from.
"""

from __future__ import annotations

import inspect
import io
import os
import pickle
import random
from typing import Any

import cloudpickle
import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

from reactor_rl.plugin import Pickled
from reactor_sb3.checkpoints import document
from reactor_sb3.checkpoints.content import columns, filled_columns
from reactor_sb3.checkpoints.templates import COUNT, check
from reactor_sb3.environments.copies import LogPickler
from reactor_sb3.environments.vec_env import ReactorVecEnv
from reactor_sb3.environments.wrapped_alone import levels_of
from reactor_sb3.trainers.replay import BLOCKWISE
from reactor_sb3.trainers.trainer import Trainer

__all__ = ["put_into", "read", "saved_levels", "state_of_run", "wrapper_again", "write"]

Array = npt.NDArray[Any]
_READER = "resume_run()"
_OF_THE_VEC_ENV = ("observation_space", "action_space", "reset_infos", "_seeds", "_options")
_OF_A_WRAPPER = ("venv", "class_attributes")  # not saved: the one is a level of its own, the other the class's
_OF_THE_PROCESS = ("_logger", "_custom_logger")  # of the model; likewise: where to log is said when it goes on
_STATE = {
    "device": str,
    "threads": COUNT,
    "columns": dict,  # the filled parts of the replay buffer's arrays, by name
    "made from": Pickled,  # what makes the environments (None: nothing does), and the wrappers' classes
    "environments": Pickled,
    "model": Pickled,  # and the wrappers
}


def saved_levels(env: Any) -> list[VecEnv]:
    """The wrappers around a vector environment, the outermost first, and the vector environment.

    Raises:
        TypeError: If that is no ``ReactorVecEnv``.
    """
    levels = levels_of(env)
    if not isinstance(levels[-1], ReactorVecEnv):
        raise TypeError(
            f"the environments of a {type(levels[-1]).__name__} cannot be saved exactly: make a ReactorVecEnv, with "
            "make_vec_env(..., vec_env_cls=ReactorVecEnv) for instance"
        )
    return levels


def state_of_run(model: BaseAlgorithm) -> dict[str, Any]:
    """All that the coming rollouts depend on, between two of them.

    Raises:
        TypeError: If it is not a model, or has no environment, of a kind whose runs can be saved.
        RunError: If an environment cannot be saved exactly.
        Exception: What pickling something of the user's raises.
    """
    if isinstance(model, Trainer):
        raise TypeError(f"SaveRun is for the algorithms of Stable-Baselines3; for {type(model).__name__} there is SaveCheckpoint")
    if not isinstance(model, (A2C, DQN, PPO, SAC, TD3)):
        raise TypeError(f"SaveRun knows PPO, A2C, DQN, SAC and TD3, and what is derived from them, not {type(model).__name__}")
    levels = saved_levels(model.env)
    venv = levels[-1]
    assert isinstance(venv, ReactorVecEnv)
    buffer = getattr(model, "replay_buffer", None)
    standing: dict[int, tuple[Any, ...]] = {id(level): ("level", number) for number, level in enumerate(levels)}
    filled = {}
    if type(buffer) in BLOCKWISE:  # infos, which are objects, are pickled with the buffer
        arrays = {name: column for name, column in columns(buffer).items() if not column.dtype.hasobject}
        standing |= {id(column): ("column", name, column.shape, column.dtype) for name, column in arrays.items()}
        filled = {name: column for name, column in filled_columns(buffer).items() if name in arrays}
    out = io.BytesIO()
    LogPickler(out, standing).dump({
        "class": type(model),
        "model": {name: value for name, value in vars(model).items() if name not in _OF_THE_PROCESS},
        "levels": [
            *({name: value for name, value in vars(level).items() if name not in _OF_A_WRAPPER} for level in levels[:-1]),
            {name: vars(venv)[name] for name in _OF_THE_VEC_ENV},
        ],
        "generators": _generators(model),
    })  # fmt: skip
    return {
        "device": str(model.device),
        "threads": torch.get_num_threads(),
        "columns": filled,
        "made from": Pickled(cloudpickle.dumps((venv.saved_makers(), [type(level) for level in levels[:-1]]))),
        "environments": Pickled(pickle.dumps(venv.saved_envs())),
        "model": Pickled(out.getvalue()),
    }


def _generators(model: BaseAlgorithm) -> dict[str, Any]:
    """The states of the process-wide generators that SB3 draws from."""
    on_gpu = model.device.type == "cuda"
    return {
        "random": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(model.device) if on_gpu else None,
    }


def write(path: str | os.PathLike[str], model: BaseAlgorithm) -> None:
    """Save a run, between two rollouts. Whenever the process ends, what is at ``path`` is the old file or the new one, whole.

    Raises:
        Exception: See :func:`state_of_run`.
        OSError: If it cannot be written.
    """
    document.write(
        path,
        state_of_run(model),
        algorithm=type(model).__name__,
        reader=_READER,
        timesteps=model.num_timesteps,
        environments={"state": model.n_envs},
    )


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read a file of a run, which executes nothing. Returns the document, and the state.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If it is damaged or something else.
    """
    return document.read(path, lambda state, _: check(state, _STATE, "state"), reader=_READER, loader="load()", allow_pickle=True)


def put_into(levels: list[VecEnv], saved: dict[str, Any]) -> tuple[BaseAlgorithm, dict[str, Any]]:
    """Make wrappers what they were. Returns the model, with the outermost as its own, and the states of the generators."""
    state = _RunUnpickler(io.BytesIO(saved["model"].data), levels, saved["columns"]).load()
    for level, attributes in zip(levels, state["levels"], strict=True):
        vars(level).update(attributes)
    model: BaseAlgorithm = state["class"].__new__(state["class"])
    vars(model).update(state["model"], _custom_logger=False)
    buffer: Any = getattr(model, "replay_buffer", None)
    if hasattr(buffer, "set_env"):  # hindsight asks the environments for rewards
        buffer.set_env(model.env)
    return model, state["generators"]


def wrapper_again(kind: type[VecEnvWrapper], venv: VecEnv) -> VecEnvWrapper:
    """A wrapper that has yet to get the attributes of the one that was saved."""
    wrapper = kind.__new__(kind)
    vars(wrapper).update(venv=venv, class_attributes=dict(inspect.getmembers(kind)))
    return wrapper


class _RunUnpickler(pickle.Unpickler):
    """The vector environment and its wrappers are those where it is loaded, arrays of a buffer are what is in the file."""

    def __init__(self, file: io.BytesIO, levels: list[VecEnv], filled: dict[str, Array]) -> None:
        super().__init__(file)
        self._levels, self._filled = levels, filled

    def persistent_load(self, pid: Any) -> Any:
        if pid[0] == "level":
            return self._levels[pid[1]]
        _, name, shape, dtype = pid
        column, filled = np.zeros(shape, dtype), self._filled[name]
        column[: len(filled)] = filled
        return column
