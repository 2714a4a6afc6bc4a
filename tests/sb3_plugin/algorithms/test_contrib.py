"""Trainers of sb3-contrib's algorithms have the same weights wherever they run, and after whatever happens to them."""

from __future__ import annotations

import inspect
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contrib_trainers import CONTRIB, ToyOf, each, env_of, make
from every_other import in_turn
from killing import Killing
from trainers import EVALUATED, INLINE, PROCESSES, SPACES, STEPWISE, THREADS, Seen, outcome

from reactor_rl import RecoveryWarning
from reactor_sb3.acting.evaluator import Evaluator
from reactor_torch import ImageNet, kernels, networks

STEPS = 320
PIPELINES = [(name, pipeline) for name in sorted(CONTRIB) for pipeline in (0, 1) if name in STEPWISE or not pipeline]
"""Of a training: ten rounds, of which eight learn."""


@cache
def alone(algorithm: str, pipeline: int = 0) -> dict[str, Any]:
    """The result without any parallelism."""
    with make(algorithm, pipeline=pipeline, **EVALUATED) as model:
        found = outcome(model.learn(STEPS))
        assert found["evaluations"] and found["episodes"]
        return found


@in_turn("algorithm, pipeline, place", [(*one, THREADS if one[1] else PROCESSES) for one in PIPELINES])
def test_the_same_on_any_workers(algorithm: str, pipeline: int, place: dict[str, Any]) -> None:
    with make(algorithm, pipeline=pipeline, **EVALUATED, **place) as model:
        assert outcome(model.learn(STEPS)) == alone(algorithm, pipeline)


