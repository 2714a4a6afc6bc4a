"""The entries of a checkpoint that are of a trainer itself: how each is taken, checked, and given to a trainer that was just made.

What is learned is asked of SB3's ``_get_torch_save_params()``: an algorithm has nothing to say about checkpoints.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3.common.save_util import recursive_getattr

from reactor_sb3 import streams
from reactor_sb3.acting.evaluator import Evaluation
from reactor_sb3.acting.normalization import put_statistics, statistics_state
from reactor_sb3.checkpoints.templates import COUNT, NUMBER, REAL, ArrayOf, Each, Kind, check, exactly, like, stream, want, whole
from reactor_sb3.plain import plain
from reactor_sb3.trainers.model import Model
from reactor_sb3.trainers.replay import BLOCKWISE, arrays_of

__all__ = ["ENTRIES", "columns", "filled_columns", "templates_of"]

Array = npt.NDArray[Any]
_SEEDS = 2**63
"""Seeds are below it, those that are drawn and those that are given."""
_COUNTERS = (
    "num_timesteps", "_total_timesteps", "_num_timesteps_at_start", "_episode_num", "_n_updates", "_n_calls", "_learned_timesteps",
    "_current_progress_remaining", "exploration_rate", "_base_seed", "use_masking",
)  # fmt: skip


class Entry(NamedTuple):
    """An entry of a checkpoint.

    Attributes:
        of: What is saved of a trainer.
        put: Makes a trainer that was just made what was saved.
        template: What may stand there, given a trainer that was just made; ``None`` for what is like that trainer's own.
    """

    of: Callable[[Model], Any]
    put: Callable[[Model, Any], None]
    template: Callable[[Model], Any] | None = None


def templates_of(model: Model) -> dict[str, Any]:
    """The templates of all entries of a trainer that was just made; they take hardly any memory."""
    return {name: like(entry.of(model)) if entry.template is None else entry.template(model) for name, entry in ENTRIES.items()}


# ---------------------------------------------------------------------- counters and streams


def _counters(model: Model) -> dict[str, Any]:
    found = {name: getattr(model, name) for name in _COUNTERS if hasattr(model, name)}
    return {name: int(value) if isinstance(value, (bool, np.bool_)) else value for name, value in found.items()}


def _counter(name: str, fresh: Any) -> Kind:
    if name == "_base_seed":
        return whole(0, _SEEDS)
    if name == "_total_timesteps":  # learn(float("inf")) goes on until a callback ends it
        return REAL
    if name in ("_learned_timesteps", "_current_progress_remaining"):
        return NUMBER  # below 0 before anything is learned, and after a last round that went past the end
    return NUMBER if isinstance(fresh, float) else COUNT


def _put_counters(model: Model, saved: dict[str, Any]) -> None:
    for name, value in saved.items():
        setattr(model, name, value)


def _put_streams(model: Model, saved: dict[str, Any]) -> None:
    for name, generator in model.session.streams.items():
        streams.restore(generator, saved[name])


# ---------------------------------------------------------------------- what is learned


def _optimizers(model: Model) -> dict[str, torch.optim.Optimizer]:
    """All optimisers of a trainer, by the names that SB3 has for them."""
    known = {name: recursive_getattr(model, name) for name in model._get_torch_save_params()[0]}
    return {name: part for name, part in known.items() if isinstance(part, torch.optim.Optimizer)}


def _learned(model: Model) -> dict[str, torch.Tensor]:
    """All tensors that are learned besides the policy, likewise: a coefficient, say."""
    return {name: recursive_getattr(model, name) for name in model._get_torch_save_params()[1]}


def _put_optimizers(model: Model, saved: dict[str, Any]) -> None:
    for name, optimizer in _optimizers(model).items():
        optimizer.load_state_dict(saved[name])


def _put_learned(model: Model, saved: dict[str, Any]) -> None:
    with torch.no_grad():
        for name, tensor in _learned(model).items():
            tensor.copy_(saved[name])


def _optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The template of an optimiser's state. What it remembers of a parameter, it remembers from the first step on."""
    after_a_step = cache(partial(_after_a_step, type(optimizer), dict(optimizer.defaults)))
    parameters = [ArrayOf.of(parameter) for group in optimizer.param_groups for parameter in group["params"]]

    def is_state(saved: Any, name: str) -> None:
        known = type(saved) is dict and set(saved) <= set(range(len(parameters)))
        want(known, name, f"a dict by numbers below {len(parameters)}", saved)
        for index, one in saved.items():
            check(one, after_a_step(parameters[index]), f"{name}.{index}")

    groups = plain(optimizer.state_dict()["param_groups"])
    return {"state": is_state, "param_groups": [{name: _setting(name, value) for name, value in group.items()} for group in groups]}


def _setting(name: str, fresh: Any) -> Any:
    """The template of a setting of a group of parameters."""
    if name == "params":
        return exactly(fresh)
    if type(fresh) in (bool, type(None)):  # a choice of how to compute, which is made at the first update
        return Kind("True, False or None", lambda value: type(value) in (bool, type(None)))
    return NUMBER if type(fresh) is int else like(fresh)


def _after_a_step(cls: Any, settings: dict[str, Any], parameter: ArrayOf) -> Any:
    """The template of what such an optimiser remembers of a parameter."""
    for device in ("meta", "cpu"):  # the one takes no memory, and not everything can be computed there
        tried = torch.zeros(parameter.shape, dtype=parameter.dtype, device=device, requires_grad=True)
        tried.grad = torch.zeros_like(tried)
        try:
            optimizer = cls([tried], **settings)
            optimizer.step()
        except Exception:  # one of the user's
            continue
        return {name: _remembered(value) for name, value in optimizer.state[tried].items()}
    return dict


