"""PPO for many agents as a script of one page has it, in CleanRL's idiom: a network for each agent or for all, or one that plays
itself.

Networks, losses, optimisers and numbers are those of our trainer. Every process has one torch thread: networks are small. Rows of
agents that have died are zeros, as SuperSuit pads them, and are learned from.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from multi_agent_training_cases import Case, Numbers
from torch import nn

Array = np.ndarray[Any, Any]


def layer(inputs: int, outputs: int, gain: float = 2**0.5) -> nn.Linear:
    made = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(made.weight, gain)
    nn.init.zeros_(made.bias)
    return made


class Agent(nn.Module):
    """Actor, critic, and their optimiser."""

    def __init__(self, inputs: int, actions: int, numbers: Numbers) -> None:
        super().__init__()
        self.actor = nn.Sequential(layer(inputs, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, actions, 0.01))
        self.critic = nn.Sequential(layer(inputs, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, 1, 1.0))
        self.numbers, self.optimizer = numbers, torch.optim.Adam(self.parameters(), numbers.learning_rate, eps=1e-5)

    def distribution(self, seen: torch.Tensor, masks: torch.Tensor | None = None) -> torch.distributions.Categorical:
        logits = self.actor(seen)
        return torch.distributions.Categorical(logits=logits if masks is None else logits.masked_fill(~masks, -1e8))

    def learn(self, seen: Any, actions: Any, log_probs: Any, advantages: Any, returns: Any, masks: Any = None) -> None:
        """All passes over a round, rows ``(rows, ...)``."""
        for _ in range(self.numbers.n_epochs):
            for rows in torch.randperm(len(actions)).split(self.numbers.batch_size):
                found = self.distribution(seen[rows], None if masks is None else masks[rows])
                ratio = (found.log_prob(actions[rows]) - log_probs[rows]).exp()
                advantage = advantages[rows]
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                surrogate = torch.max(-advantage * ratio, -advantage * ratio.clamp(0.8, 1.2)).mean()
                value_loss = ((self.critic(seen[rows])[:, 0] - returns[rows]) ** 2).mean()
                self.optimizer.zero_grad()
                (surrogate + 0.5 * value_loss).backward()
                nn.utils.clip_grad_norm_(self.parameters(), 0.5)
                self.optimizer.step()


def advantages_of(rewards: Any, values: Any, following: Any, dones: Any, numbers: Numbers) -> torch.Tensor:
    """``(steps, envs)``; ``following`` is the value of what was seen last."""
    found, later = torch.zeros_like(rewards), torch.zeros_like(following)
    for step in reversed(range(len(rewards))):
        after = following if step + 1 == len(rewards) else values[step + 1]
        going_on = 1 - dones[step]
        later = (
            rewards[step] + numbers.gamma * after * going_on - values[step] + numbers.gamma * numbers.gae_lambda * going_on * later
        )
        found[step] = later
    return found


# ---------------------------------------------------------------------- a policy for each agent


class Loop:
    """Copies of a ``ParallelEnv``, one after the other; rows are those of SuperSuit."""

    def __init__(self, make: Callable[[], Any], copies: int) -> None:
        self.envs = [make() for _ in range(copies)]

        self.agents = list(self.envs[0].possible_agents)
        self.nothing = np.zeros_like(self.envs[0].observation_space(self.agents[0]).sample())

    def reset(self, seed: int) -> tuple[Array, Any]:
        return np.stack([one for at, env in enumerate(self.envs) for one in env.reset(seed=seed + at)[0].values()]), {}

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, Any]:
        seen, rewards, over = [], [], []
        for env, own in zip(self.envs, actions.reshape(len(self.envs), -1).tolist(), strict=True):
            live = set(env.agents)
            found, paid, _, _, _ = env.step({agent: one for agent, one in zip(self.agents, own, strict=True) if agent in live})
            left = set(env.agents)
            over += [agent not in left for agent in self.agents]
            rewards += [paid.get(agent, 0.0) for agent in self.agents]
            if not left:
                found, _ = env.reset()
                left = set(env.agents)
            seen += [found[agent] if agent in left else self.nothing for agent in self.agents]
        return np.stack(seen), np.array(rewards), np.array(over), np.zeros(len(over), bool), {}

    def close(self) -> None:
        for env in self.envs:
            env.close()


def supersuit(make: Callable[[], Any], copies: int, cpus: int) -> Any:
    import supersuit as ss

    env = ss.pettingzoo_env_to_vec_env_v1(ss.black_death_v3(make()))
    return ss.concat_vec_envs_v1(env, copies, num_cpus=cpus, base_class="gymnasium")


class Independent:
    """A policy for each agent, or one for all."""

    def __init__(self, envs: Any, case: Case) -> None:
        torch.set_num_threads(1)
        self.envs, self.numbers, self.count = envs, case.numbers, case.agents
        self.agents = [Agent(case.inputs, case.actions, case.numbers) for _ in range(1 if case.shared else case.agents)]
        self.seen = self._by_policy(envs.reset(seed=0)[0])
        self.total = 0.0

    def _by_policy(self, rows: Array) -> torch.Tensor:
        """Rows by environment as those of each policy, ``(policies, rows, ...)``; observations are flat."""
        shaped = torch.as_tensor(rows, dtype=torch.float32)
        flat = shaped.flatten(1) if shaped.ndim > 1 else shaped
        by_agent = flat.view(self.numbers.envs, self.count, *flat.shape[1:]).transpose(0, 1)
        return by_agent.reshape(len(self.agents), -1, *flat.shape[1:])

    def round(self) -> int:
        """Sample and learn; returns steps of environments."""
        steps, envs, count = self.numbers.n_steps, self.numbers.envs, len(self.agents)
        shape = steps, count, envs * self.count // count
        seen = torch.zeros(*shape, self.seen.shape[-1])
        actions, dones = torch.zeros(shape, dtype=torch.int64), torch.zeros(shape)
        log_probs, values, rewards = torch.zeros(shape), torch.zeros(shape), torch.zeros(shape)
        for step in range(steps):
            seen[step] = self.seen
            with torch.no_grad():
                for at, agent in enumerate(self.agents):
                    found = agent.distribution(self.seen[at])
                    actions[step, at] = chosen = found.sample()
                    log_probs[step, at] = found.log_prob(chosen)
                    values[step, at] = agent.critic(self.seen[at])[:, 0]
            rows, paid, ended, cut, _ = self.envs.step(actions[step].view(self.count, envs).T.reshape(-1).numpy())
            self.seen = self._by_policy(rows)
            rewards[step], dones[step] = self._by_policy(paid), self._by_policy(np.logical_or(ended, cut))
        for at, agent in enumerate(self.agents):
            with torch.no_grad():
                following = agent.critic(self.seen[at])[:, 0]
            advantages = advantages_of(rewards[:, at], values[:, at], following, dones[:, at], self.numbers)
            returns = advantages + values[:, at]
            agent.learn(
                seen[:, at].flatten(0, 1), *(one.flatten() for one in (actions[:, at], log_probs[:, at], advantages, returns))
            )
        self.total += float(rewards.sum())
        return steps * envs

    def close(self) -> None:
        self.envs.close()


# ---------------------------------------------------------------------- one policy that plays itself


class SelfPlay:
    """Games that take turns, one after the other: one side learns, the other has the weights of some rounds ago."""

    def __init__(self, make: Callable[[], Any], numbers: Numbers, every: int) -> None:
        torch.set_num_threads(1)
        self.envs, self.numbers, self.every, self.rounds = [make() for _ in range(numbers.envs)], numbers, every, 0
        for at, env in enumerate(self.envs):
            env.reset(seed=at)
        first = self.envs[0].possible_agents[0]
        seen = self.envs[0].observation_space(first)["observation"]
        self.agent = Agent(int(np.prod(seen.shape)), int(self.envs[0].action_space(first).n), numbers)
        self.opponent = copy.deepcopy(self.agent)
        self.sides = [at % 2 for at in range(numbers.envs)]

    def round(self) -> int:
        """Sample and learn; returns moves."""
        if self.rounds % self.every == 0:
            self.opponent.load_state_dict(self.agent.state_dict())
        self.rounds += 1
        rows: list[list[Any]] = [[] for _ in self.envs]  # of each game: seen, mask, action, log-probability, value, reward, done
        for _ in range(self.numbers.n_steps):
            sights = [env.last()[0] for env in self.envs]
            seen = torch.as_tensor(np.stack([one["observation"].ravel() for one in sights]), dtype=torch.float32)
            masks = torch.as_tensor(np.stack([one["action_mask"] for one in sights])).bool()
            mine = [env.agent_selection == env.possible_agents[side] for env, side in zip(self.envs, self.sides, strict=True)]
            actions = torch.zeros(len(mine), dtype=torch.int64)
            with torch.no_grad():
                for who, turn in ((self.agent, True), (self.opponent, False)):
                    at = torch.tensor([number for number, one in enumerate(mine) if one is turn], dtype=torch.int64)
                    if not len(at):
                        continue
                    found = who.distribution(seen[at], masks[at])
                    actions[at] = chosen = found.sample()
                    if turn:
                        log_probs, values = found.log_prob(chosen), who.critic(seen[at])[:, 0]
                        for index, number in enumerate(at.tolist()):
                            rows[number].append(
                                [seen[number], masks[number], chosen[index], log_probs[index], values[index], 0.0, 0.0]
                            )
            for number, env in enumerate(self.envs):
                env.step(int(actions[number]))
                if rows[number]:
                    rows[number][-1][5] += env.rewards[env.possible_agents[self.sides[number]]]
                if any(env.terminations.values()) or any(env.truncations.values()):
                    if rows[number]:
                        rows[number][-1][6] = 1.0
                    env.reset()
                    self.sides[number] = 1 - self.sides[number]
        self._learn(rows)
        return self.numbers.n_steps * self.numbers.envs

    def _learn(self, rows: list[list[Any]]) -> None:
        parts = []
        for own in rows:
            if len(own) < 2:
                continue
            rewards, dones = (torch.tensor([[row[at]] for row in own[:-1]]) for at in (5, 6))
            values = torch.stack([row[4] for row in own])[:, None]
            advantages = advantages_of(rewards, values[:-1], values[-1], dones, self.numbers)
            parts.append(
                (
                    *(torch.stack([row[at] for row in own[:-1]]) for at in range(4)),
                    advantages[:, 0],
                    (advantages + values[:-1])[:, 0],
                )
            )
        seen, masks, actions, log_probs, advantages, returns = (torch.cat(part) for part in zip(*parts, strict=True))
        self.agent.learn(seen, actions, log_probs, advantages, returns, masks)

    def close(self) -> None:
        for env in self.envs:
            env.close()
