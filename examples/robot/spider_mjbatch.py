"""The spider as a vector environment over mjbatch, which steps all rows by one call in threads of its own.

Its class is rewritten here, and has the bits of ``SpiderEnv`` in a ``SyncVectorEnv``, if each reset is done with care: `begin`.
"""

from typing import Any

import mujoco
import numpy as np
from gymnasium import spaces
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from mjbatch import Batch

from robot.spider import MODEL

__all__ = ["SpiderBatch"]

FRAMES = 5


class SpiderBatch(VectorEnv[Any, Any, Any]):
    """Rows of spiders; an episode that is over begins again in the next step.

    Args:
        num_envs: How many.
        threads: How many threads simulate them.
        limit: Steps after which an episode is truncated.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, num_envs: int, threads: int = 1, limit: int = 500) -> None:
        model = self.model = mujoco.MjModel.from_xml_path(str(MODEL))
        self.num_envs, self.limit, self.seconds = num_envs, limit, model.opt.timestep * FRAMES
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (38,), np.float64)
        self.single_action_space = spaces.Box(-1.0, 1.0, (model.nu,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.batch = Batch(model, num_envs, num_threads=threads)
        bind = self.batch.bind
        self.qpos, self.qvel, self.ctrl, self.state = bind("qpos"), bind("qvel"), bind("ctrl"), bind("state")
        self.places, self.sensors, self.torso = bind("xpos"), bind("sensordata"), model.body("torso").id
        self.generators = [seeding.np_random(None)[0] for _ in range(num_envs)]
        self.left, self.over = np.full(num_envs, limit), np.zeros(num_envs, np.bool_)
        data = mujoco.MjData(model)
        self.fresh = np.empty(self.batch.nstate)  # as mj_resetData leaves it
        mujoco.mj_getState(model, data, self.fresh, mujoco.mjtState.mjSTATE_INTEGRATION)
        self.init_qpos, self.init_qvel = data.qpos.copy(), data.qvel.copy()

    def begin(self, rows: Any) -> None:
        """Begin episodes with the bits of ``MujocoEnv.reset``.

        ``Batch.reset`` runs ``mj_forward`` in the first pose, which leaves another warm start: observations would differ from the
        first step on. A fresh state, then positions and velocities, then ``forward`` is what ``MujocoEnv`` does.
        """
        self.state[rows] = self.fresh
        for row in rows:
            random = self.generators[row]
            self.qpos[row] = self.init_qpos + random.uniform(-0.05, 0.05, self.model.nq)
            self.qvel[row] = self.init_qvel + 0.05 * random.standard_normal(self.model.nv)
        self.batch.forward(rows)
        self.left[rows] = self.limit

    def observe(self) -> Any:
        """What all rows see."""
        low = (self.qpos[:, 2:3] > 0.3).astype(np.float64)
        return np.concatenate([self.qpos[:, 2:], self.qvel, self.sensors, low, np.ones_like(low)], axis=1)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in every row."""
        if seed is not None:
            seeds = [seed + row for row in range(self.num_envs)] if isinstance(seed, int) else seed
            self.generators = [seeding.np_random(one)[0] for one in seeds]
        self.begin(np.arange(self.num_envs))
        self.over[:] = False
        return self.observe(), {}

    def step(self, actions: Any) -> Any:
        """Step all rows, but for those that begin again."""
        pending, moving = np.flatnonzero(self.over), np.flatnonzero(~self.over)
        before = self.places[:, self.torso, :2].copy()
        self.ctrl[:] = actions
        if len(pending):
            self.batch.step(moving, nstep=FRAMES)
        else:
            self.batch.step(nstep=FRAMES)
        after = self.places[:, self.torso, :2].copy()
        vx, vy = ((after - before) / self.seconds).T
        cost = 0.05 * np.square(actions).sum(axis=1)
        z, up = self.qpos[:, 2], self.sensors[:, 8]
        healthy = np.isfinite(self.qpos).all(axis=1) & (z > 0.15) & (z < 1.0) & (up > 0.3)
        rewards = vx + 0.5 * healthy - cost - 0.1 * np.abs(vy)
        self.left -= 1
        terminated, truncated = ~healthy, self.left <= 0
        rewards[pending], terminated[pending], truncated[pending] = 0.0, False, False
        if len(pending):
            self.begin(pending)
        self.over = terminated | truncated
        infos = {"x_position": after[:, 0], "y_position": after[:, 1], "reward_forward": vx, "reward_ctrl": -cost}
        return self.observe(), rewards, terminated, truncated, infos
