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


def test_episodes_are_counted_wherever_they_end() -> None:
    copies, agents, steps = 3, 2, STEPS + 90
    random = np.random.default_rng(0)
    rewards, acting = random.normal(size=(steps, copies, agents)), random.random((steps, copies, agents)) < 0.7
    log, playing, found, expected = ShardLog(0, copies, agents, ()), np.ones(copies, np.bool_), [], []
    log.begin(False)
    returns, lengths = np.zeros((copies, agents)), np.zeros((copies, agents), int)
    for step in range(steps):
        log.begin_step(acting[step].ravel(), playing, np.zeros((copies, 1)))
        returns += rewards[step]
        lengths += acting[step]
        for copy in np.flatnonzero(random.random(copies) < 0.1).tolist():
            log.ended(copy, (True, False))
            expected.append((copy, step + 1, (True, False), tuple(returns[copy].tolist()), tuple(lengths[copy].tolist())))
            returns[copy] = lengths[copy] = 0
        log.end_step(rewards[step].ravel().tolist())
        if step % 70 == 69 or step + 1 == steps:
            found += log.collect(copies, []).episodes
    assert [(one.copy, one.step, one.present, one.returns, one.lengths) for one in found] == expected
