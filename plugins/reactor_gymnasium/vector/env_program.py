"""The program behind a vector environment: its shards, their ports, and the batches that they fill.

The environments are divided into shards, each a reactor, and the shards into batches: one batch of all, or, with ``batch_size``,
equal parts that take turns. A step is a tick in which one batch's actions are present.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from reactor_gymnasium.environments.storage import Casting, ObservationLayout
from reactor_gymnasium.placement import place
from reactor_rl import Instance, Program
from reactor_rl.plugin import Failure, encode, loads, spread_workers

if TYPE_CHECKING:
    from reactor_rl import Run
    from reactor_rl.plugin import NodeTransport

__all__ = ["EnvBatch", "EnvProgram", "HostStyle", "Inputs"]

Inputs = npt.NDArray[Any] | dict[str, Any]
"""Actions as they go in: one array, or pickled objects by name of the boundary input."""
AddShard = Callable[[str, int, int, int, int], Instance]
"""Adds a shard, of a name, from and to an index of units, for a worker, from a row of its batch on."""


@dataclass(frozen=True)
class HostStyle:
    """The words for a kind of vector environment, and the ways of the library whose class is in front of it.

    Attributes:
        title: What messages call the class; ``None`` for its name.
        label: What shards are called in drawings and messages, before the indices of their units.
        unit: What each of those that a shard steps is called in messages.
        columns: Whether there are rows of columns, besides those of observations, rewards and ends.
        context_option: The parameter that says how processes start.
        makers_option: The parameter that the functions are; ``None`` if they are checked elsewhere.
        spin: Seconds that helpers wait awake for the next step; see :meth:`reactor_rl.Program.start`.
        casting: See :class:`~reactor_gymnasium.environments.storage.ObservationLayout`.
        infos: ``"columns"``: as Gymnasium's; ``"rows"``: those of a step by row in ``"infos"``, and of episodes that ended within
            it in ``"ended"``, as the shards send them.
        actions: How actions that are not an array are taken apart: by ``gymnasium.vector.utils.iterate``, or as a list.
    """

    title: str | None = None
    label: str = "environments"
    unit: str = "environment"
    columns: bool = False
    context_option: str = "context"
    makers_option: str | None = "env_fns"
    spin: float | None = None
    casting: Casting = "same_kind"
    infos: Literal["columns", "rows"] = "columns"
    actions: Literal["iterate", "list"] = "iterate"


@dataclass(eq=False)
class EnvBatch:
    """Environments that step together: all of them, or one of the equal parts that take turns.

    Attributes:
        lo: First row.
        hi: One past the last row.
        suffix: What the names of its boundary ports end in.
        shards: Numbers of its shards, each with the index of its first unit and one past that of its last.
        write_actions: Sets the actions of the coming tick, where they are one array.
        rows: View of the observations' slot, where they are arrays.
        rewards: View of the rewards' slot, ``(hi - lo,)``; likewise ``terminations`` and ``truncations``.
        columns: View of the columns' slot, with a field for each, where there are any.
        copy_rows: Gives the observations, as they are handed out, where they are arrays and copied; else ``None``.
        copy_rewards: Gives the rewards, as they are handed out.
        objects: The observations' object leaves, as of the batch's last tick.
        infos: Infos of its last tick, until they are handed out.
        ready: Whether that tick is over and its results were not handed out.
        fresh: Whether that tick was a reset, whose results are handed out in the place of a step's.
    """

    lo: int
    hi: int
    suffix: str
    shards: list[tuple[int, int, int]] = field(default_factory=list)
    objects: list[Any] | None = None
    infos: dict[str, Any] = field(default_factory=dict)
    ready: bool = False
    fresh: bool = False

    def attach(self, run: Run, actions: bool, layout: ObservationLayout, columns: bool, copy: bool) -> None:
        """Look up once what every step uses."""
        self.write_actions: Callable[[Any], None] | None = run.writer(f"actions{self.suffix}") if actions else None
        self.rows: npt.NDArray[Any] | None = run.view(f"observations{self.suffix}") if layout.arrays else None
        if self.rows is not None and not copy:  # these are handed out: as with AsyncVectorEnv, the caller may write into them
            self.rows = self.rows.view()
            self.rows.flags.writeable = True
        self.copy_rows: Callable[[], Any] | None = layout.copier(self.rows)
        self.rewards: npt.NDArray[Any] = run.view(f"rewards{self.suffix}")
        self.copy_rewards: Callable[[], npt.NDArray[Any]] = self.rewards.copy
        self.terminations: npt.NDArray[Any] = run.view(f"terminations{self.suffix}")
        self.truncations: npt.NDArray[Any] = run.view(f"truncations{self.suffix}")
        self.columns: Any = run.view(f"columns{self.suffix}") if columns else None
        self.read_extras = run.reader(f"extras{self.suffix}")


class EnvProgram:
    """Units (environments, games, copies, vector environments) cut into batches and shards, between the boundary's ports.

    Args:
        program: The program that the shards are added to.
        add: Adds a shard.
        seconds: What a step of each unit costs, if that is known.
        workers: How many workers there are.
        actions: Shape and dtype of a batch's actions, if they are an array.
        layout: Which parts of observations are rows, and which travel as objects.
        bounds: The first row of each unit, and the row after the last one.
        batch_size: How many units step together.
        style: What shards and units are called, and whether there are columns.
        watched: Whether shards tell at any time which unit is being stepped.

    Attributes:
        batches: The batches, in the order of their turns.
        placement: The worker of each shard, by name.
        steppers: Who steps the environments of each shard, in words, by the index of its first one, as far as that is known.
        ticking: The batch whose step goes on without being waited for.
        queue: Batches whose actions were given meanwhile.
    """

    def __init__(
        self,
        program: Program,
        add: AddShard,
        seconds: Sequence[float] | None,
        workers: int,
        actions: tuple[tuple[int, ...], npt.DTypeLike] | None,
        layout: ObservationLayout,
        *,
        bounds: Sequence[int],
        batch_size: int,
        style: HostStyle = HostStyle(),
        watched: bool = False,
    ) -> None:
        self.program, self.workers, self.style, self.watched = program, workers, style, watched
        self.batches: list[EnvBatch] = []
        self.placement: dict[str, int] = {}
        self.steppers: dict[int, str] = {}
        self.ticking: EnvBatch | None = None
        self.queue: deque[tuple[EnvBatch, Inputs]] = deque()
        self._actions, self._layout = actions is not None, layout
        rows = ("observations",) * bool(layout.arrays) + ("rewards", "terminations", "truncations") + ("columns",) * style.columns
        objects = ("objects", "extras", "replies") + ("at",) * watched
        units = len(bounds) - 1
        for first in range(0, units, batch_size):
            suffix = f"_{len(self.batches)}" if batch_size < units else ""
            batch = EnvBatch(bounds[first], bounds[first + batch_size], suffix)
            self.batches.append(batch)
            outputs = {name: program.output(name + suffix) for name in (*rows, *objects)}
            actions_in = None if actions is None else program.input(f"actions{suffix}", *actions)
            for part, (lo, hi, worker, _) in enumerate(place(seconds, first, first + batch_size, workers)):
                number, name = len(self.placement), f"{style.label}[{lo}:{hi}]"
                batch.shards.append((number, lo, hi))
                self.placement[name] = worker
                block = slice(bounds[lo] - batch.lo, bounds[hi] - batch.lo)
                shard = add(name, lo, hi, worker, block.start)
                if actions_in is not None:
                    program.connect(actions_in.rows[block], shard.actions)
                for port in ("items", "request"):
                    program.connect(program.input(f"{port}_{number}"), getattr(shard, port))
                for port in rows:
                    program.connect(getattr(shard, port), outputs[port].rows[block])
                for port in objects:
                    program.connect(getattr(shard, port), outputs[port].rows[part])

    def start(self, executor: Any, transport: NodeTransport | None, copy: bool, **settings: Any) -> Run:
        """Start it, look up what steps use, and have errors about shards that hang name the unit.

        Args:
            executor: Name of the executor on one machine.
            transport: Carries the run over several machines, where that is asked for.
            copy: Whether observations are handed out as copies.
            **settings: As for :meth:`reactor_rl.Program.start`.
        """
        if transport is None:
            settings |= {"executor": executor, "workers": self.workers, "placement": self.placement}
        else:
            nodes = spread_workers(transport.workers, self.workers)
            settings |= {"executor": transport, "on": {name: nodes[share] for name, share in self.placement.items()}}
        self.run = run = self.program.start(fingerprint="off", **settings)
        for batch in self.batches:
            batch.attach(run, self._actions, self._layout, self.style.columns, copy)
        if self.watched:
            shards: dict[str, tuple[Any, int, int]] = {}
            names = iter(self.placement)
            for batch in self.batches:
                marks = run.view(f"at{batch.suffix}")
                shards.update((next(names), (marks, part, lo)) for part, (_, lo, _) in enumerate(batch.shards))
            run.tell_whereabouts(partial(_whereabouts, self.style.unit, shards))
        return run

    @property
    def shards(self) -> list[tuple[int, int, int]]:
        """Number of each shard, the index of its first unit, and one past that of its last."""
        return [shard for batch in self.batches for shard in batch.shards]

    # ------------------------------------------------------------------ ticks

    def put(self, batch: EnvBatch, inputs: Inputs) -> None:
        """Set the actions of the coming tick."""
        if isinstance(inputs, np.ndarray):
            assert batch.write_actions is not None
            batch.write_actions(inputs)
        else:
            self.run.set(**inputs)

    def begin(self, batch: EnvBatch, inputs: Inputs) -> None:
        """Begin a step of a batch."""
        self.put(batch, inputs)
        self.run.tick_async()
        self.ticking = batch

    def request(self, of_shard: Mapping[int, Any]) -> None:
        """Begin a tick in which shards are asked for something, by number; if one request cannot be pickled, none is."""
        self.run.set(**{f"request_{number}": encode(request) for number, request in of_shard.items()})
        self.run.tick_async()

    def collect(self, batch: EnvBatch) -> tuple[Sequence[Any], Sequence[tuple[int, Failure]]]:
        """The results besides arrays of a batch's tick that has just ended.

        Returns:
            What shards have sent of their infos, if any of them sent something, or the infos themselves, from the only shard;
            and what units raised, by index.
        """
        if self._layout.objects:
            batch.objects = [leaves for of_shard in self.run.values(f"objects{batch.suffix}") for leaves in of_shard]
        extras = batch.read_extras()
        return (extras, ()) if not extras or type(extras[0]) is dict else self._heard(extras)

    def _heard(self, extras: Sequence[Any]) -> tuple[list[Any], list[tuple[int, Failure]]]:
        """Keep the news of who steps the environments, and return infos and failures."""
        failed: list[tuple[int, Failure]] = []
        for _, failures, news in extras:
            failed += failures
            if news is not None:
                self.steppers.update([news])
        return [infos for infos, _, _ in extras if infos is not None], failed

    def replies(self) -> tuple[list[Any], list[tuple[int, Failure]]]:
        """The results of units that were called, in their order, and what units raised."""
        _, failures = self._heard([sent for batch in self.batches for sent in self.run.values(f"extras{batch.suffix}")])
        parts = [part for batch in self.batches for part in self.run.values(f"replies{batch.suffix}")]
        return [] if failures else [loads(result) for part in parts for result in part], failures


def _whereabouts(unit: str, shards: dict[str, tuple[Any, int, int]], names: tuple[str, ...]) -> str:
    """Which units are being stepped, of shards that do not return."""
    numbers = [(name, int(marks[part]), lo) for name, (marks, part, lo) in shards.items() if name in names]
    return ", ".join(f"{unit} {lo + number - 1}" if number else name for name, number, lo in numbers)
