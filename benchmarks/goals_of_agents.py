"""What many agents are to reach: the return of three that spread out, and games of connect four that are won."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from goals import Goal, Maker
from multi_agent_training_cases import four as connect_four
from multi_agent_training_cases import spread as simple_spread

Array = npt.NDArray[Any]

ROWS, COLUMNS, FOUR = 6, 7, 4


def _lines() -> Array:
    """The fields of every four in a row, ``(69, 4)``."""
    lines = []
    for row in range(ROWS):
        for column in range(COLUMNS):
            for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
                fields = [(row + k * down, column + k * right) for k in range(FOUR)]
                if all(0 <= y < ROWS and 0 <= x < COLUMNS for y, x in fields):
                    lines.append([y * COLUMNS + x for y, x in fields])
    return np.array(lines)


LINES = _lines()


def one_ply(boards: Array, masks: Array) -> Array:
    """Drops a chip that wins, if one does; else any. Rows of those whose turn it is not are asked along: they may do nothing.

    Args:
        boards: Observations, ``(rows, 6, 7, 2)``: one's own chips, and the other's.
        masks: Columns that are not full, ``(rows, 7)``.
    """
    moves = np.zeros(len(boards), np.int64)
    for number in np.flatnonzero(masks.any(1)):
        board, mask = boards[number], masks[number]
        own, free = board[:, :, 0].ravel().astype(bool), ~board.any(2)
        columns = np.flatnonzero(mask)
        winning = [column for column in columns if _wins(own, (free[:, column].sum() - 1) * COLUMNS + column)]
        moves[number] = winning[0] if winning else columns[int(np.random.random() * len(columns))]
    return moves


def _wins(own: Array, field: int) -> bool:
    with_it = own.copy()
    with_it[field] = True
    return bool(with_it[LINES].all(1).any())


def won(opponent: str, games: int, model: Any) -> float:
    """Mean outcome of games, half of them as the first player: 1 for each that is won, -1 for each that is lost."""
    from reactor_pettingzoo import RandomPolicy, tournament

    players = {"main": model.policies["main"], opponent: RandomPolicy() if opponent == "random" else one_ply}
    found = tournament(connect_four, players, episodes=games // 2, num_envs=10, seed=1, deterministic=True, workers=1)
    return float(found.payoffs[0, 0, 1] + found.payoffs[1, 1, 0]) / 2


def self_play(seed: int) -> Any:
    """With more games side by side than in the example, and with any snapshot as likely an opponent.

    Against the newest ones above all it learns to win their games sooner and sooner, and loses others.
    """
    from torch import nn

    from reactor_pettingzoo.learning import League, SyncIPPO

    return SyncIPPO(
        "MlpPolicy", connect_four, league=League(every=5, size=32, opponents=8, rule="uniform"), n_steps=128, batch_size=1024,
        n_epochs=4, gae_lambda=0.9, learning_rate=5e-4, ent_coef=0.03,
        policy_kwargs={"net_arch": [256, 256], "activation_fn": nn.ReLU}, n_actors=8, envs_per_actor=8, seed=seed,
    )  # fmt: skip


def four(opponent: str) -> Goal:
    """95 % of the games against random moves, 80 % of those against a player who sees what wins at once; a draw is half of one."""
    share, games = 0.95 if opponent == "random" else 0.8, 200
    title = f"connect four against {opponent.replace('_', '-')}"
    trainers: dict[str, Maker] = {"SyncIPPO, self-play": self_play}
    return Goal(title, 2 * share - 1, games, 20_000, 2_000_000, math.inf, 1, trainers, score=partial(won, opponent, games))


def spread_out(seed: int) -> Any:
    """With few updates of large minibatches, as MAPPO's authors advise."""
    from reactor_pettingzoo.learning import SyncIPPO

    return SyncIPPO(
        "MlpPolicy", simple_spread, n_steps=25, batch_size=800, n_epochs=10, learning_rate=7e-4, ent_coef=0.01, n_actors=8,
        envs_per_actor=16, centralised_critic=True, seed=seed,
    )  # fmt: skip


def return_of_all(episodes: int, model: Any) -> float:
    from reactor_pettingzoo import evaluate

    return float(evaluate(model.policies, simple_spread, episodes=episodes, seed=1, workers=1).returns.mean())


def spread() -> Goal:
    """Three agents, a policy each, to -35 for all together.

    MAPPO's authors have -120 after 20 M steps in an environment of their own. There each agent collides with itself in each of 25
    steps, which costs 75, and all get what all get together: the rest, 45, is three times the distances and once the collisions.
    ``mpe2`` pays for half of either, so that -35 is -145 in theirs; its landmarks are somewhat farther apart.
    """
    trainers: dict[str, Maker] = {"SyncIPPO, centralised_critic=True": spread_out}
    return Goal("simple_spread", -35.0, 100, 32_000, 1_000_000, math.inf, 1, trainers, score=partial(return_of_all, 100))
