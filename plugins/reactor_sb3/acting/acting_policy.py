"""Which way actors take to evaluate an actor-critic policy: a question of the policy alone."""

from __future__ import annotations

from gymnasium import spaces
from stable_baselines3.common import distributions as sb3
from stable_baselines3.common.policies import ActorCriticPolicy

from reactor_sb3.acting.action_distributions import distribution_of
from reactor_sb3.acting.own_policy import OwnPolicy
from reactor_sb3.acting.plain_policy import ActingPolicy, Bounds, PlainPolicy
from reactor_sb3.acting.policy_networks import TorchNetworks, TorchStructure, dense_networks_of

__all__ = ["acting_policy_of", "is_plain"]

_DISTRIBUTIONS = (
    sb3.CategoricalDistribution, sb3.MultiCategoricalDistribution, sb3.BernoulliDistribution, sb3.DiagGaussianDistribution,
)  # fmt: skip
_METHODS = (
    "forward", "extract_features",
    "evaluate_actions", "predict_values", "get_distribution", "_get_action_dist_from_latent", "_predict",
)  # fmt: skip


def is_plain(policy: ActorCriticPolicy) -> bool:
    """Whether a policy is two networks and a distribution of SB3's, and does nothing of its own with them."""
    own = any(getattr(type(policy), name) is not getattr(ActorCriticPolicy, name) for name in _METHODS)
    return type(policy.action_dist) in _DISTRIBUTIONS and not own


def acting_policy_of(policy: ActorCriticPolicy, sde_sample_freq: int = -1) -> ActingPolicy:
    """The structure of a policy, as light to evaluate as possible.

    Args:
        policy: It.
        sde_sample_freq: Steps between two draws of its state-dependent noise, -1 for one a round.
    """
    space = policy.action_space
    bounds = Bounds(space.low, space.high, policy.squash_output) if isinstance(space, spaces.Box) else None
    keyed = isinstance(policy.observation_space, spaces.Dict)
    if not is_plain(policy):
        return OwnPolicy(TorchStructure(policy, keyed), bounds, sde_sample_freq)
    return PlainPolicy(dense_networks_of(policy) or TorchNetworks(TorchStructure(policy, keyed)), distribution_of(space), bounds)
