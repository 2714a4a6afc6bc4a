"""Checkpoints of a trainer, taken between two ticks: a run that is killed and resumed ends with the same weights, bit for bit.

A checkpoint is an archive (:mod:`reactor_sb3.archive`) of everything that the coming rounds depend on: weights, optimiser, replay
buffer, counters, the state of every random stream, slots in flight, and each environment, which is saved in the way that
:mod:`reactor_sb3.env_state` has found to work for it.
"""

from __future__ import annotations

import os
import pickle
import warnings
from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import cloudpickle
import gymnasium
import numpy as np
import numpy.typing as npt
import stable_baselines3
import torch

import reactor_rl
from reactor_rl.runtime.run import Snapshot
from reactor_rl.runtime.snapshot import Part
from reactor_rl.serialise import dumps, loads
from reactor_sb3 import archive
from reactor_sb3.environments import maker_of
from reactor_sb3.evaluator import Evaluation
from reactor_sb3.streams import restore, state_of

if TYPE_CHECKING:
    from reactor_sb3.trainer import Trainer

__all__ = ["load", "save"]

Array = npt.NDArray[Any]
T = TypeVar("T", bound="Trainer")

FORMAT = 2
COUNTERS = (
    "num_timesteps", "_total_timesteps", "_num_timesteps_at_start", "_episode_num", "_n_updates", "_n_calls", "_learned_timesteps",
    "_current_progress_remaining", "exploration_rate", "_base_seed",
)  # fmt: skip


class _Bag:
    """What goes into an archive, value by value: into the document if JSON can hold it, else to the arrays or the pickles."""

    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}
        self.pickles: dict[str, bytes] = {}

    def put(self, name: str, value: Any) -> Any:
        """Keep a value. Returns what stands for it in the document."""
        if isinstance(value, torch.Tensor):
            self.arrays[name] = value.detach().cpu().numpy()
            return {"tensor": name}
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            self.arrays[name] = value
            return {"array": name}
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, bool | int | float | str):
            return {"is": value}
        if type(value) in (list, tuple):
            parts = [self.put(f"{name}.{number}", part) for number, part in enumerate(value)]
            return {type(value).__name__: parts}
        if type(value) is dict and all(isinstance(key, str | int) for key in value):
            return {"dict": [[key, self.put(f"{name}.{key}", part)] for key, part in value.items()]}
        self.pickles[name] = cloudpickle.dumps(value)
        return {"pickle": name}


def _take(found: dict[str, Any], arrays: Mapping[str, Array], pickles: Mapping[str, bytes]) -> Any:
    """The inverse of :meth:`_Bag.put`."""
    ((kind, value),) = found.items()
    match kind:
        case "is":
            return value
        case "tensor":
            return torch.from_numpy(arrays[value])
        case "array":
            return arrays[value]
        case "list" | "tuple":
            parts = [_take(part, arrays, pickles) for part in value]
            return tuple(parts) if kind == "tuple" else parts
        case "dict":
            return {key: _take(part, arrays, pickles) for key, part in value}
        case "pickle":
            return pickle.loads(pickles[value])
    raise archive.CorruptError(f"a checkpoint cannot hold {kind!r}")


# ---------------------------------------------------------------------- saving


def save(trainer: Trainer, path: str | os.PathLike[str]) -> None:
    """Write a checkpoint; see :meth:`reactor_sb3.trainer.Trainer.save_checkpoint`."""
    bag = _Bag()
    state = {
        "arguments": {name: _plain_now(trainer, name, value) for name, value in trainer.arguments.items()},
        "environment": _environment(trainer),
        "counters": {name: getattr(trainer, name) for name in COUNTERS if hasattr(trainer, name)},
        "policy": dict(trainer.policy.state_dict()),
        "optimizer": trainer.policy.optimizer.state_dict(),
        "streams": {name: state_of(generator) for name, generator in trainer.streams().items()},
        "torch_stream": trainer._torch_stream,
        "episodes": [dict(info) for info in trainer.ep_info_buffer or ()],
        "successes": [float(one) for one in trainer.ep_success_buffer or ()],
        "evaluations": [[one.timesteps, list(one.returns), list(one.lengths)] for one in trainer.evaluations],
        "replay_buffer": _replay_state(trainer),
        "sent": None if trainer._run is None else trainer._sent,
        "run": None if trainer._run is None else _run_state(trainer._run.snapshot().part, whole_infos=trainer.wants_infos),
    }
    document = {
        "format": FORMAT,
        "algorithm": type(trainer).__name__,
        "versions": _versions(),
        "timesteps": trainer.num_timesteps,
        "environments": _ways(state["run"]),
        "state": bag.put("state", state),
    }
    archive.write(path, document, bag.arrays, bag.pickles)


def _environment(trainer: Trainer) -> dict[str, Any]:
    """What makes an environment: an id, which needs no pickle, or a function."""
    made = maker_of(trainer.env).env_fn
    match made:
        case partial(func=gymnasium.make, args=(str() as env_id,), keywords={**keywords}) if not keywords:
            return {"id": env_id}
    return {"factory": made}


def _plain_now(trainer: Trainer, name: str, value: Any) -> Any:
    """A constructor's argument as it is by now, where it has become an attribute that was changed since."""
    now = vars(trainer).get(name, value)
    plain = (bool, int, float)
    return now if isinstance(now, plain) and isinstance(value, plain) else value


def _versions() -> dict[str, str]:
    return {
        "reactor_rl": reactor_rl.__version__, "stable_baselines3": stable_baselines3.__version__, "torch": torch.__version__,
        "gymnasium": gymnasium.__version__, "numpy": np.__version__,
    }  # fmt: skip


