"""How fast does an algorithm train?

Equal settings: the same algorithm, network, batches, number and order of updates, and environments, here and there. SB3 and
sb3-contrib get what suits them best: torch with one thread or all cores, on each vector environment that might serve; so does SBX,
which is SB3 with JAX and takes all cores by itself. Ours gets the vector environment and the algorithm's settings, and nothing else
in its first row: the defaults decide. What settings bring is another question, which ``time_to_reward.py`` answers.

An item is one step of one environment, its share of learning included; contenders take turns, some rounds of the algorithm at a
time. For algorithms with a replay buffer these are also Spreeze's two rates: steps of all environments a second, and transitions
learned from a second (updates times the minibatch), of the same run. The row with ``split=True`` learns by a delayed variant.

Where the process may use one core only (``taskset -c 0``), there are no rows of ours with settings, and the file is
``training_one_core.json``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple

from common import Contender, arguments, compared, run_cases, write_json
from contrib_envs import ConnectFour, MaskedGrid, without_velocities
from machine import cores
from showing import bar_plot, print_table, rate_rows

OURS = "reactor_rl"
OF_SBX = ("CrossQ", "DDPG", "DQN", "PPO", "SAC", "TD3", "TQC")
CARTPOLE = "CartPole-v1"


class Case(NamedTuple):
    """An algorithm with its settings.

    Attributes:
        algorithm: Its host's name, ``"PPO"``; ours is ``Sync`` and that.
        policy: Of SB3's.
        env: An id, or for ``"CnnPolicy"`` an Atari game; or what makes an environment.
        n_envs: Environments.
        settings: What both sides' constructors get.
        vec_envs: SB3's vector environments.
        normalized: Whether observations and rewards are, by ``VecNormalize``.
    """

    algorithm: str
    policy: str
    env: Any
    n_envs: int
    settings: dict[str, Any]
    vec_envs: tuple[str, ...] = ("DummyVecEnv", "ReactorVecEnv")
    normalized: bool = False

    @property
    def row(self) -> Any:
        """Of the table of algorithms."""
        from reactor_sb3 import ALGORITHMS

        return ALGORITHMS[f"Sync{self.algorithm}"]

    @property
    def host(self) -> str:
        """Whose algorithm it is."""
        return "sb3-contrib" if self.row.extra == "contrib" else "SB3"

    @property
    def steps(self) -> int:
        """Steps of all environments in a round; of whole episodes about as many."""
        if self.row.kind == "search":
            return 2 * int(self.settings["n_delta"]) * 200
        return self.n_envs * int(self.settings.get("n_steps") or self.settings["train_freq"])

    @property
    def frames(self) -> float | None:
        """Transitions learned from for each step of an environment, if there is a replay buffer."""
        settings = self.settings
        return settings["gradient_steps"] * settings["batch_size"] / self.steps if "gradient_steps" in settings else None


DQN_SETTINGS: dict[str, Any] = {
    "train_freq": 16, "gradient_steps": 16, "batch_size": 256, "learning_rate": 3e-3, "learning_starts": 1000,
    "buffer_size": 100_000, "target_update_interval": 256, "exploration_fraction": 0.04, "exploration_final_eps": 0.04,
    "policy_kwargs": {"net_arch": [64, 64]},
}  # fmt: skip


def zoo_half_cheetah() -> dict[str, Any]:
    """What RL Baselines3 Zoo has tuned for HalfCheetah."""
    from torch import nn

    return {
        "n_steps": 512, "batch_size": 64, "n_epochs": 20, "gamma": 0.98, "gae_lambda": 0.92, "learning_rate": 2.0633e-05,
        "ent_coef": 0.000401762, "clip_range": 0.1, "max_grad_norm": 0.8, "vf_coef": 0.58096,
        "policy_kwargs": {
            "log_std_init": -2, "ortho_init": False, "activation_fn": nn.ReLU, "net_arch": {"pi": [256, 256], "vf": [256, 256]},
        },
    }  # fmt: skip


def continuous(algorithm: str, gradient_steps: int) -> Case:
    """Eight HalfCheetah, networks of 256-256, minibatches of 256: SAC's defaults, and TD3 and DDPG with the same."""
    settings: dict[str, Any] = {
        "train_freq": 1, "gradient_steps": gradient_steps, "batch_size": 256, "learning_starts": 1000, "buffer_size": 100_000,
        "policy_kwargs": {"net_arch": [256, 256]},
    }  # fmt: skip
    if algorithm in ("TD3", "DDPG"):
        import numpy as np
        from stable_baselines3.common.noise import NormalActionNoise

        settings["action_noise"] = NormalActionNoise(np.zeros(6), np.full(6, 0.1))
    return Case(algorithm, "MlpPolicy", "HalfCheetah-v5", 8, settings)


