"""What is checked of a checkpoint before its run is started, and before it goes on; see :mod:`reactor_sb3.checkpoints.checks`."""

from __future__ import annotations

from typing import Any

import numpy as np

from reactor_rl.plugin import Pickled, Topology, WorkerState
from reactor_sb3.checkpoints.checks import LARGE, alike, are_episodes, check_stream, is_count, want
from reactor_sb3.environments import kept_env
from reactor_sb3.training.specification import Specification

__all__ = ["check_run", "check_run_parts"]


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
            check_stream(state["random"], dict(np.random.PCG64().state))
            fresh = specification.actors.behaviour.memory(0, specification.actors.envs)
            want(type(state["memory"]) is type(fresh), "what an actor remembers")
        else:
            alike(state["snapshot"], np.zeros((), specification.parameters.dtype), "the evaluated parameters")
            want((state["began"] is None or is_count(state["began"])) and is_count(state["wait"], -LARGE), "the evaluator")
            want(are_episodes(state["returns"], state["lengths"]), "the evaluator's episodes")
    outputs = {output.index: output for output in topology.outputs}
    want(run["outputs"].keys() == outputs.keys(), "the ports")
    for index, saved in run["outputs"].items():
        port = outputs[index]
        want(type(saved) is dict and saved.keys() == {"stamps", "slots"} and type(saved["stamps"]) is list, "a port")
        want(all(is_count(stamp, -1) for stamp in saved["stamps"]), "what is present on a port")
        slots = saved["slots"]
        if port.dtype is None:
            want(slots is None or whole_infos, "what is on a port")
            want(slots is None or (type(slots) is list and all(one is None or type(one) is Pickled for one in slots)), "a port")
        else:
            want(type(slots) is list and len(slots) > 0, "what is on a port")
            for slot in slots:
                want(type(slot) is np.ndarray and slot.shape == port.shape and slot.dtype == port.dtype, "what is on a port")
    clock = run["clock"]
    want(type(clock) is tuple and len(clock) == 2 and all(map(is_count, clock)), "the clock")


def check_run_parts(fresh: WorkerState, run: dict[str, Any]) -> None:
    """Refuse what does not fit the memory of the run that was just started.

    Raises:
        CorruptError: If it does not.
    """
    for index, saved in run["outputs"].items():
        stamps, slots = fresh.outputs[index]
        want(len(saved["stamps"]) == len(stamps), "what is present on a port")
        want(saved["slots"] is None or isinstance(saved["slots"][0], np.ndarray) or len(saved["slots"]) == len(slots), "a port")
