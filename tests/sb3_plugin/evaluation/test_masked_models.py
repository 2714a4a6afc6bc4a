"""``evaluate`` of policies that are told which actions are allowed."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("sb3_contrib")

from contrib_trainers import Masked, make
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from trainers import Toy

from reactor_gymnasium import evaluate

SPACES = {"discrete": spaces.Discrete(3), "multidiscrete": spaces.MultiDiscrete([2, 3]), "multibinary": spaces.MultiBinary(3)}


class Varied(Masked):
    """What it shows and what it allows depend on its seed; it fails if something forbidden is done."""

    def __init__(self, action_space: Any = SPACES["discrete"]) -> None:
        super().__init__()
        self.action_space = action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        seen, info = super().reset(seed=seed, options=options)
        self.shift = int(self.np_random.integers(100))
        return seen + np.float32(self.shift / 100), info

    def action_masks(self) -> Any:
        masks = super().action_masks()
        return np.roll(masks, self.shift) if isinstance(self.action_space, spaces.Discrete) else masks


class Own(MaskableActorCriticPolicy):
    """Has a ``_predict`` of its own, so it is asked for actions."""

    def _predict(self, observation: Any, deterministic: bool = False, action_masks: Any = None) -> Any:
        return super()._predict(observation, deterministic, action_masks)


class Told:
    """Takes the last choice that is allowed."""

    def predict(self, observations: Any, action_masks: Any = None, deterministic: bool = True) -> Any:
        return 2 - action_masks[:, ::-1].argmax(1), None


def model_of(space: Any, policy: Any = "MlpPolicy") -> MaskablePPO:
    return MaskablePPO(policy, Varied(space), n_steps=16, batch_size=16, policy_kwargs={"net_arch": [16]}, seed=0, device="cpu")


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("name", SPACES)
def test_only_what_is_allowed_is_done(name: str, deterministic: bool) -> None:
    env, model = partial(Varied, SPACES[name]), model_of(SPACES[name])
    ways: list[dict[str, Any]] = [
        {"executor": "inline", "num_envs": 1}, {"executor": "inline", "num_envs": 5}, {"executor": "threads", "workers": 2},
    ]  # fmt: skip
    reports = [evaluate(model, env, episodes=8, seed=3, deterministic=deterministic, **way) for way in ways]
    assert len({report.fingerprint() for report in reports}) == 1 and "by construction" in reports[0].policy


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_policy_of_ones_own_is_given_masks(deterministic: bool) -> None:
    model = model_of(SPACES["discrete"], Own)
    found = {
        evaluate(model, Varied, episodes=6, num_envs=n, executor="inline", deterministic=deterministic).fingerprint()
        for n in (1, 4)
    }
    assert len(found) == 1


@pytest.mark.parametrize("executor", ["inline", "threads"])
def test_whoever_predicts_is_given_masks(executor: Any) -> None:
    report = evaluate(Told(), Varied, episodes=8, num_envs=4, workers=2, executor=executor)
    assert report.fingerprint() == evaluate(Told(), Varied, episodes=8, num_envs=1, executor="inline").fingerprint()


def test_trainers_with_masks_are_evaluated() -> None:
    with make("maskable_ppo", Varied) as model:
        model.learn(64)
        report = evaluate(model, Varied, episodes=4, executor="inline")
    assert len(report) == 4


def test_an_environment_without_masks_is_refused() -> None:
    model = model_of(SPACES["discrete"])
    with pytest.raises(ValueError, match=r"the environment has no action_masks\(\): put sb3-contrib's ActionMasker around it"):
        evaluate(model, Toy, episodes=1)


@pytest.mark.parametrize(
    ("masks", "message"), [(np.zeros(3, bool), "forbids all of choice 0"), (np.ones(2, bool), "allow or forbid 3")]
)
def test_masks_that_make_no_sense(masks: Any, message: str) -> None:
    class Wrong(Varied):
        def action_masks(self) -> Any:
            return masks if self.t else np.ones(3, bool)

    env: type[gymnasium.Env[Any, Any]] = Wrong
    with pytest.raises(ValueError, match=message):
        evaluate(model_of(SPACES["discrete"]), env, episodes=2, executor="inline")
