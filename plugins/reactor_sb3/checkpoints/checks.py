"""What a checkpoint must look like to be put into a trainer: like one of a trainer that was just made from its arguments.

A file can say anything. Nothing in it becomes an attribute, a size or a position before it has been compared with what is there
already, and what is to be made new is first held against what the file really contains.
"""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt
import torch
from gymnasium.spaces import flatdim
from stable_baselines3.common.vec_env import VecEnv

from reactor_rl.plugin import Pickled, Topology, WorkerState
from reactor_sb3.checkpoints.archive import CorruptError
from reactor_sb3.checkpoints.parts import columns
from reactor_sb3.environments import kept_env
from reactor_sb3.environments.makers import EnvMaker
from reactor_sb3.training.arguments import NOT_KEPT
from reactor_sb3.training.specification import Specification

__all__ = [
    "alike",
    "check_arguments",
    "check_outline",
    "check_policy",
    "check_run",
    "check_run_parts",
    "check_state",
    "want",
]

Array = npt.NDArray[Any]
_LARGE = 2**62
_MOST_THREADS = 1024
_LARGEST_BATCH = 2**30
"""Bytes of the observations and activations of a batch, where nobody vouches for the file."""


def want(holds: bool, what: str) -> None:
    """Say that something is not as it would have been saved, unless it is.

    Raises:
        CorruptError: If it is not.
    """
    if not holds:
        raise CorruptError(f"{what} cannot have been saved")


def alike(value: Any, model: Any, what: str) -> None:
    """Refuse a value that is not of the kind, the keys, the shape and the dtype of another one; numbers may be others.

    Raises:
        CorruptError: If it is not.
    """
    if isinstance(model, float):
        want(_number(value), what)
        return
    want(type(value) is type(model), what)
    if isinstance(value, (np.ndarray, torch.Tensor)):
        want(value.shape == model.shape and value.dtype == model.dtype, what)
    elif isinstance(value, dict):
        want(value.keys() == model.keys(), what)
        for key, part in value.items():
            alike(part, model[key], f"{what}.{key}")
    elif isinstance(value, (list, tuple)):
        want(len(value) == len(model), what)
        for part, like in zip(value, model, strict=True):
            alike(part, like, what)


def _number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < _LARGE and math.isfinite(value)


def _count(value: Any, low: int = 0) -> bool:
    return type(value) is int and low <= value < _LARGE


# ---------------------------------------------------------------------- before a trainer is made


def check_outline(state: Any, size: int) -> None:
    """Refuse what no trainer could be made from, or only one that is larger than the file says.

    Args:
        state: What was saved.
        size: Of the file, bytes.

    Raises:
        CorruptError: If it is something else.
    """
    names = {
        "arguments", "environment", "counters", "policy", "optimizers", "learned", "streams", "torch_stream", "episodes",
        "successes", "evaluations", "normalization", "replay_buffer", "sent", "run",
    }  # fmt: skip
    want(type(state) is dict and state.keys() == names, "what is there")
    arguments, environment, run = state["arguments"], state["environment"], state["run"]
    want(type(arguments) is dict and all(type(name) is str for name in arguments), "arguments")
    want(type(environment) is dict and list(environment) in (["id"], ["factory"]), "an environment")
    want(environment.keys() == {"factory"} or type(environment["id"]) is str, "an environment's id")
    actors, envs, threads = (arguments.get(name, 1) for name in ("n_actors", "envs_per_actor", "learner_threads"))
    want(isinstance(arguments.get("evaluate_env"), EnvMaker | None), "where evaluations take place")
    want(_count(actors, 1) and _count(envs, 1) and actors * envs <= size, "the number of environments")
    want(_count(threads, 1) and threads <= _MOST_THREADS, "learner_threads")
    learners = arguments.get("n_learners", 1)
    want(_count(learners, 1) and learners <= _MOST_THREADS, "n_learners")
    want((state["sent"] is None) == (run is None) and type(state["sent"]) in (bool, type(None)), "sent")
    if run is not None:
        want(type(run) is dict and run.keys() == {"reactors", "outputs", "clock"}, "a run")
        want(type(run["reactors"]) is dict and type(run["outputs"]) is dict, "a run")
        want(len(run["reactors"]) == actors + (arguments.get("evaluate_every") is not None), "the number of actors")


