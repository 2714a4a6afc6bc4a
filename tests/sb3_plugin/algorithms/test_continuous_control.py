"""SAC and TD3: what is stored, what is learned from it, and what they say of themselves."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import SAC
from stable_baselines3.common.noise import NormalActionNoise
from trainers import BUFFERS, EVALUATED, INLINE, PROCESSES, ROWS, SPACES, Remembering, Toy, new, outcome, suited

TRAINERS: dict[str, Any] = {name: ROWS[name].cls for name in ("sac", "td3")}
each = pytest.mark.parametrize("algorithm", sorted(TRAINERS))
WIDE = spaces.Box(np.array([-3, 0], np.float32), np.array([1, 8], np.float32))


Reach = partial(Toy, actions=WIDE)
"""Actions are two numbers, of different bounds."""


LEARNING: dict[str, dict[str, Any]] = {"sac": {}, "td3": {"action_noise": NormalActionNoise(np.zeros(1), np.full(1, 0.3))}}


@pytest.mark.slow
@each
def test_pendulum_is_learned(algorithm: str) -> None:
    with TRAINERS[algorithm](
        "MlpPolicy", "Pendulum-v1", n_actors=4, train_freq=4, gradient_steps=16, batch_size=128, learning_starts=600, seed=0,
        buffer_size=10_000, policy_kwargs={"net_arch": [64, 64]}, evaluate_every=480, evaluate_episodes=10, evaluate_steps=400,
        gamma=0.98, learning_rate=3e-3, **LEARNING[algorithm], **INLINE,
    ) as model:  # fmt: skip
        model.learn(16 * 500)  # what is evaluated beside the training comes later
        first, last = model.evaluations[0], model.evaluations[-1]
    assert first.mean < -1000 and last.mean > -400, (first, last)


# ---------------------------------------------------------------------- replay buffers


@pytest.mark.slow
@pytest.mark.parametrize("name", BUFFERS)
@each
def test_every_replay_buffer(algorithm: str, name: str) -> None:
    kind, arguments = BUFFERS[name]
    policy, space = SPACES[kind]
    found = []
    for place in (INLINE, PROCESSES):
        with new(algorithm, partial(Toy, space), policy, buffer_size=160, **arguments, **place) as model:
            found.append(outcome(model.learn(256)))
            assert model.replay_buffer.full
    assert found[0] == found[1] and found[0]["counters"][2] > 0


@each
def test_a_buffer_of_the_users_is_given_what_the_policy_has_drawn(algorithm: str) -> None:
    with new(algorithm, Reach, replay_buffer_class=Remembering, action_noise=None) as model:
        model.learn(192)
    buffer = model.replay_buffer
    assert [len(row) for row in buffer.infos] == [4] * 48 and "TimeLimit.truncated" in buffer.infos[0][0]
    assert np.abs(buffer.actions[:48]).max() <= 1 and buffer.actions[:48].min() < -0.5


# ---------------------------------------------------------------------- what they say


@each
def test_updates_for_each_step_are_told(algorithm: str) -> None:
    with new(algorithm, rollout_steps=8, gradient_steps=2) as model:
        model.learn(96, log_interval=None)
        assert model.update_to_data == 2 / 32 and "update_to_data=0.0625" in repr(model) and "gradients='compiled'" in repr(model)
        assert model.logger.name_to_value["time/update_to_data"] == 0.0625
        assert {"train/critic_loss", "train/actor_loss", "train/learning_rate", "train/n_updates"} <= set(
            model.logger.name_to_value
        )
    assert new(algorithm, gradient_steps=-1).update_to_data == 1
    assert new(algorithm, gradient_steps=8, rollout_steps=1, n_actors=2).update_to_data == 4


class Huge(Toy):
    """Pays more than can be squared."""

    def step(self, action: Any) -> Any:
        observation, _, terminated, truncated, info = super().step(action)
        return observation, 1e30 if self.t > 3 else 0.0, terminated, truncated, info


@pytest.mark.parametrize("changed", [{}, {"n_learners": 2}, {"split": True}], ids=["alone", "slices", "split"])
@each
def test_losses_that_are_no_numbers_end_it(algorithm: str, changed: dict[str, Any]) -> None:
    with new(algorithm, Huge, learning_starts=0, **changed) as model:
        with pytest.raises(ValueError, match=r"critic_loss is (inf|nan) in update 1, and so are the parameters") as caught:
            model.learn(320)
        assert any("learner" in note and "tag" in note for note in caught.value.__notes__)


@each
def test_which_update_it_was(algorithm: str) -> None:
    with new(algorithm, gradient_steps=3) as model:
        model.learn(160)
        done = model.n_updates
        with torch.no_grad():
            model.policy.critic.qf0[0].weight[0, 0] = np.nan
        with pytest.raises(ValueError, match=rf"critic_loss is nan in update {done + 1}"):
            model.learn(160, reset_num_timesteps=False)


@pytest.mark.slow
def test_saved_and_loaded_with_a_coefficient_that_is_learned(tmp_path: Any) -> None:
    with new("sac", ent_coef="auto_0.3") as model:
        model.learn(320)
        assert float(model.log_ent_coef.detach().exp()) != pytest.approx(0.3, rel=1e-3)
        model.save(tmp_path / "model")
        model.save_checkpoint(tmp_path / "run")
    loaded = TRAINERS["sac"].load(tmp_path / "model", env=suited("sac", "CartPole-v1"))
    resumed = TRAINERS["sac"].resume(tmp_path / "run", **INLINE)
    for one in (loaded, resumed):
        assert torch.equal(one.log_ent_coef, model.log_ent_coef)
        assert one.ent_coef_optimizer.state_dict()["state"][0]["step"] == model.n_updates
    assert SAC.load(tmp_path / "model").predict(np.zeros(4, np.float32))[0].shape == (1,)


@pytest.mark.slow
@each
def test_executors_that_are_chosen(algorithm: str) -> None:
    """As ``auto`` does, which times throw-away updates."""
    with new(algorithm, executor="auto", pipeline=1, **EVALUATED) as model:
        first = outcome(model.learn(320))
    with new(algorithm, pipeline=1, **EVALUATED) as model:
        assert outcome(model.learn(320)) == first
