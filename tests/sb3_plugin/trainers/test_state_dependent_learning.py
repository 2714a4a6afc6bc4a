"""gSDE of SAC and its kin: what actors draw, what is learned of it, and one fingerprint wherever that is done.

That updates are SB3's is in ``test_continuous_updates.py`` and ``test_host_updates.py``, and that actions are as likely as SB3's in
``tests/contracts``.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from contrib_trainers import CONTRIB, make
from every_other import every_other, in_turn
from stable_baselines3 import SAC
from torch import nn
from trainers import PROCESSES, THREADS, AfterRounds, Toy, new, outcome

from reactor_sb3 import SyncSAC
from reactor_sb3.acting.behaviours import Rollout, Turn
from reactor_torch import kernels, networks, parameter_record, write_parameters

pytestmark = pytest.mark.usefixtures("small_blocks")
KINDS = ("sac", "tqc", "crossq")
each = in_turn("algorithm", KINDS, kept=1)
STEPS = 320
"""Of a training: ten rounds, of which eight learn."""
SHARED: dict[str, dict[str, Any]] = {
    "threads": {"n_learners": 2, **THREADS},
    "processes": {"n_learners": 3, **PROCESSES},
    "split": {"split": True, **PROCESSES},
}
BY_TORCH = {"use_expln": True, "net_arch": [16]}


def made(algorithm: str, **changed: Any) -> Any:
    given = {"use_sde": True, "sde_sample_freq": 3, "env": None, **changed}
    env = given.pop("env")
    return make(algorithm, env, **given) if algorithm in CONTRIB else new(algorithm, env or Toy, **given)


@cache
def alone(algorithm: str, split: bool = False, by_torch: bool = False) -> dict[str, Any]:
    with made(algorithm, batch_size=150, split=split, **({"policy_kwargs": BY_TORCH} if by_torch else {})) as model:
        return outcome(model.learn(STEPS))


@every_other(algorithm=KINDS, how=SHARED, kept=2)
def test_one_fingerprint(algorithm: str, how: str) -> None:
    """A matrix is that of a whole minibatch, however that is shared out."""
    with made(algorithm, batch_size=150, **SHARED[how]) as model:
        assert outcome(model.learn(STEPS)) == alone(algorithm, how == "split")


@pytest.mark.slow
@pytest.mark.skipif(kernels.compiled is None, reason="torch computes all of them here")
@pytest.mark.parametrize("how", ["threads", "processes"])
def test_so_it_is_by_torch(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "LEAST_ROWS", 8)
    monkeypatch.setattr(networks, "LEAST_FLOPS", 1)
    with made("sac", batch_size=150, policy_kwargs=BY_TORCH, **SHARED[how]) as model:
        assert "gradients='autograd', why=\"'actor': its gSDE has use_expln\"" in repr(model) and model.nets.most_blocks > 2
        assert outcome(model.learn(STEPS)) == alone("sac", by_torch=True)


@each
def test_resumed_is_uninterrupted(algorithm: str, tmp_path: Path) -> None:
    with made(algorithm) as model:
        model.learn(STEPS // 2)
        model.save_checkpoint(tmp_path / "run.zip")
        expected = outcome(model.learn(STEPS // 2, reset_num_timesteps=False))
    kind = type(model)
    with kind.resume(tmp_path / "run.zip", **THREADS) as resumed:
        assert outcome(resumed.learn(STEPS // 2, reset_num_timesteps=False)) == expected


@each
def test_saved_and_loaded(algorithm: str, tmp_path: Path) -> None:
    host = SAC if algorithm == "sac" else CONTRIB[algorithm].host_cls
    with made(algorithm) as model:
        model.learn(96, log_interval=None)
        assert "train/std" in model.logger.name_to_value
        model.save(tmp_path / "model")
    for kind in (type(model), host):
        again = kind.load(tmp_path / "model", env=model.env if kind is type(model) else None, device="cpu")
        assert again.use_sde and again.sde_sample_freq == 3
        for name, one in again.policy.state_dict().items():
            assert torch.equal(one, model.policy.state_dict()[name])


# ---------------------------------------------------------------------- acting


def policy_actions(model: Any, rates: Any, envs: int = 20) -> Any:
    """Actions of a round whose observations are all the same, ``(steps, envs, 1)``."""
    module, behaviour = model.acting()
    weights, steps = np.zeros((), parameter_record(state := module.state_dict())), len(rates)
    write_parameters(weights, state)
    seen = {"": np.full((steps, envs, 3), 0.5, np.float32)}
    record = {field.name: np.zeros((steps, envs, *field.shape), field.dtype) for field in behaviour.fields}
    record |= {
        "rewards": np.zeros((steps, envs), np.float32),
        **{key: np.zeros((steps, envs), bool) for key in ("dones", "timeouts")},
    }
    bound = behaviour.bind(weights, Rollout(record, seen, seen))
    act = bound.begin(Turn(np.random.default_rng(1), np.array(rates, np.float32), None, index=0, actors=1))
    for step in range(steps):
        act(step)
    return record["policy_actions"]


@pytest.mark.parametrize("network", [{}, {"activation_fn": nn.ELU}], ids=["compiled", "torch"])
@pytest.mark.parametrize(("every", "held"), [(-1, [6]), (2, [2, 2, 2]), (4, [4, 2]), (1, [1] * 6)])
def test_how_long_a_matrix_holds(every: int, held: list[int], network: dict[str, Any]) -> None:
    model = made("sac", sde_sample_freq=every, policy_kwargs={"net_arch": [8], "log_std_init": -1, **network})
    with torch.random.fork_rng(devices=[]):
        drawn = policy_actions(model, [0.0] * 6)
    at = 0
    for number in held:
        assert all(np.array_equal(drawn[at], one) for one in drawn[at : at + number])
        assert at == 0 or not np.isclose(drawn[at], drawn[at - 1]).any()
        at += number
    assert len(set(drawn[0].ravel().tolist())) == drawn.shape[1]  # each environment has its own


@pytest.mark.parametrize("network", [{}, {"activation_fn": nn.ELU}], ids=["compiled", "torch"])
def test_a_matrix_is_drawn_when_the_warm_up_ends_within_a_round(network: dict[str, Any]) -> None:
    model = made("sac", sde_sample_freq=4, policy_kwargs={"net_arch": [8], "log_std_init": -1, **network})
    with torch.random.fork_rng(devices=[]):
        drawn = policy_actions(model, [1.0, 0.0, 0.0, 0.0, 0.0])
    assert np.array_equal(drawn[1], drawn[3]) and not np.isclose(drawn[3], drawn[4]).any()
    assert len(set(drawn[1].ravel().tolist())) == drawn.shape[1]


@pytest.mark.parametrize("early", [False, True])
def test_warm_up(early: bool) -> None:
    """With ``use_sde_at_warmup`` the policy acts from the first step on, and learns no sooner."""
    with made("sac", use_sde_at_warmup=early, policy_kwargs={"net_arch": [8], "log_std_init": -6}) as model:
        model.learn(64)
        assert model.n_updates == 0
        deviation = model.replay_buffer.actions[:16].std()
        assert deviation < 0.2 if early else deviation > 0.4


@pytest.mark.slow
def test_what_is_changed_counts_from_the_next_round_on() -> None:
    found = []
    for first, then in ((3, 3), (3, 1), (1, 1), (1, 3)):
        with made("sac", sde_sample_freq=first) as model:
            model.learn(64, callback=AfterRounds(lambda model, then=then: setattr(model, "sde_sample_freq", then)))
            model.learn(64, reset_num_timesteps=False)
            found.append(model.fingerprint())
    assert len(set(found)) == 4


def test_what_cannot_be_changed_is_refused() -> None:
    with made("sac") as model:
        model.learn(32)
        model.use_sde = False
        with pytest.raises(ValueError, match=r"use_sde was True when the run began, and is False now"):
            model.learn(32)
        model.close()
        with pytest.raises(ValueError, match=r"use_sde must be that of the policy's actor, True, got False: pass it to SyncSAC"):
            model.learn(32)


# ---------------------------------------------------------------------- learning


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_pendulum() -> None:
    """SB3's own has a mean of about -200 then."""
    given: dict[str, Any] = {"learning_rate": 1e-3, "use_sde": True, "train_freq": 64, "gradient_steps": -1, "policy_kwargs": {}}
    given["policy_kwargs"] = {"log_std_init": -2, "net_arch": [64, 64]}
    with SyncSAC("MlpPolicy", "Pendulum-v1", n_actors=1, learning_starts=400, seed=0, executor="inline", **given) as model:
        model.learn(5_000)
        assert np.mean([info["r"] for info in model.ep_info_buffer][-6:]) > -400
