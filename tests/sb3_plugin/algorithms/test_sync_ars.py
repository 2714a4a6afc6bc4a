"""ARS: the candidates, returns and updates of sb3-contrib, wherever its episodes are played."""

from __future__ import annotations

from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from every_other import in_turn
from gymnasium import spaces
from killing import Killing
from sb3_contrib import ARS
from sb3_contrib.ars.policies import ARSPolicy
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import KVWriter, Logger
from stable_baselines3.common.utils import FloatSchedule
from stable_baselines3.common.vec_env import VecNormalize
from trainers import INLINE, PROCESSES, THREADS, Toy, outcome

from reactor_gymnasium.native.compiled import missing
from reactor_rl import RecoveryWarning
from reactor_sb3.acting.candidates import CandidateEnvs, CandidatesConfig, Searched, Turns, deltas_of
from reactor_sb3.algorithms.sync_ars import SyncARS
from reactor_sb3.streams import Purpose, seed_of

BOX = spaces.Box(-0.5, 1, (2,), np.float32)


def new(policy: Any = "LinearPolicy", env: Any = "CartPole-v1", **changed: Any) -> SyncARS:
    return SyncARS(policy, env, **{"n_delta": 3, "seed": 1, **INLINE, **changed})


def pendulum(steps: int = 20) -> Any:
    return gymnasium.make("Pendulum-v1", max_episode_steps=steps)


def cartpole() -> Any:
    return gymnasium.make("CartPole-v1", max_episode_steps=30)


# ---------------------------------------------------------------------- sb3-contrib's