def hindsight() -> Case:
    """SB3's own example for hindsight."""
    from stable_baselines3 import HerReplayBuffer
    from stable_baselines3.common.envs import BitFlippingEnv

    settings: dict[str, Any] = {
        "train_freq": 1, "gradient_steps": 8, "batch_size": 256, "learning_starts": 1000, "buffer_size": 100_000,
        "replay_buffer_class": HerReplayBuffer,
    }  # fmt: skip
    return Case("SAC", "MultiInputPolicy", partial(BitFlippingEnv, n_bits=8, continuous=True), 8, settings)


ROUNDS: dict[str, Any] = {"n_steps": 128, "batch_size": 64, "n_epochs": 10}
CASES: dict[str, Callable[[], Case]] = {
    "PPO, 16 CartPole": lambda: Case("PPO", "MlpPolicy", CARTPOLE, 16, {"n_steps": 128, "batch_size": 64, "n_epochs": 10}),
    "PPO, 16 HalfCheetah": lambda: Case("PPO", "MlpPolicy", "HalfCheetah-v5", 16, zoo_half_cheetah(), normalized=True),
    "PPO, 8 Pong": lambda: Case(
        "PPO", "CnnPolicy", "PongNoFrameskip-v4", 8,
        {"n_steps": 128, "batch_size": 256, "n_epochs": 4, "learning_rate": 2.5e-4, "clip_range": 0.1, "ent_coef": 0.01},
        ("SubprocVecEnv", "ReactorVecEnv"),
    ),
    "DQN, 8 CartPole": lambda: Case("DQN", "MlpPolicy", CARTPOLE, 8, DQN_SETTINGS),
    "SAC, 8 HalfCheetah, an update a step": lambda: continuous("SAC", 8),
    "SAC, 8 HalfCheetah, an update every 8 steps": lambda: continuous("SAC", 1),
    "TD3, 8 HalfCheetah, an update a step": lambda: continuous("TD3", 8),
    "TD3, 8 HalfCheetah, an update every 8 steps": lambda: continuous("TD3", 1),
    "DDPG, 8 HalfCheetah, an update a step": lambda: continuous("DDPG", 8),
    "A2C, 16 CartPole": lambda: Case("A2C", "MlpPolicy", CARTPOLE, 16, {"n_steps": 5}),
    "A2C, 16 HalfCheetah": lambda: Case("A2C", "MlpPolicy", "HalfCheetah-v5", 16, {"n_steps": 32}),
    "TRPO, 16 CartPole": lambda: Case("TRPO", "MlpPolicy", CARTPOLE, 16, {"n_steps": 128, "batch_size": 128}),
    "TRPO, 16 HalfCheetah": lambda: Case("TRPO", "MlpPolicy", "HalfCheetah-v5", 16, {"n_steps": 128, "batch_size": 128}),
    "ARS, 16 Pendulum": lambda: Case("ARS", "LinearPolicy", "Pendulum-v1", 16, {"n_delta": 16}),
    "ARS, 16 HalfCheetah": lambda: Case("ARS", "LinearPolicy", "HalfCheetah-v5", 16, {"n_delta": 16}),
    "SAC, 8 bits to flip, hindsight": lambda: hindsight(),
    "MaskablePPO, 16 masked grids": lambda: Case("MaskablePPO", "MlpPolicy", MaskedGrid, 16, ROUNDS),
    "MaskablePPO, 16 connect_four": lambda: Case("MaskablePPO", "MlpPolicy", ConnectFour, 16, ROUNDS),
    "RecurrentPPO, 16 CartPole without velocities": lambda: Case(
        "RecurrentPPO", "MlpLstmPolicy", without_velocities, 16, {"n_steps": 128, "batch_size": 128, "n_epochs": 10}
    ),
    "QRDQN, 8 CartPole": lambda: Case("QRDQN", "MlpPolicy", CARTPOLE, 8, DQN_SETTINGS),
    "TQC, 8 HalfCheetah, an update a step": lambda: continuous("TQC", 8),
    "CrossQ, 8 HalfCheetah, an update a step": lambda: continuous("CrossQ", 8),
}  # fmt: skip


