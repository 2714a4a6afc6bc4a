"""What does SB3 gain from ``ReactorVecEnv``: stepping, PPO's collecting phase, and PPO from end to end?

``DummyVecEnv`` and ``SubprocVecEnv`` run the same PPO. Torch has one thread, which was never slower here (more get into the way of
the environments' processes).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from common import Contender, arguments, benchmark, compared
from showing import print_table, rate_rows

OURS = "reactor_rl ReactorVecEnv"
CASES = {
    "step, 64 CartPole": ("step", "CartPole-v1", 64),
    "PPO on 16 CartPole": ("learn", "CartPole-v1", 16),
    "PPO's collecting, 16 CartPole": ("collect", "CartPole-v1", 16),
    "step, 8 Pong (make_atari_env)": ("step", "PongNoFrameskip-v4", 8),
    "PPO's collecting, 8 Pong (make_atari_env)": ("collect", "PongNoFrameskip-v4", 8),
    "step, 16 HalfCheetah": ("step", "HalfCheetah-v5", 16),
    "PPO's collecting, 16 HalfCheetah": ("collect", "HalfCheetah-v5", 16),
}
STEPS = 128


def make(env_id: str, n: int, kind: str) -> Any:
    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack

    from reactor_sb3 import ReactorVecEnv

    cls: Any = {"reactor": ReactorVecEnv, "dummy": DummyVecEnv, "subproc": SubprocVecEnv}[kind]
    kwargs = {"start_method": "fork"} if kind == "subproc" else {}
    if "NoFrameskip" in env_id:
        import ale_py
        import gymnasium

        gymnasium.register_envs(ale_py)
        venv = make_atari_env(env_id, n_envs=n, seed=0, vec_env_cls=cls, vec_env_kwargs=kwargs)
        return VecFrameStack(venv, 4)
    return make_vec_env(env_id, n_envs=n, seed=0, vec_env_cls=cls, vec_env_kwargs=kwargs)


class Steps(Contender):
    """Nothing but ``VecEnv.step``, with random actions drawn before."""

    def __init__(self, venv: Any) -> None:
        self.venv = venv
        venv.action_space.seed(0)
        self.actions = [np.array([venv.action_space.sample() for _ in range(venv.num_envs)]) for _ in range(64)]
        venv.reset()

    def go(self, count: int) -> float:
        step, actions = self.venv.step, self.actions
        for number in range(count):
            step(actions[number % 64])
        return count * self.venv.num_envs

    def close(self) -> None:
        self.venv.close()


class Learns(Contender):
    """PPO; with ``collects``, only its collecting phase is timed."""

    def __init__(self, venv: Any, policy: str, collects: bool) -> None:
        from stable_baselines3 import PPO

        self.venv, self.collects = venv, collects
        self.model = PPO(policy, venv, n_steps=STEPS, seed=0, device="cpu")
        _, self.callback = self.model._setup_learn(10**9, None)

    def go(self, count: int) -> float:
        model, size = self.model, STEPS * self.venv.num_envs
        if not self.collects:
            model.learn(count * size, reset_num_timesteps=False, log_interval=None)
            return count * size
        for _ in range(count):
            model.collect_rollouts(model.env, self.callback, model.rollout_buffer, STEPS)
        return count * size

    def close(self) -> None:
        self.venv.close()


def measure(case: str, options: argparse.Namespace) -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)
    what, env_id, n = CASES[case]
    policy = "CnnPolicy" if "NoFrameskip" in env_id else "MlpPolicy"

    def contender(kind: str) -> Callable[[], Contender]:
        def build() -> Contender:
            venv = make(env_id, n, kind)
            return Steps(venv) if what == "step" else Learns(venv, policy, what == "collect")

        return build

    builders = {OURS: contender("reactor"), "SB3 DummyVecEnv": contender("dummy"), "SB3 SubprocVecEnv": contender("subproc")}
    # A slice of PPO is a whole round: collecting and ten epochs.
    return compared(builders, options, seconds=1.5).as_json(OURS)


def show(name: str, found: dict[str, Any]) -> None:
    print_table(name, ["contender", "steps", "ours is", "min-max"], rate_rows(found, OURS))


def main() -> None:
    benchmark(__file__, arguments(__doc__).parse_args(), list(CASES), measure, show, "SB3 on different vector environments")


if __name__ == "__main__":
    main()
