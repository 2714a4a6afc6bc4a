"""How updates are made: what they consist of, and the learner, which lives with its trainer, alone or with gradient workers."""

from __future__ import annotations

import copy
import itertools
import math
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from stable_baselines3.common.preprocessing import preprocess_obs
from torch import nn

from reactor_rl import Input, LogicalAction, Output, Reactor, reaction
from reactor_sb3.acting.forwards import copied
from reactor_torch import Batch, Network, Networks, Task, Update, WorkerConfig

__all__ = [
    "Alone",
    "Learner",
    "LocalRef",
    "Logger",
    "Minibatch",
    "ParallelLearner",
    "Sharing",
    "cut",
    "finish",
    "flat_rows",
    "scratch_of",
    "refuse_common",
    "shares_of",
    "tasks_of",
    "throw_away_update",
]


class Minibatch(NamedTuple):
    """Some rows of a batch, in its order.

    Attributes:
        batch: The batch.
        rows: The rows.
    """

    batch: Batch
    rows: slice


def cut(batch: Batch, rows: int) -> Iterator[Minibatch]:
    """A batch in minibatches of so many rows; the last may have fewer."""
    for begin in range(0, len(batch), rows):
        yield Minibatch(batch, slice(begin, min(begin + rows, len(batch))))


def tasks_of(minibatches: Mapping[str, Batch | Minibatch]) -> tuple[Task, ...]:
    """Tasks for those who compute gradients, of minibatches by the names of losses."""
    return tuple(
        Task(loss, *one) if isinstance(one, Minibatch) else Task(loss, one, slice(0, len(one))) for loss, one in minibatches.items()
    )


def flat_rows(rows: Any, space: spaces.Space[Any], normalize_images: bool) -> torch.Tensor:
    """Observations as the extension learns from them, ``(rows, features)``, float32; arrays of a ``Dict`` lie side by side.

    Args:
        rows: A tensor, or one for each key.
        space: Of an observation.
        normalize_images: See SB3's policies.
    """
    if isinstance(space, spaces.Dict):
        return torch.cat([flat_rows(rows[key], part, normalize_images) for key, part in space.spaces.items()], 1)
    if rows.ndim == 2 and rows.dtype.is_floating_point:  # a Box's, and no image: SB3 makes no more of it
        return rows.float()  # type: ignore[no-any-return]
    seen: Any = preprocess_obs(rows, space, normalize_images=normalize_images)
    return seen.flatten(1)  # type: ignore[no-any-return]


def finish(update: Update, nets: Networks) -> dict[str, float]:
    """Make updates here and now.

    Returns:
        What the updates end with.
    """
    statistics: Any = None
    while True:
        try:
            tasks = update.send(statistics)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        statistics = nets.compute(tasks)


def scratch_of(model: Any) -> Any:
    """A trainer with copies of all that learns: updates of it change nothing. It has no run, and is not to be kept.

    Args:
        model: The trainer. What SB3 saves besides the policy is what learns besides it.
    """
    # Without __init__, which would make environments.
    scratch = object.__new__(type(model))
    memo: dict[int, Any] = {}
    vars(scratch).update({**vars(model), "_run": None, "_n_updates": 0, "policy": copied(model.policy, memo)})
    states, tensors = model._get_torch_save_params()
    for name in (*states, *tensors):
        if "." not in name and name != "policy":  # the others are in the policy
            setattr(scratch, name, copy.deepcopy(getattr(model, name), memo))
    if hasattr(scratch, "_create_aliases"):
        scratch._create_aliases()
    scratch.nets = Networks(scratch.networks(), scratch.losses())
    scratch.nets.begin_round(scratch.losses())
    return scratch


def throw_away_update(model: Any) -> Callable[[], object]:
    """A function that makes one update of a throw-away copy of a trainer's networks."""
    scratch, batch = scratch_of(model), model.example()

    def update() -> None:
        with scratch.drawing_apart():
            finish(scratch.update(batch), scratch.nets)

    return update


