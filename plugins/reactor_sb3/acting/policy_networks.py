"""The networks of an actor-critic policy: without torch where they are dense layers, by torch where they are not.

A policy of dense layers on flat observations costs a few hundred microseconds a step through torch, nearly all of it dispatch. Here
its two networks are evaluated by what :mod:`reactor_torch` has for that; the critic's once a round, for nobody acts on values.
"""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.torch_layers import FlattenExtractor, MlpExtractor
from torch import nn

from reactor_sb3.acting.networks import features_of
from reactor_sb3.acting.plain_policy import BoundNetworks, Observed
from reactor_torch import Layered, layers_of

__all__ = ["DenseNetworks", "TorchNetworks", "TorchStructure", "copied", "dense_networks_of"]

Array = npt.NDArray[Any]
P = TypeVar("P", bound=nn.Module)


@dataclass(frozen=True)
class DenseNetworks:
    """Networks of dense layers, each with flat observations.

    Attributes:
        actor: The one that acts.
        critic: The other one.
    """

    actor: Layered
    critic: Layered

    def bind(self, parameters: Array, observations: Observed) -> BoundNetworks:
        """See :class:`Networks`."""
        return DenseEvaluation(self, parameters, observations[""])


class DenseEvaluation:
    """Dense networks with their weights."""

    def __init__(self, networks: DenseNetworks, parameters: Array, observations: Array) -> None:
        self.parameters, self.critic = parameters, networks.critic
        self.shape = observations.shape[:2]
        self.act, self.scores = networks.actor.evaluated(parameters, observations)
        self.judge, self.worth = self.critic.evaluated(parameters, observations.reshape(1, -1, *observations.shape[2:]))

    def outputs(self, step: int) -> Array:
        """See :class:`BoundNetworks`."""
        self.act(step)
        return self.scores

    def values(self) -> Array:
        """See :class:`BoundNetworks`."""
        self.judge(0)
        return self.worth.reshape(self.shape)

    def values_of(self, observations: Observed) -> Array:
        """See :class:`BoundNetworks`."""
        judge, worth = self.critic.evaluated(self.parameters, np.ascontiguousarray(observations[""])[None])
        judge(0)
        return worth[:, 0]


def dense_networks_of(policy: ActorCriticPolicy) -> DenseNetworks | None:
    """The networks of a policy, if there is nothing but what :class:`~reactor_torch.Layered` evaluates."""
    extractors = {type(policy.pi_features_extractor), type(policy.vf_features_extractor)}
    body = policy.mlp_extractor
    flat = features_of(policy.observation_space, normalized=policy.normalize_images)
    if extractors != {FlattenExtractor} or type(body) is not MlpExtractor or flat is None:
        return None
    features, one_hot = flat
    networks = []
    for name, last in (("policy_net", "action_net"), ("value_net", "value_net")):
        modules = [(f"mlp_extractor.{name}.{number}", module) for number, module in enumerate(getattr(body, name))]
        layers = layers_of([*modules, (last, getattr(policy, last))], features)
        if layers is None or not Layered.knows(layers):
            return None
        networks.append(Layered(layers, features, one_hot))
    return DenseNetworks(*networks)


# ---------------------------------------------------------------------- any networks, by torch


def copied(policy: P, memo: dict[int, Any]) -> P:
    """A deep copy, without what distributions remember of their last actions, which torch does not copy.

    Args:
        policy: It.
        memo: What is to be found in the copy, by the number of what it stands for.
    """
    forgetful = {}
    for part in policy.modules():
        known = getattr(part, "action_dist", None)
        if known is not None:
            forgetful[id(known)] = distribution = copy.copy(known)
            vars(distribution).clear()
            vars(distribution).update((name, value) for name, value in vars(known).items() if not _is_computed(value))
    return copy.deepcopy(policy, {**memo, **forgetful})


class TorchStructure:
    """A policy without its weights, its optimisers, and what its distributions remember.

    Args:
        policy: It.
        keyed: Whether it is given a dict of observations.
    """

    def __init__(self, policy: BasePolicy, keyed: bool) -> None:
        optimizers = {id(part.optimizer): None for part in policy.modules() if hasattr(part, "optimizer")}
        self.policy: Any = copied(policy, optimizers).to("meta")
        self.policy.train(False)
        self.keyed = keyed

    def with_weights(self, parameters: Array) -> Any:
        """The policy with its weights in a record of parameters."""
        policy = copy.deepcopy(self.policy)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # and nobody will write to it
            known = set(parameters.dtype.names or ())
            state = {name: torch.from_numpy(parameters[name]) for name in policy.state_dict() if name in known}
        policy.load_state_dict(state, strict=False, assign=True)  # modules that are shared have several names
        policy.requires_grad_(False)
        return policy

    def tensors(self, rows: Observed) -> Any:
        """Observations as the policy is given them."""
        tensors = {key: torch.from_numpy(part) for key, part in rows.items()}
        return tensors if self.keyed else tensors[""]

    def copies(self, rows: Observed) -> Any:
        """The same in memory of torch's, which always begins at the same place of a cache line, as a port's slot does."""
        tensors = {key: torch.tensor(part) for key, part in rows.items()}
        return tensors if self.keyed else tensors[""]

    def of_step(self, observations: Any, step: int) -> Any:
        """Those of one step, of such as :meth:`tensors` gives of a whole round."""
        return {key: rows[step] for key, rows in observations.items()} if self.keyed else observations[step]


def _is_computed(value: Any) -> bool:
    parts = value if isinstance(value, list) else [value]
    return any(isinstance(part, torch.Tensor | torch.distributions.Distribution) for part in parts)


@dataclass(frozen=True)
class TorchNetworks:
    """Any networks.

    Attributes:
        structure: The policy whose they are.
    """

    structure: TorchStructure

    def bind(self, parameters: Array, observations: Observed) -> BoundNetworks:
        """See :class:`Networks`."""
        return TorchEvaluation(self.structure, parameters, observations)


class TorchEvaluation:
    """Networks with their weights. They may have layers in common, so that values come with the outputs."""

    def __init__(self, structure: TorchStructure, parameters: Array, observations: Observed) -> None:
        self.structure, self.policy = structure, structure.with_weights(parameters)
        self.observations = structure.tensors(observations)
        self.worth = np.empty(next(iter(observations.values())).shape[:2], np.float32)

    def outputs(self, step: int) -> Array:
        """See :class:`BoundNetworks`."""
        policy = self.policy
        with torch.inference_mode():
            features = policy.extract_features(self.structure.of_step(self.observations, step))
            if policy.share_features_extractor:
                of_actor, of_critic = policy.mlp_extractor(features)
            else:
                of_actor, of_critic = (
                    policy.mlp_extractor.forward_actor(features[0]),
                    policy.mlp_extractor.forward_critic(features[1]),
                )
            self.worth[step] = policy.value_net(of_critic).flatten().numpy()
            return policy.action_net(of_actor).numpy()  # type: ignore[no-any-return]

    def values(self) -> Array:
        """See :class:`BoundNetworks`."""
        return self.worth

    def values_of(self, observations: Observed) -> Array:
        """See :class:`BoundNetworks`."""
        with torch.inference_mode():
            return self.policy.predict_values(self.structure.copies(observations)).flatten().numpy()  # type: ignore[no-any-return]
