"""``evaluate`` for many agents: an environment of PettingZoo as one of Gymnasium's, its agents' policies as one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from torch import nn

from reactor_gymnasium import EvaluationReport
from reactor_gymnasium import evaluate as evaluate_joint
from reactor_gymnasium.plugin import AskedPolicy, BoundPolicy, Noise, Turn, hashed, own
from reactor_pettingzoo.agents import MASK, AgentGroup, AgentID, AgentSpecs, EnvFn, padding, probe_agents
from reactor_pettingzoo.copies import AECCopy, ParallelCopy
from reactor_pettingzoo.runner.actions import ActionSampler, width_of
from reactor_pettingzoo.runner.policies import RandomPolicy, acting_part, assigned, callable_policy, single
from reactor_rl.plugin import decode, encode

if TYPE_CHECKING:
    from reactor_rl.plugin import ExecutorName

__all__ = ["JointEnv", "JointPolicy", "evaluate"]

Array = npt.NDArray[Any]


def evaluate(
    policies: Mapping[str, Any] | Any,
    env_fn: EnvFn,
    episodes: int = 100,
    *,
    policy_of: Callable[[AgentID], str] | Mapping[AgentID, str] | None = None,
    seed: int = 0,
    num_envs: int | None = None,
    workers: int | None = None,
    executor: ExecutorName = "auto",
    batch_size: int | None = None,
    deterministic: bool = True,
    max_steps: int | None = None,
    step_timeout: float | None = None,
    restarts: int = 0,
    log: str | Path | None = None,
    resume: str | Path | None = None,
    record: Sequence[int] = (),
    videos: str | Path = "videos",
    progress_bar: bool | None = None,
    start_method: str | None = None,
) -> EvaluationReport:
    """Play episodes of many agents. The report is the same, bit for bit, for any ``num_envs``, ``workers`` and ``executor``.

    Other than with :meth:`MultiAgentRunner.run`, an episode depends on nothing but its number and the seed.

    Args:
        policies: As for :class:`MultiAgentRunner`: by name, or a single one for all agents.
        env_fn: Makes a ``ParallelEnv`` or an ``AECEnv``.
        episodes: How many.
        policy_of: As for :class:`MultiAgentRunner`.
        seed: As for :func:`reactor_gymnasium.evaluate`, and likewise all that follow.
        num_envs: See there.
        workers: See there.
        executor: See there.
        batch_size: See there.
        deterministic: See there.
        max_steps: See there; where agents take turns, an action is a step.
        step_timeout: See there.
        restarts: See there.
        log: See there.
        resume: See there.
        record: See there.
        videos: See there.
        progress_bar: See there.
        start_method: See there.

    Returns:
        A report whose ``returns`` are sums over all agents, and whose ``infos["return.NAME"]`` are those of an agent.

    Raises:
        TypeError: If ``env_fn`` makes something else than a PettingZoo environment, or a policy cannot be asked.
        ValueError: If an agent has no policy, one does not fit, or an argument makes no sense.

    Example:
        >>> from mpe2 import simple_spread_v3
        >>> from reactor_pettingzoo import RandomPolicy, evaluate
        >>> report = evaluate(RandomPolicy(), simple_spread_v3.parallel_env, episodes=4, seed=0)
        >>> sorted(report.infos)
        ['return.agent_0', 'return.agent_1', 'return.agent_2']
    """
    specs = probe_agents(env_fn)
    if not isinstance(policies, Mapping):
        policies = single(policies)
    names = assigned(specs, policies, policy_of)
    policy = JointPolicy(specs, policies, names, deterministic)
    return evaluate_joint(
        policy, partial(JointEnv, env_fn, specs), episodes, seed=seed, num_envs=num_envs, workers=workers, executor=executor,
        batch_size=batch_size, deterministic=deterministic, max_steps=max_steps, step_timeout=step_timeout, restarts=restarts,
        log=log, resume=resume, record=record, videos=videos, progress_bar=progress_bar, start_method=start_method,
    )  # fmt: skip


class JointEnv(gymnasium.Env[dict[str, Any], dict[str, Any]]):
    """All agents of an environment as one: their observations, and whether each acts, by number; an action for each.

    Args:
        env_fn: Makes the environment.
        specs: Its agents.
    """

    def __init__(self, env_fn: EnvFn, specs: AgentSpecs) -> None:
        self.env, self.specs, self.name = env_fn(), specs, specs.name
        self.copy: Any = (AECCopy if specs.turns else ParallelCopy)(self.env, specs.agents)
        self.metadata = {**self.env.metadata, "render_fps": specs.fps}
        self.render_mode = getattr(self.env, "render_mode", None)
        groups = [specs.group_of(agent)[0] for agent in specs.agents]
        seen: dict[str, spaces.Space[Any]] = {"acts": spaces.MultiBinary(len(groups))}
        for at, group in enumerate(groups):
            seen[f"{at}"] = group.space
            if group.mask:
                assert isinstance(group.action_space, spaces.Discrete)
                seen[f"{at}.mask"] = spaces.MultiBinary(int(group.action_space.n))
        self.observation_space = spaces.Dict(seen)
        self.action_space = spaces.Dict({f"{at}": group.action_space for at, group in enumerate(groups)})
        self.keys = {agent: f"{at}" for at, agent in enumerate(specs.agents)}
        self.groups = groups
        self.padding = [padding(group.space) for group in groups]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        self.totals = dict.fromkeys(self.specs.agents, 0.0)
        self.truncated = False
        returned = self.copy.begin(seed=seed, options=options)
        return self._turn() if self.specs.turns else self._seen(*returned), {}

    def step(self, action: dict[str, Any]) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Take a step, in which one agent acts or all do."""
        copy = self.copy
        if self.specs.turns:
            rewards, _, cut = copy.act(action[self.keys[copy.agent]])
            seen = self._turn()
        else:
            observations, rewards, _, cut, infos = copy.act({agent: action[self.keys[agent]] for agent in copy.live})
            seen = self._seen(observations, infos)
        self.truncated = self.truncated or any(cut.values())
        reward = 0.0
        for agent in self.specs.agents:
            if agent in rewards:
                self.totals[agent] += float(rewards[agent])
                reward += float(rewards[agent])
        over = copy.over
        info = {f"return.{agent}": total for agent, total in self.totals.items()} if over else {}
        return seen, reward, over and not self.truncated, over and self.truncated, info

    def _turn(self) -> dict[str, Any]:
        """The observation of the agent whose turn it is, where agents take turns."""
        if self.copy.over:
            return self._seen({}, {})
        env, agent = self.copy.inner, self.copy.agent
        return self._seen({agent: env.observe(agent)}, env.infos)

    def _seen(self, observations: Mapping[Any, Any], infos: Mapping[Any, Any]) -> dict[str, Any]:
        acts = np.zeros(len(self.groups), np.int8)
        seen: dict[str, Any] = {"acts": acts}
        alive = set(self.copy.live)
        for at, (agent, group) in enumerate(zip(self.specs.agents, self.groups, strict=True)):
            there = agent in observations and agent in alive
            acts[at] = there
            seen[f"{at}"] = _parts(group, observations[agent]) if there else self.padding[at]
            if isinstance(group.action_space, spaces.Discrete) and group.mask:
                info = infos.get(agent) or {}
                mask = observations[agent][MASK] if there and group.mask == "observation" else info.get(MASK)
                ones = np.ones(int(group.action_space.n), np.int8)
                seen[f"{at}.mask"] = np.asarray(mask, np.int8) if there and mask is not None else ones
        return seen

    def render(self) -> Any:
        """The environment's picture."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


def _parts(group: AgentGroup, observation: Any) -> Any:
    """An observation without a mask, as the group's space has it."""
    parts = {}
    for key in group.parts:
        value = observation
        for step in group.path(key):
            value = value[step]
        parts[key] = value
    return parts[""] if group.single else parts