def refuse_common(parts: Mapping[str, Network]) -> None:
    """Refuse networks that would learn a parameter of another one's, which learns it alone.

    SB3's shared features extractors are allowed: with ``share_features_extractor``, critics do not learn them. So is a module whose
    parameters two networks share out between them.
    """
    for name, part in parts.items():
        if part.excluding is None or part.optimizer is None or not isinstance(part.module, nn.Module):
            continue
        if {*part.excluding.parameters()} <= {*part.module.parameters()}:
            continue
        theirs = {id(one): path for path, one in part.excluding.named_parameters()}
        shared = (
            getattr(part.module, "features_extractor", None) if getattr(part.module, "share_features_extractor", False) else None
        )
        for path, one in part.module.named_parameters():
            extracts = shared is not None and path.startswith("features_extractor.")
            if id(one) in theirs and one.requires_grad and not extracts:
                raise ValueError(
                    f"{name}.{path} and {theirs[id(one)]!r} of another network are one parameter, which only one of them would "
                    "learn: give each its own (copy.deepcopy), or share features extractors (share_features_extractor=True)"
                )


def shares_of(nets: Networks, rarer: float = 1.0) -> tuple[float, ...]:
    """Share of each loss in the time that gradients take, reckoned from parameters.

    A network that learns is gone through three times for each row: forwards, for gradients of weights, and of inputs. One that is
    only read is gone through forwards, and once more if gradients may be asked for through it.

    Args:
        nets: The networks.
        rarer: Updates for each one that all losses have; in the others there is the first one alone.
    """

    def size(name: str, passes: float) -> float:
        return passes * len(nets.flat(name).data)

    costs = [
        size(loss.learns, 3) + sum(size(name, 1 if nets.parts[name].optimizer is None else 2) for name in loss.reads)
        for loss in nets.losses.values()
    ]
    costs[0] *= rarer
    return tuple(cost / max(sum(costs), 1) for cost in costs)


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


class _Learning(Reactor):
    """Stores a round of transitions, learns from it, and sends the parameters out.

    The work itself is the trainer's :meth:`~reactor_sb3.trainers.trainer.Trainer.round`, so that replay buffer, optimisers and
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
        self.began, self.ended, self.updates = 0.0, 0.0, 0

    def arrived(self) -> Update | None:
        """A round of updates, if transitions have arrived: with ``pipeline=1`` not at tick 0."""
        trainer = self.trainer.target
        if not np.all(self.transitions.present):
            return None
        trainer.session.add_statistics(trainer, self.transitions.value)
        update: Update = trainer.round(self.transitions.value, self.infos.value if trainer.wants_infos else [])
        return update

    def learn_alone(self, update: Update, helped: bool) -> None:
        """Make a round's updates without gradient workers, perhaps with the help of threads."""
        trainer = self.trainer.target
        team = trainer.session.team if helped and trainer.session.team is not None else nullcontext()
        with trainer.limited_threads(), team, trainer.drawing():
            finish(update, trainer.nets)

    def begin(self) -> bool:
        """Note when a round begins. Returns whether others take part in it: gradient workers, or threads."""
        trainer = self.trainer.target
        sharing: Sharing | None = trainer.session.sharing
        self.began, self.updates = time.perf_counter(), trainer._n_updates
        return sharing is None or sharing.begin()

    def end(self) -> None:
        """End a round: actors get the parameters."""
        trainer = self.trainer.target
        updates = trainer._n_updates - self.updates
        # Those who take part may hold up actors that sample meanwhile: then what counts is how often rounds end.
        since = self.ended if trainer.pipeline and self.ended else self.began
        self.ended = time.perf_counter()
        if trainer.session.sharing is not None and updates:
            trainer.session.sharing.end((self.ended - since) / updates)
        trainer.session.send_parameters(trainer, self.parameters.buffer)


class Learner(_Learning):
    """Computes all gradients itself, within its reaction."""

    @reaction(_Learning.beat, uses=(_Learning.transitions, _Learning.infos), effects=_Learning.parameters)
    def learn(self) -> None:
        """One round, if one has arrived."""
        update = self.arrived()
        helped = self.begin()
        if update is not None:
            self.learn_alone(update, helped)
        self.end()


TRIED = 4
"""Rounds in the same way, one after the other, of which pairs are compared: with ``policy_delay=2``, every other takes longer."""
AGAIN = 32
"""After so many times, the slower way is tried again: other programs come and go. One round in 33 may be slow for it. Chosen."""
SOON = 2
"""The same after the ways have changed places, for something may have disturbed the one; then twice as many, up to that."""
CLEARLY = 0.95
"""The other way is taken if it needs less than this share of the time: smaller differences are within the noise of four rounds, and
to change costs nothing but a round. Chosen.
"""


