"""The parts of a trainer's state that are taken from something large: its environment, its replay buffer, its run."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch

from reactor_rl.plugin import WorkerState, dumps, loads
from reactor_sb3.environments.makers import EnvMaker
from reactor_sb3.trainers.program import SavedParts

__all__ = [
    "columns",
    "environment_state",
    "fill_replay",
    "filled_columns",
    "outline",
    "overlay",
    "replay_outline",
    "replay_state",
    "run_state",
]

Array = npt.NDArray[Any]


def environment_state(makes: EnvMaker) -> dict[str, Any]:
    """The maker of the environments: an id, which needs no pickle, or functions."""
    match makes.env_fns:
        case (partial(func=gymnasium.make, args=(str() as env_id,), keywords={**keywords}),) if not keywords:
            return {"id": env_id}
    return {"factory": makes}


def replay_state(buffer: Any, whole: bool) -> Any:
    """The part of the replay buffer that has been filled; a class of the user's is pickled whole."""
    if buffer is None:
        return None
    if whole:
        return {"whole": buffer}
    filled = buffer.buffer_size if buffer.full else min(buffer.pos + 1, buffer.buffer_size)  # one more: see optimize_memory_usage
    return {"pos": buffer.pos, "full": buffer.full, "columns": filled_columns(buffer, filled)}


def filled_columns(buffer: Any, filled: int) -> dict[str, Array]:
    """The first rows of each array; one that has a number for each environment only is whole."""
    return {name: column[:filled] if column.ndim > 1 else column for name, column in columns(buffer).items()}


def columns(buffer: Any) -> dict[str, Array]:
    """The arrays of a replay buffer, by name; infos, which are objects, only where it keeps them."""
    arrays: dict[str, Array] = {}
    for name, value in sorted(vars(buffer).items()):
        if isinstance(value, np.ndarray):
            if not value.dtype.hasobject or getattr(buffer, "copy_info_dict", True):
                arrays[name] = value
        elif isinstance(value, dict):
            arrays.update({f"{name}.{key}": part for key, part in value.items() if isinstance(part, np.ndarray)})
    return arrays


def outline(value: Any) -> Any:
    """The same with arrays that take no memory, within dicts too."""
    if isinstance(value, torch.Tensor):
        return torch.empty(value.shape, dtype=value.dtype, device="meta")
    if isinstance(value, np.ndarray):
        return np.broadcast_to(np.zeros((), value.dtype), value.shape)
    return {key: outline(part) for key, part in value.items()} if type(value) is dict else value


def replay_outline(buffer: Any) -> Any:
    """Return an object with the size of a replay buffer, and with columns that take no memory."""
    arrays = {name: outline(value) for name, value in vars(buffer).items() if isinstance(value, (np.ndarray, dict))}
    kept = {name: getattr(buffer, name) for name in ("buffer_size", "copy_info_dict") if hasattr(buffer, name)}
    return SimpleNamespace(**arrays, **kept)


def fill_replay(buffer: Any, saved: Any) -> Any:
    """Put into a replay buffer what was saved of one. Returns it, or the one that was saved whole."""
    if saved is None:
        return buffer
    if "whole" in saved:
        return saved["whole"]
    buffer.pos, buffer.full = saved["pos"], saved["full"]
    for name, column in columns(buffer).items():
        column[: len(saved["columns"][name])] = saved["columns"][name]
    return buffer


def run_state(part: WorkerState, named: SavedParts, *, whole_infos: bool) -> dict[str, Any]:
    """The parts of a snapshot: the state of actors, evaluator and referee, and of ports that have a name in ``named``."""
    return {
        "reactors": {name: _lasting(loads(part.reactors[index])) for name, index in named.reactors.items()},
        "outputs": {
            name: {
                "stamps": part.outputs[index][0],
                "slots": slots if whole_infos or all(isinstance(slot, np.ndarray) for slot in slots) else None,
            }
            for name, index in named.outputs.items()
            for slots in [part.outputs[index][1]]
        },
        "clock": part.clock,
    }


def _lasting(state: dict[str, Any]) -> dict[str, Any]:
    """Without how an actor has been told to act: a trainer that is made from its settings of now tells it again."""
    return {name: value for name, value in state.items() if name != "told"}


def overlay(part: WorkerState, saved: dict[str, Any], named: SavedParts) -> None:
    """Make the snapshot of a run that has just started one of the run that was saved."""
    for name, state in saved["reactors"].items():
        part.reactors[named.reactors[name]] = dumps(state)
    for name, output in saved["outputs"].items():
        index, slots = named.outputs[name], output["slots"]
        part.outputs[index] = output["stamps"], part.outputs[index][1] if slots is None else slots
    part.clock = saved["clock"]
