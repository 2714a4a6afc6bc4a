"""PPO on an Atari game with the customary preprocessing and settings.

    python examples/ppo_atari.py --game breakout --steps 10000000

Needs the extra `[sb3,atari]`. Most of the time is the learner's, in whose convolutions all cores take part. With a GPU, pass
--device cuda.
"""

import argparse
from functools import partial

from reactor_gymnasium import AtariEnv
from reactor_sb3 import SyncPPO

parser = argparse.ArgumentParser()
parser.add_argument("--game", default="pong")
parser.add_argument("--steps", type=int, default=512, help="10,000,000 for a real run")
parser.add_argument("--device", default="cpu")
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()

model = SyncPPO(
    "CnnPolicy",
    partial(AtariEnv, options.game, episodic_life=True),
    n_actors=8,
    n_steps=min(128, options.steps // 8),
    batch_size=256,
    n_epochs=4,
    learning_rate=lambda left: 2.5e-4 * left,
    clip_range=lambda left: 0.1 * left,
    ent_coef=0.01,
    device=options.device,
    seed=options.seed,
    verbose=1,
)
with model:
    model.learn(options.steps, log_interval=1)
    print(model)
    print(f"{model.num_timesteps:,} steps, weights {model.fingerprint()}")
