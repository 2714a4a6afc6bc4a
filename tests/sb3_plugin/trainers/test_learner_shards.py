"""Learners in several reactors: one result for any number of them, what is refused, and what gradient workers are told."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from every_other import every_other, in_turn
from gymnasium import spaces
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import FlattenExtractor
from torch import nn
from trainers import BOX, INLINE, PLACES, PROCESSES, SPACES, THREADS, AfterRounds, Toy, both, outcome
from trainers import new as new_trainer

from reactor_sb3 import SaveCheckpoint, SyncPPO
from reactor_torch import networks

HERE = Path(__file__).parents[1]  # where the trainers are
EVALUATED: dict[str, Any] = {"evaluate_every": 2, "evaluate_episodes": 2, "evaluate_steps": 40}
pytestmark = [
    pytest.mark.usefixtures("small_blocks"),
    pytest.mark.filterwarnings("ignore:You have specified a mini-batch size"),
]
STEPS = 930
"""Of five rounds, whose last minibatch has six rows: not a block for each of three."""


def new(env: Any = "CartPole-v1", policy: Any = "MlpPolicy", **changed: Any) -> SyncPPO:
    """Rounds of 186 rows, of which the first minibatch has three blocks or more."""
    network: dict[str, Any] = {"net_arch": [16]}
    if policy == "CnnPolicy":
        network = {"net_arch": [], "features_extractor_kwargs": {"features_dim": 16}}
    given = {"n_actors": 2, "n_steps": 93, "batch_size": 180, "n_epochs": 2, "seed": 0, "policy_kwargs": network, "n_learners": 2}
    return SyncPPO(policy, env, **{**given, **INLINE, **changed})


@cache
def alone(pipeline: int) -> dict[str, Any]:
    with new(n_learners=1, pipeline=pipeline, **EVALUATED) as model:
        return outcome(model.learn(STEPS))


THREE = PROCESSES | {"workers": 3}
"""As many processes as learners."""
named = pytest.mark.parametrize("place", [*PLACES, THREE], ids=lambda place: "-".join(map(str, place.values())))


@pytest.mark.slow
@every_other(learners=[2, 3, 8, None], pipeline=[0, 1], place=[*PLACES, THREE])
def test_one_result(learners: int | None, pipeline: int, place: dict[str, Any]) -> None:
    with new(n_learners=learners, pipeline=pipeline, **EVALUATED, **place) as model:
        assert outcome(model.learn(STEPS)) == alone(pipeline)
        assert learners in (8, None) or f"n_learners={learners}" in repr(model)
    assert alone(pipeline)["evaluations"]


@pytest.mark.slow
@in_turn("learners", [2, 3], kept=1)
def test_the_number_of_learners_is_not_part_of_the_algorithm(learners: int) -> None:
    with new(n_learners=learners, **EVALUATED, **PROCESSES) as model:
        assert outcome(model.learn(STEPS)) == alone(0) != alone(1)


class Scaling(FlattenExtractor):
    """Has a buffer, which somebody may change between rounds."""

    scale: torch.Tensor

    def __init__(self, space: Any) -> None:
        super().__init__(space)
        self.register_buffer("scale", torch.ones(()))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return super().forward(observations) * self.scale


class Dropping(Scaling):
    """Draws from torch's generator."""

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(super().forward(observations), 0.2, self.training)


class Rescales(AfterRounds):
    """Changes what shards have besides weights that learn: a buffer, and a frozen bias."""

    def __init__(self) -> None:
        super().__init__(lambda model: None)

    def _on_rollout_end(self) -> None:
        self.model.policy.features_extractor.scale.mul_(0.5)
        self.model.policy.value_net.bias.data.add_(1)


class Frozen(ActorCriticPolicy):
    """The bias of its values does not learn."""

    def _build(self, lr_schedule: Any) -> None:
        super()._build(lr_schedule)
        self.value_net.bias.requires_grad_(False)


