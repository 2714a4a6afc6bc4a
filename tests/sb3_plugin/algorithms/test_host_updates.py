"""Updates that begin from sb3-contrib's state end with sb3-contrib's weights."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from contrib_trainers import CONTRIB, ToyOf, make
from every_other import in_turn
from gymnasium import spaces
from trainers import CONTINUOUS, SPACES, same_draws

from reactor_sb3.algorithms.sync_recurrent_ppo import unpacked
from reactor_sb3.streams import Purpose, stream


def close(ours: Any, theirs: Any) -> None:
    """Weights and buffers are the same but for rounding."""
    state = theirs.policy.state_dict()
    for name, one in ours.policy.state_dict().items():
        torch.testing.assert_close(one, state[name], rtol=1e-5, atol=1e-5, msg=lambda said, name=name: f"{name}: {said}")


OFF_POLICY = sorted(name for name, row in CONTRIB.items() if "gradient_steps" in row.settings)
CASES: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in OFF_POLICY]
CASES += [(name, {"n_steps": 3, "ent_coef": 0.1}) for name in CONTRIB if name in CONTINUOUS]
CASES += [(name, {"use_sde": True, "sde_sample_freq": 3}) for name in CONTRIB if name in CONTINUOUS]
CASES += [("tqc", {"use_sde": True, "env": "dict"})]
CASES += [("crossq", {"policy_kwargs": {"net_arch": [32, 16], "renorm_warmup_steps": warmup}}) for warmup in (3, 15)]
CASES += [("tqc", {"env": "image"}), ("tqc", {"env": "dict"}), ("tqc", {"target_update_interval": 2})]
CASES += [("qrdqn", {"n_steps": 3, "max_grad_norm": 0.1}), ("qrdqn", {"env": "image"}), ("qrdqn", {"env": "dict"})]


@pytest.mark.filterwarnings("ignore:`n_steps:UserWarning")  # SB3's, about loading
@in_turn("algorithm, changed", CASES, ids=str, kept=4)
def test_off_policy(algorithm: str, changed: dict[str, Any], tmp_path: Path) -> None:
    kind = changed.get("env")
    given = {**changed, "env": ToyOf(algorithm, SPACES[kind][1])} if kind else changed
    policy = CONTRIB[algorithm].policies[kind] if kind else None
    with make(algorithm, policy=policy, learning_rate=1e-3, **given) as ours:
        ours.learn(320)
        ours.save(tmp_path / "model")
        theirs = CONTRIB[algorithm].host_cls.load(tmp_path / "model", device="cpu")
        theirs.replay_buffer, theirs._logger = ours.replay_buffer, ours.logger
        close(ours, theirs)
        before = ours.fingerprint()
        for train in (ours.train, theirs.train):
            torch.manual_seed(3)
            with same_draws(ours, stream(7, Purpose.REPLAY)):
                train(7, 16)
        assert ours.fingerprint() != before
        close(ours, theirs)
        assert ours._n_updates == theirs._n_updates


@in_turn("actions", [spaces.Discrete(7), spaces.MultiDiscrete([3, 4]), spaces.MultiBinary(3)], ids=str, kept=2)
@pytest.mark.parametrize("kind", ["box", "dict"])
def test_maskable_ppo(actions: Any, kind: str, tmp_path: Path) -> None:
    policy, space = SPACES[kind]
    env = ToyOf("maskable_ppo", space, actions)
    with make("maskable_ppo", env, policy, batch_size=64, n_epochs=3, ent_coef=0.01, clip_range_vf=0.2, n_steps=16) as ours:
        ours.learn(128)
        ours.save(tmp_path / "model")
        theirs = CONTRIB["maskable_ppo"].host_cls.load(tmp_path / "model", device="cpu")
        theirs._logger, theirs.rollout_buffer = ours.logger, deepcopy(ours.rollout_buffer)
        assert not theirs.rollout_buffer.action_masks.all()
        before = ours.fingerprint()
        ours.train()
        theirs.train()
        assert ours.fingerprint() != before
        close(ours, theirs)
        # with the probabilities that sb3-contrib has for them
        buffer = ours.rollout_buffer
        assert np.isfinite(buffer.log_probs).all() and (buffer.log_probs > -50).all()


@pytest.mark.slow
@in_turn("kind, network", [("box", {}), ("dict", {"enable_critic_lstm": False}), ("box", {"n_lstm_layers": 2})], ids=str, kept=1)
def test_recurrent_ppo(kind: str, network: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """sb3-contrib cuts sequences at a random place: here at none."""
    row = CONTRIB["recurrent_ppo"]
    policy, env = {"box": row.policy, **row.policies}[kind], ToyOf("recurrent_ppo", SPACES[kind][1])
    given = {"batch_size": 64, "n_epochs": 3, "ent_coef": 0.01, "policy_kwargs": {**row.network, **network}}
    with make("recurrent_ppo", env, policy, **given) as ours:
        ours.learn(128)
        ours.save(tmp_path / "model")
        theirs = row.host_cls.load(tmp_path / "model", device="cpu")
        buffer, layers = theirs.rollout_buffer, theirs.policy.lstm_actor.num_layers
        for name in ("observations", "actions", "rewards", "values", "log_probs", "advantages", "returns", "episode_starts"):
            setattr(buffer, name, deepcopy(getattr(ours.rollout_buffer, name)))
        assert buffer.episode_starts[1:].any() and not buffer.episode_starts[0].all()
        (h, c), (vf_h, vf_c) = unpacked(torch.tensor(ours.session.rollouts.once("states")[:, 0]), layers)
        for name, one in (("hidden_states_pi", h), ("cell_states_pi", c), ("hidden_states_vf", vf_h), ("cell_states_vf", vf_c)):
            getattr(buffer, name)[0] = one.numpy()
        buffer.pos, buffer.full, buffer.generator_ready, theirs._logger = 16, True, False, ours.logger
        monkeypatch.setattr(np.random, "randint", lambda *given, **named: 0)
        before = ours.fingerprint()
        ours.train()
        theirs.train()
        assert ours.fingerprint() != before
        close(ours, theirs)


@pytest.mark.parametrize(("n_steps", "batch_size"), [(16, 24), (24, 16)])
def test_recurrent_ppo_has_whole_sequences(n_steps: int, batch_size: int) -> None:
    with pytest.raises(ValueError, match=f"n_steps={n_steps} and batch_size={batch_size}: minibatches are whole sequences"):
        make("recurrent_ppo", n_steps=n_steps, batch_size=batch_size)


def test_states_are_those_of_predictions() -> None:
    """Those that an actor has after some steps, and those of sb3-contrib's own predictions from its observations."""
    with make("recurrent_ppo", n_actors=1, n_steps=16, batch_size=8, n_epochs=1, learning_rate=0.0) as model:
        model.learn(32)
        states, buffer = torch.tensor(model.session.rollouts.once("states")), model.rollout_buffer
        layers = model.policy.lstm_actor.num_layers
        state: Any = tuple(one.numpy() for one in unpacked(states[:, 0], layers).pi)
        for step in range(8):
            _, state = model.predict(buffer.observations[step], state, buffer.episode_starts[step])
        for found, expected in zip(state, unpacked(states[:, 1], layers).pi, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        # and values, of the critic's own states
        seen, began = (torch.tensor(one.swapaxes(0, 1)).flatten(0, 1) for one in (buffer.observations, buffer.episode_starts))
        with torch.no_grad():
            values = model.policy.predict_values(seen, unpacked(states[:, 0], layers).vf, began.flatten())
        np.testing.assert_allclose(buffer.values.T.flatten(), values.flatten(), rtol=1e-5, atol=1e-5)
