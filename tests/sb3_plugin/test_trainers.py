"""Both trainers: one result on any number of cores, the algorithms against plain versions of them, and all that SB3 promises."""

from __future__ import annotations

import csv
import os
import signal
import threading
import time
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.callbacks import (
    BaseCallback,
    CheckpointCallback,
    EvalCallback,
    StopTrainingOnMaxEpisodes,
    StopTrainingOnRewardThreshold,
)
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import configure
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from reactor_rl import WorkerDiedError
from reactor_sb3 import PQN, ReactorVecEnv, StopOnEvaluation, SyncDQN
from reactor_sb3.streams import Purpose, seed_of
from reactor_sb3.training.placing import actor_cost
from reactor_sb3.training.replay import store

ALGORITHMS: dict[str, tuple[Any, dict[str, Any]]] = {
    "dqn": (
        SyncDQN,
        {
            "rollout_steps": 8, "gradient_steps": 2, "buffer_size": 1000, "learning_starts": 64, "batch_size": 16,
            "target_update_interval": 128, "learning_rate": 1e-2,
        },
    ),
    "pqn": (PQN, {"rollout_steps": 16, "n_minibatches": 2, "n_epochs": 2}),
}  # fmt: skip
PLACES: list[dict[str, Any]] = [
    {"executor": "inline"},
    *({"executor": "threads", "workers": workers} for workers in (2, 3)),
    *({"executor": "processes", "workers": workers} for workers in (1, 2, 3, 4)),
]
INLINE = PLACES[0]
BOX = spaces.Box(-1, 1, (3,), np.float32)
SPACES: dict[str, tuple[str, gymnasium.Space[Any]]] = {
    "box": ("MlpPolicy", BOX),
    "image": ("CnnPolicy", spaces.Box(0, 255, (36, 36, 1), np.uint8)),
    "dict": ("MultiInputPolicy", spaces.Dict(vector=BOX, kind=spaces.Discrete(3))),
    "discrete": ("MlpPolicy", spaces.Discrete(5)),
}
both = pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))


class Toy(gymnasium.Env[Any, Any]):
    """Random observations of any space; episodes of a few steps, which end in both ways."""

    def __init__(self, space: gymnasium.Space[Any] = BOX, length: int = 7, rate: float = 0.1) -> None:
        self.observation_space, self.length, self.rate = deepcopy(space), length, rate
        self.action_space: gymnasium.Space[Any] = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        reward = float(self.np_random.normal()) + int(action)
        truncated = self.t >= self.length
        terminated = bool(self.np_random.random() < (0.5 if truncated else self.rate))  # sometimes both
        return self.observation_space.sample(), reward, terminated, truncated, self.info()

    def info(self) -> dict[str, Any]:
        return {"t": self.t, "pid": os.getpid()}


def new(algorithm: str, env: Any = "CartPole-v1", policy: str = "MlpPolicy", **changed: Any) -> Any:
    cls, arguments = ALGORITHMS[algorithm]
    network: dict[str, Any] = {"net_arch": [32]}
    if policy == "CnnPolicy":
        network = {"net_arch": [], "features_extractor_kwargs": {"features_dim": 16}}
    return cls(policy, env, **{"n_actors": 4, "seed": 0, "policy_kwargs": network, **INLINE, **arguments, **changed})


def outcome(model: Any) -> dict[str, Any]:
    return {
        "weights": model.fingerprint(),
        "evaluations": [(one.timesteps, one.returns, one.lengths) for one in model.evaluations],
        "counters": (model.num_timesteps, model._episode_num, model._n_updates),
        "episodes": [(info["r"], info["l"]) for info in model.ep_info_buffer],
    }


# ---------------------------------------------------------------------- determinism

EVALUATED: dict[str, Any] = {"evaluate_every": 3, "evaluate_episodes": 2}


@cache
def alone(algorithm: str, pipeline: int, seed: int = 0, env: Any = "CartPole-v1") -> dict[str, Any]:
    """What comes out without any parallelism."""
    with new(algorithm, env, pipeline=pipeline, seed=seed, **EVALUATED) as model:
        return outcome(model.learn(640))


@pytest.mark.parametrize("place", PLACES, ids=lambda place: "-".join(map(str, place.values())))
@pytest.mark.parametrize("pipeline", [0, 1])
@both
def test_one_result(algorithm: str, pipeline: int, place: dict[str, Any]) -> None:
    expected = alone(algorithm, pipeline)
    with new(algorithm, pipeline=pipeline, **EVALUATED, **place) as model:
        assert outcome(model.learn(640)) == expected
    assert len(expected["evaluations"]) >= 2
    assert len(expected["episodes"]) > 10
    assert expected["counters"][0] == 640


@both
def test_other_seeds_and_pipelines_give_other_results(algorithm: str) -> None:
    found = [alone(algorithm, pipeline, seed) for pipeline in (0, 1) for seed in (0, 1)]
    assert len({one["weights"] for one in found}) == 4


@pytest.mark.parametrize("pipeline", [0, 1])
@both
def test_two_halves(algorithm: str, pipeline: int, tmp_path: Path) -> None:
    found = []
    for place in ({}, PLACES[1], PLACES[4]):
        with new(algorithm, pipeline=pipeline, **EVALUATED, **{**INLINE, **place}) as model:
            model.learn(320)
            if place:
                with model.trace(str(tmp_path / "trace.json")):
                    model.learn(320, reset_num_timesteps=False)
                assert (tmp_path / "trace.json").stat().st_size > 1000
            else:
                model.learn(320, reset_num_timesteps=False)
            found.append(outcome(model))
    assert found[1] == found[0] and found[2] == found[0]
    assert found[0]["counters"][0] == 640


@both
def test_a_second_training_begins_anew(algorithm: str) -> None:
    """With the same numbers on any executor, whatever has been learned before."""
    found = []
    for place in (INLINE, PLACES[4]):
        with new(algorithm, pipeline=1, evaluate_every=1, evaluate_episodes=1, **place) as model:
            model.learn(192)
            first = len(model.evaluations)
            model.learn(192)
            found.append(outcome(model))
            steps = [one.timesteps for one in model.evaluations[first:]]
            assert len(steps) > 1 and min(steps) >= 0 and max(steps) < 192
            assert model._learned_timesteps == 192 - 4 * model.rollout_steps
    assert found[0] == found[1]
    assert found[0]["counters"][0] == 192


@both
def test_whole_rounds(algorithm: str) -> None:
    with new(algorithm) as model:
        assert model.learn(65).num_timesteps == {"dqn": 96, "pqn": 128}[algorithm]
        assert model.remaining_timesteps == 0
        assert model.learn(0).num_timesteps == 0


@both
def test_wrappers_that_only_watch(algorithm: str) -> None:
    """A Monitor changes no weight, and its episodes are ours."""
    with new(algorithm, lambda: Monitor(gymnasium.make("CartPole-v1")), **EVALUATED) as model:
        assert outcome(model.learn(640)) == alone(algorithm, 0)


