"""Hindsight replay (Andrychowicz et al. 2017): SB3's buffer, which asks an environment of the learner's for rewards."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from every_other import in_turn
from gymnasium import spaces
from stable_baselines3 import SAC, HerReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import VecNormalize
from trainers import EVALUATED, INLINE, PLACES, ROWS, THREADS, AfterRounds, Toy, outcome, same_draws

from reactor_sb3 import SyncSAC
from reactor_sb3.streams import Purpose, state_of, stream
from reactor_sb3.trainers.replay import store
from reactor_torch import kernels

pytestmark = pytest.mark.usefixtures("small_blocks")

STEP, NEAR, LENGTH = 0.25, 0.2, 12


class Reach(gymnasium.Env[Any, Any]):
    """A point that is to go to a place in a square; what is paid is paid there only.

    Args:
        discrete: Whether it moves along one axis at a time.
        near: How far away is near enough.
        strange: Whether it draws from ``np.random`` where it is made and where it pays, and pays by what is in an info.
    """

    def __init__(self, discrete: bool = False, near: float = NEAR, strange: bool = False) -> None:
        place = spaces.Box(-1, 1, (2,), np.float32)
        self.observation_space = spaces.Dict(observation=place, achieved_goal=place, desired_goal=place)
        self.action_space = spaces.Discrete(4) if discrete else place
        self.strange, self.discrete, self.near = strange, discrete, near
        if strange:
            np.random.random(3)

    def seen(self) -> dict[str, Any]:
        return {"observation": self.place.copy(), "achieved_goal": self.place.copy(), "desired_goal": self.goal.copy()}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t, self.reach = 0, STEP
        self.place, self.goal = self.np_random.uniform(-1, 1, (2, 2)).astype(np.float32)
        return self.seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        by = [(1, 0), (-1, 0), (0, 1), (0, -1)][action] if self.discrete else action
        self.place = np.clip(self.place + STEP * np.asarray(by, np.float32), -1, 1, dtype=np.float32)
        near = self.near + 0.01 * (self.t % 3) * self.strange
        reward = float(np.linalg.norm(self.place - self.goal) <= near) - 1
        return self.seen(), reward, reward == 0 and self.t > 2, self.t >= LENGTH, {"near": near}

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, infos: Any) -> Any:
        near = np.array([info["near"] for info in infos]) + 1e-4 * np.random.random() if self.strange else self.near
        assert self.reach == STEP  # it has been reset
        return -(np.linalg.norm(achieved_goal - desired_goal, axis=-1) > near).astype(np.float64)


class Kept(Reach):
    """One that can be saved as it is."""

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


TRAINERS = {name: row.cls for name, row in ROWS.items() if row.kind == "off-policy" and "dict" in row.policies}
"""A trainer of each kind of update; buffers know nothing of them."""


def hindsight(env: Any = Reach, algorithm: str = "sac", goals: dict[str, Any] | None = None, **changed: Any) -> Any:
    given: dict[str, Any] = {
        "n_actors": 3, "train_freq": 8, "gradient_steps": 8, "buffer_size": 200, "learning_starts": 60, "batch_size": 16,
        "policy_kwargs": {"net_arch": [16]}, "seed": 0, "replay_buffer_class": HerReplayBuffer, **INLINE,
    }  # fmt: skip
    env = partial(Reach, discrete=True) if env is Reach and algorithm.endswith("dqn") else env
    return TRAINERS[algorithm]("MultiInputPolicy", env, **{**given, "replay_buffer_kwargs": goals, **changed})


def arrays_of(buffer: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in vars(buffer).items():
        parts = value if isinstance(value, dict) else {"": value}
        found |= {name + key: part for key, part in parts.items() if isinstance(part, np.ndarray)}
    return found | {"pos": buffer.pos, "full": buffer.full}


# ---------------------------------------------------------------------- what is stored and sampled


def stored_twice(model: Any, rounds: int, infos: bool) -> Any:
    """Store rounds of nonsense; the same buffer, into which SB3's ``add`` has put them."""
    random, theirs = np.random.default_rng(0), deepcopy(model.replay_buffer)
    theirs.env = model.replay_buffer.env
    for _ in range(rounds):
        record = np.zeros(3, model.program_config().actors.record)
        for name in record.dtype.names or ():
            record[name][...] = (
                random.random(record[name].shape) < 0.1 if record[name].dtype == bool else random.normal(size=record[name].shape)
            )
        record["timeouts"] &= record["dones"]
        told = [[(step, actor, {"near": NEAR + 0.01 * step}) for step in range(8)] for actor in range(3)] if infos else []
        store(model.replay_buffer, model.session.layout, record, told)
        for step in range(8):
            seen, nexts = (
                {key: record[which + key][:, step, 0] for key in theirs.observations}
                for which in ("observations", "next_observations")
            )
            of_step = [
                {**({"near": NEAR + 0.01 * step} if infos else {}), "TimeLimit.truncated": bool(one)}
                for one in record["timeouts"][:, step, 0]
            ]
            actions = record["policy_actions" if "policy_actions" in record.dtype.names else "actions"][:, step, 0]
            theirs.add(seen, nexts, actions, record["rewards"][:, step, 0], record["dones"][:, step, 0], of_step)
    return theirs


