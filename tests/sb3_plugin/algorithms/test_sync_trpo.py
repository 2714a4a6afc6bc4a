"""``SyncTRPO`` makes sb3-contrib's updates, and what one changes of it counts from the next round on."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from every_other import in_turn
from gymnasium import spaces
from sb3_contrib import TRPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from trainers import INLINE, PROCESSES, SPACES, THREADS, Toy, outcome

from reactor_sb3.algorithms.sync_trpo import SyncTRPO
from reactor_sb3.natural import WrittenActor
from reactor_torch import NaturalActor, kernels

ROWS = 64
"""Of a round."""
ACTIONS: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(3),
    "box": spaces.Box(-1, 1, (2,), np.float32),
    "multi-discrete": spaces.MultiDiscrete([3, 2]),
    "multi-binary": spaces.MultiBinary(3),
}


def made(actions: str = "discrete", kind: str = "box", **changed: Any) -> SyncTRPO:
    """A small one."""
    policy, space = SPACES[kind]
    network: dict[str, Any] = {"net_arch": [16]}
    if policy == "CnnPolicy":
        network = {"net_arch": [], "features_extractor_kwargs": {"features_dim": 16}}
    usual = {"n_actors": 4, "n_steps": 16, "batch_size": 32, "n_critic_updates": 2, "seed": 0, **INLINE}
    given = {**usual, **changed, "policy_kwargs": {**network, **changed.get("policy_kwargs", {})}}
    return SyncTRPO(policy, partial(Toy, space, ACTIONS[actions]), **given)


# ---------------------------------------------------------------------- updates


def both_train(ours: SyncTRPO, theirs: TRPO, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], dict[str, Any]]:
    """Make both train from the same round, with the same orders of rows and the same first guess; returns what they log."""
    theirs._logger, theirs.rollout_buffer = ours.logger, deepcopy(ours.rollout_buffer)
    random, logged = np.random.default_rng(1), []
    orders = [random.permutation(ROWS) for _ in range(1 + ours.n_critic_updates)]
    for model in (ours, theirs):
        drawn = iter(orders)
        monkeypatch.setattr(np.random, "permutation", lambda rows, drawn=drawn: next(drawn))
        monkeypatch.setattr(ours, "permutation", lambda rows, drawn=drawn: torch.from_numpy(next(drawn)))
        torch.manual_seed(3)
        ours.generator.manual_seed(3)
        model.train()
        assert next(drawn, None) is None
        logged.append({name: one for name, one in ours.logger.name_to_value.items() if name.startswith("train/")})
    return logged[0], logged[1]


def close(ours: SyncTRPO, theirs: TRPO, tolerance: float) -> None:
    state = theirs.policy.state_dict()
    for name, one in ours.policy.state_dict().items():
        torch.testing.assert_close(one, state[name], rtol=tolerance, atol=tolerance, msg=lambda said, name=name: f"{name}: {said}")


DECAYING = {"optimizer_class": torch.optim.AdamW, "optimizer_kwargs": {"weight_decay": 0.1}}
SPLIT: dict[str, Any] = {"policy_kwargs": {"net_arch": {"pi": [], "vf": [9]}}}
CASES: list[tuple[str, dict[str, Any]]] = [
    *((actions, {}) for actions in ACTIONS),
    ("box", {"use_sde": True}),
    ("discrete", {"kind": "dict"}),
    ("box", SPLIT),
    ("multi-discrete", {"kind": "discrete"}),
    ("box", {"sub_sampling_factor": 3, "normalize_advantage": False}),
    ("discrete", {"target_kl": 0.1, "cg_max_steps": 2, "cg_damping": 0.5, "line_search_max_iter": 1}),
    ("box", {"policy_kwargs": DECAYING}),
    ("box", {"policy_kwargs": {"optimizer_class": torch.optim.SGD}}),
    ("box", {"kind": "image"}),
    ("discrete", {"kind": "dict", "policy_kwargs": {**DECAYING, "share_features_extractor": False}}),
]


@pytest.mark.filterwarnings("ignore:`n_steps:UserWarning")  # SB3's, about loading
@in_turn("actions, changed", CASES, ids=str, kept=4)
def test_updates_are_the_hosts(actions: str, changed: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with made(actions, **changed) as ours:
        ours.learn(2 * ROWS)
        ours.save(tmp_path / "model")
        theirs = TRPO.load(tmp_path / "model", device="cpu")
        before = ours.fingerprint()
        for _ in range(2):
            logged, expected = both_train(ours, theirs, monkeypatch)
            assert logged == pytest.approx(expected, rel=1e-4, abs=1e-5)
            close(ours, theirs, 1e-5)
        assert ours.fingerprint() != before and ours._n_updates == theirs._n_updates
        read = kernels.compiled is not None and changed.get("kind") not in ("dict", "image")
        assert ours.nets.compiled == read, ours.nets.why


@pytest.mark.filterwarnings("ignore:`n_steps:UserWarning")
def test_a_step_that_is_too_long_is_shortened_as_the_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So far away last bits matter more."""
    with made("box", target_kl=2.0, cg_max_steps=4) as ours:
        ours.learn(5 * ROWS)
        ours.save(tmp_path / "model")
        theirs, measured = TRPO.load(tmp_path / "model", device="cpu"), []
        kind = NaturalActor if ours.nets.compiled else WrittenActor
        measure = kind.measure
        monkeypatch.setattr(kind, "measure", lambda self: measured.append(measure(self)) or measured[-1])
        logged, expected = both_train(ours, theirs, monkeypatch)
        assert logged == pytest.approx(expected, rel=1e-3, abs=1e-4)
        close(ours, theirs, 1e-3)
        *too_far, (objective, divergence) = measured
        assert too_far and divergence < 2 and all(one < objective for one, _ in too_far)
        assert logged["train/kl_divergence_loss"] == divergence and logged["train/policy_objective"] == objective


