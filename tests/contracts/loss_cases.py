"""Losses, with networks and a minibatch of each. A new loss is a new :class:`Case`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from gymnasium import spaces
from networks_today import MaskedBatch, Network, Networks, QBatch, TransitionBatch
from sb3_contrib.ars.policies import ARSPolicy
from sb3_plugin.continuous_models import Learner, OneWidth, model_of
from stable_baselines3 import DQN, PPO
from torch_plugin.contrib_models import MASKED, STEPS, allowed, masked, quantiles, recurrent, renormalised, truncated
from torch_plugin.sb3_models import ACTIONS, IMAGES, NUMBERS, Walk, dqn, ppo, rollout
from torch_plugin.sb3_models import replay as some_transitions

from reactor_pettingzoo.learning.policies import MaskedLoss
from reactor_sb3.algorithms import pqn_policies, sync_a2c, sync_dqn, sync_sac, sync_td3
from reactor_sb3.algorithms.actor_critic import ValueLoss
from reactor_sb3.algorithms.ppo import PPOBatch, PPOLoss
from reactor_sb3.algorithms.pqn import QLoss
from reactor_sb3.algorithms.sac import MatrixBatch
from reactor_sb3.algorithms.sync_recurrent_ppo import SequenceBatch
from reactor_sb3.learned import read_actor_critic, read_natural_actor, read_q_net, read_values_of_states
from reactor_sb3.natural import shared_out
from reactor_sb3.trainers.search import Directions, SearchLoss, read_parameters

ROWS = 200
"""Three leaves and a part of one: a tree of them is no sum from left to right."""
FEW = 20
"""Of what adds up rows in an order of its own."""


class Made(NamedTuple):
    """Networks with losses, and a minibatch for each loss."""

    nets: Networks
    batches: Mapping[str, Any]


@dataclass
class Case:
    """A loss, or several that read the same networks.

    Attributes:
        make: From a number of rows to networks, and a minibatch for all losses or for each.
        rows: Of the minibatch.
        adds_up: Whether gradients of leaves of rows, added up as a tree, have the bits of those of all rows.
        but: Names of losses of which that does not hold all the same.
        whole: Whether a slice of a minibatch is another loss, since rows are normalised together.
        dear: Whether it takes so long that some checks of it are ``slow``.
        asks: Whether it asks its networks, and does not only look at their parameters.
    """

    make: Callable[[int], tuple[Networks, Any]]
    rows: int = ROWS
    adds_up: bool = True
    but: tuple[str, ...] = ()
    whole: bool = False
    dear: bool = False
    asks: bool = True

    def made(self) -> Made:
        """The same ones each time."""
        torch.manual_seed(0)
        nets, batch = self.make(self.rows)
        return Made(nets, batch if isinstance(batch, dict) else dict.fromkeys(nets.losses, batch))

    def slices(self) -> list[slice]:
        """Three uneven ones."""
        cuts = [0, self.rows // 6, self.rows * 5 // 8, self.rows]
        return [slice(*cuts[at : at + 2]) for at in range(3)]

    def leaves(self, rows: int) -> list[slice]:
        """Those of a tree."""
        return [slice(at, min(at + rows, self.rows)) for at in range(0, self.rows, rows)]


# ---------------------------------------------------------------------- minibatches


def transitions(rows: int, actions: torch.Tensor) -> tuple[Any, ...]:
    """The fields of a batch of transitions."""
    given = some_transitions(rows, np.random.default_rng(0), discounts=True)
    return given.observations, actions, given.next_observations, given.dones, given.rewards, given.discounts


def deep(rows: int) -> TransitionBatch:
    return TransitionBatch(*transitions(rows, torch.randint(3, (rows, 1))))


def soft(rows: int, discount: float | None = None, deviation: float = 1.0) -> sync_sac.SACBatch:
    (noise, next_noise), actions = deviation * torch.randn(2, rows, 2), torch.randn(rows, 2)
    batch = sync_sac.SACBatch(*transitions(rows, actions.clamp(-1, 1)), noise, next_noise, 0.3)
    return batch if discount is None else replace(batch, discounts=discount)


def calm(rows: int) -> sync_sac.SACBatch:
    """Without actions near their bounds: there, 1 - tanh^2 has few digits, and each order of operations other ones."""
    return soft(rows, deviation=0.5)


def pictures(rows: int) -> torch.Tensor:
    return torch.randint(0, 256, (rows, *IMAGES.shape), dtype=torch.uint8)


def images(rows: int, form: torch.memory_format = torch.contiguous_format, dtype: torch.dtype = torch.uint8) -> TransitionBatch:
    """Transitions of images."""
    seen, following = (pictures(rows).contiguous(memory_format=form).to(dtype) for _ in range(2))
    return replace(deep(rows), observations=seen, next_observations=following)


def taken(kind: str, rows: int, **arguments: Any) -> PPOBatch:
    """Some of a round of PPO."""
    given = rollout(ppo(kind, **arguments), rows, np.random.default_rng(0))
    actions = given.actions.long().flatten() if kind == "discrete" else given.actions
    return PPOBatch(given.observations, actions, given.advantages, given.returns, given.old_log_prob, given.old_values)


# ---------------------------------------------------------------------- what learns by it


def shaken(module: torch.nn.Module) -> torch.nn.Module:
    """A target is not what it follows."""
    for one in module.parameters():
        one.data.add_(torch.randn_like(one), alpha=0.1)
    return module


def sac(rows: int, discount: float | None = None, spread: float = 0.0, **network: Any) -> Any:
    """With ``spread``, standard deviations beyond both bounds."""
    model = model_of("sac", policy_kwargs=network)
    model.actor.log_std.weight.data.mul_(1 + spread)
    shaken(model.critic_target)
    return Learner(model).nets, soft(rows, discount)


def explored(rows: int, policy: Any = "MlpPolicy", **network: Any) -> Any:
    """SAC with gSDE: one matrix for all rows."""
    model = model_of("sac", use_sde=True, policy=policy, policy_kwargs={"log_std_init": -1.0, **network})
    noise = torch.randn(16, 2)
    model.actor.log_std.data.add_(torch.randn_like(model.actor.log_std), alpha=0.3)
    return Learner(model).nets, MatrixBatch(**vars(soft(rows)) | {"noise": noise, "next_noise": noise})


def td3(rows: int, **network: Any) -> Any:
    model = model_of("td3", policy_kwargs=network)
    shaken(model.critic_target), shaken(model.actor_target)
    batch = soft(rows)
    parts = {name: part for name, part in vars(batch).items() if name not in ("noise", "ent_coef")}
    return Learner(model).nets, sync_td3.TD3Batch(**parts | {"next_noise": 0.3 * batch.next_noise})


def q_learning(policy: Any, loss: sync_dqn.DQNLoss) -> Networks:
    parts = {"q_net": Network(policy.q_net, policy.optimizer, read=read_q_net)}
    return Networks(parts | {"q_net_target": Network(shaken(policy.q_net_target), fixed=True, read=read_q_net)}, {"q_net": loss})


def deep_q(rows: int, two: bool, kind: Any) -> Any:
    return q_learning(dqn().policy, sync_dqn.DQNLoss(two, kind)), deep(rows)


def deep_q_of_images(rows: int, **how: Any) -> Any:
    model = DQN("CnnPolicy", Walk(spaces.Discrete(3), IMAGES), seed=1, device="cpu", buffer_size=10)
    return q_learning(model.policy, sync_dqn.DQNLoss(True, "huber")), images(rows, **how)


def pqn(rows: int, normalised: bool) -> Any:
    own = pqn_policies.MlpPolicy(NUMBERS, spaces.Discrete(3), lambda _: 1e-3, net_arch=[24, 16])
    policy: Any = own if normalised else dqn().policy
    batch = QBatch(torch.randn(rows, 5), torch.randint(3, (rows,)), torch.randn(rows))
    return Networks({"q_net": Network(policy.q_net, policy.optimizer, read=read_q_net)}, {"q_net": QLoss()}), batch


def surrogate(rows: int, kind: str, clip_range_vf: float | None, **arguments: Any) -> Any:
    policy = ppo(kind, **arguments).policy
    losses = {"policy": PPOLoss(0.2, clip_range_vf, 0.01, 0.5)}
    return Networks({"policy": Network(policy, policy.optimizer, read=read_actor_critic)}, losses), taken(kind, rows, **arguments)


def surrogate_of_images(rows: int, kind: str, brightest: int = 255, **arguments: Any) -> Any:
    policy = PPO("CnnPolicy", Walk(ACTIONS[kind], IMAGES), seed=1, device="cpu", policy_kwargs=arguments).policy
    losses = {"policy": PPOLoss(0.2, None, 0.01, 0.5)}
    batch = replace(taken(kind, rows), observations=pictures(rows).clamp(max=brightest))
    return Networks({"policy": Network(policy, policy.optimizer, read=read_actor_critic)}, losses), batch


def policy_gradient(made: Callable[..., Any], rows: int, **given: Any) -> Any:
    """A2C's loss, of networks and a minibatch of PPO's."""
    nets, batch = made(rows, **given)
    return Networks(nets.parts, {"policy": sync_a2c.A2CLoss(0.01, 0.5)}), batch


def critic_alone(rows: int, kind: str) -> Any:
    """Of a policy whose actor is moved otherwise."""
    policy = ppo(kind).policy
    actor, critic = shared_out(policy)
    parts = {
        "critic": Network(policy, policy.optimizer, excluding=actor, read=read_values_of_states),
        "policy": Network(policy, policy.optimizer, excluding=critic, read=read_natural_actor),
    }
    return Networks(parts, {"critic": ValueLoss()}), taken(kind, rows)


def several_agents(rows: int, kind: str) -> Any:
    """Two policies of SyncIPPO: what one of them does is sometimes forbidden."""
    policies = {name: ppo(kind).policy for name in ("free", "bound")}
    shaken(policies["bound"])
    losses = {
        "free": PPOLoss(0.2, None, 0.01, 0.5, learns="free"),
        "bound": MaskedLoss(0.2, 0.2, 0.02, 0.5, learns="bound"),
    }
    batch = taken(kind, rows)
    masks = allowed(kind, batch.actions, torch.rand(rows, policies["bound"].action_net.out_features) < 0.6)
    parts = {name: Network(policy, policy.optimizer, read=read_actor_critic) for name, policy in policies.items()}
    return Networks(parts, losses), {"free": batch, "bound": MaskedBatch(**vars(batch), action_masks=masks)}


def with_masks(rows: int, kind: str, clip_range_vf: float | None) -> Any:
    nets, batch = masked(kind, clip_range_vf), taken(kind, rows)
    policy = nets["policy"]
    given = batch.actions if kind != "discrete" else batch.actions[:, None]
    masks = allowed(kind, given, torch.rand(rows, policy.action_net.out_features) < 0.4)
    old = policy.evaluate_actions(batch.observations, batch.actions, masks)[1].detach() + 0.3 * torch.randn(rows)
    return nets, MaskedBatch(**vars(batch) | {"old_log_prob": old}, action_masks=masks)


def of_sequences(rows: int, kind: str, steps: int = 7, clip_range_vf: float | None = None, **network: Any) -> Any:
    nets, batch = recurrent(kind, clip_range_vf, **network), taken(kind, steps * rows)
    columns = {name: one.unflatten(0, (rows, steps)) for name, one in vars(batch).items()}
    states = torch.randn(rows, 4 * nets["policy"].lstm_actor.hidden_size).tanh()
    return nets, SequenceBatch(**columns, states=states, starts=(torch.rand(rows, steps) < 0.2).float())


def searched(rows: int) -> Any:
    policy = ARSPolicy(NUMBERS, spaces.Discrete(3), net_arch=[33])
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
    nets = Networks({"policy": Network(policy, optimizer, read=read_parameters)}, {"policy": SearchLoss()})
    size = sum(one.numel() for one in policy.parameters())
    return nets, Directions(torch.randn(rows, size), torch.randn(rows))


def by(networks: Callable[..., Networks], batch: Callable[[int], Any], *given: Any, **network: Any) -> Any:
    """Networks that do not depend on the rows."""
    return lambda rows: (networks(*given, **network), batch(rows))


# ---------------------------------------------------------------------- cases

FEW_ROWS: dict[str, Any] = {"rows": FEW, "adds_up": False}
TOGETHER: dict[str, Any] = {"adds_up": False, "whole": True}

CASES: dict[str, Case] = {
    "SAC": Case(sac),
    "SAC, one critic": Case(partial(sac, n_critics=1)),
    "SAC, one discount": Case(partial(sac, discount=0.9, n_critics=3)),
    "SAC, deviations beyond their bounds": Case(partial(sac, spread=300.0)),
    "SAC, gSDE": Case(explored, but=("actor",)),
    "SAC, gSDE, one width": Case(partial(explored, policy=OneWidth, clip_mean=0.1), but=("actor",)),
    "SAC, gSDE, no bounds": Case(partial(explored, clip_mean=0.0, activation_fn=torch.nn.Tanh), but=("actor",)),
    "TD3": Case(td3),
    "TD3, three critics": Case(partial(td3, n_critics=3)),
    **{
        f"DQN, {kind}{', double' * two}": Case(partial(deep_q, two=two, kind=kind))
        for kind in ("huber", "mse")
        for two in (False, True)
    },
    "DQN, images": Case(deep_q_of_images, **FEW_ROWS),
    "DQN, images as numbers": Case(partial(deep_q_of_images, dtype=torch.float32), **FEW_ROWS, dear=True),
    "DQN, images with channels last": Case(partial(deep_q_of_images, form=torch.channels_last), **FEW_ROWS, dear=True),
    "PQN": Case(partial(pqn, normalised=False)),
    "PQN, layer norm": Case(partial(pqn, normalised=True)),
    **{f"PPO, {kind}, {vf}": Case(partial(surrogate, kind=kind, clip_range_vf=vf)) for kind in ACTIONS for vf in (None, 0.2)},
    "PPO, gSDE": Case(partial(surrogate, kind="box", clip_range_vf=None, use_sde=True), adds_up=False),
    **{f"PPO, images, {kind}": Case(partial(surrogate_of_images, kind=kind), **FEW_ROWS) for kind in ("discrete", "box")},
    "PPO, images as they are": Case(
        partial(surrogate_of_images, kind="discrete", brightest=1, normalize_images=False, net_arch=[16]), **FEW_ROWS, dear=True
    ),
    **{f"A2C, {kind}": Case(partial(policy_gradient, surrogate, kind=kind, clip_range_vf=None)) for kind in ACTIONS},
    "A2C, gSDE": Case(partial(policy_gradient, surrogate, kind="box", clip_range_vf=None, use_sde=True), adds_up=False),
    "A2C, images": Case(partial(policy_gradient, surrogate_of_images, kind="box"), **FEW_ROWS),
    **{f"TRPO, {kind}": Case(partial(critic_alone, kind=kind)) for kind in ("discrete", "box")},
    **{f"IPPO, {kind}": Case(partial(several_agents, kind=kind)) for kind in ("discrete", "multi-discrete")},
    **{
        f"MaskablePPO, {kind}, {vf}": Case(partial(with_masks, kind=kind, clip_range_vf=vf))
        for kind in MASKED
        for vf in (None, 0.2)
    },
    **{f"RecurrentPPO, {kind}": Case(partial(of_sequences, kind=kind), **FEW_ROWS) for kind in ACTIONS},
    "RecurrentPPO, clipped values": Case(partial(of_sequences, kind="box", steps=3, clip_range_vf=0.2, net_arch=[]), **FEW_ROWS),
    "RecurrentPPO, a critic without memory": Case(partial(of_sequences, kind="discrete", enable_critic_lstm=False), **FEW_ROWS),
    "QR-DQN": Case(by(quantiles, deep)),
    "QR-DQN, 200 quantiles": Case(by(quantiles, deep, n_quantiles=200, net_arch=[16]), dear=True),
    "QR-DQN, images": Case(by(quantiles, images, images=True), **FEW_ROWS, dear=True),
    "TQC": Case(by(truncated, soft, 4)),
    "TQC, one critic, nothing dropped": Case(by(truncated, soft, 0, n_critics=1, n_quantiles=25)),
    "TQC, five critics": Case(by(truncated, soft, 10, n_critics=5, n_quantiles=16)),
    "ARS": Case(searched, adds_up=False, asks=False),
    "CrossQ": Case(by(renormalised, calm), **TOGETHER),
    "CrossQ, the last step of the warm-up": Case(by(renormalised, calm, renorm_warmup_steps=STEPS), **TOGETHER),
    "CrossQ, the first step after it": Case(by(renormalised, calm, renorm_warmup_steps=STEPS - 1, n_critics=3), **TOGETHER),
    "CrossQ, no batch normalisation": Case(by(renormalised, calm, batch_norm=False, n_critics=1, net_arch=[33]), **TOGETHER),
}


def cases(names: Callable[[Case], bool] = lambda case: True, turn: int | None = None) -> Any:
    """A test for each of them, or for some; with ``turn``, every other one is ``slow``."""
    found = [(name, case) for name, case in CASES.items() if names(case)]
    slow = [case.dear or (turn is not None and at % 2 != turn) for at, (_, case) in enumerate(found)]
    marked = [pytest.param(name, marks=[pytest.mark.slow] * one) for (name, _), one in zip(found, slow, strict=True)]
    return pytest.mark.parametrize("name", marked)