OTHERS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "image": (partial(Toy, SPACES["image"][1]), "CnnPolicy", {}),
    "dict": (partial(Toy, SPACES["dict"][1]), "MultiInputPolicy", {}),
    "clipped": ("CartPole-v1", "MlpPolicy", {"clip_range_vf": lambda remaining: 0.1 + 0.1 * remaining, "ent_coef": 0.5}),
    "gSDE": ("Pendulum-v1", "MlpPolicy", {"use_sde": True}),
    "noise": ("Pendulum-v1", "MlpPolicy", {"use_sde": True, "policy_kwargs": {"squash_output": True}}),
    "dropout": (Toy, "MlpPolicy", {"policy_kwargs": {"net_arch": [16], "features_extractor_class": Dropping}}),
    "frozen": (Toy, Frozen, {"policy_kwargs": {"net_arch": [16], "features_extractor_class": Scaling}}),
    "stopped": ("CartPole-v1", "MlpPolicy", {"target_kl": 1e-4, "learning_rate": 1e-2}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_one_result_of_others(name: str) -> None:
    env, policy, given = OTHERS[name]
    results = []
    for place in (INLINE, INLINE, THREADS, PROCESSES) if name != "image" else (INLINE, PROCESSES):
        with new(env, policy, pipeline=1, **given, **place) as model:
            results.append(outcome(model.learn(540, callback=Rescales() if name == "frozen" else None)))
    with new(env, policy, pipeline=1, **given, n_learners=1) as model:
        results.append(outcome(model.learn(540, callback=Rescales() if name == "frozen" else None)))
    assert all(one == results[0] for one in results)
    assert (model.n_updates < 2 * 2) == (name == "stopped")  # the third round is still under way


@pytest.mark.slow
@pytest.mark.parametrize("name", ["image", "noise", "frozen"])
def test_blocks_add_up_to_the_minibatch(name: str, monkeypatch: Any) -> None:
    """Updates in blocks end where those without do, but for rounding; so do the statistics."""
    env, policy, given = OTHERS[name]
    ends = []
    for least in (8, 10**6):
        monkeypatch.setattr(networks, "LEAST_ROWS", least)
        with new(env, policy, n_learners=1, **given) as model:
            assert (model.nets.most_blocks > 1) == (least == 8)
            model.learn(372, callback=Rescales() if name == "frozen" else None, log_interval=None)
            ends.append((model.policy.state_dict(), dict(model.logger.name_to_value)))
    assert "train/approx_kl" in ends[0][1]
    for key, values in ends[0][0].items():
        torch.testing.assert_close(ends[1][0][key], values, rtol=0, atol=1e-5)
    for key, value in ends[0][1].items():
        if key.startswith("train/"):
            assert ends[1][1][key] == pytest.approx(value, rel=1e-4, abs=1e-6), key


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", [0, 1])
def test_resumed_after_a_kill(pipeline: int, tmp_path: Path, run_script: Callable[..., tuple[int, str]]) -> None:
    path, script = tmp_path / "run.zip", tmp_path / "script.py"
    script.write_text(f"""if True:
        import os, signal, sys
        sys.path[:0] = [{str(HERE)!r}, {str(Path(__file__).parent)!r}]
        from test_learner_shards import EVALUATED, STEPS, networks, new
        from reactor_sb3 import SaveCheckpoint

        class Killed(SaveCheckpoint):
            def _on_rollout_end(self):
                super()._on_rollout_end()
                if self.rounds == 3:
                    os.kill(os.getpid(), signal.SIGKILL)

        if __name__ == "__main__":
            networks.LEAST_ROWS, networks.LEAST_FLOPS = 8, 1
            with new(n_learners=3, pipeline={pipeline}, executor="processes", workers=2, **EVALUATED) as model:
                model.learn(STEPS, callback=Killed({str(path)!r}, every=2))
    """)
    status, said = run_script(script, tmp_path)
    assert status == -signal.SIGKILL, said
    for place in (INLINE, THREE, PROCESSES | {"n_learners": 2}):
        with SyncPPO.resume(path, **place) as model:
            assert model.num_timesteps == 2 * 186
            assert outcome(model.learn(model.remaining_timesteps, reset_num_timesteps=False)) == alone(pipeline)


SMALL: dict[str, dict[str, Any]] = {
    "dqn": {"learning_starts": 32, "double_q": True, "n_steps": 3, "tau": 0.5, "target_update_interval": 16, "batch_size": 150},
    "pqn": {"n_steps": 150},
}
"""Minibatches of 150 rows."""


def q_learning(algorithm: str, *given: Any, **changed: Any) -> Any:
    if "MultiInputPolicy" in given:
        changed["n_steps" if algorithm == "dqn" else "n_epochs"] = 1
    return new_trainer(algorithm, *given, **{"n_actors": 2, **SMALL[algorithm], **changed})


Q_STEPS = {"dqn": 320, "pqn": 1200}


@cache
def q_alone(algorithm: str) -> dict[str, Any]:
    with q_learning(algorithm, n_learners=1, pipeline=1, **EVALUATED) as model:
        return outcome(model.learn(Q_STEPS[algorithm]))


@pytest.mark.slow
@named
@both
def test_one_result_of_q_learning(algorithm: str, place: dict[str, Any]) -> None:
    with q_learning(algorithm, n_learners=3, pipeline=1, **EVALUATED, **place) as model:
        assert outcome(model.learn(Q_STEPS[algorithm])) == q_alone(algorithm)
        assert "n_learners=3" in repr(model)


@pytest.mark.slow
@pytest.mark.parametrize("env", ["image", "dict", "discrete"])
@both
def test_any_network_of_q_learning(algorithm: str, env: str) -> None:
    policy, space = SPACES[env]
    ends = []
    for how in ({"n_learners": 1}, {"n_learners": 2}, {"n_learners": 3, **PROCESSES}):
        with q_learning(algorithm, partial(Toy, space), policy, **how) as model:
            model.learn(64 if algorithm == "dqn" else 300)
            assert model.n_updates == (4 if algorithm == "dqn" else 2 * model.n_epochs)
            ends.append(outcome(model))
    assert ends[0] == ends[1] == ends[2]


@pytest.mark.slow
@both
def test_resumed_q_learning(algorithm: str, tmp_path: Path) -> None:
    path = tmp_path / "run.zip"
    with q_learning(algorithm, n_learners=3, pipeline=1, **EVALUATED) as model:
        model.learn(Q_STEPS[algorithm], callback=SaveCheckpoint(path, every=3))
    with type(model).resume(path, **PROCESSES, n_learners=2) as resumed:
        assert resumed.remaining_timesteps > 0
        assert outcome(resumed.learn(resumed.remaining_timesteps, reset_num_timesteps=False)) == q_alone(algorithm)


def test_save_and_load(tmp_path: Path) -> None:
    with new(n_learners=3) as model:
        model.learn(186)
        model.save(tmp_path / "model")
    with SyncPPO.load(tmp_path / "model", env="CartPole-v1", executor="processes", workers=2) as model:
        assert model.n_learners == 3 and "n_learners=3" in repr(model)
        before = model.fingerprint()
        model.learn(186)
        assert model.fingerprint() != before and "n_learners=3" in repr(model)


class Fails(Dropping):
    """Cannot evaluate a helper's slice."""

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        if self.training and len(observations) == 14 and not torch.is_inference_mode_enabled():
            raise ArithmeticError("fourteen rows")
        return super().forward(observations)


@in_turn("place", [INLINE, THREADS, THREE], ids=lambda place: "-".join(map(str, place.values())), kept=1)
def test_errors_of_shards_are_raised(place: dict[str, Any]) -> None:
    kwargs = {"net_arch": [16], "features_extractor_class": Fails}
    given = {"n_steps": 31, "batch_size": 59, "n_learners": 2, "policy_kwargs": kwargs}  # blocks of 15, 15, 15 and 14 rows
    with new(Toy, **given, **place) as model, pytest.raises(ArithmeticError, match="fourteen rows") as raised:
        model.learn(62)
    assert "gradient_worker[0]" in "".join(raised.value.__notes__)


class Normalised(FlattenExtractor):
    def __init__(self, space: spaces.Box) -> None:
        super().__init__(space)
        self.normal = nn.BatchNorm1d(self.features_dim)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return self.normal(super().forward(observations))  # type: ignore[no-any-return]


REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "none": ({"n_learners": 0}, ValueError, "n_learners"),
    "half": ({"n_learners": 1.5}, ValueError, "n_learners"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    given, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        new(**{"env": partial(Toy, BOX), **given})


def test_batch_normalisation_sees_whole_minibatches() -> None:
    kwargs = {"net_arch": [16], "features_extractor_class": Normalised}
    with new(partial(Toy, BOX), n_learners=3, policy_kwargs=kwargs) as model:
        model.learn(186)
        assert model.nets.most_blocks == 1 and model.session.sliced is None


def test_a_larger_batch_needs_other_workers() -> None:
    with new(n_steps=256, batch_size=128) as model:
        model.learn(512)
        model.batch_size = 512
        with pytest.raises(ValueError, match=r"Call close\(\) before you change batch_size"):
            model.learn(512)
        assert np.isfinite(model.learn(512).num_timesteps)
