"""How fast do many agents learn, end to end: a policy for each of them, one policy for all, and one that plays itself?

MPE's simple_spread with a policy for each agent; knights, archers and zombies, whose agents die; pistonball with one policy for
all; and self-play of connect four. PPO at equal settings everywhere (networks, environments, steps, minibatches, passes).
Rivals are scripts in CleanRL's idiom (``multi_agent_training_rivals.py``), with the environments in a loop or in SuperSuit's
processes, and libraries (``multi_agent_training_libraries.py``). Items are steps of one copy: all agents act, or one where they
take turns. Each rival that is not installed is left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

from common import OURS, Contender, arguments, benchmark, chosen, cores, interleaved, rounds_of, seconds_of
from multi_agent_training_cases import CASES, Case
from multi_agent_training_libraries import RLLIB, RLLIB_ON_OURS, TIANSHOU, RLlib, Tianshou
from multi_agent_training_rivals import Independent, Loop, SelfPlay, supersuit
from showing import print_table, rate_rows

ONE_WORKER = "reactor_rl, one worker"
SCRIPT = "a script in CleanRL's idiom"
WITH_SUPERSUIT = "the same on SuperSuit"
ALONE = "the environments alone, one core"
EVERY = 10
"""Rounds from one snapshot to the next."""


class Ours(Contender):
    """``SyncIPPO``."""

    def __init__(self, case: Case, **how: Any) -> None:
        from reactor_pettingzoo.learning import League, SyncIPPO

        numbers = case.numbers
        given: dict[str, Any] = {"league": League(every=EVERY, opponents=4)} if case.turns else {}
        given |= {"policies": ["all"]} if case.shared else {}
        self.model = SyncIPPO(
            "MlpPolicy", case.make, n_actors=4, envs_per_actor=numbers.envs // 4, n_steps=numbers.n_steps,
            batch_size=numbers.batch_size, n_epochs=numbers.n_epochs, seed=0, **given, **how,
        )  # fmt: skip
        self.size = numbers.envs * numbers.n_steps
        self.model.learn(self.size)

    def go(self, count: int) -> float:
        self.model.learn(count * self.size, reset_num_timesteps=False)
        return count * self.size

    def close(self) -> None:
        self.model.close()


class Rival(Contender):
    """Somebody who trains round by round."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.rival = make()
        self.rival.round()

    def go(self, count: int) -> float:
        return sum(self.rival.round() for _ in range(count))

    def close(self) -> None:
        self.rival.close()


class Alone(Contender):
    """Random legal actions, one copy after the other: what no contender can be faster than on one core."""

    def __init__(self, case: Case) -> None:
        import numpy as np

        self.case, self.random = case, np.random.default_rng(0)
        self.envs = [case.make() for _ in range(4)]
        for at, env in enumerate(self.envs):
            env.reset(seed=at)

    def go(self, count: int) -> float:
        for _ in range(32 * count):
            for env in self.envs:
                if self.case.turns:
                    legal = env.observe(env.agent_selection)["action_mask"].nonzero()[0]
                    env.step(int(self.random.choice(legal)))
                    if any(env.terminations.values()):
                        env.reset()
                else:
                    env.step({agent: int(self.random.integers(self.case.actions)) for agent in env.agents})
                    if not env.agents:
                        env.reset()
        return 32.0 * count * len(self.envs)

    def close(self) -> None:
        for env in self.envs:
            env.close()


def rivals(case: Case) -> dict[str, Callable[[], Any]]:
    copies = case.numbers.envs
    if case.turns:
        return {SCRIPT: lambda: SelfPlay(case.make, case.numbers, EVERY)}
    return {
        SCRIPT: lambda: Independent(Loop(case.make, copies), case),
        WITH_SUPERSUIT: lambda: Independent(supersuit(case.make, copies, cores()), case),
        RLLIB: lambda: RLlib(case),
        RLLIB_ON_OURS: lambda: RLlib(case, ours=True),
        TIANSHOU: lambda: Tianshou(case),
    }


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    case = CASES[name]
    builders: dict[str, Callable[[], Contender]] = {
        **{rival: partial(Rival, make) for rival, make in rivals(case).items()},
        OURS: partial(Ours, case),
        ONE_WORKER: partial(Ours, case, workers=1),
    }
    builders = {**chosen(builders, options), ALONE: partial(Alone, case)}
    figures = interleaved(builders, rounds=rounds_of(options), seconds=seconds_of(options))
    found = figures.as_json(OURS)
    if OURS in figures.rates:
        found["of_limit"] = {key: value / cores() for key, value in figures.ratio(OURS, ALONE).items()}
    return found


def show(name: str, found: dict[str, Any]) -> None:
    rows = rate_rows(found, OURS)
    if "of_limit" in found:
        limit = found["of_limit"]
        rows.append([f"ours / ({cores()} x alone)", "", f"{limit['median']:.2f}", f"{limit['min']:.2f}-{limit['max']:.2f}"])
    print_table(name, ["contender", "steps/s", "ours is", "min-max"], rows)


def main() -> None:
    title, label = "Training many agents", "steps per second"
    benchmark(__file__, arguments(__doc__).parse_args(), list(CASES), measure, show, title, label)


if __name__ == "__main__":
    main()
