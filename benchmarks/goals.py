"""What trainers are to reach, and with which settings: those of ``time_to_reward.py``."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from contrib_envs import ConnectFour, masked_cartpole, without_velocities
from stable_baselines3.common.torch_layers import NatureCNN
from stable_baselines3.common.utils import LinearSchedule
from torch import nn
from training import CARTPOLE, DQN_SETTINGS, Case, jax_of, ours_of, theirs_of, vec_env_of, zoo_half_cheetah

Maker = Callable[[int], Any]
Score = Callable[[Any], float]


class Goal(NamedTuple):
    """What is to be reached.

    Attributes:
        env: An id, or a name.
        reward: Mean return.
        episodes: Over how many.
        every: Steps between two evaluations.
        limit: Steps after which a trainer is given up.
        patience: Seconds after which it is, too.
        threads: Of torch, for SB3.
        trainers: Makes each trainer, of a seed.
        make: Makes an environment, if no id does.
        score: Mean return of a model, if SB3's ``evaluate_policy`` does not tell it.
    """

    env: str
    reward: float
    episodes: int
    every: int
    limit: int
    patience: float
    threads: int
    trainers: dict[str, Maker]
    make: Callable[[], Any] | None = None
    score: Score | None = None


def pair(case: Case, kind: str = "DummyVecEnv", says: str = "") -> dict[str, Maker]:
    """Our trainer and SB3's or sb3-contrib's, with the same settings."""
    return {
        f"Sync{case.algorithm}{says}": lambda seed: ours_of(case, seed),
        f"{case.host} {case.algorithm}{says}": lambda seed: theirs_of(case, kind, seed),
    }


def of_sbx(case: Case) -> dict[str, Maker]:
    """SBX's trainer, with the same settings."""
    return {f"SBX {case.algorithm}": lambda seed: jax_of(case, "DummyVecEnv", seed)}


# ---------------------------------------------------------------------- CartPole

PPO_SETTINGS: dict[str, Any] = {
    "n_steps": 32, "batch_size": 256, "n_epochs": 20, "gamma": 0.98, "gae_lambda": 0.8, "learning_rate": 1e-3,
}  # fmt: skip


def pqn(seed: int) -> Any:
    """With the settings of the examples."""
    from reactor_sb3 import PQN
    from reactor_sb3.algorithms.pqn import Annealed

    return PQN(
        "MlpPolicy", CARTPOLE, n_actors=4, envs_per_actor=8, n_steps=32, q_lambda=0.95, learning_rate=Annealed(1e-3),
        exploration_fraction=0.5, seed=seed,
    )  # fmt: skip


def zoo_dqn(seed: int) -> Any:
    """What RL Baselines3 Zoo has tuned for CartPole."""
    from stable_baselines3 import DQN

    return DQN(
        "MlpPolicy", CARTPOLE, learning_rate=2.3e-3, batch_size=64, buffer_size=100_000, learning_starts=1000, gamma=0.99,
        target_update_interval=10, train_freq=256, gradient_steps=128, exploration_fraction=0.16 * 50_000 / 200_000,
        exploration_final_eps=0.04, policy_kwargs={"net_arch": [256, 256]}, seed=seed, device="cpu",
    )  # fmt: skip


def cartpole() -> Goal:
    dqn = Case("DQN", "MlpPolicy", CARTPOLE, 8, DQN_SETTINGS)
    ppo = Case("PPO", "MlpPolicy", CARTPOLE, 8, PPO_SETTINGS)
    trainers = {
        **pair(dqn),
        **of_sbx(dqn),
        **pair(ppo),
        **of_sbx(ppo),
        "PQN": pqn,
        "SB3 DQN, the zoo's settings": zoo_dqn,
    }
    return Goal(CARTPOLE, 475.0, 20, 2_048, 200_000, math.inf, 1, trainers)


# ---------------------------------------------------------------------- continuous control, with the zoo's settings


def noise_of(env: str) -> Any:
    """TD3's action noise, as the zoo has it."""
    import gymnasium
    import numpy as np
    from stable_baselines3.common.noise import NormalActionNoise

    size = gymnasium.make(env).action_space.shape[0]
    return NormalActionNoise(np.zeros(size), np.full(size, 0.1))