@pytest.mark.parametrize("kind", ["box", "dict"])
def test_a_search_without_success_changes_no_actor(kind: str) -> None:
    """By the extension, and by autograd."""
    with made(kind=kind) as model:
        model.learn(ROWS)
        before = {name: one.clone() for name, one in model.policy.state_dict().items()}
        model.rollout_buffer.advantages.setflags(write=True)
        model.rollout_buffer.advantages[...] = 0  # a view of the round: no direction is better
        model.train()
        logged, state = model.logger.name_to_value, model.policy.state_dict()
        assert {name for name, one in before.items() if not torch.equal(one, state[name])} == {
            name for name in before if "value" in name
        }
        assert logged["train/is_line_search_success"] == logged["train/kl_divergence_loss"] == logged["train/policy_objective"] == 0


def test_hooks_of_parameters_see_the_natural_gradient() -> None:
    """Once a round; what they make 0 does not change."""
    for kind in ("box", "dict"):
        with made(kind=kind) as model:
            model.learn(ROWS)
            weight, seen = model.policy.action_net.weight, []
            before = weight.detach().clone()
            weight.register_hook(lambda gradient, seen=seen: seen.append(gradient) or torch.zeros_like(gradient))
            model.learn(2 * ROWS, reset_num_timesteps=False)
            assert len(seen) == 2 and all(one.any() for one in seen)
            assert torch.equal(weight, before)


# ---------------------------------------------------------------------- wherever it runs

WAYS: list[dict[str, Any]] = [{}, {"kind": "dict"}, {"actions": "box", "use_sde": True}]


@pytest.mark.slow
@pytest.mark.parametrize("changed", WAYS, ids=str)
def test_one_fingerprint(changed: dict[str, Any]) -> None:
    found = []
    for place in (INLINE, {**INLINE, "n_learners": 3}, THREADS, {**PROCESSES, "n_learners": 2}, {**INLINE, "learner_threads": 2}):
        with made(**{**changed, **place, "evaluate_every": 2, "evaluate_episodes": 2}) as model:
            found.append(outcome(model.learn(5 * ROWS)))
    assert all(one == found[0] for one in found)


def test_resumed_is_uninterrupted(tmp_path: Path) -> None:
    with made("box") as model:
        model.learn(2 * ROWS)
        model.save_checkpoint(tmp_path / "run.zip")
        expected = model.learn(2 * ROWS, reset_num_timesteps=False).fingerprint()
    with SyncTRPO.resume(tmp_path / "run.zip") as resumed:
        assert resumed.learn(2 * ROWS, reset_num_timesteps=False).fingerprint() == expected


def test_the_hosts_models_go_on(tmp_path: Path) -> None:
    """Their optimisers know nothing of actors."""
    theirs = TRPO("MlpPolicy", "CartPole-v1", n_steps=ROWS, batch_size=32, seed=0, device="cpu").learn(ROWS)
    theirs.save(tmp_path / "model")
    with SyncTRPO.load(tmp_path / "model", "CartPole-v1", n_actors=1, **INLINE) as ours:
        assert all(map(torch.equal, ours.policy.state_dict().values(), theirs.policy.state_dict().values()))
        before = ours.fingerprint()
        assert ours.learn(ROWS).fingerprint() != before


