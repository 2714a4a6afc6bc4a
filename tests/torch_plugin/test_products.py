"""Products, sums and Adam of the extension: the bits of a loop of ``fmaf`` for every kind of processor, and right."""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from reactor_torch import kernels

products = pytest.importorskip("reactor_torch._products")

Array = npt.NDArray[np.float32]
KINDS = products.kinds()
LEAF = products.LEAF
ROWS = (0, 1, 2, 7, 16, 33, 64, 65, 100, 128, 256, 257, 300, 600, 1024)
LINEAR, PLAIN, NORMALISED, RENORMALISED = "linear", "activation", "layer_norm", "batch_renorm"
"""Types of layers."""
WIDTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 17, 23, 31, 32, 33, 64, 100, 256, 257, 300)

libm = ctypes.CDLL(ctypes.util.find_library("m"))
fmaf = libm.fmaf
fmaf.restype, fmaf.argtypes = ctypes.c_float, (ctypes.c_float,) * 3


@pytest.fixture(autouse=True)
def kind_in_use() -> Iterator[None]:
    before = products.using()
    yield
    products.use(before)


def normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def same_bits(one: Array, other: Array) -> bool:
    """But for the payloads of what is no number."""
    nothing = np.isnan(one)
    bits = (np.where(nothing, np.float32(0), part).astype(np.float32).view(np.uint32) for part in (one, other))
    return bool(np.array_equal(nothing, np.isnan(other)) and np.array_equal(*bits))


def chain(first: Array, second: Array, start: float = 0.0) -> float:
    """One sum of products, by ``fmaf``."""
    for a, b in zip(first.tolist(), second.tolist(), strict=True):
        start = fmaf(a, b, start)
    return start


def dot(first: Array, second: Array, start: float) -> np.float32:
    """Sixteen sums of products, folded up: what a network of up to four outputs gives."""
    parts = [np.float32(chain(first[lane::16], second[lane::16])) for lane in range(16)]
    for half in (8, 4, 2, 1):
        parts = [parts[at] + parts[at + half] for at in range(half)]
    return parts[0] + np.float32(start)


def tree(leaves: list[Any]) -> Any:
    """Leaves added in pairs, pairs in pairs; where the tree is not full, the later parts first."""
    waiting: list[tuple[int, Any]] = []
    for leaf in leaves:
        size, total = 1, leaf
        while waiting and waiting[-1][0] == size:
            total, size = waiting.pop()[1] + total, 2 * size
        waiting.append((size, total))
    total = waiting.pop()[1]
    while waiting:
        total = waiting.pop()[1] + total
    return total


class Layers:
    """Random layers, and what a kind makes of them."""

    def __init__(self, rng: np.random.Generator, rows: int, widths: list[int], kinds: list[int], types: list[str]) -> None:
        for at, kind in enumerate(types):
            widths[at + 1] = widths[at] if kind != LINEAR else widths[at + 1]
        self.rows, self.widths, self.kinds, self.types, between = (rows, widths, kinds, types, list(pairwise(widths)))
        self.weights = [
            normal(rng, outputs) if kind != LINEAR else normal(rng, outputs, inputs) / np.float32(math.sqrt(inputs))
            for kind, (inputs, outputs) in zip(types, between, strict=True)
        ]
        self.biases = [normal(rng, outputs) for _, outputs in between]
        self.inputs, self.gradient = normal(rng, rows, widths[0]), normal(rng, rows, widths[-1])
        self.chosen = np.flatnonzero(rng.random(rows) < 0.5)
        self.running = [(normal(rng, outputs), normal(rng, outputs) ** 2) for _, outputs in between]
        self.together = RENORMALISED in types and bool(rng.random() < 0.7)

    def computed(self, kind: str, *others: Layers) -> list[Array]:
        """Gradients of weights and biases, outputs and gradients of inputs of each layer; and those of some rows.

        Besides, running statistics. Rows that are normalised together have no slopes of their own. Others go beside this one; they
        have its inputs.
        """
        products.use(kind)
        every = [self, *others]
        built = [one.built() for one in every]
        (network, _), *beside = built
        (network.run_together if self.together else network.run)(self.inputs, *(one for one, _ in beside))
        of_some = [np.full((len(one.chosen), one.widths[0]), 7, np.float32) for one in every]
        if not self.together:
            given = [(one.gradient[one.chosen], one.chosen, out) for one, out in zip(every, of_some, strict=True)]
            (gradient, rows, out), *more = given
            network.slopes(
                gradient, rows, 0, out, *(part for (one, _), parts in zip(beside, more, strict=True) for part in (one, *parts))
            )
        gradients = (part for one, (other, _) in zip(others, beside, strict=True) for part in (other, one.gradient.copy()))
        network.back(self.gradient.copy(), *gradients)
        return [*(part for _, found in built for part in found), *of_some]

    def built(self) -> tuple[Any, list[Array]]:
        """A network, and the arrays that it overwrites."""
        layers, found = [], []
        for at, (inputs, outputs) in enumerate(zip(self.widths, self.widths[1:], strict=False)):
            shapes = (self.weights[at].shape, (outputs,), (self.rows, outputs), (self.rows, inputs))
            made = [np.full(shape, 7, np.float32) for shape in shapes]  # what is not overwritten is seen
            parts = [self.weights[at], self.biases[at], *made[:2]] if self.types[at] != PLAIN else [None] * 4
            running = [one.copy() for one in self.running[at]] if self.types[at] == RENORMALISED else []
            statistics = (*running, np.array(5), 0.1, 1.5, 0.5, 4 + at % 2) if running else None
            layers.append((self.types[at], self.kinds[at], inputs, outputs, 1e-5, *parts, *made[2:], statistics))
            found += [*made, *running]
        return products.Network(self.rows, tuple(layers)), found


