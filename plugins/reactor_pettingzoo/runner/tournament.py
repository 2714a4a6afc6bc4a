"""``tournament``: every policy of a population against every other one, in parallel, as one program."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reactor_gymnasium.plugin import Table, checked_number, intervals_told, saved_figure
from reactor_pettingzoo.agents import AgentSpecs, EnvFn, probe_agents
from reactor_pettingzoo.reading import AgentID
from reactor_pettingzoo.runner.multi_agent_program import MultiAgentProgram
from reactor_pettingzoo.runner.policies import assigned, checked
from reactor_pettingzoo.runner.report import Summary
from reactor_pettingzoo.runner.runner import checked_seed
from reactor_pettingzoo.runner.shards import RunSeeds
from reactor_rl.plugin import Execution

if TYPE_CHECKING:
    from reactor_rl.plugin import ExecutorName

__all__ = ["Tournament", "tournament"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class Tournament:
    """The results of a tournament. Row ``i`` and column ``j``: policy ``i`` on the first side against policy ``j`` on the second.

    Attributes:
        names: Names of the policies.
        payoffs: For each side the mean return of an episode, ``(2, policies, policies)``; the mean over a side's agents.
        low: Lower ends of the 95 % intervals, likewise (Student's t, without scipy normal ones). They are about what chance
            does to an episode. Where the game and both policies leave nothing to chance all episodes are one and the same, and an
            interval of no width says nothing.
        high: Upper ends.
        episodes: How many episodes each pairing plays.
        seed: Seed of the tournament.
        seconds: How long it took.
        fingerprint: A hash of every action and reward.
        won: For each side the share of episodes in which it got more than the other one, ``(2, policies, policies)``; one in which
            both got the same counts half. ``None`` of a game that is won (1), lost (-1) or drawn, where payoffs tell it.
        sides: What ``side_of`` calls the two sides.
    """

    names: tuple[str, ...]
    payoffs: Floats
    low: Floats
    high: Floats
    episodes: int
    seed: int
    seconds: float
    fingerprint: str
    won: Floats | None = None
    sides: tuple[Any, Any] = (0, 1)

    @property
    def scores(self) -> dict[str, float]:
        """The mean payoff of each policy over all opponents (itself included) and both sides, the best one first."""
        means = (self.payoffs[0].mean(1) + self.payoffs[1].mean(0)) / 2
        return {self.names[at]: float(means[at]) for at in sorted(range(len(means)), key=lambda at: -means[at])}

    @property
    def repeated(self) -> int:
        """Pairings all of whose episodes paid the same, if there were several: most likely one game again and again."""
        return int(((self.low == self.high).all(0)).sum())

    def __repr__(self) -> str:
        n = len(self.names)
        best = next(iter(self.scores))
        return f"Tournament({n} policies, {n * n} pairings of {self.episodes} episodes, seed={self.seed}, best={best!r})"

    def __str__(self) -> str:
        """The payoffs of the first side with half the width of their intervals, and the scores."""
        return str(self._table())

    def _repr_html_(self) -> str:
        """The same table, in a notebook, the darker the more is paid."""
        return self._table().html()

    def _table(self) -> Table:
        half = (self.high[0] - self.low[0]) / 2
        rows = [
            [str(name), *(f"{mean:.3g} ±{width:.2g}" for mean, width in zip(means, halves, strict=True))]
            for name, means, halves in zip(self.names, self.payoffs[0].tolist(), half.tolist(), strict=True)
        ]
        scores = ", ".join(f"{name} {score:.3g}" for name, score in self.scores.items())
        title = f"{self.episodes} episodes a pairing, {self.seconds:.2f} s, seed {self.seed}, fingerprint {self.fingerprint}"
        alike = (
            f"in {self.repeated} of {len(self.names) ** 2} pairings all episodes paid the same: if neither the game nor the "
            "policies draw anything, they are one game again and again, and ±0 says nothing"
        )
        notes = [f"scores: {scores}", intervals_told(), *([alike] if self.repeated else [])]
        payoffs, least = self.payoffs[0], self.payoffs[0].min()
        with np.errstate(invalid="ignore"):  # of infinite ones
            shades = (payoffs - least) / max(payoffs.max() - least, np.finfo(float).tiny)
        return Table(title, ["", *map(str, self.names)], rows, notes, shades.tolist(), flush_right=True)

    def plot(self, path: str | Path) -> None:
        """Draw the payoffs of the first side as a heat map. Needs matplotlib."""
        n, payoffs = len(self.names), self.payoffs[0]
        with saved_figure(path, "Tournament.plot") as axes:
            # The bar's label, which runs along the height, needs some.
            axes.figure.set_size_inches(3.4 + 0.8 * n, max(4.0, 1.8 + 0.7 * n))
            image = axes.imshow(payoffs, cmap="viridis")
            middle = (payoffs.min() + payoffs.max()) / 2
            for (row, column), value in np.ndenumerate(payoffs):
                axes.text(column, row, f"{value:.3g}", ha="center", va="center", color="white" if value <= middle else "black")
            axes.set_xticks(range(n), list(map(str, self.names)), rotation=45, ha="right")
            axes.set_yticks(range(n), list(map(str, self.names)))
            first, second = ("first side", "second side") if self.sides == (0, 1) else map(str, self.sides)
            axes.set_xlabel(second)
            axes.set_ylabel(first)
            axes.figure.colorbar(image, label=f"return of the {first},\nmean of {self.episodes} episodes")


def tournament(
    env_fn: EnvFn,
    population: Mapping[str, Any],
    *,
    episodes: int = 20,
    side_of: Callable[[AgentID], Any] | Mapping[AgentID, Any] | None = None,
    policy_of: Callable[[AgentID], str] | Mapping[AgentID, str] | None = None,
    num_envs: int = 1,
    seed: int | None = None,
    deterministic: bool = True,
    workers: int | None = None,
    executor: ExecutorName = "auto",
    nodes: Any = None,
    start_method: str | None = None,
    timeout: float | None = None,
    progress_bar: bool | None = None,
) -> Tournament:
    """Let every policy play every other one, and itself, on both sides.

    Every pairing plays the same episodes: the environment of episode ``e`` in copy ``k`` is reset with a seed that is made of
    ``seed``, ``k`` and ``e`` alone, whoever plays. In a game that draws nothing, between policies that draw nothing, all episodes
    of a pairing are the same one: then one episode says all, and an interval of ±0 says no more.

    Args:
        env_fn: Makes one environment, a ``ParallelEnv`` or an ``AECEnv``.
        population: Policies by name; see :class:`MultiAgentRunner`. Where agents have different spaces, a member is a team: a dict
            of policies, such as ``SyncIPPO.policies``. Of a team those act whose agents play for its side.
        episodes: How many episodes each pairing plays.
        side_of: Gives the side that an agent plays for, 0 or 1, or the name of one of two sides: a function or a dict. Of two names
            the first agent's is the first side. By default, of two agents, each plays for its own.
        policy_of: From an agent to the name of its policy in a team, as for :class:`MultiAgentRunner`.
        num_envs: Copies of the environment for each pairing; has to divide ``episodes``.
        seed: ``None`` for one that the result tells.
        deterministic: Whether the best action is taken, or one drawn from the policy's distribution.
        workers: Number of workers, the calling thread included; ``None`` for the cores that this process may use.
        executor: As for :class:`MultiAgentRunner`; like ``workers``, it never changes a result.
        nodes: As for :class:`MultiAgentRunner`.
        start_method: How helper processes start.
        timeout: As for :class:`MultiAgentRunner`.
        progress_bar: Whether to show one, if it takes longer than a second; by default on a terminal.

    Raises:
        TypeError: If something is not a policy.
        ValueError: If there are no sides, numbers make no sense or do not fit together, or an agent has no policy in a team.

    Example:
        >>> from pettingzoo.classic import tictactoe_v3
        >>> from reactor_pettingzoo import RandomPolicy, tournament
        >>> result = tournament(tictactoe_v3.env, {"one": RandomPolicy(), "two": RandomPolicy()}, episodes=4, seed=0, workers=1)
        >>> result.payoffs.shape
        (2, 2, 2)
    """
    execution = Execution(workers=workers, executor=executor, nodes=nodes, start_method=start_method, timeout=timeout)
    for name, number in (("episodes", episodes), ("num_envs", num_envs)):
        checked_number(name, number, 1)
    episodes, num_envs, seed = int(episodes), int(num_envs), checked_seed(seed)
    if episodes % num_envs:
        raise ValueError(
            f"num_envs={num_envs} does not divide episodes={episodes}: every copy plays as many episodes as the others"
        )
    if not population:
        raise ValueError("there are no policies; pass a dict with at least one, by name")
    specs = probe_agents(env_fn)
    sides, said = _sides(specs, side_of)
    policies, members = _members(specs, population, policy_of)
    names = tuple(population)
    pairings = [(first, second) for first in names for second in names]
    acts = [
        {agent: members[pairing[side]][agent] for agent, side in sides.items()} for pairing in pairings for _ in range(num_envs)
    ]
    try:
        checked(specs, policies, acts)
    except ValueError as error:
        if len(specs.groups) > 1:
            error.add_note("a member of a population may be a team: a dict of policies by agent, or by name with policy_of=")
        raise
    offsets = [copy for _ in pairings for copy in range(num_envs)]
    total = episodes * len(pairings)
    seeds = RunSeeds(offsets, each=True)
    with MultiAgentProgram(env_fn, specs, policies, acts, seeds, deterministic, execution) as ensemble:
        played = ensemble._play(math.inf, total, seed, False, progress_bar, total)
    returns: list[list[list[float]]] = [[[] for _ in pairings] for _ in range(2)]
    won: list[list[float]] = [[] for _ in pairings]
    for episode in played.episodes:
        pairing, scores = episode.copy // num_envs, list[float]()
        for side in range(2):
            of_side = [at for at, agent in enumerate(specs.agents) if sides[agent] == side and episode.present[at]]
            if of_side:  # an episode in which nobody plays for a side says nothing of it
                scores.append(fmean(episode.returns[at] for at in of_side))
                returns[side][pairing].append(scores[-1])
        if len(scores) == 2:
            won[pairing].append(float(scores[0] > scores[1]) - float(scores[0] < scores[1]))
    summaries = [[Summary.of(of_pairing) for of_pairing in of_side] for of_side in returns]
    shape = 2, len(names), len(names)
    payoffs, low, high = (
        np.array([[getattr(one, field) for one in of_side] for of_side in summaries]).reshape(shape)
        for field in ("mean", "low", "high")
    )
    ahead = np.array([fmean(of_pairing or [0.0]) for of_pairing in won]).reshape(shape[1:])
    shares = (np.array([ahead, -ahead]) + 1) / 2
    return Tournament(names, payoffs, low, high, episodes, seed, played.seconds, played.fingerprint, shares, said)


def _sides(
    specs: AgentSpecs, side_of: Callable[[AgentID], Any] | Mapping[AgentID, Any] | None
) -> tuple[dict[AgentID, int], tuple[Any, Any]]:
    """The number of each agent's side, and what the sides are called."""
    agents = specs.agents
    if side_of is None:
        if len(agents) != 2:
            raise ValueError(
                f"{specs.name} has {len(agents)} agents; say with side_of= which of them play for side 0 and for side 1"
            )
        return dict(zip(agents, (0, 1), strict=True)), (0, 1)
    given = {agent: side_of[agent] if isinstance(side_of, Mapping) else side_of(agent) for agent in agents}
    sides = list(dict.fromkeys(given.values()))
    if all(isinstance(side, int | np.integer) for side in sides):
        sides.sort()
    if len(sides) != 2 or (isinstance(sides[0], int | np.integer) and sides != [0, 1]):
        raise ValueError(
            f"side_of gives {given}; some agents have to play for side 0, the others for side 1, or for two sides that have names"
        )
    return {agent: sides.index(side) for agent, side in given.items()}, (sides[0], sides[1])


def _members(
    specs: AgentSpecs, population: Mapping[str, Any], policy_of: Callable[[AgentID], str] | Mapping[AgentID, str] | None
) -> tuple[dict[str, Any], dict[str, dict[AgentID, str]]]:
    """All policies by name; and for each member of a population the names of the policies of its agents."""
    if policy_of is not None and not any(isinstance(one, Mapping) for one in population.values()):
        raise ValueError("policy_of= is for teams, and no member of the population is one: a dict of policies by name")
    policies, members = dict[str, Any](), dict[str, dict[AgentID, str]]()
    for member, one in population.items():
        if not isinstance(one, Mapping):
            policies[member], members[member] = one, dict.fromkeys(specs.agents, member)
            continue
        try:
            team, names = assigned(specs, one, policy_of)
        except (TypeError, ValueError) as error:
            error.add_note(f"in the team {member!r} of the population")
            raise
        members[member] = {agent: f"{member}: {name}" for agent, name in names.items()}
        policies |= {f"{member}: {name}": team[name] for name in team}
    return policies, members
