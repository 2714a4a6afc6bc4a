"""Gradient workers in lanes: the bits of the interpreter on every executor, and of slices added in order without a program."""

from __future__ import annotations

import copy
from collections.abc import Generator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from reactor_rl import Input, LogicalAction, Output, Program, Reactor, reaction, startup
from reactor_rl.interpret import interpret
from reactor_torch import Batch, GradientWorker, Loss, Network, Networks, SlicedGradients, Task, WorkerConfig, check_sliced
from reactor_torch.slicing import Lanes, rows_of_slice

ROWS, UPDATES, ROUNDS = 13, 5, 2


@dataclass
class Numbers(Batch):
    observations: torch.Tensor
    actions: torch.Tensor
    weight: float


@dataclass(frozen=True)
class Chase(Loss):
    """A network comes near to another one and to one that is fixed."""

    scale: float
    learns: str
    reads: tuple[str, ...]
    statistics = ("loss", "mean")

    def __call__(self, nets: Any, batch: Numbers) -> tuple[torch.Tensor, ...]:
        for name in self.reads:
            nets[name].train(False)
        outputs = nets[self.learns].train(True)(batch.observations)
        with torch.no_grad():
            wanted = sum(nets[name](batch.observations) for name in self.reads)
        return batch.weight * (outputs - self.scale * wanted - batch.actions).square().mean(), outputs.mean()


LAYERS: dict[str, type[nn.Module]] = {"plain": nn.Tanh, "dropout": nn.Dropout, "buffers": nn.BatchNorm1d}


def made(count: int, kind: str) -> Networks:
    """So many networks and losses, each of the next network and of a fixed one; every second one is larger."""
    torch.manual_seed(0)
    parts = {}
    for number in range(count):
        width = 5 + 11 * (number % 2)
        layer = nn.BatchNorm1d(width, momentum=None) if kind == "buffers" else LAYERS[kind]()
        module = nn.Sequential(nn.Linear(4, width), layer, nn.Linear(width, 1))
        parts[f"net{number}"] = Network(module, torch.optim.Adam(module.parameters(), 0.1), buffers=kind == "buffers")
    parts["fixed"] = Network(nn.Linear(4, 1), fixed=True)
    losses = {f"loss{number}": Chase(0.5, f"net{number}", (f"net{(number + 1) % count}", "fixed")) for number in range(count)}
    if count == 1:
        losses = {"loss0": replace(losses["loss0"], reads=("fixed",))}
    return Networks(parts, losses)


def batch_of(round: int, update: int) -> Numbers:
    generator = torch.Generator().manual_seed(100 * round + update)
    return Numbers(torch.randn(ROWS, 4, generator=generator), torch.randn(ROWS, 1, generator=generator), 1 + update / 7)


def begin(nets: Networks, round: int) -> None:
    """Another value of each loss, and another fixed network."""
    nets["fixed"].bias.data.add_(1)
    nets.begin_round({name: replace(loss, scale=0.5 + round) for name, loss in nets.losses.items()})


def updates(nets: Networks, round: int, split: bool) -> Generator[tuple[Task, ...], Any, list[float]]:
    """The second loss learns every second time, the third every third time; the last minibatch has one row.

    But for batch normalisation, which cannot do with one.
    """
    normalises = any(part.buffers for part in nets.parts.values())
    found: list[float] = []
    for update in range(UPDATES):
        batch = batch_of(round, update)
        rows = slice(3, 4) if update == UPDATES - 1 and not normalises else slice(0, ROWS - update)
        tasks = [Task(name, batch, rows) for number, name in enumerate(nets.losses) if update % (number + 1) == 0]
        for together in [tasks] if split else [[task] for task in tasks]:
            statistics = yield tuple(together)
            for task, of_task in zip(together, statistics, strict=True):
                nets.step(nets.loss(task.loss).learns)
                found += of_task.values()
    nets.end_round()
    return found


def outcome(nets: Networks, found: Sequence[float]) -> bytes:
    state = [part.numpy().tobytes() for name in nets for part in nets[name].state_dict().values()]
    return b"".join([*state, np.array(found).tobytes()])


