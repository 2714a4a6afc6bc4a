"""The reactors that live with the trainer, in the caller's process: the learner, and the logger."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from reactor_rl import Input, Output, Reactor, reaction
from reactor_sb3.acting.actor import StepInfo

__all__ = ["Learner", "Learning", "LocalRef", "Logger"]

Array = npt.NDArray[Any]

_live: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_numbers = itertools.count()


class LocalRef:
    """Names an object of this process, so that a reactor that is pickled finds it again. It never keeps the object alive."""

    def __init__(self, target: Any) -> None:
        self.number = next(_numbers)
        _live[self.number] = target

    @property
    def target(self) -> Any:
        """The object.

        Raises:
            LookupError: In another process, or when the object is gone.
        """
        try:
            return _live[self.number]
        except KeyError:
            raise LookupError("this reactor lives with its trainer: place it on worker 0") from None


class Learning(Protocol):
    """What the reactors and the placement ask of a trainer; see :class:`~reactor_sb3.trainers.trainer.Trainer`."""

    wants_infos: bool

    def add_statistics(self, transitions: Array) -> None: ...

    def learn_from(self, transitions: Array, infos: list[list[StepInfo]]) -> None: ...

    def write_parameters(self, record: Array) -> None: ...

    def limited_threads(self) -> AbstractContextManager[None]: ...

    def throw_away_update(self) -> tuple[Callable[[], object], int]: ...


class Learner(Reactor):
    """Stores a round of transitions, learns from it, and sends the parameters out.

    The work itself is the trainer's :meth:`~reactor_sb3.trainers.trainer.Trainer.learn_from`, so that replay buffer, optimiser and
    networks are where SB3's users look for them.
    """

    transitions = Input()
    """A record for each actor, ``(n_actors,)``."""
    infos = Input()
    beat = Input()
    """Present at every tick."""
    parameters = Output((), np.uint8)

    def __init__(self, trainer: LocalRef, record: npt.DTypeLike) -> None:
        self.trainer = trainer
        self.parameters = Output((), record)

    @reaction(beat, uses=(transitions, infos), effects=parameters)
    def learn(self) -> None:
        """One round, if one has arrived."""
        trainer: Learning = self.trainer.target
        if np.all(self.transitions.present):
            trainer.add_statistics(self.transitions.value)
            trainer.learn_from(self.transitions.value, self.infos.value if trainer.wants_infos else [])
        trainer.write_parameters(self.parameters.buffer)


class Logger(Reactor):
    """Writes what the trainer has recorded, at the beginning of a tick, while helpers are sampling already."""

    records = Input()
    """Values and what is to be left out of which format, by name, and the number of steps, as SB3's formats take them."""

    def __init__(self, trainer: LocalRef) -> None:
        self.trainer = trainer

    @reaction(records)
    def write(self) -> None:
        """Hand everything to each output format."""
        values, excluded, steps = self.records.value
        for output in self.trainer.target.logger.output_formats:
            output.write(values, excluded, steps)
