"""Networks by name: what is whose, what travels, and what is refused."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from sb3_plugin.continuous_models import Learner, model_of, replay
from torch import nn
from torch_plugin.sb3_models import ppo, ppo_batch, rollout

from reactor_sb3.algorithms.ppo import PPOLoss
from reactor_sb3.algorithms.sync_td3 import TD3Batch
from reactor_sb3.learned import read_actor_critic
from reactor_torch import Batch, Loss, Network, Networks, Task, kernels

BY_EXTENSION = pytest.mark.skipif(kernels.compiled is None, reason="the extension is not compiled here")


@dataclass
class Numbers(Batch):
    observations: torch.Tensor
    actions: torch.Tensor


@dataclass(frozen=True)
class Through(Loss):
    """The critic's loss looks at the target, the actor's through the critic."""

    learns: str = "actor"
    reads: tuple[str, ...] = ("critic",)
    statistics = ("loss",)

    def __call__(self, nets: Any, batch: Numbers) -> tuple[torch.Tensor, ...]:
        return (nets["critic"](nets["actor"](batch.observations)).mean(),)


def layers(**parts: nn.Module) -> nn.Module:
    return nn.Sequential(OrderedDict(parts))


def made() -> tuple[Networks, dict[str, nn.Module]]:
    """An actor and a critic with a common layer, and a target of the critic."""
    torch.manual_seed(0)
    common = nn.Linear(3, 3)
    actor = layers(common=common, own=nn.Linear(3, 3))
    modules = {"actor": actor, "critic": layers(common=common, own=nn.Linear(3, 1)), "target": layers(common=nn.Linear(3, 3))}
    parts = {
        "actor": Network(actor, torch.optim.SGD(actor.parameters(), 0.1)),
        "critic": Network(modules["critic"], torch.optim.SGD(modules["critic"].parameters(), 0.1), 1.0, excluding=actor),
        "target": Network(modules["target"]),
        "number": Network({"one": (one := torch.zeros(1, requires_grad=True))}, torch.optim.SGD([one], 0.5)),
    }
    return Networks(parts, {"actor": Through()}), modules


def test_what_is_whose() -> None:
    nets, modules = made()
    assert nets.flat("actor").names == ("common.weight", "common.bias", "own.weight", "own.bias")
    assert nets.flat("critic").names == ("own.weight", "own.bias")
    assert dict(nets) == {name: part.module for name, part in nets.parts.items()}
    assert nets["actor"] is modules["actor"]
    assert not nets.others()


def test_a_loss_changes_no_gradients_but_those_of_its_network() -> None:
    nets, _ = made()
    nets.flat("critic").gradients.fill_(7)
    nets.begin_round(nets.losses)
    nets.compute([Task("actor", Numbers(torch.ones(2, 3), torch.ones(2)), slice(0, 2))])
    assert (nets.flat("critic").gradients == 7).all()
    assert nets.flat("actor").gradients.abs().sum() > 0


def test_steps() -> None:
    nets, _ = made()
    nets.begin_round(nets.losses)
    nets.step("number", -3.0)
    assert nets.flat("number").data.tolist() == [1.5]
    before = nets.flat("critic").data.clone()
    nets.flat("critic").gradients.fill_(100)
    nets.step("critic")
    assert float((before - nets.flat("critic").data).norm()) == pytest.approx(0.1, rel=1e-3)  # as far as a norm of 1
    nets.begin_round(nets.losses, {"critic": Network(nets["critic"], max_grad_norm=None)})
    nets.flat("critic").gradients.fill_(100)
    before = nets.flat("critic").data.clone()
    nets.step("critic")
    assert float((before - nets.flat("critic").data).max()) == pytest.approx(10)


def test_modes() -> None:
    nets, modules = made()
    nets.end_round()
    assert [module.training for module in modules.values()] == [False, False, True]
    nets.begin_round(nets.losses)
    assert [module.training for module in modules.values()] == [True, True, True]


@pytest.mark.parametrize("way", [copy.deepcopy, lambda nets: pickle.loads(pickle.dumps(nets))])
def test_what_travels(way: Any) -> None:
    nets, _ = made()
    nets["critic"].optimizer = nets.parts["critic"].optimizer  # as SB3's networks have theirs
    other = way(nets)
    assert other["actor"].common is other["critic"].common is not nets["actor"].common
    assert other["critic"].optimizer is other.parts["critic"].optimizer is None
    assert {name: other.flat(name).names for name in other} == {name: nets.flat(name).names for name in nets}
    assert all(torch.equal(other.flat(name).data, nets.flat(name).data) for name in nets)
    assert [len(other.flat(name).gradients) for name in other] == [len(nets.flat(name).gradients) for name in nets]
    assert other.losses == nets.losses
    assert nets["critic"].optimizer is not None


@pytest.mark.parametrize("algorithm", ["sac", "td3"])
def test_policies_travel_whoever_learns(algorithm: str) -> None:
    for kind in ("box", "dict"):
        nets = Learner(model_of(algorithm, kind)).nets
        other = pickle.loads(pickle.dumps(nets))
        assert other.compiled == nets.compiled == (kind == "box")
        assert other.why == nets.why


@pytest.mark.parametrize("kind", ["box", "dict"])
def test_copies_compute_apart(kind: str) -> None:
    model = model_of("td3", kind)
    nets = Learner(model).nets
    given = replay(model, 20, np.random.default_rng(0))
    parts = (given.observations, given.actions, given.next_observations, given.dones, given.rewards, 0.9)
    batch = TD3Batch(*parts, torch.zeros_like(given.actions))
    for loss, network in (("critic", "critic"), ("actor", "actor")):
        nets.gradients(loss, batch)
        first = nets.flat(network).gradients.clone()
        other = copy.deepcopy(nets)
        nets.flat(network).data.mul_(1.1)
        nets.gradients(loss, batch)
        other.gradients(loss, batch)
        assert torch.equal(other.flat(network).gradients, first)
        assert not torch.allclose(nets.flat(network).gradients, first, rtol=1e-3)


def of_ppo(loss: PPOLoss, read: Any = read_actor_critic) -> Networks:
    torch.manual_seed(0)
    policy = ppo("box").policy
    return Networks({"policy": Network(policy, policy.optimizer, read=read)}, {"policy": loss})


PPO_LOSS = PPOLoss(0.2, None, 0.01, 0.5)


@BY_EXTENSION
def test_why_autograd_learns() -> None:
    assert of_ppo(PPO_LOSS).why is None
    assert of_ppo(PPO_LOSS, None).why == "'policy' is a Network without read="
    assert of_ppo(PPO_LOSS, lambda module, flat: f"{len(flat.names)} parameters").why == "'policy': 13 parameters"
    assert made()[0].why == "Through has no `fast`"
    policy = ppo("box").policy
    for touch, why in (
        (lambda: policy.log_std.requires_grad_(False), "'policy': its log_std does not learn"),
        (lambda: policy.value_net.register_forward_hook(print), "has a forward hook"),
    ):
        touch()
        nets = Networks({"policy": Network(policy, policy.optimizer, read=read_actor_critic)}, {"policy": PPO_LOSS})
        assert why in str(nets.why) and not nets.compiled
        policy.log_std.requires_grad_(True)


@BY_EXTENSION
def test_without_the_extension_autograd_learns_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = ppo_batch(model := ppo("box"), rollout(model, 30, np.random.default_rng(0)))
    fast = of_ppo(PPO_LOSS)
    statistics = fast.gradients("policy", batch)
    monkeypatch.setattr(kernels, "compiled", None)
    slow = of_ppo(PPO_LOSS)
    assert slow.why == "the extension is not used here, see `doctor`" and slow.kernels("policy") is None
    assert slow.gradients("policy", batch) == pytest.approx(statistics, rel=1e-4, abs=1e-5)
    torch.testing.assert_close(slow.flat("policy").gradients, fast.flat("policy").gradients, rtol=1e-4, atol=1e-6)
    slow.step("policy")
    assert not torch.equal(slow.flat("policy").data, fast.flat("policy").data)


@dataclass(frozen=True)
class Bolder(PPOLoss):
    """Another loss, of which the inherited `fast` knows nothing."""

    def evaluate(self, policy: Any, batch: Any) -> Any:
        values, log_prob, entropy = super().evaluate(policy, batch)
        return values, 2 * log_prob, entropy


@dataclass(frozen=True)
class Suits(Bolder):
    fast = PPOLoss.fast


@dataclass(frozen=True)
class Numbered(PPOLoss):
    """With nothing but a number of its own."""

    more: int = 0


def test_a_subclass_with_methods_of_its_own_has_to_say_that_it_is_fast() -> None:
    numbers = 0.2, None, 0.01, 0.5
    assert Bolder(*numbers).why_not_fast() == "Bolder has its own `evaluate` and no `fast` beside it"
    assert Suits(*numbers).why_not_fast() is Numbered(*numbers).why_not_fast() is None
    assert of_ppo(Bolder(*numbers)).why is not None
    with pytest.raises(NotImplementedError, match="Through has no `fast`"):
        Through().fast({}, None, 1.0)


def test_what_a_distribution_remembers_does_not_travel() -> None:
    policy = ppo("box").policy
    policy.evaluate_actions(torch.zeros(2, 5), torch.zeros(2, 2))  # computed tensors, which torch does not copy
    other = pickle.loads(pickle.dumps(Networks({"policy": Network(policy, policy.optimizer)}, {})))
    assert other["policy"].evaluate_actions(torch.zeros(2, 5), torch.zeros(2, 2))
    assert policy.optimizer is not None


def test_a_target_follows_what_was_loaded() -> None:
    """Outside of a round nobody has bound what was loaded in between."""
    source, target = nn.Linear(2, 2), nn.Linear(2, 2)
    nets = Networks({"net": Network(source, torch.optim.SGD(source.parameters(), 0.1)), "target": Network(target)}, {})
    source.weight.data = torch.ones(2, 2)
    nets.follow("target", "net", 1.0)
    assert (target.weight == 1).all() and torch.equal(target.bias, source.bias)


def test_refused() -> None:
    nets, _ = made()
    parts = dict(nets.parts)
    with pytest.raises(ValueError, match=r"loss 'a' is about a network 'critics', and there are \['actor', 'critic'"):
        Networks(parts, {"a": Through(reads=("critics",))})
    with pytest.raises(ValueError, match="'target' learn, which has no optimizer"):
        Networks(parts, {"a": Through(learns="target")})
