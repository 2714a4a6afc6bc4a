"""How actors act with generalised state-dependent exploration (gSDE, Raffin et al. 2021), where networks are dense layers.

The noise of an action is a product of what the actor's last layer sees and of a random matrix. Each environment has a matrix of its
own, which is drawn anew every so many steps, as in SB3; here from the actor's stream, and without torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reactor_sb3.acting.action_distributions import Gaussian, normal_log_probs
from reactor_sb3.acting.actor_critic import BoundDenseNetworks, BoundSampledPolicy, SampledPolicy
from reactor_sb3.acting.policy import BoundPolicy, Bounds, Rollout, Turn
from reactor_sb3.policies import DenseNetworks, noisy_networks_of
from reactor_torch import DenseForward, Layer

__all__ = ["NoisyPolicy", "noisy_policy_of"]

Array = npt.NDArray[Any]


def noisy_policy_of(policy: Any, gamma: float, gae_lambda: float, sde_sample_freq: int) -> NoisyPolicy | None:
    """The structure of such a policy; other arguments are attributes of :class:`~reactor_sb3.acting.actor_critic.SampledPolicy`."""
    networks = noisy_networks_of(policy)
    if isinstance(networks, str):
        return None
    space = policy.action_space
    bounds = Bounds(space.low, space.high, policy.squash_output)
    return NoisyPolicy(networks, Gaussian(space.shape), space, bounds, gamma, gae_lambda, sde_sample_freq)


@dataclass(frozen=True)
class NoisyPolicy(SampledPolicy):
    """The :class:`~reactor_sb3.acting.policy.Policy` of dense layers with gSDE."""

    def bind(self, weights: Array, rollout: Rollout) -> BoundPolicy:
        return BoundNoisyPolicy(self, weights, rollout)


class BoundNoisyPolicy(BoundSampledPolicy):
    """The :class:`~reactor_sb3.acting.policy.BoundPolicy` of one."""

    def __init__(self, policy: NoisyPolicy, weights: Array, rollout: Rollout) -> None:
        networks = policy.networks
        assert isinstance(networks, DenseNetworks)
        super().__init__(policy, BoundDenseNetworks(networks, weights, rollout), weights, rollout)
        *below, last = networks.actor.layers
        self.seen = DenseForward(tuple(below), networks.actor.features, networks.actor.one_hot).bind(weights, rollout.observations)
        self.mean = DenseForward((last,), last.inputs, one_hot=False).bind(weights, {"": self.seen.outputs[None]})
        self.last = last

    def begin(self, turn: Turn) -> Callable[[int], Array]:
        rollout, bounds, every, random = self.rollout, self.policy.bounds, self.policy.sde_sample_freq, turn.random
        assert bounds is not None
        actions, drawn = rollout["actions"], rollout["policy_actions"]
        steps, envs, shape = rollout.steps, rollout.envs, drawn.shape[2:]
        std, of_mean, of_body = np.exp(self.weights["log_std"]), self.mean, self.seen
        means = self.means = np.empty((steps, envs, self.last.outputs), np.float32)
        seen = self.all_seen = np.empty((steps, envs, self.last.inputs), np.float32)
        matrices = np.empty((envs, self.last.inputs, self.last.outputs), np.float32)

        def act(step: int) -> Array:
            if step == 0 or (every > 0 and step % every == 0):
                random.standard_normal(dtype=np.float32, out=matrices)
                np.multiply(matrices, std, out=matrices)
            seen[step] = of_body(step)
            means[step] = of_mean(0)
            noise = (seen[step, :, :, None] * matrices).sum(1)  # products of matrices have other last bits elsewhere
            drawn[step] = (means[step] + noise).reshape(envs, *shape)
            actions[step] = chosen = bounds(drawn[step])
            return chosen

        return act

    def log_probs(self) -> Array:
        _, _, inputs, outputs, *_ = self.last
        weights = np.zeros((), [("spread.weight", np.float32, (outputs, inputs))])
        weights["spread.weight"] = np.exp(2 * self.weights["log_std"]).T  # variances of a matrix's elements
        spread = DenseForward((Layer("linear", "spread", inputs, outputs),), inputs, one_hot=False)
        variances = spread.bind(weights, {"": np.square(self.all_seen).reshape(1, -1, inputs)})(0).reshape(self.means.shape)
        distances = self.rollout["policy_actions"].reshape(self.means.shape) - self.means
        return normal_log_probs(distances, np.float32(0.5) * np.log(variances + np.float32(1e-6)))
