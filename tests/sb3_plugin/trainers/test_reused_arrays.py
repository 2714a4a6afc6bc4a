"""Trainers learn the same from environments that use their arrays again, and keep or change actions, as from those that do not."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from places import INLINE, PROCESSES
from reusing_envs import Reusing
from trainers import ROWS, each, new, outcome

EVALUATED: dict[str, Any] = {"evaluate_every": 3, "evaluate_episodes": 2, "evaluate_steps": 5}
PLACES = [INLINE, PROCESSES, PROCESSES | {"workers": 3}]


def trained(algorithm: str, habits: tuple[str, ...], steps: int = 640, **changed: Any) -> dict[str, Any]:
    """What comes of a training, and the transitions that it has learned from."""
    make = partial(Reusing, habits, actions="box" if "Box" in ROWS[algorithm].actions else "choice")
    with new(algorithm, make, **{"n_actors": 2, "envs_per_actor": 2, **EVALUATED, **changed}) as model:
        found = outcome(model.learn(steps, log_interval=None))
        buffer = getattr(model, "replay_buffer", None) or getattr(model, "rollout_buffer", None)
    if buffer is not None:
        found |= {name: getattr(buffer, name).tobytes() for name in ("observations", "actions", "rewards")}
    return found


@pytest.mark.slow
@pytest.mark.timeout(120)
@each
@pytest.mark.parametrize("place", PLACES, ids=["inline", "processes2", "processes3"])
def test_on_any_number_of_workers(algorithm: str, place: dict[str, Any]) -> None:
    habits = ("class observation", "class reward", "class info", "flags", "keeps actions")
    assert trained(algorithm, habits, **place) == trained(algorithm, ())


class Locked(Reusing):
    """Cannot be pickled, so it is saved by the actions since its last seeded reset."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lock = iter(()).__next__  # of a generator, say

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("cannot be pickled")


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("algorithm", ["sac", "td3", "ppo"])
@pytest.mark.parametrize("habit", ["changes actions", "keeps actions", "own observation", "own reward"])
def test_a_resumed_run_of_what_is_saved_by_its_actions(algorithm: str, habit: str, tmp_path: Path) -> None:
    make = partial(Locked, (habit,), actions="box", length=40)
    with new(algorithm, make, n_actors=2, **{**EVALUATED, "evaluate_steps": 7}) as model:
        model.learn(96, log_interval=None)  # which ends in the middle of an evaluation, too
        model.save_checkpoint(tmp_path / "model.zip")
        expected = outcome(model.learn(1000, reset_num_timesteps=False, log_interval=None))
        kind = type(model)
    with kind.resume(tmp_path / "model.zip", workers=1) as resumed:
        assert outcome(resumed.learn(1000, reset_num_timesteps=False, log_interval=None)) == expected
    assert expected["evaluations"]
