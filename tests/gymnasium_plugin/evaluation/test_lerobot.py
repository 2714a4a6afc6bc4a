"""``LeRobotPolicy`` with stand-ins for LeRobot; ``tests/host/test_lerobot_eval.py`` has the same with LeRobot itself."""

from __future__ import annotations

import sys
from collections import deque
from types import ModuleType, SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

from reactor_gymnasium import LeRobotPolicy, evaluate

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def lerobot(monkeypatch: pytest.MonkeyPatch) -> None:
    envs = ModuleType("lerobot.envs")
    envs.preprocess_observation = lambda seen: {"observation.state": torch.from_numpy(seen).float()}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lerobot", ModuleType("lerobot"))
    monkeypatch.setitem(sys.modules, "lerobot.envs", envs)


class Remembering(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Keeps actions in a queue, an average in an object that ``reset`` empties, and a count that is not there before a step."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(actions=3)
        self.average = SimpleNamespace(of=None)
        self.reset()

    def reset(self) -> None:
        self.queue: deque[Any] = deque()
        self.average.of = None

    def select_action(self, batch: dict[str, Any]) -> Any:
        assert not self.training and batch["task"] == ["swing up"] and torch.is_inference_mode_enabled()
        seen = batch["observation.state"]
        assert len(seen) == 1
        self.average.of = seen if self.average.of is None else 0.9 * self.average.of + 0.1 * seen
        self.steps = getattr(self, "steps", 0) + 1
        if not self.queue:
            self.queue.extend(-self.average.of[:, 1:2] * (2 - one) for one in range(self.config.actions))
        return self.queue.popleft() + 0.001 * self.steps


def pendulum() -> Any:
    return gymnasium.make("Pendulum-v1", max_episode_steps=40)


@pytest.mark.slow
def test_an_episode_has_what_a_policy_keeps_for_itself() -> None:
    def asked() -> LeRobotPolicy:
        return LeRobotPolicy(Remembering(), task="swing up", postprocessor=lambda action: action.clamp(-2, 2))

    reports = [
        evaluate(asked(), pendulum, 6, num_envs=1, executor="inline"),
        *(evaluate(asked(), pendulum, 6, num_envs=4, workers=n, executor="threads") for n in (1, 2)),
        evaluate(asked(), pendulum, 6, num_envs=3, workers=2, executor="processes"),
    ]
    assert len({report.fingerprint() for report in reports}) == 1 and "it remembers" in reports[0].policy
    assert len(set(reports[0].returns)) == 6


def test_pipelines_are_called_in_the_order_of_its_loop() -> None:
    called: list[str] = []

    def noted(name: str, kind: type) -> Any:
        def pipeline(given: Any) -> Any:
            assert isinstance(given, kind)
            called.append(name)
            return given

        return pipeline

    policy = LeRobotPolicy(
        Remembering(), noted("before", dict), noted("after", torch.Tensor), noted("env before", dict), noted("env after", dict),
        task="swing up",
    )  # fmt: skip
    action, state = policy.predict(np.ones((1, 3), np.float32))
    again, _ = policy.predict(np.ones((1, 3), np.float32), state)
    assert called == ["env before", "before", "after", "env after"] * 2
    assert action.shape == (1, 1) and isinstance(action, np.ndarray) and not np.array_equal(action, again)


def test_what_is_no_policy_is_refused() -> None:
    with pytest.raises(TypeError, match="policy must be a PreTrainedPolicy of LeRobot, got 3"):
        LeRobotPolicy(3)
