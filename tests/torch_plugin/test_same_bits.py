"""Weights after updates through ``Networks`` are those of the learners of ``reactor_sb3.learning``, to the last bit."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from reactor_sb3.learning.ppo_learner import PPOLearner
from reactor_sb3.learning.q_learner import QLearner
from reactor_sb3.training.pqn_policies import CnnPolicy, MlpPolicy
from sb3_plugin.continuous_models import CASES, ROWS, SPACES, batch_of, learner_of, model_of, replay
from stable_baselines3 import SAC
from torch import nn
from torch_plugin.sb3_models import ACTIONS, FEATURES, Walk, dqn, ppo, rollout
from torch_plugin.sb3_models import replay as replay_of_q

from reactor_sb3.algorithms import pqn, sync_dqn, sync_ppo, sync_sac, sync_td3
from reactor_torch import DQNLoss, Network, Networks, PPOBatch, QBatch, QLoss, Task, TransitionBatch

UPDATES = 7


def learn(nets: Networks, names: tuple[str, ...], batch: Any, split: bool = False) -> dict[str, float]:
    """Steps of some networks, from the losses of the same names."""
    found: dict[str, float] = {}
    for together in [names] if split else [(name,) for name in names]:
        for statistics in nets.compute([Task(name, batch, slice(0, len(batch))) for name in together]):
            found |= statistics
        for name in together:
            nets.step(nets.loss(name).learns)
    return found


def same(one: nn.Module, other: nn.Module) -> bool:
    """Whether two modules have the same parameters and buffers."""
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


def modes(policy: nn.Module) -> list[bool]:
    """Which modules train; but for the policy itself, of which nobody asks it."""
    return [one.training for one in policy.modules()][1:]


def continuous_nets(model: Any) -> Networks:
    policy = model.policy
    parts = {
        "critic": Network(policy.critic, policy.critic.optimizer, excluding=policy.actor),
        "actor": Network(policy.actor, policy.actor.optimizer),
    }
    if isinstance(model, SAC):
        parts["critic_target"] = Network(policy.critic_target)
        if model.ent_coef_optimizer is not None:
            parts["ent_coef"] = Network({"log_ent_coef": model.log_ent_coef}, model.ent_coef_optimizer)
        return Networks(parts, {"critic": sync_sac.CriticLoss(), "actor": sync_sac.ActorLoss()})
    parts["critic_target"] = Network(policy.critic_target, excluding=policy.actor_target)
    parts["actor_target"] = Network(policy.actor_target)
    return Networks(parts, {"critic": sync_td3.CriticLoss(), "actor": sync_td3.ActorLoss()})


def sac_update(model: Any, nets: Networks, given: Any, number: int, split: bool) -> None:
    learns = model.ent_coef_optimizer is not None
    coefficient = float(nets.flat("ent_coef").data.exp()) if learns else float(model.ent_coef_tensor)
    found = learn(nets, ("critic", "actor"), sync_sac.SACBatch(**vars(given), ent_coef=coefficient), split)
    if learns:
        nets.step("ent_coef", -(found["log_prob"] + float(model.target_entropy)))
    if number % model.target_update_interval == 0:
        nets.follow("critic_target", "critic", model.tau)


def td3_update(model: Any, nets: Networks, given: Any, number: int, split: bool) -> None:
    delayed = (number + 1) % model.policy_delay != 0
    learn(nets, ("critic",) if delayed else ("critic", "actor"), sync_td3.TD3Batch(**vars(given)), split)
    if not delayed:
        nets.follow("critic_target", "critic", model.tau)
        nets.follow("actor_target", "actor", model.tau)


def loaded(policy: nn.Module, state: dict[str, torch.Tensor]) -> None:
    """Other weights, as SB3's ``set_parameters`` brings them."""
    policy.load_state_dict(state)


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_critics_and_actor(case: str, split: bool) -> None:
    """Two rounds, with weights loaded in between."""
    if split and "batch normalisation" in case:
        pytest.skip("refused")
    algorithm, kind, changed = CASES[case]
    theirs, ours = (model_of(algorithm, kind, **copy.deepcopy(changed)) for _ in range(2))
    assert same(theirs.policy, ours.policy)
    learner, nets, generator = learner_of(theirs, split), continuous_nets(ours), np.random.default_rng(0)
    assert learner.dense == nets.dense
    update = sac_update if algorithm == "sac" else td3_update
    start = copy.deepcopy(theirs.policy.state_dict())
    for round in range(2):
        torch.manual_seed(round)
        batches = [batch_of(theirs, learner, replay(theirs, ROWS, generator, bool(round))) for _ in range(UPDATES)]
        learner.begin_round()
        arguments = (theirs.tau, theirs.target_update_interval) if algorithm == "sac" else (theirs.tau, theirs.policy_delay, 0)
        learner.learn(copy.deepcopy(batches), *arguments)
        learner.end_round()
        nets.begin_round(nets.losses)
        for number, batch in enumerate(batches):
            update(ours, nets, batch, number, split)
        nets.end_round()
        assert same(theirs.policy, ours.policy)
        assert modes(theirs.policy) == modes(ours.policy)
        if algorithm == "sac" and theirs.ent_coef_optimizer is not None:
            assert torch.equal(theirs.log_ent_coef, ours.log_ent_coef)
        loaded(theirs.policy, start)
        loaded(ours.policy, start)


