"""Checkpoints of a trainer, taken between two ticks: a run that is killed and resumed ends with the same weights, bit for bit.

A checkpoint is an archive (:mod:`reactor_sb3.checkpoints.archive`) of everything that the coming rounds depend on: weights,
optimiser, replay buffer, counters, the state of every random stream, slots in flight, and each environment, which is saved in the
way that :mod:`reactor_sb3.environments.env_state` has found to work for it.
"""

from __future__ import annotations

import os
import platform
import sys
import warnings
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import gymnasium
import numpy as np
import stable_baselines3
import torch

import reactor_rl
from reactor_rl.plugin import Part, Snapshot, dumps, loads
from reactor_sb3.checkpoints import archive, checks
from reactor_sb3.checkpoints.archive import RefusedError
from reactor_sb3.checkpoints.document import Bag, take
from reactor_sb3.environments.makers import maker_of, spare_envs
from reactor_sb3.streams import restore, state_of
from reactor_sb3.training.arguments import check_places
from reactor_sb3.training.evaluator import Evaluation
from reactor_torch import computing

if TYPE_CHECKING:
    from reactor_sb3.training.trainer import Trainer

__all__ = ["is_checkpoint", "load", "save"]

T = TypeVar("T", bound="Trainer")

FORMAT = 2
COUNTERS = (
    "num_timesteps", "_total_timesteps", "_num_timesteps_at_start", "_episode_num", "_n_updates", "_n_calls", "_learned_timesteps",
    "_current_progress_remaining", "exploration_rate", "_base_seed",
)  # fmt: skip


# ---------------------------------------------------------------------- saving


def save(trainer: Trainer, path: str | os.PathLike[str]) -> None:
    """Write a checkpoint; see :meth:`reactor_sb3.checkpoints.resumable.Resumable.save_checkpoint`."""
    bag = Bag()
    state = {
        "arguments": {name: _plain_now(trainer, name, value) for name, value in trainer.arguments.items()},
        "environment": _environment(trainer),
        "counters": _counters(trainer),
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
        "machine": _machine(),
        "timesteps": trainer.num_timesteps,
        "environments": _ways(state["run"]),
        "state": bag.put("state", state),
    }
    archive.write(path, document, bag.arrays, bag.pickles)


def _counters(trainer: Trainer) -> dict[str, Any]:
    return {name: getattr(trainer, name) for name in COUNTERS if hasattr(trainer, name)}


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
        "reactor_rl": reactor_rl.__version__, "stable_baselines3": stable_baselines3.__version__, "torch": str(torch.__version__),
        "gymnasium": gymnasium.__version__, "numpy": np.__version__,
    }  # fmt: skip


def _machine() -> dict[str, str]:
    """What decides about the last bit of a sum, besides the versions."""
    return {
        "processor": platform.machine(),
        "vector instructions (torch)": torch.backends.cpu.get_cpu_capability(),
        "actors' networks": computing(),
    }


def _replay_state(trainer: Trainer) -> Any:
    """The part of the replay buffer that has been filled; a class of the user's is pickled whole."""
    buffer = getattr(trainer, "replay_buffer", None)
    if buffer is None:
        return None
    if trainer.wants_infos:
        return {"whole": buffer}
    filled = buffer.buffer_size if buffer.full else min(buffer.pos + 1, buffer.buffer_size)  # one more: see optimize_memory_usage
    return {
        "pos": buffer.pos,
        "full": buffer.full,
        "columns": {name: column[:filled] for name, column in checks.columns(buffer).items()},
    }


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
            stacklevel=5,
        )
    return ways


# ---------------------------------------------------------------------- resuming


def is_checkpoint(path: Any) -> bool:
    """Whether a file is a checkpoint, whole or not, and nothing that ``save()`` has written."""
    beside = f"{path}.zip" if isinstance(path, (str, os.PathLike)) else path  # which SB3 looks for too
    return archive.DOCUMENT in archive.entries(path) | archive.entries(beside)


