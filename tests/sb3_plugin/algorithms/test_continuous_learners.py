"""Learners of SAC and TD3: how often targets move, critics and actor apart, losses that travel, what is refused."""

from __future__ import annotations

import contextlib
import math
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from continuous_models import CASES, ROWS, SPACES, Learner, Normalising, Nothing, learn, model_of, replay
from every_other import in_turn
from stable_baselines3.common.distributions import StateDependentNoiseDistribution
from stable_baselines3.sac.policies import Actor, SACPolicy
from torch import nn

from reactor_sb3 import SyncSAC
from reactor_sb3.policies import check_squashed
from reactor_sb3.trainers.learner import finish
from reactor_torch import check_split

pytestmark = pytest.mark.usefixtures("one_thread", "small_blocks")


@in_turn("interval", [1, 2, 3], kept=1)
def test_how_often_targets_move(interval: int) -> None:
    """As in SB3's ``train()``, which counts the updates of a call from 0."""
    theirs, ours = (model_of("sac", target_update_interval=interval, tau=0.3) for _ in range(2))
    learner, generator = Learner(ours), np.random.default_rng(0)
    given = iter([replay(theirs, ROWS, generator) for _ in range(4)])
    theirs.replay_buffer.sample = lambda *_, **__: next(given)
    torch.manual_seed(0)
    theirs.train(4, ROWS)
    generator = np.random.default_rng(0)
    torch.manual_seed(0)
    samples = (replay(ours, ROWS, generator) for _ in range(4))
    moved: list[bool] = []
    last = [one.clone() for one in ours.critic_target.parameters()]
    found: Any = finish(learner.updates(watched(samples, ours.critic_target, last, moved)), learner.nets)
    assert len(found["critic_loss"]) == len(found["ent_coef_loss"]) == 4
    assert moved == [number % interval == 0 for number in range(3)]
    for mine, wanted in zip(ours.critic_target.parameters(), theirs.critic_target.parameters(), strict=True):
        torch.testing.assert_close(mine, wanted, rtol=0, atol=1e-4)


def watched(batches: Any, module: nn.Module, last: list[torch.Tensor], moved: list[bool]) -> Iterator[Any]:
    """The same batches; whether a module has other weights than before the last one is noted down."""
    for number, batch in enumerate(batches):
        now = [one.clone() for one in module.parameters()]
        if number:
            moved.append(not all(map(torch.equal, now, last)))
        last[:] = now
        yield batch


@pytest.mark.parametrize("kind", ["box", "dict"])
@pytest.mark.parametrize("algorithm", ["sac", "td3"])
def test_apart(algorithm: str, kind: str) -> None:
    """With ``split`` the critics learn as ever, and the actor from the critics as they were before."""
    changed = {"policy_delay": 1} if algorithm == "td3" else {}
    models = {name: model_of(algorithm, kind, **changed) for name in ("usual", "split", "before")}
    for group in models["before"].critic.optimizer.param_groups:
        group["lr"] = 0.0  # so that its actor sees the critics as they were
    given = replay(models["usual"], ROWS, np.random.default_rng(0))
    found = {}
    for name, model in models.items():
        torch.manual_seed(0)
        found[name] = learn(Learner(model, split=name == "split"), given, 0)
    usual, split, before = models.values()
    assert all(map(torch.equal, split.critic.parameters(), usual.critic.parameters()))
    assert all(map(torch.equal, split.actor.parameters(), before.actor.parameters()))
    assert not all(map(torch.equal, split.actor.parameters(), usual.actor.parameters()))
    assert found["split"]["critic_loss"] == found["usual"]["critic_loss"]
    assert found["split"]["actor_loss"] == found["before"]["actor_loss"] != found["usual"]["actor_loss"]