Q_CASES: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "clipped": {"max_grad_norm": 0.1, "policy_kwargs": {"activation_fn": nn.Tanh}},
    "another activation": {"policy_kwargs": {"activation_fn": nn.ELU, "net_arch": [24]}},
    "RMSprop": {"policy_kwargs": {"optimizer_class": torch.optim.RMSprop, "net_arch": [16, 16]}},
}


@pytest.mark.parametrize("kind", ["huber", "mse"])
@pytest.mark.parametrize("double_q", [False, True])
@pytest.mark.parametrize("case", Q_CASES)
def test_q_learning(case: str, double_q: bool, kind: Any) -> None:
    theirs, ours = (dqn(**copy.deepcopy(Q_CASES[case])).policy for _ in range(2))
    most = Q_CASES[case].get("max_grad_norm", 10.0)
    learner = QLearner(theirs, partial(DQNLoss, double_q=double_q, kind=kind), most, theirs.q_net_target)
    parts = {
        "q_net": Network(ours.q_net, ours.optimizer, 5.0),
        "q_net_target": Network(ours.q_net_target, fixed=True),
    }
    nets = Networks(parts, {"q_net": sync_dqn.DQNLoss(not double_q, kind)})
    assert learner.dense == nets.dense == (case != "another activation")
    generator = np.random.default_rng(0)
    for _ in range(2):
        given = [replay_of_q(32, generator) for _ in range(UPDATES)]
        batches = [
            TransitionBatch(one.observations, one.actions, one.next_observations, one.dones, one.rewards, 0.99) for one in given
        ]
        learner.begin_round(most)
        learner.learn(batches)
        learner.end_round()
        learner.update_target(0.3)
        nets.begin_round({"q_net": sync_dqn.DQNLoss(double_q, kind)}, {"q_net": Network(ours.q_net, max_grad_norm=most)})
        for batch in batches:
            learn(nets, ("q_net",), batch)
        nets.end_round()
        nets.follow("q_net_target", "q_net", 0.3)
        assert same(theirs, ours)


@pytest.mark.parametrize("images", [False, True])
def test_pqn(images: bool) -> None:
    def made() -> Any:
        torch.manual_seed(0)
        if images:
            return CnnPolicy(SPACES["image"][1], ACTIONS["discrete"], lambda _: 1e-3, features_extractor_kwargs={"features_dim": 8})
        return MlpPolicy(Walk(ACTIONS["discrete"]).observation_space, ACTIONS["discrete"], lambda _: 1e-3, net_arch=[16])

    theirs, ours = made(), made()
    learner = QLearner(theirs, partial(QLoss, weight=0.5), 10.0)
    nets = Networks({"q_net": Network(ours.q_net, ours.optimizer, 10.0)}, {"q_net": pqn.QLoss()})
    assert learner.dense == nets.dense == (not images)
    learner.begin_round(10.0)
    nets.begin_round(nets.losses)
    for _ in range(UPDATES):
        observations = torch.randint(0, 256, (9, 1, 36, 36), dtype=torch.uint8) if images else torch.randn(9, FEATURES)
        parts = (observations, torch.randint(0, 3, (9,)), torch.randn(9))
        learner.learn([QBatch(*parts)])
        learn(nets, ("q_net",), pqn.QBatch(*parts))
        assert same(theirs, ours)


def minibatches(batch: Any, size: int) -> Iterator[slice]:
    return (slice(at, min(at + size, len(batch))) for at in range(0, len(batch), size))


@pytest.mark.parametrize(("clip_range_vf", "most_kl"), [(None, math.inf), (0.2, 1e-3)])
@pytest.mark.parametrize("activation", [nn.Tanh, nn.ELU])
@pytest.mark.parametrize("kind", ACTIONS)
def test_ppo(kind: str, activation: Callable[[], nn.Module], clip_range_vf: float | None, most_kl: float) -> None:
    """Two passes; the second value of the loss has other ranges."""
    theirs, ours = (ppo(kind, policy_kwargs={"activation_fn": activation}) for _ in range(2))
    learner = PPOLearner(theirs.policy, 0.5)
    parts = {"policy": Network(ours.policy, ours.policy.optimizer, 0.5)}
    nets = Networks(parts, {"policy": sync_ppo.PPOLoss(0.3, clip_range_vf, 0.0, 0.5)})
    assert learner.dense == nets.dense == (activation is nn.Tanh)
    given = rollout(theirs, 100, np.random.default_rng(0))
    actions = given.actions.long().flatten() if kind == "discrete" else given.actions
    rows = (given.observations, actions, given.advantages, given.returns, given.old_log_prob, given.old_values)
    learner.loss.clip_range, learner.loss.clip_range_vf, learner.loss.ent_coef, learner.loss.vf_coef = 0.1, clip_range_vf, 0.05, 0.6
    learner.begin_round(0.5)
    nets.begin_round({"policy": sync_ppo.PPOLoss(0.1, clip_range_vf, 0.05, 0.6)})
    stopped = False
    for _ in range(2):
        order = torch.randperm(100)
        _, whole = learner.learn(PPOBatch(*rows), order, 30, False, most_kl)
        batch = sync_ppo.PPOBatch(*rows)[order]
        for minibatch in minibatches(batch, 30):
            (found,) = nets.compute([Task("policy", batch, minibatch)])
            if found["approx_kl"] > most_kl:
                stopped = True
                break
            nets.step("policy")
        assert same(theirs.policy, ours.policy)
        assert stopped != whole
