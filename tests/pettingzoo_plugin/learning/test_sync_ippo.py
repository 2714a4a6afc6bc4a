"""``SyncIPPO``: what each policy learns from, the same bits wherever it runs, and one agent as ``SyncPPO``."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import zipfile
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from every_other import every_other
from gymnasium import Env, spaces
from killing import Killing
from learning_envs import ENVS, EVALUATED, MIXED, SEEN, Late, Pair, Solo, make, outcome
from mpe2.simple_spread import simple_spread
from places import INLINE, PROCESSES, THREADS
from runner_envs import Herd, Table, ran
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.dqn.policies import DQNPolicy
from torch import nn
from trainers import Grainy

from reactor_pettingzoo import MultiAgentRunner
from reactor_pettingzoo.learning import SyncIPPO
from reactor_pettingzoo.learning.joint_policy import turns_advantages
from reactor_pettingzoo.learning.seated_unit import SeatedUnit
from reactor_rl import RecoveryWarning
from reactor_sb3 import SyncPPO
from reactor_torch import kernels

each = pytest.mark.parametrize("env", sorted(ENVS))


@cache
def alone(env: str, pipeline: int = 0, **how: Any) -> dict[str, Any]:
    with make(env, pipeline=pipeline, **EVALUATED, **how) as model:
        found = outcome(model.learn(256))
        assert found["evaluations"] and found["episodes"]
        return found


# ---------------------------------------------------------------------- one agent


@pytest.mark.filterwarnings("ignore:You have specified a mini-batch size of 40:UserWarning")
@pytest.mark.parametrize(
    ("env_id", "how"), [("CartPole-v1", {"target_kl": 0.002}), ("Pendulum-v1", {"envs_per_actor": 2, "pipeline": 1})], ids=str
)
def test_one_agent_is_sync_ppo(env_id: str, how: dict[str, Any]) -> None:
    given = {"n_actors": 2, "n_steps": 96, "batch_size": 40, "n_epochs": 3, "seed": 3, "executor": "inline", **how}
    given["learning_rate"] = 3e-3
    with SyncPPO("MlpPolicy", env_id, **given) as one, SyncIPPO("MlpPolicy", partial(Solo, env_id), **given) as many:
        one.learn(1000)
        many.learn(1000)
        state = one.policy.state_dict()
        for name, tensor in many.policies["only"].state_dict().items():
            assert torch.equal(tensor, state[name]), name
        assert [info["l"] for info in one.ep_info_buffer or ()] == [info["l"] for info in many.ep_info_buffer or ()]
        assert one.n_updates == many.n_updates


# ---------------------------------------------------------------------- images


class Watching(Pair):
    """One agent sees pictures, the other one whole numbers."""

    def observation_space(self, agent: str) -> Any:
        shape, most, dtype = ((1, 36, 36), 255, np.uint8) if agent == "one" else ((2, 3), 50, np.int16)
        return spaces.Box(0, most, shape, dtype)

    def _seen(self) -> dict[str, Any]:
        self.facts = {agent: self.random.normal(size=5) for agent in self.agents}
        found = {}
        for agent in self.agents:
            space = self.observation_space(agent)
            found[agent] = self.random.integers(0, int(space.high.max()), space.shape).astype(space.dtype)
        return found


@pytest.mark.slow
@pytest.mark.skipif(kernels.compiled is None, reason="no extension")
def test_agents_that_see_images_beside_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def learned(dense: bool, **place: Any) -> dict[str, Any]:
        policies = {
            "one": {"features_extractor_kwargs": {"features_dim": 16}},
            "two": {"features_extractor_class": FlattenExtractor},
        }
        given: dict[str, Any] = {"n_actors": 2, "n_steps": 64, "batch_size": 64, "seed": 3, "policies": policies, **place}
        with SyncIPPO("CnnPolicy", Watching, **given) as model:
            assert model.nets.compiled == dense
            model.learn(256)
            return {name: policy.state_dict() for name, policy in model.policies.items()}

    found, elsewhere = learned(True, **INLINE), learned(True, **PROCESSES)
    monkeypatch.setattr(SyncIPPO, "_read", staticmethod(lambda *_: "autograd is to learn"))
    wanted = learned(False, **INLINE)
    for name, state in found.items():
        for key, tensor in state.items():
            assert torch.equal(tensor, elsewhere[name][key]), (name, key)
            torch.testing.assert_close(tensor, wanted[name][key], rtol=0, atol=1e-4)


class Scenes(Pair):
    """Each agent sees a picture, whose channels lie first or last, and beside it numbers if it is the second one."""

    shapes = {"one": (3, 36, 37), "two": (36, 37, 3)}

    def observation_space(self, agent: str) -> Any:
        picture = spaces.Box(0, 255, self.shapes[agent], np.uint8)
        return picture if agent == "one" else spaces.Dict({"numbers": spaces.Box(-1, 1, (2,), np.float32), "picture": picture})

    def _seen(self) -> dict[str, Any]:
        self.facts = {agent: self.random.normal(size=3) for agent in self.agents}
        pictures = {agent: self.random.integers(0, 256, self.shapes[agent], np.uint8) for agent in self.agents}
        numbers = self.random.uniform(-1, 1, 2).astype(np.float32)
        return {"one": pictures["one"], "two": {"numbers": numbers, "picture": pictures["two"]}}


def test_a_runner_shows_images_to_policies_as_these_see_them() -> None:
    with make(Scenes, policy_kwargs=None) as model:
        policies = model.policies
        for policy in policies.values():
            nn.init.normal_(policy.action_net.weight, std=10.0)  # else all actions are alike
    found = ran(Scenes, policies, steps=40, deterministic=True).trajectories
    seen = {name: torch.as_tensor(rows).flatten(0, 2) for name, rows in found.items() if name.startswith("observations")}
    given = {
        "one": seen["observations.0"],
        "two": {"numbers": seen["observations.1.numbers"], "picture": seen["observations.1.picture"].permute(0, 3, 1, 2)},
    }
    for number, (name, policy) in enumerate(policies.items()):
        wanted = policy.get_distribution(given[name]).mode().numpy()
        assert np.array_equal(found[f"actions.{number}"].flatten(), wanted) and np.ptp(wanted) > 0


# ---------------------------------------------------------------------- the oracle


class Rounds(BaseCallback):
    """Keeps the actions of each round."""

    def __init__(self) -> None:
        super().__init__()
        self.actions: list[Any] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self.actions.append({name: self.model.session.rollouts.steps(f"{name}.actions") for name in ("one", "two")})


@pytest.mark.filterwarnings("ignore:You have specified a mini-batch size of 16:UserWarning")
def test_two_agents_as_in_a_plain_loop_with_sb3s_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given the same actions, seeds and orders, the loop that anybody would write has the same weights after three rounds."""
    steps, copies, epochs, kept = 24, 2, 3, Rounds()
    given = {"n_steps": steps, "batch_size": 16, "n_epochs": epochs, "ent_coef": 0.01, "learning_rate": 3e-3}
    orders: list[Any] = []
    with make(Pair, n_actors=1, envs_per_actor=copies, policy_kwargs=None, **given) as model:
        first = {name: {key: one.clone() for key, one in policy.state_dict().items()} for name, policy in model.policies.items()}
        drawn = model.permutation
        monkeypatch.setattr(model, "permutation", lambda rows: orders.append(drawn(rows)) or orders[-1])
        seeds = seeds_of(model, monkeypatch)
        model.learn(3 * steps * copies, callback=kept)
        weights = {name: policy.state_dict() for name, policy in model.policies.items()}

    learners, env = {}, Pair()
    for name in ("one", "two"):
        like = partial(Spaces, env.observation_space(name), env.action_space(name))
        learners[name] = PPO("MlpPolicy", like(), device="cpu", seed=0, **given)
        learners[name].policy.load_state_dict(first[name])
        learners[name].set_logger(Logger(None, []))
    envs, following = [Pair() for _ in range(copies)], iter(seeds)
    seen = [one.reset(seed=next(following))[0] for one in envs]
    begun = [True] * copies
    fresh: set[int] = set(range(copies))  # seeded in this round
    for number, actions in enumerate(kept.actions):
        buffers = {}
        for name, learner in learners.items():
            space, choice = env.observation_space(name), env.action_space(name)
            buffers[name] = RolloutBuffer(steps, space, choice, "cpu", 0.95, 0.99, copies)
            learner.rollout_buffer = buffers[name]
        for step in range(steps):
            taken = [one.step({name: actions[name][step, row, 0] for name in learners}) for row, one in enumerate(envs)]
            for name, learner in learners.items():
                observed = torch.as_tensor(np.stack([one[name] for one in seen]))
                chosen = torch.as_tensor(actions[name][step, :, 0])
                rewards = np.array([one[1][name] for one in taken], np.float32)
                for row, (observations, _, _, cut, _) in enumerate(taken):
                    if cut[name]:
                        rewards[row] += 0.99 * value(learner, observations[name])
                with torch.no_grad():
                    values, log_probs, _ = learner.policy.evaluate_actions(observed, chosen)
                buffers[name].add(observed.numpy(), chosen.numpy()[:, None], rewards, np.array(begun), values, log_probs)
            begun = [not one.agents for one in envs]
            seen = [one[0] for one in taken]
            for row, one in enumerate(envs):
                if begun[row]:
                    seen[row] = one.reset(seed=None if row in fresh else next(following))[0]
                    fresh.add(row)
        fresh = set()
        for at, (name, learner) in enumerate(learners.items()):
            last = torch.tensor([value(learner, one[name]) for one in seen])
            buffers[name].compute_returns_and_advantage(last, np.array(begun))
            own = iter(orders[number * 2 * epochs :][at : 2 * epochs : 2])
            with monkeypatch.context() as patched:
                patched.setattr(np.random, "permutation", lambda rows, own=own: next(own).numpy())
                learner.train()
    for name, learner in learners.items():
        for key, expected in learner.policy.state_dict().items():
            torch.testing.assert_close(weights[name][key], expected, rtol=1e-5, atol=1e-5)
            assert not torch.equal(weights[name][key], first[name][key])