def _replay_state(trainer: Trainer) -> Any:
    """The part of the replay buffer that has been filled; a class of the user's is pickled whole."""
    buffer = getattr(trainer, "replay_buffer", None)
    if buffer is None:
        return None
    if trainer.wants_infos:
        return {"whole": buffer}
    filled = buffer.buffer_size if buffer.full else min(buffer.pos + 1, buffer.buffer_size)  # one more: see optimize_memory_usage
    return {"pos": buffer.pos, "full": buffer.full, "columns": {name: column[:filled] for name, column in _columns(buffer)}}


def _columns(buffer: Any) -> Iterator[tuple[str, Array]]:
    for name, value in sorted(vars(buffer).items()):
        if isinstance(value, np.ndarray):
            yield name, value
        elif isinstance(value, dict):
            for key, column in value.items():
                if isinstance(column, np.ndarray):
                    yield f"{name}.{key}", column


def _run_state(part: Part, *, whole_infos: bool) -> dict[str, Any]:
    """Of a snapshot, what is not the trainer's own."""
    reactors = {index: loads(data) for index, data in part.reactors.items()}
    return {
        "reactors": {index: state for index, state in reactors.items() if "envs" in state},
        "outputs": {
            index: {
                "stamps": stamps,
                "slots": slots if whole_infos or all(isinstance(slot, np.ndarray) for slot in slots) else None,
            }
            for index, (stamps, slots) in part.outputs.items()
        },
        "clock": part.clock,
    }


def _ways(run: dict[str, Any] | None) -> dict[str, int]:
    """How many environments were saved in which way."""
    ways: dict[str, int] = {}
    for state in (run or {"reactors": {}})["reactors"].values():
        for saved in state["envs"]:
            way = saved["way"] or "not at all"
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


def load(cls: type[T], path: str | os.PathLike[str], env: Any, allow_pickle: bool, changed: Mapping[str, Any]) -> T:
    """Make a trainer from a checkpoint; see :meth:`reactor_sb3.trainer.Trainer.resume`."""
    document, arrays, pickles = archive.read(path, allow_pickle=allow_pickle)
    if document.get("format") != FORMAT:
        raise ValueError(f"{path} has the checkpoint format {document.get('format')!r}, this version reads {FORMAT}")
    if document["algorithm"] != cls.__name__:
        right = document["algorithm"]
        raise ValueError(f"{path} is a checkpoint of {right}, not of {cls.__name__}: use {right}.resume()")
    different = {name: (then, _versions()[name]) for name, then in document["versions"].items() if _versions().get(name) != then}
    if different:
        listed = ", ".join(f"{name} {then} (now {now})" for name, (then, now) in different.items())
        warnings.warn(f"{path} was written with {listed}; another version may give other numbers", stacklevel=3)
    try:
        state = _take(document["state"], arrays, pickles)
    except (KeyError, ValueError, TypeError) as error:
        raise archive.CorruptError(f"{path} is damaged ({type(error).__name__}: {error})") from error
    if env is None:
        env = state["environment"].get("id") or state["environment"]["factory"]
    model = cls(**{**state["arguments"], "env": env, **changed})
    _put_back(model, state)
    return model


def _put_back(model: Trainer, state: dict[str, Any]) -> None:
    for name, value in state["counters"].items():
        setattr(model, name, value)
    model.policy.load_state_dict(state["policy"])
    model.policy.optimizer.load_state_dict(state["optimizer"])
    for name, generator in model.streams().items():
        restore(generator, state["streams"][name])
    model._torch_stream = state["torch_stream"].clone()
    window = model._stats_window_size
    model.ep_info_buffer, model.ep_success_buffer = deque(state["episodes"], window), deque(state["successes"], window)
    model.evaluations = [Evaluation(steps, tuple(returns), tuple(lengths)) for steps, returns, lengths in state["evaluations"]]
    if state["run"] is not None:
        run = model.start()
        fresh = run.snapshot()
        _overlay(fresh, state["run"])
        run.restore(fresh)
        model._sent = state["sent"]
    _fill_replay(model, state["replay_buffer"])  # after the start, which would mark the end of episodes that go on
    model._afresh = state["run"] is None
    if state["run"] is not None:
        actors = [reactor for _, reactor in sorted(state["run"]["reactors"].items()) if "random" in reactor]
        begun = np.array([saved["way"] is None and saved["episode"] >= 0 for actor in actors for saved in actor["envs"]], np.bool_)
        if model.pipeline:
            model._late_cut = begun
        else:
            model.cut_episodes(begun)


def _fill_replay(model: Trainer, saved: Any) -> None:
    if saved is None:
        return
    target: Any = model
    if "whole" in saved:
        target.replay_buffer = saved["whole"]
        return
    buffer = target.replay_buffer
    buffer.pos, buffer.full = saved["pos"], saved["full"]
    for name, column in _columns(buffer):
        column[: len(saved["columns"][name])] = saved["columns"][name]


def _overlay(snapshot: Snapshot, saved: dict[str, Any]) -> None:
    """Make the snapshot of a run that has just started one of the run that was saved."""
    part = snapshot.part
    for index, state in saved["reactors"].items():
        part.reactors[index] = dumps(state)
    for index, output in saved["outputs"].items():
        slots = output["slots"]
        part.outputs[index] = output["stamps"], part.outputs[index][1] if slots is None else slots
    part.clock = saved["clock"]
