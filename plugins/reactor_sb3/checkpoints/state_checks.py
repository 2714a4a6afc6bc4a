"""What is checked of a checkpoint before anything of it is put into a trainer; see :mod:`reactor_sb3.checkpoints.checks`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from reactor_sb3.checkpoints.checks import alike, are_episodes, check_stream, is_count, is_number, want
from reactor_sb3.checkpoints.parts import columns

__all__ = ["check_state"]


def check_state(
    state: dict[str, Any], fresh: Mapping[str, Any], optimizers: Mapping[str, torch.optim.Optimizer], buffer: Any
) -> None:
    """Refuse what does not fit a trainer that was just made.

    Args:
        state: What was saved.
        fresh: The trainer's own.
        optimizers: The trainer's, by name.
        buffer: The trainer's replay buffer, ``None`` if it has none.

    Raises:
        CorruptError: If anything is something else.
    """
    counters, expected = state["counters"], fresh["counters"]
    want(type(counters) is dict and counters.keys() == expected.keys(), "the counters")
    for name, value in counters.items():
        whole = not isinstance(expected[name], float) and name != "_total_timesteps"  # learn(1e6) is usual
        want(is_number(value) and (type(value) is int or not whole), name)
        # Nothing is learned yet at -1; and a last round that does not fit into what was asked for ends after it.
        want(value >= 0 or name in ("_learned_timesteps", "_current_progress_remaining"), name)
    alike(state["policy"], fresh["policy"], "policy")
    alike(state["normalization"], fresh["normalization"], "normalization")
    alike(state["learned"], fresh["learned"], "what is learned besides")
    want(type(state["optimizers"]) is dict and state["optimizers"].keys() == optimizers.keys(), "the optimizers")
    for name, optimizer in optimizers.items():
        _check_optimizer(optimizer, state["optimizers"][name])
    streams = fresh["streams"]
    want(type(state["streams"]) is dict and state["streams"].keys() == streams.keys(), "the random streams")
    for name, stream in streams.items():
        check_stream(state["streams"][name], stream)
    alike(state["torch_stream"], fresh["torch_stream"], "torch_stream")
    torch.Generator().set_state(state["torch_stream"])
    for name in ("episodes", "successes", "evaluations"):
        want(type(state[name]) is list, name)
    for one in state["episodes"]:
        want(type(one) is dict and is_number(one.get("r")) and is_number(one.get("l")), "an episode")
    want(all(map(is_number, state["successes"])), "successes")
    for one in state["evaluations"]:
        want(type(one) is list and len(one) == 3 and is_count(one[0]) and are_episodes(*one[1:]) and bool(one[1]), "an evaluation")
    _check_replay(state["replay_buffer"], fresh["replay_buffer"], buffer)


def _check_optimizer(optimizer: torch.optim.Optimizer, saved: Any) -> None:
    fresh = optimizer.state_dict()
    want(type(saved) is dict and saved.keys() == fresh.keys(), "the optimizer")
    groups = saved["param_groups"]
    want(type(groups) is list and len(groups) == len(fresh["param_groups"]), "the optimizer's groups")
    for group, model in zip(groups, fresh["param_groups"], strict=True):
        want(type(group) is dict and group.keys() == model.keys(), "the optimizer's groups")
        for name, value in group.items():
            if type(model[name]) in (bool, type(None)):  # a choice of how to compute, which is made at the first update
                want(type(value) in (bool, type(None)), f"the optimizer's {name}")
            elif type(model[name]) is int and name != "params":
                want(is_number(value), f"the optimizer's {name}")
            else:
                alike(value, model[name], f"the optimizer's {name}")
        want(group["params"] == model["params"], "the optimizer's parameters")
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    want(type(saved["state"]) is dict and set(saved["state"]) <= set(range(len(parameters))), "the optimizer's state")
    kinds = _of_a_step(optimizer)
    for index, of_one in saved["state"].items():
        want(type(of_one) is dict, "the optimizer's state")
        if kinds is not None:
            want(of_one.keys() == kinds.keys(), "the optimizer's state")
        for name, value in of_one.items():
            if isinstance(value, torch.Tensor):
                shape, dtype = parameters[index].shape, parameters[index].dtype
                scalar = kinds is not None and isinstance(kinds[name], torch.Tensor) and kinds[name].ndim == 0
                want(value.dtype == dtype and value.shape == (() if scalar else shape), f"the optimizer's {name}")
            else:
                want(value is None or is_number(value), f"the optimizer's {name}")
                want(kinds is None or not isinstance(kinds[name], torch.Tensor), f"the optimizer's {name}")


def _of_a_step(optimizer: torch.optim.Optimizer) -> dict[str, Any] | None:
    """What such an optimizer remembers of a parameter; None if it cannot be tried."""
    parameter = torch.zeros(2, requires_grad=True)
    parameter.grad = torch.zeros(2)
    try:
        kind: Any = type(optimizer)
        other = kind([parameter], **optimizer.defaults)
        other.step()
    except Exception:  # one of the user's
        return None
    return dict(other.state[parameter])


def _check_replay(saved: Any, fresh: Any, buffer: Any) -> None:
    if fresh is None or "whole" in fresh:
        want(saved is None if buffer is None else type(saved) is dict and type(saved.get("whole")) is type(buffer), "replay_buffer")
        return
    want(type(saved) is dict and saved.keys() == {"pos", "full", "columns"}, "replay_buffer")
    pos, full, arrays = saved["pos"], saved["full"], saved["columns"]
    want(is_count(pos) and pos < buffer.buffer_size and type(full) is bool, "where the replay buffer ends")
    filled = buffer.buffer_size if full else min(pos + 1, buffer.buffer_size)
    expected = columns(buffer)
    want(type(arrays) is dict and arrays.keys() == expected.keys(), "the replay buffer's arrays")
    for name, array in arrays.items():
        want(type(array) is np.ndarray and array.dtype == expected[name].dtype, f"replay_buffer.{name}")
        want(array.shape == (filled, *expected[name].shape[1:]), f"replay_buffer.{name}")
