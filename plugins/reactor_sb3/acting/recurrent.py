"""How actors act with sb3-contrib's LSTM policies: states are an actor's memory, and a round has those before its sequences.

Most policies are plain: an LSTM of one layer for the actor, perhaps one for the critic, and dense layers on both. They are
evaluated without torch, through which a step costs a millisecond, nearly all of it dispatch; and the critic's once a round. Others
draw their actions themselves, from torch's generator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from sb3_contrib.common.recurrent.type_aliases import RNNStates

from reactor_sb3.acting.action_distributions import ActionDistribution, distribution_of
from reactor_sb3.acting.actor_critic import SampledPolicy, finish
from reactor_sb3.acting.forwards import torch_forward
from reactor_sb3.acting.policy import Bounds, Field, Rollout, Turn
from reactor_sb3.policies import DenseNetworks, plain_networks_of
from reactor_torch import Lstm, LstmWeights, TorchForward

__all__ = ["RecurrentPolicy", "unpacked"]

Array = npt.NDArray[Any]
_PARTS = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")


def unpacked(states: torch.Tensor, layers: int) -> RNNStates:
    """Hidden and cell states of actor and critic, ``(layers, rows, hidden)`` each, of ``(rows, 4 * layers * hidden)``."""
    h, c, vf_h, vf_c = states.view(len(states), 4, layers, -1).permute(1, 2, 0, 3).contiguous()
    return RNNStates((h, c), (vf_h, vf_c))


def _packed(states: RNNStates) -> Array:
    packed: Array = torch.stack([*states.pi, *states.vf]).permute(2, 0, 1, 3).flatten(1).numpy()
    return packed


@dataclass(frozen=True)
class RecurrentPolicy:
    """The :class:`~reactor_sb3.acting.policy.Policy` of an actor and a critic with a memory.

    Attributes:
        networks: Structure of the policy.
        plain: Dense layers behind its LSTMs, and the distribution of its actions, for a plain one.
        action_space: Of the environments.
        bounds: Of actions of a ``Box``.
        gamma: Discount.
        gae_lambda: Weight of longer returns.
        sde_sample_freq: Steps between two draws of state-dependent noise, -1 for one a round.
        layers: Of each LSTM.
        size: Numbers of all states of an environment.
        sequence: Steps of a sequence; a round has whole ones.
        steps: Of a round.
    """

    networks: TorchForward
    plain: tuple[DenseNetworks, ActionDistribution] | None
    action_space: spaces.Space[Any]
    bounds: Bounds | None
    gamma: float
    gae_lambda: float
    sde_sample_freq: int
    layers: int
    size: int
    sequence: int
    steps: int

    @classmethod
    def of(cls, policy: Any, gamma: float, gae_lambda: float, sde_sample_freq: int, sequence: int, steps: int) -> RecurrentPolicy:
        """The structure of a policy of sb3-contrib's; the other arguments are attributes."""
        space, lstm = policy.action_space, policy.lstm_actor
        bounds = Bounds(space.low, space.high, policy.squash_output) if isinstance(space, spaces.Box) else None
        size = 4 * lstm.num_layers * lstm.hidden_size
        networks = plain_networks_of(policy) if Lstm.is_compiled() else "there is no extension"
        why, plain = (networks, None) if isinstance(networks, str) else ("", (networks, distribution_of(space)))
        numbers = gamma, gae_lambda, sde_sample_freq, lstm.num_layers, size, sequence, steps
        return cls(torch_forward(policy, why), plain, space, bounds, *numbers)

    @property
    def fields(self) -> tuple[Field, ...]:
        sampled = SampledPolicy(self.networks, None, self.action_space, self.bounds, self.gamma, self.gae_lambda, -1)
        states = Field("states", np.dtype(np.float32), (self.steps // self.sequence, self.size), per_step=False)
        return (*sampled.fields, Field("starts", np.dtype(np.bool_), ()), states)

    @property
    def draws(self) -> bool:
        return self.plain is None or self.networks.draws

    def memory(self, envs: range) -> dict[str, Array]:
        """States, and whether an episode begins."""
        return {"states": np.zeros((len(envs), self.size), np.float32), "starts": np.ones(len(envs), np.bool_)}

    def bind(self, weights: Array, rollout: Rollout) -> BoundRecurrentPolicy:
        if self.plain is not None:
            return BoundPlainPolicy(self, *self.plain, weights, rollout)
        return BoundRecurrentPolicy(self, weights, rollout)


class BoundRecurrentPolicy:
    """The :class:`~reactor_sb3.acting.policy.BoundPolicy` of a policy with a memory."""

    def __init__(self, policy: RecurrentPolicy, weights: Array, rollout: Rollout) -> None:
        self.policy, self.rollout, self.weights, forward = policy, rollout, weights, policy.networks
        self.seen, self.copies = forward.steps(rollout.observations), forward.copies
        self.values = np.empty((rollout.steps, rollout.envs), np.float32)
        self.states = np.zeros((rollout.steps + 1, rollout.envs, policy.size), np.float32)

    @cached_property
    def module(self) -> Any:
        """The policy in torch, which takes milliseconds to make."""
        return self.policy.networks.with_weights(self.weights)

    def begin(self, turn: Turn) -> Callable[[int], Array]:
        policy, rollout, module, states = self.policy, self.rollout, self.module, self.states
        bounds, every, actions, began = policy.bounds, policy.sde_sample_freq, rollout["actions"], rollout["starts"]
        drawn = actions if bounds is None else rollout["policy_actions"]
        states[0] = turn.memory["states"]

        def act(step: int) -> Array:
            began[step] = rollout["dones"][step - 1] if step else turn.memory["starts"]
            if step % policy.sequence == 0:
                rollout["states"][:, step // policy.sequence] = states[step]
            with torch.inference_mode():
                if module.use_sde and (step == 0 or (every > 0 and step % every == 0)):
                    module.reset_noise(rollout.envs)
                before = unpacked(torch.from_numpy(states[step]), policy.layers)
                chosen, values, log_probs, after = module(self.seen(step), before, torch.from_numpy(began[step].astype(np.float32)))
            self.values[step], rollout["log_probs"][step] = values.flatten().numpy(), log_probs.numpy()
            states[step + 1], drawn[step] = _packed(after), chosen.numpy()
            if bounds is not None:
                actions[step] = bounds(drawn[step])
            return actions[step]  # type: ignore[no-any-return]

        return act

    def end(self, turn: Turn) -> None:
        rollout, policy = self.rollout, self.policy
        dones = rollout["dones"]
        turn.memory["states"][...], turn.memory["starts"][...] = self.states[-1], dones[-1]
        others = rollout["timeouts"].copy()
        others[-1] |= ~dones[-1]

        def values_of(observations: Mapping[str, Array]) -> Array:  # of what was observed after these steps
            states = unpacked(torch.from_numpy(self.states[1:][others]), policy.layers).vf
            with torch.inference_mode():
                values = self.module.predict_values(self.copies(observations), states, torch.zeros(int(others.sum())))
            return values.flatten().numpy()  # type: ignore[no-any-return]

        finish(rollout, self.values, values_of, policy.gamma, policy.gae_lambda)

    def greedy(self, step: int, memory: Any) -> Array:
        policy, states, starts = self.policy, memory["states"], memory["starts"]
        with torch.inference_mode():
            before = unpacked(torch.from_numpy(states), policy.layers)
            began = torch.from_numpy(starts.astype(np.float32))
            chosen, after = self.module._predict(self.seen(step), before.pi, began, deterministic=True)
            states[...] = _packed(RNNStates(after, before.vf))
        starts[...] = False
        actions: Array = chosen.numpy().reshape(-1, *(policy.action_space.shape or ()))
        return actions if policy.bounds is None else policy.bounds(actions)


class BoundPlainPolicy(BoundRecurrentPolicy):
    """Of a plain policy: actions are drawn without torch. Greedy ones are torch's."""

    def __init__(
        self, policy: RecurrentPolicy, networks: DenseNetworks, distribution: ActionDistribution, weights: Array, rollout: Rollout
    ) -> None:
        super().__init__(policy, weights, rollout)
        self.distribution, self.critic = distribution, networks.critic
        steps, envs = rollout.steps, rollout.envs
        self.observed = rollout.observations[""].reshape(steps, envs, -1)
        self.inputs = np.zeros(self.observed.shape, np.float32)
        self.starts = np.zeros((steps, envs), np.float32)
        self.of_actor = _Memory(weights, "lstm_actor", steps, envs)
        self.of_critic = _Memory(weights, "lstm_critic", steps, envs) if "lstm_critic.weight_hh_l0" in _names(weights) else None
        self.latents = np.zeros((1, envs, self.of_actor.lstm.hidden), np.float32)
        self.outputs = networks.actor.bind(weights, {"": self.latents})

    def begin(self, turn: Turn) -> Callable[[int], Array]:
        rollout, bounds, choose = self.rollout, self.policy.bounds, self.distribution.choose
        actions, began, noise = (
            rollout["actions"],
            rollout["starts"],
            self.distribution.noise(turn.random, rollout.steps, rollout.envs, self.weights),
        )
        drawn = self.drawn = actions if bounds is None else rollout["policy_actions"]
        scores = self.scores = np.empty_like(noise)
        memory, inputs, starts, latents, outputs = self.of_actor, self.inputs, self.starts, self.latents, self.outputs
        h, c, *of_critic = _apart(turn.memory["states"])
        memory.begin(h, c)
        if self.of_critic is not None:
            self.of_critic.begin(*of_critic)

        def act(step: int) -> Array:
            began[step] = rollout["dones"][step - 1] if step else turn.memory["starts"]
            inputs[step], starts[step] = self.observed[step], began[step]
            latents[...] = memory.go(inputs[step : step + 1], starts[step : step + 1], step)
            of_step = scores[step] = outputs(0)
            drawn[step] = chosen = choose(of_step, noise[step])
            if bounds is not None:
                actions[step] = chosen = bounds(chosen)
            return chosen

        return act

    def end(self, turn: Turn) -> None:
        rollout, policy, steps = self.rollout, self.policy, self.rollout.steps
        memories = self.of_actor, self.of_critic or self.of_actor
        latents = self.inputs if self.of_critic is None else self.of_critic.go(self.inputs, self.starts, 0)
        states = np.concatenate([one for memory in memories for one in (memory.h, memory.c)], 2)
        rollout["states"][...] = states[: -1 : policy.sequence].swapaxes(0, 1)
        turn.memory["states"][...], turn.memory["starts"][...] = states[-1], rollout["dones"][-1]
        rollout["log_probs"][...] = self.distribution.log_probs(self.scores, self.drawn, self.weights)
        others = rollout["timeouts"].copy()
        others[-1] |= ~rollout["dones"][-1]

        def values_of(observations: Mapping[str, Array]) -> Array:  # of what was observed after these steps
            seen = np.array(observations[""], np.float32).reshape(1, int(others.sum()), -1)
            if (memory := self.of_critic) is not None:
                following = memory.h[1:][others], memory.c[1:][others]
                seen, _ = memory.lstm.run(seen, np.zeros(seen.shape[:2], np.float32), *following)
            return self._judged(seen)

        values = self._judged(latents).reshape(steps, -1)
        finish(rollout, values, values_of, policy.gamma, policy.gae_lambda)

    def _judged(self, latents: Array) -> Array:
        """The critic's values, ``(rows,)``, of its inputs, ``(..., n)``."""
        return self.critic.bind(self.weights, {"": latents.reshape(1, -1, latents.shape[-1])})(0)[:, 0]


class _Memory:
    """An LSTM with weights, and its states before each step of a round and after the last one, ``(steps + 1, envs, hidden)``."""

    def __init__(self, weights: Array, name: str, steps: int, envs: int) -> None:
        self.lstm = Lstm(LstmWeights(*(weights[f"{name}.{part}"] for part in _PARTS)))
        self.h, self.c = (np.zeros((steps + 1, envs, self.lstm.hidden), np.float32) for _ in range(2))

    def begin(self, h: Array, c: Array) -> None:
        self.lstm.take_weights()
        self.h[0], self.c[0] = h, c

    def go(self, inputs: Array, starts: Array, step: int) -> Array:
        """Go some steps on; returns what cells give, ``(steps, envs, hidden)``."""
        after = slice(step + 1, step + 1 + len(inputs))
        self.h[after], self.c[after] = self.lstm.run(inputs, starts, self.h[step], self.c[step])
        return self.h[after]


def _apart(states: Array) -> Array:
    """Hidden and cell states of actor and critic, ``(4, envs, hidden)``, of ``(envs, 4 * hidden)``."""
    return states.reshape(len(states), 4, -1).swapaxes(0, 1)


def _names(weights: Array) -> tuple[str, ...]:
    return weights.dtype.names or ()
