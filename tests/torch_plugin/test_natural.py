"""Natural gradients by the extension are those that autograd finds, for every distribution of actions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sb3_models import ACTIONS, ppo, ppo_batch, rollout

from reactor_sb3.learned import read_natural_actor
from reactor_sb3.natural import WrittenActor, shared_out
from reactor_torch import FlatParameters, NaturalActor, conjugate_gradient, kernels

ROWS = 150
CASES: list[tuple[str, dict[str, Any]]] = [(kind, {}) for kind in ACTIONS]
CASES += [("box", {"use_sde": True}), ("box", {"use_sde": True, "policy_kwargs": {"full_std": False}})]
CASES += [
    ("discrete", {"policy_kwargs": {"net_arch": []}}),
    ("multi-binary", {"policy_kwargs": {"net_arch": {"pi": [7], "vf": [3]}, "activation_fn": torch.nn.ReLU}}),
]


def actors(kind: str, arguments: dict[str, Any]) -> tuple[NaturalActor, WrittenActor, Any]:
    """The same actor in both ways, and rows of a round."""
    model = ppo(kind, **arguments)
    with torch.no_grad():
        for one in model.policy.parameters():
            one.add_(0.1 * torch.randn(one.shape, generator=torch.Generator().manual_seed(len(one))))
    learned = {id(one) for one in shared_out(model.policy)[0]}
    flat = FlatParameters([(name, one) for name, one in model.policy.named_parameters() if id(one) in learned])
    read = read_natural_actor(model.policy, flat)
    assert isinstance(read, NaturalActor), read
    return read, WrittenActor(model.policy, flat), ppo_batch(model, rollout(model, ROWS, np.random.default_rng(0)))


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    assert float(theirs.abs().max()) > 0
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5 * float(theirs.abs().max()))


@pytest.mark.skipif(kernels.compiled is None, reason="no extension")
@pytest.mark.parametrize(("kind", "arguments"), CASES, ids=str)
def test_as_autograd_has_it(kind: str, arguments: dict[str, Any]) -> None:
    ours, theirs, batch = actors(kind, arguments)
    flat = theirs.flat
    (objective, gradient), (expected, slope) = ours.begin(batch), theirs.begin(batch)
    assert objective == pytest.approx(expected, abs=1e-5)
    close(gradient, slope)
    for seed in range(2):
        direction = torch.randn(len(flat.data), generator=torch.Generator().manual_seed(seed))
        close(ours.product(direction), theirs.product(direction))
    assert ours.measure() == pytest.approx(theirs.measure(), abs=1e-6)
    flat.data.add_(direction, alpha=0.05)
    found, expected_now = ours.measure(), theirs.measure()
    assert found == pytest.approx(expected_now, rel=1e-4, abs=1e-6) and found[1] > 1e-4


@pytest.mark.skipif(kernels.compiled is None, reason="no extension")
def test_other_numbers_of_rows_and_other_parameters() -> None:
    """Memory for one number of rows is taken again; each time the actor is what it is by then."""
    ours, theirs, batch = actors("box", {})
    direction = torch.randn(len(theirs.flat.data), generator=torch.Generator().manual_seed(0))
    for rows in (ROWS, 20, ROWS):
        theirs.flat.data.mul_(0.9)
        some = batch[slice(0, rows)]
        close(ours.begin(some)[1], theirs.begin(some)[1])
        close(ours.product(direction), theirs.product(direction))


def test_conjugate_gradients_solve() -> None:
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(20, 20, generator=generator, dtype=torch.float64)
    matrix, wanted, start = root @ root.T + torch.eye(20), root[0], root[1]
    found = conjugate_gradient(lambda vector: matrix @ vector, wanted, start, 100)
    torch.testing.assert_close(matrix @ found, wanted, rtol=0, atol=1e-4)
    few = conjugate_gradient(lambda vector: matrix @ vector, wanted, start, 3)
    assert not torch.equal(few, found) and not torch.equal(few, start)
    assert torch.equal(conjugate_gradient(lambda vector: matrix @ vector, matrix @ start, start, 5), start)  # solved already


def test_parameters_are_shared_out() -> None:
    policy = ppo("box").policy
    actor, critic = shared_out(policy)
    names = {id(one): name for name, one in policy.named_parameters()}
    assert {names[id(one)] for one in critic} == {name for name in names.values() if "value" in name}
    assert len(actor) + len(critic) == len(names) and "log_std" in {names[id(one)] for one in actor}
    assert shared_out(policy)[0] is actor
    policy.mlp_extractor.policy_net[0] = torch.nn.Linear(5, 64)
    other, _ = shared_out(policy)
    assert other is not actor and any(one is policy.mlp_extractor.policy_net[0].weight for one in other)


def test_layers_whose_changes_nobody_has_derived_are_left_to_autograd() -> None:
    policy = ppo("discrete").policy
    policy.mlp_extractor.policy_net[1] = torch.nn.LayerNorm(64)
    said = read_natural_actor(policy, FlatParameters(policy.named_parameters()))
    assert isinstance(said, str)
    assert kernels.compiled is None or "normalised" in said
