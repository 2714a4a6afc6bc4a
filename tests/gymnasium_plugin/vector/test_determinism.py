"""One fingerprint of everything that is returned, whatever the executor and the number of workers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from compare import debugged, fingerprint, played, rollout
from envs import Facts, Samples
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from places import INLINE, PROCESSES, THREADS, WAITING

from reactor_gymnasium import ReactorVectorEnv

PLACES = [INLINE, {"executor": "auto"}, THREADS, THREADS | WAITING, PROCESSES, PROCESSES | WAITING]
"""Other numbers of workers are the engine's matter: see tests/test_oracle.py."""
WORKS: dict[str, list[Callable[[], Any]]] = {
    "CartPole": [partial(gymnasium.make, "CartPole-v1", max_episode_steps=8 + i) for i in range(6)],
    "Blackjack": [partial(gymnasium.make, "Blackjack-v1")] * 5,
    "infos": [
        partial(Facts, i, infos=kind) for i, kind in enumerate(["int", "changing", "nested", "object", "long", "array", "string"])
    ],
    "spaces": [
        partial(
            Samples, spaces.Dict(a=spaces.Box(-1, 1, (3,)), b=spaces.Text(4), c=spaces.OneOf([spaces.Discrete(2)])), length=i + 2
        )
        for i in range(5)
    ],
}


CASES = [(work, mode) for work in sorted(WORKS) for mode in AutoresetMode]
"""Some are in the default set: each mode with a work of its own."""


@pytest.mark.parametrize(
    ("work", "mode"), [pytest.param(*case, marks=[pytest.mark.slow] * bool(at % 4)) for at, case in enumerate(CASES)]
)
def test_one_fingerprint(work: str, mode: AutoresetMode, monkeypatch: pytest.MonkeyPatch) -> None:
    play = rollout(11, steps=20)
    expected = fingerprint(played(ReactorVectorEnv(WORKS[work], executor="inline", autoreset_mode=mode), play))
    other = fingerprint(played(ReactorVectorEnv(WORKS[work], executor="inline", autoreset_mode=mode), rollout(12, steps=20)))
    assert other != expected
    debugged(monkeypatch)
    found = {str(place): fingerprint(played(ReactorVectorEnv(WORKS[work], autoreset_mode=mode, **place), play)) for place in PLACES}
    assert set(found.values()) == {expected}, found


def test_the_choice_of_auto_leaves_global_generators_as_they_are() -> None:
    class Drawing(Facts):
        def step(self, action: Any) -> Any:
            np.random.random()
            return super().step(action)

    np.random.seed(3)
    before = np.random.get_state()[1:3]
    with ReactorVectorEnv([lambda: Drawing(0)] * 4, executor="auto", workers=2) as envs:
        assert str(before) == str(np.random.get_state()[1:3])
        assert envs.num_envs == 4
