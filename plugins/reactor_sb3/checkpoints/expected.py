"""Templates of a checkpoint's content, for :func:`reactor_sb3.checkpoints.alike.alike`.

Before it is written; and when it is read, before a trainer is made of it (:func:`check_outline`), before anything is put into the
trainer (:func:`expected_state`), and before its run is started (:func:`expected_run`) and goes on (:func:`expected_outputs`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from reactor_rl.plugin import Pickled, WorkerState
from reactor_sb3.acting.player import remembered
from reactor_sb3.checkpoints.alike import LARGE, Each, alike, anything, at_least, is_count, is_number, is_stream, want
from reactor_sb3.checkpoints.parts import filled_columns, outline
from reactor_sb3.environments import seeded_envs
from reactor_sb3.environments.makers import EnvMaker
from reactor_sb3.plain import plain
from reactor_sb3.trainers.options import MOST_THREADS
from reactor_sb3.trainers.program import ProgramConfig, SavedParts, program_of, saved_parts

__all__ = ["Made", "Steps", "check_outline", "expected_outputs", "expected_run", "expected_state"]

_SEEDS = 2**63
"""Seeds are below it, those that are drawn and those that are given."""


def _is_dict(value: Any) -> bool:
    return type(value) is dict


# ---------------------------------------------------------------------- before there is a trainer


def _is_environment(value: Any) -> bool:
    return _is_dict(value) and (list(value) == ["factory"] or (list(value) == ["id"] and type(value["id"]) is str))


def _is_run(value: Any) -> bool:
    if value is not None:
        alike(value, {"reactors": _is_dict, "outputs": _is_dict, "clock": anything}, "a run")
    return True


_OUTLINE: dict[str, Any] = {
    **dict.fromkeys(
        ("counters", "policy", "optimizers", "learned", "streams", "torch_stream", "episodes", "successes", "evaluations",
         "normalization", "replay_buffer"),
        anything,
    ),
    "arguments": lambda value: _is_dict(value) and all(type(name) is str for name in value),
    "environment": _is_environment,
    **dict.fromkeys(("sent", "afresh"), lambda value: type(value) in (bool, type(None))),
    "run": _is_run,
}  # fmt: skip


def check_outline(state: Any, size: int) -> None:
    """Refuse what no trainer could be made from, or only one that is larger than the file says.

    Raises:
        CorruptError: If it is something else.
    """
    alike(state, _OUTLINE, "what is there")
    arguments, run = state["arguments"], state["run"]
    actors, envs = arguments.get("n_actors", 1), arguments.get("envs_per_actor", 1)
    want(isinstance(arguments.get("evaluate_env"), EnvMaker | None), "where evaluations take place")
    want(is_count(actors, 1) and is_count(envs, 1) and actors * envs <= size, "the number of environments", (actors, envs))
    for name in ("learner_threads", "n_learners"):
        count = arguments.get(name, 1)
        want(count is None or (is_count(count, 1) and count <= MOST_THREADS), name, count)
    for name in ("sent", "afresh"):
        want((state[name] is None) == (run is None), name)
    if run is not None:
        others = len(run["reactors"]) - actors - (arguments.get("evaluate_every") is not None)
        want(others in (0, 1), "the number of actors")  # whether there is a referee is known when there is a program


# ---------------------------------------------------------------------- before anything is put into the trainer


class Steps(NamedTuple):
    """The shape of an optimiser's state: all that decides which state it may have.

    Attributes:
        kind: Its class.
        defaults: Its settings.
        groups: Those of each group of parameters.
        parameters: In the order of the state; of what they are, only the shapes and dtypes count.
        remembered: What was found out of :func:`_of_a_step`.
    """

    kind: type[torch.optim.Optimizer]
    defaults: dict[str, Any]
    groups: list[dict[str, Any]]
    parameters: list[torch.Tensor]
    remembered: dict[tuple[Any, ...], dict[str, Any] | None]

    @classmethod
    def of(cls, optimizer: torch.optim.Optimizer) -> Steps:
        """Describe an optimiser as it is, without keeping its arrays."""
        parameters = [outline(parameter) for group in optimizer.param_groups for parameter in group["params"]]
        return cls(type(optimizer), dict(optimizer.defaults), plain(optimizer.state_dict()["param_groups"]), parameters, {})


class Made(NamedTuple):
    """The shape of the state of a trainer that was made from the same arguments, as it is when the state is read again.

    Attributes:
        state: That state, of whose arrays only the shapes and dtypes count.
        optimizers: By name.
        buffer: The replay buffer, ``None`` if it has none; likewise.
        buffer_class: Its class.
    """

    state: dict[str, Any]
    optimizers: dict[str, Steps]
    buffer: Any
    buffer_class: type[Any]


def expected_state(made: Made) -> dict[str, Any]:
    """The template of a trainer's state."""
    fresh = made.state
    return {
        **fresh,
        **dict.fromkeys(
            ("arguments", "environment", "sent", "afresh", "run"), anything
        ),  # checked before, and when there is a program
        "counters": {name: _counter(name, value) for name, value in fresh["counters"].items()},
        "optimizers": {name: _optimizer(steps) for name, steps in made.optimizers.items()},
        "streams": dict.fromkeys(fresh["streams"], is_stream),
        "torch_stream": _torch_stream(fresh["torch_stream"]),
        "episodes": Each(lambda one: _is_dict(one) and _is_one_number(one.get("r")) and _is_one_number(one.get("l"))),
        "successes": Each(lambda one: type(one) in (int, float)),
        "evaluations": Each(_is_evaluation),
        "replay_buffer": _replay(fresh["replay_buffer"], made),
    }


