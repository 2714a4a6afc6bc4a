"""PQN on an Atari game with the customary preprocessing, saved every 20 rounds so that it can be killed and resumed.

    python examples/pqn_atari.py --game breakout --steps 10000000 --checkpoint breakout.zip
    python examples/pqn_atari.py --checkpoint breakout.zip --resume        # ends with the same weights as if it had not been killed

Needs the extra `[sb3,atari]`. Most of the time is the learner's: with a GPU,
pass --device cuda.
"""

import argparse
from functools import partial

from reactor_gymnasium import AtariEnv
from reactor_sb3 import PQN, SaveCheckpoint

parser = argparse.ArgumentParser()
parser.add_argument("--game", default="pong")
parser.add_argument("--steps", type=int, default=2_048, help="10,000,000 for a real run")
parser.add_argument("--device", default="cpu")
parser.add_argument("--checkpoint", default="pqn_atari.zip")
parser.add_argument("--resume", action="store_true")
options = parser.parse_args()

if options.resume:
    model = PQN.resume(options.checkpoint, device=options.device, verbose=1)
    steps = model.remaining_timesteps
else:
    model = PQN(
        "CnnPolicy",
        partial(AtariEnv, options.game, episodic_life=True),
        n_actors=4,
        envs_per_actor=2,
        n_steps=128,
        n_minibatches=4,
        n_epochs=2,
        exploration_fraction=0.1,
        exploration_final_eps=0.01,
        device=options.device,
        verbose=1,
        seed=0,
    )
    steps = options.steps
with model:
    model.learn(
        steps, callback=SaveCheckpoint(options.checkpoint, every=20), log_interval=1, reset_num_timesteps=not options.resume
    )
    print(model)
    print(f"{model.num_timesteps:,} steps, weights {model.fingerprint()}")