@pytest.mark.parametrize("infos", [False, True])
@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_what_is_stored_and_sampled_is_sb3s(strategy: str, infos: bool) -> None:
    """Bit for bit, also where the buffer is written over; and as much is drawn."""
    goals = {"goal_selection_strategy": strategy, "n_sampled_goal": 3, "copy_info_dict": infos}
    with hindsight(partial(Reach, strange=infos), goals=goals, buffer_size=3 * 61) as model:
        for rounds in (4, 20):
            theirs = stored_twice(model, rounds, infos)
            found, expected = arrays_of(model.replay_buffer), arrays_of(theirs)
            for name in expected:
                assert np.array_equal(found[name], expected[name]), name
            assert model.replay_buffer.full == (rounds == 20) and (theirs.ep_length > 0).sum() > 30
            for size in (16, 7, 2):
                random = stream(1, Purpose.REPLAY)
                with same_draws(model, random):
                    sampled, wanted = model._sampling(size)(), theirs.sample(size)
                    assert state_of(model.session.streams["replay"]) == state_of(random)
                for name in ("actions", "dones", "rewards"):
                    assert torch.equal(getattr(sampled, name), getattr(wanted, name)), name
                for key in wanted.observations:
                    assert torch.equal(sampled.observations[key], wanted.observations[key]), key
                    assert torch.equal(sampled.next_observations[key], wanted.next_observations[key]), key


@pytest.mark.slow
@pytest.mark.parametrize("infos", [False, True])
def test_updates_are_those_of_sb3(infos: bool) -> None:
    """From the same state, transitions and generators; observations that are normalised are so after goals were exchanged."""
    goals, env = {"copy_info_dict": infos}, partial(Reach, strange=infos)
    normalized = VecNormalize(make_vec_env(env, n_envs=3), norm_obs_keys=["observation", "desired_goal"])
    with hindsight(normalized, goals=goals, n_actors=None) as model:
        model.learn(200)
    assert model.nets.compiled == (kernels.compiled is not None)
    theirs = SAC(
        "MultiInputPolicy", normalized, device="cpu", batch_size=16, policy_kwargs={"net_arch": [16]}, seed=0,
        replay_buffer_class=HerReplayBuffer, replay_buffer_kwargs=goals,
    )  # fmt: skip
    theirs.set_parameters(deepcopy(model.get_parameters()))
    theirs.replay_buffer, theirs._vec_normalize_env = model.replay_buffer, model._vec_normalize_env
    with torch.random.fork_rng():
        for one in (model, theirs):
            torch.manual_seed(4)
            one.set_logger(model.logger)
            with same_draws(model, stream(0, Purpose.REPLAY, 1)):
                one.train(gradient_steps=5, batch_size=16)
    for name, weights in theirs.policy.state_dict().items():
        torch.testing.assert_close(model.policy.state_dict()[name], weights, rtol=0, atol=2e-5)
    assert ("near" in model.replay_buffer.infos[0, 0]) == infos


# ---------------------------------------------------------------------- one result


def ended(**given: Any) -> dict[str, Any]:
    with hindsight(**given) as model:
        return outcome(model.learn(240))


def test_threads_change_nothing() -> None:
    found = [ended(pipeline=1, **place) for place in (INLINE, THREADS)]
    assert found[0] == found[1] and found[0]["counters"][2] > 0


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", TRAINERS)
@pytest.mark.parametrize("pipeline", [0, 1])
def test_one_result(algorithm: str, pipeline: int) -> None:
    found = [ended(algorithm=algorithm, pipeline=pipeline, envs_per_actor=2, **EVALUATED, **place) for place in PLACES]
    assert found[0] == found[1] == found[2] and found[0]["counters"][2] > 0 and found[0]["evaluations"]


class Mine(HerReplayBuffer):
    """One of somebody's own: it is asked as SB3's is."""


