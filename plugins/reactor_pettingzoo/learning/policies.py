"""The policies of all agents as one of SB3's, and PPO's loss where some actions are forbidden."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.preprocessing import get_flattened_obs_dim
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, MlpExtractor
from torch import nn

from reactor_pettingzoo.learning.league import MAIN, OPPONENT, PLAYERS, League, Pool
from reactor_pettingzoo.learning.seats import Block, Seats
from reactor_sb3.plugin import PPOLoss, copied
from reactor_torch import FORBIDDEN

__all__ = ["CentralisedActor", "AgentPolicies", "CentralisedPolicy", "MaskedLoss", "acting_alone"]

Array = npt.NDArray[Any]


class AgentPolicies(BasePolicy):
    """An ``ActorCriticPolicy`` with an optimiser of its own for each agent, or for each group of agents.

    Args:
        seats: All agents.
        policies: The policies, by name.
        league: If they are the one that learns, and those that play it.

    Attributes:
        agents: The policies, by name; in a league opponents, too, and the two that play a match.
        pool: Snapshots of the one that learns; ``None`` without a league.
    """

    def __init__(self, seats: Seats, policies: Mapping[str, ActorCriticPolicy], league: League | None = None) -> None:
        super().__init__(seats.observation_space(), seats.action_space())
        self.seats = seats
        self.agents = nn.ModuleDict(dict(policies))
        self.pool = None if league is None else Pool(policies[MAIN], league)
        if league is not None:
            opponents = (f"{OPPONENT}_{number}" for number in range(league.opponents))
            for name in (*opponents, *(PLAYERS if league.games else ())):
                other: Any = copied(policies[MAIN], {id(policies[MAIN].optimizer): None})
                self.agents[name] = other.requires_grad_(False)

    def forward(self, observation: Any, deterministic: bool = False, action_masks: Any = None) -> Any:
        """Actions of all agents, as :meth:`predict` gives them."""
        joint: Array = np.empty(len(next(iter(observation.values()))), self.seats.actions)
        for block in self.seats.blocks:
            policy: Any = self.agents[self.names(block)[0]]
            seen = block.seen(observation)
            distribution = policy.get_distribution(seen.get("", seen))
            if action_masks and block.policy in action_masks:
                allowed = torch.as_tensor(np.asarray(action_masks[block.policy]), device=self.device)
                forbid(distribution, allowed.reshape(-1, block.group.choices))
            of_policy = joint[block.policy]
            of_policy[...] = distribution.get_actions(deterministic=deterministic).cpu().numpy().reshape(of_policy.shape)
        return joint

    def names(self, block: Block) -> tuple[str, ...]:
        """Names of the policies that act for a block: one, or all opponents."""
        if block.policy in self.agents:
            return (block.policy,)
        return tuple(name for name in self.agents if name.startswith(f"{block.policy}_"))

    def check_apart(self) -> None:
        """Refuse policies that have parameters or buffers in common: each is sent to actors by itself."""
        known: dict[int, str] = {}
        for name, policy in self.agents.items():
            for path, one in (*policy.named_parameters(), *policy.named_buffers()):
                if (owner := known.setdefault(id(one), name)) != name:
                    raise ValueError(
                        f"the policies {owner!r} and {name!r} share one tensor ({path!r}): give each its own (copy.deepcopy), "
                        "or let one policy act for the agents of both (policy_of=)"
                    )

    def _predict(self, observation: Any, deterministic: bool = False) -> Any:
        return self.forward(observation, deterministic)

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
        action_masks: Mapping[str, Array] | None = None,
    ) -> tuple[Any, Any]:
        """Actions of all agents: a record with a field for each policy; see SB3.

        Args:
            observation: As of ``get_env()``, of one environment or of several.
            state: As given.
            episode_start: Nobody looks at it.
            deterministic: Whether the best actions are taken.
            action_masks: By policy the masks of its agents, if some actions are forbidden, ``(envs, rows, choices)`` of several.
        """
        self.set_training_mode(False)
        tensors, several = self.obs_to_tensor(observation)
        with torch.no_grad():
            joint = self.forward(tensors, deterministic, action_masks)
        return (joint if several else joint[0]), state


class SomeParts(BaseFeaturesExtractor):
    """The parts of a centralised policy's observations that its actor sees, or its critic."""

    def __init__(self, observation_space: spaces.Dict, *parts: str) -> None:
        super().__init__(observation_space, sum(get_flattened_obs_dim(observation_space[part]) for part in parts))
        self.parts = parts

    def forward(self, observations: Any) -> torch.Tensor:
        """Features, ``(rows, n)``."""
        return torch.cat([observations[part].flatten(1) for part in self.parts], 1)


class CentralisedPolicy(ActorCriticPolicy):
    """An actor that sees what its agent does, and a critic that sees the state of the environment besides (Yu et al. 2022)."""

    def __init__(self, *given: Any, **arguments: Any) -> None:
        super().__init__(*given, **{**arguments, "share_features_extractor": False})

    def make_features_extractor(self) -> BaseFeaturesExtractor:
        """The actor's, then the critic's."""
        seen: Any = self.observation_space
        there = isinstance(getattr(self, "features_extractor", None), nn.Module)
        return SomeParts(seen, "own", *(["state"] if there else []))

    def _build_mlp_extractor(self) -> None:
        super()._build_mlp_extractor()
        of_critic = MlpExtractor(self.vf_features_extractor.features_dim, self.net_arch, self.activation_fn, self.device)
        self.mlp_extractor.value_net = of_critic.value_net


class CentralisedActor(nn.Module):
    """The actor of a centralised policy, alone: from what its agent sees to a distribution of actions."""

    def __init__(self, policy: CentralisedPolicy) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, observations: torch.Tensor) -> Any:
        """The distribution of actions."""
        policy: Any = self.policy
        if observations.ndim == 4 and observations.shape[1:] != policy.observation_space["own"].shape:
            observations = observations.permute(0, 3, 1, 2)  # images, which the policy has seen channels first
        return policy.get_distribution({"own": observations}).distribution


def acting_alone(policy: Any) -> Any:
    """A policy as it acts by what its agent sees: of a centralised one the actor."""
    return CentralisedActor(policy) if isinstance(policy, CentralisedPolicy) else policy


def forbid(distribution: Any, masks: torch.Tensor) -> None:
    """Take what masks forbid out of a categorical distribution of SB3's, or out of each of several."""
    given = distribution.distribution
    several = given if isinstance(given, list) else [given]
    of_each = torch.split(masks.bool(), [one.logits.shape[-1] for one in several], 1)
    allowed = [
        torch.distributions.Categorical(logits=one.logits.masked_fill(~mask, float(FORBIDDEN)))
        for one, mask in zip(several, of_each, strict=True)
    ]
    distribution.distribution = allowed if isinstance(given, list) else allowed[0]


@dataclass(frozen=True)
class MaskedLoss(PPOLoss):
    """PPO's, of a distribution in which nothing forbidden happens."""

    fast = PPOLoss.fast

    def evaluate(self, policy: Any, batch: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Values, log-probabilities and entropies."""
        features = policy.extract_features(batch.observations)
        of_actor, of_critic = features if isinstance(features, tuple) else (features, features)
        distribution = policy._get_action_dist_from_latent(policy.mlp_extractor.forward_actor(of_actor))
        forbid(distribution, batch.action_masks)
        values = policy.value_net(policy.mlp_extractor.forward_critic(of_critic))
        return values, distribution.log_prob(batch.actions), distribution.entropy()
