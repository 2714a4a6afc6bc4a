"""The spider's observations, rewards and infos, for all rows at once."""

from typing import Any

import numpy as np

from reactor_gymnasium import MujocoRows

__all__ = ["SpiderRows"]


class SpiderRows(MujocoRows):
    """What ``SpiderEnv.step`` computes."""

    def bind(self) -> None:
        self.torso = self.bodies("torso")
        self.sensors = self.field(lambda data: data.sensordata)

    def look(self) -> None:
        self.before = self.torso.now()[:, :2].copy()

    def observe(self) -> None:
        shown, sensors = self.observations, self.sensors.now()
        shown[:, :27] = self.state.now()[:, 2:]
        shown[:, 27:36] = sensors
        shown[:, 36] = self.qpos[:, 2] > 0.3
        shown[:, 37] = 1.0

    def pay(self, actions: Any) -> None:
        self.after = self.torso.now()[:, :2].copy()
        self.vx, vy = ((self.after - self.before) / self.seconds[:, None]).T
        self.cost = 0.05 * np.square(actions).sum(axis=1)
        z, up = self.qpos[:, 2], self.sensors.all[:, 8]
        healthy = np.isfinite(self.qpos).all(axis=1) & (z > 0.15) & (z < 1.0) & (up > 0.3)
        self.rewards[:] = self.vx + 0.5 * healthy - self.cost - 0.1 * np.abs(vy)
        self.terminated[:] = ~healthy

    def tell(self) -> dict[str, Any]:
        x, y = self.after.T
        return {"x_position": x, "y_position": y, "reward_forward": self.vx, "reward_ctrl": -self.cost}
