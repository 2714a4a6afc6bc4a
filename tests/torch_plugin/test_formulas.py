"""Hand-derived gradients and statistics are those of the loss as it is written, whole and in slices; each formula has a case."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from sb3_plugin.continuous_models import ROWS, Learner, model_of, replay
from torch_plugin.sb3_models import ACTIONS, dqn, ppo, rollout
from torch_plugin.sb3_models import replay as replay_of_q

from reactor_sb3 import algorithms
from reactor_sb3.algorithms import pqn, sync_dqn, sync_sac, sync_td3
from reactor_sb3.algorithms.ppo import PPOBatch, PPOLoss
from reactor_torch import Autograd, Loss, Network, Networks, QBatch, TransitionBatch

CLOSE = 1e-5
SLICES = (slice(0, 5), slice(5, 20), slice(20, ROWS))
Made = tuple[Networks, Any]


def continuous(algorithm: str, **network: Any) -> Made:
    model = model_of(algorithm, policy_kwargs=network)
    given = replay(model, ROWS, np.random.default_rng(0))
    noise, next_noise = torch.randn(2, *given.actions.shape)
    parts = (given.observations, given.actions, given.next_observations, given.dones, given.rewards, 0.9)
    if algorithm == "sac":
        return Learner(model).nets, sync_sac.SACBatch(*parts, noise, next_noise, 0.3)
    return Learner(model).nets, sync_td3.TD3Batch(*parts, 0.1 * next_noise)


def deep_q(double_q: bool, kind: Any) -> Made:
    policy, given = dqn().policy, replay_of_q(ROWS, np.random.default_rng(0), discounts=True)
    parts = {"q_net": Network(policy.q_net, policy.optimizer), "q_net_target": Network(policy.q_net_target, fixed=True)}
    for one in policy.q_net_target.parameters():
        one.data.add_(torch.randn_like(one), alpha=0.1)
    assert given.discounts is not None
    columns = (given.observations, given.actions, given.next_observations, given.dones, given.rewards, given.discounts)
    return Networks(parts, {"q_net": sync_dqn.DQNLoss(double_q, kind)}), TransitionBatch(*columns)


def returns_of_q() -> Made:
    policy, given = dqn().policy, replay_of_q(ROWS, np.random.default_rng(0))
    nets = Networks({"q_net": Network(policy.q_net, policy.optimizer)}, {"q_net": pqn.QLoss()})
    return nets, QBatch(given.observations, given.actions.flatten(), given.rewards.flatten())


def surrogate(kind: str, clip_range_vf: float | None) -> Made:
    model = ppo(kind)
    given = rollout(model, ROWS, np.random.default_rng(0))
    actions = given.actions.long().flatten() if kind == "discrete" else given.actions
    nets = Networks({"policy": Network(model.policy, model.policy.optimizer)}, {"policy": PPOLoss(0.2, clip_range_vf, 0.01, 0.5)})
    return nets, PPOBatch(given.observations, actions, given.advantages, given.returns, given.old_log_prob, given.old_values)


def masked() -> Made:
    from reactor_pettingzoo.learning.policies import MaskedBatch, MaskedLoss

    nets, batch = surrogate("discrete", 0.2)
    policy = nets["policy"]
    masks = torch.rand(ROWS, policy.action_net.out_features) < 0.6
    masks[torch.arange(ROWS), batch.actions] = True
    losses = {"policy": MaskedLoss(0.2, 0.2, 0.01, 0.5)}
    return Networks({"policy": Network(policy, policy.optimizer)}, losses), MaskedBatch(**vars(batch), action_masks=masks)


CASES: dict[str, Callable[[], Made]] = {
    "SAC": lambda: continuous("sac"),
    "SAC, one critic": lambda: continuous("sac", n_critics=1),
    "TD3": lambda: continuous("td3"),
    "TD3, three critics": lambda: continuous("td3", n_critics=3),
    **{
        f"DQN, {kind}{', double' * two}": lambda kind=kind, two=two: deep_q(two, kind)
        for kind in ("huber", "mse")
        for two in (False, True)
    },
    "PQN": returns_of_q,
    "PPO, masked": masked,
    **{f"PPO, {kind}, {vf}": lambda kind=kind, vf=vf: surrogate(kind, vf) for kind in ACTIONS for vf in (None, 0.2)},
}


def computed(formula: Any, nets: Networks, batch: Any, slices: tuple[slice, ...]) -> tuple[torch.Tensor, np.ndarray[Any, Any]]:
    """Gradients and statistics of slices, added up."""
    flat = nets.flat(formula.loss.learns)
    gradients, statistics = torch.zeros_like(flat.gradients), np.zeros(len(formula.loss.statistics))
    for rows in slices:
        statistics += formula.gradients(batch[rows], len(batch))
        gradients += flat.gradients
    return gradients, statistics


@pytest.mark.parametrize("case", CASES)
def test_a_formula_is_the_loss_as_written(case: str) -> None:
    torch.manual_seed(0)
    nets, batch = CASES[case]()
    assert nets.dense
    for formula in nets.formulas.values():
        written = Autograd(formula.loss, nets)
        for slices in ((slice(0, ROWS),), SLICES):
            gradients, statistics = computed(formula, nets, batch, slices)
            wanted, named = computed(written, nets, batch, (slice(0, ROWS),))
            assert float((gradients - wanted).abs().max()) <= CLOSE * float(wanted.abs().max())
            np.testing.assert_allclose(statistics, named, rtol=0, atol=CLOSE * max(1.0, float(np.abs(named).max())))
            again, statistics = computed(written, nets, batch, slices)
            assert float((again - wanted).abs().max()) <= CLOSE * float(wanted.abs().max())
            np.testing.assert_allclose(statistics, named, rtol=0, atol=CLOSE * max(1.0, float(np.abs(named).max())))


def losses_with_formulas() -> Iterator[type[Loss]]:
    """Of all algorithms; a subclass that is another loss says ``formula = Loss.formula``."""
    for module in pkgutil.iter_modules(algorithms.__path__):
        found = importlib.import_module(f"{algorithms.__name__}.{module.name}")
        for one in vars(found).values():
            if isinstance(one, type) and issubclass(one, Loss) and one.formula is not Loss.formula:
                yield one


def test_each_formula_has_a_case() -> None:
    tested = {type(loss) for made in CASES.values() for loss in made()[0].losses.values()}
    assert tested
    assert set(losses_with_formulas()) <= tested