@pytest.mark.parametrize("name", ["image", "dict", "discrete"])
@both
def test_one_result_with_other_observations(algorithm: str, name: str) -> None:
    policy, space = SPACES[name]
    env = "FrozenLake-v1" if name == "discrete" else partial(Toy, space)
    found = []
    for place in (INLINE, PLACES[1], PLACES[4], PLACES[5]):
        with new(algorithm, env, policy, envs_per_actor=3, n_actors=2, pipeline=1, **place) as model:
            found.append(outcome(model.learn(384)))
    assert all(one == found[0] for one in found)


@both
def test_global_generators_are_left_alone(algorithm: str) -> None:
    threads = torch.get_num_threads()
    np.random.seed(3)
    with new(algorithm, executor="auto", workers=2, pipeline=1) as model:
        before = str(np.random.get_state()), torch.get_rng_state()
        model.learn(128)
        assert str(np.random.get_state()) == before[0] and torch.equal(torch.get_rng_state(), before[1])
    assert torch.get_num_threads() == threads


# ---------------------------------------------------------------------- what is stored


def replayed(model: Any, make: Any, actions: Any) -> Iterator[tuple[int, int, Any, Any, float, bool, bool]]:
    """The transitions that these actions lead to in bare environments; the first reset of a round is seeded."""
    for number in range(model.n_envs):
        env, episode, seeded = make(), 0, 0
        observation, _ = env.reset(seed=seed_of(model._base_seed, Purpose.EPISODES, number, 0))
        for step, action in enumerate(actions[:, number]):
            following, reward, terminated, truncated, _ = env.step(int(action))
            yield step, number, observation, following, reward, terminated, truncated
            observation = following
            if terminated or truncated:
                this, episode = step // model.rollout_steps, episode + 1
                seed = None if seeded == this else seed_of(model._base_seed, Purpose.EPISODES, number, episode)
                observation, _ = env.reset(seed=seed)
                seeded = this
        env.close()


def equal(stored: Any, observation: Any) -> bool:
    if isinstance(observation, dict):
        return all(equal(stored[key], part) for key, part in observation.items())
    observation = np.asarray(observation)
    if observation.ndim == 3:
        observation = observation.transpose(2, 0, 1)  # SB3 has channels first
    return bool(np.array_equal(stored.reshape(observation.shape), observation))


def at(column: Any, step: int, number: int) -> Any:
    return {key: part[step, number] for key, part in column.items()} if isinstance(column, dict) else column[step, number]


@pytest.mark.parametrize("place", [INLINE, PLACES[4]], ids=["inline", "processes"])
@pytest.mark.parametrize("name", ["box", "image", "dict", "discrete", "CartPole"])
def test_what_is_stored_is_what_happened(name: str, place: dict[str, Any]) -> None:
    policy, space = SPACES.get(name, SPACES["box"])
    make = partial(gymnasium.make, "CartPole-v1", max_episode_steps=15) if name == "CartPole" else partial(Toy, space)
    steps = 80
    with new("dqn", make, policy, n_actors=2, envs_per_actor=2, **place) as model:
        model.learn(steps * 4 // 2).learn(steps * 4 // 2, reset_num_timesteps=False)
        buffer = model.replay_buffer
        assert buffer.pos == steps and not buffer.full
        ends = [0, 0]
        for step, number, observation, following, reward, terminated, truncated in replayed(
            model, make, buffer.actions[:steps, :, 0]
        ):
            where = step, number
            assert equal(at(buffer.observations, *where), observation), where
            assert equal(at(buffer.next_observations, *where), following), where
            assert buffer.rewards[where] == np.float32(reward), where
            assert buffer.dones[where] == (terminated or truncated), where
            assert buffer.timeouts[where] == (truncated and not terminated), where
            ends = [ends[0] + terminated, ends[1] + (truncated and not terminated)]
        assert min(ends) > 2


def some_rounds(model: Any, count: int) -> list[Any]:
    """Rounds of nonsense, of which the replay buffer must lose nothing."""
    random = np.random.default_rng(0)
    found = []
    for _ in range(count):
        rounds = np.zeros(model.n_actors, model.specification().actors.record)
        for name in rounds.dtype.names or ():
            field = rounds[name]
            field[...] = random.integers(0, 2 if field.dtype == bool else 100, field.shape)
        rounds["timeouts"] &= rounds["dones"]
        found.append(rounds)
    return found


BUFFERS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("box", {}),
    "image": ("image", {}),
    "discrete": ("discrete", {}),
    "no timeouts": ("box", {"replay_buffer_kwargs": {"handle_timeout_termination": False}}),
    "one array": ("box", {"optimize_memory_usage": True, "replay_buffer_kwargs": {"handle_timeout_termination": False}}),
    "dict": ("dict", {}),
    "3 steps": ("box", {"n_steps": 3}),
}


@pytest.mark.parametrize("buffer_size", [11 * 6, 16 * 6, 8 * 6])
@pytest.mark.parametrize("name", BUFFERS)
def test_blocks_are_stored_as_add_does(name: str, buffer_size: int) -> None:
    policy, space = SPACES[BUFFERS[name][0]]
    arguments = {"n_actors": 3, "envs_per_actor": 2, "buffer_size": buffer_size, **BUFFERS[name][1]}
    ours, theirs = (new("dqn", partial(Toy, space), policy, **arguments) for _ in range(2))
    assert type(ours.replay_buffer) is {"dict": DictReplayBuffer, "3 steps": NStepReplayBuffer}.get(name, ReplayBuffer)
    keys = theirs.observation_space.spaces if name == "dict" else None
    for rounds in some_rounds(ours, 5):
        store(ours.replay_buffer, ours._layout, rounds, [])
        for step in range(8):

            def column(field: str, step: int = step, rounds: Any = rounds) -> Any:
                return np.concatenate([rounds[field][actor, step] for actor in range(3)])

            observation, following = (
                {key: column(which + key) for key in keys} if keys else column(which)
                for which in ("observations", "next_observations")
            )
            infos = [{"TimeLimit.truncated": bool(one)} for one in column("timeouts")]
            theirs.replay_buffer.add(observation, following, column("actions"), column("rewards"), column("dones"), infos)
        assert (ours.replay_buffer.pos, ours.replay_buffer.full) == (theirs.replay_buffer.pos, theirs.replay_buffer.full)
        for attribute, expected in vars(theirs.replay_buffer).items():
            found = getattr(ours.replay_buffer, attribute)
            for one, other in (
                zip(found.values(), expected.values(), strict=True) if isinstance(found, dict) else [(found, expected)]
            ):
                if isinstance(one, np.ndarray):
                    assert np.array_equal(one, other), attribute
        samples = []
        for model in (ours, theirs):
            np.random.seed(1)
            samples.append(model.replay_buffer.sample(20))
        assert torch.equal(samples[0].rewards, samples[1].rewards) and torch.equal(samples[0].dones, samples[1].dones)


class Remembering(ReplayBuffer):
    """Keeps the infos, which the actors have to send for it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.infos: list[list[dict[str, Any]]] = []

    def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: list[dict[str, Any]]) -> None:
        self.infos.append([dict(info) for info in infos])
        super().add(obs, next_obs, action, reward, done, infos)


class Again(Toy):
    """Returns the same info all the time, with other contents."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, Any] = {}

    def info(self) -> dict[str, Any]:
        assert self.kept.keys() <= {"t"}, "somebody has written into the environment's own info"
        self.kept["t"] = self.t
        return self.kept


