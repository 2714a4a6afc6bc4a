"""Gradients by hand are autograd's, for any network, distribution and slice."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import KINDS, network_of
from torch import nn

from reactor_sb3.algorithms.ppo import PPOBatch, PPOLoss
from reactor_torch import (
    ActionDistribution,
    ActorCritic,
    Bernoulli,
    Categorical,
    Dense,
    FlatParameters,
    Gaussian,
    Network,
    Networks,
    kernels,
    layers_of,
    normalized,
)

CLOSE = 1e-5
"""Of the largest gradient."""
BY_EXTENSION = pytest.mark.skipif(kernels.compiled is None, reason="the extension is not compiled here")


def layers(name: str, module: nn.Sequential, features: int) -> Any:
    return layers_of(((f"{name}{at}", one) for at, one in module.named_children()), features)


def check(flat: FlatParameters, module: nn.Module, loss: torch.Tensor) -> None:
    """What the flat array has is what autograd finds for a loss."""
    parameters = list(module.parameters())
    found = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
    expected = torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for p, g in zip(parameters, found, strict=True)])
    assert (flat.gradients - expected).abs().max() <= CLOSE * expected.abs().max() + 1e-30


NETWORKS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(1, 40)), max_size=6)
ROWS = st.integers(1, 70)


@BY_EXTENSION
@given(parts=NETWORKS, features=st.integers(1, 20), outputs=st.integers(1, 6), rows=ROWS, seed=st.integers(0, 2**20))
@settings(max_examples=30, deadline=None)
def test_any_network(parts: list[tuple[str, int]], features: int, outputs: int, rows: int, seed: int) -> None:
    torch.manual_seed(seed)
    module = network_of([kind for kind, _ in parts], [size for _, size in parts], features, outputs)
    flat = FlatParameters(module.named_parameters())
    function = Dense(layers("", module, features), flat)
    for number in (rows, rows + 1, rows):  # buffers are kept for each number of rows
        observations, slopes = torch.randn(number, features), torch.randn(number, outputs)
        kept = observations.clone()
        flat.gradients.fill_(float("nan"))  # they are overwritten
        expected = module(observations)
        assert torch.allclose(function.forward(observations), expected, rtol=1e-5, atol=1e-5)
        function.backward(slopes.clone())
        check(flat, module, (expected * slopes).sum())
        assert torch.equal(observations, kept)


class Policy(nn.Module):
    """Two towers and a distribution of torch's."""

    def __init__(self, kind: str, width: int) -> None:
        super().__init__()
        outputs = {"categorical": 3, "categoricals": 9, "bernoullis": 4, "gaussian": 2}[kind]
        self.kind = kind
        self.actor = network_of(["linear", "tanh", "linear", "relu"], [width] * 4, 5, outputs)
        self.critic = network_of(["linear", "tanh"], [width + 3] * 2, 5, 1)
        if kind == "gaussian":
            self.log_std = nn.Parameter(torch.randn(2) * 0.3)

    def distributions(self, outputs: torch.Tensor) -> list[Any]:
        of = torch.distributions
        if self.kind == "gaussian":
            return [of.Independent(of.Normal(outputs, self.log_std.exp().expand_as(outputs)), 1)]
        if self.kind == "bernoullis":
            return [of.Independent(of.Bernoulli(logits=outputs), 1)]
        return [of.Categorical(logits=part) for part in torch.split(outputs, [3] if self.kind == "categorical" else [2, 4, 3], 1)]

    def evaluate_actions(self, observations: torch.Tensor, actions: torch.Tensor) -> tuple[torch.Tensor, ...]:
        parts = self.distributions(self.actor(observations))
        taken = actions.unbind(1) if self.kind == "categoricals" else [actions]
        log_prob = sum(part.log_prob(one) for part, one in zip(parts, taken, strict=True))
        return self.critic(observations), log_prob, sum(part.entropy() for part in parts)  # type: ignore[return-value]

    def sample(self, observations: torch.Tensor) -> torch.Tensor:
        found = [part.sample() for part in self.distributions(self.actor(observations))]
        return torch.stack(found, 1) if self.kind == "categoricals" else found[0]

    def actor_critic(self, flat: FlatParameters) -> ActorCritic:
        kinds: dict[str, ActionDistribution] = {
            "categorical": Categorical((3,), several=False), "categoricals": Categorical((2, 4, 3), several=True),
            "bernoullis": Bernoulli(4), "gaussian": Gaussian((2,)),
        }  # fmt: skip
        distribution: Any = kinds[self.kind].learned(flat)
        return ActorCritic(layers("actor.", self.actor, 5), layers("critic.", self.critic, 5), distribution, flat)


def ppo_batch(policy: Policy, rows: int) -> PPOBatch:
    with torch.no_grad():
        observations = torch.randn(rows, 5)
        actions = policy.sample(observations)
        values, log_prob, _ = policy.evaluate_actions(observations, actions)
        return PPOBatch(
            observations, actions, torch.randn(rows), torch.randn(rows),
            log_prob + 0.3 * torch.randn(rows), values.flatten() + 0.5 * torch.randn(rows),
        )  # fmt: skip


