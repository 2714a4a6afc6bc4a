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
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

from reactor_rl.plugin import Pickled
from reactor_sb3.checkpoints import archive
from reactor_sb3.checkpoints.alike import want
from reactor_sb3.checkpoints.archive import RefusedError
from reactor_sb3.checkpoints.checkpoint import RUN_FORMAT, machine, versions
from reactor_sb3.checkpoints.parts import columns, replay_state
from reactor_sb3.environments.copies import LogPickler
from reactor_sb3.environments.vec_env import ReactorVecEnv
from reactor_sb3.environments.wrapped_alone import levels_of
from reactor_sb3.trainers.replay import BLOCKWISE
from reactor_sb3.trainers.trainer import Trainer

__all__ = ["SavedRun", "read", "saved_levels", "state_of_run", "wrapper_again", "write"]

Array = npt.NDArray[Any]
_OF_THE_VEC_ENV = ("observation_space", "action_space", "reset_infos", "_seeds", "_options")
_OF_A_WRAPPER = ("venv", "class_attributes")  # not saved: the one is a level of its own, the other the class's
_OF_THE_PROCESS = ("_logger", "_custom_logger")  # of the model; likewise: where to log is said when it goes on


class SavedRun(NamedTuple):
    """The content of a file of a run. Only its methods execute what is pickled in it.

    Attributes:
        document: What can be read of it.
        columns: The filled parts of the replay buffer's arrays, by name.
        made_from: Pickle of what makes the environments (``None``: nothing does), and of the wrappers' classes.
        environments: Pickle of the environments' states.
        model: Pickle of the model and the wrappers.
    """

    document: dict[str, Any]
    columns: dict[str, Array]
    made_from: bytes
    environments: bytes
    model: bytes

    def makers(self) -> tuple[list[Pickled] | None, list[type[VecEnvWrapper]]]:
        """The makers of the environments, and the classes of what is wrapped around them, the outermost first."""
        makers, kinds = pickle.loads(self.made_from)
        return makers, kinds

    def states(self) -> list[bytes]:
        """The state of each environment."""
        states: list[bytes] = pickle.loads(self.environments)
        return states

    def put_into(self, levels: list[VecEnv]) -> tuple[BaseAlgorithm, dict[str, Any]]:
        """Make wrappers what they were. Returns the model, with the outermost as its own, and the states of the generators."""
        state = _Unpickler(io.BytesIO(self.model), levels, self.columns).load()
        for level, attributes in zip(levels, state["levels"], strict=True):
            vars(level).update(attributes)
        model: BaseAlgorithm = state["class"].__new__(state["class"])
        vars(model).update(state["model"], _custom_logger=False)
        buffer: Any = getattr(model, "replay_buffer", None)
        if hasattr(buffer, "set_env"):  # hindsight asks the environments for rewards
            buffer.set_env(model.env)
        return model, state["generators"]


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


def state_of_run(model: BaseAlgorithm) -> tuple[dict[str, Array], dict[str, bytes]]:
    """All that the coming rollouts depend on, between two of them: arrays and pickles.

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
    arrays, filled = {}, {}
    if type(buffer) in BLOCKWISE:  # infos, which are objects, are pickled with the buffer
        arrays = {name: column for name, column in columns(buffer).items() if not column.dtype.hasobject}
        kept = replay_state(buffer, whole=False)["columns"]
        filled = {name: kept[name] for name in arrays}
    out = io.BytesIO()
    _Pickler(out, levels, arrays).dump({
        "class": type(model),
        "model": {name: value for name, value in vars(model).items() if name not in _OF_THE_PROCESS},
        "levels": [
            *({name: value for name, value in vars(level).items() if name not in _OF_A_WRAPPER} for level in levels[:-1]),
            {name: vars(venv)[name] for name in _OF_THE_VEC_ENV},
        ],
        "generators": _generators(model),
    })  # fmt: skip
    return filled, {
        "made from": cloudpickle.dumps((venv.saved_makers(), [type(level) for level in levels[:-1]])),
        "environments": pickle.dumps(venv.saved_envs()),
        "model": out.getvalue(),
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
    arrays, pickles = state_of_run(model)
    document = {
        "format": RUN_FORMAT, "algorithm": type(model).__name__, "versions": versions(), "machine": machine(),
        "timesteps": model.num_timesteps, "device": str(model.device), "threads": torch.get_num_threads(),
    }  # fmt: skip
    archive.write(path, document, arrays, pickles)


def read(path: str | os.PathLike[str]) -> SavedRun:
    """Read a file of a run, which executes nothing.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If it is damaged or something else.
    """
    if {"data", "policy.pth"} <= archive.entries(path):
        raise ValueError(f"{path} was written by save(): it has weights and settings, and no run to go on with. Use load()")
    with archive.opened(path, allow_pickle=True) as opened:
        document = opened.document
        if document.get("format") != RUN_FORMAT:
            if isinstance(document.get("format"), int):
                raise RefusedError(f"is a checkpoint of a trainer: use {str(document.get('algorithm'))[:100]}.resume()")
            raise RefusedError(f"has the format {str(document.get('format'))[:20]}, this version reads {RUN_FORMAT}")
        document.setdefault("threads", None)  # earlier files do not say
        want(document.keys() == {"format", "algorithm", "versions", "machine", "timesteps", "device", "threads"}, "the manifest")
        filled = {name: opened.array(name) for name in opened.array_names()}
        saved = SavedRun(document, filled, *(opened.pickled(name) for name in ("made from", "environments", "model")))
        opened.check_all_read()
    return saved


def wrapper_again(kind: type[VecEnvWrapper], venv: VecEnv) -> VecEnvWrapper:
    """A wrapper that has yet to get the attributes of the one that was saved."""
    wrapper = kind.__new__(kind)
    vars(wrapper).update(venv=venv, class_attributes=dict(inspect.getmembers(kind)))
    return wrapper


class _Pickler(LogPickler):
    """The vector environment and its wrappers stand for those where it is loaded, arrays of a buffer for what is in the file."""

    def __init__(self, file: io.BytesIO, levels: list[VecEnv], arrays: dict[str, Array]) -> None:
        super().__init__(file, protocol=5)
        self._levels = {id(level): number for number, level in enumerate(levels)}
        self._names = {id(array): name for name, array in arrays.items()}

    def persistent_id(self, obj: Any) -> tuple[Any, ...] | None:
        if id(obj) in self._levels:
            return "level", self._levels[id(obj)]
        if id(obj) in self._names:
            return "column", self._names[id(obj)], obj.shape, obj.dtype
        return None


class _Unpickler(pickle.Unpickler):
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