@pytest.mark.parametrize("env", [Toy, Again])
@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("pipeline", [0, 1])
@pytest.mark.parametrize("place", [INLINE, PLACES[4]], ids=["inline", "processes"])
def test_a_replay_buffer_of_your_own_is_given_infos(place: dict[str, Any], pipeline: int, watched: bool, env: Any) -> None:
    with new("dqn", env, replay_buffer_class=Remembering, pipeline=pipeline, **place) as model:
        model.learn(320, callback=Seen() if watched else None)
        buffer = model.replay_buffer
    assert len(buffer.infos) == buffer.pos == 80 - 8 * pipeline
    t = np.zeros(4, int)
    for step, infos in enumerate(buffer.infos):
        t += 1
        assert [info["t"] for info in infos] == t.tolist(), step
        assert [info["TimeLimit.truncated"] for info in infos] == (buffer.timeouts[step] == 1).tolist()
        assert ["episode" in info for info in infos] == (buffer.dones[step] == 1).tolist()
        assert not any("terminal_observation" in info for info in infos)  # it is next_obs; and nothing depends on callbacks
        t[buffer.dones[step] == 1] = 0
    assert buffer.timeouts.sum() > 2


# ---------------------------------------------------------------------- what is learned


def descended(parameters: list[Any], loss: Any, rate: float, most: float) -> list[Any]:
    """Parameters after one step of gradient descent with clipped gradients."""
    gradients = torch.autograd.grad(loss, parameters)
    norm = torch.sqrt(sum((part**2).sum() for part in gradients))  # type: ignore[arg-type]
    scale = min(1.0, most / (float(norm) + 1e-6))
    return [(parameter - rate * scale * part).detach() for parameter, part in zip(parameters, gradients, strict=True)]


def close(found: Any, expected: list[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.detach(), other, rtol=1e-4, atol=1e-6)


SGD = {"net_arch": [32], "optimizer_class": torch.optim.SGD}


@pytest.mark.parametrize("n_steps", [1, 3])
@pytest.mark.parametrize("double_q", [False, True])
@pytest.mark.parametrize("loss", ["huber", "mse"])
def test_a_step_of_dqn(loss: Any, double_q: bool, n_steps: int) -> None:
    model = new(
        "dqn", Toy, loss=loss, double_q=double_q, n_steps=n_steps, policy_kwargs=SGD, learning_rate=0.05, gamma=0.9,
        max_grad_norm=0.5,
    )  # fmt: skip
    with model:
        model.learn(320)
    np.random.seed(7)
    batch = model.replay_buffer.sample(64)
    net, target, every = deepcopy(model.q_net), model.q_net_target, torch.arange(64)
    with torch.no_grad():
        for parameter in target.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))
        assert (target(batch.next_observations).argmax(1) != net(batch.next_observations).argmax(1)).sum() > 5
        following = target(batch.next_observations)
        best = (net(batch.next_observations) if double_q else following).argmax(1)
        discounts = 0.9 if n_steps == 1 else batch.discounts.flatten()
        wanted = batch.rewards.flatten() + discounts * (1 - batch.dones.flatten()) * following[every, best]
    wrong = net(batch.observations)[every, batch.actions.flatten().long()] - wanted
    far = wrong.abs()
    values = wrong**2 if loss == "mse" else torch.where(far < 1, 0.5 * wrong**2, far - 0.5)
    expected = descended(list(net.parameters()), values.mean(), 0.05, 0.5)

    np.random.seed(7)
    updates = model._n_updates
    model.train(1, 64)
    close(model.q_net.parameters(), expected)
    assert model._n_updates == updates + 1
    assert model.logger.name_to_value["train/loss"] == pytest.approx(float(values.detach().mean()), rel=1e-4)


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop])
def test_an_optimiser_of_your_own(optimizer: Any) -> None:
    """Fused or not: the same updates."""
    model = new("dqn", policy_kwargs={"net_arch": [32], "optimizer_class": optimizer}, learning_rate=0.01)
    with model:
        model.learn(256)
    other = deepcopy(model.policy)
    if optimizer is not torch.optim.RMSprop:
        assert other.optimizer.param_groups[0]["fused"]
        other.optimizer.param_groups[0].update(fused=None, foreach=False)
    np.random.seed(7)
    model.train(3, 16)
    np.random.seed(7)
    for _ in range(3):
        batch = model.replay_buffer.sample(16)
        with torch.no_grad():
            wanted = batch.rewards + model.gamma * (1 - batch.dones) * other.q_net_target(batch.next_observations).amax(1, True)
        found = other.q_net(batch.observations).gather(1, batch.actions)
        other.optimizer.zero_grad()
        torch.nn.functional.smooth_l1_loss(found, wanted).backward()
        torch.nn.utils.clip_grad_norm_(other.parameters(), model.max_grad_norm)
        other.optimizer.step()
    close(model.q_net.parameters(), [parameter.detach() for parameter in other.q_net.parameters()])


class AfterRounds(BaseCallback):
    """Keeps what a function makes of the model after each round."""

    def __init__(self, look: Any) -> None:
        super().__init__()
        self.look, self.found = look, []  # type: ignore[var-annotated]

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self.found.append(self.look(self.model))


class Drifting:
    """In the place of an algorithm's gradient steps, which then are the same here and in SB3: all parameters grow by an eighth."""

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        with torch.no_grad():
            for parameter in self.q_net.parameters():  # type: ignore[attr-defined]
                parameter += gradient_steps / 8


class DriftingDQN(Drifting, DQN):
    pass


class DriftingSyncDQN(Drifting, SyncDQN):
    pass


@pytest.mark.filterwarnings("ignore:The number of environments used is greater")  # SB3's, about an interval of 1
@pytest.mark.parametrize("tau", [1.0, 0.25, 0.005])
@pytest.mark.parametrize(
    ("interval", "n_envs", "train_freq"),
    [(1, 4, 8), (4, 4, 16), (6, 4, 8), (7, 2, 3), (64, 4, 8), (100, 4, 8), (100, 1, 30), (10, 3, 1), (10_000, 4, 8)],
)
def test_target_updates_are_sb3s(interval: int, n_envs: int, train_freq: int, tau: float) -> None:
    """As often as SB3's, in the same order with the gradient steps: the target network is the same after every round."""
    arguments: dict[str, Any] = {
        "target_update_interval": interval, "tau": tau, "train_freq": train_freq, "gradient_steps": 3, "learning_starts": 8,
        "buffer_size": 4000, "policy_kwargs": {"net_arch": [4]}, "seed": 0,
    }  # fmt: skip
    total = 10 * n_envs * train_freq
    theirs = DriftingDQN("MlpPolicy", DummyVecEnv([partial(gymnasium.make, "CartPole-v1")] * n_envs), device="cpu", **arguments)
    ours = DriftingSyncDQN("MlpPolicy", "CartPole-v1", n_actors=n_envs, executor="inline", **arguments)
    ours.policy.load_state_dict(theirs.policy.state_dict())
    seen = []
    for model in (theirs, ours):
        # SB3 ends a rollout before the gradient steps, we after them; target networks are updated before both.
        watch = AfterRounds(lambda model: deepcopy(list(model.q_net_target.parameters())))
        model.learn(total, callback=watch)
        seen.append(watch.found)
    ours.close()
    assert len(seen[0]) == len(seen[1]) == 10
    for then, now in zip(*seen, strict=True):
        for expected, found in zip(then, now, strict=True):
            assert torch.equal(found, expected)
    assert all(torch.equal(*pair) for pair in zip(ours.q_net.parameters(), theirs.q_net.parameters(), strict=True))
    if interval < 100:
        assert not torch.equal(seen[0][0][0], seen[0][-1][0])


