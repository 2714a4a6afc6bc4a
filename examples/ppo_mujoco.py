"""PPO on a MuJoCo task with the settings that RL Baselines3 Zoo has tuned for HalfCheetah.

    python examples/ppo_mujoco.py --steps 1000000

Needs the extra `[sb3]` and `gymnasium[mujoco]`. Four actors step four environments each; the networks, which are dense, learn by
hand-derived gradients.
"""

import argparse

from torch import nn

from reactor_sb3 import SyncPPO

parser = argparse.ArgumentParser()
parser.add_argument("--env", default="HalfCheetah-v5")
parser.add_argument("--steps", type=int, default=2_048, help="1,000,000 for a real run")
parser.add_argument("--workers", type=int, default=None, help="changes the time that it takes, and nothing else")
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()

model = SyncPPO(
    "MlpPolicy",
    options.env,
    n_actors=4,
    envs_per_actor=4,
    n_steps=min(512, options.steps // 16),
    batch_size=64,
    n_epochs=20,
    gamma=0.98,
    gae_lambda=0.92,
    learning_rate=2.0633e-5,
    ent_coef=0.000401762,
    clip_range=0.1,
    max_grad_norm=0.8,
    vf_coef=0.58096,
    policy_kwargs={
        "log_std_init": -2,
        "ortho_init": False,
        "activation_fn": nn.ReLU,
        "net_arch": {"pi": [256, 256], "vf": [256, 256]},
    },
    workers=options.workers,
    seed=options.seed,
    verbose=1,
)
with model:
    model.learn(options.steps, log_interval=1)
    print(model)
    print(f"{model.num_timesteps:,} steps, weights {model.fingerprint()}")