ONE: dict[str, Any] = {"train_freq": 1, "gradient_steps": 1}
"""An update a step."""
MUJOCO: dict[str, dict[str, Any]] = {
    "SAC": {**ONE, "learning_starts": 10_000},
    "TD3": {**ONE, "learning_starts": 10_000, "learning_rate": 1e-3, "batch_size": 256, "policy_kwargs": {"net_arch": [400, 300]}},
}
PENDULUM: dict[str, dict[str, Any]] = {
    "SAC": {**ONE, "learning_rate": 1e-3},
    "TD3": {
        **ONE, "learning_rate": 1e-3, "learning_starts": 10_000, "gamma": 0.98, "buffer_size": 200_000,
        "policy_kwargs": {"net_arch": [400, 300]},
    },
}  # fmt: skip
PENDULUM_PPO: dict[str, Any] = {
    "n_steps": 1024, "gae_lambda": 0.95, "gamma": 0.9, "n_epochs": 10, "ent_coef": 0.0, "learning_rate": 1e-3, "clip_range": 0.2,
    "use_sde": True, "sde_sample_freq": 4,
}  # fmt: skip
DOUBLE_PENDULUM_PPO: dict[str, Any] = {
    "n_steps": 128, "batch_size": 512, "gamma": 0.98, "learning_rate": 0.000155454, "ent_coef": 1.05057e-06, "clip_range": 0.4,
    "n_epochs": 10, "gae_lambda": 0.8, "max_grad_norm": 0.5, "vf_coef": 0.695929,
}  # fmt: skip


def hopper_ppo() -> dict[str, Any]:
    return {
        **zoo_half_cheetah(), "batch_size": 32, "gamma": 0.999, "learning_rate": 9.80828e-05, "ent_coef": 0.00229519,
        "clip_range": 0.2, "n_epochs": 5, "gae_lambda": 0.99, "max_grad_norm": 0.7, "vf_coef": 0.835671,
    }  # fmt: skip


def continuous(
    env: str, reward: float, limit: int, every: int, settings: dict[str, dict[str, Any]], ppo: Case, ours: dict[str, Maker]
) -> Goal:
    """SAC, TD3 and PPO in pairs, SAC's delayed variant, and what suits ours best."""
    sac = Case("SAC", "MlpPolicy", env, 1, settings["SAC"])
    td3 = Case("TD3", "MlpPolicy", env, 1, {**settings["TD3"], "action_noise": noise_of(env)})
    trainers = {
        **{f"Sync{algorithm}, our settings": made for algorithm, made in ours.items()},
        **pair(sac),
        **of_sbx(sac),
        "SyncSAC, split=True": lambda seed: ours_of(sac, seed, split=True),
        **pair(td3),
        **of_sbx(td3),
        "SyncPPO": lambda seed: ours_of(ppo, seed),
        "SB3 PPO on ReactorVecEnv": lambda seed: theirs_of(ppo, "ReactorVecEnv", seed),
    }
    return Goal(env, reward, 10, every, limit, math.inf, 2, trainers)


def far(goal: Goal, patience: float = math.inf) -> Goal:
    """A goal that takes SB3 minutes for each seed: without TD3, which took longest wherever it was tried."""
    trainers = {name: made for name, made in goal.trainers.items() if "TD3" not in name and "split" not in name}
    return goal._replace(patience=patience, trainers=trainers)


def own(algorithm: str, env: str, n_envs: int, **settings: Any) -> dict[str, Maker]:
    """What suits ours best, by algorithm."""
    return {algorithm: lambda seed: ours_of(Case(algorithm, "MlpPolicy", env, n_envs, settings), seed)}


# ---------------------------------------------------------------------- LunarLander, and what sb3-contrib's are for


def lunar_lander() -> Goal:
    zoo = {"n_steps": 1024, "batch_size": 64, "gae_lambda": 0.98, "gamma": 0.999, "n_epochs": 4, "ent_coef": 0.01}
    lander = "LunarLander-v3"
    ppo = Case("PPO", "MlpPolicy", lander, 16, zoo)
    quick = {**zoo, "n_steps": 512, "batch_size": 128, "n_epochs": 6, "learning_rate": 7e-4}
    trainers = {**pair(ppo), **of_sbx(ppo), "SyncPPO, our settings": own("PPO", lander, 16, **quick)["PPO"]}
    return Goal(lander, 200.0, 20, 16_384, 2_000_000, math.inf, 1, trainers)


RECURRENT: dict[str, Any] = {
    "n_steps": 128, "batch_size": 256, "n_epochs": 10, "gae_lambda": 0.95, "learning_rate": 1e-3,
    "policy_kwargs": {"lstm_hidden_size": 64, "net_arch": [64], "ortho_init": False},
}  # fmt: skip
MASKED: dict[str, Any] = {"n_steps": 64, "batch_size": 128, "learning_rate": 1e-3, "ent_coef": 0.01}