class Recorded(PQN):
    """Keeps its rounds, with the weights that it had before it learned from each."""

    def learn_from(self, transitions: Any, infos: Any) -> None:
        self.rounds = [*getattr(self, "rounds", []), (transitions.copy(), deepcopy(self.q_net))]
        super().learn_from(transitions, infos)


@pytest.mark.parametrize("q_lambda", [0.0, 0.65, 1.0])
def test_returns_of_pqn(q_lambda: float) -> None:
    """Against the definition: every n-step return by itself, with weights (1 - lambda) * lambda ** (n - 1)."""
    gamma = 0.9
    model = Recorded(
        "MlpPolicy", Toy, n_actors=2, envs_per_actor=2, rollout_steps=32, q_lambda=q_lambda, gamma=gamma, seed=0, executor="inline"
    )
    with model:
        model.learn(3 * 32 * 4)
    ends = [0, 0]
    for rounds, net in model.rounds:
        model.q_net.load_state_dict(net.state_dict())
        found = model._returns(rounds, model._flat(rounds, "next_observations")).numpy().reshape(32, 4)
        for number in range(4):
            part = rounds[number // 2]
            rewards, dones, timeouts, nexts = (
                part[name][:, number % 2] for name in ("rewards", "dones", "timeouts", "next_observations")
            )
            with torch.no_grad():
                values = net(torch.from_numpy(nexts.copy())).amax(1).numpy() * ~(dones & ~timeouts)
            ends = [ends[0] + (dones & ~timeouts).sum(), ends[1] + timeouts.sum()]
            for t in range(32):
                last = next((u for u in range(t, 32) if dones[u]), 31)
                wanted, discounted = 0.0, 0.0
                for n in range(1, last - t + 2):
                    discounted += gamma ** (n - 1) * rewards[t + n - 1]
                    weight = q_lambda ** (n - 1) * (1 if t + n - 1 == last else 1 - q_lambda)
                    wanted += weight * (discounted + gamma**n * values[t + n - 1])
                assert found[t, number] == pytest.approx(wanted, rel=1e-4, abs=1e-4)
    assert min(ends) > 5


def test_an_update_of_pqn() -> None:
    model = Recorded(
        "MlpPolicy", Toy, learning_rate=0.05, rollout_steps=16, n_minibatches=1, n_epochs=1, max_grad_norm=0.5, policy_kwargs=SGD,
        n_actors=2, seed=0, executor="inline",
    )  # fmt: skip
    with model:
        model.learn(64)
    assert len(model.rounds) == 2
    for (rounds, net), after in zip(model.rounds, [model.rounds[1][1], model.q_net], strict=True):
        now = deepcopy(model.q_net.state_dict())
        model.q_net.load_state_dict(net.state_dict())
        returns = model._returns(rounds, model._flat(rounds, "next_observations")).reshape(16, 2)
        model.q_net.load_state_dict(now)
        wrong = [
            net(torch.from_numpy(rounds["observations"][actor, step])).flatten()[rounds["actions"][actor, step, 0]]
            - returns[step, actor]
            for actor in range(2)
            for step in range(16)
        ]
        close(after.parameters(), descended(list(net.parameters()), 0.5 * (torch.stack(wrong) ** 2).mean(), 0.05, 0.5))


# ---------------------------------------------------------------------- exploration


class Rates(BaseCallback):
    """What the coming round is to explore with, and what SB3 has explored with at each step."""

    def _on_training_start(self) -> None:
        self.coming: list[float] = []
        self.used: list[float] = []

    def _on_rollout_start(self) -> None:
        if isinstance(self.model, SyncDQN):
            self.coming += self.model.exploration_rates().tolist()

    def _on_step(self) -> bool:
        self.used.append(self.model.exploration_rate)  # type: ignore[attr-defined]
        return True


def test_exploration_rates_are_sb3s() -> None:
    arguments: dict[str, Any] = {
        "learning_starts": 80, "exploration_fraction": 0.5, "exploration_initial_eps": 0.9, "exploration_final_eps": 0.1, "seed": 0,
    }  # fmt: skip
    with new("dqn", **arguments) as model:
        model.learn(640, callback=(ours := Rates()))
    other = DQN("MlpPolicy", DummyVecEnv([partial(gymnasium.make, "CartPole-v1")] * 4), gradient_steps=0, device="cpu", **arguments)
    other.learn(640, callback=(theirs := Rates()))
    assert len(ours.coming) == len(theirs.used) == 160
    expected = [1.0] * 20 + theirs.used[20:]
    assert ours.coming == pytest.approx(expected, rel=1e-5)
    assert model.exploration_rate == pytest.approx(other.exploration_rate)


class RatesOfPqn(BaseCallback):
    """What each round explores and learns with."""

    def _on_training_start(self) -> None:
        self.exploring: list[float] = []
        self.learning: list[float] = []

    def _on_rollout_start(self) -> None:
        assert isinstance(self.model, PQN)
        self.exploring += self.model.exploration_rates().tolist()

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self.learning.append(self.model.policy.optimizer.param_groups[0]["lr"])


@pytest.mark.parametrize("total", [5 * 32, 5 * 32 - 10])  # whole rounds are taken; CleanRL would leave the last one out
def test_rates_of_pqn_are_cleanrls(total: int) -> None:
    """Of exploration: by all steps of the training, the present one included. Of learning: by the rounds before this one."""
    with PQN(
        "MlpPolicy", "CartPole-v1", rollout_steps=8, exploration_initial_eps=0.8, exploration_final_eps=0.2, seed=0, **INLINE
    ) as model:
        model.learn(total, callback=(rates := RatesOfPqn()))
    slope = (0.2 - 0.8) / (0.5 * total)
    assert rates.exploring == pytest.approx([max(slope * step + 0.8, 0.2) for step in range(4, 164, 4)], rel=1e-6)
    assert rates.learning == pytest.approx([2.5e-4 * (1 - 32 * (iteration - 1) / total) for iteration in range(1, 6)])
    assert model.exploration_rate == pytest.approx(0.2)


@pytest.mark.parametrize("pipeline", [0, 1])
def test_every_round_of_pqn_is_learned_from(pipeline: int) -> None:
    """Also the only one of a call of ``learn()``, and the one that was under way when counting begins anew."""
    with new("pqn", pipeline=pipeline) as model:
        before = model.fingerprint()
        model.learn(64)
        assert (model.fingerprint() == before) == (pipeline == 1)  # then it is still under way
        watch = AfterRounds(lambda model: (model.fingerprint(), model.policy.optimizer.param_groups[0]["lr"]))
        model.learn(64 * 4, callback=watch)
    weights, rates = zip(*watch.found, strict=True)
    assert len({before, *weights}) == 5
    parts = [4, 4, 3, 2] if pipeline else [4, 3, 2, 1]
    assert rates == pytest.approx([2.5e-4 * part / 4 for part in parts])


def test_epsilon_spread() -> None:
    """Actor i of n explores with epsilon ** (1 + spread * i / (n - 1)); where it does not, it is greedy."""
    arguments: dict[str, Any] = {"exploration_initial_eps": 0.6, "exploration_final_eps": 0.6}
    with new(
        "dqn", partial(Toy, length=50), n_actors=3, epsilon_spread=3.0, gradient_steps=0, learning_starts=0, rollout_steps=100,
        buffer_size=9000, **arguments,
    ) as model:  # fmt: skip
        model.learn(6000)
        buffer = model.replay_buffer
        for actor, rate in enumerate([0.6, 0.6**2.5, 0.6**4]):
            greedy, _ = model.predict(buffer.observations[:2000, actor], deterministic=True)
            other = (buffer.actions[:2000, actor, 0] != greedy).mean()
            assert other == pytest.approx(rate * 2 / 3, abs=4 * np.sqrt(rate / 2000)), actor


# ---------------------------------------------------------------------- SB3's surface


class Seen(BaseCallback):
    """What a callback gets to see."""

    def __init__(self, stop_at: int | None = None) -> None:
        super().__init__()
        self.stop_at, self.rows, self.events = stop_at, [], []  # type: ignore[var-annotated]

    def _on_training_start(self) -> None:
        self.events.append("start")

    def _on_rollout_start(self) -> None:
        self.events.append("rollout")

    def _on_step(self) -> bool:
        names = ("new_obs", "actions", "rewards", "dones", "infos")
        self.rows.append((self.num_timesteps, self.n_calls, *(deepcopy(self.locals[name]) for name in names)))
        return self.n_calls != self.stop_at

    def _on_rollout_end(self) -> None:
        self.events.append("end")

    def _on_training_end(self) -> None:
        self.events.append("stop")


@pytest.mark.parametrize("env", [Toy, Again])
@pytest.mark.parametrize("place", [INLINE, PLACES[4]], ids=["inline", "processes"])
def test_callbacks_see_every_step(place: dict[str, Any], env: Any) -> None:
    with new("dqn", env, n_actors=2, envs_per_actor=2, **place) as model:
        model.learn(320, callback=(seen := Seen()))
        buffer = model.replay_buffer
    assert seen.events == ["start", *["rollout", "end"] * 10, "stop"]
    t, total = np.zeros(4, int), np.zeros(4)
    for step, (timesteps, calls, new_obs, actions, rewards, dones, infos) in enumerate(seen.rows):
        assert (timesteps, calls) == (4 * (step + 1), step + 1)
        assert new_obs.shape == (4, 3) and actions.shape == rewards.shape == dones.shape == (4,) and len(infos) == 4
        assert np.array_equal(actions, buffer.actions[step, :, 0]) and np.array_equal(rewards, buffer.rewards[step])
        assert np.array_equal(dones, buffer.dones[step])
        t, total = t + 1, total + rewards
        for number, info in enumerate(infos):
            assert info["t"] == t[number]
            assert info["TimeLimit.truncated"] == buffer.timeouts[step, number]
            assert ("terminal_observation" in info) == ("episode" in info) == dones[number]
            if dones[number]:
                assert np.array_equal(info["terminal_observation"], buffer.next_observations[step, number])
                assert info["episode"]["r"] == pytest.approx(total[number], abs=1e-4)
                assert info["episode"]["l"] == t[number] and info["episode"]["t"] > 0
                t[number], total[number] = 0, 0.0
            if step + 1 < len(seen.rows):  # of the next episode where one has ended, also at the end of a round
                assert np.array_equal(new_obs[number], buffer.observations[step + 1, number])
    assert len(seen.rows) == 80
    assert any(row[5].any() for row in seen.rows[7:-1:8])


@pytest.mark.parametrize("name", ["image", "dict", "discrete"])
def test_new_observations_of_every_kind(name: str) -> None:
    """As a vector environment of SB3 gives them: also after a round's last step, the first of a new episode where one has ended."""
    policy, space = SPACES[name]
    with new("dqn", partial(Toy, space, rate=0.4), policy, learning_starts=10**6) as model:
        model.learn(320, callback=(seen := Seen()))
        buffer = model.replay_buffer
    for step, row in enumerate(seen.rows[:-1]):
        for key in space if isinstance(space, spaces.Dict) else [None]:
            found, stored = (row[2], buffer.observations) if key is None else (row[2][key], buffer.observations[key])
            assert np.array_equal(found, stored[step + 1].reshape(found.shape)), (step, key)
    assert sum(row[5].sum() for row in seen.rows[7:-1:8]) > 3


@both
def test_callbacks_change_nothing(algorithm: str) -> None:
    with new(algorithm, **EVALUATED) as model:
        assert outcome(model.learn(640, callback=Seen())) == alone(algorithm, 0)


class Threads(BaseCallback):
    """Changes torch's threads between rounds, and notes with how many the learner works."""

    def _on_training_start(self) -> None:
        self.found: set[int] = set()
        update = self.model._update  # type: ignore[attr-defined]

        def noting(*given: Any) -> Any:
            self.found.add(torch.get_num_threads())
            return update(*given)

        self.model._update = noting  # type: ignore[attr-defined]

    def _on_step(self) -> bool:
        torch.set_num_threads(3)
        return True

    def _on_rollout_end(self) -> None:
        torch.set_num_threads(4)


@pytest.mark.parametrize("learner_threads", [1, 2])
@both
def test_the_learner_has_its_threads_whatever_callbacks_do(algorithm: str, learner_threads: int) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with new(algorithm, learner_threads=learner_threads) as model:
            model.learn(320, callback=(threads := Threads()))
    finally:
        torch.set_num_threads(before)
    assert threads.found == {learner_threads}


@both
def test_a_callback_stops_with_its_round(algorithm: str) -> None:
    with new(algorithm, rollout_steps=16) as model:
        model.learn(640, callback=(seen := Seen(stop_at=20)))
        assert model.num_timesteps == 128 and len(seen.rows) == 20
        assert seen.events == ["start", "rollout", "end", "rollout", "stop"]
        model.learn(640, callback=lambda found, _: True)
        assert model.num_timesteps == 640
    with new(algorithm, rollout_steps=16) as model:
        model.learn(1280, callback=StopTrainingOnMaxEpisodes(max_episodes=2))
        assert model._episode_num >= 8 and model.num_timesteps < 1280


@both
def test_callbacks_of_sb3(algorithm: str, tmp_path: Path) -> None:
    check = CheckpointCallback(save_freq=40, save_path=str(tmp_path), name_prefix="net")
    over = EvalCallback(
        Monitor(gymnasium.make("CartPole-v1")), eval_freq=50, n_eval_episodes=2, log_path=str(tmp_path), verbose=0,
        callback_on_new_best=StopTrainingOnRewardThreshold(reward_threshold=1e9),
    )  # fmt: skip
    with new(algorithm) as model:
        model.learn(640, callback=[check, over])
        assert model.num_timesteps == 640
    saved = sorted(path.name for path in tmp_path.glob("net*"))
    assert saved == [f"net_{steps}_steps.zip" for steps in (160, 320, 480, 640)]
    assert np.load(tmp_path / "evaluations.npz")["timesteps"].tolist() == [200, 400, 600]
    # Its weights are those after the round, which the first of SB3's would be before.
    loaded = ALGORITHMS[algorithm][0].load(tmp_path / "net_640_steps.zip")
    assert loaded.fingerprint() == model.fingerprint()


@both
def test_stopped_by_an_evaluation(algorithm: str) -> None:
    with new(algorithm, evaluate_every=2, evaluate_episodes=1) as model:
        model.learn(6400, callback=StopOnEvaluation(1.0))
        assert 1 <= len(model.evaluations) <= 2 and model.num_timesteps < 640
        model.learn(640, callback=StopOnEvaluation(1e9))
        model.evaluations.append(replace(model.evaluations[-1], returns=(1e9,)))
        before = model.num_timesteps
        model.learn(192, callback=StopOnEvaluation(1e6), reset_num_timesteps=False)  # what was reached before does not end it
        assert model.num_timesteps == before + 192


@pytest.mark.filterwarnings("ignore")  # of tqdm, that its bar is an experiment
def test_a_progress_bar(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    monkeypatch.setattr(pytest.importorskip("tqdm").tqdm, "monitor_interval", 0)  # else it keeps a thread
    with new("dqn") as model:
        model.learn(320, progress_bar=True)
    assert "320/320" in capsys.readouterr().out


@both
def test_save_load_and_predict(algorithm: str, tmp_path: Path) -> None:
    cls = ALGORITHMS[algorithm][0]
    observations = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    with new(algorithm, gamma=0.9, evaluate_every=2) as model:
        model.learn(256)
        model.save(tmp_path / "model")
        greedy = model.predict(observations, deterministic=True)[0]
        values = model.q_net(torch.from_numpy(observations)).argmax(1).numpy()
        assert np.array_equal(greedy, values)
        model.exploration_rate = 1.0
        assert not np.array_equal(model.predict(np.repeat(observations, 3, 0))[0], np.repeat(greedy, 3))

    with cls.load(tmp_path / "model") as loaded:
        assert (loaded.gamma, loaded.num_timesteps, loaded.n_envs) == (0.9, 256, 4)
        assert loaded.fingerprint() == model.fingerprint()
        assert np.array_equal(loaded.predict(observations, deterministic=True)[0], greedy)
        with pytest.raises(ValueError, match=r"no environment: pass env= to load\(\), or call set_env\(\)"):
            loaded.learn(64, reset_num_timesteps=False)
        loaded.set_env("CartPole-v1")
        loaded.learn(128, reset_num_timesteps=False)
        assert loaded.num_timesteps == 384 and loaded.fingerprint() != model.fingerprint()
    with cls.load(tmp_path / "model", env=partial(gymnasium.make, "CartPole-v1"), executor="processes") as loaded:
        loaded.learn(128)
        assert loaded.num_timesteps == 128 and "processes" in repr(loaded)


OPEN: list[Any] = []
MADE: list[Any] = []


class Counted(Toy):
    """Tells how many there are."""

    def __init__(self) -> None:
        super().__init__()
        OPEN.append(self)
        MADE.append(self)

    def close(self) -> None:
        OPEN.remove(self)


@both
def test_environments_are_made_when_they_are_used(algorithm: str) -> None:
    OPEN.clear()
    MADE.clear()
    model = new(algorithm, Counted)
    assert len(MADE) == 1 and not OPEN  # to look at its spaces
    model.learn(256)
    assert len(OPEN) == 4
    env = model.get_env()
    assert env.num_envs == 4 and env.observation_space == BOX
    assert len(OPEN) == 4
    env.reset()
    assert len(OPEN) == 8
    env.step(np.zeros(4, int))
    assert isinstance(evaluate_policy(model, env, n_eval_episodes=4)[0], float)
    env.close()
    assert len(OPEN) == 4
    model.close()
    assert not OPEN
    model.close()
    model.learn(64, reset_num_timesteps=False)  # makes new ones
    model.close()
    assert not OPEN and model.num_timesteps == 320


@both
def test_set_env(algorithm: str) -> None:
    with new(algorithm) as model:
        model.learn(128)
        model.set_env("CartPole-v1")
        model.set_env(gymnasium.make("CartPole-v1", max_episode_steps=5))
        model.learn(128, callback=(seen := Seen()))
        lengths = [info["episode"]["l"] for row in seen.rows for info in row[-1] if "episode" in info]
        assert len(lengths) > 20 and max(lengths) == 5
        with pytest.raises(ValueError, match="Observation spaces do not match"):
            model.set_env("MountainCar-v0")
        with pytest.raises(TypeError, match="a live DummyVecEnv"):
            model.set_env(DummyVecEnv([partial(gymnasium.make, "CartPole-v1")]))
        model.set_env(model.get_env())
        model.learn(128)


@pytest.mark.parametrize("place", [INLINE, PLACES[4]], ids=["inline", "processes"])
@pytest.mark.parametrize("pipeline", [0, 1])
@both
def test_set_parameters_is_seen_by_the_actors(algorithm: str, pipeline: int, place: dict[str, Any]) -> None:
    arguments = {"learning_starts": 0, "gradient_steps": 0} if algorithm == "dqn" else {"learning_rate": 0.0}
    with new(
        algorithm, Toy, exploration_initial_eps=0.0, exploration_final_eps=0.0, pipeline=pipeline, **arguments, **place
    ) as model:  # fmt: skip
        for action in (2, 0, 1):
            parameters = model.get_parameters()
            bias = [name for name in parameters["policy"] if name.startswith("q_net.") and name.endswith("bias")][-1]
            parameters["policy"][bias] = torch.eye(3)[action] * 100
            model.set_parameters(parameters)
            model.learn(128, callback=(seen := Seen()), reset_num_timesteps=action != 0)
            assert all((row[3] == action).all() for row in seen.rows), action


@pytest.mark.parametrize("pipeline", [0, 1])
@both
def test_logs(algorithm: str, pipeline: int, tmp_path: Path) -> None:
    with new(algorithm, pipeline=pipeline, evaluate_every=2, evaluate_episodes=2) as model:
        model.set_logger(configure(str(tmp_path), ["csv"]))
        model.learn(1280, callback=(after := AfterRounds(lambda model: model._episode_num)), log_interval=2)
        model.logger.close()
        rows = list(csv.DictReader((tmp_path / "progress.csv").read_text().splitlines()))
        episodes = [int(row["time/episodes"]) for row in rows]
        rounds = list(zip([0, *after.found], after.found, strict=False))
        assert episodes == [now for before, now in rounds if now // 2 > before // 2] and len(rows) > 8
        assert episodes[-1] == model._episode_num  # of the last round, after which there is none that it could be written beside
        last = rows[-1]
        for name in ("train/loss", "train/learning_rate", "rollout/ep_rew_mean", "rollout/ep_len_mean", "rollout/exploration_rate"):
            assert np.isfinite(float(last[name])), name
        assert float(last["rollout/ep_rew_mean"]) == float(last["rollout/ep_len_mean"])  # CartPole
        assert int(last["time/total_timesteps"]) <= 1280
        updates = [int(row["train/n_updates"]) for row in rows if row["train/n_updates"]]
        assert updates == sorted(updates) and 0 < updates[-1] <= model._n_updates
        logged = {float(row["eval/mean_reward"]) for row in rows if row["eval/mean_reward"]}
        assert logged and logged <= {one.mean for one in model.evaluations}


@both
def test_a_printed_table(algorithm: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with new(algorithm, verbose=1) as model:
        model.learn(640)
        printed = capsys.readouterr().out
        assert "ep_rew_mean" in printed and "total_timesteps" in printed and "| rollout/" in printed
        model.learn(640, log_interval=None)
        assert "total_timesteps" not in capsys.readouterr().out


def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    for algorithm, name in (("dqn", "DQN"), ("pqn", "PQN")):
        with new(algorithm, tensorboard_log=str(tmp_path)) as model:
            model.learn(320)
            model.logger.close()
            model.learn(320, tb_log_name="mine")
            model.logger.close()
        assert list(tmp_path.glob(f"{name}_1/events*"))
        assert list(tmp_path.glob("mine_*/events*"))


@both
def test_schedules_and_policy_kwargs(algorithm: str) -> None:
    rates: list[float] = []

    def look(model: Any) -> None:
        rates.append(model.policy.optimizer.param_groups[0]["lr"])

    with new(
        algorithm, learning_rate=lambda left: 1e-3 * (1 + left), rollout_steps=16, policy_kwargs={"net_arch": [8, 6]}
    ) as model:  # fmt: skip
        model.learn(640, callback=AfterRounds(look))
        late = 1 if algorithm == "pqn" else 0  # SB3's DQN counts the round that it learns from, CleanRL's PQN does not
        assert rates[1:] == pytest.approx([1e-3 * (1 + 1 - 64 * (n - late) / 640) for n in range(2, 11)])
        assert [tuple(p.shape) for p in model.q_net.parameters() if p.ndim == 2] == [(8, 4), (6, 8), (2, 6)]


def test_the_last_step_is_marked_where_next_observations_are_not_kept() -> None:
    arguments = BUFFERS["one array"][1]
    with new("dqn", **arguments) as model:
        model.learn(256)
        model.learn(256, reset_num_timesteps=False)  # the same episodes go on
        at = model.replay_buffer.pos - 1
        with pytest.warns(UserWarning, match="will be truncated"):
            model.learn(32)
        assert model.replay_buffer.dones[at].all()


@pytest.mark.parametrize("gradient_steps", [0, 3, -1])
def test_gradient_steps(gradient_steps: int) -> None:
    with new("dqn", gradient_steps=gradient_steps, learning_starts=64) as model:
        model.learn(160)
        assert model._n_updates == (32 if gradient_steps == -1 else gradient_steps) * 3  # in rounds 3 to 5


class Lucky(Toy):
    """Says whether an episode has gone well."""

    def info(self) -> dict[str, Any]:
        return {"is_success": self.t >= self.length}


def test_successes() -> None:
    with new("dqn", Lucky) as model:
        model.learn(640, callback=(seen := Seen()))
        ended = [float(info["is_success"]) for row in seen.rows for info in row[-1] if "episode" in info]
        assert list(model.ep_success_buffer) == ended[-100:] and 0 < np.mean(ended) < 1


def test_a_replay_buffer_is_saved_and_loaded(tmp_path: Path) -> None:
    with new("dqn") as model, new("dqn") as other:
        model.learn(256)
        model.save_replay_buffer(tmp_path / "buffer")
        other.load_replay_buffer(tmp_path / "buffer")
        assert np.array_equal(other.replay_buffer.observations, model.replay_buffer.observations)
        other.learn(128)
        assert other.replay_buffer.pos == (256 + 128) // 4 and other._n_updates > 0


@pytest.mark.parametrize("pipeline", [0, 1])
@pytest.mark.parametrize("executor", ["auto", "processes"])
@both
def test_started_before_it_learns(algorithm: str, executor: str, pipeline: int, tmp_path: Path) -> None:
    arguments = {"learning_starts": 0} if algorithm == "dqn" else {}
    with new(algorithm, executor=executor, workers=2, pipeline=pipeline, **EVALUATED, **arguments) as model:
        with model.trace(str(tmp_path / "trace.json")):
            found = outcome(model.learn(320))
    with new(algorithm, pipeline=pipeline, **EVALUATED, **arguments) as model:
        assert outcome(model.learn(320)) == found


CALLS: list[int] = []


class Counting:
    """A network that counts its calls."""

    def __init__(self, network: Any) -> None:
        self.network = network

    def bind(self, parameters: Any, observations: Any) -> Any:
        greedy = self.network.bind(parameters, observations)

        def counted(step: int) -> Any:
            CALLS.append(step)
            return greedy(step)

        return counted


def test_what_is_measured_includes_the_network() -> None:
    """The first rounds may be all random; it is the later ones that an executor is chosen for."""
    CALLS.clear()
    model = new("dqn", learning_starts=10**6)
    given = model.specification()
    behaviour = replace(given.actors.behaviour, network=Counting(given.actors.behaviour.network))
    assert actor_cost(replace(given, actors=replace(given.actors, behaviour=behaviour))) > 0
    assert len(CALLS) >= model.rollout_steps


def test_drawing_and_repr(tmp_path: Path) -> None:
    with new("dqn", evaluate_every=1) as model:
        assert repr(model) == "SyncDQN(n_actors=4, envs_per_actor=1, rollout_steps=8, pipeline=0)"
        drawn = model.draw()
        assert "actor" in drawn and "learner" in drawn and "evaluator" in drawn
        assert "executor='inline', workers=1" in repr(model)


# ---------------------------------------------------------------------- errors


class Other(Toy):
    """What the tests below make it."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__()
        vars(self).update(attributes)


def continuous() -> Any:
    return Other(action_space=spaces.Box(-1, 1, (2,)))


def with_a_lock() -> Any:
    return Other(lock=threading.Lock())


REFUSED: dict[str, tuple[str, Any, dict[str, Any], type[BaseException], str]] = {
    "live": ("both", lambda: DummyVecEnv([Toy]), {}, TypeError, "a live DummyVecEnv cannot be taken apart"),
    "ours": ("both", lambda: ReactorVecEnv([Toy], executor="inline"), {}, TypeError, "a live ReactorVecEnv cannot be taken apart"),
    "vector": ("both", lambda: SyncVectorEnv([Toy]), {}, TypeError, "a vector environment cannot be given to actors"),
    "lock": ("both", with_a_lock, {}, TypeError, "cannot be made again: .*Pass a function that makes one environment"),
    "no env": ("both", lambda: 7, {}, TypeError, "env=7 is neither an id"),
    "continuous": ("both", lambda: continuous, {}, AssertionError, "Discrete"),
    "start": ("both", lambda: partial(Other, action_space=spaces.Discrete(3, start=1)), {}, ValueError, "counts from 1"),
    "actors": ("both", lambda: Toy, {"n_actors": 0}, ValueError, "`n_actors` must be positive"),
    "envs": ("both", lambda: Toy, {"envs_per_actor": 1.5}, ValueError, "`envs_per_actor` must be an integer"),
    "workers": ("both", lambda: Toy, {"workers": 0}, ValueError, "`workers` must be positive"),
    "executor": ("both", lambda: Toy, {"executor": "ray"}, ValueError, "executor='ray'"),
    "pipeline": ("both", lambda: Toy, {"pipeline": 2}, ValueError, "pipeline=2"),
    "spread": ("both", lambda: Toy, {"epsilon_spread": -1.0}, ValueError, "epsilon_spread=-1.0"),
    "threads": ("both", lambda: Toy, {"executor": "threads", "learner_threads": 2}, ValueError, "needs learner_threads=1"),
    "evaluations": ("both", lambda: Toy, {"evaluate_every": 0}, ValueError, "`evaluate_every` must be positive"),
    "steps": ("both", lambda: Toy, {"rollout_steps": 0}, ValueError, "`rollout_steps` must be positive"),
    "batch": ("dqn", lambda: Toy, {"buffer_size": 10}, ValueError, "buffer_size=10 is smaller than a batch of 16"),
    "round": ("dqn", lambda: Toy, {"buffer_size": 100, "rollout_steps": 26}, ValueError, "smaller than one round of 26 steps"),
    "her": ("dqn", lambda: Toy, {"replay_buffer_class": HerReplayBuffer}, ValueError, "hindsight replay"),
    "episodes": ("dqn", lambda: Toy, {"rollout_steps": None, "train_freq": (1, "episode")}, ValueError, "train_freq in episodes"),
    "two names": ("dqn", lambda: Toy, {"train_freq": 3}, ValueError, "rollout_steps=8 and train_freq=3 are two names"),
    "loss": ("dqn", lambda: Toy, {"loss": "l1"}, ValueError, 'choose "huber" or "mse"'),
    "minibatches": ("pqn", lambda: Toy, {"n_minibatches": 7}, ValueError, "n_minibatches=7 does not divide a round of 64"),
    "lambda": ("pqn", lambda: Toy, {"q_lambda": 1.5}, ValueError, "q_lambda=1.5"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    which, env, arguments, error, match = REFUSED[name]
    for algorithm in ALGORITHMS if which == "both" else [which]:
        given = env()
        with pytest.raises(error, match=match):
            new(algorithm, given, **arguments)
        if isinstance(given, DummyVecEnv | ReactorVecEnv | SyncVectorEnv):
            given.close()


def test_names_for_one_number() -> None:
    assert new("dqn", rollout_steps=None, train_freq=(6, "step")).rollout_steps == 6
    assert new("dqn", rollout_steps=6, train_freq=6).rollout_steps == 6
    assert new("dqn", rollout_steps=None).rollout_steps == 4


class Faulty(Toy):
    """Does something unpleasant at a step."""

    def __init__(self, what: str) -> None:
        super().__init__(length=100)
        self.what = what

    def step(self, action: Any) -> Any:
        observation, _, _, _, info = super().step(action)
        reward = 1.0
        if self.t == 13:
            if self.what == "raises":
                raise ZeroDivisionError("thirteen")
            if self.what == "NaN reward":
                reward = np.nan
            else:
                observation[:2] = [np.nan, 0.0] if self.what == "NaN observation" else [np.inf, -np.inf]
        return observation, reward, False, False, info


def told(error: BaseException) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


@pytest.mark.parametrize("place", [INLINE, PLACES[1], PLACES[4]], ids=["inline", "threads", "processes"])
@pytest.mark.parametrize(
    ("what", "error", "message"),
    [
        ("NaN reward", ValueError, "the reward nan at step 4 of this round"),
        ("NaN observation", ValueError, "an observation with a NaN in it at step 4 of this round"),
        ("raises", ZeroDivisionError, "thirteen"),
    ],
    ids=["reward", "observation", "raises"],
)
@both
def test_a_faulty_environment(algorithm: str, what: str, error: Any, message: str, place: dict[str, Any]) -> None:
    with new(algorithm, partial(Faulty, what), rollout_steps=8, **place) as model:
        with pytest.raises(error) as caught:
            model.learn(640)
        assert message in told(caught.value)
        assert "actor[0]" in told(caught.value) and "tag" in told(caught.value)
        assert model._run is None


def test_infinity_passes() -> None:
    with new("dqn", partial(Faulty, "inf observation"), gradient_steps=0) as model:
        model.learn(160)
        assert np.isinf(model.replay_buffer.next_observations[:40]).sum() == 8


class Killer(BaseCallback):
    """Kills a worker after some steps, once."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at, self.when = at, 0.0

    def _on_step(self) -> bool:
        if self.n_calls == self.at:
            helpers = {info["pid"] for info in self.locals["infos"]} - {os.getpid()}
            os.kill(helpers.pop(), signal.SIGKILL)
            self.when = time.monotonic()
        return True


@pytest.mark.parametrize("pipeline", [0, 1])
@both
def test_a_killed_worker(algorithm: str, pipeline: int) -> None:
    with new(algorithm, Toy, pipeline=pipeline, executor="processes", workers=2) as model:
        with pytest.raises(WorkerDiedError, match="SIGKILL"):
            model.learn(100_000, callback=(killer := Killer(40)))
        assert time.monotonic() - killer.when < 5
        assert model._run is None
        model.learn(256)
        assert model.num_timesteps == 256


class Changing(Toy):
    """The second and later ones can do more."""

    count = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).count += 1
        if self.count > 1:
            self.action_space = spaces.Discrete(4)


@both
def test_another_action_space(algorithm: str) -> None:
    Changing.count = 0
    with new(algorithm, Changing) as model, pytest.raises(ValueError, match=r"environment 0 has the action space Discrete\(4\)"):
        model.learn(64)


@pytest.mark.parametrize("place", [INLINE, PLACES[1], PLACES[4]], ids=["inline", "threads", "processes"])
def test_interrupted(place: dict[str, Any]) -> None:
    def interrupt(found: Any, _: Any) -> bool:
        if found["self"].num_timesteps > 100:
            raise KeyboardInterrupt
        return True

    model = new("dqn", **place)
    with pytest.raises(KeyboardInterrupt):
        model.learn(640, callback=interrupt)
    assert model._run is None


def test_a_model_that_is_forgotten_leaves_nothing() -> None:
    new("dqn", **PLACES[4]).learn(128)
