"""What a round leaves in the replay buffer is what SB3's ``add`` would have left there."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from trainers import BUFFERS, INLINE, PROCESSES, SPACES, Again, Remembering, Seen, Toy, new, same_draws

from reactor_sb3.streams import Purpose, drawing_from, seed_of, stream
from reactor_sb3.trainers.replay import store

pytestmark = pytest.mark.usefixtures("small_blocks")

# ---------------------------------------------------------------------- what is stored


def replayed(model: Any, make: Any, actions: Any) -> Iterator[tuple[int, int, Any, Any, float, bool, bool]]:
    """The transitions that these actions lead to in bare environments; the first reset of a round is seeded."""
    for number in range(model.n_envs):
        env, episode, seeded = make(), 0, 0
        observation, _ = env.reset(seed=seed_of(model.seed, Purpose.EPISODES, number, 0))
        for step, action in enumerate(actions[:, number]):
            following, reward, terminated, truncated, _ = env.step(int(action))
            yield step, number, observation, following, reward, terminated, truncated
            observation = following
            if terminated or truncated:
                this, episode = step // model.rollout_steps, episode + 1
                seed = None if seeded == this else seed_of(model.seed, Purpose.EPISODES, number, episode)
                observation, _ = env.reset(seed=seed)
                seeded = this
        env.close()


def equal(stored: Any, observation: Any) -> bool:
    if isinstance(observation, dict):
        return all(equal(stored[key], part) for key, part in observation.items())
    observation = np.asarray(observation)
    if observation.ndim == 3:
        observation = observation.transpose(2, 0, 1)  # SB3 has channels first
    return bool(np.array_equal(stored.reshape(observation.shape), observation))


def at(column: Any, step: int, number: int) -> Any:
    return {key: part[step, number] for key, part in column.items()} if isinstance(column, dict) else column[step, number]


@pytest.mark.slow
@pytest.mark.parametrize("place", [INLINE, PROCESSES], ids=["inline", "processes"])
@pytest.mark.parametrize("name", ["box", "image", "dict", "discrete", "CartPole"])
def test_what_is_stored_is_what_happened(name: str, place: dict[str, Any]) -> None:
    policy, space = SPACES.get(name, SPACES["box"])
    make = partial(gymnasium.make, "CartPole-v1", max_episode_steps=15) if name == "CartPole" else partial(Toy, space)
    steps = 80
    with new("dqn", make, policy, n_actors=2, envs_per_actor=2, **place) as model:
        model.learn(steps * 4 // 2).learn(steps * 4 // 2, reset_num_timesteps=False)
        buffer = model.replay_buffer
        assert buffer.pos == steps and not buffer.full
        ends = [0, 0]
        for step, number, observation, following, reward, terminated, truncated in replayed(
            model, make, buffer.actions[:steps, :, 0]
        ):
            where = step, number
            assert equal(at(buffer.observations, *where), observation), where
            assert equal(at(buffer.next_observations, *where), following), where
            assert buffer.rewards[where] == np.float32(reward), where
            assert buffer.dones[where] == (terminated or truncated), where
            assert buffer.timeouts[where] == (truncated and not terminated), where
            ends = [ends[0] + terminated, ends[1] + (truncated and not terminated)]
        assert min(ends) > 2


def some_rounds(model: Any, count: int) -> list[Any]:
    """Rounds of nonsense, of which the replay buffer must lose nothing."""
    random = np.random.default_rng(0)
    found = []
    for _ in range(count):
        rounds = np.zeros(model.n_actors, model.program_config().actors.record)
        for name in rounds.dtype.names or ():
            field = rounds[name]
            field[...] = random.integers(0, 2 if field.dtype == bool else 100, field.shape)
        rounds["timeouts"] &= rounds["dones"]
        found.append(rounds)
    return found


@pytest.mark.parametrize("buffer_size", [11 * 6, 16 * 6, 8 * 6])
@pytest.mark.parametrize("name", BUFFERS)
def test_blocks_are_stored_as_add_does(name: str, buffer_size: int) -> None:
    policy, space = SPACES[BUFFERS[name][0]]
    arguments = {"n_actors": 3, "envs_per_actor": 2, "buffer_size": buffer_size, **BUFFERS[name][1]}
    ours, theirs = (new("dqn", partial(Toy, space), policy, **arguments) for _ in range(2))
    assert type(ours.replay_buffer) is {"dict": DictReplayBuffer, "3 steps": NStepReplayBuffer}.get(name, ReplayBuffer)
    keys = theirs.observation_space.spaces if name == "dict" else None
    for rounds in some_rounds(ours, 5):
        store(ours.replay_buffer, ours.session.layout, rounds, [])
        for step in range(8):

            def column(field: str, step: int = step, rounds: Any = rounds) -> Any:
                return np.concatenate([rounds[field][actor, step] for actor in range(3)])

            observation, following = (
                {key: column(which + key) for key in keys} if keys else column(which)
                for which in ("observations", "next_observations")
            )
            infos = [{"TimeLimit.truncated": bool(one)} for one in column("timeouts")]
            theirs.replay_buffer.add(observation, following, column("actions"), column("rewards"), column("dones"), infos)
        assert (ours.replay_buffer.pos, ours.replay_buffer.full) == (theirs.replay_buffer.pos, theirs.replay_buffer.full)
        for attribute, expected in vars(theirs.replay_buffer).items():
            found = getattr(ours.replay_buffer, attribute)
            for one, other in (
                zip(found.values(), expected.values(), strict=True) if isinstance(found, dict) else [(found, expected)]
            ):
                if isinstance(one, np.ndarray):
                    assert np.array_equal(one, other), attribute
        for batch_size in (20, 7):
            with same_draws(ours, stream(1, Purpose.REPLAY)):
                check_samples(ours._sampling(batch_size)(), theirs.replay_buffer.sample(batch_size))
                drawn = ours.session.streams["replay"].integers(2**31)
                assert drawn == random_after(partial(theirs.replay_buffer.sample, batch_size))


def check_samples(sampled: Any, expected: Any) -> None:
    """Two minibatches are the same, bit for bit."""
    for name, wanted in expected._asdict().items():
        gathered = getattr(sampled, name)
        if wanted is None:
            assert gathered is None
            continue
        for one, other in ((gathered[key], wanted[key]) for key in wanted) if isinstance(wanted, dict) else [(gathered, wanted)]:
            assert one.dtype == other.dtype and torch.equal(one, other), name


def random_after(draw: Any) -> int:
    """What a generator gives next when something has been drawn from it as ``np.random``."""
    random = stream(1, Purpose.REPLAY)
    with drawing_from(random):
        draw()
    return int(random.integers(2**31))


def test_another_replay_buffer_is_sampled() -> None:
    """As after ``load_replay_buffer()``."""
    with new("dqn") as model:
        model.learn(128)
        before, model.replay_buffer = model.replay_buffer, deepcopy(model.replay_buffer)
        before.rewards[:] = np.nan
        model.train(1, model.batch_size)
        assert np.isfinite(model.logger.name_to_value["train/loss"])


@pytest.mark.slow
@pytest.mark.parametrize("env", [Toy, Again])
@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("pipeline", [0, 1])
@pytest.mark.parametrize("place", [INLINE, PROCESSES], ids=["inline", "processes"])
def test_a_replay_buffer_of_your_own_is_given_infos(place: dict[str, Any], pipeline: int, watched: bool, env: Any) -> None:
    with new("dqn", env, replay_buffer_class=Remembering, pipeline=pipeline, **place) as model:
        model.learn(320, callback=Seen() if watched else None)
        buffer = model.replay_buffer
    assert len(buffer.infos) == buffer.pos == 80 - 8 * pipeline
    t = np.zeros(4, int)
    for step, infos in enumerate(buffer.infos):
        t += 1
        assert [info["t"] for info in infos] == t.tolist(), step
        assert [info["TimeLimit.truncated"] for info in infos] == (buffer.timeouts[step] == 1).tolist()
        assert ["episode" in info for info in infos] == (buffer.dones[step] == 1).tolist()
        assert not any("terminal_observation" in info for info in infos)  # it is next_obs; and nothing depends on callbacks
        t[buffer.dones[step] == 1] = 0
    assert buffer.timeouts.sum() > 2


class DrawnByTorch(ReplayBuffer):
    """Chooses rows as a buffer with priorities would, by torch's functions."""

    def sample(self, batch_size: int, env: Any = None) -> Any:
        return self._get_samples(torch.multinomial(torch.ones(self.size()), batch_size, replacement=True).numpy(), env)


@pytest.mark.parametrize("algorithm", ["dqn", "sac"])
def test_a_replay_buffer_of_your_own_may_draw_by_torch(algorithm: str) -> None:
    found = []
    for place in (INLINE, PROCESSES):
        torch.manual_seed(len(found))
        before = torch.random.get_rng_state()
        with new(algorithm, replay_buffer_class=DrawnByTorch, **place) as model:
            torch.random.set_rng_state(before)
            model.learn(320)
            assert torch.equal(before, torch.random.get_rng_state())
            found.append(model.fingerprint())
    assert found[0] == found[1]
