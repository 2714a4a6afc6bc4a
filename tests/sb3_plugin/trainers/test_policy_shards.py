"""Critics and actor in slices and side by side: one result wherever they are computed, and that of the losses without shards."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from every_other import every_other, in_turn
from gymnasium import spaces
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import FlattenExtractor
from test_learner_shards import Dropping
from torch import nn
from trainers import BOX, INLINE, PLACES, PROCESSES, ROWS, SPACES, Toy, outcome
from trainers import new as trainer

from reactor_rl import WorkerDiedError
from reactor_sb3 import SaveCheckpoint
from reactor_sb3.trainers import session

pytestmark = pytest.mark.usefixtures("small_blocks")
ALGORITHMS: dict[str, Any] = {name: ROWS[name].cls for name in ("sac", "td3")}
STEPS = 160
EVALUATED: dict[str, Any] = {"evaluate_every": 3, "evaluate_episodes": 2, "evaluate_steps": 40}
each = pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
splits = pytest.mark.parametrize("split", [False, True])


class Pushed(Toy):
    """Its actions are numbers."""

    def __init__(self, space: gymnasium.Space[Any] = BOX) -> None:
        super().__init__(space)
        self.action_space = spaces.Box(-2, 1, (2,), np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return super().step(round(float(action.sum())))


def new(algorithm: str, env: Any = "Pendulum-v1", policy: str = "MlpPolicy", **changed: Any) -> Any:
    """Five updates a round, which TD3's delay of two does not divide."""
    network: dict[str, Any] = {"net_arch": [16]}
    if policy == "CnnPolicy":
        network = {"net_arch": [], "features_extractor_kwargs": {"features_dim": 16}}
    given = {
        "n_actors": 2, "train_freq": 8, "gradient_steps": 5, "learning_starts": 32, "batch_size": 150, "seed": 0, "tau": 0.1,
        "buffer_size": 500, "policy_kwargs": network, "learning_rate": 1e-2,
    }  # fmt: skip
    return ALGORITHMS[algorithm](policy, env, **{**given, **INLINE, **changed})


@cache
def alone(algorithm: str, split: bool) -> dict[str, Any]:
    with new(algorithm, n_learners=1, split=split, pipeline=1, **EVALUATED) as model:
        return outcome(model.learn(STEPS))


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES[1:], ids=lambda place: "-".join(map(str, place.values())))
@pytest.mark.parametrize(("learners", "split"), [(3, False), (1, True), (2, True)])
@each
def test_one_result(algorithm: str, learners: int, split: bool, place: dict[str, Any]) -> None:
    with new(algorithm, n_learners=learners, split=split, pipeline=1, **EVALUATED, **place) as model:
        assert outcome(model.learn(STEPS)) == alone(algorithm, split)
        assert learners == 1 or f"n_learners={learners}" in repr(model)
    assert alone(algorithm, split)["evaluations"]


@pytest.mark.slow
@each
def test_what_is_part_of_the_algorithm(algorithm: str) -> None:
    assert alone(algorithm, False)["weights"] != alone(algorithm, True)["weights"]
    with new(algorithm, n_learners=2, split=True, pipeline=1, **EVALUATED) as model:
        assert outcome(model.learn(STEPS)) == alone(algorithm, True)


OTHERS: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "image": (partial(Pushed, SPACES["image"][1]), "CnnPolicy", {"batch_size": 17}),
    "dict": (partial(Pushed, SPACES["dict"][1]), "MultiInputPolicy", {}),
    "3 steps": (Pushed, "MlpPolicy", {"n_steps": 3}),
    "dropout": (Pushed, "MlpPolicy", {"policy_kwargs": {"net_arch": [16], "features_extractor_class": Dropping}}),
}


@pytest.mark.slow
@every_other(algorithm=ALGORITHMS, name=OTHERS, split=[False, True])
def test_one_result_of_others(algorithm: str, name: str, split: bool) -> None:
    env, policy, given = OTHERS[name]
    results = []
    for place in [*(PLACES if name == "dropout" else (INLINE, PROCESSES)), {"n_learners": 1}]:
        with new(algorithm, env, policy, **{"n_learners": 2, **place}, split=split, pipeline=1, **given) as model:
            results.append(outcome(model.learn(96)))
    assert all(one == results[0] for one in results)
    assert model.n_updates >= 2 * 5  # the last round is still under way


@each
def test_side_by_side_is_one_after_the_other(algorithm: str, monkeypatch: Any) -> None:
    """A learner that computes both losses itself, from the same weights, comes to the same bits."""
    expected = alone(algorithm, True)
    choose = session.choose_placement

    def chosen(config: Any, model: Any) -> Any:
        return replace(choose(replace(config, split=False), model), split=True)

    monkeypatch.setattr(session, "choose_placement", chosen)
    monkeypatch.setattr(session, "with_learners", lambda config, model, slices: replace(config, gradients=None))
    with new(algorithm, split=True, pipeline=1, **EVALUATED) as model:
        assert outcome(model.learn(STEPS)) == expected