def _remembered(fresh: Any) -> Any:
    if isinstance(fresh, torch.Tensor):
        return like(fresh)
    others = (type(fresh), type(None), bool)
    return Kind("a number, True, False or None", lambda value: type(value) in others or NUMBER.fits(value))


# ---------------------------------------------------------------------- what was seen


def _put_window(name: str) -> Callable[[Model, Any], None]:
    return lambda model, saved: setattr(model, name, deque(saved, model._stats_window_size))


def _put_evaluations(model: Model, saved: list[Any]) -> None:
    found = [Evaluation(timesteps, tuple(returns), tuple(lengths)) for timesteps, returns, lengths in saved]
    model.session.report.evaluations = found


def _put_statistics(model: Model, saved: Any) -> None:
    if saved is not None and model._vec_normalize_env is not None:
        put_statistics(model._vec_normalize_env, saved)


# ---------------------------------------------------------------------- the replay buffer


def columns(buffer: Any) -> dict[str, Array]:
    """The arrays of a replay buffer, by name; infos, which are objects, only where it keeps them."""
    return arrays_of(buffer) | ({"infos": buffer.infos} if getattr(buffer, "copy_info_dict", False) else {})


def filled_columns(buffer: Any) -> dict[str, Array]:
    """The part of each that has been filled; one that has a number for each environment only is whole."""
    filled = _filled(buffer.buffer_size, buffer.pos, buffer.full)
    return {name: column[:filled] if column.ndim > 1 else column for name, column in columns(buffer).items()}


def _filled(size: int, pos: int, full: bool) -> int:
    return size if full else min(pos + 1, size)  # one more: see optimize_memory_usage


def _replay(model: Any) -> Any:
    """The part of the replay buffer that has been filled; a class of the user's is pickled whole."""
    buffer = getattr(model, "replay_buffer", None)
    if buffer is None:
        return None
    if type(buffer) not in BLOCKWISE:
        return {"whole": buffer}
    return {
        "kind": type(buffer).__name__, "size": buffer.buffer_size, "pos": buffer.pos, "full": buffer.full,
        "columns": filled_columns(buffer),
    }  # fmt: skip


def _replay_template(model: Any) -> Any:
    buffer = getattr(model, "replay_buffer", None)
    if buffer is None:
        return type(None)
    if type(buffer) not in BLOCKWISE:
        return {"whole": type(buffer)}
    size = buffer.buffer_size
    same = {"kind": exactly(type(buffer).__name__), "size": exactly(size)}
    arrays = {name: ArrayOf.of(column) for name, column in columns(buffer).items()}

    def is_one(saved: Any, name: str) -> None:
        check(saved, {**same, "pos": whole(0, size), "full": bool, "columns": dict}, name)
        filled = _filled(size, saved["pos"], saved["full"])
        # Nothing of that size is made before the columns are known to have it.
        like_those = {
            key: ArrayOf(one.kind, one.dtype, (filled, *one.shape[1:]) if len(one.shape) > 1 else one.shape)
            for key, one in arrays.items()
        }
        check(saved["columns"], like_those, f"{name}.columns")

    return is_one


def _put_replay(model: Any, saved: Any) -> None:
    if saved is None:
        return
    if "whole" in saved:
        model.replay_buffer = saved["whole"]
        return
    buffer = model.replay_buffer
    buffer.pos, buffer.full = saved["pos"], saved["full"]
    for name, column in columns(buffer).items():
        column[: len(saved["columns"][name])] = saved["columns"][name]


# ---------------------------------------------------------------------- all of it

ENTRIES = {
    "counters": Entry(
        _counters, _put_counters, lambda model: {name: _counter(name, value) for name, value in _counters(model).items()}
    ),
    "policy": Entry(lambda model: dict(model.policy.state_dict()), lambda model, saved: model.policy.load_state_dict(saved)),
    "optimizers": Entry(
        lambda model: {name: optimizer.state_dict() for name, optimizer in _optimizers(model).items()},
        _put_optimizers,
        lambda model: {name: _optimizer(optimizer) for name, optimizer in _optimizers(model).items()},
    ),
    "learned": Entry(_learned, _put_learned),
    "streams": Entry(
        lambda model: {name: streams.state_of(generator) for name, generator in model.session.streams.items()},
        _put_streams,
        lambda model: dict.fromkeys(model.session.streams, stream),
    ),
    "torch_stream": Entry(
        lambda model: model.session.generator.get_state(), lambda model, saved: model.session.generator.set_state(saved)
    ),
    "episodes": Entry(
        lambda model: [dict(info) for info in model.ep_info_buffer or ()], _put_window("ep_info_buffer"), lambda _: Each(dict)
    ),
    "successes": Entry(
        lambda model: [float(one) for one in model.ep_success_buffer or ()], _put_window("ep_success_buffer"), lambda _: Each(REAL)
    ),
    "evaluations": Entry(
        lambda model: [[one.timesteps, list(one.returns), list(one.lengths)] for one in model.evaluations],
        _put_evaluations,
        lambda _: Each([COUNT, Each(REAL), Each(COUNT)]),
    ),
    "normalization": Entry(lambda model: statistics_state(model._vec_normalize_env), _put_statistics),
    "replay_buffer": Entry(_replay, _put_replay, _replay_template),
}  # fmt: skip
"""Everything that a trainer has even without a run, by name."""
