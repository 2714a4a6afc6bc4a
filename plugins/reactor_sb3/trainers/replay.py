"""How a round of transitions gets into SB3's replay buffers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from reactor_sb3.acting.actor import StepInfo
from reactor_sb3.acting.records import Observations, by_step

__all__ = ["BLOCKWISE", "KeptArrays", "arrays_of", "store"]

Array = npt.NDArray[Any]

BLOCKWISE: tuple[type[ReplayBuffer], ...] = (ReplayBuffer, NStepReplayBuffer, DictReplayBuffer, HerReplayBuffer)
"""Buffers whose arrays are written directly, many steps at once; any other gets its ``add`` called step by step."""


ARRAYS = (
    "observations", "next_observations", "actions", "rewards", "dones", "timeouts", "ep_start", "ep_length", "_current_ep_start",
)  # fmt: skip


class KeptArrays:
    """The arrays of a replay buffer, which somebody may have replaced by others since the last round."""

    def __init__(self) -> None:
        self._buffer: ReplayBuffer | None = None
        self._known: dict[str, Array] = {}
        self._plain: list[tuple[str, Array]] = []  # the same, if none is in a dict: compared in a microsecond
        self._steps, self._version = 1, 0

    def look(self, buffer: ReplayBuffer) -> int:
        """Take over what was replaced. An array of other numbers, or laid out in another way, becomes one as the buffer had.

        Returns:
            A number, another one for each set of arrays.

        Raises:
            ValueError: If an array has another shape. Names it.
        """
        values = vars(buffer)
        steps = values.get("n_steps", 1)
        if buffer is self._buffer and self._plain and steps == self._steps:
            for name, array in self._plain:
                if values.get(name) is not array:
                    break
            else:
                return self._version
        if type(buffer) not in BLOCKWISE:
            return 0
        found = arrays_of(buffer)
        if buffer is not self._buffer:
            self._buffer, self._known = buffer, found
        elif steps == self._steps and all(found.get(name) is known for name, known in self._known.items()):
            return self._version
        for name, known in self._known.items():
            if found.get(name) is not known:
                self._known[name] = _put_right(buffer, name, found.get(name), known)
        self._plain = list(self._known.items()) if values.keys() >= self._known.keys() else []
        self._steps, self._version = steps, self._version + 1
        return self._version


def arrays_of(buffer: ReplayBuffer) -> dict[str, Any]:
    """The arrays of a replay buffer, by name; infos, which are objects, are not among them."""
    arrays: dict[str, Any] = {}
    values = vars(buffer)
    for name in ARRAYS:
        value = values.get(name)
        if isinstance(value, dict):
            arrays |= {f"{name}.{key}": part for key, part in value.items()}
        elif value is not None:
            arrays[name] = value
    return arrays


def _put_right(buffer: ReplayBuffer, name: str, given: Any, known: Array) -> Array:
    """An array as the buffer had it, of the numbers in the one that is there now."""
    if np.shape(given) != known.shape:
        raise ValueError(
            f"replay_buffer.{name} must have the shape {known.shape}, {known.dtype} (steps of the buffer by environments), "
            f"got {np.shape(given)}"
        )
    if type(given) is np.ndarray and given.dtype == known.dtype and given.flags.c_contiguous and given.flags.writeable:
        return given
    right = np.array(given, known.dtype, order="C")
    attribute, dot, key = name.partition(".")
    if dot:
        getattr(buffer, attribute)[key] = right
    else:
        setattr(buffer, attribute, right)
    return right


def store(buffer: ReplayBuffer, layout: Observations, transitions: Array, infos: list[list[StepInfo]]) -> None:
    """Store a round as ``add`` would, step by step.

    Args:
        buffer: SB3's, or one of the user's.
        layout: Of observations as the policy sees them.
        transitions: A record for each actor, see :func:`reactor_sb3.acting.records.transition_record`. What is normalised in it
            is stored as it was before, as in SB3, which normalises what it samples; actions are stored as the policy has them.
        infos: Of each actor; only a buffer that is not in :data:`BLOCKWISE` gets them.
    """
    names = transitions.dtype.names or ()
    actions = transitions["policy_actions" if "policy_actions" in names else "actions"]
    original = "original_" if "original_rewards" in names else ""
    if type(buffer) is HerReplayBuffer:
        _note_episodes(buffer, by_step(transitions["dones"]))
        if buffer.copy_info_dict:
            _put_infos(buffer, by_step(transitions["timeouts"]), infos)
    if type(buffer) in BLOCKWISE:
        _put(buffer, layout, transitions, actions, original)
        return
    fields = {"actions": by_step(actions), **{name: by_step(transitions[name]) for name in ("dones", "timeouts")}}
    rewards = by_step(transitions[original + "rewards"])
    observations = {key: by_step(part) for key, part in layout.of(transitions, original + "observations").items()}
    nexts = {key: by_step(part) for key, part in layout.of(transitions, original + "next_observations").items()}
    each = _infos(fields["timeouts"], infos)
    for step in range(len(rewards)):
        buffer.add(
            layout.outside({key: part[step] for key, part in observations.items()}),
            layout.outside({key: part[step] for key, part in nexts.items()}),
            fields["actions"][step],
            rewards[step],
            fields["dones"][step],
            each[step],
        )


def _infos(timeouts: Array, infos: list[list[StepInfo]]) -> list[list[dict[str, Any]]]:
    """The infos of each step and environment, as SB3's buffers get them."""
    known = {(step, number): info for of_actor in infos for step, number, info in of_actor}
    return [
        [known.get((step, number), {}) | {"TimeLimit.truncated": truncated} for number, truncated in enumerate(row)]
        for step, row in enumerate(timeouts.tolist())
    ]


