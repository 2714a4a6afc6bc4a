"""Kernels of MuJoCo's environments, version 4, which differ from version 5 in what they pay, show and tell.

Pusher-v4 has no kernel, for MuJoCo 3 cannot run it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reactor_gymnasium.environments.infos import Group
from reactor_gymnasium.native import mujoco_v5 as v5

__all__ = [
    "AntV4", "HalfCheetahV4", "HopperV4", "HumanoidV4", "HumanoidStandupV4", "InvertedDoublePendulumV4", "InvertedPendulumV4",
    "ReacherV4", "SwimmerV4", "Walker2dV4",
]  # fmt: skip

Array = npt.NDArray[Any]

IMPACT, MOST = "reward_impact", 10


class _Healthy(v5.GymnasiumRows):
    """The reward for being healthy is paid to the end, if an episode ends where health does."""

    def survive(self, healthy: Array) -> Array:
        paid: Array = (healthy | self.env._terminate_when_unhealthy).astype(np.float64) * self.env._healthy_reward
        return paid


class HalfCheetahV4(v5.HalfCheetah):
    module = v5.PACKAGE + "half_cheetah_v4"
    written_from = ("7eb902f5c490",)

    def tell(self) -> dict[str, Array]:
        return {
            "x_position": self.qpos[:, 0], "x_velocity": self.velocity, "reward_run": self.forward, "reward_ctrl": -self.cost,
        }  # fmt: skip


class Walker2dV4(_Healthy, v5.Walker2d):
    module = v5.PACKAGE + "walker2d_v4"
    written_from = ("50004e1e7135",)

    def tell(self) -> dict[str, Array]:
        return {"x_position": self.qpos[:, 0], "x_velocity": self.velocity}


class HopperV4(_Healthy, v5.Hopper):
    module = v5.PACKAGE + "hopper_v4"
    written_from = ("39d44534f8b0",)

    def tell(self) -> dict[str, Array]:
        return {"x_position": self.qpos[:, 0], "x_velocity": self.velocity}


class SwimmerV4(v5.Swimmer):
    module = v5.PACKAGE + "swimmer_v4"
    written_from = ("77398652a441",)

    def tell(self) -> dict[str, Array]:
        vx, vy = self.velocities.T
        return {
            "reward_fwd": self.forward, "reward_ctrl": -self.cost, **self.place(), "x_velocity": vx, "y_velocity": vy,
            "forward_reward": self.forward,
        }  # fmt: skip


class InvertedPendulumV4(v5.InvertedPendulum):
    module = v5.PACKAGE + "inverted_pendulum_v4"
    written_from = ("875be15a1e91",)

    def pay(self, actions: Array) -> None:
        super().pay(actions)
        self.rewards.fill(1.0)

    def tell(self) -> dict[str, Array]:
        return {}


class InvertedDoublePendulumV4(v5.InvertedDoublePendulum):
    module = v5.PACKAGE + "inverted_double_pendulum_v4"
    written_from = ("2ff90335a78e",)
    forces = 3

    def bonus(self) -> Any:
        return 10

    def tell(self) -> dict[str, Array]:
        return {}


class ReacherV4(v5.Reacher):
    module = v5.PACKAGE + "reacher_v4"
    written_from = ("1f2605c03993",)
    axes = 3

    def look(self) -> None:
        self.both.now()
        self.distance = -v5.norms(self.apart())  # it pays for where the finger was before

    def pay(self, actions: Array) -> None:
        self.effort = -v5.sums_of_squares(actions)
        np.add(self.distance, self.effort, out=self.rewards)


class AntV4(_Healthy, v5.Ant):
    module = v5.PACKAGE + "ant_v4"
    written_from = ("823596739dbd",)
    untouched = 0

    def main_body(self) -> str:
        return "torso"

    def touching(self) -> bool:
        return bool(self.env._use_contact_forces)

    def pay(self, actions: Array) -> None:
        self.move(actions)
        self.forward = self.velocities[:, 0]
        costs = self.cost + self.contact if self.touching() else self.cost
        np.subtract(self.forward + self.alive, costs, out=self.rewards)

    def tell(self) -> dict[str, Array]:
        after, (vx, vy) = self.torso.all[:, :2].copy(), self.velocities.T
        return {
            "reward_forward": self.forward, "reward_ctrl": -(self.contact if self.touching() else self.cost),
            "reward_survive": self.alive, "x_position": after[:, 0], "y_position": after[:, 1],
            "distance_from_origin": v5.norms(after), "x_velocity": vx, "y_velocity": vy, "forward_reward": self.forward,
        }  # fmt: skip


class HumanoidV4(_Healthy, v5.Humanoid):
    module = v5.PACKAGE + "humanoid_v4"
    written_from = ("ae1cfe63c4cb",)

    def pieces(self, data: Any) -> list[Array]:
        return [data.cinert, data.cvel, data.qfrc_actuator, data.cfrc_ext]

    def pay(self, actions: Array) -> None:
        self.move()
        np.subtract(self.forward + self.alive, self.cost, out=self.rewards)

    def tell(self) -> dict[str, Array]:
        (x, y), (vx, vy) = self.after.T, self.velocities.T
        return {
            "reward_linvel": self.forward, "reward_quadctrl": -self.cost, "reward_alive": self.alive, "x_position": x,
            "y_position": y, "distance_from_origin": v5.norms(self.after.copy()), "x_velocity": vx, "y_velocity": vy,
            "forward_reward": self.forward,
        }  # fmt: skip


class HumanoidStandupV4(v5.HumanoidStandup):
    module = v5.PACKAGE + "humanoidstandup_v4"
    written_from = ("8ef0271129bb",)

    def pieces(self, data: Any) -> list[Array]:
        return [data.cinert, data.cvel, data.qfrc_actuator, data.cfrc_ext]

    def pay(self, actions: Array) -> None:
        self.up = (self.qpos[:, 2] - 0) / self.ticks
        self.cost = 0.1 * v5.sums_of_squares(self.controls.now())
        impact = 0.5e-6 * v5.sums_of_squares(self.forces.now())
        self.most = impact > MOST
        self.impact = np.where(self.most, MOST, impact)
        self.rewards[...] = self.up - self.cost - self.impact + 1

    def tell(self) -> dict[str, Array]:
        return {"reward_linup": self.up, "reward_quadctrl": -self.cost, IMPACT: -self.impact}

    def infos(self) -> list[Group]:
        groups = super().infos()
        if self.most.any():  # where the impact is the most, it is an int
            for rows, columns in groups:
                if isinstance(columns, dict) and IMPACT in columns:
                    columns[IMPACT] = "mixed", columns[IMPACT][1], self.most[list(rows)]
        return groups

    def final_info(self, row: int) -> dict[str, Any]:
        return {**super().final_info(row), **({IMPACT: -MOST} if self.most[row] else {})}
