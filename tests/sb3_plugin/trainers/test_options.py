"""The keywords of trainers: one list, one documentation, the same checks for all of them."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import torch
from trainers import ROWS, hints_of

import reactor_sb3
from reactor_sb3 import PQN, RunOptions, SyncDQN, SyncPPO, SyncSAC
from reactor_sb3.trainers.options import Options, SplitOptions
from reactor_torch import torch_stream

TRAINERS = {row.cls: SplitOptions if row.kind == "off-policy" and "Box" in row.actions else Options for row in ROWS.values()}
OF_HOSTS = {row.cls: row.host_cls for row in ROWS.values() if row.host}


def test_the_keywords_are_the_fields() -> None:
    kept = get_type_hints(RunOptions)
    assert get_type_hints(SplitOptions) == kept
    documented = inspect.getdoc(RunOptions) or ""
    assert [one.name for one in fields(RunOptions) if f"\n    {one.name}: " not in documented] == []


def test_the_table_of_arguments_has_every_keyword_with_its_default() -> None:
    page = (Path(__file__).parents[3] / "docs" / "guide" / "training.md").read_text()
    rows = re.findall(r"^\| (`.*?) \| (.*?) \| .* \| (?:yes|no) \|$", page, re.MULTILINE)
    shown = {name: default for names, default in rows for name in re.findall(r"`(\w+)`", names)}
    assert {one.name for one in fields(RunOptions)} <= set(shown)
    wrong = [
        one.name
        for one in fields(RunOptions)
        if one.default is not None and shown[one.name] != f"`{one.default!r}`".replace("'", '"')
    ]
    assert wrong == []


@pytest.mark.parametrize("trainer", TRAINERS)
def test_the_signature_has_every_keyword_with_its_default(trainer: Any) -> None:
    parameters = inspect.signature(trainer).parameters
    assert not any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    for name, hint in get_type_hints(TRAINERS[trainer]).items():
        assert parameters[name].default == getattr(RunOptions, name)
        assert hints_of(trainer)[name] == hint


@pytest.mark.parametrize("trainer", OF_HOSTS)
def test_what_is_the_hosts_comes_first_and_in_its_order(trainer: Any) -> None:
    theirs, ours = (list(inspect.signature(one).parameters) for one in (OF_HOSTS[trainer], trainer))
    assert [name for name in ours if name in theirs] == theirs
    assert ours[: len(theirs)] == theirs


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_keyword_that_there_is_not(trainer: Any) -> None:
    with pytest.raises(TypeError, match="n_actor"):
        trainer("MlpPolicy", "CartPole-v1", n_actor=2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"pipeline": 2}, "pipeline=2"),
        ({"n_actors": 0}, "n_actors"),
        ({"n_learners": 1.5}, "n_learners"),
        ({"workers": True}, "workers"),
        ({"executor": "gpu"}, "gpu"),
        ({"restarts": -1}, "restarts"),
        ({"timeout": 0}, "timeout"),
        ({"executor": "threads", "learner_threads": 2}, "learner_threads=1"),
        ({"critic_device": "cuda:7"}, "critic_device"),
        ({"evaluate_episodes": 0}, "evaluate_episodes"),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        RunOptions(**given)


def test_a_subclass_with_a_constructor_of_its_own() -> None:
    class Mine(reactor_sb3.SyncDQN):
        def __init__(self, *arguments: Any, **keywords: Any) -> None:
            super().__init__(*arguments, **{"learning_starts": 7, **keywords})

    model = Mine("MlpPolicy", "CartPole-v1", n_actors=2)
    assert (model.learning_starts, model.n_actors, model.arguments["learning_starts"]) == (7, 2, 7)


@pytest.mark.parametrize(("trainer", "now", "value"), [(SyncDQN, "train_freq", 8), (PQN, "n_steps", 16)])
def test_a_file_whose_arguments_have_their_old_names_is_gone_on_with(trainer: Any, now: str, value: int, tmp_path: Path) -> None:
    """As those of 0.1.0, where ``timeout`` had another name too."""
    with trainer("MlpPolicy", "CartPole-v1", n_actors=2, executor="inline", seed=0, **{now: value}) as model:
        del model.timeout
        model.arguments["rollout_steps"] = model.arguments.pop(now)
        model.arguments["round_timeout"] = model.arguments.pop("timeout")
        model.save(tmp_path / "old.zip")
    with trainer.load(tmp_path / "old.zip", env="CartPole-v1") as model:
        assert model.learn(64).timeout is None
        model.save_checkpoint(tmp_path / "checkpoint.zip")
    with trainer.resume(tmp_path / "checkpoint.zip") as model:
        assert model.rollout_steps == value and model.arguments[now] == value


def test_what_load_has_set_is_checked_before_workers_start(tmp_path: Any) -> None:
    SyncDQN("MlpPolicy", "CartPole-v1").save(tmp_path / "model")
    model = SyncDQN.load(tmp_path / "model", "CartPole-v1", workers=0)
    with pytest.raises(ValueError, match="workers"):
        model.learn(8)


class Dropping(torch.nn.Module):
    """Leaves some features out at random."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(features, training=self.training)


@pytest.mark.parametrize(("activation", "draws"), [(torch.nn.ReLU, False), (Dropping, True)])
def test_torchs_generator_is_lent_to_where_something_draws(activation: Any, draws: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    lent: list[Any] = []

    def noted(state: torch.Tensor) -> Any:
        lent.append(state)
        return torch_stream(state)

    model = SyncPPO("MlpPolicy", "CartPole-v1", n_actors=1, n_steps=16, batch_size=16, seed=0, executor="inline",
                    policy_kwargs={"activation_fn": activation})  # fmt: skip
    monkeypatch.setattr("reactor_sb3.trainers.trainer.torch_stream", noted)
    with model:
        model.learn(16)
    assert bool(lent) == draws


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [SyncPPO, SyncSAC])
def test_what_a_subclass_draws_is_drawn_from_the_trainers_generator(algorithm: Any) -> None:
    class Drawing(algorithm):  # type: ignore[misc]
        def update(self, batch: Any) -> Any:
            two = float(torch.rand(())), float(torch.rand((), generator=self.generator))
            if self._run is not None:  # what takes the time of an update has a copy of the networks, which is thrown away
                drawn.append(two)
            return (yield from super().update(batch))

    weights, numbers = [], []
    for workers in (1, 2):
        drawn: list[tuple[float, float]] = []
        steps = {"n_steps": 16} if algorithm is SyncPPO else {"learning_starts": 8}
        with Drawing("MlpPolicy", "Pendulum-v1", n_actors=2, batch_size=16, seed=0, workers=workers, **steps) as model:
            before = torch.random.get_rng_state()
            model.learn(64)
            assert torch.equal(before, torch.random.get_rng_state())
        weights.append(model.nets.flat("policy" if algorithm is SyncPPO else "actor").data.clone())
        numbers.append(drawn)
    assert len(numbers[0]) > 8 and numbers[0] == numbers[1]
    assert torch.equal(*weights)


@pytest.mark.parametrize("algorithm", [SyncPPO, SyncSAC, ROWS["td3"].cls])
def test_an_example_draws_nothing_from_the_trainers_generator(algorithm: Any) -> None:
    model = algorithm("MlpPolicy", "Pendulum-v1", n_actors=2, seed=0)
    before = model.generator.get_state()
    model.example()
    assert torch.equal(before, model.generator.get_state())
