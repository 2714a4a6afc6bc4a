"""What a part of a program says by its own indices, said by those of the whole program; and the other way round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from reactor_rl.failure import Failure
from reactor_rl.federation.cut import Part
from reactor_rl.runtime.worker.messages import Reply
from reactor_rl.runtime.worker.state import WorkerState
from reactor_rl.serialise import dumps

__all__ = ["argument_for", "of_whole"]


def of_whole(part: Part, request: str, reply: Reply) -> Reply:
    """What a worker of a node has replied, for the whole program. What concerns proxies and the gateway is left out."""
    if reply.failure is not None or request not in _OUTWARD:
        return reply
    return Reply(_OUTWARD[request](part, reply.value))


def argument_for(part: Part, request: str, argument: Any) -> Any:
    """The argument of a request to the whole program, for the workers of one node."""
    if request != "restore":
        return argument
    state, coming = argument
    return _state_for(part, state), coming


def _failures(part: Part, failures: list[Failure]) -> list[Failure]:
    for failure in failures:
        failure.reaction = part.reactions[failure.reaction]
    return failures


def _digests(part: Part, digests: dict[int, bytes]) -> dict[int, bytes]:
    return {part.outputs[index]: digests[index] for index in part.own if index in digests}


def _state(part: Part, state: WorkerState) -> WorkerState:
    return replace(
        state,
        reactors={part.reactors[index]: kept for index, kept in state.reactors.items() if index != part.gateway},
        outputs={part.outputs[index]: state.outputs[index] for index in part.own if index in state.outputs},
        events={time: [(part.actions[index], kept) for index, kept in events] for time, events in state.events.items()},
        waiting={part.actions[index]: kept for index, kept in state.waiting.items()},
    )


def _state_for(part: Part, state: WorkerState) -> WorkerState:
    action = {whole: index for index, whole in enumerate(part.actions)}
    return replace(
        state,
        reactors={index: state.reactors[whole] for index, whole in enumerate(part.reactors)} | {part.gateway: dumps(None)},
        outputs={index: state.outputs[whole] for index, whole in enumerate(part.outputs)},
        events={
            time: [(action[index], kept) for index, kept in events if index in action] for time, events in state.events.items()
        },
        waiting={action[index]: kept for index, kept in state.waiting.items() if index in action},
    )


_OUTWARD: dict[str, Callable[[Part, Any], Any]] = {"failures": _failures, "digests": _digests, "snapshot": _state}
