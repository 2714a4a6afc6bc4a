"""Fingerprints of some hundred short trainings on this machine: ``--write`` before a change, ``--check`` behind it.

Weights differ from one kind of processor to the next, so none are committed. What is hashed of each training: the policy's whole
state, the optimisers', the replay or rollout buffer, evaluations and the returns of episodes.

    python tests/golden_weights.py --write
    python tests/golden_weights.py --check [--only sac]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

sys.path.insert(0, str(Path(__file__).parent / "sb3_plugin"))
sys.path.insert(0, str(Path(__file__).parent / "pettingzoo_plugin"))
import learning_envs
from contrib_trainers import CONTRIB, make
from pettingzoo.classic.tictactoe import tictactoe
from trainers import ALGORITHMS, BOX, CONTINUOUS, SPACES, STEPWISE, Toy, new

from reactor_pettingzoo.learning import League
from reactor_rl.fingerprint import canonical, new_hash

FILE = Path(__file__).parent.parent / "build" / "golden_weights.json"
ROUNDS = 24


class ToyOf:
    """Makes a :class:`Toy`; can be pickled."""

    def __init__(self, space: Any, continuous: bool) -> None:
        self.space, self.continuous = space, continuous

    def __call__(self) -> Toy:
        return Toy(self.space, BOX if self.continuous else Toy().action_space)


def _env(algorithm: str) -> str:
    return "Pendulum-v1" if algorithm in CONTINUOUS else "CartPole-v1"


def _cases() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Names, algorithms and arguments of the trainings."""
    evaluated: dict[str, Any] = {"evaluate_every": 5, "evaluate_episodes": 2, "evaluate_steps": 40}
    for algorithm in sorted(ALGORITHMS):
        for pipeline in (0, 1):
            yield f"{algorithm} pipeline {pipeline}", algorithm, {"pipeline": pipeline, **evaluated}
        for learners in (2, 3):
            yield f"{algorithm} learners {learners}", algorithm, {"n_learners": learners}
        yield f"{algorithm} processes", algorithm, {"executor": "processes", "workers": 2, "n_learners": 2}
        yield f"{algorithm} envs_per_actor", algorithm, {"n_actors": 2, "envs_per_actor": 2}
        yield f"{algorithm} normalized", algorithm, {"env": "normalized", "n_actors": 2}
        for kind in ("image", "dict", "discrete"):
            yield f"{algorithm} {kind}", algorithm, {"env": kind}
            if kind == "image":
                yield f"{algorithm} {kind} learners 2", algorithm, {"env": kind, "n_learners": 2}
        yield f"{algorithm} elu", algorithm, {"policy_kwargs": {"net_arch": [16], "activation_fn": torch.nn.ELU}}
    for algorithm in sorted({*ALGORITHMS} & {*CONTINUOUS}):
        for pipeline in (0, 1):
            yield f"{algorithm} split {pipeline}", algorithm, {"split": True, "pipeline": pipeline, **evaluated}
        yield f"{algorithm} split learners 2", algorithm, {"split": True, "n_learners": 2}
    for algorithm in CONTRIB:
        for pipeline in (0, 1) if algorithm in STEPWISE else (0,):
            yield f"{algorithm} pipeline {pipeline}", algorithm, {"pipeline": pipeline, **evaluated}
        yield f"{algorithm} learners 2", algorithm, {"n_learners": 2}
        yield f"{algorithm} envs_per_actor", algorithm, {"n_actors": 2, "envs_per_actor": 2}
    for env in learning_envs.ENVS:
        yield f"ippo {env}", "ippo", {"env": env, **evaluated}
    yield "ippo learners 2", "ippo", {"env": "masks", "n_learners": 2}
    yield "ippo centralised", "ippo", {"env": "deaths", "centralised_critic": True, "pipeline": 1}
    yield "ippo league", "ippo", {"env": tictactoe.env, "league": League(every=2, size=3, opponents=3), "n_actors": 4}
    yield "sac fixed entropy", "sac", {"ent_coef": 0.1}
    yield "dqn double", "dqn", {"double_q": True, "loss": "mse"}
    yield "dqn spread", "dqn", {"epsilon_spread": 7.0}
    yield "dqn 3 steps", "dqn", {"n_steps": 3}
    yield "sac 3 steps", "sac", {"n_steps": 3}
    yield "ppo sde", "ppo", {"env": "Pendulum-v1", "use_sde": True, "sde_sample_freq": 4}
    yield "ppo box", "ppo", {"env": "Pendulum-v1"}
    yield "ppo clipped values", "ppo", {"clip_range_vf": 0.2, "target_kl": 0.01}
    yield "pqn dropout", "pqn", {"policy_kwargs": {"net_arch": [16], "activation_fn": Dropping}}
    yield "dqn dropout", "dqn", {"policy_kwargs": {"net_arch": [16], "activation_fn": Dropping}}
    yield "ppo dropout", "ppo", {"policy_kwargs": {"net_arch": [16], "activation_fn": Dropping}}


