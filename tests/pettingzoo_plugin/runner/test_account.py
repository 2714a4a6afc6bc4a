"""The account of a run, however many steps are summed up at once."""

from __future__ import annotations

import numpy as np

from reactor_pettingzoo.runner.account import STEPS, Account


def test_what_is_kept_is_of_its_step_and_not_of_one_that_came_later() -> None:
    steps = 2 * STEPS + 5
    random = np.random.default_rng(0)
    acting, playing, seen = random.random((steps, 1, 2)) < 0.5, np.ones(1, np.bool_), np.zeros((1, 2))
    account = Account(0, 1, 2, ())
    account.begin(True)
    for step in range(steps):
        seen.fill(step)
        account.open(acting[step], playing, seen)
        account.close([float(step), -float(step)])
    log = account.collect(1, []).log
    assert np.array_equal(log["acted"], acting)
    assert np.array_equal(log["rewards"], np.outer(np.arange(steps), [1, -1])[:, None])
    assert np.array_equal(log["seen"], np.broadcast_to(np.arange(steps)[:, None, None], (steps, 1, 2)))