def value(learner: Any, observation: Any) -> float:
    with torch.no_grad():
        return float(learner.policy.predict_values(torch.as_tensor(observation)[None]))


def seeds_of(model: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seeds that environments are reset with, as they come."""
    seeds: list[int] = []
    reset = SeatedUnit.reset

    def noting(self: Any, *, seed: int | None = None, **kwargs: Any) -> Any:
        if seed is not None:
            seeds.append(seed)
        return reset(self, seed=seed, **kwargs)

    monkeypatch.setattr(SeatedUnit, "reset", noting)
    return seeds


class Spaces(Env[Any, Any]):
    """Nothing but spaces."""

    def __init__(self, seen: Any, actions: Any) -> None:
        self.observation_space, self.action_space = seen, actions


# ---------------------------------------------------------------------- what is learned from


def each_round(model: Any, steps: int, look: Any) -> None:
    """Train, and look at each round before it is learned from: at the record, and at what each policy learns from."""
    batch = model.batch

    def looking(rollouts: Any) -> Any:
        found = batch(rollouts)
        look(rollouts, found)
        return found

    model.batch = looking
    model.learn(steps)


@pytest.mark.parametrize("env", ["deaths", "masks", "masks in infos", "mixed"])
def test_only_steps_of_agents_that_are_there(env: str) -> None:
    with make(env) as model:

        def look(rollouts: Any, batches: Any) -> None:
            acts = rollouts.steps("acting")
            shares = {block.policy: acts[..., block.seats].sum() for block in model.seats.blocks}
            assert shares == {name: len(one) for name, one in batches.items()}
            assert 0 < shares["late"] < acts[..., 0].size  # who joins late, and dies
            for block in model.seats.blocks:
                there = acts[..., block.first].T.flatten()
                seen = rollouts.rows("observations" + block.key())[:, 0][there]
                assert torch.equal(batches[block.policy].observations.flatten(1), seen.float())

        each_round(model, 192, look)


@pytest.mark.parametrize("env", ["deaths", "masks"])
def test_advantages_are_those_of_each_agents_own_episodes(env: str) -> None:
    """As a loop over one agent's steps has them."""
    inner: list[int] = []

    def look(rollouts: Any, _: Any) -> None:
        acting, rewards = (rollouts.steps(name)[:, 0] for name in ("acting", "agent_rewards"))
        terminated, truncated = (rollouts.steps(f"agent_{name}")[:, 0] for name in ("terminations", "truncations"))
        found, values = (rollouts.steps(f"all.{name}")[:, 0] for name in ("advantages", "values"))
        for agent in range(4):
            later = 0.0
            for step in reversed(range(40)):
                if not acting[step, agent]:
                    continue
                if not terminated[step, agent] and (truncated[step, agent] or step == 39):
                    later = found[step, agent]  # goes on with a value that this test does not know
                elif terminated[step, agent]:
                    later = rewards[step, agent] - values[step, agent]
                else:
                    following = rewards[step, agent] + 0.99 * values[step + 1, agent] - values[step, agent]
                    later = following + 0.99 * 0.95 * later
                    inner.append(step)
                assert found[step, agent] == pytest.approx(later, abs=1e-4)

    with make(env, envs_per_actor=1, n_actors=1, n_steps=40, policies={"all": {"net_arch": [8]}}) as model:
        each_round(model, 120, look)
    assert len(inner) > 90


def test_policies_have_groups() -> None:
    with make("deaths", policies={"insects": {}, "others": {"net_arch": [8]}}, policy_of=insects) as model:
        assert model.policy_of == {"ant": "insects", "bee": "insects", "cat": "others", "late": "others"}
        assert model.policies["others"].net_arch == [8]
        by = "extension" if kernels.compiled else "torch"
        assert [(row.network, row.acts) for row in model.explain()] == [("insects", by), ("others", by)]
        model.learn(128)
        assert "insects" in repr(model.get_parameters().keys())
    with make("deaths", policies=["all"]) as model:
        assert set(model.policy_of.values()) == {"all"}


def insects(agent: str) -> str:
    return "insects" if agent in ("ant", "bee") else "others"


def test_masks_are_kept_and_learned_with() -> None:
    """``Herd`` fails if somebody does what is forbidden; probabilities are those of what is allowed."""

    def look(rollouts: Any, batches: Any) -> None:
        for name, batch in batches.items():
            assert batch.action_masks.gather(1, batch.actions[:, None]).all()
            assert (batch.old_log_prob > -20).all()
            assert not batch.action_masks.all()
            assert rollouts.steps(f"{name}.actions").shape[1:] == (4, 1)

    with make("masks") as model:
        each_round(model, 128, look)
        seen = model.observation_space.sample()
        for name in model.policies:
            for choice in range(5):
                only = {name: np.arange(5) == choice}
                action, _ = model.policy.predict(seen, deterministic=True, action_masks=only)
                assert action[name] == [choice] and action.dtype.names == tuple(sorted(model.policies))


# ---------------------------------------------------------------------- agents that take turns


def test_rewards_that_come_later_belong_to_the_agents_last_action() -> None:
    """In ``Late`` each move is paid when the other player moves, and by as much as was chosen."""

    def look(_: Any, batches: Any) -> None:
        for batch in batches.values():
            assert torch.allclose(batch.returns, batch.actions.float(), atol=1e-6)
        assert len(batches["first"]) + len(batches["second"]) >= 4 * 18  # all but the last ones of a round

    with make(Late, gamma=0.0, gae_lambda=0.0, n_steps=20) as model:
        each_round(model, 160, look)


def by_hand(
    acts: Any, rewards: Any, terminated: Any, truncated: Any, dones: Any, values: Any, gamma: float, lam: float
) -> tuple[Any, Any]:
    """Step by step, for one environment at a time."""
    steps, envs, agents = acts.shape
    found, known = np.zeros((steps, envs)), np.zeros((steps, envs), bool)
    for env in range(envs):
        for agent in range(agents):
            pending, moves = None, []
            for step in range(steps):
                if acts[step, env, agent]:
                    if pending is not None:
                        moves.append((*pending, values[step, env], "on"))
                    pending = [step, 0.0]
                if pending is not None:
                    pending[1] += rewards[step, env, agent]
                    if terminated[step, env, agent] or truncated[step, env, agent] or dones[step, env]:
                        kind = "over" if terminated[step, env, agent] else "cut"
                        moves.append((*pending, 0.0, kind))
                        pending = None
            later = 0.0
            if pending is not None:
                moves.append((*pending, 0.0, "cut"))
            for step, paid, following, kind in reversed(moves):
                if kind == "cut":
                    later = 0.0
                    continue
                later = paid + gamma * following - values[step, env] + (gamma * lam * later if kind == "on" else 0.0)
                found[step, env], known[step, env] = later, True
    return found, known


@pytest.mark.parametrize("seed", range(8))
def test_advantages_of_turns(seed: int) -> None:
    random = np.random.default_rng(seed)
    steps, envs, agents = 40, 3, 3
    acts = np.zeros((steps, envs, agents), bool)
    rewards = random.normal(size=acts.shape).astype(np.float32)
    terminated, truncated, dones = np.zeros(acts.shape, bool), np.zeros(acts.shape, bool), np.zeros((steps, envs), bool)

    def ended(*at: int) -> bool:
        return bool(terminated[at] or truncated[at])

    for env in range(envs):
        live = list(range(agents))
        for step in range(steps):
            acts[step, env, random.choice(live)] = True
            for agent in list(live):
                if random.random() < 0.06:
                    (terminated, truncated)[random.integers(2)][step, env, agent] = True
                    live.remove(agent)
            rewards[step, env, [one for one in range(agents) if one not in live and not ended(step, env, one)]] = 0
            if not live:
                dones[step, env], live = True, list(range(agents))
    values = random.normal(size=(steps, envs)).astype(np.float32)
    for mine in (slice(0, 3), slice(1, 2)):
        of_mine = (column[..., mine] for column in (acts, rewards, terminated, truncated))
        given = *of_mine, dones, values, 0.9, 0.8
        found, known = turns_advantages(*given)
        expected, wanted = by_hand(*given)
        assert np.array_equal(known, wanted) and known.any() and not known.all()
        assert np.allclose(np.where(known, found, 0), expected, atol=1e-4)


# ---------------------------------------------------------------------- critics that see everything


class Known(Table):
    """It says what its state is."""

    def state(self) -> Any:
        return np.array([self.t, *self.facts[:2]], np.float64)


SPREAD = partial(simple_spread.parallel_env, N=3, max_cycles=6)


@pytest.mark.slow
@pytest.mark.parametrize(("env", "size"), [("deaths", 16), (Known, 3), (SPREAD, 54)], ids=["deaths", "known", "spread"])
def test_centralised_critics(env: Any, size: int) -> None:
    """They see what the environment says of its state, or all observations; actors do not."""

    def look(rollouts: Any, batches: Any) -> None:
        for name, batch in batches.items():
            own, policy = batch.observations["own"], model.policies[name].policy
            assert batch.observations["state"].shape[1] == size
            other = {"own": own, "state": batch.observations["state"] + 1}
            actions = policy.get_distribution(other).mode()
            assert torch.equal(actions, policy.get_distribution(batch.observations).mode())
            assert not torch.allclose(policy.predict_values(other), policy.predict_values(batch.observations))
            values, log_probs, _ = model.losses()[name].evaluate(policy, batch)
            assert torch.allclose(values.flatten(), batch.old_values, atol=1e-5)
            assert torch.allclose(log_probs, batch.old_log_prob, atol=1e-4)

    found = []
    for how in (INLINE, {"n_learners": 2})[: 2 if env == "deaths" else 1]:
        with make(env, centralised_critic=True, **how) as model:
            each_round(model, 128, look)
            found.append(model.fingerprint())
    assert len(set(found)) == 1
    with MultiAgentRunner(ENVS.get(env, env) if isinstance(env, str) else env, model.policies, executor="inline") as runner:
        assert runner.run(steps=10, seed=0, progress_bar=False).steps == 10


class Screens(Pair):
    """Both agents see pictures, channels last."""

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0, 255, (6, 5, 3), np.uint8)

    def _seen(self) -> dict[str, Any]:
        self.facts = {agent: self.random.normal(size=3) for agent in self.agents}
        return {agent: self.random.integers(0, 256, (6, 5, 3), np.uint8) for agent in self.agents}