class _Sampler(ActionSampler):
    """Lets what draws from torch's generator do so: who asks sees to it."""

    def __init__(self) -> None:
        super().__init__()
        self.own: Any = contextlib.nullcontext()

    def by_torch(self, function: Callable[[], torch.Tensor]) -> torch.Tensor:
        return function()


class JointPolicy(AskedPolicy):
    """The policies of all agents as one.

    Args:
        specs: The agents.
        policies: Policies by name.
        names: The name of each agent's policy.
        deterministic: Whether the best action is taken, or one drawn.
    """

    def __init__(self, specs: AgentSpecs, policies: Mapping[str, Any], names: Mapping[AgentID, str], deterministic: bool) -> None:
        used = {name: policies[name] for name in dict.fromkeys(names.values())}
        parts = {name: acting_part(policy) for name, policy in used.items()}
        self.in_workers = all(isinstance(part, nn.Module | RandomPolicy) for part in parts.values())
        # Copies of what has weights: the user's goes on learning. A function is asked as it is.
        self.parts = {
            name: encode(part) if isinstance(part, nn.Module | RandomPolicy) else part for name, part in parts.items()
        }  # fmt: skip
        self.agents = [(names[agent], specs.group_of(agent)[0]) for agent in specs.agents]
        self.deterministic = deterministic
        self.widths = [width_of(group.action_space) for _, group in self.agents]
        if not deterministic or any(isinstance(part, RandomPolicy) for part in parts.values()):
            self.noise = Noise("uniform", sum(self.widths))
        self.hashes = {
            name: hashed({key: value.cpu().numpy() for key, value in part.state_dict().items()})
            for name, part in parts.items()
            if isinstance(part, nn.Module)
        }

    def bind(self, observations: Any, rows: int) -> BoundPolicy:
        """See :class:`reactor_gymnasium.plugin.AskedPolicy`."""
        parts = {name: decode(part) for name, part in self.parts.items()}
        asked = [callable_policy(name, parts[name], group, self.deterministic) for name, group in self.agents]
        sampler = _Sampler()
        ends = np.cumsum(self.widths).tolist()

        def ask(turn: Turn) -> list[dict[str, Any]]:
            answers: list[dict[str, Any]] = [{} for _ in range(rows)]
            for at, (policy, (name, group)) in enumerate(zip(asked, self.agents, strict=True)):
                alive = observations["acts"][:, at] != 0
                actions = np.zeros((rows, *(group.action_space.shape or ())), group.action_space.dtype)
                if alive.any():
                    if turn.noise is not None:
                        sampler.uniform = np.ascontiguousarray(turn.noise[:, ends[at] - self.widths[at] : ends[at]])
                    masks = own(observations[f"{at}.mask"]) if group.mask else None
                    if masks is not None and group.mask == "later" and masks.all():
                        masks = None
                    chosen = policy(own(observations[f"{at}"]), masks, sampler)
                    sampler.refuse_spoilt(name, chosen, alive)
                    _check(name, group, chosen, alive, masks)
                    actions[alive] = chosen[alive]  # what others would do is nobody's business
                for row in range(rows):
                    answers[row][f"{at}"] = actions[row]
            return answers

        return ask

    def digest(self) -> str:
        """See :class:`reactor_gymnasium.plugin.AskedPolicy`."""
        return hashed(([str(name) for name, _ in self.agents], {str(name): one for name, one in self.hashes.items()}))


def _check(name: str, group: AgentGroup, actions: Array, alive: npt.NDArray[np.bool_], masks: Array | None) -> None:
    """Refuse actions that no agent can take."""
    space = group.action_space
    for row in np.flatnonzero(alive).tolist():
        action = actions[row]
        if isinstance(space, spaces.Discrete):
            within = space.start <= action < space.start + space.n
            if not within or (masks is not None and not masks[row][int(action) - int(space.start)]):
                legal = "" if masks is None else f" with the action mask {masks[row].tolist()}"
                raise ValueError(f"the policy {name!r} chose the action {action}, which is not in {space}{legal}")
