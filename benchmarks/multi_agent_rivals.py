"""Multi-agent inference, one network per agent, in the idioms of a plain loop, stacked networks, processes, Ray and SuperSuit.

A step: each agent's network sees that agent's observation and the agent takes the greedy action, in some copies of one environment.
All rivals compute the same actions, so all get the same rewards; ``total`` is their sum. An episode that ends is followed by a
reset within the same step, which is not counted. Every process has one torch thread: more get into each other's way on networks
this small. The paper's networks end in a softmax, which does not change the greedy action; nobody has it here.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import torch
from common import cores, end_children, start_ray
from junction import JunctionEnv

HIDDEN = 64
SEED = 0

Array = np.ndarray[Any, Any]
Networks = Sequence[torch.nn.Module]


class Rival(Protocol):
    total: float
    """The rewards of all agents in all copies, up to now."""
    seeds: Sequence[int]
    """What each copy's first reset was given; later ones have no seed."""

    def run(self, steps: int) -> float:
        """Take steps in every copy; gives the seconds."""
        ...

    def close(self) -> None: ...


def junction(n_agents: int) -> Any:
    return JunctionEnv(n_agents)


def simple_spread(n_agents: int) -> Any:
    from mpe2 import simple_spread_v3

    return simple_spread_v3.parallel_env(N=n_agents, max_cycles=25)


def networks(n_agents: int, obs: int, actions: int, seed: int = 0) -> list[torch.nn.Sequential]:
    """The paper's networks with weights drawn from the seed: what they have learned does not change how long they take."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return [
            torch.nn.Sequential(torch.nn.Linear(obs, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, actions)).eval()
            for _ in range(n_agents)
        ]


def networks_for(make: Callable[[], Any], seed: int = 0) -> dict[str, torch.nn.Sequential]:
    """A network for each agent of an environment whose agents have the same spaces."""
    env = make()
    agents = list(env.possible_agents)
    (obs,), actions = env.observation_space(agents[0]).shape, int(env.action_space(agents[0]).n)
    env.close()
    return dict(zip(agents, networks(len(agents), obs, actions, seed), strict=True))


class Copies:
    """Copies of an environment, stepped one after another."""

    def __init__(self, make: Callable[[], Any], seeds: Sequence[int]) -> None:
        torch.set_num_threads(1)
        self.envs, self.seeds, self.total = [make() for _ in seeds], list(seeds), 0.0
        self.agents = list(self.envs[0].possible_agents)
        self.now: list[dict[str, Array]] = [env.reset(seed=seed)[0] for env, seed in zip(self.envs, seeds, strict=True)]

    def step(self, copy: int, actions: Mapping[str, int]) -> None:
        env = self.envs[copy]
        self.now[copy], rewards, _, _, _ = env.step(actions)
        self.total += sum(rewards.values())
        if not env.agents:
            self.now[copy] = env.reset()[0]

    def run(self, steps: int) -> float:
        begin = time.perf_counter()
        self.go(steps)
        return time.perf_counter() - begin

    def go(self, steps: int) -> None:
        raise NotImplementedError

    def close(self) -> None:
        for env in self.envs:
            env.close()


# ---------------------------------------------------------------------- rivals


class Loop(Copies):
    """What most people write, and what the paper's actors do: one observation through one network at a time."""

    def __init__(self, make: Callable[[], Any], nets: Mapping[str, torch.nn.Module], seeds: Sequence[int]) -> None:
        super().__init__(make, seeds)
        self.nets = nets

    def go(self, steps: int) -> None:
        nets, now, seen = self.nets, self.now, torch.from_numpy
        with torch.inference_mode():
            for _ in range(steps):
                for copy in range(len(now)):
                    actions = {agent: int(nets[agent](seen(row)).argmax()) for agent, row in now[copy].items()}
                    self.step(copy, actions)


class Stack:
    """Networks of one shape as one: two batched matrix products for all agents and all copies."""

    def __init__(self, nets: Networks, copies: int) -> None:
        first, last = ([net[layer] for net in nets] for layer in (0, 2))
        self.weights = [torch.stack([layer.weight.detach().T for layer in layers]).contiguous() for layers in (first, last)]
        self.biases = [torch.stack([layer.bias.detach()[None] for layer in layers]) for layers in (first, last)]
        agents, obs, hidden = self.weights[0].shape
        self.rows = np.empty((copies, agents, obs), np.float32)
        """The observations, to be written before each call."""
        self.flat = self.rows.reshape(copies * agents, obs)
        self.seen = torch.from_numpy(self.rows).transpose(0, 1)
        self.hidden = torch.empty(agents, copies, hidden)
        self.values = torch.empty(agents, copies, self.weights[1].shape[2])
        self.by_copy = self.values.numpy().transpose(1, 0, 2)

    def __call__(self) -> Array:
        """The greedy actions, a row for each copy."""
        torch.baddbmm(self.biases[0], self.seen, self.weights[0], out=self.hidden).relu_()
        torch.baddbmm(self.biases[1], self.hidden, self.weights[1], out=self.values)
        return self.by_copy.argmax(2)