def test_a_layer_is_a_loop_of_fmaf() -> None:
    rng = np.random.default_rng(0)
    for rows, inputs, outputs in ((1, 1, 1), (3, 20, 4), (5, 33, 7), (70, 3, 5), (130, 9, 2), (300, 2, 18), (2, 300, 6)):
        layer = Layers(rng, rows, [inputs, outputs], [0], [LINEAR])
        weight, bias, x, g = layer.weights[0], layer.biases[0], layer.inputs, layer.gradient
        few = outputs <= 4
        out = np.array(
            [[(dot if few else chain)(row, w, b) for w, b in zip(weight, bias.tolist(), strict=True)] for row in x], np.float32
        )
        below = np.array([[chain(row, column) for column in weight.T] for row in g], np.float32)
        cuts = [slice(at, at + LEAF) for at in range(0, rows, LEAF)]
        by_weight = np.array(
            [[tree([np.float32(chain(one[cut], other[cut])) for cut in cuts]) for other in x.T] for one in g.T], np.float32
        )
        one = np.ones(rows, np.float32)
        by_bias = np.array([tree([np.float32(chain(one[cut], column[cut])) for cut in cuts]) for column in g.T], np.float32)
        for kind in KINDS:
            found = layer.computed(kind)
            for wanted, given in zip((by_weight, by_bias, out, below, below[layer.chosen]), found, strict=True):
                assert same_bits(wanted, given), (kind, rows, inputs, outputs)