class Repeating(ARS):
    """sb3-contrib's, with directions and episodes of ours."""

    def evaluate_candidates(self, candidate_weights: Any, callback: Any, async_eval: Any) -> Any:
        returns = torch.zeros(self.pop_size)
        for number in range(self.pop_size * self.n_eval_episodes):
            self.policy.load_from_vector(candidate_weights[number // self.n_eval_episodes])
            env: Any = self.env.envs[0]
            observation, _ = env.reset(seed=seed_of(self.seed, Purpose.EPISODES, self._n_updates, number))
            over = False
            while not over:
                observation, reward, terminated, truncated, _ = env.step(self.policy.predict(observation)[0])
                returns[number // self.n_eval_episodes] += float(reward) + self.alive_bonus_offset
                over = terminated or truncated
        return returns


class Began(BaseCallback):
    """Knows what remained of the training when a round began."""

    def _on_rollout_start(self) -> None:
        self.progress = self.model._current_progress_remaining

    def _on_step(self) -> bool:
        return True


@pytest.mark.parametrize("policy", ["LinearPolicy", "MlpPolicy"])
@pytest.mark.parametrize("env", [cartpole, pendulum, partial(Toy, actions=BOX, length=9), partial(Toy, length=9)])
def test_the_weights_are_the_hosts(policy: str, env: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {"n_top": 2, "alive_bonus_offset": -0.5, "n_eval_episodes": 2, "learning_rate": lambda left: 0.1 * left}
    if policy == "MlpPolicy":
        given |= {"zero_policy": False, "policy_kwargs": {"net_arch": [8]}}
    theirs = Repeating(policy, env(), n_delta=3, seed=1, **given)
    theirs._setup_learn(4000)
    with new(policy, env, **given) as ours:
        torch.testing.assert_close(ours.weights, theirs.weights)
        for update in range(3):
            ours.learn(1, began := Began(), log_interval=None, reset_num_timesteps=False)
            theirs._current_progress_remaining = began.progress
            deltas = deltas_of(1, update, range(3), theirs.n_params)
            monkeypatch.setattr(torch, "normal", lambda deltas=deltas, **_: torch.from_numpy(deltas))
            theirs._do_one_update(None, None)  # type: ignore[arg-type]
            monkeypatch.undo()
            torch.testing.assert_close(ours.weights, theirs.weights, rtol=1e-5, atol=1e-5)
            assert ours._n_updates == theirs._n_updates == update + 1
        assert ours.logger.name_to_value.keys() >= theirs.logger.name_to_value.keys()


def test_files_are_the_hosts(tmp_path: Path) -> None:
    with new("MlpPolicy", pendulum) as model:
        model.learn(200)
        model.save(tmp_path / "model")
        theirs = ARS.load(tmp_path / "model")
        theirs.save(tmp_path / "theirs")
        loaded = SyncARS.load(tmp_path / "theirs", env=pendulum)
        assert torch.equal(loaded.weights, model.weights)
        weights = torch.nn.utils.parameters_to_vector(theirs.policy.parameters())
        assert torch.equal(weights, model.weights)
        observation = np.full(3, 0.5, np.float32)
        assert np.array_equal(theirs.predict(observation)[0], model.predict(observation)[0])


# ---------------------------------------------------------------------- wherever it is run


@cache
def alone(normalized: bool) -> dict[str, Any]:
    with made(normalized, **INLINE) as model:
        return outcome(model.learn(1500))


def made(normalized: bool, n_actors: int = 6, envs_per_actor: int = 1, **how: Any) -> SyncARS:
    if not normalized:
        return new(n_actors=n_actors, envs_per_actor=envs_per_actor, **how)
    venv = VecNormalize(make_vec_env(pendulum, n_envs=n_actors * envs_per_actor), norm_reward=True)
    return new("MlpPolicy", venv, n_actors=n_actors, policy_kwargs={"net_arch": [8]}, **how)


PLACES: list[dict[str, Any]] = [
    THREADS, PROCESSES, {"executor": "processes", "workers": 3}, {"executor": "processes", "workers": 4},
    {"n_actors": 4, "envs_per_actor": 2}, {"n_actors": 1, "envs_per_actor": 6}, {"n_actors": 1},
    {"n_actors": 8},
]  # fmt: skip


@in_turn("normalized, place", [*product((False, True), PLACES)], ids=str, kept=4)
def test_the_same_wherever_it_is_run(normalized: bool, place: dict[str, Any]) -> None:
    with made(normalized, **place) as model:
        assert outcome(model.learn(1500)) == alone(normalized)


class Growing(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Knows how many episodes there were."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.episodes = 0

    def reset(self, **kwargs: Any) -> Any:
        self.episodes += 1
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> Any:
        observation, reward, *others = self.env.step(action)
        return observation, reward * (1 + self.episodes), *others


def growing() -> Any:
    return Growing(pendulum())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cartpole", "normalized", "growing", "more rows than episodes"])
def test_a_resumed_run(kind: str, tmp_path: Path) -> None:
    envs = 3 if kind == "more rows than episodes" else 1
    with new(env=growing) if kind == "growing" else made(kind == "normalized", 4 if envs > 1 else 6, envs) as model:
        model.learn(400)
        model.save_checkpoint(tmp_path / "run")
        model.learn(400, reset_num_timesteps=False)
        with SyncARS.resume(tmp_path / "run", **THREADS) as resumed:
            resumed.learn(400, reset_num_timesteps=False)
            assert outcome(resumed)["weights"] == outcome(model)["weights"]
            assert resumed.num_timesteps == model.num_timesteps


@pytest.mark.faults
@pytest.mark.timeout(120)
def test_killed_workers_change_no_weight() -> None:
    with made(True, executor="processes", workers=3, restarts=9) as model, pytest.warns(RecoveryWarning):
        assert model.learn(1500, callback=Killing({2, 5})).fingerprint() == alone(True)["weights"]


def test_a_second_run_tries_other_directions() -> None:
    with new() as model:
        model.learn(1)
        first = model.weights
        model.close()
        model.learn(1)
        with new() as other:
            other.learn(1)
            other.learn(1)
            assert torch.equal(other.weights, model.weights) and not torch.equal(first, model.weights)


# ---------------------------------------------------------------------- episodes


class Counting(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Notes what is acted upon."""

    seen: list[Any] = []

    def reset(self, **kwargs: Any) -> Any:
        self.last, info = self.env.reset(**kwargs)
        return self.last, info

    def step(self, action: Any) -> Any:
        Counting.seen.append(self.last)
        self.last, *others = self.env.step(action)
        return self.last, *others


@pytest.mark.parametrize("envs", [2, 6, 10])
def test_an_ended_candidate_takes_no_steps(envs: int) -> None:
    Counting.seen = []
    with new(env=lambda: Counting(Toy()), n_actors=2, envs_per_actor=envs // 2) as model:
        model.learn(60)
        assert len(Counting.seen) == model.num_timesteps
        assert model.n_episodes == 6 * model.n_updates
        assert sum(info["l"] for info in model.ep_info_buffer or ()) < 6 * 9 and len(model.ep_info_buffer or ()) == 6


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_a_kernel_keeps_its_rows_when_some_have_ended() -> None:
    with new(n_actors=1, envs_per_actor=6) as model:
        config = model.program_config()
        actors = config.actors
        assert isinstance(actors, CandidatesConfig) and isinstance(actors.policy, Searched)
        envs, record = actors.environments(0), np.zeros((), actors.record)
        assert isinstance(envs, CandidateEnvs)
        envs.build()

        def write(number: int, weights: Any) -> None:
            weights["action_net.0.weight"] = number - 2.5  # some push into one direction, some keep the pole up for a while

        lengths = []
        for update in range(3):
            envs.play(Turns(update, range(6), config.parameters, write, actors.policy.policy, None), record)
            lengths.append(record["lengths"].tolist())
        assert envs.rows.in_c
        assert all(len({*of_round}) > 1 for of_round in lengths) and lengths[0] != lengths[1]
        envs.rows.close()


def test_normalisation_has_seen_what_was_acted_upon() -> None:
    Counting.seen = []
    space = spaces.Box(1e3, 1e3 + 1, (3,), np.float64)
    venv = VecNormalize(make_vec_env(lambda: Counting(Toy(space)), n_envs=2), norm_reward=False)
    before = len(Counting.seen)
    with new(env=venv) as model:
        model.learn(60)
        seen = np.array(Counting.seen[before:])
        np.testing.assert_allclose(venv.obs_rms.count, len(seen) + 1e-4)
        weight = len(seen) / venv.obs_rms.count
        np.testing.assert_allclose(venv.obs_rms.mean, weight * seen.mean(0), rtol=1e-9)
        venv.training = False
        model.learn(60, reset_num_timesteps=False)
        np.testing.assert_allclose(venv.obs_rms.count, len(seen) + 1e-4)


class Steps(BaseCallback):
    def __init__(self, most: int = 10**6) -> None:
        super().__init__()
        self.seen: list[int] = []
        self.most = most

    def _on_step(self) -> bool:
        self.seen.append(self.model.num_timesteps)
        return len(self.seen) < self.most


def test_callbacks_are_told_of_all_steps() -> None:
    with new() as model:
        model.learn(400, steps := Steps())
        assert steps.seen[:2] == [6, 12] and steps.seen[-1] == model.num_timesteps and len(steps.seen) >= model.num_timesteps / 6
        updates = model.n_updates
        model.learn(10**6, stopping := Steps(3))
        assert len(stopping.seen) == 3 and model.n_updates == updates + 1


class Kept(KVWriter):
    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def write(self, key_values: dict[str, Any], key_excluded: Any, step: int = 0) -> None:
        self.rows.append(dict(key_values))


def test_logs() -> None:
    with new(evaluate_every=1, evaluate_episodes=2) as model:
        model.set_logger(Logger(None, [kept := Kept()]))
        model.learn(500)
        assert [row["train/iterations"] for row in kept.rows] == list(range(model.n_updates))
        returns = [info["r"] for info in model.ep_info_buffer or ()]
        assert kept.rows[-1]["rollout/ep_rew_mean"] == pytest.approx(np.mean(returns))
        assert kept.rows[0]["train/delta_std"] == 0.05 and kept.rows[0]["train/learning_rate"] == 0.02
        assert model.evaluations


# ---------------------------------------------------------------------- settings


def test_settings_that_are_changed_count() -> None:
    def weights(change: Any) -> torch.Tensor:
        with new("MlpPolicy", partial(Toy, actions=BOX), policy_kwargs={"net_arch": [4]}) as model:
            model.learn(1)
            change(model)
            model.learn(1, reset_num_timesteps=False)
            return model.weights

    usual = weights(lambda model: None)
    for name, value in {"n_top": 1, "alive_bonus_offset": 3.0, "delta_std_schedule": lambda left: 0.5}.items():
        changed = weights(lambda model, name=name, value=value: setattr(model, name, value))
        assert not torch.allclose(changed, usual), name
    assert not torch.equal(weights(lambda model: model.set_parameters({"policy": zeros(model)})), usual)


def test_a_checkpoint_has_the_deviation_as_it_is(tmp_path: Path) -> None:
    with new() as model:
        model.learn(1)
        model.delta_std_schedule = FloatSchedule(0.5)
        model.save_checkpoint(tmp_path / "run")
        with SyncARS.resume(tmp_path / "run") as resumed:
            assert resumed.spread() == model.spread() == 0.5


def zeros(model: SyncARS) -> dict[str, torch.Tensor]:
    return {name: torch.zeros_like(one) for name, one in model.policy.state_dict().items()}


def test_frozen_parameters_stay() -> None:
    with new("MlpPolicy", pendulum, policy_kwargs={"net_arch": [4]}) as model:
        model.learn(1)
        layers: Any = model.policy.action_net
        layers[0].weight.requires_grad_(False)
        before = [layers[0].weight.clone(), layers[2].weight.clone()]
        model.learn(1, reset_num_timesteps=False)
        assert torch.equal(layers[0].weight, before[0]) and not torch.equal(layers[2].weight, before[1])
        layers[0].weight.requires_grad_(True)
        model.learn(1, reset_num_timesteps=False)
        assert not torch.equal(layers[0].weight, before[0])


class Own(ARSPolicy):
    """Does the same in a way of its own, so that torch has to evaluate it."""

    def forward(self, obs: Any) -> torch.Tensor:
        return super().forward(obs)


def test_policies_that_torch_evaluates() -> None:
    found = []
    for policy in (ARSPolicy, Own):
        with new(policy, pendulum, policy_kwargs={"net_arch": [4]}) as model:
            assert policy is ARSPolicy or model.explain()[0].acts == "torch"
            found.append(model.learn(1).weights)
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "wrong", [{"n_delta": 0}, {"n_top": 0}, {"n_eval_episodes": 1.5}, {"delta_std": -1}, {"pipeline": 1}], ids=str
)
def test_arguments_that_make_no_sense(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(ValueError, match=name):
        new(**wrong)


def test_what_a_run_cannot_change() -> None:
    with new() as model:
        model.learn(1)
        model.n_delta = 4
        with pytest.raises(ValueError, match=r"n_delta was 3 when the run began, and is 4 now"):
            model.learn(1)
        model.learn(1)
        assert model.n_episodes == 8
        with pytest.raises(ValueError, match=r"async_eval must be None: actors evaluate candidates"):
            model.learn(1, async_eval=object())  # type: ignore[arg-type]


class Endless(Toy):
    def step(self, action: Any) -> Any:
        observation, _, *others = super().step(action)
        return observation, np.inf, *others


def test_returns_that_are_not_finite() -> None:
    with new(env=Endless) as model, pytest.raises(ValueError, match=r"an episode of environment 0 returned inf"):
        model.learn(1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_it_learns(seed: int) -> None:
    with SyncARS("LinearPolicy", "CartPole-v1", seed=seed, **INLINE) as model:
        model.learn(40_000)
        mean, _ = evaluate_policy(model.policy, make_vec_env("CartPole-v1", seed=seed), n_eval_episodes=10)
        assert mean > 450
