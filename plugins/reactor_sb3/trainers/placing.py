"""Which executor, how many workers, and which reactor where: by measured costs, and never part of the result.

After Spreeze (Hou et al. 2025), which adapts its parallelism to the machine while it trains; here only what cannot change a result
is chosen, before the first round, and everything else is recommended.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from reactor_rl.plugin import ExecutorName, expected_gain, may_start_processes, spread_workers, tick_cost, usable_cores
from reactor_sb3.trainers.costs import LearnerCost, actor_cost, learner_cost
from reactor_sb3.trainers.model import Model
from reactor_sb3.trainers.program import ProgramConfig

__all__ = [
    "Placement",
    "best_slices",
    "choose_placement",
    "gained",
    "may_learn_alone",
    "placed",
    "predicted",
    "recommendations",
    "spread",
    "threads_of",
    "timed_learner",
]

AWAY = 1e-3
"""Seconds for which helpers wait between two rounds, while the learner learns: longer than they stay awake (0.2 ms), so they have
to be woken up. How much longer makes no difference.
"""
PICTURE = 5e-3
"""Seconds that it takes to draw an environment and to add the picture to a film: 3 to 10 ms, whatever a step costs. It only decides
which worker the viewer goes to.
"""
MOST_SLICES = 64
"""More processes than that wait for each other longer than they compute. Chosen: no machine with so many cores was at hand."""
MEETING = 1.2e-4
"""Seconds that a learner takes to cut a minibatch into slices, and to add their gradients up, besides what the bytes take. A cost
of Python's calls, for networks of a few layers; where it is wrong, rounds tell (``Sharing`` in ``learner.py``).
"""
EXCHANGE = 1e-10
"""Seconds for each byte that goes to a gradient worker or back: it is copied at some 10 GB/s."""


@dataclass(frozen=True)
class Placement:
    """How a trainer's program is run.

    Attributes:
        executor: Name of the executor.
        workers: How many workers, the caller included.
        placement: Worker of each reactor.
        actor: Seconds of an actor's round, ``None`` if not measured.
        learner: Seconds of the learner's round on one thread, ``None`` if not measured; of one that computes all gradients itself.
        updates: How many it has.
        slices: Into how many slices minibatches are cut, at most.
        split: Whether losses are computed side by side.
        on: Node of each actor, where there are several machines; all else is at home.
        helped: Seconds of the learner's round with the threads that help, ``None`` if not measured.
    """

    executor: ExecutorName
    workers: int
    placement: Mapping[str, int]
    actor: float | None
    learner: float | None
    updates: int = 1
    slices: int = 1
    split: bool = False
    on: Mapping[str, int] | None = None
    helped: float | None = None


def choose_placement(config: ProgramConfig, learning: Model) -> Placement:
    """Decide how a trainer's program is run.

    Where no loss looks at what another one learns, they are computed side by side if that is faster: it changes no bit.

    Args:
        config: What the program is made from.
        learning: The trainer, a throw-away update of which may be timed.
    """
    if config.independent:
        config = replace(config, split=_worth_splitting(config, learning))
    return _choice(config, learning)


def _worth_splitting(config: ProgramConfig, learning: Model) -> bool:
    """Whether a round is shorter with a lane for each loss."""
    if config.learners_are_fixed:
        return config.n_learners != 1
    workers = config.workers or usable_cores()
    if config.executor not in ("auto", "processes") or workers == 1 or not may_start_processes():
        return False
    actor, cost = actor_cost(config), timed_learner(replace(config, split=False), learning)
    return predicted(replace(config, split=True), actor, cost) < predicted(replace(config, split=False), actor, cost)


def _choice(config: ProgramConfig, learning: Model) -> Placement:
    told = config.learners_are_fixed
    slices = min(config.n_learners, config.blocks) if told and config.n_learners else 1
    actor, learner, helped, updates = None, None, None, 1
    if config.executor == "auto" or (config.pipeline and slices == 1) or (not told and _most_slices(config) > 1):
        actor = actor_cost(config)  # else the actors are simply shared out
        cost = timed_learner(config, learning)
        learner, helped, updates = cost
        if not told:
            slices = best_slices(config, actor, cost)
    executor, workers = config.executor, _workers(config, slices)
    aside = config.aside(actor or 1.0, PICTURE if actor else 0.0)
    overlap, learners = _overlaps(config, slices), config.lanes * slices
    if executor == "auto":
        beside = sum(aside.values()) / (actor or 1.0)
        gain = gained(
            config.actors.actors, workers, actor or 0.0, learner or 0.0, beside,
            overlap=overlap, learners=learners, share=config.largest_share(slices), helped=helped,
        )  # fmt: skip
        gain -= meeting_cost(config, updates, learner or 0.0, slices) if learners > 1 and gain > 0.0 else 0.0
        executor = "processes" if may_start_processes() and gain > 0.0 and gain > tick_cost(away=AWAY) else "inline"
    if executor == "inline":
        workers, slices = 1, slices if told else 1
        if config.independent and not told:
            config = replace(config, split=False)
        overlap, learners = _overlaps(config, slices), config.lanes * slices
    worker_of = placed(config.actors.actors, workers, actor or 1.0, learner or 0.0, aside, overlap=overlap, learners=learners)
    return Placement(executor, workers, worker_of, actor, learner, updates, slices, config.split, helped=helped)


def timed_learner(config: ProgramConfig, learning: Model) -> LearnerCost:
    """Time the learner's part of a round, where it computes all gradients itself.

    Args:
        config: What the program is made from.
        learning: The trainer, some throw-away updates of which are timed.
    """
    return learner_cost(learning, threads_of(config, Placement(config.executor, 1, {}, None, None, split=config.split)))


def threads_of(config: ProgramConfig, choice: Placement) -> int:
    """How many threads compute gradients of dense layers and convolutions: as many as there are cores that may wait for them.

    It changes no bit. ``learner_threads`` are the least. With ``pipeline=1`` actors may use the same cores: rounds show what is
    faster.
    """
    if not config.helped or config.lanes * choice.slices > 1:
        return 1
    if config.executor == "inline" or not may_start_processes():  # one core is wanted, or this is a pool's worker
        return config.learner_threads
    beside = any(one is not None for one in (config.evaluation, config.matches, config.viewing))
    cores = min(config.workers or usable_cores(), usable_cores()) - (beside and choice.executor != "inline")
    return max(min(config.n_learners or cores, cores), config.learner_threads)


def may_learn_alone(config: ProgramConfig) -> bool:
    """Whether the learner may compute all gradients of a round itself although it has gradient workers.

    Not if they compute on other devices, or if the user has named their number.
    """
    here = config.gradients is not None and {device.type for device in config.gradients.devices} == {"cpu"}
    return here and not config.learners_are_fixed


def spread(config: ProgramConfig, machines: Sequence[int]) -> Placement:
    """How a trainer's program is run on several machines: actors everywhere in contiguous blocks, all else at home.

    Args:
        config: What the program is made from.
        machines: Number of workers of each machine, home's first.
    """
    actors, slices = config.actors.actors, min(config.n_learners or 1, config.blocks)
    nodes = spread_workers(machines, actors)
    worker_of = placed(
        nodes.count(0), machines[0], 1.0, 0.0, config.aside(1.0, 0.0),
        overlap=_overlaps(config, slices), learners=config.lanes * slices,
    )  # fmt: skip
    worker_of |= {f"actor[{index}]": index % machines[node] for index, node in enumerate(nodes) if node}
    on = {f"actor[{index}]": node for index, node in enumerate(nodes)}
    return Placement(config.executor, sum(machines), worker_of, None, None, slices=slices, split=config.split, on=on)


def _overlaps(config: ProgramConfig, slices: int) -> bool:
    """Whether the actors sample while the learner learns: in slices it is learned when all have sampled."""
    return bool(config.pipeline) and config.lanes * slices == 1


def _workers(config: ProgramConfig, slices: int) -> int:
    """The most that there is something to do for."""
    others = _overlaps(config, slices) or any(one is not None for one in (config.evaluation, config.matches, config.viewing))
    return min(config.workers or usable_cores(), max(config.actors.actors + others, config.lanes * slices))


def _most_slices(config: ProgramConfig) -> int:
    """How many slices of a minibatch might be computed at the same time, where nobody has named a number and an executor."""
    if config.helped or config.executor in ("inline", "threads") or not may_start_processes():  # threads need no exchange
        return 1
    return min(config.n_learners or MOST_SLICES, config.blocks, config.workers or usable_cores())


def best_slices(config: ProgramConfig, actor: float, cost: LearnerCost) -> int:
    """Into how many slices minibatches are cut for the shortest round: one, unless more save a tenth of it.

    Args:
        config: What the program is made from.
        actor: Seconds of an actor's round.
        cost: The learner's part, if it computes all gradients itself.
    """
    most = _most_slices(config)
    seconds = {slices: _in_processes(config, actor, cost, slices) for slices in range(1, most + 1)}
    best = min(seconds, key=lambda slices: seconds[slices])
    return best if expected_gain(seconds[1], seconds[best]) > 0.0 else 1


def _in_processes(config: ProgramConfig, actor: float, cost: LearnerCost, slices: int) -> float:
    """Seconds of a round on helpers, but for what a tick costs in any case; arguments as for :func:`best_slices`."""
    aside = sum(config.aside(actor, PICTURE).values()) / actor
    seconds = shared_round(
        config.actors.actors, _workers(config, slices), actor, cost.alone, aside, overlap=_overlaps(config, slices),
        learners=config.lanes * slices, share=config.largest_share(slices), helped=cost.helped,
    )  # fmt: skip
    return seconds + (meeting_cost(config, cost.updates, cost.alone, slices) if config.lanes * slices > 1 else 0.0)


def predicted(config: ProgramConfig, actor: float, cost: LearnerCost) -> float:
    """Seconds of a round, by what its parts cost; arguments as for :func:`best_slices`."""
    alone = config.actors.actors * actor + sum(config.aside(actor, PICTURE).values()) + cost.helped
    slices = best_slices(config, actor, cost)
    if config.executor == "inline" or _workers(config, slices) == 1 or not may_start_processes():
        return alone
    shared = _in_processes(config, actor, cost, slices) + tick_cost(away=AWAY)
    return min(alone, shared) if config.executor == "auto" else shared


def shared_round(
    actors: int,
    workers: int,
    actor: float,
    learner: float,
    aside: float,
    *,
    overlap: bool,
    learners: int = 1,
    share: float = 0.0,
    helped: float | None = None,
) -> float:
    """Seconds of a round on so many workers, without what helpers cost; arguments as for :func:`gained`."""
    others = (actors + aside) * actor
    if learners > 1:
        sampling = max(math.ceil(actors / workers) * actor, others / workers)
        return sampling + learner * max(share, math.ceil(learners / workers) / learners)
    helped = learner if helped is None else helped
    if overlap:  # on a thread of its own, or on threads that have the cores in turn with the actors
        return min(max(learner, (others + learner) / workers, actor), others / workers + helped)
    return math.ceil(actors / workers) * actor + max(helped, aside * actor)


def gained(
    actors: int,
    workers: int,
    actor: float,
    learner: float,
    aside: float,
    *,
    overlap: bool,
    learners: int = 1,
    share: float = 0.0,
    helped: float | None = None,
) -> float:
    """Seconds that a round is shorter on so many workers than on one, by a cautious reckoning and without what helpers cost.

    Args:
        actors: How many there are.
        workers: How many there are.
        actor: Seconds of an actor's round.
        learner: Seconds of the learner's round, on one thread.
        aside: What evaluator, referee and viewer do in a round, in rounds of an actor.
        overlap: Whether the actors sample while the learner learns.
        learners: Reactors that compute its gradients, when all others are done.
        share: What one of them has of these in any case.
        helped: Seconds of the learner's round with the threads that help, ``None`` without them.
    """
    others = (actors + aside) * actor
    shared = shared_round(actors, workers, actor, learner, aside, overlap=overlap, learners=learners, share=share, helped=helped)
    if learners > 1:
        return expected_gain(others + learner, shared)
    own = learner if helped is None else helped
    return expected_gain(others, shared - own)  # the learner's own part is the same with helpers and without


def placed(
    actors: int,
    workers: int,
    actor: float,
    learner: float,
    aside: Mapping[str, float],
    *,
    overlap: bool,
    learners: int = 1,
) -> dict[str, int]:
    """A worker for every reactor, so that all workers end together.

    The learner and the logger are on worker 0, which is the caller; what goes on beside the training (``aside``: evaluator, referee
    and viewer, and the seconds that they take) on the last one. Actors go one by one to the worker with the least to do: where the
    learner waits for them (``overlap=False``), its time is there for ``aside`` for nothing.
    Gradient workers go round: each microstep has a slice for all of them, and ends when everybody is done.
    """
    load = [0.0] * workers
    if learners > 1:
        learner = 0.0
    if overlap:
        load[0] += learner
    load[-1] += sum(aside.values()) if overlap else max(0.0, sum(aside.values()) - learner)
    heap = [(seconds, worker) for worker, seconds in enumerate(load)]
    heapq.heapify(heap)
    worker_of = {"learner": 0, "logger": 0} | {f"gradient_worker[{index}]": (1 + index) % workers for index in range(learners - 1)}
    worker_of |= dict.fromkeys(aside, workers - 1)
    for index in range(actors):
        seconds, worker = heap[0]
        worker_of[f"actor[{index}]"] = worker
        heapq.heapreplace(heap, (seconds + actor, worker))
    return worker_of


def meeting_cost(config: ProgramConfig, updates: int, learner: float, slices: int) -> float:
    """Seconds that a learner and its gradient workers need in a round to meet for each minibatch, beyond computing.

    Args:
        config: What the program is made from.
        updates: Of a round.
        learner: Seconds of a learner's round that has no gradient workers.
        slices: Into how many slices minibatches are cut.
    """
    meetings = updates * len(config.shares) / config.lanes
    slice_cost = learner / max(meetings, 1) / (config.lanes * slices)
    return meetings * (tick_cost(away=0.0 if slice_cost < AWAY else AWAY) + MEETING + EXCHANGE * config.exchanged)


def recommendations(config: ProgramConfig, choice: Placement) -> list[str]:
    """Settings that would be faster but change results, so that the user has to decide."""
    if choice.actor is None or choice.learner is None:
        return []
    busiest = max(
        sum(its == worker for name, its in choice.placement.items() if name.startswith("actor")) for worker in range(choice.workers)
    )
    sampling, learning = choice.actor * busiest, choice.learner if choice.helped is None else choice.helped
    advice = []
    cores = usable_cores()
    both = shared_round(
        config.actors.actors, choice.workers, choice.actor, choice.learner, 0.0, overlap=True, helped=choice.helped
    )  # fmt: skip
    if (
        not config.pipeline
        and config.lanes * choice.slices == 1
        and choice.workers > 1
        and min(sampling, learning) > 0.2 * (sampling + learning)
        and both < sampling + learning
    ):
        advice.append(
            f"a round is {1e3 * sampling:.1f} ms of sampling and then {1e3 * learning:.1f} ms of learning; with pipeline=1 they "
            f"overlap, about {1e3 * both:.1f} ms a round"
        )
    if side_by_side := _split_round(config, choice, sampling):
        advice.append(
            f"the learner takes {1e3 * learning:.1f} ms of a round; with split=True, which computes the critics' and the actor's "
            f"gradients side by side (a delayed variant), about {1e3 * side_by_side:.1f} ms"
        )
    elif learning > 2 * sampling and cores > 2 and config.learner_threads == threads_of(config, choice) == choice.slices == 1:
        advice.append(
            f"the learner takes {learning / sampling:.1f} times as long as the sampling; try learner_threads={min(4, cores // 2)}, "
            "fewer gradient steps or smaller batches"
        )
    if sampling < 1e-3 and choice.workers > 1:
        advice.append(
            f"a round samples for {1e3 * sampling:.2f} ms only; longer rounds (train_freq, or n_steps) would "
            "spend less of it on co-ordination"
        )
    return advice


def _split_round(config: ProgramConfig, choice: Placement, sampling: float) -> float | None:
    """Seconds that learning would take with ``split=True``; ``None`` where a round would not be clearly shorter than it is."""
    learning, updates = choice.learner or 0.0, choice.updates
    if config.split or len(config.shares) == 1 or choice.slices > 1 or usable_cores() < 2 or not may_start_processes():
        return None
    other = replace(config, split=True)
    seconds = learning * other.largest_share(1) + meeting_cost(other, updates, learning, 1)
    now = learning if choice.helped is None else choice.helped
    before = max(now, sampling) if config.pipeline else now + sampling
    beside = math.ceil(config.actors.actors / 2) * (choice.actor or 0.0)
    return seconds if expected_gain(before, seconds + beside) > 0.0 else None