def _counter(name: str, fresh: Any) -> Callable[[Any], bool]:
    if name == "_base_seed":
        return lambda value: type(value) is int and 0 <= value < _SEEDS
    if name == "_total_timesteps":  # learn(float("inf")) goes on until a callback ends it
        return lambda value: type(value) in (int, float) and value >= 0
    whole = not isinstance(fresh, float)
    # Nothing is learned yet at -1; and a last round that does not fit into what was asked for ends after it.
    below = name in ("_learned_timesteps", "_current_progress_remaining")
    return lambda value: is_number(value) and (type(value) is int or not whole) and (below or value >= 0)


def _torch_stream(fresh: torch.Tensor) -> Callable[[Any], bool]:
    def is_one(value: Any) -> bool:
        alike(value, fresh, "torch_stream")
        torch.Generator().set_state(value)
        return True

    return is_one


def _is_one_number(value: Any) -> bool:
    return is_number(value) or (type(value) is np.ndarray and value.size == 1 and value.dtype.kind in "iuf")


def _are_episodes(returns: Any, lengths: Any) -> bool:
    if type(returns) is not list or type(lengths) is not list or len(returns) != len(lengths):
        return False
    return all(type(one) in (int, float) for one in returns) and all(map(is_count, lengths))


def _is_evaluation(value: Any) -> bool:
    return type(value) is list and len(value) == 3 and is_count(value[0]) and _are_episodes(*value[1:]) and bool(value[1])


def _optimizer(steps: Steps) -> dict[str, Any]:
    """The template of an optimiser's state. What it remembers of a parameter, it remembers from the first step on."""

    def is_one(saved: Any, parameter: torch.Tensor) -> bool:
        kind = parameter.shape, parameter.dtype
        if kind not in steps.remembered:
            steps.remembered[kind] = _of_a_step(steps, parameter)
        return _is_remembered(saved, steps.remembered[kind])

    def is_state(saved: Any) -> bool:
        return (
            _is_dict(saved)
            and set(saved) <= set(range(len(steps.parameters)))
            and all(is_one(one, steps.parameters[index]) for index, one in saved.items())
        )

    groups = [{name: _setting(name, value) for name, value in group.items()} for group in steps.groups]
    return {"state": is_state, "param_groups": groups}


def _setting(name: str, fresh: Any) -> Any:
    """The template of a setting of a group of parameters."""
    if name == "params":
        return lambda value: type(value) is list and value == fresh
    if type(fresh) in (bool, type(None)):  # a choice of how to compute, which is made at the first update
        return lambda value: type(value) in (bool, type(None))
    return is_number if type(fresh) is int else fresh


def _is_remembered(saved: Any, kinds: Mapping[str, Any] | None) -> bool:
    """Whether it is what an optimiser remembers of a parameter; see :func:`_of_a_step`."""
    if not _is_dict(saved) or kinds is None:
        return _is_dict(saved)
    if saved.keys() != kinds.keys():
        return False
    for name, kind in kinds.items():
        value = saved[name]
        if isinstance(kind, torch.Tensor):
            fits = isinstance(value, torch.Tensor) and (value.shape, value.dtype) == (kind.shape, kind.dtype)
        else:
            fits = value is None or type(value) is bool or is_number(value) or type(value) is type(kind)
        if not fits:
            return False
    return True


def _of_a_step(steps: Steps, like: torch.Tensor) -> dict[str, Any] | None:
    """The state that such an optimiser has for a parameter after a step; ``None`` if it cannot be tried."""
    for device in ("meta", "cpu"):  # the one takes no memory, and not everything can be computed there
        parameter = torch.zeros(like.shape, dtype=like.dtype, device=device, requires_grad=True)
        parameter.grad = torch.zeros_like(parameter)
        try:
            kind: Any = steps.kind
            other = kind([parameter], **steps.defaults)
            other.step()
        except Exception:  # one of the user's
            continue
        return dict(other.state[parameter])
    return None


