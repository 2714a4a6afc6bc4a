"""``way`` says honestly how an environment can be continued elsewhere, and where it cannot."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from saved_envs import REPLAY, STATE, Make, Walk

from reactor_gymnasium.environments.saving import probe_save_strategy, save_env


class Global(Walk):
    """Draws from numpy's global generator."""

    def draw(self) -> Any:
        return np.random.normal(size=2)


class Shut(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Cannot be stepped."""

    def step(self, action: Any) -> Any:
        raise RuntimeError("never")


@pytest.mark.parametrize("name", STATE)
def test_way_state(name: str) -> None:
    assert probe_save_strategy(STATE[name], 40) == "state"


@pytest.mark.parametrize("name", REPLAY)
def test_way_replay(name: str) -> None:
    assert probe_save_strategy(REPLAY[name], 40) == "replay"


def test_box2d_has_to_be_replayed() -> None:
    pytest.importorskip("Box2D")
    env = gymnasium.make("LunarLander-v3")
    env.reset(seed=0)
    with pytest.raises(TypeError, match="cannot pickle 'SwigPyObject'"):
        save_env(env)
    assert probe_save_strategy(partial(gymnasium.make, "LunarLander-v3"), 40) == "replay"


@pytest.mark.parametrize("make", [Global, lambda: Shut(Walk())])
def test_there_may_be_no_way(make: Make) -> None:
    assert probe_save_strategy(make) is None


def test_way_leaves_no_traces() -> None:
    closed = []

    class Closing(Global):
        def close(self) -> None:
            closed.append(self)
            raise RuntimeError("cannot be closed")

    before = np.random.get_state()[1].copy()  # type: ignore[index, union-attr]
    assert probe_save_strategy(Closing) is None
    assert np.array_equal(np.random.get_state()[1], before)  # type: ignore[index]
    assert len(closed) == len(set(map(id, closed))) == 3


def test_way_lets_an_environment_that_cannot_be_made_say_so() -> None:
    with pytest.raises(ZeroDivisionError):
        probe_save_strategy(lambda: 1 / 0)  # type: ignore[arg-type, return-value]
