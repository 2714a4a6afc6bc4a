"""Gradient workers in lanes: the bits of the interpreter on every executor, and of a learner that computes all by itself."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from every_other import in_turn
from torch import nn

from reactor_rl import Input, LogicalAction, Output, Program, Reactor, reaction, startup
from reactor_rl.interpret import interpret
from reactor_torch import Batch, GradientWorker, Loss, Network, Networks, SlicedGradients, Task, WorkerConfig, check_split
from reactor_torch.networks import blocks_of, halved
from reactor_torch.slicing import Lanes, nodes, rows_of_slices

ROWS, UPDATES, ROUNDS = 13, 5, 2
BLOCK = 3
"""Rows of a block: five of them, of which the last one has a single row."""


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
    nets = Networks(parts, losses)
    if kind != "buffers":
        nets._blocks = dict.fromkeys(losses, BLOCK)
    return nets


def batch_of(round: int, update: int) -> Numbers:
    generator = torch.Generator().manual_seed(100 * round + update)
    return Numbers(torch.randn(ROWS, 4, generator=generator), torch.randn(ROWS, 1, generator=generator), 1 + update / 7)


def begin(nets: Networks, round: int) -> None:
    """Another value of each loss, and another fixed network."""
    nets["fixed"].bias.data.add_(1)
    nets.begin_round({name: replace(loss, scale=0.5 + round) for name, loss in nets.losses.items()}, seed=round)


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
        self.told = True

    @reaction(minibatch, effects=(weights, slices, round))
    def send(self) -> None:
        if not self.told:
            self.told = True
            self.round.set(self.shared.begin_round())
        self.shared.send(self.tasks, self.weights.buffer, self.slices.buffer)

    @reaction(minibatch)
    def compute(self) -> None:
        self.shared.compute(self.tasks)

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


def alone(count: int, kind: str, split: bool) -> list[bytes]:
    """What comes out without gradient workers."""
    nets = made(count, kind)
    found = []
    for round in range(ROUNDS):
        begin(nets, round)
        update, statistics = updates(nets, round + 1, split), None
        try:
            while True:
                statistics = nets.compute(update.send(statistics))
        except StopIteration as end:
            found.append(outcome(nets, end.value))
    return found


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


@in_turn(
    "count, kind, slices, split, processes",
    [
        (1, "plain", 2, False, 2), (1, "plain", 4, True, 4), (2, "plain", 1, True, 2), (2, "plain", 3, False, 2),
        (2, "dropout", 2, True, 2), (2, "buffers", 2, True, 2), (3, "buffers", 3, False, 4), (3, "plain", 2, True, 2),
        (4, "plain", 1, True, 4), (5, "plain", 2, True, 4),
    ], kept=2)  # fmt: skip
def test_one_result(count: int, kind: str, slices: int, split: bool, processes: int) -> None:
    program = program_of(count, kind, slices, split)
    bank = (count if split else 1) * slices - 1
    record = interpret(program, ROUNDS, {tick: {"beat": np.float32(0)} for tick in range(ROUNDS)})
    assert record.error is None
    expected = [tick["result"] for tick in record.boundary]
    assert len(set(expected)) == ROUNDS
    if kind != "buffers" or not split:  # side by side the one's batch statistics are from before the other's step
        assert alone(count, kind, split) == expected
    for executor, workers in PLACES[processes]:
        assert results(program, executor, workers, bank) == expected, (executor, workers)


def test_weights_are_bound_once() -> None:
    """Each port hands out one view as long as a program runs: networks are read anew for another one."""
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
    batch = batch_of(0, 0)[torch.arange(24) % ROWS]
    shared = SlicedGradients(made(1, "plain"), batch[:6], 2, False)
    ports = np.zeros(shared.weights.size, np.float32), np.zeros(1, shared.layout.record)
    with pytest.raises(ValueError, match=r"has 24 rows.*call close\(\) after changing batch_size"):
        shared.send([Task("loss0", batch, slice(0, 24))], *ports)


def test_statistics_of_one_slice_are_not_a_view_of_what_comes_back_next() -> None:
    shared, batch = SlicedGradients(made(2, "plain"), batch_of(0, 0), 1, True), batch_of(0, 0)
    computed = np.full((1, shared.config(1, [torch.device("cpu")]).computed), 3, np.float32)
    (found,) = shared.add([Task("loss1", batch, slice(0, ROWS))], computed)
    computed.fill(5)
    assert found == {"loss": 3, "mean": 3} and (shared.nets.flat("net1").gradients == 3).all()


def test_batch_normalisation_is_refused_side_by_side() -> None:
    nets = made(2, "buffers")
    check_split(nets)
    nets = Networks({name: replace(part, buffers=False) for name, part in nets.parts.items()}, nets.losses)
    with pytest.raises(ValueError, match=r"'net0\.1' \(BatchNorm1d\).*split=False"):
        check_split(nets)


def leaves(begin: int, end: int) -> Any:
    """The tree over blocks, written down."""
    if end - begin == 1:
        return begin
    middle = begin + halved(end - begin)
    return leaves(begin, middle), leaves(middle, end)


def subtrees(tree: Any) -> list[Any]:
    return [tree, *subtrees(tree[0]), *subtrees(tree[1])] if isinstance(tree, tuple) else [tree]


@pytest.mark.parametrize("blocks", [1, 2, 3, 4, 5, 7, 8, 13, 64])
def test_slices_are_nodes_of_the_tree(blocks: int) -> None:
    known = subtrees(leaves(0, blocks))
    for slices in range(1, 10):
        found = nodes(blocks, slices)
        assert len(found) == min(slices, blocks)
        assert [number for begin, end in found for number in range(begin, end)] == list(range(blocks))
        assert all(leaves(begin, end) in known for begin, end in found)


def test_the_tree() -> None:
    assert [halved(blocks) for blocks in range(2, 10)] == [1, 2, 2, 4, 4, 4, 4, 8]
    assert leaves(0, 7) == (((0, 1), (2, 3)), ((4, 5), 6))
    assert nodes(4, 3) == ((0, 1), (1, 2), (2, 4)) and nodes(4, 2) == ((0, 2), (2, 4))


def test_rows_of_slices() -> None:
    assert rows_of_slices(slice(10, 23), 2, 3) == [slice(10, 22), slice(22, 23)]
    assert rows_of_slices(slice(10, 23), 4, None) == [slice(10, 23)]
    assert blocks_of(13, 3) == 5 and blocks_of(13, None) == 1


class Sums(Loss):
    """Of a layer: with numbers that are far apart, sums in another order are other ones."""

    learns, statistics = "net", ("loss",)

    def __call__(self, nets: Any, batch: Numbers) -> tuple[torch.Tensor, ...]:
        return (nets["net"](batch.observations).mul(batch.actions).mean(),)


def test_blocks_are_added_up_as_the_tree_says() -> None:
    layer = nn.Linear(4, 1)
    nets = Networks({"net": Network(layer, torch.optim.SGD(layer.parameters(), 1.0))}, {"sums": Sums()})
    batch = batch_of(0, 0)
    batch.actions.mul_(10.0 ** torch.arange(ROWS)[:, None] % 7)
    nets._blocks["sums"] = BLOCK

    def added(begin: int, end: int) -> Any:
        if end - begin > 1:
            middle = begin + halved(end - begin)
            return added(begin, middle) + added(middle, end)
        rows = slice(begin * BLOCK, min(end * BLOCK, ROWS))
        nets.gradients("sums", batch[rows], ROWS)
        return nets.flat("net").gradients.clone()

    expected = added(0, 5)
    nets.gradients("sums", batch)
    assert torch.equal(nets.flat("net").gradients, expected)
    nets._blocks["sums"] = None
    nets.gradients("sums", batch)
    assert not torch.equal(nets.flat("net").gradients, expected)
    torch.testing.assert_close(nets.flat("net").gradients, expected)


def test_a_field_that_minibatches_have_not() -> None:
    nets = made(1, "plain")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Chase, "fields", ("rewards",))
        with pytest.raises(ValueError, match=r"loss 'loss0' looks at \['rewards'\].*Numbers.*'observations'"):
            SlicedGradients(nets, batch_of(0, 0), 2, False)
