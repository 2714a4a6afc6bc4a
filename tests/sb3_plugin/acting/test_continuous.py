"""How the actors of SAC and TD3 act: what SB3's policies say of the same observations, with the same noise."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.noise import ActionNoise, NormalActionNoise, OrnsteinUhlenbeckActionNoise, VectorizedActionNoise
from stable_baselines3.sac.policies import SACPolicy
from stable_baselines3.td3.policies import TD3Policy
from torch import nn
from trainers import INLINE, PLACES, SPACES, AfterRounds, Seen, Toy

from reactor_sb3 import SyncSAC, SyncTD3
from reactor_sb3.streams import Purpose, drawing_from, stream

SKEWED = spaces.Box(np.array([-3, 0], np.float32), np.array([1, 8], np.float32))
Array = np.ndarray[Any, Any]


Reach = partial(Toy, actions=SKEWED)
"""Actions are two numbers, of different bounds."""


def new(cls: Any, policy: Any = "MlpPolicy", env: Any = Reach, **changed: Any) -> Any:
    given: dict[str, Any] = {
        "n_actors": 2, "envs_per_actor": 2, "train_freq": 8, "gradient_steps": 2, "batch_size": 16, "buffer_size": 1000,
        "learning_starts": 0, "seed": 0, "policy_kwargs": {"net_arch": [16, 16]},
    }  # fmt: skip
    return cls(policy, env, **{**given, **INLINE, **changed})


class Heads(SACPolicy):
    """Draws in a way of its own."""

    def _predict(self, observation: Any, deterministic: bool = False) -> torch.Tensor:
        return 0.5 * super()._predict(observation, deterministic)


class Doubled(TD3Policy):
    """Twice the tanh, within bounds."""

    def _predict(self, observation: Any, deterministic: bool = False) -> torch.Tensor:
        return (2 * super()._predict(observation, deterministic)).clamp(-1, 1)


def played(model: Any, steps: int = 64) -> tuple[Any, list[Any]]:
    """The policy, which does not learn, and rows of what has been seen."""
    with model:
        model.learn(steps, callback=(seen := Seen()))
    return model.policy, seen.rows


def observed(model: Any) -> Any:
    """What is in the replay buffer, in order: observations and actions ``(steps, envs, ...)``."""
    buffer, count = model.replay_buffer, model.replay_buffer.pos
    observations = buffer.observations
    if isinstance(model.observation_space, spaces.Discrete):
        observations = observations[..., 0]
    rows = {key: part[:count] for key, part in observations.items()} if isinstance(observations, dict) else observations[:count]
    return rows, buffer.actions[:count]


def of_step(rows: Any, step: int) -> Any:
    return {key: part[step] for key, part in rows.items()} if isinstance(rows, dict) else rows[step]


# ---------------------------------------------------------------------- what the policy says


@pytest.mark.parametrize("name", ["box", "discrete"])
def test_a_round_of_sac_is_what_the_policy_says_for_the_same_noise(name: str) -> None:
    policy, space = SPACES[name]
    model = new(SyncSAC, policy, partial(Reach, space), gradient_steps=0)
    assert model.acting()[1].policy.why_torch is None
    kept, _ = played(model)
    rows, actions = observed(model)
    for actor in range(2):
        random = stream(0, Purpose.EXPLORATION, actor)
        for begin in range(0, 16, 8):
            noise = torch.from_numpy(random.standard_normal((8, 2, 2), np.float32))
            for step in range(begin, begin + 8):
                mine = slice(2 * actor, 2 * actor + 2)
                tensor, _ = kept.obs_to_tensor(of_step(rows, step)[mine])
                mean, log_std, _ = kept.actor.get_action_dist_params(tensor)
                expected = torch.tanh(mean + log_std.exp() * noise[step - begin]).detach().numpy()
                np.testing.assert_allclose(actions[step, mine], expected, atol=1e-6)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("cls", [SyncSAC, SyncTD3])
def test_actions_of_another_shape_and_type(cls: Any, kind: Any) -> None:
    actions = spaces.Box(-2, 3, (2, 3), kind)
    model = new(cls, env=partial(Reach, actions=actions), gradient_steps=0, evaluate_every=1, evaluate_episodes=1)
    kept, rows = played(model)
    seen, stored = observed(model)
    assert stored.shape == (16, 4, 6) and rows[0][3].shape == (4, 2, 3) and rows[0][3].dtype == kind
    for step, row in enumerate(rows):
        np.testing.assert_allclose(kept.scale_action(row[3]).reshape(4, 6), stored[step], atol=1e-6)
        if cls is SyncTD3:
            np.testing.assert_allclose(row[3], kept.predict(seen[step])[0], atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cls", "policy", "arguments"),
    [
        (SyncSAC, "MlpPolicy", {"net_arch": []}),
        (SyncSAC, "MlpPolicy", {"net_arch": [8], "activation_fn": nn.ELU}),
        (SyncSAC, Heads, {"net_arch": [8]}),
        (SyncTD3, Doubled, {"net_arch": [8]}),
    ],
    ids=["no body", "elu", "own", "own td3"],
)
def test_others_draw_by_themselves(cls: Any, policy: Any, arguments: dict[str, Any]) -> None:
    """From a stream of torch's that belongs to the actor; the same on any executor."""
    found = []
    for place in PLACES:
        model = new(cls, policy, policy_kwargs=arguments, **place)
        assert model.acting()[1].policy.distribution is None
        with model:
            model.learn(64)
            found.append((model.fingerprint(), observed(model)[1].tobytes()))
    assert found[0] == found[1] == found[2]
    model = new(cls, policy, policy_kwargs=arguments, gradient_steps=0, n_actors=1, envs_per_actor=1)
    kept, rows = played(model, 8)
    seen, _ = observed(model)
    with torch.random.fork_rng():
        torch.manual_seed(int(stream(0, Purpose.EXPLORATION, 0).integers(2**63)))
        for step, row in enumerate(rows):
            np.testing.assert_allclose(row[3], kept.predict(seen[step])[0], atol=2e-6)


