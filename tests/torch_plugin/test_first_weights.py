"""First weights: torch's draws and results, but for last bits, which are the same on every processor."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3 import PPO
from torch import nn
from torch.utils import _python_dispatch
from torch_plugin.sb3_models import IMAGES, NUMBERS, Walk, spaces

from reactor_rl.plugin import compiled_module
from reactor_sb3 import SyncPPO
from reactor_torch import first_weights, portable_first_weights, torch_state, torch_stream

compiled = pytest.mark.skipif(compiled_module("reactor_torch._products") is None, reason="without the extension they are LAPACK's")
SHAPES = [(1, 1), (1, 7), (7, 1), (4, 64), (64, 4), (5, 5), (33, 33), (64, 64), (37, 19), (100, 3), (3, 100), (256, 130)]
DRAWN: dict[str, Callable[[], torch.Tensor]] = {
    "uniform": lambda: torch.empty(9, 7).uniform_(-0.3, 0.7),
    "uniform, any strides": lambda: torch.empty(9, 7).t()[::2].uniform_(),
    "linear": lambda: nn.Linear(20, 30).weight,
    "normal": lambda: torch.empty(64, 32).normal_(),
    "normal, no multiple of 16": lambda: torch.empty(5, 5).normal_(1.0, 0.3),
    "normal, a few": lambda: torch.empty(3, 5).normal_(),
    "normal, any strides": lambda: torch.empty(9, 7).t().normal_(),
    "normal, in double precision": lambda: torch.empty(9, 7, dtype=torch.float64).normal_(),
    "orthogonal, in double precision": lambda: nn.init.orthogonal_(torch.empty(9, 7, dtype=torch.float64)),
    "parameter": lambda: nn.init.normal_(nn.Parameter(torch.empty(5, 50)), 1.0, 0.3),
    "embedding": lambda: nn.Embedding(4, 8).weight,
    "orthogonal": lambda: nn.init.orthogonal_(nn.Parameter(torch.empty(64, 33)), 2**0.5),
    "orthogonal, wide": lambda: nn.init.orthogonal_(torch.empty(10, 33), 0.01),
    "convolution": lambda: nn.init.orthogonal_(nn.Conv2d(4, 32, 8).weight),
    "three dimensions": lambda: nn.init.orthogonal_(nn.Conv1d(6, 5, 3).weight, 3.0),
    "lstm": lambda: nn.init.orthogonal_(nn.LSTM(10, 20).weight_hh_l0),
}


def hashed(*tensors: torch.Tensor) -> str:
    digest = hashlib.sha256()
    for one in tensors:
        digest.update(one.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


@pytest.mark.parametrize("name", DRAWN)
def test_as_many_draws_as_torch_and_the_same_but_for_last_bits(name: str) -> None:
    theirs, ours = (torch.Generator().manual_seed(5) for _ in range(2))
    with torch_stream(theirs):
        wanted = DRAWN[name]()
    with portable_first_weights(), torch_stream(ours):
        found = DRAWN[name]()
    assert torch.equal(theirs.get_state(), ours.get_state())
    assert found.dtype is wanted.dtype and found.requires_grad is wanted.requires_grad and found.stride() == wanted.stride()
    torch.testing.assert_close(found, wanted, rtol=2e-6, atol=2e-6)


def test_torchs_own_generator_is_drawn_from_outside_of_a_stream() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(4)
        wanted = nn.init.orthogonal_(torch.empty(20, 6)), torch.rand(3)
        torch.manual_seed(4)
        with portable_first_weights():
            found = nn.init.orthogonal_(torch.empty(20, 6))
        torch.testing.assert_close(found, wanted[0], rtol=0, atol=2e-6)
        assert torch.equal(torch.rand(3), wanted[1])


@pytest.mark.parametrize("bounds", [(1.0, -1.0), (-3e38, 3e38)])
def test_torch_says_what_is_wrong_with_bounds(bounds: tuple[float, float]) -> None:
    with portable_first_weights(), pytest.raises(RuntimeError, match="uniform_"):
        torch.empty(40).uniform_(*bounds)


def test_logarithms_and_directions() -> None:
    """Of a part of the 24-bit numbers that there are, the first and the last among them."""
    drawn = np.concatenate([np.arange(0, 2**24, 1009), 2**24 - 1 - np.arange(9), np.arange(9)]) / 2.0**24
    np.testing.assert_allclose(first_weights._log(1.0 - drawn), np.log1p(-drawn), rtol=2e-15, atol=0)
    cosine, sine = first_weights._direction(drawn)
    np.testing.assert_allclose(cosine, np.cos(2 * np.pi * drawn), rtol=0, atol=2e-15)
    np.testing.assert_allclose(sine, np.sin(2 * np.pi * drawn), rtol=0, atol=2e-15)


@compiled
@pytest.mark.parametrize("mode", ["reduced", "complete"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_decomposition_is_lapacks_in_double_precision(shape: tuple[int, int], mode: str) -> None:
    matrix = torch.from_numpy(np.random.default_rng(shape).standard_normal(shape).astype(np.float32))
    wanted = torch.linalg.qr(matrix.double(), mode)
    with portable_first_weights():
        found = torch.linalg.qr(matrix, mode)
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype is torch.float32
        torch.testing.assert_close(one.double(), other, rtol=2e-7, atol=2e-7)
    product = found[0].double().T @ found[0].double()
    torch.testing.assert_close(product, torch.eye(len(product), dtype=torch.float64), rtol=0, atol=1e-6)
    torch.testing.assert_close(found[0] @ found[1], matrix, rtol=0, atol=2e-5)


@compiled
@pytest.mark.parametrize("shape", [(64, 64), (3, 100), (100, 3), (512, 100), (32, 4, 8, 8), (5, 6, 3), (80, 20)])
def test_orthogonal_weights_are(shape: tuple[int, ...]) -> None:
    with portable_first_weights(), torch_stream(torch_state(1)):
        weights = nn.init.orthogonal_(torch.empty(shape), 3.0).flatten(1).double() / 3
    square = weights @ weights.T if len(weights) < weights.shape[1] else weights.T @ weights
    torch.testing.assert_close(square, torch.eye(len(square), dtype=torch.float64), rtol=0, atol=1e-6)


@compiled
def test_matrices_that_are_odd() -> None:
    """Of low rank, with columns of zeros, without numbers, and of no matrices at all."""
    repeated = torch.arange(12.0).reshape(6, 2).repeat(1, 2)
    repeated[:, 1] = 0
    with portable_first_weights():
        q, upper = torch.linalg.qr(repeated)
        spoilt = torch.linalg.qr(torch.full((4, 2), torch.nan))[0]
        empty = torch.linalg.qr(torch.empty(4, 0))[0]
        several = torch.linalg.qr(torch.ones(2, 4, 3))[0]
        no_q, only_upper = torch.linalg.qr(torch.ones(4, 3), mode="r")
    torch.testing.assert_close(q @ upper, repeated, rtol=0, atol=2e-6)
    torch.testing.assert_close(q.T @ q, torch.eye(4), rtol=0, atol=1e-6)
    assert spoilt.isnan().all() and empty.shape == (4, 0) and several.shape == (2, 4, 3)
    assert no_q.numel() == 0 and only_upper.shape == (3, 3)


def test_only_this_thread_and_only_in_the_block() -> None:
    def drawn() -> str:
        return hashed(torch.empty(40, 30).normal_(generator=torch.Generator().manual_seed(1)))

    before, elsewhere = drawn(), []
    with portable_first_weights():
        inside = drawn()
        other = threading.Thread(target=lambda: elsewhere.append(drawn()))
        other.start()
        other.join()
    with pytest.raises(ValueError, match="generator"), portable_first_weights():
        raise ValueError("no generator")
    assert elsewhere == [before] == [drawn()] and inside != before


def test_blocks_of_two_threads_that_overlap() -> None:
    """Each has its numbers, and ``torch.compile`` is not switched off for good: torch has one flag for all threads."""
    found, first_in, first_out = [], threading.Event(), threading.Event()

    def draw() -> None:
        with torch_stream(torch_state(2)):
            found.append(hashed(nn.init.orthogonal_(torch.empty(30, 20))))

    def other() -> None:
        first_in.wait(60)
        with portable_first_weights():
            draw()
            first_out.wait(60)
            draw()

    thread = threading.Thread(target=other)
    thread.start()
    with portable_first_weights():
        first_in.set()
        draw()
        while len(found) < 2 and thread.is_alive():
            thread.join(0.01)
    first_out.set()
    thread.join()
    assert len(found) == 3 and len(set(found)) == 1
    switched_off = getattr(_python_dispatch, "is_in_any_mode_without_ignore_compile_internals", lambda: False)
    assert not switched_off()


# ---------------------------------------------------------------------- one fingerprint


def trainer(policy: str = "MlpPolicy", **network: Any) -> SyncPPO:
    env = Walk(spaces.Discrete(3), IMAGES if policy == "CnnPolicy" else NUMBERS)
    given: Any = {"n_actors": 1, "n_steps": 8, "batch_size": 8, "seed": 3, "device": "cpu", "executor": "inline"}
    return SyncPPO(policy, lambda: env, policy_kwargs=network, **given)


def first(model: Any) -> list[torch.Tensor]:
    with model:
        return list(model.policy.state_dict().values())


def test_the_fingerprint_of_what_is_drawn() -> None:
    """By a processor of any kind: ``test_any_processor`` tries those of trainers with other code of libraries, too."""
    with portable_first_weights(), torch_stream(torch_state(7)):
        found = hashed(torch.empty(50, 50).normal_(), torch.empty(9, 9).normal_(1.0, 3.0), torch.empty(50, 50).uniform_(-0.1, 0.3))
    assert found == "a48df35748e4d6ef"


@compiled
def test_the_fingerprint_of_a_trainer() -> None:
    """With any number of torch's threads."""
    found = set()
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.add(hashed(*first(trainer(net_arch=[64, 33]))))
    assert found == {"a7fd45876ffb81e4"}


@pytest.mark.parametrize("policy", ["MlpPolicy", "CnnPolicy"])
def test_they_are_those_of_the_host_but_for_last_bits(policy: str) -> None:
    network: Any = {"net_arch": [24, 16]} | ({"features_extractor_kwargs": {"features_dim": 33}} if policy == "CnnPolicy" else {})
    env = Walk(spaces.Discrete(3), IMAGES if policy == "CnnPolicy" else NUMBERS)
    host = PPO(policy, env, n_steps=8, batch_size=8, seed=3, device="cpu", policy_kwargs=network)
    for ours, theirs in zip(first(trainer(policy, **network)), host.policy.state_dict().values(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=4e-6)
