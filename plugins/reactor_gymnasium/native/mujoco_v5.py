"""Kernels of MuJoCo's environments, version 5."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from reactor_gymnasium.native.simulated import GatheredField, MujocoRows

__all__ = [
    "Ant", "HalfCheetah", "Hopper", "Humanoid", "HumanoidStandup", "InvertedDoublePendulum", "InvertedPendulum", "Pusher",
    "Reacher", "Swimmer", "Walker2d",
]  # fmt: skip

Array = npt.NDArray[Any]
PACKAGE = "gymnasium.envs.mujoco."


def norms(vectors: Array) -> Array:
    """The length of each, as ``np.linalg.norm`` computes it."""
    found: Array = np.sqrt(np.vecdot(vectors, vectors))
    return found


def squares(numbers: Array) -> Array:
    """``x ** 2`` of each, which is libm's ``pow`` for a number of numpy's, and for an array ``x * x``."""
    return np.array([number**2 for number in numbers])


def sums_of_squares(rows: Array) -> Array:
    """Of each row."""
    sums: Array = np.add.reduce(np.square(rows), axis=1)
    return sums


class GymnasiumRows(MujocoRows):
    """Rows of one of Gymnasium's own environments."""

    skipped: ClassVar[int] = 0
    """Positions that are not observed, if the environment leaves out some."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.title = f"{cls.__name__}-{getattr(cls, 'module', '')[-2:]}"  # of which version

    @property
    def skip(self) -> int:
        """Positions that are not observed."""
        return self.skipped if getattr(self.env, "_exclude_current_positions_from_observation", True) else 0

    def survive(self, healthy: Array) -> Array:
        """The reward for being healthy."""
        paid: Array = healthy * self.env._healthy_reward
        return paid


class HalfCheetah(GymnasiumRows):
    module, owner = PACKAGE + "half_cheetah_v5", "HalfCheetahEnv"
    written_from = ("26ae769ca816",)
    skipped = 1

    def bind(self) -> None:
        self.before = self.field(lambda data: data.qpos[:1])

    def look(self) -> None:
        self.before.now()

    def observe(self) -> None:
        self.observations[...] = self.state.now()[:, self.skip :]

    def pay(self, actions: Array) -> None:
        self.move(actions)
        np.subtract(self.forward, self.cost, out=self.rewards)

    def move(self, actions: Array) -> None:
        """The reward for moving forward, and the cost of control."""
        self.velocity = (self.qpos[:, 0] - self.before.all[:, 0]) / self.seconds
        self.forward = self.env._forward_reward_weight * self.velocity
        self.cost = self.env._ctrl_cost_weight * sums_of_squares(actions)

    def tell(self) -> dict[str, Array]:
        return {
            "x_position": self.qpos[:, 0], "x_velocity": self.velocity, "reward_forward": self.forward, "reward_ctrl": -self.cost,
        }  # fmt: skip


class Walker2d(HalfCheetah):
    module, owner = PACKAGE + "walker2d_v5", "Walker2dEnv"
    written_from = ("061f9c2d1f6e",)

    def observe(self) -> None:
        shown = self.observations
        shown[...] = self.state.now()[:, self.skip :]
        fast = shown[:, len(self.qpos[0]) - self.skip :]
        np.clip(fast, -10, 10, out=fast)

    def healthy(self) -> Array:
        (low, high), (left, right) = self.env._healthy_z_range, self.env._healthy_angle_range
        height, angle = self.qpos[:, 1], self.qpos[:, 2]
        found: Array = (low < height) & (height < high) & (left < angle) & (angle < right)
        return found

    def pay(self, actions: Array) -> None:
        self.move(actions)
        healthy = self.healthy()
        self.alive = self.survive(healthy)
        np.subtract(self.forward + self.alive, self.cost, out=self.rewards)
        self.terminated[...] = ~healthy & self.env._terminate_when_unhealthy

    def tell(self) -> dict[str, Array]:
        return {
            "x_position": self.qpos[:, 0], "z_distance_from_origin": self.qpos[:, 1] - self.env.init_qpos[1],
            "x_velocity": self.velocity, "reward_forward": self.forward, "reward_ctrl": -self.cost, "reward_survive": self.alive,
        }  # fmt: skip


class Hopper(Walker2d):
    module, owner = PACKAGE + "hopper_v5", "HopperEnv"
    written_from = ("121e8bfcdca0",)

    def healthy(self) -> Array:
        low, high = self.env._healthy_state_range
        state = self.state.all[:, 2:]
        within: Array = ((low < state) & (state < high)).all(axis=1)
        return within & super().healthy()


class Swimmer(HalfCheetah):
    module, owner = PACKAGE + "swimmer_v5", "SwimmerEnv"
    written_from = ("044312c4436e",)
    skipped = 2

    def bind(self) -> None:
        self.before = self.field(lambda data: data.qpos[:2])

    def move(self, actions: Array) -> None:
        self.velocities = (self.qpos[:, :2] - self.before.all) / self.seconds[:, None]
        self.forward = self.env._forward_reward_weight * self.velocities[:, 0]
        self.cost = self.env._ctrl_cost_weight * sums_of_squares(actions)

    def place(self) -> dict[str, Array]:
        """Where a row is."""
        x, y = self.qpos[:, :2].T
        return {"x_position": x, "y_position": y, "distance_from_origin": norms(self.qpos[:, :2].copy())}

    def tell(self) -> dict[str, Array]:
        vx, vy = self.velocities.T
        return {**self.place(), "x_velocity": vx, "y_velocity": vy, "reward_forward": self.forward, "reward_ctrl": -self.cost}


class InvertedPendulum(GymnasiumRows):
    module, owner = PACKAGE + "inverted_pendulum_v5", "InvertedPendulumEnv"
    written_from = ("6a8bb42fabd8",)

    def observe(self) -> None:
        self.observations[...] = self.state.now()

    def pay(self, actions: Array) -> None:
        shown = self.observations
        self.terminated[...] = ~np.isfinite(shown).all(axis=1) | (np.abs(shown[:, 1]) > 0.2)
        self.rewards[...] = ~self.terminated

    def tell(self) -> dict[str, Array]:
        return {"reward_survive": self.rewards}


class InvertedDoublePendulum(GymnasiumRows):
    module, owner = PACKAGE + "inverted_double_pendulum_v5", "InvertedDoublePendulumEnv"
    written_from = ("ccd124ca0428",)
    forces = 1

    def bind(self) -> None:
        self.tip = self.field(lambda data: data.site_xpos[0])
        self.force = self.field(lambda data: data.qfrc_constraint[: self.forces])

    def observe(self) -> None:
        self.state.now()
        q, v, force = self.qpos, self.qvel, self.force.now()
        angles = q[:, 1:]
        parts = q[:, :1], np.sin(angles), np.cos(angles), np.clip(v, -10, 10), np.clip(force, -10, 10)
        np.concatenate(parts, axis=1, out=self.observations)

    def pay(self, actions: Array) -> None:
        x, _, y = self.tip.now().T
        np.less_equal(y, 1, out=self.terminated)
        self.far = 0.01 * squares(x) + squares(y - 2)
        self.fast = 1e-3 * squares(self.qvel[:, 1]) + 5e-3 * squares(self.qvel[:, 2])
        self.alive = self.bonus()
        self.rewards[...] = self.alive - self.far - self.fast

    def bonus(self) -> Any:
        """The reward for a pole that stands."""
        return self.env._healthy_reward * ~self.terminated

    def tell(self) -> dict[str, Array]:
        return {"reward_survive": self.alive, "distance_penalty": -self.far, "velocity_penalty": -self.fast}


class Reacher(GymnasiumRows):
    module, owner = PACKAGE + "reacher_v5", "ReacherEnv"
    written_from = ("5c7681379f10",)
    axes = 2

    def bind(self) -> None:
        self.both = self.bodies("fingertip", "target")

    def apart(self) -> Array:
        """From the target to the finger tip."""
        both = self.both.all
        return both[:, :3] - both[:, 3:]

    def observe(self) -> None:
        self.state.now()
        self.both.now()
        theta = self.qpos[:, :2]
        parts = np.cos(theta), np.sin(theta), self.qpos[:, 2:], self.qvel[:, :2], self.apart()[:, : self.axes]
        np.concatenate(parts, axis=1, out=self.observations)

    def pay(self, actions: Array) -> None:
        self.distance = -norms(self.apart()) * self.env._reward_dist_weight
        self.effort = -sums_of_squares(actions) * self.env._reward_control_weight
        np.add(self.distance, self.effort, out=self.rewards)

    def tell(self) -> dict[str, Array]:
        return {"reward_dist": self.distance, "reward_ctrl": self.effort}


class Pusher(GymnasiumRows):
    module, owner = PACKAGE + "pusher_v5", "PusherEnv"
    written_from = ("f96989ea9925",)

    def bind(self) -> None:
        self.places = self.bodies("tips_arm", "object", "goal")

    def observe(self) -> None:
        self.state.now()
        np.concatenate((self.qpos[:, :7], self.qvel[:, :7], self.places.now()), axis=1, out=self.observations)

    def pay(self, actions: Array) -> None:
        arm, thing, goal = self.places.all.reshape(len(actions), 3, 3).transpose(1, 0, 2)
        self.near = -norms(thing - arm) * self.env._reward_near_weight
        self.distance = -norms(thing - goal) * self.env._reward_dist_weight
        self.effort = -sums_of_squares(actions) * self.env._reward_control_weight
        np.add(self.distance + self.effort, self.near, out=self.rewards)

    def tell(self) -> dict[str, Array]:
        return {"reward_dist": self.distance, "reward_ctrl": self.effort, "reward_near": self.near}


class Ant(Swimmer):
    module, owner = PACKAGE + "ant_v5", "AntEnv"
    written_from = ("7688273c4e3b",)
    untouched = 6
    """Forces that are not observed: those of the world."""

    def main_body(self) -> int | str:
        """Number or name of the body whose velocity counts."""
        body: int | str = self.env._main_body
        return body

    def touching(self) -> bool:
        """Whether forces of contacts are observed."""
        return bool(self.env._include_cfrc_ext_in_observation)

    def bind(self) -> None:
        body = self.main_body()
        self.before, self.torso = self.bodies(body), self.bodies(body)
        self.forces = self.field(lambda data: data.cfrc_ext)

    def observe(self) -> None:
        state = self.state.now()[:, self.skip :]
        self.contacts = np.clip(self.forces.now(), *self.env._contact_force_range)
        self.observations[:, : len(state[0])] = state
        if self.touching():
            self.observations[:, len(state[0]) :] = self.contacts[:, self.untouched :]

    def move(self, actions: Array) -> None:
        env, (low, high) = self.env, self.env._healthy_z_range
        state, height = self.state.all, self.state.all[:, 2]
        self.velocities = (self.torso.now()[:, :2] - self.before.all[:, :2]) / self.seconds[:, None]
        healthy = np.isfinite(state).all(axis=1) & (low <= height) & (height <= high)
        self.terminated[...] = ~healthy & env._terminate_when_unhealthy
        self.alive = self.survive(healthy)
        self.cost = env._ctrl_cost_weight * sums_of_squares(actions)
        self.contact = env._contact_cost_weight * sums_of_squares(self.contacts)

    def pay(self, actions: Array) -> None:
        self.move(actions)
        self.forward = self.velocities[:, 0] * self.env._forward_reward_weight
        np.subtract(self.forward + self.alive, self.cost + self.contact, out=self.rewards)

    def tell(self) -> dict[str, Array]:
        return {**super().tell(), "reward_contact": -self.contact, "reward_survive": self.alive}


INCLUDED = (
    "_include_cinert_in_observation", "_include_cvel_in_observation", "_include_qfrc_actuator_in_observation",
    "_include_cfrc_ext_in_observation",
)  # fmt: skip


class HumanoidStandup(GymnasiumRows):
    module, owner = PACKAGE + "humanoidstandup_v5", "HumanoidStandupEnv"
    written_from = ("490b5c522d7a",)
    skipped = 2

    def bind(self) -> None:
        self.forces, self.controls = self.field(lambda data: data.cfrc_ext), self.field(lambda data: data.ctrl)
        self.tendons = [self.field(lambda data: data.ten_length), self.field(lambda data: data.ten_velocity)]
        self.seen = self.field(lambda data: [data.qpos[self.skip :], data.qvel, *self.pieces(data)])

    def pieces(self, data: Any) -> list[Array]:
        """Observations besides the state."""
        parts = data.cinert[1:], data.cvel[1:], data.qfrc_actuator[6:], data.cfrc_ext[1:]
        return [part for part, name in zip(parts, INCLUDED, strict=True) if getattr(self.env, name)]

    def observe(self) -> None:
        self.state.now()
        self.observations[...] = self.seen.now()

    def pay(self, actions: Array) -> None:
        env = self.env
        self.up = (self.qpos[:, 2] - 0) / self.ticks
        self.cost = env._ctrl_cost_weight * sums_of_squares(self.controls.now())
        self.impact = np.clip(env._impact_cost_weight * sums_of_squares(self.forces.now()), *env._impact_cost_range)
        self.rewards[...] = self.up - self.cost - self.impact + 1

    def tell(self) -> dict[str, Array]:
        x, y, z = self.qpos[:, :3].T
        return {
            "x_position": x, "y_position": y, "z_distance_from_origin": z - self.env.init_qpos[2],
            **self.stretched(), "reward_linup": self.up, "reward_quadctrl": -self.cost, "reward_impact": -self.impact,
        }  # fmt: skip

    def stretched(self) -> dict[str, Array]:
        """Lengths and velocities of the tendons."""
        length, velocity = [tendons.now().copy() for tendons in self.tendons]
        return {"tendon_length": length, "tendon_velocity": velocity}


class Humanoid(HumanoidStandup):
    module, owner = PACKAGE + "humanoid_v5", "HumanoidEnv"
    written_from = ("8be90eda8a3e",)

    def bind(self) -> None:
        super().bind()
        envs: Any = self.envs
        self.mass, self.centers = GatheredField([[env.model.body_mass] for env in envs]), self.field(lambda data: data.xipos)

    def center(self) -> Array:
        """Where each row's center of mass is."""
        mass, n = self.mass.now(), len(self.envs)
        weighted = np.sum(mass[:, :, None] * self.centers.now().reshape(n, -1, 3), axis=1)
        center: Array = (weighted / mass.sum(axis=1)[:, None])[:, :2]
        return center

    def look(self) -> None:
        self.before = self.center()

    def move(self) -> None:
        """The sum of rewards and costs: moving forward, being healthy, control and contacts."""
        env, (low, high) = self.env, self.env._healthy_z_range
        self.after = self.center()
        self.velocities = (self.after - self.before) / self.seconds[:, None]
        self.forward = env._forward_reward_weight * self.velocities[:, 0]
        healthy = (low < self.qpos[:, 2]) & (self.qpos[:, 2] < high)
        self.terminated[...] = ~healthy & env._terminate_when_unhealthy
        self.alive = self.survive(healthy)
        self.cost = env._ctrl_cost_weight * sums_of_squares(self.controls.now())

    def pay(self, actions: Array) -> None:
        self.move()
        contact = self.env._contact_cost_weight * sums_of_squares(self.forces.now())
        self.contact = np.clip(contact, *self.env._contact_cost_range)
        np.subtract(self.forward + self.alive, self.cost + self.contact, out=self.rewards)

    def tell(self) -> dict[str, Array]:
        (x, y), (vx, vy) = self.qpos[:, :2].T, self.velocities.T
        return {
            "x_position": x, "y_position": y, **self.stretched(), "distance_from_origin": norms(self.qpos[:, :2].copy()),
            "x_velocity": vx, "y_velocity": vy, "reward_survive": self.alive, "reward_forward": self.forward,
            "reward_ctrl": -self.cost, "reward_contact": -self.contact,
        }  # fmt: skip