@pytest.mark.slow
@in_turn("pipeline, goals, kind", [
    (0, None, HerReplayBuffer), (1, None, HerReplayBuffer), (0, {"copy_info_dict": True}, HerReplayBuffer),
    (1, {"copy_info_dict": True}, HerReplayBuffer), (1, {"copy_info_dict": True}, Mine),
], kept=1)  # fmt: skip
def test_a_run_that_is_resumed_ends_as_it_would_have(pipeline: int, goals: Any, kind: Any, tmp_path: Path) -> None:
    """Episodes that were under way are gone on with, also where the environment that is asked for rewards draws."""
    env = partial(Reach, strange=goals is not None)
    with hindsight(env, goals=goals, pipeline=pipeline, train_freq=5, replay_buffer_class=kind) as model:
        model.learn(120)
        model.save_checkpoint(tmp_path / "run.zip")
        straight = outcome(model.learn(120, reset_num_timesteps=False))
        arrays = arrays_of(model.replay_buffer)
    with SyncSAC.resume(tmp_path / "run.zip", **THREADS) as resumed:
        assert outcome(resumed.learn(120, reset_num_timesteps=False)) == straight and straight["counters"][2] > 0
        for name, array in arrays_of(resumed.replay_buffer).items():
            assert np.array_equal(array, arrays[name]), name


# ---------------------------------------------------------------------- episodes

FAR = partial(Reach, near=-1.0)
"""Its episodes have twelve steps each."""


@pytest.mark.parametrize("pipeline", [0, 1])
def test_no_goal_is_of_another_episode(pipeline: int) -> None:
    """Where training begins anew, episodes that were going on are whole ones."""
    goals = {"goal_selection_strategy": "episode"}
    with hindsight(goals=goals, pipeline=pipeline, train_freq=5, buffer_size=1000, gradient_steps=1) as model:
        for _ in range(3):
            model.learn(75)
    buffer = model.replay_buffer
    for number in range(3):
        begun = 0
        for row in range(buffer.pos):
            assert buffer.ep_start[row, number] == begun, (row, number)
            begun = row + 1 if buffer.dones[row, number] else begun
        seen = buffer.observations["desired_goal"][: buffer.pos, number]
        changes = np.flatnonzero((seen[1:] != seen[:-1]).any(1)) + 1
        assert len(changes) > 5 and buffer.dones[changes - 1, number].all()


def test_learning_waits_for_the_first_episode() -> None:
    """Where SB3 fails: what ``learning_starts`` says may be shorter than an episode."""
    updates = AfterRounds(lambda model: model.n_updates)
    with hindsight(FAR, n_actors=1, train_freq=4, learning_starts=0) as model:
        model.learn(20, callback=updates)
        assert updates.found == [0, 0, 8, 16, 24]
    with hindsight() as model:
        model.set_logger(configure(None, []))
        with pytest.raises(RuntimeError, match="before the end of the first episode"):
            model.train(1, 16)


def test_a_buffer_without_room_for_an_episode_is_named() -> None:
    with hindsight(FAR, buffer_size=3 * 16, learning_starts=0) as model, pytest.raises(RuntimeError, match="48 keeps 16 steps"):
        model.learn(400)


def test_more_environments_than_steps_are_gone_on_with(tmp_path: Path) -> None:
    """Where the next episode begins is known of each of them."""
    with hindsight(FAR, n_actors=2, envs_per_actor=10, train_freq=12, buffer_size=600) as model:
        model.learn(240)
        model.save_checkpoint(tmp_path / "run.zip")
    with SyncSAC.resume(tmp_path / "run.zip") as resumed:
        resumed.learn(240, reset_num_timesteps=False)
        assert (resumed.replay_buffer.ep_length[:24] == 12).all()


# ---------------------------------------------------------------------- what somebody changes


