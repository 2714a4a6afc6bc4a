"""Trainings of dense networks, and trainers' first weights, that depend on no processor: writes a fingerprint of each, as JSON.

Initial weights of the trainings, transitions and noise are normal numbers of numpy, rounded to sixteenths: no library has its last
bits in them.
"""

from __future__ import annotations

import hashlib
import json
import sys
from functools import partial
from typing import Any

import learning_envs
import numpy as np
import torch
from contrib_trainers import EVERY, make_any
from gymnasium import spaces
from sb3_plugin.continuous_models import Learner, model_of
from stable_baselines3 import DQN, PPO
from torch_plugin.contrib_models import CHOICES, MASKED, STEPS, allowed, masked, quantiles, recurrent, renormalised, truncated
from torch_plugin.sb3_models import IMAGES, Walk, dqn, ppo
from trainers import SPACES, Toy

from reactor_sb3.algorithms import pqn, sync_a2c, sync_dqn, sync_sac, sync_td3
from reactor_sb3.algorithms.ppo import PPOBatch, PPOLoss
from reactor_sb3.algorithms.sac import MatrixBatch, SACBatch, entropy_network, learn_entropy, present_coefficient
from reactor_sb3.algorithms.sync_recurrent_ppo import SequenceBatch
from reactor_sb3.learned import read_actor, read_actor_critic, read_critics, read_q_net
from reactor_torch import MaskedBatch, Network, Networks, QBatch, TransitionBatch, normalized

ROWS, UPDATES = 200, 12
OF_IMAGES = 3
"""Updates of what convolves, which takes longest without vectors."""