def check_arguments(cls: type[Any], arguments: Mapping[str, Any]) -> None:
    """Refuse arguments that the constructor does not have, and plain values that are none of what it says it takes.

    Raises:
        CorruptError: If there are any.
    """
    parameters = inspect.signature(cls).parameters
    known = set(parameters) - NOT_KEPT
    want(known >= arguments.keys() or any(one.kind is one.VAR_KEYWORD for one in parameters.values()), "an argument")
    try:
        hints = get_type_hints(cls.__init__)
    except NameError:  # a class of the user's that only a type checker understands
        hints = {}
    for name, value in arguments.items():
        if isinstance(value, (type(None), bool, int, float, str, list, tuple, dict, np.ndarray, torch.Tensor, Pickled)):
            hint = hints.get(name, Any)
            want(any(_fits(value, one) for one in (get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,))), name)


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if hint is float:  # infinity switches some things off
        return (isinstance(value, float) and not math.isnan(value)) or _fits(value, int)
    if hint is int:  # some say True for 1, or 32.0
        return isinstance(value, (bool, int, float)) and abs(value) < _LARGE and value == int(value)
    return hint is Any or type(value) in (hint, get_origin(hint)) or (hint is bool and type(value) is int and value in (0, 1))


def check_policy(policy_class: type[Any], arguments: Mapping[str, Any], env: VecEnv, weights: Any) -> None:
    """Refuse weights that are not those of the policy that the arguments describe, before it takes any memory.

    Args:
        policy_class: Of the policy.
        arguments: Of the trainer's constructor, plain data.
        env: As the policy sees it.
        weights: The policy's, as saved.

    Raises:
        CorruptError: If they are not.
    """
    kwargs = arguments.get("policy_kwargs") or {}
    want(type(kwargs) is dict, "policy_kwargs")
    if "use_sde" in arguments:
        kwargs = {"use_sde": arguments["use_sde"], **kwargs}
    outline = type(policy_class.__name__, (policy_class,), {"device": torch.device("meta")})
    with torch.device("meta"), _unchecked_distributions():
        state = outline(env.observation_space, env.action_space, lambda _: 1e-3, **kwargs).state_dict()
    alike(weights, dict(state), "policy")
    batch = arguments.get("batch_size", 1)
    row = flatdim(env.observation_space) + sum(len(part) for part in weights.values() if part.ndim)
    want(_count(batch, 1) and batch * row * 4 <= _LARGEST_BATCH, "batch_size")


@contextlib.contextmanager
def _unchecked_distributions() -> Iterator[None]:
    """Let torch make distributions of what has no values to check."""
    checked = torch.distributions.Distribution._validate_args
    torch.distributions.Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        torch.distributions.Distribution.set_default_validate_args(checked)


# ---------------------------------------------------------------------- before anything is put into it


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
        want(_number(value) and (type(value) is int or not whole), name)
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
        _check_stream(state["streams"][name], stream)
    alike(state["torch_stream"], fresh["torch_stream"], "torch_stream")
    torch.Generator().set_state(state["torch_stream"])
    for name in ("episodes", "successes", "evaluations"):
        want(type(state[name]) is list, name)
    for one in state["episodes"]:
        want(type(one) is dict and _number(one.get("r")) and _number(one.get("l")), "an episode")
    want(all(map(_number, state["successes"])), "successes")
    for one in state["evaluations"]:
        want(type(one) is list and len(one) == 3 and _count(one[0]) and _played(*one[1:]) and bool(one[1]), "an evaluation")
    _check_replay(state["replay_buffer"], fresh["replay_buffer"], buffer)


def _played(returns: Any, lengths: Any) -> bool:
    """Whether these are returns and lengths of episodes."""
    if type(returns) is not list or type(lengths) is not list or len(returns) != len(lengths):
        return False
    return all(type(one) in (int, float) for one in returns) and all(map(_count, lengths))


