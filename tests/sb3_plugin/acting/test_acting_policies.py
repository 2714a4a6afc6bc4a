"""What actors note of a round, and what an evaluator does with a policy. What policies do is in ``tests/contracts``."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.noise import NormalActionNoise
from torch import nn
from trainers import INLINE, SPACES, Toy

from reactor_sb3 import PQN, SyncDQN, SyncPPO, SyncSAC, SyncTD3
from reactor_sb3.acting.behaviours import Behaviour, Rollout, Turn
from reactor_sb3.acting.player import Player
from reactor_sb3.environments.seeded_envs import SeededEnvs
from reactor_sb3.streams import Purpose
from reactor_torch import parameter_record, write_parameters

STEPS, ENVS = 3, 2
BOX = spaces.Box(np.array([-3, 0], np.float32), np.array([1, 8], np.float32))
ALGORITHMS: dict[str, tuple[Any, spaces.Space[Any]]] = {
    "dqn": (SyncDQN, spaces.Discrete(3)), "pqn": (PQN, spaces.Discrete(3)), "ppo": (SyncPPO, spaces.Discrete(3)),
    "ppo of numbers": (SyncPPO, BOX), "ppo with noise": (partial(SyncPPO, use_sde=True), BOX),
    "sac": (SyncSAC, BOX), "td3": (SyncTD3, BOX),
}  # fmt: skip
NETWORKS: dict[str, dict[str, Any]] = {"dense": {}, "torch": {"activation_fn": nn.ELU}}


def acting(algorithm: str, network: str, observed: str = "box") -> tuple[Any, Behaviour, Any, dict[str, Any]]:
    """A model, its policy as a worker gets it, a record of its weights, and observations by key."""
    cls, actions = ALGORITHMS[algorithm]
    kind, space = SPACES[observed]
    model = cls(kind, partial(Toy, space, actions), n_actors=2, seed=0, policy_kwargs=NETWORKS[network], **INLINE)
    module, policy = model.acting()
    state = module.state_dict()
    weights = np.zeros((), parameter_record(state))
    write_parameters(weights, state)
    weights.flags.writeable = False
    space.seed(1)
    parts = dict(space.spaces) if isinstance(space, spaces.Dict) else {"": space}
    rows = {key: np.array([[one.sample() for _ in range(ENVS)] for _ in range(STEPS)], one.dtype) for key, one in parts.items()}
    return model, pickle.loads(pickle.dumps(policy)), weights, rows


def rollout_of(policy: Behaviour, rows: dict[str, Any]) -> Rollout:
    record = {field.name: np.zeros((STEPS, ENVS, *field.shape), field.dtype) for field in policy.fields}
    for name, dtype in (("rewards", np.float32), ("dones", np.bool_), ("timeouts", np.bool_)):
        record[name] = np.ones((STEPS, ENVS)).astype(dtype) if name == "rewards" else np.zeros((STEPS, ENVS), dtype)
    return Rollout(record, rows, rows)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_round_fills_its_fields_from_the_actors_stream_alone(algorithm: str, network: str) -> None:
    """Twice the same, whatever else is drawn meanwhile; and actions are in the environments' space."""
    found = []
    for _ in range(2):
        model, policy, weights, rows = acting(algorithm, network)
        rollout = rollout_of(policy, rows)
        bound = policy.bind(weights, rollout)
        turn = Turn(np.random.default_rng(7), np.array([1, 0.5, 0], np.float32), policy.memory(range(ENVS)), index=1, actors=2)
        act = bound.begin(turn)
        for step in range(STEPS):
            torch.rand(1), np.random.random()
            actions = act(step)
            assert all(map(model.action_space.contains, actions)), step
            np.testing.assert_array_equal(actions, rollout["actions"][step])
        bound.end(turn)
        found.append({name: part.tobytes() for name, part in rollout.items()})
    assert found[0] == found[1]
    assert all(any(part) for name, part in found[0].items() if name in ("values", "advantages", "log_probs", "policy_actions"))


def test_noise_is_of_the_environments_that_an_actor_has() -> None:
    noise = NormalActionNoise(np.zeros(2), np.ones(2))
    model = SyncTD3("MlpPolicy", partial(Toy, SPACES["box"][1], BOX), n_actors=2, action_noise=noise, seed=0, **INLINE)
    _, policy = model.acting()
    memory = policy.memory(range(4, 7))
    assert len(memory.noises) == 3 and len({id(one) for one in memory.noises}) == 3 and noise not in memory.noises
    assert pickle.loads(pickle.dumps(memory)) is not None


class Alternating(gymnasium.Env[Any, Any]):
    """Observations of changing sign."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.taken: list[int] = []
        return np.ones(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.taken.append(int(action))
        return np.full(1, (-1) ** len(self.taken), np.float32), 0.0, False, False, {}


def test_a_player_notes_the_actions_that_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy may give the same array at every step; an environment is brought back by the actions that were noted."""
    noted: list[Any] = []
    monkeypatch.setattr(SeededEnvs, "end_round", lambda self, actions: noted.append(actions.copy()))
    model = SyncDQN("MlpPolicy", Alternating, evaluate_every=1, n_actors=1, policy_kwargs={"net_arch": []}, **INLINE)
    config, (module, _) = model.program_config().evaluation, model.acting()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(torch.zeros(2) if name.endswith("bias") else torch.tensor([[1.0], [-1.0]]))
    weights = np.zeros((), parameter_record(module.state_dict()))
    write_parameters(weights, module.state_dict())
    player = Player(config, Purpose.EVALUATION, weights.dtype)
    try:
        player.begin(0, weights)
        player.play(6, 1)
        assert player.look(lambda env: env.unwrapped.taken) == [0, 1, 0, 1, 0, 1]  # type: ignore[attr-defined]
        assert noted[0].ravel().tolist() == [0, 1, 0, 1, 0, 1]
    finally:
        player.close()