def test_actors_of_centralised_policies_see_images_as_the_runner_has_them() -> None:
    with make(Screens, centralised_critic=True) as model:
        actors = model.policies
        for actor in actors.values():
            nn.init.normal_(actor.policy.action_net.weight)  # else all actions are alike
    found = ran(Screens, actors, steps=40, deterministic=True).trajectories
    for number, name in enumerate(("one", "two")):
        policy, seen = actors[name].policy, torch.as_tensor(found[f"observations.{number}"]).flatten(0, 2)
        turned = seen.permute(0, 3, 1, 2)
        assert turned.shape[1:] == policy.observation_space["own"].shape
        wanted = policy.get_distribution({"own": turned}).mode().numpy()
        assert np.array_equal(found[f"actions.{number}"].flatten(), wanted) and np.ptp(wanted) > 0


def test_all_observations_are_the_state() -> None:
    def look(rollouts: Any, _: Any) -> None:
        state = rollouts.steps("observationsant:state")[:, :, 0]
        assert np.array_equal(state, np.concatenate([rollouts.steps(f"observations{name}")[:, :, 0] for name in names], -1))

    with make("deaths", centralised_critic=True) as model:
        names = list(model.policies)
        each_round(model, 64, look)


# ---------------------------------------------------------------------- wherever it runs


