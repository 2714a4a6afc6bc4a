"""How long is a step of multi-agent inference with one network per agent? The paper's experiment (f).

arXiv 2312.04704 has TrafficJunction with 4 and 10 agents; here it is ``junction.py``, which costs 6 and 9 us a step, and MPE's
simple_spread, which costs more than a millisecond. One copy of the environment as in the paper, and 16. The rivals are in
``multi_agent_rivals.py``. Items are steps of one copy: all agents act once. Before a contender is timed, the rewards of its first
episode are compared with those of the plain loop.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from common import OURS, Contender, arguments, benchmark, chosen, cores, interleaved, rounds_of, seconds_of
from multi_agent_rivals import ENVIRONMENTS, RIVALS, SEED, Alone, expected, networks_for
from showing import print_table, rate_rows

ONE_WORKER = "reactor_rl, one worker"
ALONE = "the environments alone, one core"
RAY = "ray"
"""What the names of Ray's begin with."""
SIZES = {"junction": (4, 10), "simple_spread": (10,)}
COPIES = (1, 16)
EPISODE = {"junction": 100, "simple_spread": 25}
"""Steps of an episode: what is compared before anything is timed."""
ONLY_JUNCTION = ("supersuit",)
"""Contenders, by the beginning of their names, that step simple_spread as a plain loop does: it is slower than what they add."""
CASES = {
    f"{environment}, {agents} agents x {copies}": (environment, agents, copies)
    for environment, sizes in SIZES.items()
    for agents in sizes
    for copies in COPIES
}


class Work:
    """What all contenders of a case are given, and what their first episode has to give."""

    def __init__(self, environment: str, agents: int, copies: int) -> None:
        self.make, self.copies, self.episode = partial(ENVIRONMENTS[environment], agents), copies, EPISODE[environment]
        self.nets, self.seeds = networks_for(self.make), range(SEED, SEED + copies)
        self.known: dict[tuple[int, ...], float] = {}

    def check(self, name: str, seeds: Sequence[int], total: float) -> None:
        """Raise unless a contender's first episodes gave the rewards of the plain loop's."""
        key = tuple(seeds)
        if key not in self.known:
            self.known[key] = expected(self.make, self.nets, key, self.episode)
        if not math.isclose(total, self.known[key], rel_tol=1e-9):
            raise AssertionError(
                f"{name} got rewards of {total}, the plain loop of {self.known[key]}: they do not do the same work"
            )


class Ours(Contender):
    """``MultiAgentRunner``. Unlike the rivals it begins each slice with a reset of all copies; the time of that counts."""

    def __init__(self, work: Work, **how: Any) -> None:
        from reactor_pettingzoo import MultiAgentRunner

        self.copies = work.copies
        self.runner = MultiAgentRunner(work.make, work.nets, num_envs=work.copies, **how)
        report = self.runner.run(steps=work.episode * work.copies, seed=SEED, progress_bar=False)
        work.check(OURS, work.seeds, sum(sum(episode.returns.values()) for episode in report.episodes))

    def go(self, count: int) -> float:
        self.runner.run(steps=count * self.copies, seed=SEED, progress_bar=False)
        return count * self.copies

    def close(self) -> None:
        self.runner.close()


class Theirs(Contender):
    """A rival, or the limit, whose actions are others: nothing to compare."""

    def __init__(self, work: Work, name: str) -> None:
        self.copies = work.copies
        self.rival = {**RIVALS, ALONE: Alone}[name](work.make, work.nets, work.seeds)
        try:
            self.rival.run(work.episode)
            if name != ALONE:
                work.check(name, self.rival.seeds, self.rival.total)
        except BaseException:
            self.rival.close()
            raise

    def timed(self, count: int) -> tuple[float, float]:
        return count * self.copies, self.rival.run(count)

    def close(self) -> None:
        self.rival.close()


def measure(case: str, options: argparse.Namespace) -> dict[str, Any]:
    environment, agents, copies = CASES[case]
    work = Work(environment, agents, copies)
    rivals = [name for name in RIVALS if environment == "junction" or not name.startswith(ONLY_JUNCTION)]
    builders: dict[str, Callable[[], Contender]] = {
        **{name: partial(Theirs, work, name) for name in rivals},
        OURS: partial(Ours, work),
        ONE_WORKER: partial(Ours, work, workers=1),
    }
    builders = chosen(builders, options)
    slices = {"rounds": rounds_of(options), "seconds": seconds_of(options)}
    # Ray's servers keep working while nobody asks them: it takes turns with ours alone, after all others.
    rays = [name for name in builders if name.startswith(RAY)]
    limited = {**{name: build for name, build in builders.items() if name not in rays}, ALONE: partial(Theirs, work, ALONE)}
    figures = interleaved(limited, **slices)
    found = figures.as_json(OURS)
    for ray in rays:
        beside_ray = {name: builders[name] for name in (OURS, ray) if name in builders}
        with_ray = interleaved(beside_ray, **slices).as_json(OURS)
        found["skipped"] |= with_ray["skipped"]
        if ray in with_ray["rates"]:
            found["rates"][ray] = with_ray["rates"][ray]
        if OURS in with_ray["rates"] and ray in with_ray["rates"]:
            found["ratios"][ray] = with_ray["ratios"][ray]
            found.setdefault("ours_beside_ray", {})[ray] = with_ray["rates"][OURS]
    if OURS in figures.rates:
        found["of_limit"] = {key: value / cores() for key, value in figures.ratio(OURS, ALONE).items()}
    return found


def show(name: str, found: dict[str, Any]) -> None:
    rows = rate_rows(found, OURS, per_item=True)
    if "of_limit" in found:
        limit = found["of_limit"]
        rows.append([f"ours / ({cores()} x alone)", "", f"{limit['median']:.2f}", f"{limit['min']:.2f}-{limit['max']:.2f}"])
    print_table(name, ["contender", "a step", "ours is", "min-max"], rows)


def main() -> None:
    title, label = "Multi-agent inference, a network per agent", "steps per second"
    benchmark(__file__, arguments(__doc__).parse_args(), list(CASES), measure, show, title, label)


if __name__ == "__main__":
    main()