@pytest.mark.parametrize("seed", range(4))
def test_all_kinds_of_processors_give_the_same_bits(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tried = 0
    while tried < 12:
        rows, depth = int(rng.choice(ROWS)), int(rng.integers(1, 4))
        layers = Layers(
            rng, rows, rng.choice(WIDTHS, depth + 1).tolist(), rng.integers(0, 3, depth).tolist(),
            rng.choice([LINEAR, LINEAR, LINEAR, NORMALISED, PLAIN, RENORMALISED], depth).tolist(),
        )  # fmt: skip
        if rows * max(layers.widths) ** 2 > 3e6:  # portable code calls a function for each product
            continue
        tried += 1
        if rows and rng.random() < 0.3:
            layers.inputs[rng.integers(rows), rng.integers(layers.widths[0])] = np.nan
            layers.gradient[rng.integers(rows), rng.integers(layers.widths[-1])] = np.inf
        found = {kind: layers.computed(kind) for kind in KINDS}
        for kind in KINDS:
            assert all(map(same_bits, found[kind], found["portable"])), (kind, rows, layers.widths, layers.kinds, layers.types)


@pytest.mark.parametrize(
    ("rows", "widths"), [(512, [256, 256]), (130, [520, 1024, 520]), (97, [6, 300, 20]), (30, [1100, 40, 2100]), (1500, [40, 33])]
)
def test_so_do_wide_layers(rows: int, widths: list[int]) -> None:
    layers = Layers(np.random.default_rng(0), rows, widths, [1, 2][: len(widths) - 1], [LINEAR] * (len(widths) - 1))
    wanted = layers.computed("portable")
    for kind in KINDS:
        assert all(map(same_bits, layers.computed(kind), wanted)), kind


@pytest.mark.parametrize("kind", KINDS)
def test_against_float64(kind: str) -> None:
    rng = np.random.default_rng(5)
    shapes = [(rows, inputs, outputs) for rows in (1, 64, 300) for inputs in (3, 64, 257) for outputs in (1, 6, 64)]
    for rows, inputs, outputs in (*shapes, (30, 1100, 40), (30, 40, 2100), (1500, 40, 33)):  # those go through products in pieces
        layer = Layers(rng, rows, [inputs, outputs], [int(rng.integers(0, 3))], [LINEAR])
        w, x, g = (one.astype(np.float64) for one in (layer.weights[0], layer.inputs, layer.gradient.copy()))
        out = x @ w.T + layer.biases[0]
        activation = layer.kinds[0]
        out = np.tanh(out) if activation == 2 else np.maximum(out, 0) if activation else out
        g = g * (1 - out**2) if activation == 2 else g * (out > 0) if activation else g
        by_weight, by_bias, given, below, _ = layer.computed(kind)
        for wanted, one in ((out, given), (g @ w, below), (g.T @ x, by_weight), (g.sum(0), by_bias)):
            assert np.abs(wanted - one).max() <= 4e-6 * max(1.0, np.abs(wanted).max()) * math.sqrt(max(rows, inputs, 4))


def elementwise(kind: str) -> list[Any]:
    """What is no part of a loss, of random numbers: the contract of losses has the others."""
    products.use(kind)
    rng = np.random.default_rng(1)
    found: list[Any] = [products.norm(normal(rng, 9001)), products.exp(0.3), np.full(150, 7, np.float32)]
    products.standardize(normal(rng, 150), found[-1])
    weights, target, gradients, first, second = (np.abs(normal(rng, 301)) for _ in range(5))
    for kind_of_adam, decoupled, decay, steps in (
        (0, False, 0.0, 1),
        (0, False, 0.1, 7),
        (0, True, 0.1, 7),
        (1, False, 0.1, 3),
        (1, True, 0.1, 90),
    ):
        products.adam(kind_of_adam, decoupled, weights, gradients, first, second, steps, 1e-2, 0.9, 0.999, 1e-8, decay)
        found += [weights.copy(), first.copy(), second.copy()]
    products.polyak(target, weights, 0.005)
    return [np.atleast_1d(np.asarray(one, np.float32)) for one in (*found, target)]


def test_optimisers_have_the_same_bits() -> None:
    found = {kind: elementwise(kind) for kind in KINDS}
    for kind in KINDS:
        assert all(map(same_bits, found[kind], found["portable"])), kind
    assert all(np.isfinite(one).all() for one in found[KINDS[0]])


def test_the_best_action_that_follows() -> None:
    following = np.array([[1, 3, 2], [4, 0, 4], [np.nan, 9, 1], [5, np.nan, 1]], np.float32)
    others = np.array([[0, 0, 1], [7, 8, 8], [1, 0, 0], [0, 0, np.nan]], np.float32)
    dones, rewards, returns = np.array([0, 1, 0, 0], np.float32), np.array([10, 20, 30, 40], np.float32), np.zeros(4, np.float32)
    products.q_target(following, None, dones, rewards, None, 0.5, returns)
    np.testing.assert_array_equal(returns, [11.5, 20, np.nan, np.nan])
    products.q_target(following, others, dones, rewards, np.full(4, 0.25, np.float32), 0.5, returns)
    np.testing.assert_array_equal(returns, [10.5, 20, np.nan, 40.25])
    with pytest.raises(ValueError, match="dones does not fit: dimension 0 must be 4, got 5"):
        products.q_target(following, None, np.zeros(5, np.float32), np.zeros(5, np.float32), None, 0.5, np.zeros(5, np.float32))


@pytest.mark.parametrize("kind", KINDS)
def test_exponentials(kind: str) -> None:
    products.use(kind)
    given = [-200.0, -87.0, -3.3, -1e-8, 0.0, 0.7, 1.0, 20.1, 88.3, 200.0, math.inf, -math.inf, math.nan]
    found = [products.exp(one) for one in given]
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(found, np.exp(np.array(given, np.float32)), rtol=1e-6, atol=1e-37)


@pytest.mark.parametrize("optimizer", ["Adam", "AdamW", "RAdam"])
def test_optimisers_are_torch_s(optimizer: str) -> None:
    torch.manual_seed(0)
    weights = torch.nn.Parameter(torch.randn(33))
    theirs = getattr(torch.optim, optimizer)([weights], lr=1e-2, weight_decay=0.1)
    ours, first, second = weights.detach().clone().numpy(), np.zeros(33, np.float32), np.zeros(33, np.float32)
    for steps in range(1, 12):
        weights.grad = torch.randn(33)
        gradient = weights.grad.numpy().copy()
        theirs.step()
        decoupled = optimizer == "AdamW"
        products.adam(optimizer == "RAdam", decoupled, ours, gradient, first, second, steps, 1e-2, 0.9, 0.999, 1e-8, 0.1)
        np.testing.assert_allclose(ours, weights.detach().numpy(), rtol=2e-6, atol=2e-6)


def test_rmsprop_is_torch_s() -> None:
    torch.manual_seed(0)
    weights = torch.nn.Parameter(torch.randn(33))
    theirs = torch.optim.RMSprop([weights], lr=1e-2, alpha=0.9, eps=1e-5, weight_decay=0.1)
    ours, squares = weights.detach().clone().numpy(), np.zeros(33, np.float32)
    for _ in range(11):
        weights.grad = torch.randn(33)
        gradient = weights.grad.numpy().copy()
        theirs.step()
        products.rmsprop(ours, gradient, squares, 1e-2, 0.9, 1e-5, 0.1)
        np.testing.assert_allclose(ours, weights.detach().numpy(), rtol=2e-6, atol=2e-6)


def test_wrong_arguments_are_refused() -> None:
    weight, out = np.zeros((2, 3), np.float32), np.zeros((4, 2), np.float32)
    layer = (LINEAR, 0, 3, 2, 0.0, weight, None, None, None, out, None)
    network = products.Network(4, (layer,))
    with pytest.raises(ValueError, match=r"inputs must be float32 of the shape \(4, 3\)"):
        network.run(np.zeros((4, 3)))
    with pytest.raises(ValueError, match=r"inputs must be float32 of the shape \(4, 3\)"):
        network.run(np.zeros((5, 3), np.float32))
    with pytest.raises(ValueError, match="does not learn"):
        network.back(np.zeros((4, 2), np.float32))
    learning = products.Network(4, ((LINEAR, 0, 3, 2, 0.0, weight, None, np.zeros((2, 3), np.float32), None, out, None),))
    learning.run(np.zeros((4, 3), np.float32))
    with pytest.raises(ValueError, match="inputs must be float32"):
        learning.run(np.zeros((1, 3), np.float32))
    with pytest.raises(ValueError, match=r"run\(inputs\) comes before back"):  # not with those that were refused
        learning.back(np.zeros((4, 2), np.float32))
    three = [np.zeros(3, np.float32) for _ in range(3)]
    with pytest.raises(TypeError):  # its bias has no gradient
        products.Network(4, ((NORMALISED, 0, 3, 3, 1e-5, *three, None, np.zeros((4, 3), np.float32), None),))
    with pytest.raises(ValueError, match=r"linear\(weight\[n,k\] bias\?\[n\]\): weight does not fit: dimension 0 must be 5, got 2"):
        products.Network(4, ((LINEAR, 0, 3, 5, 0.0, weight, None, None, None, out, None),))
    with pytest.raises(ValueError, match="cannot follow"):
        products.Network(4, (layer, (LINEAR, 0, 3, 2, 0.0, weight, None, None, None, out, np.zeros((4, 3), np.float32))))
    with pytest.raises(IndexError, match="rows must be below 4 and not negative, got 4"):
        network.slopes(np.ones((1, 2), np.float32), np.array([4]), 0, np.zeros((1, 3), np.float32))
    numbers = [np.zeros(3, np.float32) for _ in range(6)]
    below, steps = np.zeros((4, 3), np.float32), np.array(0)

    def renormalising(*statistics: Any) -> Any:
        return products.Network(4, ((RENORMALISED, 0, 3, 3, 0.0, *numbers[:4], below, None, *statistics),))

    bounds = 0.1, 3.0, 5.0, 10
    with pytest.raises(TypeError, match=r"is given \(mean, variance, steps, momentum, rmax, dmax, warmup\)"):
        renormalising()
    with pytest.raises(ValueError, match="variance does not fit: dimension 0 must be 3, got 4"):
        renormalising((numbers[4], np.zeros(4, np.float32), steps, *bounds))
    with pytest.raises(TypeError, match="steps must be int64"):
        renormalising((*numbers[4:], np.array(0, np.int32), *bounds))
    together = renormalising((*numbers[4:], steps, *bounds))
    together.run_together(np.ones((4, 3), np.float32))
    with pytest.raises(ValueError, match="normalised together have no slopes of their own"):
        together.slopes(np.ones((4, 3), np.float32), None, 0, below.copy())
    with pytest.raises(TypeError, match='weights must be float32, got the format "d"'):
        products.adam(0, False, np.zeros(3), *[None] * 3, 1, *[0.0] * 5)
    with pytest.raises(IndexError, match="actions must be below 2 and not negative, got 2"):
        products.q_loss(out, np.full(4, 2), np.zeros(4, np.float32), False, 1.0, out.copy())
    with pytest.raises(ValueError, match="values does not fit: dimension 0 must be 1, got 4"):
        products.quantile_loss(1, 3, out, out, 1.0, out.copy())
    with pytest.raises(ValueError, match="this processor has no 'mmx'"):
        products.use("mmx")


@pytest.mark.parametrize("compiled", [True, False])
def test_rows_are_gathered(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled:
        monkeypatch.setattr(kernels, "compiled", None)
    rng = np.random.default_rng(0)
    sources = tuple(
        (1000 * rng.standard_normal((50, *shape))).astype(dtype)
        for shape, dtype in (((), np.float32), ((1,), np.int64), ((17,), np.float64), ((2, 3, 5), np.uint8), ((4,), np.bool_))
    )
    rows = rng.integers(0, 50, 40)
    targets = tuple(np.zeros((40, *source.shape[1:]), source.dtype) for source in sources)
    kernels.gather(rows, sources, targets)
    assert all(np.array_equal(source[rows], target) for source, target in zip(sources, targets, strict=True))
    kernels.gather(rows[:0], sources, tuple(target[:0] for target in targets))


def test_rows_that_are_not_there() -> None:
    source, target = np.zeros((5, 2), np.float32), np.zeros((3, 2), np.float32)
    for wrong in (5, -1):
        with pytest.raises(IndexError, match=f"there are 5 rows, and none with the number {wrong}"):
            products.gather(np.array([0, wrong, 1]), (source,), (target,))
    with pytest.raises(ValueError, match="24 bytes are not those of 5 rows"):
        products.gather(np.zeros(5, np.int64), (source,), (target,))
    with pytest.raises(TypeError, match="tuples of one length"):
        products.gather(np.zeros(3, np.int64), (source,), ())
    with pytest.raises(TypeError, match="rows must be int64"):
        products.gather(np.zeros(3), (source,), (target,))
    target.flags.writeable = False
    with pytest.raises(ValueError, match=r"read-only|not writable"):
        products.gather(np.zeros(3, np.int64), (source,), (target,))


# ---------------------------------------------------------------------- networks side by side, and threads


def beside(rng: np.random.Generator, rows: int, widths: list[int], types: list[str], count: int) -> list[Layers]:
    """Networks of the same shape with the same inputs."""
    networks = [Layers(rng, rows, list(widths), rng.integers(0, 3, len(types)).tolist(), types) for _ in range(count)]
    for one in networks:
        one.inputs, one.together = networks[0].inputs, networks[0].together
    return networks


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", KINDS)
def test_threads_and_networks_beside_change_no_bit(kind: str) -> None:
    rng = np.random.default_rng(0)
    teams = [products.Team(threads) for threads in (1, 2, 3, 4, 70)]  # the last one is more than a team has
    for rows, widths, types, count in (
        (256, [23, 256, 256, 1], [LINEAR, LINEAR, LINEAR], 2),  # critics
        (300, [17, 257, 100], [LINEAR, LINEAR], 1),
        (300, [256, 6], [LINEAR], 2),  # heads of an actor
        (600, [64, 100, 100, 100], [LINEAR, NORMALISED, LINEAR], 1),
        (130, [100, 300, 300, 6], [LINEAR, PLAIN, LINEAR], 3),
        (200, [40, 128, 128], [RENORMALISED, LINEAR], 2),
        (7, [600, 600, 600], [LINEAR, LINEAR], 2),
        (64, [1100, 70], [LINEAR], 1),
        (1, [3, 4], [LINEAR], 2),
    ):
        first, *others = beside(rng, rows, widths, types, count)
        one_by_one = [layers.computed(kind) for layers in (first, *others)]
        wanted = [part for found in one_by_one for part in found[:-1]] + [found[-1] for found in one_by_one]
        for team in teams * (1 if kind == "portable" else 4):
            with team:
                found = first.computed(kind, *others)
            assert all(map(same_bits, found, wanted)), (rows, widths, types, count)
    for team in teams:
        team.close()


@pytest.mark.parametrize("kind", KINDS)
def test_threads_add_up(kind: str) -> None:
    products.use(kind)
    rng = np.random.default_rng(0)
    for shape in ((1, 1), (7, 5), (300, 257)):
        total, more = normal(rng, *shape), normal(rng, *shape)
        for threads in (1, 2, 4):
            found = total.copy()
            with products.Team(threads):
                products.add(found, more)
            assert same_bits(found, total + more)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_least_of_several_networks(count: int, threads: int) -> None:
    rng = np.random.default_rng(count)
    networks = beside(rng, 300, [23, 128, 128, 1], [LINEAR, LINEAR, LINEAR], count)
    for one in networks:
        one.kinds[-1] = 0
    (first, found), *others = [one.built() for one in networks]
    first.run(networks[0].inputs, *(other for other, _ in others))
    outputs = [arrays[-2] for arrays in (found, *(arrays for _, arrays in others))]
    values = np.stack([one[:, 0] for one in outputs])
    values[rng.integers(count), rng.integers(300, size=9)] = np.nan
    values[:, 5:9] = 1.0  # then it is the first one
    least, out = np.full(300, 7, np.float32), np.full((300, 6), 7, np.float32)
    with products.Team(threads):
        first.least(values, 17, least, out, *(other for other, _ in others))
    assert same_bits(least, values.min(0))
    each = [np.full((300, 6), 7, np.float32) for _ in networks]
    for network, slopes in zip([first, *(other for other, _ in others)], each, strict=True):
        network.slopes(np.ones((300, 1), np.float32), None, 17, slopes)
    assert same_bits(out, np.stack(each)[values.argmin(0), np.arange(300)])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="threads of C are counted there")
@pytest.mark.timeout(60)
def test_what_helps_ends_and_sleeps() -> None:
    def threads() -> int:
        return len(os.listdir("/proc/self/task"))

    def nobody_is_left() -> bool:
        deadline = time.monotonic() + 10  # who joins a thread can go on before the kernel has forgotten that thread
        while threads() != before and time.monotonic() < deadline:
            time.sleep(0.01)
        return threads() == before

    layers = beside(np.random.default_rng(0), 256, [64, 256, 256], [LINEAR, LINEAR], 2)
    before = threads()
    team = products.Team(4)
    assert threads() == before + 3
    for within in (True, False):
        with team if within else contextlib.nullcontext():
            layers[0].computed(KINDS[0], layers[1])
            begin = time.process_time()
            time.sleep(0.5)
            assert time.process_time() - begin < 0.2
    with team:
        with pytest.raises(ValueError, match="inputs must be float32"):
            layers[0].built()[0].run(np.zeros((3, 4), np.float32))
        with pytest.raises(RuntimeError, match="this thread has a team"):
            team.__enter__()
        with ThreadPoolExecutor(1) as others, pytest.raises(RuntimeError, match="another thread has this team"):
            others.submit(team.__enter__).result(10)
        team.close()
        layers[0].computed(KINDS[0], layers[1])
    assert nobody_is_left()
    team.close()
    with team:  # nobody helps
        layers[0].computed(KINDS[0], layers[1])
    products.Team(3)  # which nobody keeps
    assert nobody_is_left()
    with pytest.raises(ValueError, match="threads must be positive, got 0"):
        products.Team(0)


FORKS = """
import os, sys
import numpy as np
from reactor_torch import kernels
sides = np.ones((256, 256), np.float32)
made = [np.zeros((256, 256), np.float32) for _ in range(3)]
network = kernels.compiled.Network(256, (("linear", 0, 256, 256, 0.0, sides, None, made[0], None, made[1], made[2]),))
team = kernels.compiled.Team(3)
with team:
    network.run(sides)
    child = os.fork()
    network.run(sides)
    network.back(sides.copy())
    assert made[0].min() == made[0].max() == 256
if child:
    assert os.waitpid(child, 0)[1] == 0
    network.run(sides)
    print("done", flush=True)
else:
    team.close()
    del team
    os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork()")
def test_a_child_has_no_helpers_and_does_without() -> None:
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "done\n", done.stderr


def test_networks_that_do_not_go_side_by_side() -> None:
    rng = np.random.default_rng(0)
    (one, _), (other, _) = (layers.built() for layers in beside(rng, 4, [3, 2], [LINEAR], 2))
    inputs, gradient = np.zeros((4, 3), np.float32), np.zeros((4, 2), np.float32)
    with pytest.raises(ValueError, match="cannot go beside itself"):
        one.run(inputs, other, one)
    with pytest.raises(TypeError, match="a network must be a Network, got 3"):
        one.run(inputs, 3)
    with pytest.raises(TypeError, match="each with its arguments"):
        one.back(gradient, other)
    with pytest.raises(ValueError, match=r"run\(inputs\) comes before back"):
        one.back(gradient, other, gradient.copy())
    with pytest.raises(ValueError, match="each gives one number for a row"):
        one.least(np.zeros(4, np.float32), 0, np.zeros(4, np.float32), inputs.copy())
    one.run(inputs, other)
    with pytest.raises(ValueError, match="gradient does not fit: dimension 1 must be 2, got 3"):
        one.back(gradient, other, inputs.copy())
    with pytest.raises(IndexError, match="rows must be below 4 and not negative, got 4"):
        one.slopes(gradient.copy(), None, 0, inputs.copy(), other, gradient[:1].copy(), np.array([4]), inputs[:1].copy())


# ---------------------------------------------------------------------- the kind that is chosen


def said(variable: str) -> subprocess.CompletedProcess[str]:
    code = "from reactor_torch import differentiating; print(differentiating())"
    environment = os.environ | {kernels.VARIABLE: variable}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
def test_a_variable_names_the_kind() -> None:
    assert said("portable").stdout.strip() == "compiled, portable"
    assert "REACTOR_RL_ISA must be one of avx512, avx2, neon, portable, got 'mmx'" in said("mmx").stderr
    for kind in {"avx512", "avx2", "neon"} - set(KINDS):
        assert f"REACTOR_RL_ISA={kind}: this processor has {', '.join(KINDS)}" in said(kind).stderr


class Wrong:
    """An extension whose fastest kind has other bits."""

    LEAF = LEAF

    def __init__(self) -> None:
        self.kind = ""

    def kinds(self) -> list[str]:
        return ["avx512", "avx2", "portable"]

    def check(self, kind: str) -> bool:
        return kind != "avx512"

    def use(self, kind: str) -> None:
        self.kind = kind


def test_a_kind_with_other_bits_is_not_used() -> None:
    found, wrong = kernels._chosen(Wrong(), "")
    assert found.kind == "avx2" and wrong == ["avx512"]
    assert kernels._chosen(Wrong(), "avx512") == (None, ["avx512"])
    assert kernels._chosen(None, "") == (None, [])