class Numbers:
    """Random numbers that are the same everywhere."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def normal(self, *shape: int) -> torch.Tensor:
        drawn = np.clip(np.round(self.rng.standard_normal(shape) * 16), -48, 48)
        return torch.from_numpy((drawn / 16).astype(np.float32))

    def integers(self, below: int, *shape: int) -> torch.Tensor:
        return torch.from_numpy(self.rng.integers(0, below, shape))

    def transitions(self, actions: torch.Tensor) -> tuple[torch.Tensor, ...]:
        dones, rewards = (self.integers(8, ROWS, 1) == 0).float(), self.normal(ROWS, 1)
        return self.normal(ROWS, 5), actions, self.normal(ROWS, 5), dones, rewards

    def fill(self, nets: Networks) -> None:
        """Other weights for all networks."""
        for name in nets:
            nets.flat(name).data.copy_(self.normal(len(nets.flat(name).data)) / 8)
        nets.bind()


def trained(nets: Networks, batch: Any, targets: dict[str, str], model: Any = None, updates: int = UPDATES) -> str:
    """A fingerprint of the weights after some updates."""
    assert nets.compiled
    Numbers(3).fill(nets)
    for _ in range(updates):
        if model is not None:
            batch.ent_coef = present_coefficient(model)
        for name in nets.losses:
            statistics = nets.named(name, nets.gradients(name, batch))
            nets.step(nets.loss(name).learns)
            if "log_prob" in statistics and model is not None:
                learn_entropy(model, statistics["log_prob"], batch.ent_coef)
        for target, source in targets.items():
            nets.follow(target, source, 0.005)
    digest = hashlib.sha256()
    for name in sorted(nets):
        digest.update(nets.flat(name).data.numpy().tobytes())
    return digest.hexdigest()[:16]


def sac(use_sde: bool = False) -> str:
    model, draw = model_of("sac", use_sde=use_sde, policy_kwargs={"net_arch": [64, 33]}), Numbers(1)
    losses = {"critic": sync_sac.SACCriticLoss(), "actor": sync_sac.SACActorLoss()}
    policy = model.policy
    model.nets = Networks(
        {
            "critic": Network(policy.critic, policy.critic.optimizer, excluding=policy.actor, read=read_critics),
            "actor": Network(policy.actor, policy.actor.optimizer, read=read_actor),
            "critic_target": Network(policy.critic_target, read=read_critics),
            **entropy_network(model),
        },
        losses,
    )
    parts = draw.transitions(draw.normal(ROWS, 2) / 4)
    kind, rows = (MatrixBatch, 33) if use_sde else (SACBatch, ROWS)
    batch = kind(*parts, 0.99, draw.normal(rows, 2), draw.normal(rows, 2), 0.0)
    return trained(model.nets, batch, {"critic_target": "critic"}, model)


def td3() -> str:
    nets, draw = Learner(model_of("td3", policy_kwargs={"net_arch": [64, 33]})).nets, Numbers(1)
    batch = sync_td3.TD3Batch(*draw.transitions(draw.normal(ROWS, 2) / 4), 0.99, draw.normal(ROWS, 2) / 8)
    return trained(nets, batch, {"critic_target": "critic", "actor_target": "actor"})


def deep_q() -> str:
    policy, draw = dqn(policy_kwargs={"net_arch": [64, 33]}).policy, Numbers(1)
    parts = {
        "q_net": Network(policy.q_net, policy.optimizer, 10.0, read=read_q_net),
        "q_net_target": Network(policy.q_net_target, fixed=True, read=read_q_net),
    }
    batch = TransitionBatch(*draw.transitions(draw.integers(3, ROWS, 1)), 0.99)
    return trained(Networks(parts, {"q_net": sync_dqn.DQNLoss(True, "huber")}), batch, {"q_net_target": "q_net"})


def returns_of_q() -> str:
    policy = dqn(policy_kwargs={"net_arch": [64, 33], "activation_fn": torch.nn.Tanh}).policy
    draw, optimizer = Numbers(1), torch.optim.RAdam(policy.q_net.parameters(), lr=1e-2)
    batch = QBatch(draw.normal(ROWS, 5), draw.integers(3, ROWS), draw.normal(ROWS))
    return trained(Networks({"q_net": Network(policy.q_net, optimizer, read=read_q_net)}, {"q_net": pqn.QLoss()}), batch, {})


def of_policy(policy: Any, loss: PPOLoss) -> Networks:
    return Networks({"policy": Network(policy, policy.optimizer, 0.5, read=read_actor_critic)}, {"policy": loss})


def surrogate(kind: str, **arguments: Any) -> str:
    policy, draw = ppo(kind, **arguments).policy, Numbers(1)
    nets = of_policy(policy, PPOLoss(0.2, 0.2, 0.01, 0.5))
    actions = {
        "discrete": lambda: draw.integers(3, ROWS),
        "multi-discrete": lambda: draw.integers(2, ROWS, 3),
        "multi-binary": lambda: draw.integers(2, ROWS, 4).float(),
        "box": lambda: draw.normal(ROWS, 2),
    }[kind]()
    advantages = normalized(draw.normal(ROWS), 150, nets.kernels("policy"))
    batch = PPOBatch(draw.normal(ROWS, 5), actions, advantages, draw.normal(ROWS), draw.normal(ROWS) - 2, draw.normal(ROWS))
    return trained(nets, batch, {})


def policy_gradient() -> str:
    policy, draw = ppo("box").policy, Numbers(1)
    optimizer = torch.optim.RMSprop(policy.parameters(), lr=1e-2, eps=1e-5)
    parts = {"policy": Network(policy, optimizer, 0.5, read=read_actor_critic)}
    batch = PPOBatch(draw.normal(ROWS, 5), draw.normal(ROWS, 2), *(draw.normal(ROWS) for _ in range(4)))
    return trained(Networks(parts, {"policy": sync_a2c.A2CLoss(0.01, 0.5)}), batch, {})


def deep_q_of_images() -> str:
    draw, network = Numbers(1), {"features_extractor_kwargs": {"features_dim": 33}}
    model = DQN("CnnPolicy", Walk(spaces.Discrete(3), IMAGES), device="cpu", buffer_size=10, policy_kwargs=network)
    policy, shape = model.policy, (ROWS, *IMAGES.shape)
    parts = {
        "q_net": Network(policy.q_net, policy.optimizer, 10.0, read=read_q_net),
        "q_net_target": Network(policy.q_net_target, fixed=True, read=read_q_net),
    }
    _, actions, _, dones, rewards = draw.transitions(draw.integers(3, ROWS, 1))
    seen, following = (draw.integers(256, *shape).byte() for _ in range(2))
    batch = TransitionBatch(seen, actions, following, dones, rewards, 0.99)
    losses = {"q_net": sync_dqn.DQNLoss(True, "huber")}
    return trained(Networks(parts, losses), batch, {"q_net_target": "q_net"}, updates=OF_IMAGES)


def surrogate_of_images() -> str:
    draw, network = Numbers(1), {"features_extractor_kwargs": {"features_dim": 33}}
    policy = PPO("CnnPolicy", Walk(spaces.Discrete(3), IMAGES), device="cpu", policy_kwargs=network).policy
    nets = of_policy(policy, PPOLoss(0.2, None, 0.01, 0.5))
    seen = draw.integers(256, ROWS, *IMAGES.shape).byte()
    batch = PPOBatch(
        seen, draw.integers(3, ROWS), draw.normal(ROWS), draw.normal(ROWS), draw.normal(ROWS) - 2, draw.normal(ROWS)
    )  # fmt: skip
    return trained(nets, batch, {}, updates=OF_IMAGES)


def quantiles_of_q() -> str:
    draw = Numbers(1)
    batch = TransitionBatch(*draw.transitions(draw.integers(3, ROWS, 1)), 0.99)
    return trained(quantiles(net_arch=[64, 33]), batch, {"quantile_net_target": "quantile_net"})


def quantile_critics() -> str:
    draw = Numbers(1)
    parts = draw.transitions(draw.normal(ROWS, 2) / 4)
    batch = sync_sac.SACBatch(*parts, 0.99, draw.normal(ROWS, 2), draw.normal(ROWS, 2), 0.1)
    return trained(truncated(4, net_arch=[64, 33], n_quantiles=25), batch, {"critic_target": "critic"})


def renormalised_critics() -> str:
    """In the middle of which the warm-up ends."""
    draw, nets = Numbers(1), renormalised(net_arch=[64, 33], renorm_warmup_steps=STEPS + UPDATES // 2)
    for name in nets:
        for number, one in enumerate(nets.buffers(name)):  # mean, variance, steps
            if number % 3 < 2:
                one.copy_(draw.normal(len(one)).abs() + 0.25)
    batch = sync_sac.SACBatch(*draw.transitions(draw.normal(ROWS, 2) / 4), 0.99, draw.normal(ROWS, 2), draw.normal(ROWS, 2), 0.1)
    return trained(nets, batch, {})


def surrogate_with_masks(kind: str) -> str:
    nets, draw = masked(kind, None), Numbers(1)
    actions = draw.integers(2, ROWS) if kind == "discrete" else draw.integers(2, ROWS, len(CHOICES[kind]))
    masks = allowed(kind, actions, draw.integers(2, ROWS, sum(CHOICES[kind])) > 0)
    columns = [draw.normal(ROWS) for _ in range(4)]
    return trained(nets, MaskedBatch(draw.normal(ROWS, 5), actions, *columns, action_masks=masks), {})


def surrogate_of_sequences() -> str:
    draw, rows, steps = Numbers(1), 7, 30
    columns = [draw.normal(rows, steps) for _ in range(4)]
    starts = (draw.integers(8, rows, steps) == 0).float()
    batch = SequenceBatch(
        draw.normal(rows, steps, 5), draw.integers(3, rows, steps), *columns, states=draw.normal(rows, 4 * 24) / 4, starts=starts
    )  # fmt: skip
    return trained(recurrent("discrete", None), batch, {})


TRAININGS = {
    "SAC": sac,
    "SAC, gSDE": lambda: sac(use_sde=True),
    "TD3": td3,
    "DQN": deep_q,
    "DQN, images": deep_q_of_images,
    "PPO, images": surrogate_of_images,
    "PQN": returns_of_q,
    "QR-DQN": quantiles_of_q,
    "TQC": quantile_critics,
    "CrossQ": renormalised_critics,
    "RecurrentPPO": surrogate_of_sequences,
    **{f"MaskablePPO, {kind}": lambda kind=kind: surrogate_with_masks(kind) for kind in MASKED},
    **{f"PPO, {kind}": lambda kind=kind: surrogate(kind) for kind in ("discrete", "multi-discrete", "multi-binary", "box")},
    "PPO, gSDE": lambda: surrogate("box", use_sde=True),
    "A2C": policy_gradient,
}


def first_weights(algorithm: str, **how: Any) -> str:
    """A fingerprint of what a trainer begins with."""
    with learning_envs.make() if algorithm == "ippo" else make_any(algorithm, **how) as model:
        digest = hashlib.sha256()
        for name, one in sorted(model.policy.state_dict().items()):
            digest.update(name.encode() + one.numpy().tobytes())
        return digest.hexdigest()[:16]


FIRST = {
    **{f"first weights, {name}": partial(first_weights, name) for name in sorted([*EVERY, "ippo"])},
    "first weights, images": lambda: first_weights("ppo", env=lambda: Toy(SPACES["image"][1]), policy="CnnPolicy"),
}


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.stdout.write(json.dumps({name: training() for name, training in (TRAININGS | FIRST).items()}) + "\n")