class Nearer(BaseCallback):
    """Makes goals harder to reach, in all environments or in some."""

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self.training_env.set_attr("near", NEAR / (1 + self.num_timesteps // 48))


@pytest.mark.slow
def test_what_is_changed_in_the_environments_counts_for_other_goals(tmp_path: Path) -> None:
    found = []
    for place in (INLINE, THREADS):
        with hindsight(Kept, pipeline=1, **place) as model:
            model.learn(120, callback=Nearer())
            asked = model.replay_buffer.env
            assert asked.get_attr("near") == [NEAR / 3] and asked is model.session.goal_env()
            model.save_checkpoint(tmp_path / "run.zip")
            found.append(outcome(model.learn(72, reset_num_timesteps=False)))
            model.close()
            with pytest.warns(UserWarning, match="the environments of this run are new ones"):
                model.learn(24)
            assert model.replay_buffer.env.get_attr("near") == [NEAR]
    with SyncSAC.resume(tmp_path / "run.zip") as resumed:
        found.append(outcome(resumed.learn(72, reset_num_timesteps=False)))
        assert resumed.replay_buffer.env.get_attr("near") == [NEAR / 3]
    assert found[0] == found[1] == found[2]


def test_settings_of_the_buffer_count_at_once() -> None:
    with hindsight(buffer_size=3000) as model:
        model.learn(96)
        model.replay_buffer.goal_selection_strategy = "nonsense"
        with pytest.raises(ValueError, match="goal_selection_strategy must be"):
            model.train(1, 16)
        model.replay_buffer.her_ratio = 0.0
        seen = model._sampling(64)().observations["desired_goal"]
        stored = model.replay_buffer.observations["desired_goal"]
        assert all((stored == goal.numpy()).all(-1).any() for goal in seen)
        lengths = model.replay_buffer.ep_length
        model.replay_buffer.ep_length = lengths * (np.arange(1000) < 12)[:, None]
        assert len(np.unique(model._sampling(500)().observations["observation"], axis=0)) <= 36


def test_environments_that_are_exchanged() -> None:
    with hindsight() as model:
        model.learn(120)
        before = model.replay_buffer.env
        model.set_env(partial(Reach, strange=False))
        assert model.replay_buffer.env is not before
        with pytest.raises(ValueError, match="has no compute_reward"):
            model.set_env(partial(Toy, Reach().observation_space, Reach().action_space))
        model.learn(120)
        other = deepcopy(model)
    with other:
        assert other.learn(96).n_updates > model.n_updates


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The last trajectory")
def test_buffers_that_are_loaded(tmp_path: Path) -> None:
    with hindsight() as model:
        model.learn(120)
        model.save(tmp_path / "model")
        model.save_replay_buffer(tmp_path / "buffer")
    for truncated in (True, False):
        with SyncSAC.load(tmp_path / "model", Reach, **INLINE) as loaded:
            assert loaded.learn(24).n_updates == model.n_updates  # there is no episode yet
            loaded.load_replay_buffer(tmp_path / "buffer", truncate_last_traj=truncated)
            assert loaded.learn(48, reset_num_timesteps=False).n_updates == model.n_updates + 8
            assert loaded.replay_buffer.env is loaded.session.goal_env()


# ---------------------------------------------------------------------- what is refused


class OneByOne(Reach):
    def compute_reward(self, achieved_goal: Any, desired_goal: Any, infos: Any) -> Any:
        return -float(np.linalg.norm(achieved_goal - desired_goal) > NEAR)


class Unpaid(Reach):
    compute_reward = None


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "no goals": (
        partial(Toy, actions=Reach().action_space),
        {},
        r"a Dict with 'observation', 'achieved_goal', 'desired_goal', got Box",
    ),
    "no rewards": (partial(Toy, Reach().observation_space, Reach().action_space), {}, r"it has no compute_reward\(achieved_goal"),
    "no such strategy": (Reach, {"goal_selection_strategy": "past"}, "must be 'future', 'final' or 'episode', got 'past'"),
    "fewer than none": (Reach, {"n_sampled_goal": -1}, "`n_sampled_goal` must be at least 0, got -1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused_when_it_is_made(case: str) -> None:
    env, goals, words = REFUSED[case]
    with pytest.raises(ValueError, match=words):
        hindsight(env, goals=goals)


def test_rewards_are_asked_of_many_goals_at_once() -> None:
    with hindsight(OneByOne) as model, pytest.raises(ValueError, match=r"compute_reward\(\) must return one reward for each of 12"):
        model.learn(240)


# ---------------------------------------------------------------------- it learns

LEARNERS: dict[str, tuple[Any, dict[str, Any]]] = {
    # An environment where nothing is paid on the way, in which it is found out how good hindsight is.
    "dqn": (partial(BitFlippingEnv, n_bits=12, max_steps=12), {"target_update_interval": 200, "exploration_fraction": 0.5}),
    "sac": (partial(Reach, near=0.1), {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", LEARNERS)
def test_hindsight_is_what_makes_it_learn(algorithm: str) -> None:
    """The first is SB3's own example: as many steps as there are bits to be flipped."""
    env, more = LEARNERS[algorithm]
    found = []
    for kind in (HerReplayBuffer, None):
        with hindsight(
            env, algorithm, replay_buffer_class=kind, n_actors=2, train_freq=4, gradient_steps=4, buffer_size=50_000,
            learning_starts=200, batch_size=128, learning_rate=1e-3, gamma=0.95, policy_kwargs={"net_arch": [64, 64]},
            evaluate_every=100, evaluate_episodes=50, **more,
        ) as model:  # fmt: skip
            model.learn(6_000)
            found.append(np.mean(model.evaluations[-1].lengths))
    assert found[0] < 9 and found[1] > 11, found