@pytest.mark.slow
@pytest.mark.parametrize(("env", "pipeline", "place"), [("masks", 0, PROCESSES), ("turns", 1, THREADS)])
def test_the_same_on_any_workers(env: str, pipeline: int, place: dict[str, Any]) -> None:
    with make(env, pipeline=pipeline, **EVALUATED, **place) as model:
        assert outcome(model.learn(256)) == alone(env, pipeline)


@pytest.mark.slow
def test_what_networks_draw_where_they_act_is_the_actors_own() -> None:
    """See ``tests/sb3_plugin/trainers/test_draws.py``."""
    found = []
    for seed, place in enumerate((INLINE, THREADS)):
        given = {"policy_kwargs": {"net_arch": [16], "features_extractor_class": Grainy}, **EVALUATED, **place}
        with make("deaths", **given) as model:
            torch.manual_seed(seed)
            before = torch.get_rng_state()
            found.append(outcome(model.learn(192)))
            assert torch.equal(before, torch.get_rng_state())
    assert found[0]["evaluations"] and found[0] == found[1]


class Normalising(FlattenExtractor):
    """Drops some of what it has normalised."""

    def __init__(self, observation_space: Any) -> None:
        super().__init__(observation_space)
        self.norm = nn.BatchNorm1d(self.features_dim)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(self.norm(super().forward(observations)), 0.2, self.training)