@pytest.mark.slow
@each
def test_resumed(algorithm: str, tmp_path: Any) -> None:
    path = tmp_path / "run.zip"
    with new(algorithm, n_learners=2, split=True, pipeline=1, **EVALUATED) as model:
        model.learn(STEPS, callback=SaveCheckpoint(path, every=4))
    with type(model).resume(path, actor_device="cpu:0", **PROCESSES) as resumed:  # as on another device
        assert resumed.remaining_timesteps > 0 and resumed.split
        assert outcome(resumed.learn(resumed.remaining_timesteps, reset_num_timesteps=False)) == alone(algorithm, True)


def test_devices_that_an_algorithm_does_not_have(tmp_path: Path) -> None:
    with trainer("dqn") as model:
        model.learn(64).save_checkpoint(path := tmp_path / "run.zip")
    with pytest.raises(TypeError, match=r"resume\(\) cannot change actor_device"):
        type(model).resume(path, actor_device="cpu")


class Dies(FlattenExtractor):
    """Ends a helper that computes a loss, if there is a file that names the caller."""

    def __init__(self, space: spaces.Box, flag: str) -> None:
        super().__init__(space)
        self.flag = Path(flag)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        if self.training and self.flag.exists() and self.flag.read_text() != str(os.getpid()):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(observations)


class Flags(BaseCallback):
    """Makes the file after some steps."""

    def __init__(self, flag: Path, after: int) -> None:
        super().__init__()
        self.flag, self.after, self.when = flag, after, 0.0

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        if self.num_timesteps == self.after:
            self.when = time.monotonic()
            self.flag.write_text(str(os.getpid()))


@pytest.mark.slow
@each
def test_the_policys_shard_is_killed(algorithm: str, tmp_path: Path) -> None:
    """An error in time that names what the worker held; what was saved before goes on to the same bits."""
    path, flag = tmp_path / "run.zip", tmp_path / "now"
    network = {"net_arch": [16], "features_extractor_class": Dies, "features_extractor_kwargs": {"flag": str(flag)}}
    given: dict[str, Any] = {"split": True, "pipeline": 1, "policy_kwargs": network, **EVALUATED}
    with new(algorithm, **given) as model:
        expected = outcome(model.learn(STEPS))
    with new(algorithm, **given, **PROCESSES) as model:
        with pytest.raises(WorkerDiedError, match=r"(?s)SIGKILL.*gradient_worker"):
            model.learn(STEPS, callback=[SaveCheckpoint(path, every=4), flags := Flags(flag, 96)])
        assert time.monotonic() - flags.when < 20 and not model.running
    flag.unlink()
    assert os.listdir(tmp_path) == ["run.zip"]
    with type(model).resume(path, **PROCESSES) as resumed:
        assert resumed.num_timesteps == 64
        assert outcome(resumed.learn(resumed.remaining_timesteps, reset_num_timesteps=False)) == expected


class Fails(FlattenExtractor):
    """Cannot evaluate the slices of the actor's shards."""

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        if self.training and len(observations) == 15:
            raise ArithmeticError("fifteen rows")
        return super().forward(observations)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: "-".join(map(str, place.values())))
def test_errors_of_the_policys_shards_are_raised(place: dict[str, Any]) -> None:
    kwargs = {"net_arch": [16], "features_extractor_class": Fails}
    model = new("sac", Pushed, policy_kwargs=kwargs, batch_size=15, split=True, n_learners=1, **place)
    with model, pytest.raises(ArithmeticError, match="fifteen rows") as raised:
        model.learn(48)
    assert "gradient_worker[0]" in "".join(raised.value.__notes__)


class WithoutCuda(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Plays where nobody has asked for a GPU."""

    def step(self, action: Any) -> Any:
        assert not torch.cuda.is_initialized()
        return super().step(action)


@pytest.mark.parametrize("device", ["cpu", "cpu:0"])
@in_turn("place", [INLINE, PROCESSES], ids=lambda place: "-".join(map(str, place.values())), kept=1)
@each
def test_devices_of_critics_and_actor(algorithm: str, place: dict[str, Any], device: str) -> None:
    """Both on the processor: the bits of no devices named. By its index it is another device, whose shard copies what it gets."""
    env = lambda: WithoutCuda(gymnasium.make("Pendulum-v1"))  # noqa: E731
    given = {"split": True, "critic_device": "cpu", "actor_device": device, "pipeline": 1, **EVALUATED, **place}
    with new(algorithm, env, **given) as model:
        assert outcome(model.learn(STEPS)) == alone(algorithm, True)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "not there": ({"split": True, "actor_device": "cuda:17"}, 'actor_device="cuda:17": torch sees'),
    "two, one learner": ({"critic_device": "meta"}, "critics on meta and the actor on cpu .* pass split=True"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_devices_that_are_refused(case: str) -> None:
    given, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        new("sac", Pushed, **given)


class Normalised(FlattenExtractor):
    def __init__(self, space: spaces.Box) -> None:
        super().__init__(space)
        self.normal = nn.BatchNorm1d(self.features_dim)


def test_statistics_in_two_places_are_refused() -> None:
    with pytest.raises(ValueError, match=r"split=True .*features_extractor.normal"):
        new("td3", Pushed, split=True, policy_kwargs={"features_extractor_class": Normalised})
