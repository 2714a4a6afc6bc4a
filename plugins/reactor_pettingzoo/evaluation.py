"""``evaluate`` for many agents: an environment of PettingZoo as one of Gymnasium's, its agents' policies as one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from reactor_gymnasium import EvaluationReport
from reactor_gymnasium import evaluate as evaluate_joint
from reactor_gymnasium.plugin import AskedPolicy, BoundPolicy, PolicyCall, PolicyNoise, hashed
from reactor_pettingzoo.agents import AgentGroup, AgentSpecs, EnvFn, padding, probe_agents, travelling
from reactor_pettingzoo.copies import copy_of
from reactor_pettingzoo.joint_env import JointEnv
from reactor_pettingzoo.reading import AgentID, broken
from reactor_pettingzoo.rows import AgentsUnit
from reactor_pettingzoo.runner.asking import GroupPolicy, asked, illegal
from reactor_pettingzoo.runner.policies import RandomPolicy, assigned, part_of
from reactor_rl.plugin import decode, draw_rows, encode
from reactor_torch import spoilt_rows

if TYPE_CHECKING:
    from reactor_rl.plugin import ExecutorName

__all__ = ["AskedUnit", "CombinedPolicy", "evaluate"]

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
    timeout: float | None = None,
    restarts: int = 0,
    log: str | Path | None = None,
    resume: bool = False,
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
        max_steps: See there; where agents take turns, an action is a step.

    Returns:
        A report whose ``returns`` are sums over all agents, and whose ``infos["return.NAME"]`` are those of an agent, NaN where it
        was not there. An episode is ``terminated`` unless an agent was cut off in its last step.

    Raises:
        TypeError: If ``env_fn`` makes something else than a PettingZoo environment, or a policy cannot be asked.
        ValueError: If an agent has no policy, one does not fit, an argument makes no sense, or the environment says what cannot be
            read.
        ProgramError: If ``env_fn`` cannot be pickled.

    Example:
        >>> from mpe2 import simple_spread_v3
        >>> from reactor_pettingzoo import RandomPolicy, evaluate
        >>> report = evaluate(RandomPolicy(), simple_spread_v3.parallel_env, episodes=4, seed=0)
        >>> sorted(report.infos)
        ['return.agent_0', 'return.agent_1', 'return.agent_2']
    """
    specs = probe_agents(env_fn)
    policies, names = assigned(specs, policies, policy_of)
    policy = CombinedPolicy(specs, policies, names, deterministic)
    travelling(env_fn, "evaluate")
    return evaluate_joint(
        policy, partial(JointEnv, env_fn, specs, AskedUnit), episodes, seed=seed, num_envs=num_envs, workers=workers,
        executor=executor, batch_size=batch_size, deterministic=deterministic, max_steps=max_steps, timeout=timeout,
        restarts=restarts, log=log, resume=resume, record=record, videos=videos, progress_bar=progress_bar,
        start_method=start_method,
    )  # fmt: skip


class AskedUnit(AgentsUnit):
    """A copy of which one row shows all agents as their policies are asked: what each sees, and whether it acts, by number.

    It is the unit of a :class:`~reactor_pettingzoo.joint_env.JointEnv`.
    """

    def __init__(self, env: Any, specs: AgentSpecs) -> None:
        super().__init__(copy_of(env, specs.agents, specs.turns))
        self.rows, self.specs = 1, specs
        self.groups = groups = [specs.group_of(agent)[0] for agent in specs.agents]
        seen: dict[str, spaces.Space[Any]] = {"acts": spaces.MultiBinary(len(groups))}
        for at, group in enumerate(groups):
            seen[f"{at}"] = group.space
            if group.mask:
                seen[f"{at}.mask"] = spaces.MultiBinary(group.choices)
        self.observation_space = spaces.Dict(seen)
        self.action_space = spaces.Dict({f"{at}": group.action_space for at, group in enumerate(groups)})
        self.padding = [padding(group.space) for group in groups]

    def reset(self, **kwargs: Any) -> None:
        """Begin an episode."""
        self.totals = [0.0] * len(self.groups)
        super().reset(**kwargs)

    def step(self, actions: Mapping[str, Any]) -> None:
        """Take a step, in which one agent acts or all do."""
        super().step([actions[f"{at}"] for at in range(len(self.groups))])
        copy, reward = self.copy, 0.0
        for at, gain in enumerate(copy.gains):
            self.totals[at] += float(gain)
            reward += float(gain)
        self.rewards, self.ended, self.infos = [reward], (), {}
        if self.over:
            # Of an agent that never was there nothing is told.
            told = {f"return.{agent}": self.totals[copy.index[agent]] for agent in copy.agents if agent in copy.present}
            self.ended, self.infos = ((0, not copy.cut, copy.cut),), {0: told}

    def allowed(self, actions: dict[str, Any]) -> dict[str, Any]:
        """The actions: what is forbidden is refused before."""
        return actions

    def seen(self) -> dict[str, Any]:
        """Return what everybody sees."""
        copy = self.copy
        acts = np.zeros(len(self.groups), np.int8)
        seen: dict[str, Any] = {"acts": acts}
        for at, (agent, group) in enumerate(zip(copy.agents, self.groups, strict=True)):
            seen[f"{at}"] = self.padding[at]
            if group.mask:
                seen[f"{at}.mask"] = np.ones(group.choices, np.int8)
            if agent in copy.acts:
                acts[at] = True
                seen[f"{at}"] = _parts(group, agent, copy.observation(agent))
                mask = copy.mask(group, agent)
                if mask is not None:
                    seen[f"{at}.mask"] = mask.view(np.int8)
        return seen


