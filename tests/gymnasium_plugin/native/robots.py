"""Robots of users, and their rows."""

from __future__ import annotations

import sys
from collections import deque
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.mujoco import MujocoEnv

from reactor_gymnasium import MujocoRows, register_kernel

if (examples := str(Path(__file__).parents[3] / "examples")) not in sys.path:
    sys.path.insert(0, examples)

from robot.spider import MODEL, SpiderEnv
from robot.spider_rows import SpiderRows

__all__ = ["Follower", "FollowerRows", "Forgetful", "ForgetfulRows", "Hoarder", "Untold", "Wrong", "WrongRows"]


class Follower(MujocoEnv):  # type: ignore[misc]
    """A spider that follows commands, faster ones if it has stood: it remembers its last action and how long it has stood,
    is pushed at random, ends by a clock of its own, weighs something else in each episode, moves by targets of its joints, adds up
    misses from an int on, and is seen in float32.
    """

    metadata = {"render_modes": ["human", "rgb_array", "depth_array"], "render_fps": 40}

    def __init__(self, gain: float = 4.0) -> None:
        self.gain, self.pose, self.weights = gain, np.linspace(-0.2, 0.2, 8), {"speed": 2.0, "smooth": [0.1, 0.2]}
        self.command, self.last_action, self.stood, self.level, self.missed = np.zeros(2), np.zeros(8, np.float32), 0, 1, 0
        super().__init__(str(MODEL), 5, spaces.Box(-np.inf, np.inf, (37,), np.float32))
        self.mass = self.model.body_mass.copy()

    def _get_obs(self) -> Any:
        parts = self.data.qpos[2:], self.data.qvel, self.last_action, self.command
        return np.concatenate(parts).astype(np.float32)

    def _get_reset_info(self) -> dict[str, Any]:
        return {"command": self.command.copy()}

    def step(self, action: Any) -> Any:
        self.data.qfrc_applied[0] = 30.0 if self.np_random.random() < 0.1 else 0.0
        self.do_simulation(self.gain * (self.pose + action - self.data.qpos[7:]), self.frame_skip)
        miss = self.data.qvel[:2] - self.command
        change = np.square(action - self.last_action).sum()
        reward = float(np.exp(-self.weights["speed"] * (miss * miss).sum()) - self.weights["smooth"][0] * change)
        self.last_action = action.copy()
        self.missed = self.missed + abs(miss[0])
        up = bool(self.data.qpos[2] > 0.2)
        self.stood = self.stood + 1 if up else 0
        info = {"up": up, "stood": self.stood, "miss": miss, "change": change}
        return self._get_obs(), reward, not up, self.stood >= 13, info

    def reset_model(self) -> Any:
        self.model.body_mass[:] = self.mass * self.np_random.uniform(0.5, 1.5, len(self.mass))
        self.level = self.level + 1 if self.stood == 13 else 1
        self.command, self.last_action = self.level * self.np_random.uniform(-1, 1, 2), np.zeros(8, np.float32)
        self.stood = self.missed = 0
        self.set_state(self.init_qpos + self.np_random.uniform(-0.1, 0.1, self.model.nq), self.init_qvel)
        return self._get_obs()


class FollowerRows(MujocoRows):
    """What ``Follower.step`` does."""

    def bind(self) -> None:
        self.pushes = [data.qfrc_applied[:1] for _, data, _ in self.simulations]

    def look(self) -> None:
        for row in np.flatnonzero(self.moving):
            self.pushes[row][0] = 30.0 if self.envs[row].np_random.random() < 0.1 else 0.0
        self.state.now()

    def control(self, actions: Any) -> Any:
        return self.env.gain * (self.env.pose + actions - self.qpos[:, 7:])

    def observe(self) -> None:
        self.shown = self.state.now()[:, 2:]

    def pay(self, actions: Any) -> None:
        weights, last = self.env.weights, self.columns["last_action"]
        self.miss = self.qvel[:, :2] - self.columns["command"]
        self.change = np.square(actions - last).sum(axis=1)
        self.rewards[:] = np.exp(-weights["speed"] * (self.miss * self.miss).sum(axis=1)) - weights["smooth"][0] * self.change
        last[:] = actions
        self.columns["missed"] += np.abs(self.miss[:, 0])
        self.up, stood = self.qpos[:, 2] > 0.2, self.columns["stood"]
        stood[:] = np.where(self.up, stood + 1, 0)
        self.terminated[:], self.truncated[:] = ~self.up, stood >= 13
        np.concatenate([self.shown, last, self.columns["command"]], axis=1, out=self.observations, casting="same_kind")

    def tell(self) -> dict[str, Any]:
        return {"up": self.up, "stood": self.columns["stood"], "miss": self.miss, "change": self.change}


register_kernel(Follower, FollowerRows)


class Wrong(SpiderEnv):
    """A spider whose rows forget a cost."""


class WrongRows(SpiderRows):
    """It pays too much for being healthy, by so little that one has to look at bits."""

    def pay(self, actions: Any) -> None:
        super().pay(actions)
        self.rewards *= 1 + 2.0**-52


register_kernel(Wrong, WrongRows)


class Hoarder(SpiderEnv):
    """A spider that keeps its last observations."""

    def __init__(self) -> None:
        self.kept = deque[Any](maxlen=3)
        super().__init__()

    def step(self, action: Any) -> Any:
        found = super().step(action)
        self.kept.append(found[0])
        return found


register_kernel(Hoarder, SpiderRows)


class Untold(SpiderEnv):
    """A spider of a class that has no rows."""


class Forgetful(SpiderEnv):
    """A spider that counts its steps in place."""

    def __init__(self) -> None:
        self.counts = np.zeros(2, np.int64)
        super().__init__()

    def step(self, action: Any) -> Any:
        self.counts[0] += 1
        return super().step(action)


class ForgetfulRows(SpiderRows):
    """They do not count."""


register_kernel(Forgetful, ForgetfulRows)

for kind in (Follower, Wrong, Hoarder, Untold, Forgetful):
    gymnasium.register(f"{kind.__name__}-v0", kind, max_episode_steps=30)
