"""Hand-derived gradients and statistics are those of the loss as it is written, whole and in slices; each formula has a case."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from sb3_plugin.continuous_models import ROWS, Learner, model_of, replay
from stable_baselines3 import DQN, PPO
from torch_plugin.contrib_models import MASKED, STEPS, allowed, masked, quantiles, recurrent, renormalised, truncated
from torch_plugin.sb3_models import ACTIONS, IMAGES, Walk, dqn, ppo, rollout
from torch_plugin.sb3_models import replay as replay_of_q

from reactor_sb3 import algorithms
from reactor_sb3.algorithms import pqn, sync_dqn, sync_sac, sync_td3
from reactor_sb3.algorithms.ppo import PPOBatch, PPOLoss
from reactor_sb3.algorithms.sync_recurrent_ppo import SequenceBatch
from reactor_torch import Autograd, Loss, MaskedBatch, Network, Networks, QBatch, TransitionBatch

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


def pictures(bytes_as: torch.memory_format = torch.contiguous_format) -> torch.Tensor:
    return torch.randint(0, 256, (ROWS, *IMAGES.shape), dtype=torch.uint8).contiguous(memory_format=bytes_as)


def surrogate_of_images(kind: str, brightest: int = 255, **arguments: Any) -> Made:
    model = PPO("CnnPolicy", Walk(ACTIONS[kind], IMAGES), device="cpu", policy_kwargs=arguments)
    given = rollout(ppo(kind), ROWS, np.random.default_rng(0))
    actions = given.actions.long().flatten() if kind == "discrete" else given.actions
    nets = Networks({"policy": Network(model.policy, model.policy.optimizer)}, {"policy": PPOLoss(0.2, None, 0.01, 0.5)})
    seen = pictures().clamp(max=brightest)
    return nets, PPOBatch(seen, actions, given.advantages, given.returns, given.old_log_prob, given.old_values)


def deep_q_of_images(bytes_as: torch.memory_format, dtype: torch.dtype = torch.uint8) -> Made:
    policy = DQN("CnnPolicy", Walk(spaces.Discrete(3), IMAGES), device="cpu", buffer_size=10).policy
    for one in policy.q_net_target.parameters():
        one.data.add_(torch.randn_like(one), alpha=0.1)
    parts = {"q_net": Network(policy.q_net, policy.optimizer), "q_net_target": Network(policy.q_net_target, fixed=True)}
    _, actions, _, *others = transitions(torch.randint(3, (ROWS, 1)))
    batch = TransitionBatch(pictures(bytes_as).to(dtype), actions, pictures(bytes_as).to(dtype), *others)
    return Networks(parts, {"q_net": sync_dqn.DQNLoss(True, "huber")}), batch


def quantiles_of_images() -> Made:
    nets = quantiles(images=True)
    _, actions, _, *others = transitions(torch.randint(3, (ROWS, 1)))
    return nets, TransitionBatch(pictures(), actions, pictures(), *others)


def surrogate(kind: str, clip_range_vf: float | None) -> Made:
    model = ppo(kind)
    given = rollout(model, ROWS, np.random.default_rng(0))
    actions = given.actions.long().flatten() if kind == "discrete" else given.actions
    nets = Networks({"policy": Network(model.policy, model.policy.optimizer)}, {"policy": PPOLoss(0.2, clip_range_vf, 0.01, 0.5)})
    return nets, PPOBatch(given.observations, actions, given.advantages, given.returns, given.old_log_prob, given.old_values)


def masked_agents() -> Made:
    from reactor_pettingzoo.learning.policies import MaskedLoss

    nets, batch = surrogate("discrete", 0.2)
    policy = nets["policy"]
    masks = torch.rand(ROWS, policy.action_net.out_features) < 0.6
    masks[torch.arange(ROWS), batch.actions] = True
    losses = {"policy": MaskedLoss(0.2, 0.2, 0.01, 0.5)}
    return Networks({"policy": Network(policy, policy.optimizer)}, losses), MaskedBatch(**vars(batch), action_masks=masks)


def transitions(actions: torch.Tensor) -> tuple[Any, ...]:
    """The fields of a batch of transitions."""
    given = replay_of_q(ROWS, np.random.default_rng(0), discounts=True)
    return given.observations, actions, given.next_observations, given.dones, given.rewards, given.discounts


def quantiles_of_q(**network: Any) -> Made:
    return quantiles(**network), TransitionBatch(*transitions(torch.randint(3, (ROWS, 1))))


def quantile_critics(drop: int, **network: Any) -> Made:
    noise, next_noise, actions = torch.randn(3, ROWS, 2)
    return truncated(drop, **network), sync_sac.SACBatch(*transitions(actions.clamp(-1, 1)), noise, next_noise, 0.3)


def batches(**network: Any) -> Made:
    noise, next_noise, actions = torch.randn(3, ROWS, 2)
    return renormalised(**network), sync_sac.SACBatch(*transitions(actions.clamp(-1, 1)), noise, next_noise, 0.3)


def surrogate_with_masks(kind: str, clip_range_vf: float | None) -> Made:
    nets, given = masked(kind, clip_range_vf), rollout(ppo(kind), ROWS, np.random.default_rng(0))
    actions = given.actions.long().flatten() if kind == "discrete" else given.actions
    policy = nets["policy"]
    masks = allowed(kind, given.actions, torch.rand(ROWS, policy.action_net.out_features) < 0.4)
    old = policy.evaluate_actions(given.observations, actions, masks)[1].detach() + 0.3 * torch.randn(ROWS)
    return nets, MaskedBatch(
        given.observations, actions, given.advantages, given.returns, old, given.old_values, action_masks=masks
    )  # fmt: skip


def surrogate_of_sequences(kind: str, steps: int = 7, clip_range_vf: float | None = None, **network: Any) -> Made:
    nets, given = recurrent(kind, clip_range_vf, **network), rollout(ppo(kind), steps * ROWS, np.random.default_rng(0))
    actions = given.actions.long().flatten() if kind == "discrete" else given.actions
    states = torch.randn(ROWS, 4 * nets["policy"].lstm_actor.hidden_size).tanh()
    starts = (torch.rand(ROWS, steps) < 0.2).float()
    columns = (given.observations, actions, given.advantages, given.returns, given.old_log_prob, given.old_values)
    return nets, SequenceBatch(*(one.unflatten(0, (ROWS, steps)) for one in columns), states=states, starts=starts)


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
    "QR-DQN, images": quantiles_of_images,
    "DQN, images": lambda: deep_q_of_images(torch.contiguous_format),
    "DQN, images as numbers": lambda: deep_q_of_images(torch.contiguous_format, torch.float32),
    "DQN, images with channels last": lambda: deep_q_of_images(torch.channels_last),
    **{f"PPO, images, {kind}": lambda kind=kind: surrogate_of_images(kind) for kind in ("discrete", "box")},
    "PPO, images as they are": lambda: surrogate_of_images("discrete", 1, normalize_images=False, net_arch=[16]),
    "PPO, masked": masked_agents,
    "QR-DQN": quantiles_of_q,
    "QR-DQN, 200 quantiles": lambda: quantiles_of_q(n_quantiles=200, net_arch=[16]),
    "TQC": lambda: quantile_critics(4),
    "TQC, one critic, nothing dropped": lambda: quantile_critics(0, n_critics=1, n_quantiles=25),
    "TQC, five critics": lambda: quantile_critics(10, n_critics=5, n_quantiles=16),
    "CrossQ": batches,
    "CrossQ, the last step of the warm-up": lambda: batches(renorm_warmup_steps=STEPS),
    "CrossQ, the first step after it": lambda: batches(renorm_warmup_steps=STEPS - 1, n_critics=3),
    "CrossQ, no batch normalisation": lambda: batches(batch_norm=False, n_critics=1, net_arch=[33]),
    **{
        f"MaskablePPO, {kind}, {vf}": lambda kind=kind, vf=vf: surrogate_with_masks(kind, vf)
        for kind in MASKED
        for vf in (None, 0.2)
    },
    **{f"RecurrentPPO, {kind}": lambda kind=kind: surrogate_of_sequences(kind) for kind in ACTIONS},
    "RecurrentPPO, clipped values": lambda: surrogate_of_sequences("box", 3, 0.2, net_arch=[]),
    "RecurrentPPO, a critic without memory": lambda: surrogate_of_sequences("discrete", enable_critic_lstm=False),
    **{f"PPO, {kind}, {vf}": lambda kind=kind, vf=vf: surrogate(kind, vf) for kind in ACTIONS for vf in (None, 0.2)},
}


def computed(formula: Any, nets: Networks, batch: Any, slices: tuple[slice, ...]) -> tuple[torch.Tensor, np.ndarray[Any, Any]]:
    """Gradients and statistics of slices, added up; behind the statistics, how buffers change, which are put back."""
    flat, buffers = nets.flat(formula.loss.learns), [one for name in nets for one in nets.buffers(name)]
    before = [one.clone() for one in buffers]
    gradients, statistics = torch.zeros_like(flat.gradients), np.zeros(len(formula.loss.statistics))
    for rows in slices:
        statistics += formula.gradients(batch[rows], len(batch))
        gradients += flat.gradients
    changes = [(one - was).flatten().numpy() for one, was in zip(buffers, before, strict=True)]
    for one, was in zip(buffers, before, strict=True):
        one.copy_(was)
    return gradients, np.concatenate([statistics, *changes])


@pytest.mark.parametrize("case", CASES)
def test_a_formula_is_the_loss_as_written(case: str) -> None:
    torch.manual_seed(0)
    nets, batch = CASES[case]()
    assert nets.dense
    whole = any(nets.buffers(name) for name in nets)  # what is normalised is not that of slices
    for formula in nets.formulas.values():
        written = Autograd(formula.loss, nets)
        for slices in ((slice(0, ROWS),),) if whole else ((slice(0, ROWS),), SLICES):
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