def _replay(fresh: Any, made: Made) -> Any:
    """The template of a replay buffer's state, of which only what is filled is saved; a class of the user's is saved whole."""
    if fresh is None:
        return None
    if "whole" in fresh:
        return lambda saved: _is_dict(saved) and type(saved.get("whole")) is made.buffer_class
    size = made.buffer.buffer_size

    def is_one(saved: Any) -> bool:
        asked = {"asked": Each(lambda one: type(one) is Pickled)} if "asked" in saved else {}
        alike(saved, {"pos": is_count, "full": False, "columns": _is_dict, **asked}, "replay_buffer")
        pos = saved["pos"]
        filled = size if saved["full"] else min(pos + 1, size)
        # Nothing of that size is made: it is compared with a view of what is there.
        alike(saved["columns"], filled_columns(made.buffer, filled), "replay_buffer")
        return bool(pos < size)

    return is_one


# ---------------------------------------------------------------------- before its run goes on


def expected_run(config: ProgramConfig, whole_infos: bool) -> dict[str, Any]:
    """The template of the state of a program's run, before it takes any memory.

    Args:
        config: The program's configuration.
        whole_infos: Whether infos are kept, which are objects.
    """
    actors = config.actors
    actions = next(field.dtype for field in actors.policy.fields if field.name == "actions")

    fresh = actors.policy.memory(range(actors.envs))

    def is_memory(saved: Any) -> bool:
        if type(fresh) is dict:
            alike(saved, fresh, "what a policy remembers")
        return type(saved) is type(fresh)

    def is_env(saved: Any) -> bool:
        seeded_envs.check(saved, actors.action_space, actions)
        return True

    def is_evaluator(saved: Any, drawn: bool = False) -> bool:
        evaluator = {
            "envs": [is_env],
            "snapshot": np.zeros((), config.parameters.dtype),
            "began": lambda began: began is None or is_count(began),
            "wait": at_least(-LARGE),
            **dict.fromkeys(("returns", "lengths"), anything),
            **({} if (memory := remembered(actors.policy, 1)) is None else {"memory": memory}),
            **({"drawn": is_stream} if drawn or actors.policy.draws else {}),
        }
        alike(saved, evaluator, "the evaluator")
        return _are_episodes(saved["returns"], saved["lengths"])

    actor = {"random": is_stream, "memory": is_memory, "envs": [is_env] * actors.envs}
    kinds: dict[str, Any] = {"Actor": actor, "Evaluator": is_evaluator, "referee": partial(is_evaluator, drawn=True)}
    topology = program_of(config.saved).topology()
    named = saved_parts(topology, topology)
    ports = {name: topology.outputs[index] for name, index in named.outputs.items()}
    return {
        "reactors": {name: kinds.get(name, kinds[topology.reactors[index].kind]) for name, index in named.reactors.items()},
        "outputs": {
            name: {"stamps": Each(at_least(-1)), "slots": _objects(whole_infos) if port.dtype is None else _slots(port)}
            for name, port in ports.items()
        },
        "clock": (is_count, is_count),
    }


def _slots(port: Any) -> Callable[[Any], bool]:
    def is_one(slot: Any) -> bool:
        return type(slot) is np.ndarray and slot.shape == port.shape and slot.dtype == port.dtype

    return lambda saved: type(saved) is list and len(saved) > 0 and all(map(is_one, saved))


def _objects(kept: bool) -> Callable[[Any], bool]:
    def are_some(saved: Any) -> bool:
        return kept and type(saved) is list and all(one is None or type(one) is Pickled for one in saved)

    return lambda saved: saved is None or are_some(saved)


def expected_outputs(fresh: WorkerState, outputs: Mapping[str, Any], named: SavedParts) -> dict[str, Any]:
    """The template of the ports of a run, given those of a run that has just started.

    Args:
        fresh: The one that has just started.
        outputs: The saved ones, as in :func:`expected_run`.
        named: Where they are in the one that has just started.
    """
    expected: dict[str, Any] = {}
    for name, saved in outputs.items():
        stamps, slots = fresh.outputs[named.outputs[name]]
        # A run may keep arrays in other numbers of slots than another one does.
        objects = saved["slots"] is not None and not any(isinstance(slot, np.ndarray) for slot in saved["slots"])
        expected[name] = {"stamps": [anything] * len(stamps), "slots": [anything] * len(slots) if objects else anything}
    return expected