def recurrent() -> Goal:
    case = Case("RecurrentPPO", "MlpLstmPolicy", without_velocities, 8, RECURRENT)
    return Goal("CartPole without velocities", 475.0, 20, 4_096, 500_000, 300.0, 1, pair(case), without_velocities)


def masked(title: str, make: Callable[[], Any], reward: float, episodes: int) -> Goal:
    case = Case("MaskablePPO", "MlpPolicy", make, 8, MASKED)
    score = partial(of_masked, make, episodes)
    return Goal(title, reward, episodes, 2_048, 500_000, 300.0, 1, pair(case), make, score)


def of_masked(env: Callable[[], Any], episodes: int, model: Any) -> float:
    """Mean return of a policy that is told what is forbidden."""
    from sb3_contrib.common.maskable.evaluation import evaluate_policy
    from stable_baselines3.common.env_util import make_vec_env

    return float(evaluate_policy(model, make_vec_env(env, 1, seed=10_000), episodes)[0])


# ---------------------------------------------------------------------- games of Atari, on a processor


ATARI: dict[str, Any] = {
    "n_steps": 128, "batch_size": 256, "n_epochs": 4, "learning_rate": LinearSchedule(2.5e-4, 0.0, 1.0),
    "clip_range": LinearSchedule(0.1, 0.0, 1.0), "ent_coef": 0.01, "vf_coef": 0.5,
}  # fmt: skip
"""What RL Baselines3 Zoo has for PPO."""


class NarrowCnn(NatureCNN):
    """SB3's, with half the channels: a third of the multiplications."""

    def __init__(self, observation_space: Any, features_dim: int = 256) -> None:
        super().__init__(observation_space, features_dim)
        self.cnn = nn.Sequential(
            nn.Conv2d(observation_space.shape[0], 16, 8, 4), nn.ReLU(), nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.Conv2d(32, 32, 3, 1),
            nn.ReLU(), nn.Flatten(),
        )  # fmt: skip
        self.linear = nn.Sequential(nn.Linear(32 * 7 * 7, features_dim), nn.ReLU())


def atari(game: str, reward: float, every: int, **settings: Any) -> Goal:
    """With an hour for each training; ``settings`` are those of our own."""
    case = Case("PPO", "CnnPolicy", game, 8, ATARI)
    narrow = {"n_steps": 128, "n_epochs": 4, "clip_range": 0.1, "policy_kwargs": {"features_extractor_class": NarrowCnn}}
    ours = Case("PPO", "CnnPolicy", game, 8, {**narrow, **settings})
    trainers = {"SyncPPO, our settings": lambda seed: ours_of(ours, seed), **pair(case, "SubprocVecEnv"), **of_sbx(case)}
    return Goal(game, reward, 10, every, 10_000_000, 3_600.0, 2, trainers, score=partial(of_atari, game, 10))


def pong() -> Goal:
    return atari(
        "PongNoFrameskip-v4", 18.0, 50_000, batch_size=128, learning_rate=LinearSchedule(5e-4, 1e-4, 0.08), ent_coef=0.003
    )  # fmt: skip


def breakout() -> Goal:
    return atari(
        "BreakoutNoFrameskip-v4", 100.0, 100_000, batch_size=256, learning_rate=LinearSchedule(5e-4, 1e-4, 0.3), ent_coef=0.01,
        n_actors=2,
    )  # fmt: skip


def of_atari(game: str, episodes: int, model: Any) -> float:
    """Mean score of whole games, played side by side."""
    from stable_baselines3.common.evaluation import evaluate_policy

    env = vec_env_of(Case("PPO", "CnnPolicy", game, episodes, {}), "DummyVecEnv", 10_000)
    return float(evaluate_policy(model, env, episodes)[0])


def update_a_step(algorithm: str) -> Case:
    """Eight HalfCheetah and the algorithm's own defaults, but for a later start and as many updates as steps."""
    return Case(algorithm, "MlpPolicy", "HalfCheetah-v5", 8, {"train_freq": 1, "gradient_steps": 8, "learning_starts": 10_000})


def half_cheetah_contrib() -> Goal:
    cases = [update_a_step(algorithm) for algorithm in ("SAC", "TQC", "CrossQ")]
    trainers = {name: maker for case in cases for name, maker in {**pair(case), **of_sbx(case)}.items()}
    return Goal("HalfCheetah-v5", 3_000.0, 10, 5_000, 1_000_000, 900.0, 2, trainers)


# ---------------------------------------------------------------------- goals that hindsight finds


