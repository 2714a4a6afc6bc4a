"""The paper's parallel Q-learning (its section on synchronised parallel Q-learning) in the idioms of Ray, a plain loop and SB3.

A round: the actors take the learner's weights, each takes 100 epsilon-greedy steps of Blackjack, all transitions go to the replay
buffer, and the learner takes one gradient step. All rivals but SB3 share the learner and the environments; what differs is who
steps, where, and how the data travel. Every process has one torch thread: more get into each other's way on networks this small.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

import gymnasium
import numpy as np
import torch
from common import cores, end_children, start_ray

ENV = "Blackjack-v1"
CAPACITY = 20_000
GAMMA = 0.99
EPSILON = 0.1
LEARNING_RATE = 0.01
COPY_EVERY = 10
"""Rounds after which the target network takes the weights."""
WARM_UP = 5

Array = np.ndarray[Any, Any]
Transitions = tuple[Array, Array, Array, Array, Array]
"""States, actions, rewards, next states, ends: one array each."""


class Rival(Protocol):
    def round(self) -> None: ...
    def close(self) -> None: ...


def make() -> Any:
    """As users make it, without the checker, as in all benchmarks: that only makes the rivals faster."""
    return gymnasium.make(ENV, disable_env_checker=True)


def network() -> torch.nn.Sequential:
    return torch.nn.Sequential(torch.nn.Linear(3, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))


class Learner:
    """The networks, Adam and the replay buffer."""

    def __init__(self, batch: int, seed: int = 0) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(seed)
        self.net, self.target = network(), network()
        self.target.load_state_dict(self.net.state_dict())
        self.adam = torch.optim.Adam(self.net.parameters(), lr=LEARNING_RATE)
        self.batch, self.rng, self.rounds = batch, np.random.default_rng(seed), 0
        self.head = self.size = 0
        self.states, self.nexts = np.zeros((CAPACITY, 3), np.float32), np.zeros((CAPACITY, 3), np.float32)
        self.actions, self.rewards = np.zeros(CAPACITY, np.int64), np.zeros(CAPACITY, np.float32)
        self.ends = np.zeros(CAPACITY, np.float32)

    def weights(self) -> dict[str, Array]:
        """The state_dict as numpy arrays, which Ray sends faster than tensors; they share the network's memory."""
        return {name: tensor.numpy() for name, tensor in self.net.state_dict().items()}

    def learn(self, parts: list[Transitions]) -> None:
        """Store the transitions of all actors and take one gradient step."""
        found = parts[0] if len(parts) == 1 else tuple(map(np.concatenate, zip(*parts, strict=True)))
        count = len(found[0])
        where = np.arange(self.head, self.head + count) % CAPACITY
        for store, values in zip((self.states, self.actions, self.rewards, self.nexts, self.ends), found, strict=True):
            store[where] = values
        self.head, self.size = (self.head + count) % CAPACITY, min(self.size + count, CAPACITY)

        drawn = self.rng.integers(self.size, size=self.batch)
        states, actions, rewards, nexts, ends = (
            torch.from_numpy(store[drawn]) for store in (self.states, self.actions, self.rewards, self.nexts, self.ends)
        )
        with torch.no_grad():
            aims = rewards + GAMMA * (1 - ends) * self.target(nexts).amax(1)
        loss = torch.nn.functional.mse_loss(self.net(states).gather(1, actions[:, None])[:, 0], aims)
        self.adam.zero_grad()
        loss.backward()
        self.adam.step()
        self.rounds += 1
        if self.rounds % COPY_EVERY == 0:
            self.target.load_state_dict(self.net.state_dict())


def load(net: torch.nn.Module, weights: dict[str, Array]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's arrays are read-only; load_state_dict only reads them
        net.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})