class Dropping(torch.nn.Sequential):
    """A ReLU that leaves some out."""

    def __init__(self) -> None:
        super().__init__(torch.nn.ReLU(), torch.nn.Dropout(0.2))


def _made(algorithm: str, arguments: dict[str, Any]) -> Any:
    if algorithm in CONTRIB:
        return make(algorithm, **arguments)
    if algorithm == "ippo":
        return learning_envs.make(**arguments)
    arguments = dict(arguments)
    env = arguments.pop("env", _env(algorithm))
    policy = "MlpPolicy"
    if env in SPACES:
        policy, space = SPACES[env]
        env = ToyOf(space, algorithm in CONTINUOUS)
    elif env == "normalized":
        env = VecNormalize(make_vec_env(_env(algorithm), n_envs=2, seed=0))
    return new(algorithm, env, policy, **arguments)


def _hashed(value: Any) -> str:
    """A hash of nested containers of tensors, arrays and numbers."""
    digest = new_hash()

    def walk(path: str, one: Any) -> None:
        if isinstance(one, dict):
            for key in one:
                walk(f"{path}/{key}", one[key])
        elif isinstance(one, (list, tuple)):
            for number, part in enumerate(one):
                walk(f"{path}/{number}", part)
        elif isinstance(one, torch.Tensor):
            canonical((path, np.ascontiguousarray(one.detach().cpu().numpy())), digest)
        elif isinstance(one, np.ndarray):
            canonical((path, np.ascontiguousarray(one)), digest)
        else:
            canonical((path, repr(one)), digest)

    walk("", value)
    return str(digest.hexdigest())[:16]


def _seen(model: Any) -> dict[str, str]:
    """What is compared of a model."""
    buffer = getattr(model, "replay_buffer", None) or getattr(model, "rollout_buffer", None)
    of_buffer = {name: value for name, value in vars(buffer).items() if isinstance(value, (np.ndarray, dict))} if buffer else {}
    optimizers = {
        name: part.state_dict()
        for owner in (model.policy, getattr(model.policy, "actor", None), getattr(model.policy, "critic", None), model)
        for name, part in vars(owner or object.__new__(Toy)).items()
        if isinstance(part, torch.optim.Optimizer)
    }
    for name, agent in dict(getattr(model.policy, "agents", {})).items():  # of SyncIPPO; an opponent has none
        if getattr(agent, "optimizer", None) is not None:
            optimizers[f"agents.{name}"] = agent.optimizer.state_dict()
    return {
        "weights": model.fingerprint(),
        "policy": _hashed(model.policy.state_dict()),
        "optimizers": _hashed(optimizers),
        "buffer": _hashed(of_buffer),
        "evaluations": _hashed([(one.timesteps, one.returns, one.lengths) for one in model.evaluations]),
        "episodes": _hashed([(float(info["r"]), int(info["l"])) for info in model.ep_info_buffer]),
    }


def trained(algorithm: str, arguments: dict[str, Any]) -> dict[str, str]:
    """What comes out of a training."""
    with _made(algorithm, arguments) as model:
        steps = model.n_envs * (getattr(model, "rollout_steps", None) or model.n_steps)
        model.learn(ROUNDS * steps, log_interval=None)
        return _seen(model)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--write", action="store_true", help="note what comes out now")
    how.add_argument("--check", action="store_true", help="compare with what was noted")
    parser.add_argument("--only", default="", help="those whose names contain this")
    parser.add_argument("--file", type=Path, default=FILE)
    options = parser.parse_args()
    noted: dict[str, Any] = json.loads(options.file.read_text()) if options.file.exists() else {}
    if options.check and not noted:
        parser.error(f"nothing has been noted in {options.file}: --write it first, before the change")
    differing = count = 0
    for name, algorithm, arguments in _cases():
        if options.only not in name:
            continue
        count += 1
        found = trained(algorithm, arguments)
        if options.write:
            noted[name] = found
            print(name, found["weights"][:16], flush=True)
        elif found != noted.get(name):
            differing += 1
            parts = [part for part, value in found.items() if (noted.get(name) or {}).get(part) != value]
            print(f"{name}: {', '.join(parts)} differ" if name in noted else f"{name}: was not noted", flush=True)
    if options.write:
        options.file.parent.mkdir(parents=True, exist_ok=True)
        options.file.write_text(json.dumps(noted, indent=1, sort_keys=True) + "\n")
        return 0
    print(f"{count - differing} of {count} as noted")
    return 1 if differing or not count else 0


if __name__ == "__main__":
    sys.exit(main())
