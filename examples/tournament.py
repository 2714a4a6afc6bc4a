"""Who plays connect four best? Every policy of a population against every other one, in parallel.

    python examples/tournament.py [--episodes 40] [--workers 2] [--plot payoffs.png]

Needs `reactor-rl[pettingzoo]`.
"""

import argparse

import numpy as np
from pettingzoo.classic import connect_four_v3

from reactor_pettingzoo import RandomPolicy, tournament

parser = argparse.ArgumentParser()
parser.add_argument("--episodes", type=int, default=40, help="of each pairing")
parser.add_argument("--workers", type=int, default=None, help="changes the time that it takes, and nothing else")
parser.add_argument("--plot", default=None, help="where to draw the payoffs")
options = parser.parse_args()


def central(observations: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """The legal column that is nearest to the middle."""
    return np.where(masks, -abs(np.arange(7) - 3), -9).argmax(1)


def finishing(observations: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """A column that completes four, else one where the opponent would, else the central one."""
    chosen = central(observations, masks)
    for row, (boards, legal) in enumerate(zip(observations, masks, strict=True)):
        empty = boards.sum(2) == 0
        for stones in (boards[..., 1], boards[..., 0]):  # the later one counts: better to win than to prevent a loss
            for column in np.flatnonzero(legal):
                if empty[0, column] and four(stones, int(np.flatnonzero(empty[:, column])[-1]), int(column)):
                    chosen[row] = column
    return chosen


def four(stones: np.ndarray, height: int, column: int) -> bool:
    """Whether one more stone makes four in a row."""
    for down, across in ((0, 1), (1, 0), (1, 1), (1, -1)):
        length = 1
        for sign in (1, -1):
            y, x = height + sign * down, column + sign * across
            while 0 <= y < 6 and 0 <= x < 7 and stones[y, x]:
                length, y, x = length + 1, y + sign * down, x + sign * across
        if length >= 4:
            return True
    return False


population = {"random": RandomPolicy(), "central": central, "finishing": finishing}
found = tournament(connect_four_v3.env, population, episodes=options.episodes, num_envs=4, seed=0, workers=options.workers)
print(found)
print("the best:", next(iter(found.scores)))
if options.plot:
    found.plot(options.plot)
