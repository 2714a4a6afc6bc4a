"""What is drawn inside of a stream: torch's own numbers from that state, without torch's own generator."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import distributions, nn
from torch.nn import functional
from torch.utils import _python_dispatch

from reactor_torch import streams, torch_state, torch_stream

ROW = torch.linspace(0.1, 0.9, 60).reshape(6, 10)


def _lstm() -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return nn.LSTM(10, 4, num_layers=3, dropout=0.5)


LSTM = _lstm()
DRAWS: dict[str, Callable[[], Any]] = {
    "rand": lambda: torch.rand(3, 4),
    "randn": lambda: torch.randn((3, 4)),
    "randint": lambda: torch.randint(7, (9,)),
    "randint from": lambda: torch.randint(3, 7, (9,)),
    "randperm": lambda: torch.randperm(20),
    "rand_like": lambda: torch.rand_like(ROW),
    "randn_like": lambda: torch.randn_like(ROW),
    "randint_like": lambda: torch.randint_like(ROW, 5),
    "randint_like from": lambda: torch.randint_like(ROW, 2, 5),
    "normal": lambda: torch.normal(ROW, ROW),
    "normal numbers": lambda: torch.normal(1.0, 2.0, (4,)),
    "normal_": lambda: torch.empty(20).normal_(),
    "uniform_": lambda: torch.empty(20).uniform_(-1, 1),
    "random_": lambda: torch.empty(20).random_(0, 9),
    "exponential_": lambda: torch.empty(20).exponential_(2.0),
    "log_normal_": lambda: torch.empty(20).log_normal_(),
    "cauchy_": lambda: torch.empty(20).cauchy_(),
    "geometric_": lambda: torch.empty(20).geometric_(0.4),
    "bernoulli": lambda: torch.bernoulli(ROW),
    "bernoulli_": lambda: torch.empty(20).bernoulli_(0.3),
    "multinomial": lambda: torch.multinomial(ROW, 3),
    "poisson": lambda: torch.poisson(ROW * 5),
    "dropout": lambda: functional.dropout(ROW, 0.4),
    "dropout2d": lambda: functional.dropout2d(ROW.reshape(1, 6, 2, 5), 0.4),
    "alpha_dropout": lambda: functional.alpha_dropout(ROW, 0.4, training=True),
    "module": lambda: nn.Sequential(nn.ReLU(), nn.Dropout(0.3))(ROW),
    "rrelu": lambda: functional.rrelu(-ROW, training=True),
    "gumbel": lambda: functional.gumbel_softmax(ROW),
    "lstm": lambda: LSTM(ROW)[0].detach(),
    "attention": lambda: functional.scaled_dot_product_attention(ROW[None], ROW[None], ROW[None], dropout_p=0.5),
    "Normal": lambda: distributions.Normal(ROW, 1.0).rsample(),
    "Categorical": lambda: distributions.Categorical(ROW).sample(),
    "Beta": lambda: distributions.Beta(ROW, 0.5).sample(),
    "Gamma": lambda: distributions.Gamma(ROW, 1.0).sample(),
    "Binomial": lambda: distributions.Binomial(10, ROW).sample(),
    "MultivariateNormal": lambda: distributions.MultivariateNormal(torch.zeros(3), torch.eye(3)).sample(),
    "orthogonal": lambda: nn.init.orthogonal_(torch.empty(4, 5)),
    "kaiming": lambda: nn.init.kaiming_uniform_(torch.empty(4, 5)),
    "xavier": lambda: nn.init.xavier_normal_(torch.empty(4, 5)),
    "trunc_normal": lambda: nn.init.trunc_normal_(torch.empty(4, 5)),
    "Linear": lambda: nn.Linear(4, 5).weight.detach(),
    "Conv2d": lambda: nn.Conv2d(2, 3, 3).weight.detach(),
    "Embedding": lambda: nn.Embedding(4, 5).weight.detach(),
}


@pytest.mark.parametrize("how", sorted(DRAWS))
@pytest.mark.parametrize("inference", [False, True])
def test_numbers_are_those_of_torch_and_its_own_generator_is_left_alone(how: str, inference: bool) -> None:
    draw = DRAWS[how]
    with torch.random.fork_rng(), torch.inference_mode(inference):
        torch.manual_seed(11)
        expected = [draw().clone() for _ in range(2)]
        after = torch.get_rng_state()
        torch.manual_seed(12)
        before = torch.get_rng_state()
        state = torch_state(11)
        found = []
        for _ in range(2):  # it goes on where it was
            with torch_stream(state):
                found.append(draw().clone())
        assert torch.equal(torch.get_rng_state(), before)
    for one, theirs in zip(found, expected, strict=True):
        assert torch.equal(one, theirs)
    assert torch.equal(state, after)


def test_a_generator_that_is_given_is_the_one_that_is_drawn_from() -> None:
    expected = torch.randn(4, generator=torch.Generator().manual_seed(3))
    state = torch_state(0)
    with torch_stream(state):
        assert torch.equal(torch.randn(4, generator=torch.Generator().manual_seed(3)), expected)
    assert torch.equal(state, torch_state(0))


def test_gradients_flow_through_what_was_drawn() -> None:
    weights = torch.ones(60, requires_grad=True)
    with torch_stream(torch_state(4)):
        functional.dropout(weights, 0.5).sum().backward()  # type: ignore[no-untyped-call]
    assert weights.grad is not None and set(weights.grad.tolist()) == {0.0, 2.0}


@pytest.mark.timeout(60)
def test_threads_do_not_draw_from_each_others_streams() -> None:
    expected, found, stop = {}, {}, threading.Event()

    def draw(number: int, into: dict[int, Any]) -> None:
        state, seen = torch_state(number), []
        for _ in range(200):
            with torch_stream(state):
                seen.append(torch.cat([functional.dropout(ROW, 0.4).flatten(), torch.randn(3)]))
        into[number] = torch.stack(seen)

    def disturb() -> None:
        while not stop.is_set():
            torch.rand(3)

    for number in range(3):
        draw(number, expected)
    threads = [threading.Thread(target=draw, args=(number, found)) for number in range(3)]
    other = threading.Thread(target=disturb)
    for thread in (other, *threads):
        thread.start()
    for thread in threads:
        thread.join(30)
    stop.set()
    other.join(30)
    assert all(torch.equal(found[number], expected[number]) for number in range(3))


def test_streams_within_streams_go_on_by_themselves() -> None:
    outer, inner = torch_state(1), torch_state(2)
    with torch_stream(outer):
        first = torch.randn(2)
        with torch_stream(inner):
            within = torch.randn(2)
        second = torch.randn(2)
    generator = torch.Generator().manual_seed(1)
    assert torch.equal(torch.stack([first, second]), torch.stack([torch.randn(2, generator=generator) for _ in range(2)]))
    assert torch.equal(within, torch.randn(2, generator=torch.Generator().manual_seed(2)))


def test_a_generator_is_drawn_from() -> None:
    generator, expected = (torch.Generator().manual_seed(5) for _ in range(2))
    with torch_stream(generator):
        first = torch.randn(3)
    with torch_stream(generator):  # it goes on
        second = functional.dropout(torch.ones(9), 0.5)
    assert torch.equal(first, torch.randn(3, generator=expected))
    assert torch.equal(second != 0, torch.empty(9).bernoulli_(0.5, generator=expected) != 0)


def test_what_draws_nothing_is_not_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(streams, "_may_draw", lambda name: seen.append(name) or False)
    with torch_stream(torch_state(0)):
        with streams.drawing_nothing():
            torch.ones(3).add_(1)
        assert not seen
        torch.ones(3).add_(1)
    assert "add_" in seen


def test_the_compiler_of_torch_is_not_imported_for_it() -> None:
    """Torch wraps the method of such a class by its compiler's, unless the class says that it need not."""
    assert streams._Operations.__torch_dispatch__.__code__.co_filename == streams.__file__