class One:
    """One environment and a network of its own: the paper's rollout actor. Infers one state at a time."""

    def __init__(self, index: int, steps: int, seed: int) -> None:
        torch.set_num_threads(1)
        self.env, self.net, self.steps = make(), network(), steps
        self.rng = np.random.default_rng([seed, index])
        self.now = self.env.reset(seed=seed + index)[0]

    def rollout(self, weights: dict[str, Array]) -> Transitions:
        load(self.net, weights)
        env, net, steps, now = self.env, self.net, self.steps, self.now
        states, nexts = np.empty((steps, 3), np.float32), np.empty((steps, 3), np.float32)
        actions, rewards = np.empty(steps, np.int64), np.empty(steps, np.float32)
        ends = np.zeros(steps, np.float32)
        seen = torch.from_numpy(states)
        explore, random = (self.rng.random(steps) < EPSILON).tolist(), self.rng.integers(2, size=steps).tolist()
        with torch.no_grad():
            for t in range(steps):
                states[t] = now
                action = random[t] if explore[t] else int(net(seen[t]).argmax())
                now, reward, terminated, truncated, _ = env.step(action)
                actions[t], rewards[t], nexts[t] = action, reward, now
                ends[t] = terminated
                if terminated or truncated:
                    now = env.reset()[0]
        self.now = now
        return states, actions, rewards, nexts, ends


class Block:
    """Some environments stepped by a plain loop, with one inference a step for all of them."""

    def __init__(self, first: int, count: int, steps: int, seed: int) -> None:
        torch.set_num_threads(1)
        self.envs, self.net, self.steps = [make() for _ in range(count)], network(), steps
        self.rng = np.random.default_rng([seed, first])
        self.now = [env.reset(seed=seed + first + i)[0] for i, env in enumerate(self.envs)]

    def rollout(self, weights: dict[str, Array] | None = None) -> Transitions:
        """With no weights: those that the network has."""
        if weights is not None:
            load(self.net, weights)
        envs, net, now = self.envs, self.net, self.now
        shape = (self.steps, len(envs))
        states, nexts = np.empty((*shape, 3), np.float32), np.empty((*shape, 3), np.float32)
        rewards, ends = np.empty(shape, np.float32), np.empty(shape, np.float32)
        actions, explore = self.rng.integers(2, size=shape), self.rng.random(shape) < EPSILON
        greedy = ~explore
        seen = torch.from_numpy(states)
        with torch.no_grad():
            for t in range(self.steps):
                states[t] = now
                row = actions[t]
                np.copyto(row, net(seen[t]).argmax(1).numpy(), where=greedy[t])
                gains, stops, over = [], [], []
                for i, action in enumerate(row.tolist()):
                    now[i], reward, terminated, truncated, _ = envs[i].step(action)
                    gains.append(reward)
                    stops.append(terminated)
                    if terminated or truncated:
                        over.append(i)
                nexts[t], rewards[t], ends[t] = now, gains, stops
                for i in over:
                    now[i] = envs[i].reset()[0]
        return states.reshape(-1, 3), actions.ravel(), rewards.ravel(), nexts.reshape(-1, 3), ends.ravel()


# ---------------------------------------------------------------------- rivals


class RayActors:
    """A Ray actor per rollout worker, as Ray's documentation advises: one ``ray.put`` and one ``ray.get`` a round."""

    def __init__(self, batch: int, actors: int = 16, steps: int = 100, seed: int = 0) -> None:
        self.ray, self.learner = start_ray(), Learner(batch, seed)
        share = int(10_000 * min(1.0, cores() / actors)) / 10_000  # Ray counts in ten-thousandths
        remote = self.ray.remote(num_cpus=share)(One)
        self.actors = [remote.remote(index, steps, seed) for index in range(actors)]

    def round(self) -> None:
        stored = self.ray.put(self.learner.weights())
        self.learner.learn(self.ray.get([actor.rollout.remote(stored) for actor in self.actors]))

    def close(self) -> None:
        self.ray.shutdown()


