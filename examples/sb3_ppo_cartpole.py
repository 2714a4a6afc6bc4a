"""SB3's PPO on CartPole, with one line changed: the environments step on all cores.

    python examples/sb3_ppo_cartpole.py

Needs the extra `[sb3]`. The weights are those that `DummyVecEnv` gives, bit for bit; the example trains on both and compares.
"""

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv

from reactor_sb3 import ReactorVecEnv

# A network as small as this gains nothing from more threads, and on a busy machine they wait for each other: this took minutes
# then, instead of seconds.
torch.set_num_threads(1)


def train(vec_env_cls):
    env = make_vec_env("CartPole-v1", n_envs=8, seed=0, vec_env_cls=vec_env_cls)  # was: vec_env_cls=SubprocVecEnv
    model = PPO("MlpPolicy", env, n_steps=128, batch_size=256, seed=0, device="cpu")
    model.learn(10_000)
    mean, _ = evaluate_policy(model, env, n_eval_episodes=20)
    env.close()
    return model.policy.state_dict(), mean


ours, mean = train(ReactorVecEnv)
theirs, _ = train(DummyVecEnv)
print(f"mean return of 20 episodes after 10,000 steps: {mean:.1f}")
print("the same weights as on DummyVecEnv:", all(torch.equal(ours[name], theirs[name]) for name in theirs))