class Stacked(Copies):
    """The best loop in one process."""

    def __init__(self, make: Callable[[], Any], nets: Mapping[str, torch.nn.Module], seeds: Sequence[int]) -> None:
        super().__init__(make, seeds)
        self.stack = Stack([nets[agent] for agent in self.agents], len(self.envs))

    def go(self, steps: int) -> None:
        stack, now, agents = self.stack, self.now, self.agents
        flat = stack.flat.reshape(-1)
        with torch.inference_mode():
            for _ in range(steps):
                np.concatenate([row for rows in now for row in rows.values()], out=flat)
                for copy, actions in enumerate(stack().tolist()):
                    self.step(copy, dict(zip(agents, actions, strict=True)))


def share(seeds: Sequence[int]) -> list[Sequence[int]]:
    """The copies' seeds, cut into a part for each core."""
    count = cores()
    if len(seeds) < count:
        raise NotImplementedError("fewer copies than cores")
    cuts = [len(seeds) * part // count for part in range(count + 1)]
    return [seeds[lo:hi] for lo, hi in pairwise(cuts)]


def serve(pipe: Any, make: Callable[[], Any], nets: Mapping[str, torch.nn.Module], seeds: Sequence[int]) -> None:
    """Take so many steps as the pipe says, and tell the rewards up to then; until it says 0."""
    loop = Stacked(make, nets, seeds)
    pipe.send(loop.total)
    while steps := pipe.recv():
        loop.go(steps)
        pipe.send(loop.total)
    loop.close()


class Processes:
    """A plain process for each core, with the best loop over its part of the copies. Nothing is exchanged but the total."""

    def __init__(self, make: Callable[[], Any], nets: Mapping[str, torch.nn.Module], seeds: Sequence[int]) -> None:
        self.seeds, self.total = list(seeds), 0.0
        self.pipes, self.processes = [], []
        for part in share(seeds):
            mine, theirs = multiprocessing.Pipe()
            process = multiprocessing.Process(target=serve, args=(theirs, make, nets, part), daemon=True)
            process.start()
            theirs.close()
            self.pipes.append(mine)
            self.processes.append(process)
        for pipe in self.pipes:  # until all are up
            pipe.recv()

    def run(self, steps: int) -> float:
        begin = time.perf_counter()
        for pipe in self.pipes:
            pipe.send(steps)
        self.total = sum([pipe.recv() for pipe in self.pipes])
        return time.perf_counter() - begin

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.send(0)
        for process in self.processes:
            process.join()


class RayLoops:
    """A Ray actor for each core, with the best loop over its part of the copies: ``ray.put`` once, one ``ray.get`` for each run."""

    def __init__(self, make: Callable[[], Any], nets: Mapping[str, torch.nn.Module], seeds: Sequence[int]) -> None:
        parts = share(seeds)
        self.seeds, self.total = list(seeds), 0.0
        self.ray = start_ray()
        remote = self.ray.remote(num_cpus=1)(LoopActor)
        known = self.ray.put(dict(nets))
        self.actors = [remote.remote(make, known, list(part)) for part in parts]
        self.ray.get([actor.run.remote(0) for actor in self.actors])  # it takes seconds until all run

    def run(self, steps: int) -> float:
        begin = time.perf_counter()
        self.total = sum(self.ray.get([actor.run.remote(steps) for actor in self.actors]))
        return time.perf_counter() - begin

    def close(self) -> None:
        self.ray.shutdown()


class LoopActor:
    """What :class:`RayLoops` runs on each core."""

    def __init__(self, make: Callable[[], Any], nets: Mapping[str, torch.nn.Module], seeds: Sequence[int]) -> None:
        self.loop = Stacked(make, nets, seeds)

    def run(self, steps: int) -> float:
        self.loop.go(steps)
        return self.loop.total


class Agent:
    """The paper's actor: one agent's network. With several copies it sees their rows as one batch."""

    def __init__(self, net: torch.nn.Module) -> None:
        torch.set_num_threads(1)
        self.net = net

    def act(self, rows: Array) -> list[int]:
        with torch.inference_mode():
            found: list[int] = self.net(torch.tensor(rows)).argmax(-1).tolist()
            return found


class RayActors(Copies):
    """A Ray actor per agent and one ``ray.get`` a step, as Ray's documentation advises.

    An actor's observations, 200 bytes a copy, are an argument of the call. Ray sends arguments of less than 100 kB with the call;
    ``ray.put`` is for what is large or goes to several actors, and would cost another round trip here. (``torch.tensor`` copies:
    the arrays that Ray gives are read-only, and torch warns of them.)
    """

    def __init__(self, make: Callable[[], Any], nets: Mapping[str, torch.nn.Module], seeds: Sequence[int]) -> None:
        super().__init__(make, seeds)
        self.ray = start_ray()
        share = int(10_000 * min(1.0, cores() / len(self.agents))) / 10_000  # Ray counts in ten-thousandths
        remote = self.ray.remote(num_cpus=share)(Agent)
        self.actors = [remote.remote(nets[agent]) for agent in self.agents]
        shape = self.now[0][self.agents[0]].shape
        self.ray.get(
            [actor.act.remote(np.zeros((1, *shape), np.float32)) for actor in self.actors]
        )  # it takes seconds until all run

    def go(self, steps: int) -> None:
        get, agents, now = self.ray.get, self.agents, self.now
        calls = [actor.act for actor in self.actors]
        for _ in range(steps):
            rows = [np.stack([seen[agent] for seen in now]) for agent in agents]
            found = get([call.remote(row) for call, row in zip(calls, rows, strict=True)])
            for copy, actions in enumerate(zip(*found, strict=True)):
                self.step(copy, dict(zip(agents, actions, strict=True)))

    def close(self) -> None:
        super().close()
        self.ray.shutdown()


class SuperSuit:
    """``concat_vec_envs_v1``, whose rows are (copy, agent) pairs, with the networks stacked."""

    def __init__(
        self, make: Callable[[], Any], nets: Mapping[str, torch.nn.Module], seeds: Sequence[int], *, num_cpus: int = 0
    ) -> None:
        import supersuit

        torch.set_num_threads(1)
        copies = len(seeds)
        if copies < num_cpus:
            raise NotImplementedError("fewer copies than processes")
        env = make()
        self.agents = list(env.possible_agents)
        self.venv = supersuit.concat_vec_envs_v1(supersuit.pettingzoo_env_to_vec_env_v1(env), copies, num_cpus=num_cpus)
        self.stack, self.total = Stack([nets[agent] for agent in self.agents], copies), 0.0
        # It seeds by itself, from one number. Its processes add their own index and then the index within the process (3.11), so
        # with processes some copies are twins.
        share = -(-copies // max(1, num_cpus))
        self.seeds = [seeds[0] + copy // share + copy % share for copy in range(copies)]
        self.now = self.venv.reset(seed=seeds[0])[0]

    def run(self, steps: int) -> float:
        begin = time.perf_counter()
        stack, step, now, total = self.stack, self.venv.step, self.now, 0.0
        with torch.inference_mode():
            for _ in range(steps):
                stack.flat[:] = now
                now, rewards, _, _, _ = step(stack().reshape(-1))
                total += float(rewards.sum(dtype=np.float64))
        self.now = now
        self.total += total
        return time.perf_counter() - begin

    def close(self) -> None:
        self.venv.close()


# ---------------------------------------------------------------------- the limit, and running one of them


class Alone(Copies):
    """Nothing but the environments: random actions that were drawn before, resets at the ends, nothing kept."""

    def __init__(self, make: Callable[[], Any], nets: Mapping[str, torch.nn.Module], seeds: Sequence[int]) -> None:
        super().__init__(make, seeds)
        rng = np.random.default_rng(seeds[0])
        width = int(self.envs[0].action_space(self.agents[0]).n)
        drawn = rng.integers(width, size=(256, len(self.agents))).tolist()
        self.drawn = [dict(zip(self.agents, actions, strict=True)) for actions in drawn]
        self.taken = 0

    def go(self, steps: int) -> None:
        drawn, envs, taken = self.drawn, self.envs, self.taken
        for k in range(taken, taken + steps):
            actions = drawn[k % len(drawn)]
            for env in envs:
                env.step(actions)
                if not env.agents:
                    env.reset()
        self.taken = taken + steps


ENVIRONMENTS: dict[str, Callable[[int], Any]] = {"junction": junction, "simple_spread": simple_spread}
RIVALS: dict[str, Callable[..., Rival]] = {
    "stacked, a process for each core": Processes,
    "supersuit, 2 processes": partial(SuperSuit, num_cpus=2),
    "supersuit": SuperSuit,
    "loop": Loop,
    "stacked": Stacked,
    "ray, an actor for each agent": RayActors,
    "ray, stacked, an actor for each core": RayLoops,
}
"""Those that fork come first: before anything has started threads."""


def expected(make: Callable[[], Any], nets: Mapping[str, torch.nn.Module], seeds: Sequence[int], steps: int) -> float:
    """The rewards that every contender gets in its first steps: those of the plain loop."""
    reference = Loop(make, nets, seeds)
    reference.run(steps)
    reference.close()
    return reference.total


def main() -> None:
    parser = argparse.ArgumentParser(description="Time one rival in this process; prints one line of JSON.")
    parser.add_argument("name", choices=[*RIVALS, "alone"])
    parser.add_argument("environment", choices=ENVIRONMENTS)
    parser.add_argument("agents", type=int)
    parser.add_argument("copies", type=int)
    parser.add_argument("steps", type=int)
    options = parser.parse_args()
    make = partial(ENVIRONMENTS[options.environment], options.agents)
    rival = {**RIVALS, "alone": Alone}[options.name](make, networks_for(make), range(SEED, SEED + options.copies))
    try:
        rival.run(max(1, options.steps // 10))
        taken = rival.run(options.steps)
    finally:
        rival.close()
        end_children()
    print(json.dumps({"us_per_step": 1e6 * taken / options.steps / options.copies, **vars(options)}))


if __name__ == "__main__":
    main()