def _parts(group: AgentGroup, agent: AgentID, observation: Any) -> Any:
    """An observation without a mask, as the group's space has it."""
    parts = {}
    for key, space in group.parts.items():
        value = observation
        for step in group.path(key):
            try:
                value = value[step]
            except (KeyError, TypeError, IndexError) as error:
                raise broken(f"there is no {step!r} in the observation of agent {agent!r} ({observation!r:.200})") from error
        if np.shape(value) != space.shape:
            raise ValueError(f"the observation of agent {agent!r} has shape {np.shape(value)}, its space says {space.shape}")
        parts[key] = value
    return parts[""] if group.single else parts


class CombinedPolicy(AskedPolicy):
    """The policies of all agents as one."""

    remedies = (
        "Let it answer by what is observed alone, in which an environment may show what was done before; draw from the "
        "generators of random, numpy or torch, which are seeded for each step"
    )

    def __init__(self, specs: AgentSpecs, policies: Mapping[str, Any], names: Mapping[AgentID, str], deterministic: bool) -> None:
        self.agents = [(names[agent], specs.group_of(agent)[0]) for agent in specs.agents]
        parts = {name: part_of(name, policies[name], group) for name, group in self.agents}
        plain = {name for name, part in parts.items() if part.policy is None and not isinstance(part.other, RandomPolicy)}
        self.in_workers = not plain
        # Copies of what has weights: the user's goes on learning. A function is asked as it is.
        self.parts = {name: part if name in plain else encode(part) for name, part in parts.items()}
        self.named = " and ".join(map(repr, self.parts))
        self.asks = tuple(parts[name].other for name in plain)
        self.ids, self.deterministic = specs.agents, deterministic
        if not deterministic or any(isinstance(part.other, RandomPolicy) for part in parts.values()):
            self.noise = PolicyNoise("generator")
        self.hashes = {str(name): hashed(part.contents()) for name, part in parts.items() if part.policy is not None}

    def bind(self, observations: Any, rows: int) -> BoundPolicy:
        made = {
            name: asked([name], [decode(self.parts[name])], group, rows, self.deterministic, contextlib.nullcontext())
            for name, group in dict(self.agents).items()
        }
        self.asks, ready = tuple(one.held for one in made.values()), [made[name] for name, _ in self.agents]

        def ask(turn: PolicyCall) -> list[dict[str, Any]]:
            answers: list[dict[str, Any]] = [{} for _ in range(rows)]
            for at, (policy, (name, group)) in enumerate(zip(ready, self.agents, strict=True)):
                alive = observations["acts"][:, at] != 0
                actions = np.zeros((rows, *(group.action_space.shape or ())), group.action_space.dtype)
                noise = None
                if policy.noise != "none":
                    noise = draw_rows(policy.noise, turn.noise, (rows, policy.width))
                if alive.any():
                    masks = observations[f"{at}.mask"] if group.mask else None
                    if masks is not None and group.mask == "later" and masks.all():
                        masks = None
                    seen = observations[f"{at}"]
                    for key, array in policy.room().items():
                        array[...] = seen if group.single else seen[key]
                    chosen = policy(masks, noise)
                    _check(name, self.ids[at], group, policy, chosen, alive, masks)
                    actions[alive] = chosen[alive]  # what others would do is nobody's business
                for row in range(rows):
                    answers[row][f"{at}"] = actions[row]
            return answers

        return ask

    def digest(self) -> str:
        return hashed(([str(name) for name, _ in self.agents], self.hashes))

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the copies: each worker makes its own."""
        return {**vars(self), "asks": ()}


def _check(
    name: str,
    agent: AgentID,
    group: AgentGroup,
    policy: GroupPolicy,
    actions: Array,
    alive: npt.NDArray[np.bool_],
    masks: Array | None,
) -> None:
    """Refuse actions that the agent cannot take, or that were chosen by what is not finite."""
    spoilt, answers = policy.spoilt or (spoilt_rows(actions), actions)
    if spoilt is not None and (spoilt & alive).any():
        answered = answers[np.argmax(spoilt & alive)].tolist()
        raise ValueError(f"the policy {name!r} answered {answered}, which are not finite numbers, for agent {agent!r}")
    wrong = illegal(group.action_space, actions, masks) & alive
    if wrong.any():
        row = int(np.argmax(wrong))
        legal = "" if masks is None else f" with the action mask {masks[row].tolist()}"
        raise ValueError(
            f"the policy {name!r} chose the action {actions[row]}, which is not in {group.action_space}{legal}, for agent {agent!r}"
        )
