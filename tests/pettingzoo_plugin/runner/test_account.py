"""The account of a run, however many steps are summed up at once."""

from __future__ import annotations

import numpy as np

from reactor_pettingzoo.runner.episode_log import STEPS, Account


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


def test_returns_are_summed_up_one_after_the_other() -> None:
    steps = STEPS + 50
    rewards = np.random.default_rng(0).normal(size=steps)
    account = Account(0, 1, 1, ())
    account.begin(False)
    expected = 0.0
    for step, reward in enumerate(rewards.tolist()):
        account.open(np.ones((1, 1), np.bool_), np.ones(1, np.bool_), np.zeros((1, 1)))
        if step + 1 == steps:
            account.ended(0, (True,))
        account.close([reward])
        expected += reward
    (episode,) = account.collect(0, []).episodes
    assert episode.returns == (expected,)
