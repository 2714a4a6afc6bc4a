"""A small robot, as packages of LeRobot's register theirs."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class Reach(gymnasium.Env[Any, Any]):
    """A point is moved to another one; episodes end after 5 to 40 steps. What counts as success is not what anybody learns."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    task_description = "reach the target"
    task = "reach"

    def __init__(self, render_mode: str | None = "rgb_array") -> None:
        self.render_mode = render_mode
        box = gymnasium.spaces.Box(-10.0, 10.0, (2,), np.float64)
        self.observation_space = gymnasium.spaces.Dict({"agent_pos": box, "environment_state": box})
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.at, self.target = self.np_random.uniform(-1, 1, (2, 2))
        self.left = int(self.np_random.integers(5, 40))
        return self._seen(), {"is_success": False}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.at = np.clip(self.at + 0.1 * np.asarray(action, np.float64), -10, 10)
        self.left -= 1
        distance = float(np.linalg.norm(self.at - self.target))
        done = self.left <= 0
        return self._seen(), -distance, done, False, {"is_success": done and bool(self.target[0] > 0)}

    def render(self) -> Any:
        picture = np.zeros((32, 32, 3), np.uint8)
        for color, (x, y) in enumerate((self.at, self.target)):
            picture[int(np.clip(16 + 4 * y, 0, 31)), int(np.clip(16 + 4 * x, 0, 31)), color] = 255
        return picture

    def _seen(self) -> dict[str, Any]:
        return {"agent_pos": self.at.copy(), "environment_state": self.target.copy()}


gymnasium.register("gym_reach/Reach-v0", f"{__name__}:Reach", max_episode_steps=40)