def fetch_reach() -> Any:
    """A robot's arm that is to reach places; needs gymnasium-robotics, and of MuJoCo a version that it knows."""
    import gymnasium
    import gymnasium_robotics

    gymnasium.register_envs(gymnasium_robotics)
    return gymnasium.make("FetchReach-v4")


def hindsight() -> Goal:
    """With what RL Baselines3 Zoo had for it; what counts is how often the arm is there when an episode ends."""
    from stable_baselines3 import HerReplayBuffer

    settings = {
        **ONE, "replay_buffer_class": HerReplayBuffer, "replay_buffer_kwargs": {"n_sampled_goal": 4}, "learning_starts": 1_000,
        "batch_size": 256, "gamma": 0.95, "learning_rate": 1e-3, "policy_kwargs": {"net_arch": [64, 64]},
    }  # fmt: skip
    trainers = pair(Case("SAC", "MultiInputPolicy", fetch_reach, 1, settings))
    return Goal("FetchReach-v4", 0.95, 40, 500, 50_000, 600.0, 1, trainers, fetch_reach, partial(of_reached, fetch_reach, 40))


def of_reached(env: Callable[[], Any], episodes: int, model: Any) -> float:
    """Share of episodes that end where they should, played side by side."""
    import numpy as np
    from stable_baselines3.common.env_util import make_vec_env

    envs = make_vec_env(env, episodes, seed=10_000)
    observations, over = envs.reset(), np.zeros(episodes, np.bool_)
    reached = over.copy()
    while not over.all():
        observations, _, dones, infos = envs.step(model.predict(observations, deterministic=True)[0])
        reached |= dones & ~over & [bool(info["is_success"]) for info in infos]
        over |= dones
    envs.close()
    return float(reached.mean())


def goals() -> dict[str, Callable[[], Goal]]:
    """By the names of their result files, without ``reward_``."""
    import goals_of_agents  # which imports this file

    pendulum, double, cheetah, hopper = "Pendulum-v1", "InvertedDoublePendulum-v5", "HalfCheetah-v5", "Hopper-v5"
    small = {"train_freq": 1, "policy_kwargs": {"net_arch": [64, 64]}}
    quick = {**small, "gradient_steps": 4, "learning_rate": 2e-3, "batch_size": 256, "learning_starts": 2_000}
    swing = {**small, "gradient_steps": 1, "learning_rate": 2e-3, "batch_size": 128}
    balance = {**small, "gradient_steps": 1, "learning_rate": 3e-3, "batch_size": 64, "learning_starts": 500}
    plain = {"n_steps": 256, "batch_size": 64, "n_epochs": 10, "gamma": 0.9, "gae_lambda": 0.95, "learning_rate": 1e-3}
    return {
        "cartpole": cartpole,
        "pendulum": lambda: continuous(
            pendulum, -200.0, 100_000, 500, PENDULUM, Case("PPO", "MlpPolicy", pendulum, 4, PENDULUM_PPO),
            {**own("SAC", pendulum, 1, **swing), **own("PPO", pendulum, 8, **plain)},
        ),
        "inverted_double": lambda: far(continuous(
            double, 9_000.0, 300_000, 1_000, MUJOCO, Case("PPO", "MlpPolicy", double, 1, DOUBLE_PENDULUM_PPO, normalized=True),
            own("SAC", double, 1, **balance),
        )),
        "half_cheetah": lambda: far(continuous(
            cheetah, 3_000.0, 1_000_000, 5_000, MUJOCO, Case("PPO", "MlpPolicy", cheetah, 1, zoo_half_cheetah(), normalized=True),
            own("SAC", cheetah, 8, **quick),
        ), patience=180.0),
        "hopper": lambda: far(continuous(
            hopper, 2_000.0, 1_000_000, 5_000, MUJOCO, Case("PPO", "MlpPolicy", hopper, 1, hopper_ppo(), normalized=True),
            own("SAC", hopper, 8, **quick),
        ), patience=180.0),
        "lunar_lander": lunar_lander,
        "pong": pong,
        "breakout": breakout,
        "recurrent": recurrent,
        "masked_cartpole": lambda: masked("CartPole with masks", masked_cartpole, 475.0, 20),
        "masked_four": lambda: masked("connect four against random moves", ConnectFour, 0.9, 100),
        "half_cheetah_contrib": half_cheetah_contrib,
        "fetch_reach": hindsight,
        "spread": goals_of_agents.spread,
        "four_random": partial(goals_of_agents.four, "random"),
        "four_one_ply": partial(goals_of_agents.four, "one_ply"),
    }  # fmt: skip