def _check_stream(saved: Any, fresh: dict[str, Any]) -> None:
    alike(saved, fresh, "a random stream")
    np.random.PCG64().state = saved


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
                want(_number(value), f"the optimizer's {name}")
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
                want(value is None or _number(value), f"the optimizer's {name}")
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
    want(_count(pos) and pos < buffer.buffer_size and type(full) is bool, "where the replay buffer ends")
    filled = buffer.buffer_size if full else min(pos + 1, buffer.buffer_size)
    expected = columns(buffer)
    want(type(arrays) is dict and arrays.keys() == expected.keys(), "the replay buffer's arrays")
    for name, array in arrays.items():
        want(type(array) is np.ndarray and array.dtype == expected[name].dtype, f"replay_buffer.{name}")
        want(array.shape == (filled, *expected[name].shape[1:]), f"replay_buffer.{name}")


# ---------------------------------------------------------------------- before the run is started, and before it goes on


def check_run(run: dict[str, Any], specification: Specification, topology: Topology, whole_infos: bool) -> None:
    """Refuse the state of a run that is not one of this program's, before it takes any memory.

    Args:
        run: What was saved.
        specification: What the program is made from.
        topology: The program.
        whole_infos: Whether infos are kept, which are objects.

    Raises:
        CorruptError: If it is not.
    """
    reactors = {node.index: node.kind for node in topology.reactors if node.kind in ("Actor", "Evaluator")}
    want(run["reactors"].keys() == reactors.keys(), "the reactors")
    actions = specification.actors.record["actions"].base
    for index, state in run["reactors"].items():
        actor = reactors[index] == "Actor"
        names = {"random", "memory", "envs"} if actor else {"envs", "snapshot", "began", "wait", "returns", "lengths"}
        want(type(state) is dict and state.keys() == names and type(state["envs"]) is list, "a reactor")
        want(len(state["envs"]) == (specification.actors.envs if actor else 1), "a reactor's environments")
        for saved in state["envs"]:
            kept_env.check(saved, specification.actors.action_space, actions)
        if actor:
            _check_stream(state["random"], dict(np.random.PCG64().state))
            fresh = specification.actors.behaviour.memory(0, specification.actors.envs)
            want(type(state["memory"]) is type(fresh), "what an actor remembers")
        else:
            alike(state["snapshot"], np.zeros((), specification.parameters.dtype), "the evaluated parameters")
            want((state["began"] is None or _count(state["began"])) and _count(state["wait"], -_LARGE), "the evaluator")
            want(_played(state["returns"], state["lengths"]), "the evaluator's episodes")
    outputs = {output.index: output for output in topology.outputs}
    want(run["outputs"].keys() == outputs.keys(), "the ports")
    for index, saved in run["outputs"].items():
        port = outputs[index]
        want(type(saved) is dict and saved.keys() == {"stamps", "slots"} and type(saved["stamps"]) is list, "a port")
        want(all(_count(stamp, -1) for stamp in saved["stamps"]), "what is present on a port")
        slots = saved["slots"]
        if port.dtype is None:
            want(slots is None or whole_infos, "what is on a port")
            want(slots is None or (type(slots) is list and all(one is None or type(one) is Pickled for one in slots)), "a port")
        else:
            want(type(slots) is list and len(slots) > 0, "what is on a port")
            for slot in slots:
                want(type(slot) is np.ndarray and slot.shape == port.shape and slot.dtype == port.dtype, "what is on a port")
    clock = run["clock"]
    want(type(clock) is tuple and len(clock) == 2 and all(map(_count, clock)), "the clock")


def check_run_parts(fresh: WorkerState, run: dict[str, Any]) -> None:
    """Refuse what does not fit the memory of the run that was just started.

    Raises:
        CorruptError: If it does not.
    """
    for index, saved in run["outputs"].items():
        stamps, slots = fresh.outputs[index]
        want(len(saved["stamps"]) == len(stamps), "what is present on a port")
        want(saved["slots"] is None or isinstance(saved["slots"][0], np.ndarray) or len(saved["slots"]) == len(slots), "a port")
