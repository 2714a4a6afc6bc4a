"""The log of a run, however many steps are summed up at once."""

from __future__ import annotations

import numpy as np

from reactor_pettingzoo.runner.shard_log import STEPS, ShardLog


def test_what_is_kept_is_of_its_step_and_not_of_one_that_came_later() -> None:
    steps = 2 * STEPS + 5
    random = np.random.default_rng(0)
    acting, playing, seen = random.random((steps, 1, 2)) < 0.5, np.ones(1, np.bool_), np.zeros((1, 2))
    log = ShardLog(0, 1, 2, ())
    log.begin(True)
    for step in range(steps):
        seen.fill(step)
        log.begin_step(acting[step, 0], playing, seen)
        log.end_step([float(step), -float(step)])
    log = log.collect(1, []).log
    assert np.array_equal(log["acted"], acting)
    assert np.array_equal(log["rewards"], np.outer(np.arange(steps), [1, -1])[:, None])
    assert np.array_equal(log["seen"], np.broadcast_to(np.arange(steps)[:, None, None], (steps, 1, 2)))


def test_returns_are_summed_up_one_after_the_other() -> None:
    steps = STEPS + 50
    rewards = np.random.default_rng(0).normal(size=steps)
    log = ShardLog(0, 1, 1, ())
    log.begin(False)
    expected = 0.0
    for step, reward in enumerate(rewards.tolist()):
        log.begin_step(np.ones(1, np.bool_), np.ones(1, np.bool_), np.zeros((1, 1)))
        if step + 1 == steps:
            log.ended(0, (True,))
        log.end_step([reward])
        expected += reward
    (episode,) = log.collect(0, []).episodes
    assert episode.returns == (expected,)