class RayBatched:
    """The best that Ray can do: an actor per core, its environments and its inference batched inside.

    The weights are less than 1 kB and go to each actor directly; with so few actors ``ray.put`` takes as long.
    """

    def __init__(self, batch: int, actors: int = 16, steps: int = 100, seed: int = 0) -> None:
        self.ray, self.learner = start_ray(), Learner(batch, seed)
        blocks = min(cores(), actors)
        spans = pairwise(actors * k // blocks for k in range(blocks + 1))
        remote = self.ray.remote(num_cpus=1)(Block)
        self.actors = [remote.remote(lo, hi - lo, steps, seed) for lo, hi in spans]

    def round(self) -> None:
        weights = self.learner.weights()
        self.learner.learn(self.ray.get([actor.rollout.remote(weights) for actor in self.actors]))

    def close(self) -> None:
        self.ray.shutdown()


class SingleLoop:
    """Everything in one process. The rollouts use the learner's own network: there is nothing to send."""

    def __init__(self, batch: int, actors: int = 16, steps: int = 100, seed: int = 0) -> None:
        self.learner, self.block = Learner(batch, seed), Block(0, actors, steps, seed)
        self.block.net = self.learner.net

    def round(self) -> None:
        self.learner.learn([self.block.rollout()])

    def close(self) -> None:
        for env in self.block.envs:
            env.close()


class Flat(gymnasium.ObservationWrapper[Array, Any, Any]):
    """Blackjack's tuple as three floats: SB3 has no tuples."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Box(0.0, 31.0, (3,), np.float32)

    def observation(self, observation: Any) -> Array:
        return np.array(observation, np.float32)


def blackjack() -> Any:
    return Flat(make())


class Sb3:
    """SB3's ``DQN`` with the same settings; ``kind`` is "DummyVecEnv" or "SubprocVecEnv".

    It has no MSE loss (smooth L1, as cheap), clips gradients, and draws epsilon once for all environments. No ``Monitor``: that
    would only slow it down.
    """

    def __init__(self, batch: int, actors: int = 16, steps: int = 100, seed: int = 0, *, kind: str = "DummyVecEnv") -> None:
        from stable_baselines3 import DQN
        from stable_baselines3.common import vec_env
        from stable_baselines3.common.logger import Logger

        torch.set_num_threads(1)
        # "fork" starts in seconds where the default start method imports torch in every process; it steps the same.
        options = {"start_method": "fork"} if kind == "SubprocVecEnv" else {}
        self.venv, self.steps = getattr(vec_env, kind)([blackjack] * actors, **options), actors * steps
        self.model = DQN(
            "MlpPolicy", self.venv, learning_rate=LEARNING_RATE, buffer_size=CAPACITY, learning_starts=0, batch_size=batch,
            gamma=GAMMA, train_freq=steps, gradient_steps=1, target_update_interval=COPY_EVERY * self.steps,
            exploration_initial_eps=EPSILON, exploration_final_eps=EPSILON, policy_kwargs={"net_arch": [32]},
            seed=seed, device="cpu",
        )  # fmt: skip
        self.model.set_logger(Logger(None, []))  # otherwise each call of learn makes one, with a folder

    def round(self) -> None:
        # learn for one cycle neither resets the environments nor forgets anything. With a logger of its own the call costs some
        # microseconds more than the cycle; a callback that timed rounds within one long call would be called at every step.
        self.model.learn(self.steps, reset_num_timesteps=False, log_interval=None)

    def close(self) -> None:
        self.venv.close()


# ---------------------------------------------------------------------- the limit, and running one of them


def environments_alone(actors: int = 16, steps: int = 100) -> float:
    """Seconds that a round's bare environments take on one core: random actions drawn before, resets at ends, nothing kept."""
    rng = np.random.default_rng(0)
    work = [(gymnasium.make(ENV).unwrapped, rng.integers(2, size=steps).tolist()) for _ in range(actors)]
    for index, (env, _) in enumerate(work):
        env.reset(seed=index)
    begin = time.perf_counter()
    for env, actions in work:
        step, reset = env.step, env.reset
        for action in actions:
            _, _, terminated, truncated, _ = step(action)
            if terminated or truncated:
                reset()
    return time.perf_counter() - begin


RIVALS: dict[str, Callable[..., Rival]] = {
    "ray": RayActors,
    "ray-batched": RayBatched,
    "loop": SingleLoop,
    "sb3-dummy": partial(Sb3, kind="DummyVecEnv"),
    "sb3-subproc": partial(Sb3, kind="SubprocVecEnv"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Time one rival in this process; prints one line of JSON.")
    parser.add_argument("name", choices=RIVALS)
    parser.add_argument("batch", type=int)
    parser.add_argument("rounds", type=int)
    options = parser.parse_args()
    rival = RIVALS[options.name](options.batch)
    taken = []
    try:
        for _ in range(WARM_UP + options.rounds):
            begin = time.perf_counter()
            rival.round()
            taken.append(time.perf_counter() - begin)
    finally:
        rival.close()
        end_children()
    median = statistics.median(taken[WARM_UP:])
    print(json.dumps({"name": options.name, "batch": options.batch, "seconds_per_round": median, "rounds": options.rounds}))


if __name__ == "__main__":
    main()
