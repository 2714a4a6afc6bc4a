"""The state of a trainer's run in a checkpoint: actors, evaluator and referee with their environments, and messages under way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from reactor_rl.plugin import Pickled, WorkerState, decode, dumps, loads
from reactor_sb3.acting.player import remembered
from reactor_sb3.checkpoints.content import ENTRIES
from reactor_sb3.checkpoints.templates import (
    ANYTHING,
    COUNT,
    LARGE,
    REAL,
    ArrayOf,
    Each,
    Kind,
    check,
    like,
    stream,
    want,
    whole,
)
from reactor_sb3.trainers.model import Model
from reactor_sb3.trainers.program import ProgramConfig, program_of, saved_parts

__all__ = ["OUTLINE", "go_on", "run_state", "run_template", "saved_env"]


def run_state(model: Model) -> dict[str, Any] | None:
    """The state of a trainer's run, between two rounds; ``None`` if it has none."""
    if model._run is None:
        return None
    session, part = model.session, model._run.snapshot().part
    named = session.saved_parts
    return {
        "reactors": {name: _lasting(loads(part.reactors[index])) for name, index in named.reactors.items()},
        "outputs": {
            name: {
                "stamps": part.outputs[index][0],
                "slots": slots if model.wants_infos or all(isinstance(slot, np.ndarray) for slot in slots) else None,
            }
            for name, index in named.outputs.items()
            for slots in [part.outputs[index][1]]
        },
        "clock": part.clock,
        "sent": session.sent == session.parameters(model).tobytes(),
        "afresh": session.afresh,
        "asked": [Pickled(dumps(one)) for one in ([] if session.goals is None else session.goals.asked)],
    }


def _lasting(state: dict[str, Any]) -> dict[str, Any]:
    """Without how an actor has been told to act: a trainer that is made from its settings of now tells it again."""
    return {name: value for name, value in state.items() if name != "told"}


# ---------------------------------------------------------------------- what may stand there

OUTLINE = {
    "reactors": dict, "outputs": dict, "clock": (COUNT, COUNT), "sent": bool, "afresh": bool, "asked": Each(Pickled),
}  # fmt: skip


def run_template(config: ProgramConfig, whole_infos: bool) -> dict[str, Any]:
    """The template of the state of a program's run, before it takes any memory.

    Args:
        config: The program's configuration.
        whole_infos: Whether infos are kept, which are objects.
    """
    actors = config.actors
    env = saved_env(actors.action_space, next(field.dtype for field in actors.policy.fields if field.name == "actions"))
    memory = actors.policy.memory(range(actors.envs))
    actor = {"random": stream, "memory": like(memory) if type(memory) is dict else type(memory), "envs": [env] * actors.envs}
    evaluator = {
        "envs": [env],
        "snapshot": like(np.zeros((), config.parameters.dtype)),
        "began": Kind("None or a whole number", lambda began: began is None or COUNT.fits(began)),
        "wait": whole(-LARGE),
        "returns": Each(REAL),
        "lengths": Each(COUNT),
    }
    if (kept := remembered(actors.policy, 1)) is not None:
        evaluator["memory"] = like(kept)
    drawn = {**evaluator, "drawn": stream}
    kinds: dict[str, Any] = {
        "Actor": actor,
        "Evaluator": drawn if actors.policy.draws else evaluator,
        "referee": drawn,
    }
    topology = program_of(config.saved).topology()
    named = saved_parts(topology, topology)
    ports = {name: topology.outputs[index] for name, index in named.outputs.items()}
    return {
        **OUTLINE,
        "reactors": {name: kinds.get(name, kinds[topology.reactors[index].kind]) for name, index in named.reactors.items()},
        "outputs": {
            name: {
                "stamps": Each(whole(-1)),
                "slots": _slots(port, whole_infos),
            }
            for name, port in ports.items()
        },
    }


def _slots(port: Any, whole_infos: bool) -> Kind:
    """The template of what is under way at a port: arrays, or infos, which are objects, where somebody wants any."""
    if port.dtype is None:
        kinds = (type(None), Pickled) if whole_infos else ()
        said = "None or pickles" if whole_infos else "None"
        return Kind(said, lambda slots: slots is None or (type(slots) is list and all(type(one) in kinds for one in slots)))
    array = ArrayOf("array", port.dtype, port.shape)
    return Kind(f"a list of {array}", lambda slots: type(slots) is list and len(slots) > 0 and all(map(array.fits, slots)))