@pytest.mark.slow
def test_policies_that_draw_and_normalise_batches_learn_the_same() -> None:
    found = []
    for how in ({"n_learners": 1, **INLINE}, {"n_learners": 2, **THREADS}):
        given = {"policy_kwargs": {"net_arch": [16], "features_extractor_class": Normalising}, **how}
        with make("deaths", **given) as model:
            found.append(outcome(model.learn(128)))
    assert found[0] == found[1]


@pytest.mark.slow
@every_other(env=sorted(ENVS), pipeline=[0, 1], executor=["threads", "processes"], workers=[1, 3])
def test_the_same_on_all_workers(env: str, pipeline: int, executor: Any, workers: int) -> None:
    with make(env, pipeline=pipeline, executor=executor, workers=workers, **EVALUATED) as model:
        assert outcome(model.learn(256)) == alone(env, pipeline)


@pytest.mark.parametrize(
    ("env", "place"),
    [
        ("mixed", INLINE),
        pytest.param("masks", THREADS, marks=pytest.mark.slow),
        pytest.param("turns", PROCESSES, marks=pytest.mark.slow),
    ],
)
def test_policies_are_learned_side_by_side(env: str, place: dict[str, Any]) -> None:
    """By workers of their own, with the same bits."""
    with make(env, n_learners=2, **EVALUATED, **place) as model:
        assert outcome(model.learn(256)) == alone(env)
        assert model.split and model.session.sliced.lanes.workers == len(model.policies) - 1