@pytest.mark.parametrize("split", [False, True])
def test_what_is_asked_for_at_the_same_time(split: bool) -> None:
    learner = Learner(model_of("td3", policy_delay=2), split)
    updates = learner.updates([replay(learner.model, ROWS, np.random.default_rng(0)) for _ in range(2)])
    asked: list[list[str]] = []
    statistics: Any = None
    with contextlib.suppress(StopIteration):
        while tasks := updates.send(statistics):
            asked.append([task.loss for task in tasks])
            statistics = learner.nets.compute(tasks)
    assert asked == ([["critic"], ["critic", "actor"]] if split else [["critic"], ["critic"], ["actor"]])


@pytest.mark.parametrize("case", ["SAC", "SAC, dict, shared", "TD3", "TD3, dict, shared"])
def test_networks_that_travel(case: str) -> None:
    """With the weights that a minibatch brings they give the same gradients."""
    algorithm, kind, changed = CASES[case]
    learner, generator = Learner(model_of(algorithm, kind, **changed)), np.random.default_rng(0)
    learn(learner, replay(learner.model, ROWS, generator), 1)  # whose last actions have a graph
    other = pickle.loads(pickle.dumps(learner.nets))
    learn(learner, replay(learner.model, ROWS, generator), 1)
    batch = learner.batch(replay(learner.model, ROWS, generator))
    learner.nets.begin_round(learner.nets.losses)
    other.set_training_mode(True)
    assert not any(other[name].training for name in other if name.endswith("target"))
    for loss in learner.nets.losses:
        for name in other:
            if name != "ent_coef":
                other.flat(name).data.copy_(learner.nets.flat(name).data)
        assert np.array_equal(learner.nets.gradients(loss, batch), other.gradients(loss, batch))
        assert torch.equal(learner.nets.flat(loss).gradients, other.flat(loss).gradients)


class OwnLogProb(Actor):
    def action_log_prob(self, obs: Any) -> Any:
        return super().action_log_prob(obs)


class OwnPolicy(SACPolicy):
    """Whose actor has an own way to say how likely its actions are."""

    def make_actor(self, features_extractor: Any = None) -> Any:
        return OwnLogProb(**self._update_features_extractor(self.actor_kwargs, features_extractor))


class OwnNoise(StateDependentNoiseDistribution):
    def sample_weights(self, log_std: torch.Tensor, batch_size: int = 1) -> None:
        super().sample_weights(log_std, batch_size)


def with_own_noise() -> Any:
    """An actor with gSDE whose matrices are drawn in an own way."""
    actor = model_of("sac", use_sde=True).actor
    actor.action_dist = OwnNoise(2, learn_features=True, squash_output=True)
    return actor


def test_what_is_refused() -> None:
    normalising: dict[str, Any] = {"policy_kwargs": {"features_extractor_class": Normalising}}
    observed = SPACES["box"][1]
    with pytest.raises(ValueError, match=r"'features_extractor.flatten.1' is batch normalisation"):
        SyncSAC("MlpPolicy", lambda: Nothing(observed), buffer_size=200, device="cpu", **normalising)
    with pytest.raises(ValueError, match=r"split=True .* 'critic.features_extractor.flatten.1'"):
        check_split(Learner(model_of("td3", **normalising)).nets)
    with pytest.raises(ValueError, match=r"Actor with OwnNoise: the noise .* sample_weights"):
        check_squashed(with_own_noise())
    with pytest.raises(ValueError, match=r"OwnLogProb .* override its get_action_dist_params"):
        SyncSAC(OwnPolicy, lambda: Nothing(observed), buffer_size=200, device="cpu")


def test_actions_at_their_bounds() -> None:
    """What is added under the logarithm keeps everything finite; the gradients fade."""
    learner = Learner(model_of("sac"))
    with torch.no_grad():
        learner.model.actor.mu.bias.copy_(torch.tensor([60.0, -60.0]))
    assert learner.nets.compiled
    batch = learner.batch(replay(learner.model, ROWS, np.random.default_rng(0)))
    assert learner.nets.gradients("actor", batch)[1] > 2 * -math.log(1e-6) - 10
    flat = learner.nets.flat("actor")
    mean, log_std = flat.gradient("mu.weight"), flat.gradient("log_std.bias")
    assert mean is not None and not mean.any()
    assert log_std is not None and log_std.isfinite().all()
