"""How long does a round of the paper's parallel Q-learning take, and how close is that to the environments' own time?

Blackjack, 16 actors x 100 epsilon-greedy steps, a network of 32 hidden units, one gradient step a round: experiment (e) of
arXiv 2312.04704. The rivals are in ``q_learning_rivals.py``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from common import Contender, arguments, benchmark, chosen, cores, interleaved, rounds_of, seconds_of
from q_learning_rivals import CAPACITY, COPY_EVERY, EPSILON, GAMMA, LEARNING_RATE, RIVALS, WARM_UP, blackjack, environments_alone
from showing import print_table

OURS = "reactor_rl"
ALONE = "the environments alone, one core"
ACTORS, STEPS = 16, 100
CASES = {f"batch {batch}": batch for batch in (500, 1000, 2000)}
BESIDE_RAY = ("ray", "ray-batched")


class Ours(Contender):
    """``SyncDQN``."""

    def __init__(self, batch: int, **how: Any) -> None:
        from reactor_sb3 import SyncDQN

        self.model = SyncDQN(
            "MlpPolicy", blackjack, n_actors=ACTORS, train_freq=STEPS, gradient_steps=1, batch_size=batch,
            buffer_size=CAPACITY, gamma=GAMMA, learning_rate=LEARNING_RATE, learning_starts=0, loss="mse",
            target_update_interval=COPY_EVERY * ACTORS * STEPS,
            exploration_initial_eps=EPSILON, exploration_final_eps=EPSILON, policy_kwargs={"net_arch": [32]}, seed=0, **how,
        )  # fmt: skip

    def go(self, count: int) -> float:
        self.model.learn(count * ACTORS * STEPS, reset_num_timesteps=False, log_interval=None)
        return count

    def close(self) -> None:
        self.model.close()


class Theirs(Contender):
    """A rival."""

    def __init__(self, name: str, batch: int) -> None:
        self.rival = RIVALS[name](batch)
        for _ in range(WARM_UP):  # Ray's first round takes seconds, for its actors start in it
            self.rival.round()

    def go(self, count: int) -> float:
        for _ in range(count):
            self.rival.round()
        return count

    def close(self) -> None:
        self.rival.close()


class Alone(Contender):
    """The limit: nothing but stepping, on one core."""

    def timed(self, count: int) -> tuple[float, float]:
        return count, sum(environments_alone(ACTORS, STEPS) for _ in range(count))


def measure(case: str, options: argparse.Namespace) -> dict[str, Any]:
    batch = CASES[case]

    def theirs(name: str) -> Callable[[], Contender]:
        return lambda: Theirs(name, batch)

    builders: dict[str, Callable[[], Contender]] = {
        OURS: lambda: Ours(batch),
        "reactor_rl, pipeline=1": lambda: Ours(batch, pipeline=1),
        "reactor_rl, one worker": lambda: Ours(batch, executor="inline"),
        ALONE: Alone,
        **{name: theirs(name) for name in RIVALS if name not in BESIDE_RAY},
    }
    slices: dict[str, Any] = {"rounds": rounds_of(options), "seconds": seconds_of(options, 1.5), "warm_up": 1.0}
    found = interleaved(chosen(builders, options), **slices).as_json(OURS)
    # Ray's servers keep working while nobody asks them, and its actors book the cores: each takes turns with ours alone, and
    # both are built anew for each turn, so that neither is there while the other one is timed.
    for name in BESIDE_RAY:
        pair = chosen({OURS: builders[OURS], name: theirs(name)}, options)
        if len(pair) > 1:
            beside = interleaved(pair, rebuild=True, **slices).as_json(OURS)
            found["skipped"] |= beside["skipped"]
            if name in beside["rates"]:
                found["rates"][name], found["ratios"][name] = beside["rates"][name], beside["ratios"][name]
                found[f"ours_beside_{name}"] = beside["rates"][OURS]
    if ALONE in found["rates"]:
        found["of_the_limit"] = found["rates"][OURS]["median"] / (cores() * found["rates"][ALONE]["median"])
    return found


def show(name: str, found: dict[str, Any]) -> None:
    batch = CASES[name]
    rows = []
    for contender, rate in found["rates"].items():
        ratio = found["ratios"].get(contender)
        compared = [f"{ratio['median']:.2f}x", f"{ratio['min']:.2f}-{ratio['max']:.2f}"] if ratio else ["", ""]
        per_round = rate["median"]
        rows.append([
            contender, f"{1e3 / per_round:.1f} ms", f"{per_round * ACTORS * STEPS:,.0f}", f"{per_round * batch:,.0f}", *compared
        ])  # fmt: skip
    rows += [[contender, "skipped", why[:50], "", "", ""] for contender, why in found["skipped"].items()]
    print_table(name, ["contender", "round", "steps/s", "samples learned/s", "ours is", "min-max"], rows)
    if "of_the_limit" in found:
        print(f"  of {cores()} x the environments alone: {found['of_the_limit']:.2f}")


def main() -> None:
    options, title = arguments(__doc__).parse_args(), "The paper's parallel Q-learning"
    benchmark(__file__, options, list(CASES), measure, show, title, "rounds per second", hidden=(ALONE,))


if __name__ == "__main__":
    main()
