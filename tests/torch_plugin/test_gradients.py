"""Gradients that autograd finds where the extension cannot, and rows of minibatches. The contract of losses has the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch_plugin.sb3_models import ppo, ppo_batch, ppo_learner, rollout

from reactor_torch import Dense, FlatParameters, Gaussian, layers_of, normalized


@given(rows=st.integers(1, 50), batch_size=st.integers(1, 20))
@settings(deadline=None)
def test_advantages_are_normalised_by_minibatch(rows: int, batch_size: int) -> None:
    torch.manual_seed(rows)
    given = torch.randn(rows)
    found = normalized(given, batch_size)
    for at in range(0, rows, batch_size):
        part = given[at : at + batch_size]
        expected = (part - part.mean()) / (part.std() + 1e-8) if len(part) > 1 else part
        assert torch.allclose(found[at : at + batch_size], expected, atol=1e-5)


def batch_of(model: Any, rows: int) -> Any:
    return ppo_batch(model, rollout(model, rows, np.random.default_rng(0)))


def test_rows_of_a_batch() -> None:
    batch = batch_of(ppo("box"), 6)
    batch.observations = {"a": batch.observations}
    assert len(batch[1:4]) == 3
    assert batch[1:4].returns.data_ptr() == batch.returns[1:].data_ptr()
    order = torch.tensor([3, 0])
    assert torch.equal(batch[order].observations["a"], batch.observations["a"][order])
    assert torch.equal(batch[order].actions, batch.actions[order])


def test_what_cannot_be_differentiated_is_refused() -> None:
    odd = nn.Sequential(nn.Linear(5, 5), nn.Sigmoid())
    flat = FlatParameters(odd.named_parameters())
    with pytest.raises(ValueError, match=r"let autograd do it"):
        Dense(layers_of(odd.named_children(), 5), flat)
    assert "log_std" in str(Gaussian((2,)).learned(flat))


@pytest.mark.parametrize("part", ["action_net", "value_net"])
def test_a_frozen_part(part: str) -> None:
    """Autograd leaves it out."""
    model = ppo("discrete")
    batch, frozen = batch_of(model, 20), getattr(model.policy, part)
    frozen.requires_grad_(False)
    learner = ppo_learner(model, "written")
    assert learner.flat.frozen == {f"{part}.{name}" for name, _ in frozen.named_parameters()}
    learner.nets.gradients("policy", batch)
    loss, *_ = learner.nets.loss("policy")(learner.nets, batch)
    expected = torch.autograd.grad(loss, [one for one in model.policy.parameters() if one.requires_grad])
    assert torch.allclose(learner.flat.gradients, torch.cat([one.flatten() for one in expected]), atol=1e-6)


def test_an_entropy_that_nobody_can_compute_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    """As SB3 does it: by the log-probabilities of the actions."""
    model = ppo("box", ent_coef=0.1)
    batch, policy = batch_of(model, 20), model.policy
    evaluate = policy.evaluate_actions
    monkeypatch.setattr(policy, "evaluate_actions", lambda *given: (*evaluate(*given)[:2], None))
    learner = ppo_learner(model, "written")
    statistics = learner.nets.gradients("policy", batch)
    monkeypatch.undo()
    log_prob = policy.evaluate_actions(batch.observations, batch.actions)[1]
    model.ent_coef = 0.0
    without, *_ = ppo_learner(model, "written").nets.loss("policy")(learner.nets, batch)
    expected = torch.autograd.grad(without + 0.1 * log_prob.mean(), list(policy.parameters()))
    assert torch.allclose(learner.flat.gradients, torch.cat([one.flatten() for one in expected]), atol=1e-6)
    assert statistics[3] == pytest.approx(float(log_prob.mean().detach()), rel=1e-5)