def vec_env_of(case: Case, kind: str, seed: int = 0) -> Any:
    """A vector environment of SB3's, or ours for SB3."""
    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack, VecNormalize

    from reactor_sb3 import ReactorVecEnv

    classes: dict[str, Any] = {"DummyVecEnv": DummyVecEnv, "SubprocVecEnv": SubprocVecEnv, "ReactorVecEnv": ReactorVecEnv}
    kwargs = {"start_method": "fork"} if kind == "SubprocVecEnv" else None
    if case.policy != "CnnPolicy":
        envs = make_vec_env(case.env, case.n_envs, seed=seed, vec_env_cls=classes[kind], vec_env_kwargs=kwargs)
        return VecNormalize(envs, gamma=case.settings["gamma"]) if case.normalized else envs
    import ale_py
    import gymnasium

    gymnasium.register_envs(ale_py)
    return VecFrameStack(make_atari_env(case.env, case.n_envs, seed=seed, vec_env_cls=classes[kind], vec_env_kwargs=kwargs), 4)


def ours_of(case: Case, seed: int = 0, **more: Any) -> Any:
    """Our trainer, as anybody would make it. It makes its environments like those that it is shown."""
    return case.row.cls(case.policy, vec_env_of(case, "DummyVecEnv"), seed=seed, device="cpu", **deepcopy(case.settings), **more)


def theirs_of(case: Case, kind: str, seed: int = 0) -> Any:
    """SB3's trainer, or sb3-contrib's."""
    return case.row.host_cls(case.policy, vec_env_of(case, kind, seed), seed=seed, device="cpu", **deepcopy(case.settings))


def jax_of(case: Case, kind: str, seed: int = 0) -> Any:
    """The trainer of SBX, which is SB3's with networks and updates in JAX."""
    try:
        import flax.linen
        import sbx
    except ImportError as error:
        raise ImportError(f"pip install sbx-rl ({error})") from None
    settings = deepcopy(case.settings)  # of which trainers change what they are given
    if "activation_fn" in settings.get("policy_kwargs", {}):
        activation = getattr(flax.linen, settings["policy_kwargs"]["activation_fn"].__name__.lower())
        settings["policy_kwargs"] = {**settings["policy_kwargs"], "activation_fn": activation}
    return getattr(sbx, case.algorithm)(case.policy, vec_env_of(case, kind, seed), seed=seed, **settings)


SETTLED = 9
"""Rounds of ours after which it is known whether learning with help is faster: four are learned with it, and four without."""


