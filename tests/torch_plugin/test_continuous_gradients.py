"""The losses of SAC and TD3 by hand: autograd's gradients, for any networks, and for slices of a minibatch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from networks import network_of
from torch import nn

from reactor_sb3.algorithms import sync_sac, sync_td3
from reactor_sb3.algorithms.sync_sac import SACBatch
from reactor_sb3.algorithms.sync_td3 import TD3Batch
from reactor_torch import Critics, Dense, FlatParameters, SquashedActor, Team, kernels, layers_of

pytestmark = pytest.mark.skipif(kernels.compiled is None, reason="the extension is not compiled here")

CLOSE = 1e-5
"""Of the largest gradient."""
ALPHA = 0.3
BOUNDS = (-1.5, -0.5)
"""Of the logarithms of standard deviations: such as random networks reach."""


def layers(name: str, module: nn.Module, width: int) -> Any:
    return layers_of(((f"{name}.{at}", one) for at, one in module.named_children()), width)


class Gaussian(nn.Module):
    """SAC's actor."""

    def __init__(self, parts: Parts, features: int, actions: int) -> None:
        super().__init__()
        self.features = features
        body = network_of(*unzipped(parts), features, 1)
        self.body = body[:-1]  # without its last layer
        width = body[-1].in_features
        self.mean, self.log_std = nn.Linear(width, actions), nn.Linear(width, actions)
        with torch.no_grad():
            self.mean.weight.mul_(0.1)  # near the bounds of actions, autograd's float32 is rough
            self.log_std.weight.mul_(2)  # so that some are beyond the bounds, which are moved below

    def parameters_of(self, observations: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        latent = self.body(observations)
        return self.mean(latent), self.log_std(latent).clamp(*BOUNDS)

    def log_prob(self, observations: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Actions and their log-probabilities, as SB3 writes them."""
        mean, log_std = self.parameters_of(observations)
        normal = torch.distributions.Normal(mean, log_std.exp())
        chosen = mean + log_std.exp() * noise
        actions = torch.tanh(chosen)
        return actions, normal.log_prob(chosen).sum(1) - torch.log(1 - actions**2 + 1e-6).sum(1)

    def seen(self, flat: FlatParameters) -> SquashedActor:
        body = layers("body", self.body, self.features)
        heads = [
            layers_of([(name, module)], module.in_features)[0]  # type: ignore[index]
            for name, module in (("mean", self.mean), ("log_std", self.log_std))
        ]
        return SquashedActor(body, *heads, flat)


class Twins(nn.Module):
    """Critics of observations and actions."""

    def __init__(self, parts: Parts, width: int, count: int) -> None:
        super().__init__()
        self.width = width
        self.networks = nn.ModuleList([network_of(*unzipped(parts), width, 1) for _ in range(count)])

    def forward(self, observations: torch.Tensor, actions: torch.Tensor) -> tuple[torch.Tensor, ...]:
        inputs = torch.cat([observations, actions], 1)
        return tuple(network(inputs) for network in self.networks)

    def first(self, observations: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        return self(observations, actions)[0]  # type: ignore[no-any-return]

    def least(self, observations: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        return torch.cat(self(observations, actions), 1).min(1).values

    def seen(self, flat: FlatParameters) -> Critics:
        return Critics([layers(f"networks.{at}", one, self.width) for at, one in enumerate(self.networks)], flat)


Parts = list[tuple[str, int]]
OF_ACTORS = st.lists(st.tuples(st.sampled_from(["linear", "normalised", "relu", "tanh"]), st.integers(1, 40)), max_size=5)
OF_CRITICS = st.lists(
    st.tuples(st.sampled_from(["linear", "linear without bias", "normalised", "relu", "tanh"]), st.integers(1, 40)), max_size=5
).map(lambda parts: [("linear", 7), *parts])
SHAPES = {
    "actor": OF_ACTORS, "critic": OF_CRITICS, "features": st.integers(1, 12), "actions": st.integers(1, 7),
    "critics": st.integers(1, 3), "rows": st.integers(1, 60), "cut": st.floats(0, 1), "seed": st.integers(0, 2**20),
}  # fmt: skip


def unzipped(parts: Parts) -> tuple[list[str], list[int]]:
    return [kind for kind, _ in parts], [size for _, size in parts]


def transitions(rows: int, features: int, actions: int) -> tuple[Any, ...]:
    return (
        torch.randn(rows, features), torch.rand(rows, actions) * 2 - 1, torch.randn(rows, features),
        torch.randint(0, 2, (rows, 1)).float(), torch.randn(rows, 1), 0.9 + 0.1 * torch.rand(rows, 1),
    )  # fmt: skip


def flat_of(module: nn.Module, learned: bool = True) -> FlatParameters:
    return FlatParameters(module.named_parameters(), learned)


def check(loss: Any, nets: Any, module: nn.Module, expected: torch.Tensor, batch: Any, cut: float) -> None:
    """Gradients and the first statistic, of the whole and of its slices together."""
    flat = nets[loss.learns].flat
    parameters = list(module.parameters())
    found = torch.autograd.grad(expected, parameters, allow_unused=True)
    wanted = torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for p, g in zip(parameters, found, strict=True)])
    rows = len(batch)
    at = int(cut * rows)
    for parts in ([slice(0, rows)], [slice(0, at), slice(at, rows)]):
        total, statistics = torch.zeros_like(wanted), 0.0
        for part in parts:
            if part.start < part.stop:
                flat.gradients.fill_(math.nan)  # they are overwritten
                statistics += loss.fast(nets, batch[part], 1 / rows)[0]
                total += flat.gradients
        assert (total - wanted).abs().max() <= CLOSE * wanted.abs().max() + 1e-7
        assert statistics == pytest.approx(float(expected.detach()), rel=1e-4, abs=1e-5)


@pytest.fixture(autouse=True)
def near_bounds() -> Iterator[None]:
    with mock.patch.multiple("reactor_torch.learned", SMALLEST=BOUNDS[0], LARGEST=BOUNDS[1]):
        yield


def soft(module: Gaussian, twins: Twins, targets: Twins) -> dict[str, Any]:
    """Networks of SAC's losses."""
    return {
        "actor": module.seen(flat_of(module)),
        "critic": twins.seen(flat_of(twins)),
        "critic_target": targets.seen(flat_of(targets, False)),
    }


@given(**SHAPES)
@settings(max_examples=25, deadline=None)
def test_sac(actor: Parts, critic: Parts, features: int, actions: int, critics: int, rows: int, cut: float, seed: int) -> None:
    torch.manual_seed(seed)
    module, twins, targets = Gaussian(actor, features, actions), *(Twins(critic, features + actions, critics) for _ in range(2))
    batch = SACBatch(*transitions(rows, features, actions), torch.randn(rows, actions), torch.randn(rows, actions), ALPHA)
    with torch.no_grad():
        following, likely = module.log_prob(batch.next_observations, batch.next_noise)
        worth = targets.least(batch.next_observations, following) - ALPHA * likely
        returns = batch.rewards + (1 - batch.dones) * batch.discounts * worth[:, None]
    of_critics = 0.5 * sum(nn.functional.mse_loss(one, returns) for one in twins(batch.observations, batch.actions))
    chosen, likely = module.log_prob(batch.observations, batch.noise)
    assume(chosen.abs().max() < 0.99)
    of_actor = (ALPHA * likely - twins.least(batch.observations, chosen)).mean()
    nets = soft(module, twins, targets)
    check(sync_sac.CriticLoss(), nets, twins, of_critics, batch, cut)
    check(sync_sac.ActorLoss(), nets, module, of_actor, batch, cut)
    found = sync_sac.ActorLoss().fast(nets, batch, 1 / rows)
    assert found[1] == pytest.approx(likely.mean().item(), rel=1e-4, abs=1e-4)


@pytest.mark.slow
@given(**SHAPES)
@settings(max_examples=25, deadline=None)
def test_td3(actor: Parts, critic: Parts, features: int, actions: int, critics: int, rows: int, cut: float, seed: int) -> None:
    torch.manual_seed(seed)
    module, target_module = (nn.Sequential(*network_of(*unzipped(actor), features, actions), nn.Tanh()) for _ in range(2))
    twins, targets = (Twins(critic, features + actions, critics) for _ in range(2))
    batch = TD3Batch(*transitions(rows, features, actions), 0.5 * torch.randn(rows, actions))
    with torch.no_grad():
        following = (target_module(batch.next_observations) + batch.next_noise).clamp(-1, 1)
        worth = targets.least(batch.next_observations, following)[:, None]
        returns = batch.rewards + (1 - batch.dones) * batch.discounts * worth
    of_critics: Any = sum(nn.functional.mse_loss(one, returns) for one in twins(batch.observations, batch.actions))
    of_actor = -twins.first(batch.observations, module(batch.observations)).mean()

    def function(one: nn.Module, learned: bool) -> Dense:
        return Dense(layers_of(one.named_children(), features), flat_of(one, learned))

    nets = {
        "actor": function(module, True),
        "actor_target": function(target_module, False),
        "critic": twins.seen(flat_of(twins)),
        "critic_target": targets.seen(flat_of(targets, False)),
    }
    check(sync_td3.CriticLoss(), nets, twins, of_critics, batch, cut)
    check(sync_td3.ActorLoss(), nets, module, of_actor, batch, cut)


def test_the_actors_loss_leaves_the_critics_gradients_alone() -> None:
    torch.manual_seed(0)
    module, twins = Gaussian([("linear", 8), ("relu", 8)], 3, 2), Twins([("linear", 8), ("relu", 8)], 5, 2)
    batch = SACBatch(*transitions(20, 3, 2), torch.randn(20, 2), torch.randn(20, 2), ALPHA)
    nets = soft(module, twins, twins)
    nets["critic"].flat.gradients.fill_(7)
    sync_sac.ActorLoss().fast(nets, batch, 1 / 20)
    assert (nets["critic"].flat.gradients == 7).all()


@pytest.mark.parametrize("threads", [2, 3])
def test_a_team_changes_no_bit(threads: int) -> None:
    torch.manual_seed(0)
    module, twins = Gaussian([("linear", 128), ("relu", 128), ("linear", 128)], 3, 2), Twins([("linear", 128), ("relu", 128)], 5, 3)
    batch = SACBatch(*transitions(300, 3, 2), torch.randn(300, 2), torch.randn(300, 2), ALPHA)
    seen, judges = module.seen(flat_of(module)), twins.seen(flat_of(twins))
    nets = {"actor": seen, "critic": judges, "critic_target": judges}

    def computed() -> list[torch.Tensor]:
        for flat in (seen.flat, judges.flat):
            flat.gradients.fill_(math.nan)
        losses = [torch.tensor(loss.fast(nets, batch, 1 / 300)) for loss in (sync_sac.CriticLoss(), sync_sac.ActorLoss())]
        return [*losses, seen.flat.gradients.clone(), judges.flat.gradients.clone()]

    wanted, team = computed(), Team(threads)
    for _ in range(5):
        with team:
            assert all(map(torch.equal, computed(), wanted))
            with pytest.raises(ValueError, match="inputs must be float32"):
                judges.outputs_of(torch.zeros(3, 4))
    team.close()


def test_actions_at_their_bounds() -> None:
    """What is added under the logarithm keeps everything finite; the gradients fade."""
    module, twins = Gaussian([("linear", 8), ("tanh", 8)], 3, 2), Twins([("linear", 8), ("relu", 8)], 5, 2)
    with torch.no_grad():
        module.mean.bias.copy_(torch.tensor([60.0, -60.0]))
    batch = SACBatch(*transitions(20, 3, 2), torch.randn(20, 2), torch.randn(20, 2), ALPHA)
    nets = soft(module, twins, twins)
    assert sync_sac.ActorLoss().fast(nets, batch, 1 / 20)[1] > 2 * -math.log(1e-6) - 10
    flat = nets["actor"].flat
    mean, log_std = flat.gradient("mean.weight"), flat.gradient("log_std.bias")
    assert mean is not None and not mean.any()
    assert log_std is not None and log_std.isfinite().all()


@pytest.mark.parametrize("spoilt", ["actor", "critics", "target"])
def test_a_weight_that_is_no_number_shows_in_a_loss(spoilt: str) -> None:
    torch.manual_seed(0)
    module = Gaussian([("linear", 8), ("relu", 8)], 3, 2)
    twins, targets = (Twins([("linear", 8), ("relu", 8)], 5, 2) for _ in range(2))
    batch = SACBatch(*transitions(20, 3, 2), torch.randn(20, 2), torch.randn(20, 2), ALPHA)
    flats = {"actor": flat_of(module), "critics": flat_of(twins), "target": flat_of(targets, False)}
    nets = {
        "actor": module.seen(flats["actor"]),
        "critic": twins.seen(flats["critics"]),
        "critic_target": targets.seen(flats["target"]),
    }
    for at in range(0, len(flats[spoilt].data), 11):
        kept = float(flats[spoilt].data[at])
        flats[spoilt].data[at] = math.nan
        assert any(math.isnan(loss.fast(nets, batch, 1 / 20)[0]) for loss in (sync_sac.CriticLoss(), sync_sac.ActorLoss())), at
        flats[spoilt].data[at] = kept