COMPILED = """
import sys
import torch
from torch import nn
from reactor_torch import torch_stream
network, row = nn.Sequential(nn.Linear(10, 8), nn.Dropout(0.5), nn.Linear(8, 2)), torch.ones(6, 10)
with torch_stream(torch.Generator()):
    network(row)
assert "torch._dynamo" not in sys.modules, "the compiler was imported"
drawn = []
for called in (network, torch.compile(network, backend="aot_eager")):
    before = torch.get_rng_state()
    with torch_stream(torch.Generator().manual_seed(3)):
        drawn.append(torch.stack([called(row) for _ in range(3)]))
    assert torch.equal(before, torch.get_rng_state())
assert torch.equal(*drawn)
"""


@pytest.mark.slow
def test_compiled_networks_draw_the_same() -> None:
    subprocess.run([sys.executable, "-c", COMPILED], check=True, timeout=100)


def test_draws_of_two_threads_that_overlap_do_not_switch_compiling_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch has one flag for all threads, which whoever leaves last puts back to what it was when that one came."""
    switched_off = getattr(_python_dispatch, "is_in_any_mode_without_ignore_compile_internals", None)
    if switched_off is None:
        pytest.skip("this torch has no such flag")
    before, on_cpu = switched_off(), streams._on_cpu
    came, left = threading.Event(), threading.Event()

    def waiting(*given: Any) -> bool:
        """The other thread comes before this one leaves, and leaves after it."""
        if threading.current_thread() is other:
            came.set()
            left.wait(30)
        return on_cpu(*given)

    def draw() -> None:
        with torch_stream(torch_state(1)):
            functional.dropout(ROW)

    other = threading.Thread(target=draw)
    monkeypatch.setattr(streams, "_on_cpu", waiting)
    with torch_stream(torch_state(1)):
        calls = streams._innermost.calls
        with calls._operations:
            other.start()
            came.wait(30)
    left.set()
    other.join(30)
    assert switched_off() == before
