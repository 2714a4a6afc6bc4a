"""Networks of sb3-contrib's models with the losses of our trainers, and what these learn from."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from gymnasium import spaces
from sb3_contrib import QRDQN, TQC, CrossQ, MaskablePPO, RecurrentPPO
from sb3_contrib.common.torch_layers import BatchRenorm1d
from sb3_contrib.crossq import policies as crossq
from sb3_contrib.tqc import policies as tqc
from torch_plugin.sb3_models import ACTIONS, IMAGES, Walk

from reactor_sb3.algorithms import sync_crossq, sync_qrdqn, sync_tqc
from reactor_sb3.algorithms.ppo import PPOLoss
from reactor_sb3.algorithms.sync_maskable_ppo import SyncMaskablePPO
from reactor_sb3.algorithms.sync_recurrent_ppo import SequenceLoss
from reactor_sb3.learned import (
    read_actor,
    read_actor_critic,
    read_critics,
    read_quantile_critics,
    read_quantile_net,
)
from reactor_torch import Network, Networks

STEPS = 7
"""Of CrossQ's networks so far."""
MASKED = ("discrete", "multi-discrete", "multi-binary")
CHOICES = {"discrete": [3], "multi-discrete": [2, 4, 3], "multi-binary": [2, 2, 2, 2]}
"""Among how many is chosen, for each choice of such an action."""


def quantiles(images: bool = False, **network: Any) -> Networks:
    """QR-DQN's."""
    kind, env = ("CnnPolicy", Walk(spaces.Discrete(3), IMAGES)) if images else ("MlpPolicy", Walk(spaces.Discrete(3)))
    model = QRDQN(kind, env, seed=1, device="cpu", buffer_size=10, policy_kwargs={"n_quantiles": 21, **network})
    policy = model.policy
    parts = {
        "quantile_net": Network(policy.quantile_net, policy.optimizer, read=read_quantile_net),
        "quantile_net_target": Network(policy.quantile_net_target, fixed=True, read=read_quantile_net),
    }
    for one in policy.quantile_net_target.parameters():
        one.data.add_(torch.randn_like(one), alpha=0.1)
    return Networks(parts, {"quantile_net": sync_qrdqn.QuantileLoss()})


def truncated(drop: int, **network: Any) -> Networks:
    """TQC's."""
    given = {"net_arch": [24, 16], "n_quantiles": 7, **network}
    model = TQC("MlpPolicy", Walk(ACTIONS["box"]), seed=1, device="cpu", buffer_size=10, policy_kwargs=given)
    policy = model.policy
    critics = partial(read_quantile_critics, kind=tqc.Critic)
    parts = {
        "critic": Network(policy.critic, policy.critic.optimizer, excluding=policy.actor, read=critics),
        "actor": Network(policy.actor, policy.actor.optimizer, read=partial(read_actor, kind=tqc.Actor)),
        "critic_target": Network(policy.critic_target, read=critics),
    }
    return Networks(parts, {"critic": sync_tqc.TQCCriticLoss(drop), "actor": sync_tqc.TQCActorLoss()})


def renormalised(**network: Any) -> Networks:
    """CrossQ's, as they are after some steps: running statistics are not those that they begin with."""
    given = {"net_arch": [24, 16], **network}
    model = CrossQ("MlpPolicy", Walk(ACTIONS["box"]), seed=1, device="cpu", buffer_size=10, policy_kwargs=given)
    policy = model.policy
    for name, one in policy.named_buffers():
        if name.endswith("steps"):
            one.fill_(STEPS)
        else:
            one.copy_(torch.rand(one.shape) + (0.2 if name.endswith("var") else -0.5))
    for name, one in policy.named_parameters():
        if name.endswith("scale"):
            torch.nn.init.uniform_(one, 0.5, 1.5)
    critics = partial(read_critics, kind=crossq.CrossQCritic, renormalising=BatchRenorm1d)
    actor = partial(read_actor, kind=crossq.Actor, renormalising=BatchRenorm1d)
    parts = {
        "critic": Network(policy.critic, policy.critic.optimizer, excluding=policy.actor, buffers=True, read=critics),
        "actor": Network(policy.actor, policy.actor.optimizer, buffers=True, read=actor),
    }
    return Networks(parts, {"critic": sync_crossq.CrossQCriticLoss(), "actor": sync_crossq.CrossQActorLoss()})


def masked(kind: str, clip_range_vf: float | None, **network: Any) -> Networks:
    """MaskablePPO's."""
    model = MaskablePPO("MlpPolicy", Walk(ACTIONS[kind]), seed=1, device="cpu", policy_kwargs=network)
    parts = {"policy": Network(model.policy, model.policy.optimizer, read=SyncMaskablePPO._read)}
    return Networks(parts, {"policy": PPOLoss(0.2, clip_range_vf, 0.01, 0.5)})


def recurrent(kind: str, clip_range_vf: float | None, **network: Any) -> Networks:
    """RecurrentPPO's."""
    given = {"net_arch": [16], "lstm_hidden_size": 24, **network}
    model = RecurrentPPO("MlpLstmPolicy", Walk(ACTIONS[kind]), seed=1, device="cpu", policy_kwargs=given)
    parts = {"policy": Network(model.policy, model.policy.optimizer, read=read_actor_critic)}
    return Networks(parts, {"policy": SequenceLoss(0.2, clip_range_vf, 0.01, 0.5)})


def allowed(kind: str, actions: torch.Tensor, free: torch.Tensor) -> torch.Tensor:
    """Masks by which actions are allowed, and what is ``free``, ``(rows, choices)``."""
    begins = torch.tensor([0, *CHOICES[kind][:-1]]).cumsum(0)
    return free.scatter(1, actions.long().view(len(actions), -1) + begins, True)