@pytest.mark.parametrize(("env", "pipeline"), [("masks", 1), ("turns", 0)])
def test_resumed_is_uninterrupted(env: str, pipeline: int, tmp_path: Path) -> None:
    with make(env, pipeline=pipeline, **EVALUATED) as model:
        model.learn(128)
        model.save_checkpoint(tmp_path / "run.zip")
        expected = outcome(model.learn(128, reset_num_timesteps=False))
    with SyncIPPO.resume(tmp_path / "run.zip", **THREADS) as resumed:
        assert outcome(resumed.learn(128, reset_num_timesteps=False)) == expected


class Held(Herd):
    """Its state cannot be pickled; its actions are repeated instead."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.lock = threading.Lock()


def test_resumed_by_repeating_typed_actions(tmp_path: Path) -> None:
    with make(partial(Held, actions=MIXED, observations=SEEN)) as model:
        model.learn(128)
        model.save_checkpoint(tmp_path / "run.zip")
        expected = outcome(model.learn(128, reset_num_timesteps=False))
    with zipfile.ZipFile(tmp_path / "run.zip") as file:
        document = json.loads(file.read(next(name for name in file.namelist() if name.endswith(".json"))))
    assert document["environments"] == {"replay": 4}
    with SyncIPPO.resume(tmp_path / "run.zip", **THREADS) as resumed:
        assert outcome(resumed.learn(128, reset_num_timesteps=False)) == expected


KILLED = """
import sys
from killing import Dying
from learning_envs import EVALUATED, make