@pytest.mark.slow
@each
def test_any_number_of_learners(algorithm: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(networks, "LEAST_ROWS", 4)
    monkeypatch.setattr(networks, "LEAST_FLOPS", 1)
    found = []
    for how in ({}, {"n_learners": 3}, {"n_learners": 2, **PROCESSES}):
        with make(algorithm, **EVALUATED, **how) as model:
            found.append(outcome(model.learn(STEPS // 2)))
    assert found[0] == found[1] == found[2]


@in_turn("algorithm, pipeline", PIPELINES[::2])
def test_resumed_is_uninterrupted(algorithm: str, pipeline: int, tmp_path: Path) -> None:
    with make(algorithm, pipeline=pipeline, **EVALUATED) as model:
        model.learn(STEPS // 2)
        model.save_checkpoint(tmp_path / "run.zip")
        expected = outcome(model.learn(STEPS // 2, reset_num_timesteps=False))
    with CONTRIB[algorithm].cls.resume(tmp_path / "run.zip", **THREADS) as resumed:
        assert outcome(resumed.learn(STEPS // 2, reset_num_timesteps=False)) == expected


KILLED = """
import sys
from contrib_trainers import make
from killing import Dying

if __name__ == "__main__":
    model = make(sys.argv[1], evaluate_every=3, evaluate_episodes=2, evaluate_steps=200)
    model.learn(int(sys.argv[2]), callback=Dying("run.zip", saved=2, dies=4))
"""


@pytest.mark.faults
@each
def test_killed_and_resumed(algorithm: str, tmp_path: Path) -> None:
    folders = [str(Path(__file__).parents[up]) for up in (1, 2)]
    (tmp_path / "killed.py").write_text(f"import sys\nsys.path[:0] = {folders!r}\n{KILLED}")
    done = subprocess.run(
        [sys.executable, "killed.py", algorithm, str(STEPS)], cwd=tmp_path, timeout=100, check=False, capture_output=True
    )
    assert done.returncode == -9, done.stderr
    with CONTRIB[algorithm].cls.resume(tmp_path / "run.zip", **INLINE) as resumed:
        found = outcome(resumed.learn(resumed.remaining_timesteps, reset_num_timesteps=False))
    assert found == alone(algorithm)


@pytest.mark.faults
@each
@pytest.mark.filterwarnings("always::reactor_rl.RecoveryWarning")
def test_killed_workers_change_no_weight(algorithm: str) -> None:
    with pytest.warns(RecoveryWarning), make(algorithm, executor="processes", workers=3, restarts=9, **EVALUATED) as model:
        assert outcome(model.learn(STEPS, callback=Killing({3, 9}))) == alone(algorithm)


@pytest.mark.slow
@in_turn(
    "algorithm, kind", [(name, kind) for name, row in CONTRIB.items() for kind in ("image", "dict") if kind in row.policies], kept=2
)
def test_other_observations(algorithm: str, kind: str) -> None:
    policy = CONTRIB[algorithm].policies[kind]
    env, weights = ToyOf(algorithm, SPACES[kind][1]), []
    for place in (INLINE, PROCESSES):
        with make(algorithm, env, policy, n_actors=2, **EVALUATED, **place) as model:
            weights.append(outcome(model.learn(128)))
    assert weights[0] == weights[1]


@pytest.mark.skipif(kernels.compiled is None, reason="no extension")
@pytest.mark.parametrize("algorithm", ["maskable_ppo", "qrdqn"])
def test_actors_see_images_by_the_extension(algorithm: str) -> None:
    with make(algorithm, ToyOf(algorithm, SPACES["image"][1]), "CnnPolicy") as model:
        assert isinstance(model.acting()[1].policy.network, ImageNet)


@pytest.mark.slow
@each
def test_saved_and_loaded(algorithm: str, tmp_path: Path) -> None:
    row = CONTRIB[algorithm]
    with make(algorithm) as model:
        model.learn(96)
        model.save(tmp_path / "model")
        seen = model.observation_space.sample()
        expected = model.predict(seen, deterministic=True)[0]
    for kind in (row.cls, row.host_cls):  # sb3-contrib's own class loads it too
        loaded = kind.load(tmp_path / "model", device="cpu")
        assert np.array_equal(loaded.predict(seen, deterministic=True)[0], expected)
    with row.cls.load(tmp_path / "model", make(algorithm).env, **INLINE) as again:
        assert again.fingerprint() == model.fingerprint()
        again.learn(64)


@in_turn("algorithm", sorted(set(CONTRIB) & set(STEPWISE)), kept=1)
def test_callbacks_see_every_step(algorithm: str) -> None:
    seen = Seen()
    with make(algorithm) as model:
        model.learn(128, callback=seen)
    assert [row[0] for row in seen.rows][:2] == [4, 8] and len(seen.rows) == 128 // 4
    assert {"start", "rollout", "end", "stop"} == set(seen.events)


@pytest.mark.slow
@each
def test_watching_changes_nothing(algorithm: str, tmp_path: Path) -> None:
    weights, env = [], env_of(algorithm, shown=True)
    for watching in ({}, {"watch": tmp_path / "run.gif", "watch_every": 4, "watch_steps": 5}):
        with make(algorithm, env, **watching) as model:
            weights.append(model.learn(320).fingerprint())
    assert weights[0] == weights[1]


@each
def test_arguments_are_the_hosts(algorithm: str) -> None:
    row = CONTRIB[algorithm]
    theirs, ours = (inspect.signature(kind.__init__).parameters for kind in (row.host_cls, row.cls))
    assert [name for name in ours if name in theirs] == [name for name in theirs if name in ours]
    assert set(theirs) <= set(ours)
    ours_alone = {"device", "gradient_steps", "n_steps"}
    differing = {name for name in theirs if name in ours and ours[name].default != theirs[name].default}
    assert differing <= ours_alone


@pytest.mark.slow
def test_reactor_sb3_does_without_sb3_contrib() -> None:
    script = "import sys, reactor_sb3, reactor_sb3.plugin; assert 'sb3_contrib' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", script], timeout=60, check=False).returncode == 0


def test_an_evaluator_goes_on_with_the_parameters_that_it_is_given_back() -> None:
    """An LSTM keeps its weights in a form of its own."""
    with make("recurrent_ppo", **EVALUATED) as model:
        given = model.program_config()
    rows = []
    for begun in (True, False):
        evaluator = Evaluator(given.evaluation, given.parameters.dtype)
        evaluator.build()
        player = evaluator.player
        assert player is not None
        if begun:
            player.begin(0, given.parameters)
            state = evaluator.__getstate__()
        else:
            evaluator.__setstate__(state)
        player.rows[""][...] = 0.5
        rows.append([player.policy.bound.outputs(0).copy() for _ in range(3)])
        evaluator.close()
    np.testing.assert_array_equal(*rows)
    assert np.array(rows).any()


def test_a_round_that_is_tried_has_fewer_steps_than_sequences() -> None:
    with make("recurrent_ppo", n_actors=1, n_steps=512, batch_size=8, executor="auto", workers=2) as model:
        assert model.learn(512).n_updates == 1