def test_normalized_environments() -> None:
    env = VecNormalize(DummyVecEnv([partial(Toy, SPACES["box"][1], ACTIONS["box"])] * 2))
    with SyncTRPO("MlpPolicy", env, n_steps=16, batch_size=32, seed=0, **INLINE) as model:
        before = model.fingerprint()
        assert model.learn(64).fingerprint() != before
        assert env.obs_rms.count > 60


# ---------------------------------------------------------------------- settings

SETTINGS: dict[str, Any] = {
    "cg_max_steps": 1, "cg_damping": 10.0, "line_search_shrinking_factor": 0.1, "line_search_max_iter": 1, "n_critic_updates": 1,
    "target_kl": 0.1, "sub_sampling_factor": 4, "normalize_advantage": False, "gae_lambda": 0.1, "batch_size": 8,
    "lr_schedule": lambda _: 0.5,
}  # fmt: skip


class Sets(BaseCallback):
    """Changes a setting before the second round."""

    def __init__(self, name: str, value: Any) -> None:
        super().__init__()
        self.name, self.value, self.rounds = name, value, 0

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        self.rounds += 1
        if self.rounds == 2:
            setattr(self.model, self.name, self.value)


def ends_with(name: str = "verbose", value: Any = 0) -> Any:
    with made("box", target_kl=2.0) as model:  # so far that some first steps are too long
        return model.learn(5 * ROWS, Sets(name, value)).fingerprint()


@pytest.mark.slow
@in_turn("name", SETTINGS, kept=4)
def test_settings_count_from_the_next_round_on(name: str) -> None:
    assert ends_with(name, SETTINGS[name]) != ends_with()


REFUSED: dict[str, tuple[Any, str]] = {
    "cg_max_steps": (0, "cg_max_steps must be a whole number from 1 on, got 0"),
    "cg_damping": (-1.0, "cg_damping must be a number from 0 on, got -1.0"),
    "line_search_shrinking_factor": (1.5, "line_search_shrinking_factor must be a number above 0 and up to 1, got 1.5"),
    "line_search_max_iter": (2.5, "line_search_max_iter must be a whole number from 1 on, got 2.5"),
    "n_critic_updates": (0, "n_critic_updates must be a whole number from 1 on, got 0"),
    "sub_sampling_factor": (0, "sub_sampling_factor must be a whole number from 1 on, got 0"),
    "target_kl": (float("inf"), "target_kl must be a finite number above 0, got inf"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_numbers_that_make_no_sense(name: str) -> None:
    value, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        made(**{name: value})
    with made() as model, pytest.raises(ValueError, match=message):
        model.learn(3 * ROWS, Sets(name, value))


def test_a_radius_is_needed() -> None:
    with pytest.raises(ValueError, match="target_kl must be a number from 0 on, got None"):
        made(target_kl=None)
    with made() as model, pytest.raises(ValueError, match="target_kl must be a finite number above 0, got None"):
        model.learn(3 * ROWS, Sets("target_kl", None))


def test_an_actor_that_is_frozen_as_a_whole_is_refused() -> None:
    with made() as model:
        model.learn(ROWS)
        for part in (model.policy.mlp_extractor.policy_net, model.policy.action_net):
            part.requires_grad_(False)
        with pytest.raises(ValueError, match="of the network 'policy' there are no parameters to learn: all are frozen"):
            model.learn(ROWS)


def test_actor_and_critic_are_explained() -> None:
    with made() as model:
        by, rows = "extension" if kernels.compiled else "autograd", model.explain()
        assert [(row.network, bool(row.acts), row.learns) for row in rows] == [("policy", True, by), ("critic", False, by)]
        model.policy.mlp_extractor.policy_net[0].register_forward_hook(lambda *given: None)
        model.learn(ROWS)
        why = "its mlp_extractor.policy_net.0 has a forward hook"
        assert by == "autograd" or [row.why for row in model.explain()] == [why, f"'policy': {why}"]


# ---------------------------------------------------------------------- learning


@pytest.mark.slow
def test_it_learns() -> None:
    """As much as sb3-contrib's in as many steps: nearly all that there is."""
    with SyncTRPO("MlpPolicy", "CartPole-v1", seed=1, **INLINE) as model:
        model.learn(40_000)
        assert evaluate_policy(model, model.get_env(), 20)[0] > 400