if __name__ == "__main__":
    make(sys.argv[1], **EVALUATED).learn(256, callback=Dying("run.zip", saved=2, dies=3))
"""


@pytest.mark.faults
@pytest.mark.parametrize("env", ["deaths", "turns"])
def test_killed_and_resumed(env: str, tmp_path: Path) -> None:
    folders = [str(folder) for folder in Path(__file__).parents[1:3]]
    (tmp_path / "killed.py").write_text(f"import sys\nsys.path[:0] = {folders!r}\n{KILLED}")
    done = subprocess.run([sys.executable, "killed.py", env], cwd=tmp_path, timeout=100, check=False, capture_output=True)
    assert done.returncode == -9, done.stderr
    with SyncIPPO.resume(tmp_path / "run.zip", executor="inline") as resumed:
        assert outcome(resumed.learn(resumed.remaining_timesteps, reset_num_timesteps=False)) == alone(env)


@pytest.mark.faults
@pytest.mark.parametrize("env", ["mixed", "turns"])
@pytest.mark.filterwarnings("always")
def test_killed_workers_change_no_weight(env: str) -> None:
    with pytest.warns(RecoveryWarning), make(env, executor="processes", workers=3, restarts=9, **EVALUATED) as model:
        assert outcome(model.learn(256, callback=Killing({2, 4}))) == alone(env)


@pytest.mark.slow
@pytest.mark.parametrize("env", ["deaths", "turns"])
def test_watching_changes_nothing(env: str, tmp_path: Path) -> None:
    with make(env, watch=tmp_path / "run.gif", watch_every=2, watch_steps=5, **EVALUATED) as model:
        assert outcome(model.learn(256)) == alone(env)
    assert list(tmp_path.glob("*.gif"))


@pytest.mark.parametrize("env", ["masks", "turns"])
def test_saved_and_loaded(env: str, tmp_path: Path) -> None:
    with make(env) as model:
        model.learn(64)
        model.save(tmp_path / "model")
        seen = model.observation_space.sample()
        expected = model.predict(seen, deterministic=True)[0]
    with SyncIPPO.load(tmp_path / "model", ENVS[env], device="cpu", executor="inline") as again:
        assert np.array_equal(again.predict(seen, deterministic=True)[0], expected)
        assert again.fingerprint() == model.fingerprint()
        again.learn(64)


def test_policies_play_in_a_runner() -> None:
    with make("masks") as model:
        model.learn(64)
        with MultiAgentRunner(
            ENVS["masks"], model.policies, policy_of=model.policy_of.get, num_envs=2, executor="inline"
        ) as runner:
            assert runner.run(steps=20, seed=0, progress_bar=False).steps == 20


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="give agents with different spaces policies of their own"):
        make("mixed", policies=["all"])
    with pytest.raises(ValueError, match=r"agent 'ant' has no policy among \['bee'"):
        make("deaths", policies=["bee", "cat", "late"])
    with pytest.raises(ValueError, match=r"no agent has the policies \['dog'\]"):
        make("deaths", policies={"all": {}, "dog": {}}, policy_of=lambda agent: "all")
    with pytest.raises(ValueError, match=r"must be a str without '\.' and ':', got 'a\.b'"):
        make("deaths", policy_of=lambda agent: "a.b")
    with pytest.raises(TypeError, match="which is neither a pettingzoo ParallelEnv nor an AECEnv"):
        SyncIPPO("MlpPolicy", lambda: 3)  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError, match="SyncIPPO needs a ActorCriticPolicy"):
        SyncIPPO(DQNPolicy, Herd, executor="inline")


@pytest.mark.slow
def test_reactor_pettingzoo_does_without_sb3() -> None:
    script = "import sys, reactor_pettingzoo; assert 'stable_baselines3' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", script], timeout=60, check=False).returncode == 0