def saved_env(actions: gymnasium.Space[Any], dtype: np.dtype[Any]) -> Callable[[Any, str], None]:
    """The template of an environment's state, see :meth:`reactor_sb3.environments.seeded_envs.SeededEnvs.saved`.

    Only what is a :class:`~reactor_rl.plugin.Pickled` by its type will be unpickled.

    Args:
        actions: The space of its actions.
        dtype: Their dtype.
    """
    begun = {"way": ANYTHING, "episode": COUNT, "length": COUNT, "total": REAL}
    ways: dict[Any, dict[str, Any]] = {
        None: {**begun, "episode": whole(-1)},
        "state": {**begun, "state": Pickled, "logged": COUNT},
        "replay": {**begun, "seed": whole(0, 2**31), "actions": partial(_actions, space=actions, dtype=dtype)},
    }

    def is_one(saved: Any, name: str) -> None:
        check(saved, dict, name)
        way = saved.get("way", "")
        want(way is None or (type(way) is str and way in ways), f"{name}.way", "None, 'state' or 'replay'", way)
        check(saved, ways[way], name)
        want(saved["episode"] >= 0 or saved["length"] == 0, f"{name}.length", "0 before the first episode", saved["length"])

    return is_one


def _actions(saved: Any, name: str, space: gymnasium.Space[Any], dtype: np.dtype[Any]) -> None:
    """Template of the actions since a seeded reset."""
    steps = len(saved) if type(saved) is np.ndarray and saved.ndim else 0
    check(saved, ArrayOf("array", dtype, (steps, *(space.shape or ()))), name)
    want(_are_actions(saved, space), name, f"actions of {space}", saved)


def _are_actions(taken: np.ndarray[Any, Any], actions: gymnasium.Space[Any]) -> bool:
    """Whether an environment may have been given them. A bound of a ``Box`` may be missed by a last bit, where one is reckoned."""
    match actions:
        case spaces.Box():
            return bool(np.isfinite(taken).all())
        case spaces.Discrete(n=choices, start=first):
            return bool(((taken >= first) & (taken < first + choices)).all())
        case spaces.Dict(spaces=parts):
            return all(_are_actions(taken[name], part) for name, part in parts.items())
    return all(map(actions.contains, taken))


# ---------------------------------------------------------------------- another run


def go_on(model: Model, saved: Mapping[str, Any] | None, replay_buffer: Any, normalization: Any) -> None:
    """Start the run of a trainer and make it the one that was saved, if there was one.

    Raises:
        CorruptError: If it is not one of this trainer.
    """
    if saved is None:
        ENTRIES["replay_buffer"].put(model, replay_buffer)
        return
    run = model.start()
    fresh = run.snapshot()
    _overlay(fresh.part, saved, model)
    run.restore(fresh)
    model.session.sent = model.session.parameters(model).tobytes() if saved["sent"] else None
    # After the start, which would mark the end of episodes that go on.
    ENTRIES["replay_buffer"].put(model, replay_buffer)
    for one in saved["asked"]:
        model.session.goal_env().follow(decode(one))
    ENTRIES["normalization"].put(model, normalization)
    model.session.afresh = saved["afresh"]
    actors = [state for state in (saved["reactors"][name] for name in model.session.saved_parts.reactors) if "random" in state]
    begun = np.array([one["way"] is None and one["episode"] >= 0 for actor in actors for one in actor["envs"]], np.bool_)
    if model.pipeline:
        model.session.late_cut = begun
    else:
        model.cut_episodes(begun)


def _overlay(part: WorkerState, saved: Mapping[str, Any], model: Model) -> None:
    """Make the snapshot of a run that has just started one of the run that was saved."""
    named = model.session.saved_parts
    for name, state in saved["reactors"].items():
        part.reactors[named.reactors[name]] = dumps(state)
    for name, output in saved["outputs"].items():
        index, stamps, slots = named.outputs[name], output["stamps"], output["slots"]
        own_stamps, own_slots = part.outputs[index]
        check(stamps, [ANYTHING] * len(own_stamps), f"state.run.outputs.{name}.stamps")
        # A run may keep arrays in other numbers of slots than another one does.
        if slots is not None and not any(isinstance(slot, np.ndarray) for slot in slots):
            check(slots, [ANYTHING] * len(own_slots), f"state.run.outputs.{name}.slots")
        part.outputs[index] = stamps, own_slots if slots is None else slots
    part.clock = saved["clock"]