# ---------------------------------------------------------------------- exploration


@pytest.mark.parametrize("cls", [SyncSAC, SyncTD3])
def test_actions_are_even_until_learning_starts(cls: Any) -> None:
    model = new(cls, learning_starts=1600, buffer_size=2000, train_freq=25, policy_kwargs={"net_arch": [4]})
    kept, rows = played(model, 1800)
    taken = np.concatenate([row[3] for row in rows])
    scaled = observed(model)[1].reshape(-1, 2)
    np.testing.assert_allclose(kept.unscale_action(scaled), taken, atol=1e-5)
    first = scaled[:1600]
    assert np.abs(first).max() <= 1 and first.min() < -0.98 and first.max() > 0.98
    assert np.abs(np.histogram(first, 4, (-1, 1))[0] / 3200 - 0.25).max() < 0.05
    assert np.abs(np.corrcoef(first.T)[0, 1]) < 0.1
    assert np.abs(np.histogram(scaled[1600:], 4, (-1, 1))[0] / 400 - 0.25).max() > 0.05


class Counting(ActionNoise):
    """Noise of the user's: how many steps there were since the last reset, and something from ``np.random``."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __call__(self) -> Array:
        self.count += 1
        return np.array([0.01 * self.count, 0.001 * np.random.random()])

    def reset(self) -> None:
        self.count = 0


def test_noise_is_of_each_environment_and_begins_anew_with_each_episode() -> None:
    model = new(SyncTD3, action_noise=Counting(), gradient_steps=0)
    kept, rows = played(model, 256)
    seen, actions = observed(model)
    count, ends = np.zeros(4), 0
    for step, row in enumerate(rows):
        count += 1
        own = kept.scale_action(kept.predict(seen[step])[0])
        added = actions[step] - own
        np.testing.assert_allclose(added[:, 0], 0.01 * count, atol=1e-5)
        assert (added[:, 1] > -1e-5).all() and (added[:, 1] < 1.1e-3).all()
        count[row[5]] = 0
        ends += row[5].sum()
    assert ends > 20


@pytest.mark.parametrize("vectorized", [False, True])
def test_ornstein_uhlenbeck_is_sb3s(vectorized: bool) -> None:
    noise: ActionNoise = OrnsteinUhlenbeckActionNoise(np.zeros(2), np.array([0.5, 0.1]))
    given = VectorizedActionNoise(noise, 4) if vectorized else noise
    model = new(SyncTD3, env=partial(Reach, actions=spaces.Box(-1, 1, (2,))), action_noise=given, gradient_steps=0)
    kept, rows = played(model, 64)
    seen, actions = observed(model)
    for actor in range(2):
        theirs, random = VectorizedActionNoise(noise, 2), stream(0, Purpose.EXPLORATION, actor)
        mine = slice(2 * actor, 2 * actor + 2)
        for step, row in enumerate(rows):
            with drawing_from(random):
                drawn = theirs()
            np.testing.assert_allclose(actions[step, mine], np.clip(kept.predict(seen[step])[0][mine] + drawn, -1, 1), atol=1e-5)
            theirs.reset(np.flatnonzero(row[5][mine]))


@pytest.mark.parametrize("cls", [SyncSAC, SyncTD3])
def test_normal_noise(cls: Any) -> None:
    found = [
        observed_after(new(cls, action_noise=noise, gradient_steps=0, n_actors=4, envs_per_actor=1))
        for noise in (None, NormalActionNoise(np.array([0.1, 0.0]), np.array([0.0, 0.3])))
    ]
    first = found[1][0] - found[0][0]  # of the first step: later observations have nothing in common
    np.testing.assert_allclose(first[:, 0], 0.1, atol=1e-5)
    assert len(set(first[:, 1].tolist())) == 4
    assert np.abs(found[1]).max() <= 1


def observed_after(model: Any) -> Array:
    played(model, 256)
    actions: Array = observed(model)[1]
    return actions


@pytest.mark.slow
@pytest.mark.parametrize("cls", [SyncSAC, SyncTD3])
@pytest.mark.parametrize("noise", [Counting(), OrnsteinUhlenbeckActionNoise(np.zeros(2), np.ones(2))], ids=["own", "ou"])
def test_noise_is_the_same_everywhere_and_goes_on_after_resume(cls: Any, noise: Any, tmp_path: Any) -> None:
    found = []
    for place in PLACES:
        with new(cls, action_noise=noise, pipeline=1, **place) as model:
            model.learn(96)
            if place is INLINE:
                model.save_checkpoint(tmp_path / "run")
            model.learn(96, reset_num_timesteps=False)
            found.append((model.fingerprint(), observed(model)[1].tobytes()))
    with cls.resume(tmp_path / "run", **INLINE) as resumed:
        resumed.learn(96, reset_num_timesteps=False)
        found.append((resumed.fingerprint(), observed(resumed)[1].tobytes()))
    assert all(one == found[0] for one in found)


def test_a_policy_that_says_nan_is_named() -> None:
    def spoil(model: Any) -> None:
        with torch.no_grad():
            model.policy.actor.mu.weight.fill_(float("nan"))

    with new(SyncSAC, gradient_steps=0) as model:
        with pytest.raises(ValueError, match=r"the policy's action at step 0 of this round .* is NaN") as caught:
            model.learn(96, callback=AfterRounds(spoil))
        assert any("actor[0]" in note and "tag" in note for note in caught.value.__notes__)
