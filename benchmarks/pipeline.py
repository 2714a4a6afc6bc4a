"""What does ``pipeline=1`` gain when sampling and learning cost the same CPU time?

Blackjack again (16 actors x 100 steps); the number of gradient steps is chosen, on the machine, so that the learner's part of a
round takes as long as all the actors' together: the case where an overlap brings most. On two cores the bound is 1.5: 1/2 + 1
without overlap, 1 with it. What can be counted on is the lowest ratio of the rounds, which the table shows beside the median. A
trace of each is written beside the results.
"""

from __future__ import annotations

import argparse
from typing import Any

from common import Contender, arguments, benchmark, compared
from q_learning_rivals import blackjack
from showing import print_table, rate_rows

OURS = "reactor_rl, pipeline=1"
CASES = ("learner and actors alike",)
ACTORS, STEPS, BATCH = 16, 100, 500
_MANY = 400
"""So many gradient steps take longer than a round's sampling, whose noise would be taken for theirs otherwise."""


def model(gradient_steps: int, **how: Any) -> Any:
    from reactor_sb3 import SyncDQN

    return SyncDQN(
        "MlpPolicy", blackjack, n_actors=ACTORS, train_freq=STEPS, gradient_steps=gradient_steps, batch_size=BATCH,
        buffer_size=20_000, learning_starts=0, learning_rate=1e-3, exploration_initial_eps=0.1, exploration_final_eps=0.1,
        policy_kwargs={"net_arch": [64, 64]}, seed=0, **how,
    )  # fmt: skip


class Learns(Contender):
    def __init__(self, gradient_steps: int, **how: Any) -> None:
        self.model = model(gradient_steps, **how)

    def go(self, count: int) -> float:
        self.model.learn(count * ACTORS * STEPS, reset_num_timesteps=False, log_interval=None)
        return count

    def close(self) -> None:
        self.model.close()


def calibrated() -> tuple[int, float, float]:
    """Gradient steps that take as long as a round's sampling; seconds of the sampling, and of one gradient step."""
    import time

    def seconds(gradient_steps: int) -> float:
        with model(gradient_steps, executor="inline") as probe:
            probe.learn(3 * ACTORS * STEPS, log_interval=None)
            taken = []
            for _ in range(7):
                begin = time.perf_counter()
                probe.learn(2 * ACTORS * STEPS, reset_num_timesteps=False, log_interval=None)
                taken.append((time.perf_counter() - begin) / 2)
        return min(taken)

    with_one, with_many = seconds(1), seconds(1 + _MANY)
    step = (with_many - with_one) / _MANY
    sampling = with_one - step
    return max(1, round(sampling / step)), sampling, step


def measure(case: str, options: argparse.Namespace) -> dict[str, Any]:
    gradient_steps, sampling, step = calibrated()
    figures = compared(
        {
            OURS: lambda: Learns(gradient_steps, pipeline=1),
            "reactor_rl, pipeline=0": lambda: Learns(gradient_steps),
            "reactor_rl, one worker": lambda: Learns(gradient_steps, executor="inline"),
        },
        options,
        seconds=2.0,
        warm_up=1.0,
    )
    found = figures.as_json(OURS) | {
        "gradient_steps": gradient_steps,
        "ms_sampling": 1e3 * sampling,
        "ms_gradient_step": 1e3 * step,
    }
    if not options.quick:
        for overlap in (0, 1):
            with model(gradient_steps, pipeline=overlap) as traced:
                traced.learn(3 * ACTORS * STEPS, log_interval=None)
                with traced.trace(str(options.output / f"pipeline_{overlap}.trace.json")):
                    traced.learn(4 * ACTORS * STEPS, reset_num_timesteps=False, log_interval=None)
    return found


def show(name: str, found: dict[str, Any]) -> None:
    title = f"{name}: {found['gradient_steps']} gradient steps a round, {found['ms_sampling']:.0f} ms of sampling"
    print_table(title, ["contender", "rounds", "pipeline=1 is", "min-max"], rate_rows(found, OURS))


def main() -> None:
    options = arguments(__doc__, rounds=15).parse_args()
    benchmark(__file__, options, CASES, measure, show, "Sampling and learning overlap", "rounds per second")


if __name__ == "__main__":
    main()
