"""A walking robot with four legs, as most people write one: a subclass of Gymnasium's ``MujocoEnv`` with a model of its own."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.mujoco import MujocoEnv

from reactor_gymnasium import register_kernel

__all__ = ["SpiderEnv"]

MODEL = Path(__file__).with_name("spider.xml")


class SpiderEnv(MujocoEnv):  # type: ignore[misc]
    """Walk ahead: eight motors, and 38 numbers are seen, nine of them from sensors in the trunk."""

    metadata = {"render_modes": ["human", "rgb_array", "depth_array"], "render_fps": 40}

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(str(MODEL), 5, spaces.Box(-np.inf, np.inf, (38,), np.float64), **kwargs)

    def _get_obs(self) -> Any:
        low = float(self.data.qpos[2] > 0.3)
        return np.concatenate([self.data.qpos[2:].flat, self.data.qvel.flat, self.data.sensordata.flat, [low, 1.0]])

    def is_healthy(self) -> bool:
        """Whether it stands."""
        z, up = self.data.qpos[2], self.data.sensordata[8]
        return bool(np.isfinite(self.data.qpos).all() and 0.15 < z < 1.0 and up > 0.3)

    def step(self, action: Any) -> Any:
        """Move the motors for five steps of the simulation."""
        before = self.data.body("torso").xpos[:2].copy()
        self.do_simulation(action, self.frame_skip)
        after = self.data.body("torso").xpos[:2].copy()
        vx, vy = (after - before) / self.dt
        cost = 0.05 * np.sum(np.square(action))
        healthy = self.is_healthy()
        reward = vx + 0.5 * healthy - cost - 0.1 * abs(vy)
        info = {"x_position": after[0], "y_position": after[1], "reward_forward": vx, "reward_ctrl": -cost}
        return self._get_obs(), reward, not healthy, False, info

    def reset_model(self) -> Any:
        """Stand, about."""
        qpos = self.init_qpos + self.np_random.uniform(-0.05, 0.05, self.model.nq)
        qvel = self.init_qvel + 0.05 * self.np_random.standard_normal(self.model.nv)
        self.set_state(qpos, qvel)
        return self._get_obs()


gymnasium.register("Spider-v0", SpiderEnv, max_episode_steps=500)
register_kernel(SpiderEnv, "robot.spider_rows:SpiderRows")  # here, so that every process knows it
