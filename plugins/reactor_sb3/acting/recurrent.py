"""How actors act with sb3-contrib's LSTM policies: states are an actor's memory, and a round has those before its sequences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from sb3_contrib.common.recurrent.type_aliases import RNNStates

from reactor_sb3.acting.actor_critic import SampledPolicy, finish
from reactor_sb3.acting.forwards import torch_forward
from reactor_sb3.acting.policy import Bounds, Field, Rollout, Turn
from reactor_torch import TorchForward, torch_state, torch_stream

__all__ = ["RecurrentPolicy", "unpacked"]

Array = npt.NDArray[Any]


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
        forward = torch_forward(policy)
        return cls(forward, space, bounds, gamma, gae_lambda, sde_sample_freq, lstm.num_layers, size, sequence, steps)

    @property
    def fields(self) -> tuple[Field, ...]:
        sampled = SampledPolicy(self.networks, None, self.action_space, self.bounds, self.gamma, self.gae_lambda, -1)
        states = Field("states", np.dtype(np.float32), (self.steps // self.sequence, self.size), per_step=False)
        return (*sampled.fields, Field("starts", np.dtype(np.bool_), ()), states)

    def memory(self, envs: range) -> dict[str, Array]:
        """States, and whether an episode begins."""
        return {"states": np.zeros((len(envs), self.size), np.float32), "starts": np.ones(len(envs), np.bool_)}

    def bind(self, weights: Array, rollout: Rollout) -> BoundRecurrentPolicy:
        return BoundRecurrentPolicy(self, weights, rollout)


class BoundRecurrentPolicy:
    """The :class:`~reactor_sb3.acting.policy.BoundPolicy` of a policy with a memory."""

    def __init__(self, policy: RecurrentPolicy, weights: Array, rollout: Rollout) -> None:
        self.policy, self.rollout, forward = policy, rollout, policy.networks
        self.module, self.seen, self.copies = forward.with_weights(weights), forward.steps(rollout.observations), forward.copies
        self.values = np.empty((rollout.steps, rollout.envs), np.float32)
        self.states = np.zeros((rollout.steps + 1, rollout.envs, policy.size), np.float32)

    def begin(self, turn: Turn) -> Callable[[int], Array]:
        stream = torch_state(int(turn.random.integers(2**63)))
        policy, rollout, module, states = self.policy, self.rollout, self.module, self.states
        bounds, every, actions, began = policy.bounds, policy.sde_sample_freq, rollout["actions"], rollout["starts"]
        drawn = actions if bounds is None else rollout["policy_actions"]
        states[0] = turn.memory["states"]

        def act(step: int) -> Array:
            began[step] = rollout["dones"][step - 1] if step else turn.memory["starts"]
            if step % policy.sequence == 0:
                rollout["states"][:, step // policy.sequence] = states[step]
            with torch_stream(stream), torch.inference_mode():
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
