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
from trainers import INLINE, SPACES, Toy

from reactor_sb3 import SyncDQN, SyncSAC
from reactor_sb3.acting.behaviours import Rollout, Turn
from reactor_sb3.acting.player import Player
from reactor_sb3.environments.seeded_envs import SeededEnvs
from reactor_sb3.streams import Purpose
from reactor_torch import parameter_record, write_parameters

BOX = spaces.Box(np.array([-3, 0], np.float32), np.array([1, 8], np.float32))


def weights_of(module: Any) -> Any:
    weights = np.zeros((), parameter_record(module.state_dict()))
    write_parameters(weights, module.state_dict())
    return weights


def test_a_round_that_explores_draws_from_the_actors_stream_alone() -> None:
    """Twice the same, whatever else is drawn meanwhile."""
    kind, space = SPACES["box"]
    model = SyncDQN(kind, partial(Toy, space, spaces.Discrete(3)), n_actors=2, seed=0, **INLINE)
    module, behaviour = model.acting()
    seen, found = {"": np.random.default_rng(0).random((30, 2, *(space.shape or ())), np.float32)}, []
    for _ in range(2):
        record = {field.name: np.zeros((30, 2, *field.shape), field.dtype) for field in behaviour.fields}
        record |= {"rewards": np.ones((30, 2), np.float32), "dones": np.zeros((30, 2), np.bool_)}
        policy = pickle.loads(pickle.dumps(behaviour))
        turn = Turn(np.random.default_rng(7), np.full(30, 0.5, np.float32), policy.memory(range(2)), index=1, actors=2)
        bound = policy.bind(weights_of(module), Rollout(record | {"timeouts": record["dones"]}, seen, seen))
        act = bound.begin(turn)
        for step in range(30):
            torch.rand(1), np.random.random()
            np.testing.assert_array_equal(act(step), record["actions"][step])
        bound.end(turn)
        found.append(record["actions"].copy())
    assert np.array_equal(*found) and set(found[0].flat) == {0, 1, 2}


def test_noise_is_of_the_environments_that_an_actor_has() -> None:
    noise = NormalActionNoise(np.zeros(2), np.ones(2))
    model = SyncSAC("MlpPolicy", partial(Toy, SPACES["box"][1], BOX), n_actors=2, action_noise=noise, seed=0, **INLINE)
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
    weights = weights_of(module)
    player = Player(config, Purpose.EVALUATION, weights.dtype)
    try:
        player.begin(0, weights)
        player.play(6, 1)
        with player.envs.rows.opened(changes=False) as (env,):
            assert env.unwrapped.taken == [0, 1, 0, 1, 0, 1]  # type: ignore[attr-defined]
        assert noted[0].ravel().tolist() == [0, 1, 0, 1, 0, 1]
    finally:
        player.close()