class Trains(Contender):
    """A trainer that goes on for so many rounds."""

    def __init__(self, make: Callable[[], Any], case: Case, threads: int | None = None) -> None:
        self.model, self.case, self.threads = make(), case, threads
        self.begun = False
        self.how: dict[str, Any] = {}  # arguments of learn()
        if "learning_starts" in case.settings:  # nothing is learned before
            self.go(case.settings["learning_starts"] // case.steps + 1)
        if hasattr(self.model, "close"):
            self.go(SETTLED)

    def go(self, count: int) -> float:
        import torch

        before = torch.get_num_threads()
        torch.set_num_threads(self.threads or before)
        steps = self.model.num_timesteps if self.begun else 0
        self.model.learn(count * self.case.steps, reset_num_timesteps=not self.begun, log_interval=None, **self.how)
        self.begun = True
        torch.set_num_threads(before)
        return self.model.num_timesteps - steps

    def close(self) -> None:
        (self.model if hasattr(self.model, "close") else self.model.get_env()).close()


class TriesInProcesses(Trains):
    """sb3-contrib's ``ARS`` with processes of its own that try candidates out, as many as there are cores."""

    def __init__(self, case: Case) -> None:
        from sb3_contrib.common.vec_env import AsyncEval
        from stable_baselines3.common.env_util import make_vec_env

        super().__init__(partial(theirs_of, case, "DummyVecEnv"), case)
        tries = AsyncEval([partial(make_vec_env, case.env, 1, seed=number) for number in range(cores())], self.model.policy)
        self.end, tries.close = tries.close, lambda: None  # each learn() would end them
        self.how = {"async_eval": tries}

    def close(self) -> None:
        self.end()
        super().close()


def steps_a_second(name: str, options: argparse.Namespace) -> dict[str, Any]:
    case = CASES[name]()
    makers: dict[str, Callable[[], Contender]] = {OURS: partial(Trains, partial(ours_of, case), case)}
    if cores() > 1:
        if case.row.kind == "search":
            makers[f"{case.host}, AsyncEval, processes: {cores()}"] = partial(TriesInProcesses, case)
        else:
            makers[f"{OURS}, pipeline=1"] = partial(Trains, partial(ours_of, case, pipeline=1), case)
        if case.row.kind == "off-policy" and "Box" in case.row.actions:
            makers[f"{OURS}, split=True"] = partial(Trains, partial(ours_of, case, split=True), case)
    for kind in case.vec_envs:
        for threads in sorted({1, cores()}):
            makers[f"{case.host}, {kind}, threads: {threads}"] = partial(Trains, partial(theirs_of, case, kind), case, threads)
        if case.algorithm in OF_SBX:
            makers[f"SBX, {kind}"] = partial(Trains, partial(jax_of, case, kind), case)
    # Several at once would each have workers, and their caches; the heavy ones take a round at a time.
    fixed = {"PPO, 16 CartPole": 4, "DQN, 8 CartPole": 100, "QRDQN, 8 CartPole": 4, "A2C, 16 CartPole": 200}.get(
        name, 1 if case.frames is None else 100 // case.settings["gradient_steps"]
    )
    fixed = max(1, fixed // 4) if options.quick else fixed
    found = compared(makers, options, fixed=fixed).as_json(OURS)
    if case.frames is not None:
        found["frames_a_step"] = case.frames
    return found


def show(name: str, result: dict[str, Any]) -> None:
    rows, head = rate_rows(result, OURS), ["trainer", "steps", "ours is", "min-max"]
    if frames := result.get("frames_a_step"):
        head.append("learned from")
        for row in rows:
            rate = result["rates"].get(row[0])
            row.append(f"{frames * rate['median']:,.0f}/s" if rate else "")
    print_table(name, head, rows)


def main() -> None:
    options = arguments(__doc__, rounds=5).parse_args()
    cases = run_cases(__file__, options, list(CASES), steps_a_second, show=show, limit=1800)
    if cases is None:
        return
    if cores() == 1:
        write_json(options, "training_one_core", cases)
        return
    write_json(options, "training", cases)
    groups = {name: {one: rate["median"] for one, rate in case.get("rates", {}).items()} for name, case in cases.items()}
    bar_plot(
        options.output / "training.png", "Training at equal settings", groups, "steps/s of all environments, learning included"
    )


if __name__ == "__main__":
    main()