class Learner(Reactor):
    """Learns from what it makes up."""

    beat, computed = Input(), Input()
    weights, slices, round = Output((0,), np.float32), Output((0,), np.uint8), Output()
    minibatch, result = LogicalAction(), Output()

    def __init__(self, config: WorkerConfig, count: int, kind: str) -> None:
        self.made, self.lanes, self.rounds = (count, kind), config.lanes, 0
        self.weights = Output((config.weights.size,), np.float32)
        self.slices = Output((config.lanes.workers,), config.layout.record)

    @reaction(startup)
    def build(self) -> None:
        self.nets = made(*self.made)
        self.shared = SlicedGradients(self.nets, batch_of(0, 0), self.lanes.slices, self.lanes.split)
        self.stream = torch.Generator().manual_seed(7).get_state()
        self.told = True

    @reaction(minibatch, effects=(weights, slices, round))
    def send(self) -> None:
        if not self.told:
            self.told = True
            self.round.set(self.shared.begin_round([1000 * self.rounds + worker for worker in range(self.shared.workers)]))
        self.shared.send(self.tasks, self.weights.buffer, self.slices.buffer)

    @reaction(minibatch)
    def compute(self) -> None:
        self.shared.compute(self.tasks, nullcontext if self.made[1] != "dropout" else self.seeded)

    def seeded(self) -> Any:
        from reactor_torch import torch_stream

        return torch_stream(self.stream)

    @reaction(minibatch, uses=computed, effects=(minibatch, result))
    def step(self) -> None:
        self.go_on(self.shared.add(self.tasks, self.computed.value))

    @reaction(beat, effects=(minibatch, result))
    def learn(self) -> None:
        begin(self.nets, self.rounds)
        self.rounds, self.told = self.rounds + 1, False
        self.update = updates(self.nets, self.rounds, self.lanes.split)
        self.go_on(None)

    def go_on(self, statistics: Any) -> None:
        try:
            self.tasks = self.update.send(statistics)
            self.minibatch.schedule()
        except StopIteration as end:
            self.result.set(outcome(self.nets, end.value))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "update"}


def program_of(count: int, kind: str, slices: int, split: bool) -> Program:
    nets = made(count, kind)
    config = SlicedGradients(nets, batch_of(0, 0), slices, split).config(1, [torch.device("cpu")])
    program = Program("lanes")
    workers = program.bank(GradientWorker, config.lanes.workers, config, name="gradient_worker")
    learner = program.add(Learner, config, count, kind, name="learner")
    program.connect(learner.weights, workers.weights)
    program.connect(learner.slices.rows, workers.slice)
    program.connect(learner.round, workers.round)
    program.connect(workers.computed, learner.computed.rows)
    program.connect(program.input("beat", (), np.float32), learner.beat)
    program.connect(learner.result, program.output("result"))
    return program


def in_order(count: int, kind: str, slices: int, split: bool) -> list[bytes]:
    """What slices come to that are added here, one after the other."""
    nets = made(count, kind)
    found = []
    for round in range(ROUNDS):
        begin(nets, round)
        update, statistics = updates(nets, round + 1, split), None
        try:
            while True:
                tasks = update.send(statistics)
                before = copy.deepcopy(nets) if kind == "buffers" else nets
                statistics = [added(nets, before, task, slices) for task in tasks]
        except StopIteration as end:
            found.append(outcome(nets, end.value))
    return found


def added(nets: Networks, before: Networks, task: Task, slices: int) -> dict[str, float]:
    loss = nets.loss(task.loss)
    flat, count, total = nets.flat(loss.learns), task.rows.stop - task.rows.start, None
    for index in range(slices):
        rows = rows_of_slice(task.rows, slices, index)
        if rows.stop == rows.start:
            continue
        one = copy.deepcopy(before) if before is not nets else nets
        statistics = one.gradients(task.loss, task.batch[rows], count)
        share = (rows.stop - rows.start) / count
        buffers = [b * share if b.is_floating_point() else b for b in one.buffers(loss.learns)]
        summand = (one.flat(loss.learns).gradients.clone(), statistics, buffers)
        if total is None:
            total = summand
        else:
            sums = [a + b if a.is_floating_point() else a for a, b in zip(total[2], buffers, strict=True)]
            total = (total[0] + summand[0], total[1] + statistics, sums)
    assert total is not None
    flat.gradients.copy_(total[0])
    for buffer, value in zip(nets.buffers(loss.learns), total[2], strict=True):
        buffer.copy_(value)
    return nets.named(task.loss, total[1])


PLACES = {2: [("inline", 1), ("threads", 2), ("processes", 2)], 4: [("threads", 2), ("processes", 4)]}
"""By processes of the largest: each case is run in one number of them."""


def results(program: Program, executor: str, workers: int, bank: int) -> list[bytes]:
    placement = {"learner": 0} | {f"gradient_worker[{index}]": (index + 1) % workers for index in range(bank)}
    found = []
    with program.start(executor=executor, workers=workers, placement=placement) as run:
        for _ in range(ROUNDS):
            run.set(beat=np.float32(0))
            run.tick()
            found.append(run.result)
    return found


