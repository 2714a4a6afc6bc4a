"""What SB3 lets one change of a model counts from the next round on, as if it had been so all along, or is refused by name."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from contrib_trainers import CONTRIB, ToyOf, make
from every_other import in_turn
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise
from trainers import ALGORITHMS, BOX, CHOICE, CONTINUOUS, PROCESSES, ROWS, STEPWISE, Toy

NAMES = [*sorted(ALGORITHMS), *sorted(CONTRIB)]
OFF_POLICY = [name for name, row in ROWS.items() if row.kind == "off-policy"]
ALL = in_turn("algorithm", NAMES, kept=1)


class ToyEnv:
    """Makes a toy that suits an algorithm; can be pickled."""

    def __init__(self, algorithm: str) -> None:
        self.algorithm = algorithm

    def __call__(self) -> Any:
        if self.algorithm in CONTRIB:
            return ToyOf(self.algorithm)()
        return Toy(BOX, BOX if self.algorithm in CONTINUOUS else CHOICE)


def made(algorithm: str, **changed: Any) -> Any:
    if algorithm in CONTRIB:
        return make(algorithm, ToyEnv(algorithm), **{"n_actors": 2, **({"n_epochs": 2} if algorithm in PPO else {}), **changed})
    cls, arguments = ALGORITHMS[algorithm]
    given = {"n_actors": 2, "seed": 0, "policy_kwargs": {"net_arch": [16]}, "executor": "inline", **arguments, **changed}
    return cls("MlpPolicy", ToyEnv(algorithm), **given)


SETTINGS: dict[str, Any] = {
    "batch_size": 8, "gamma": 0.3, "gae_lambda": 0.2, "n_epochs": 3, "n_minibatches": 4, "learning_starts": 10**6,
    "gradient_steps": 1,
    "clip_range": 1e-6, "clip_range_vf": 1e-7, "normalize_advantage": False, "vf_coef": 0.01, "max_grad_norm": 1e-3,
    "target_policy_noise": 3.0, "policy_delay": 1, "q_lambda": 0.1, "target_kl": 1e-9, "n_critic_updates": 5, "cg_damping": 10.0,
    "sub_sampling_factor": 4, "delta_std_schedule": lambda _: 0.3, "n_top": 1, "lr_schedule": lambda _: 0.5,
    "exploration_schedule": lambda _: 1.0, "action_noise": NormalActionNoise(np.full(1, 5.0), np.zeros(1)),
}  # fmt: skip


def has(algorithm: str, name: str) -> bool:
    """Whether it has a setting: an argument of its constructor, or a schedule made of one."""
    known = inspect.signature(ROWS[algorithm].cls).parameters
    if name == "exploration_schedule":
        return "exploration_fraction" in known and algorithm in OFF_POLICY
    return {"lr_schedule": "learning_rate", "delta_std_schedule": "delta_std"}.get(name, name) in known


PPO = tuple(name for name in NAMES if has(name, "clip_range"))
CASES = [(algorithm, name) for name in SETTINGS for algorithm in NAMES if has(algorithm, name)]


class Sets(BaseCallback):
    """Changes a setting after some rounds."""

    def __init__(self, name: str, value: Any) -> None:
        super().__init__()
        self.name, self.value, self.rounds = name, value, 0

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        self.rounds += 1
        if self.rounds == 3:
            setattr(self.model, self.name, self.value)


def learned(model: Any, name: str, value: Any, in_callback: bool) -> str:
    steps = 2 * model.rollout_steps * model.n_envs
    if in_callback:
        model.learn(4 * steps, callback=Sets(name, value))
    else:
        model.learn(steps)
        setattr(model, name, value)
        model.learn(3 * steps, reset_num_timesteps=False)
    found: str = model.fingerprint()
    return found


@in_turn("algorithm, name, in_callback", [(*case, at % 2 > 0) for at, case in enumerate(CASES)], kept=6)
def test_a_changed_setting_counts(algorithm: str, name: str, in_callback: bool) -> None:
    arguments = {"learning_starts": 16} if algorithm in OFF_POLICY else {}
    with made(algorithm, **arguments) as model, made(algorithm, **arguments) as other:
        value = 16 if (algorithm, name) == ("recurrent_ppo", "batch_size") else SETTINGS[name]  # the same sequences
        value = not getattr(model, name) if isinstance(value, bool) else value
        changed = learned(model, name, value, in_callback)
        assert changed != learned(other, name, getattr(other, name), in_callback)


@pytest.mark.parametrize("place", [{}, PROCESSES], ids=["inline", "processes"])
@in_turn("algorithm", CONTINUOUS, kept=1)
def test_action_noise_of_now(algorithm: str, place: dict[str, Any]) -> None:
    """Replaced, changed in place, and taken away."""
    noise = OrnsteinUhlenbeckActionNoise(np.zeros(3), np.full(3, 0.1))
    with made(algorithm, action_noise=noise, learning_starts=0, gradient_steps=0, **place) as model:

        def actions() -> Any:
            model.learn(16, reset_num_timesteps=False)
            return model.replay_buffer.actions[model.replay_buffer.pos - 8 : model.replay_buffer.pos]

        assert np.abs(actions()).min() < 1
        model.action_noise = NormalActionNoise(np.full(3, 100.0), np.zeros(3))
        assert np.all(actions() == 1)
        model.action_noise._mu[...] = -100
        assert np.all(actions() == -1)
        model.action_noise = None
        assert np.abs(actions()).min() < 1
        model.action_noise = 3
        with pytest.raises(TypeError, match="action_noise=3 must be an ActionNoise"):
            actions()


@in_turn("algorithm", STEPWISE, kept=1)
def test_what_a_run_keeps(algorithm: str) -> None:
    """The length of rounds, and who takes part: refused while it runs, taken over by the next run."""
    length = "train_freq" if algorithm in OFF_POLICY else "n_steps"
    with made(algorithm) as model:
        steps = model.rollout_steps
        model.learn(steps * model.n_envs)
        for name, value in ((length, steps // 2), ("evaluate_every", 1), ("pipeline", 1), ("n_actors", 3)):
            before = getattr(model, name)
            setattr(model, name, value)
            with pytest.raises(ValueError, match=rf"^{name} was .* when the run began, and is {value} now: .*close\(\)"):
                model.learn(64, reset_num_timesteps=False)
            setattr(model, name, before)
            model.learn(64, reset_num_timesteps=False)
        model.close()
        setattr(model, length, steps // 2)
        at = model.num_timesteps
        assert model.learn(1, reset_num_timesteps=False).num_timesteps == at + steps // 2 * model.n_envs


@ALL
@pytest.mark.parametrize(("name", "value"), [("gamma", float("nan")), ("batch_size", 0), ("learning_rate", np.float32("inf"))])
def test_settings_that_make_no_sense(algorithm: str, name: str, value: Any) -> None:
    if hasattr(made(algorithm), name):
        if name != "batch_size":
            with pytest.raises(ValueError, match=f"^{name} must be a number from 0 .*, got (nan|inf)$"):
                made(algorithm, **{name: value})
        with made(algorithm) as model:
            model.learn(16)
            setattr(model, name, value)
            with pytest.raises(ValueError, match=name):
                model.learn(16, reset_num_timesteps=False)


@in_turn("algorithm", OFF_POLICY, kept=1)
@pytest.mark.parametrize("name", ["rewards", "dones", "observations", "actions", "next_observations"])
@pytest.mark.parametrize("dtype", [None, np.float64], ids=["same", "float64"])
def test_replaced_arrays_of_the_replay_buffer(algorithm: str, name: str, dtype: Any) -> None:
    """They are learned from as those that were changed in place."""

    class Relabels(BaseCallback):
        replaces = True

        def _on_step(self) -> bool:
            return True

        def _on_rollout_start(self) -> None:
            buffer: Any = self.model.replay_buffer  # type: ignore[attr-defined]
            if self.replaces:
                setattr(buffer, name, np.full(getattr(buffer, name).shape, 0.5, dtype or getattr(buffer, name).dtype))
            else:
                getattr(buffer, name)[...] = np.full((), 0.5, dtype).astype(getattr(buffer, name).dtype)

    prints = []
    for replaces in (True, False):
        with made(algorithm, learning_starts=8) as model:
            callback = Relabels()
            callback.replaces = replaces
            prints.append(model.learn(96, callback=callback).fingerprint())
    assert prints[0] == prints[1]
    with made(algorithm, learning_starts=8) as plain:
        assert plain.learn(96).fingerprint() != prints[0]


@in_turn("algorithm", OFF_POLICY, kept=1)
def test_arrays_that_do_not_fit(algorithm: str) -> None:
    with made(algorithm) as model:
        model.learn(16)
        model.replay_buffer.rewards = np.zeros(7)
        with pytest.raises(ValueError, match=r"^replay_buffer.rewards must have the shape \(.*\), float32 .*, got \(7,\)"):
            model.learn(16, reset_num_timesteps=False)


@in_turn("algorithm", [name for name in NAMES if has(name, "gae_lambda")], kept=1)
@pytest.mark.parametrize("how", ["in place", "replaced"])
def test_the_rollout_buffer_is_read_only(algorithm: str, how: str) -> None:
    class Turns(BaseCallback):
        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            buffer: Any = self.model.rollout_buffer  # type: ignore[attr-defined]
            if how == "replaced":
                buffer.advantages = -buffer.advantages
            else:
                buffer.advantages[:] *= -1

    with made(algorithm) as model, pytest.raises(ValueError, match="read-only") as caught:
        model.learn(32, callback=Turns())
    said = str(caught.value) + "".join(caught.value.__notes__ if hasattr(caught.value, "__notes__") else [])
    assert "rollout_buffer" in said and "ReactorVecEnv" in said


@ALL
def test_a_deep_copy_is_a_trainer_of_its_own(algorithm: str) -> None:
    with made(algorithm) as model:
        steps = 3 * model.rollout_steps * model.n_envs + 64
        model.learn(steps)
        before = model.fingerprint()
        with copy.deepcopy(model) as other:
            assert not other.running and other.fingerprint() == before
            other.learn(steps, reset_num_timesteps=False)
            assert model.fingerprint() == before != other.fingerprint()
            model.close()
            model.learn(steps, reset_num_timesteps=False)
            assert model.fingerprint() == other.fingerprint() and model.num_timesteps == other.num_timesteps
        for refused in (copy.copy, pickle.dumps):
            with pytest.raises(TypeError, match=r"cannot be pickled.*close\(\).*save\(\)"):
                refused(model)


@in_turn("algorithm", STEPWISE, kept=1)
def test_locals_as_in_sb3(algorithm: str) -> None:
    class Looks(BaseCallback):
        found = 0

        def _on_step(self) -> bool:
            seen, n = self.locals, self.model.n_envs
            assert np.array_equal(self.model._last_obs, seen["obs_tensor"].numpy())
            assert self.n_calls == 1 or self.model._last_episode_starts.shape == (n,)
            names = {"buffer_actions", "train_freq", "learning_starts"} if algorithm in OFF_POLICY else {"n_rollout_steps"}
            names |= {"values", "log_probs", "clipped_actions", "n_steps"} if has(algorithm, "gae_lambda") else set()
            assert names <= seen.keys() and len(seen["obs_tensor"]) == len(seen["new_obs"]) == n
            self.found += 1
            return True

    looks = Looks()
    with made(algorithm) as model:
        model.learn(64, callback=looks)
        assert looks.found and model._last_obs.shape == (model.n_envs, 3)
        with pytest.raises(KeyError, match="nothing: callbacks of a trainer"):
            looks.locals["nothing"]
        model.learn(64)
        with pytest.raises(AttributeError, match=r"pass a callback to learn\(\)"):
            model._last_obs  # noqa: B018


@in_turn("algorithm", STEPWISE, kept=1)
def test_what_a_callback_writes_to_a_round(algorithm: str) -> None:
    class Pays(BaseCallback):
        def _on_step(self) -> bool:
            self.locals["rewards"] += 1
            return True

    with made(algorithm) as model, pytest.raises(ValueError, match=r'^a callback changed locals\["rewards"\], .* wrapper'):
        model.learn(64, callback=Pays())


def test_changed_settings_and_checkpoints(tmp_path: Any) -> None:
    """A run that is resumed has the settings of when it was saved."""
    ends = []
    with made("td3", learning_starts=8) as model:
        model.learn(64)
        model.gamma, model.batch_size, model.target_policy_noise = 0.5, 24, 1.0
        model.action_noise = NormalActionNoise(np.zeros(3), np.full(3, 0.7))
        model.learn(64, reset_num_timesteps=False)
        model.save_checkpoint(tmp_path / "run.zip")
        ends.append(model.learn(64, reset_num_timesteps=False).fingerprint())
    with type(model).resume(tmp_path / "run.zip") as again:
        ends.append(again.learn(64, reset_num_timesteps=False).fingerprint())
        assert again.gamma == 0.5 and again.action_noise._sigma[0] == 0.7
    assert ends[0] == ends[1]


def test_the_same_discount_under_two_names() -> None:
    prints = []
    for owner in ("model", "rollout_buffer"):
        with made("ppo") as model:
            model.learn(64)
            vars(model if owner == "model" else model.rollout_buffer)["gamma"] = 0.2
            model.learn(64, reset_num_timesteps=False)
            assert model.gamma == model.rollout_buffer.gamma == 0.2
            prints.append(model.fingerprint())
    assert prints[0] == prints[1] and torch.isfinite(next(model.policy.parameters())).all()