def _put_infos(buffer: HerReplayBuffer, timeouts: Array, infos: list[list[StepInfo]]) -> None:
    """Store the infos of a round; to be called before its other parts are stored."""
    for step, of_step in enumerate(_infos(timeouts, infos)):
        buffer.infos[(buffer.pos + step) % buffer.buffer_size] = of_step


def _note_episodes(buffer: HerReplayBuffer, dones: Array) -> None:
    """Note which transitions are one episode, as hindsight's ``add`` does; to be called before a round is stored.

    Args:
        buffer: Where it will be stored.
        dones: Of each step and environment.
    """
    starts, lengths, current, size, pos = (
        buffer.ep_start, buffer.ep_length, buffer._current_ep_start, buffer.buffer_size, buffer.pos
    )  # fmt: skip
    for ended in dones:
        for env in np.flatnonzero(lengths[pos]):  # an episode that loses its first transition is no whole one any more
            lengths[np.arange(pos, starts[pos, env] + lengths[pos, env]) % size, env] = 0
        starts[pos] = current
        pos = (pos + 1) % size
        for env in np.flatnonzero(ended):
            length = (pos - current[env]) % size
            lengths[np.arange(current[env], current[env] + length) % size, env] = length
            current[env] = pos


def _put(buffer: ReplayBuffer, layout: Observations, transitions: Array, actions: Array, original: str) -> None:
    """Add all steps of a round at once, as ``add`` does one by one."""
    steps = actions.shape[1]
    done = 0
    while done < steps:
        # Up to the end of the ring; what is left goes to its beginning, in another turn of the loop.
        count = min(steps - done, buffer.buffer_size - buffer.pos)
        rows, taken = slice(buffer.pos, buffer.pos + count), slice(done, done + count)

        def put(target: Array, field: Array, rows: slice = rows, taken: slice = taken) -> None:
            source = field[:, taken].swapaxes(0, 1)
            # Reshaped and not copied: the buffer has the environments of all actors side by side, a round has them by actor.
            target[rows].reshape(source.shape)[...] = source

        for key, field in layout.of(transitions, original + "observations").items():
            put(buffer.observations[key] if layout.keys else buffer.observations, field)
        last = (buffer.pos + count - 1) % buffer.buffer_size
        for key, field in layout.of(transitions, original + "next_observations").items():
            if buffer.optimize_memory_usage:
                target = buffer.observations[key] if layout.keys else buffer.observations
                final = field[:, taken][:, -1]
                # As SB3 does it: what follows the newest transition is where the next one will begin, and is overwritten by that.
                target[(last + 1) % buffer.buffer_size].reshape(final.shape)[...] = final
            else:
                put(buffer.next_observations[key] if layout.keys else buffer.next_observations, field)
        put(buffer.actions, actions)
        put(buffer.rewards, transitions[original + "rewards"])
        put(buffer.dones, transitions["dones"])
        if buffer.handle_timeout_termination:
            put(buffer.timeouts, transitions["timeouts"])
        done += count
        buffer.pos += count
        if buffer.pos == buffer.buffer_size:
            buffer.full, buffer.pos = True, 0