class Sharing:
    """Decides whether gradient workers, or threads, take part in a round, by how long rounds have taken with them and without.

    That cannot be known before the first round: it depends on caches, on what Python does for each minibatch, and on other
    programs. It changes no bit.
    """

    def __init__(self) -> None:
        self._usually = True
        self._left, self._wait = 1, AGAIN  # times until the other way is tried: now, and after that
        self._now: list[float] = []
        self._taken = {True: math.inf, False: math.inf}

    @property
    def _shared(self) -> bool:
        return self._usually if self._left else not self._usually

    def begin(self) -> bool:
        """Begin a round. Returns whether others take part."""
        if len(self._now) == TRIED:
            # The faster pair of rounds counts: what disturbs a round makes it longer, never shorter.
            self._taken[self._shared], self._now = min(sum(self._now[:2]), sum(self._now[2:])), []
            if self._taken[not self._usually] < CLEARLY * self._taken[self._usually]:
                self._usually, self._left, self._wait = not self._usually, SOON, SOON
            elif self._left:
                self._left -= 1
            else:
                self._left = self._wait = min(2 * self._wait, AGAIN)
        return self._shared

    def end(self, seconds: float) -> None:
        """Note how long an update of this round took."""
        self._now.append(seconds)


class Alone(Sharing):
    """Nobody takes part any more: gradient workers have copies of networks that are no longer those that learn."""

    def begin(self) -> bool:
        """Begin a round."""
        return False

    def end(self, seconds: float) -> None:
        """Nothing is decided."""


class ParallelLearner(_Learning):
    """Computes gradients together with gradient workers: each minibatch is a microstep, in which all of them compute a slice.

    The reaction to a new round is declared behind those to minibatches: nothing in a microstep then waits for the actors. Where
    the trainer's session has a :class:`Sharing`, rounds in which it is faster alone are its own.
    """

    computed = Input()
    """Gradients, statistics and buffers of each worker, ``(workers, config.computed)``, float32."""
    weights = Output((0,), np.float32)
    slices = Output((0,), np.uint8)
    round = Output()
    minibatch = LogicalAction()

    def __init__(self, trainer: LocalRef, record: npt.DTypeLike, config: WorkerConfig) -> None:
        super().__init__(trainer, record)
        self.weights = Output((config.weights.size,), np.float32)
        self.slices = Output((config.lanes.workers,), config.layout.record)
        self.update: Update | None = None
        self.tasks: tuple[Task, ...] = ()
        self.told = True  # whether workers know what belongs to this round

    @reaction(minibatch, effects=(weights, slices, round))
    def send(self) -> None:
        """Hand out the weights and the slices."""
        sliced = self.trainer.target.session.sliced
        if not self.told:
            self.round.set(sliced.begin_round())
            self.told = True
        sliced.send(self.tasks, self.weights.buffer, self.slices.buffer)

    @reaction(minibatch)
    def compute(self) -> None:
        """The gradients of the learner's own slice."""
        trainer = self.trainer.target
        with self._threads():
            trainer.session.sliced.compute(self.tasks)

    @reaction(minibatch, uses=computed, effects=(_Learning.parameters, minibatch))
    def step(self) -> None:
        """Add the gradients up and make the update."""
        self._go_on(self.trainer.target.session.sliced.add(self.tasks, self.computed.value))

    @reaction(_Learning.beat, uses=(_Learning.transitions, _Learning.infos), effects=(_Learning.parameters, minibatch))
    def learn(self) -> None:
        """Begin with a round, if one has arrived."""
        self.update, self.told = self.arrived(), False
        shared = self.begin()
        if self.update is not None and shared:
            self._go_on(None)
            return
        if self.update is not None:
            self.learn_alone(self.update, True)
            self.update = None
        self.end()

    def _go_on(self, statistics: Any) -> None:
        """To the next tasks, or to the end of the round."""
        assert self.update is not None
        trainer = self.trainer.target
        with self._threads(), trainer.drawing():
            try:
                self.tasks = self.update.send(statistics)
            except StopIteration:
                self.update, self.tasks = None, ()
        if self.update is None:
            self.end()
        else:
            self.minibatch.schedule()

    def _threads(self) -> AbstractContextManager[None]:
        trainer = self.trainer.target
        limited: AbstractContextManager[None] = trainer.limited_threads() if trainer.learner_threads > 1 else nullcontext()
        return limited


class Logger(Reactor):
    """Writes what the trainer has recorded, at the beginning of a tick, while helpers are sampling already."""

    records = Input()
    """Present if there is something to write."""

    def __init__(self, trainer: LocalRef) -> None:
        self.trainer = trainer

    @reaction(records)
    def write(self) -> None:
        """Hand everything to each output format."""
        trainer = self.trainer.target
        trainer.session.report.write(trainer)