def ppo_loss(policy: Policy, batch: PPOBatch, clip_vf: float | None, ent_coef: float) -> torch.Tensor:
    """As SB3 writes it."""
    values, log_prob, entropy = policy.evaluate_actions(batch.observations, batch.actions)
    ratio = torch.exp(log_prob - batch.old_log_prob)
    surrogate = torch.min(batch.advantages * ratio, batch.advantages * ratio.clamp(0.8, 1.2)).mean()
    predicted = values.flatten()
    if clip_vf is not None:
        predicted = batch.old_values + torch.clamp(predicted - batch.old_values, -clip_vf, clip_vf)
    return -surrogate + 0.7 * nn.functional.mse_loss(predicted, batch.returns) - ent_coef * entropy.mean()


@BY_EXTENSION
@pytest.mark.parametrize("kind", ["categorical", "categoricals", "bernoullis", "gaussian"])
@given(
    rows=ROWS,
    width=st.integers(1, 40),
    clip_vf=st.sampled_from([None, 0.3]),
    ent_coef=st.sampled_from([0.0, 0.1]),
    cut=st.floats(0, 1),
)
@settings(max_examples=10, deadline=None)
def test_ppo_in_slices(kind: str, rows: int, width: int, clip_vf: float | None, ent_coef: float, cut: float) -> None:
    torch.manual_seed(rows + width)
    policy = Policy(kind, width)
    flat = FlatParameters(policy.named_parameters())
    batch = ppo_batch(policy, rows)
    loss, nets = PPOLoss(0.2, clip_vf, ent_coef, 0.7), {"policy": policy.actor_critic(flat)}
    statistics = loss.fast(nets, batch, 1 / rows)
    expected = ppo_loss(policy, batch, clip_vf, ent_coef)
    check(flat, policy, expected)
    assert statistics[0] == pytest.approx(float(expected.detach()), rel=1e-4, abs=1e-5)
    at = int(cut * rows)
    if 0 < at < rows:
        begun = loss.fast(nets, batch[:at], 1 / rows)
        total = flat.gradients.clone()
        whole = [sum(both) for both in zip(begun, loss.fast(nets, batch[at:], 1 / rows), strict=True)]
        flat.gradients.add_(total)
        check(flat, policy, expected)
        assert whole == pytest.approx(list(statistics), rel=1e-4, abs=1e-5)


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


def test_rows_of_a_batch() -> None:
    torch.manual_seed(0)
    batch = ppo_batch(Policy("gaussian", 4), 6)
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
        Dense(layers("", odd, 5), flat)
    frozen = nn.Sequential(nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 2))
    frozen[0].bias.requires_grad_(False)
    flat = FlatParameters(frozen.named_parameters())
    assert not Dense.knows(layers("", frozen, 5), flat)
    assert "log_std" in str(Gaussian((2,)).learned(flat))


def by_autograd(policy: Policy, ent_coef: float) -> Networks:
    learned = torch.optim.Adam([one for one in policy.parameters() if one.requires_grad])
    nets = Networks({"policy": Network(policy, learned)}, {"policy": PPOLoss(0.2, None, ent_coef, 0.7)})
    assert not nets.compiled
    return nets


@pytest.mark.parametrize("part", ["actor", "critic"])
def test_a_frozen_part(part: str) -> None:
    """Autograd leaves it out."""
    torch.manual_seed(0)
    policy = Policy("categorical", 8)
    getattr(policy, part).requires_grad_(False)
    nets, batch = by_autograd(policy, 0.0), ppo_batch(policy, 20)
    flat = nets.flat("policy")
    assert flat.frozen == {f"{part}.{name}" for name, _ in getattr(policy, part).named_parameters()}
    nets.gradients("policy", batch)
    learned = [one for one in policy.parameters() if one.requires_grad]
    expected = torch.autograd.grad(ppo_loss(policy, batch, None, 0.0), learned)
    assert torch.allclose(flat.gradients, torch.cat([one.flatten() for one in expected]), atol=1e-6)


def test_an_entropy_that_nobody_can_compute_is_estimated() -> None:
    """As SB3 does it: by the log-probabilities of the actions."""

    class Closed(Policy):
        def evaluate_actions(self, observations: torch.Tensor, actions: torch.Tensor) -> Any:
            return (*super().evaluate_actions(observations, actions)[:2], None)

    torch.manual_seed(0)
    policy = Closed("gaussian", 8)
    nets, batch = by_autograd(policy, 0.1), ppo_batch(policy, 20)
    statistics = nets.gradients("policy", batch)
    log_prob = policy.evaluate_actions(batch.observations, batch.actions)[1]
    open_policy = Policy("gaussian", 8)
    open_policy.load_state_dict(policy.state_dict())
    expected = torch.autograd.grad(
        ppo_loss(open_policy, batch, None, 0.0) + 0.1 * open_policy.evaluate_actions(batch.observations, batch.actions)[1].mean(),
        list(open_policy.parameters()),
    )
    assert torch.allclose(nets.flat("policy").gradients, torch.cat([one.flatten() for one in expected]), atol=1e-6)
    assert statistics[3] == pytest.approx(float(log_prob.mean().detach()), rel=1e-5)