def load(cls: type[T], path: str | os.PathLike[str], env: Any, allow_pickle: bool, changed: Mapping[str, Any]) -> T:
    """Make a trainer from a checkpoint; see :meth:`reactor_sb3.checkpoints.resumable.Resumable.resume`."""
    check_places(changed)  # what is wrong with them is not the file's fault
    if {"data", "policy.pth"} <= archive.entries(path):
        raise ValueError(
            f"{path} was written by save(): it has weights and settings, and no run to go on with. Use {cls.__name__}.load(), or "
            "resume() with a file that save_checkpoint() has written"
        )
    with archive.opened(path, allow_pickle=allow_pickle) as found:
        document = found.document
        if document.get("format") != FORMAT:
            raise RefusedError(f"has the checkpoint format {str(document.get('format'))[:20]}, this version reads {FORMAT}")
        names = {"format", "algorithm", "versions", "machine", "timesteps", "environments", "state"}
        checks.alike(
            {name: document.get(name) for name in ("algorithm", "timesteps", "versions", "machine")},
            {"algorithm": "", "timesteps": 0, "versions": _versions(), "machine": _machine()},
            "the manifest",
        )
        checks.want(document.keys() == names, "the manifest")
        if document["algorithm"] != cls.__name__:
            right = document["algorithm"][:100]
            raise RefusedError(f"is a checkpoint of {right}, not of {cls.__name__}: use {right}.resume()")
        state = take(document["state"], found)
        found.check_all_read()
        checks.check_outline(state, found.size)
        checks.check_arguments(cls, state["arguments"])
        if env is None:
            env = _saved_env(state["environment"], allow_pickle)
    made = maker_of(env)
    spare = cls._wrap_env(spare_envs(made, 1))  # what is wrong with them is not its fault either
    with archive.blaming(path):
        arguments = {**state["arguments"], "env": made, **changed}
        if not allow_pickle:
            policy = str(arguments.get("policy"))
            checks.want(policy in cls.policy_aliases, "the policy's name")
            checks.check_policy(cls.policy_aliases[policy], arguments, spare, state["policy"])
        model = cls(**arguments)
        checks.check_state(model, state, _counters(model))
        _put_back(model, state)
        if state["run"] is None:
            _fill_replay(model, state["replay_buffer"])
        else:
            checks.check_run(model, state["run"], model.program().topology())
    _warn(path, document)
    if state["run"] is not None:
        try:
            _go_on(model, state)
        except BaseException:
            model.close()
            raise
    return model


def _saved_env(environment: dict[str, Any], allow_pickle: bool) -> Any:
    """What the environments of a checkpoint are made from."""
    if "factory" in environment:
        checks.want(callable(environment["factory"]), "what makes an environment")
        return environment["factory"]
    module, colon, _ = environment["id"].rpartition(":")
    if colon and not allow_pickle and sys.modules.get(module) is None:
        raise RefusedError(
            f"makes its environment from {environment['id'][:100]!r}, and with allow_pickle=False nothing is imported for it: "
            f"import {module[:100]} first, or pass env="
        )
    return environment["id"]


def _warn(path: str | os.PathLike[str], document: dict[str, Any]) -> None:
    """One warning of all that may give other numbers here."""
    now = _versions() | _machine()
    then = document["versions"] | document["machine"]
    different = ", ".join(f"{name} {then[name][:100]} (now {now[name]})" for name in now if then[name] != now[name])
    if different:
        warnings.warn(
            f"{path} was written with {different}; numbers may differ in their last bits from those that an uninterrupted run "
            "would have given there",
            stacklevel=4,
        )


def _put_back(model: Trainer, state: dict[str, Any]) -> None:
    """Everything but the run and the replay buffer."""
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


def _fill_replay(model: Trainer, saved: Any) -> None:
    target: Any = model
    if saved is None:
        return
    if "whole" in saved:
        target.replay_buffer = saved["whole"]
        return
    buffer = target.replay_buffer
    buffer.pos, buffer.full = saved["pos"], saved["full"]
    for name, column in checks.columns(buffer).items():
        column[: len(saved["columns"][name])] = saved["columns"][name]


def _go_on(model: Trainer, state: dict[str, Any]) -> None:
    """Start the run and make it the one that was saved."""
    run = model.start()
    fresh = run.snapshot()
    checks.check_run_parts(fresh.part, state["run"])
    _overlay(fresh, state["run"])
    run.restore(fresh)
    model._sent = state["sent"]
    _fill_replay(model, state["replay_buffer"])  # after the start, which would mark the end of episodes that go on
    model._afresh = False
    actors = [reactor for _, reactor in sorted(state["run"]["reactors"].items()) if "random" in reactor]
    begun = np.array([saved["way"] is None and saved["episode"] >= 0 for actor in actors for saved in actor["envs"]], np.bool_)
    if model.pipeline:
        model._late_cut = begun
    else:
        model.cut_episodes(begun)


def _overlay(snapshot: Snapshot, saved: dict[str, Any]) -> None:
    """Make the snapshot of a run that has just started one of the run that was saved."""
    part = snapshot.part
    for index, state in saved["reactors"].items():
        part.reactors[index] = dumps(state)
    for index, output in saved["outputs"].items():
        slots = output["slots"]
        part.outputs[index] = output["stamps"], part.outputs[index][1] if slots is None else slots
    part.clock = saved["clock"]