@pytest.mark.parametrize(
    ("count", "kind", "slices", "split", "processes"),
    [
        (1, "plain", 2, False, 2), (1, "plain", 4, True, 4), (2, "plain", 1, True, 2), (2, "plain", 3, False, 2),
        (2, "dropout", 2, True, 4), (2, "buffers", 2, True, 2), (3, "buffers", 3, False, 4), (3, "plain", 2, True, 2),
        (4, "plain", 1, True, 4), (5, "plain", 2, True, 4),
    ],
)  # fmt: skip
def test_one_result(count: int, kind: str, slices: int, split: bool, processes: int) -> None:
    program = program_of(count, kind, slices, split)
    bank = (count if split else 1) * slices - 1
    record = interpret(program, ROUNDS, {tick: {"beat": np.float32(0)} for tick in range(ROUNDS)})
    assert record.error is None
    expected = [tick["result"] for tick in record.boundary]
    assert len(set(expected)) == ROUNDS
    if kind != "dropout":
        assert in_order(count, kind, slices, split) == expected
    for executor, workers in PLACES[processes]:
        assert results(program, executor, workers, bank) == expected, (executor, workers)


def test_weights_are_bound_once() -> None:
    """Each port hands out one view as long as a program runs: formulas are made anew for another one."""
    moves = []
    move = Networks.move
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Networks, "move", lambda self, places: (moves.append(1), move(self, places))[1])
        results(program_of(2, "plain", 2, True), "inline", 1, 3)
    assert len(moves) == 3


def test_lanes() -> None:
    lanes = Lanes(("a", "b", "c"), 2, True)
    assert lanes.workers == 5
    assert [lanes.slot_of(worker) for worker in range(5)] == [(0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert [list(lanes.workers_of(lane)) for lane in range(3)] == [[0], [1, 2], [3, 4]]
    together = replace(lanes, split=False)
    assert (together.workers, list(together.workers_of(0)), together.losses_of(0)) == (1, [0], ("a", "b", "c"))


def test_two_losses_of_one_lane_at_the_same_time() -> None:
    nets = made(2, "plain")
    shared, batch = SlicedGradients(nets, batch_of(0, 0), 2, False), batch_of(0, 0)
    tasks = [Task(name, batch, slice(0, ROWS)) for name in nets.losses]
    with pytest.raises(ValueError, match="only with split=True"):
        shared.send(tasks, np.zeros(shared.weights.size, np.float32), np.zeros(1, shared.layout.record))


def test_more_rows_than_there_is_room_for() -> None:
    shared, batch = SlicedGradients(made(1, "plain"), batch_of(0, 0)[:6], 2, False), batch_of(0, 0)
    ports = np.zeros(shared.weights.size, np.float32), np.zeros(1, shared.layout.record)
    with pytest.raises(ValueError, match=r"has 13 rows.*call close\(\) after changing batch_size"):
        shared.send([Task("loss0", batch, slice(0, ROWS))], *ports)


def test_statistics_of_one_slice_are_not_a_view_of_what_comes_back_next() -> None:
    shared, batch = SlicedGradients(made(2, "plain"), batch_of(0, 0), 1, True), batch_of(0, 0)
    computed = np.full((1, shared.config(1, [torch.device("cpu")]).computed), 3, np.float32)
    (found,) = shared.add([Task("loss1", batch, slice(0, ROWS))], computed)
    computed.fill(5)
    assert found == {"loss": 3, "mean": 3} and (shared.nets.flat("net1").gradients == 3).all()


@pytest.mark.parametrize(("slices", "split"), [(1, False), (2, False), (1, True)])
def test_batch_normalisation_is_refused(slices: int, split: bool) -> None:
    nets = made(2, "buffers")
    check_sliced(nets, slices, split)
    parts = {name: replace(part, buffers=False) for name, part in nets.parts.items()}
    nets = Networks(parts, nets.losses)
    if slices == 1 and not split:
        check_sliced(nets, slices, split)
        return
    with pytest.raises(ValueError, match=rf"'net0\.1' \(BatchNorm1d\).*{'split=False' if split else 'n_learners=1'}"):
        check_sliced(nets, slices, split)


def test_a_field_that_minibatches_have_not() -> None:
    nets = made(1, "plain")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Chase, "fields", ("rewards",))
        with pytest.raises(ValueError, match=r"loss 'loss0' looks at \['rewards'\].*Numbers.*'observations'"):
            SlicedGradients(nets, batch_of(0, 0), 2, False)
