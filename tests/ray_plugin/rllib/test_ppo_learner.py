"""ReactorPPOTorchLearner: what it learns and reports is what RLlib's own learner learns and reports, bit for bit."""

from __future__ import annotations

import copy
import warnings
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

tree = pytest.importorskip("tree")
pytest.importorskip("ray.rllib.algorithms", exc_type=ImportError)
pytest.importorskip("pettingzoo")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
    from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
    from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
    from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME
    from ray.rllib.utils.minibatch_utils import MiniBatchCyclicIterator
    from ray.tune.registry import register_env
    from rllib_envs import RLlibCrowd

    from reactor_ray.rllib import ReactorPPOTorchLearner

pytestmark = pytest.mark.usefixtures("one_thread")

STEPS = 70
SPLIT: dict[str, Any] = {"num_epochs": 2, "minibatch_size": 32, "shuffle_batch_per_epoch": True}
"""32 does not divide the rows of a batch: some minibatches are of two epochs."""
DECAY = partial(torch.optim.lr_scheduler.ExponentialLR, gamma=0.5)
UPDATES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "CartPole": ({}, SPLIT),
    "rows in their order": ({}, {**SPLIT, "shuffle_batch_per_epoch": False}),
    "minibatches larger than the batch": ({}, {**SPLIT, "minibatch_size": 250}),
    "a given number of minibatches": ({}, {**SPLIT, "num_total_minibatches": 5}),
    "epochs of whole batches": ({}, {"num_epochs": 3}),
    "one whole batch": ({}, {}),
    "gradients clipped by norm": ({"grad_clip": 0.1, "grad_clip_by": "global_norm"}, SPLIT),
    "gradients clipped by value": ({"grad_clip": 0.01, "grad_clip_by": "value"}, SPLIT),
    "schedules": ({"lr": [[0, 1e-2], [STEPS, 1e-4]], "entropy_coeff": [[0, 0.1], [STEPS, 0.0]]}, SPLIT),
    "no KL, no critic": ({"use_kl_loss": False, "use_critic": False, "use_gae": False}, SPLIT),
}


def config(env: str = "CartPole-v1", kind: type | None = None, **training: Any) -> Any:
    settings = PPOConfig().environment(env).training(**{"lr": 1e-2, "kl_target": 1e-4, **training})
    settings.env_runners(num_env_runners=0, num_envs_per_env_runner=3, batch_mode="truncate_episodes").learners(learner_class=kind)
    settings.rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[8]))
    return settings.debugging(seed=3, log_level="ERROR")


def of_many(settings: Any) -> Any:
    """Two policies: two agents have one, the others the other."""
    register_env("crowd", RLlibCrowd)
    settings.environment("crowd", disable_env_checking=True)
    policy = lambda agent, episode, **kwargs: ("even", "odd")[ord(agent[-1]) % 2]  # noqa: E731
    return settings.multi_agent(policies={"even", "odd"}, policy_mapping_fn=policy)


def episodes_of(settings: Any, batches: int = 2) -> list[Any]:
    runner = (MultiAgentEnvRunner if settings.is_multi_agent else SingleAgentEnvRunner)(config=settings)
    try:
        torch.manual_seed(1)
        found = []
        for _ in range(batches):  # each of two runs of weights: minibatches differ in how far they are off policy
            found.append(runner.sample(num_timesteps=STEPS // 2))
            runner._weights_seq_no += 1
            found[-1] += runner.sample(num_timesteps=STEPS // 2)
        return found
    finally:
        runner.stop()


def spaces_of(settings: Any) -> dict[str, Any]:
    if settings.is_multi_agent:
        crowd = RLlibCrowd({}).crowd
        spaces = (crowd.observation_space("cat"), crowd.action_space("cat"))
        return {"even": spaces, "odd": spaces}
    env = gymnasium.make(settings.env)
    return {"default_policy": (env.observation_space, env.action_space)}


def learned(settings: Any, batches: list[Any], **update: Any) -> tuple[list[dict[Any, Any]], dict[Any, Any], Any]:
    """What a learner reports of each batch, and the state it ends with."""
    torch.manual_seed(2)
    learner = settings.build_learner(spaces=spaces_of(settings))
    begun = flat(learner.get_state()["rl_module"])
    reports = []
    for number, episodes in enumerate(copy.deepcopy(batches)):
        np.random.seed(number)
        found = learner.update(episodes=episodes, timesteps={NUM_ENV_STEPS_SAMPLED_LIFETIME: number * STEPS}, **update)
        report = {(path, type(stats)): stats.peek() for path, stats in tree.flatten_with_path(found) if "timer" not in str(path)}
        reports.append(report | {"the next draw": np.random.random()})
    state = learner.get_state()
    assert any(not np.array_equal(begun[path], value) for path, value in flat(state["rl_module"]).items())
    coefficients = {name: value.item() for name, value in learner.curr_kl_coeffs_per_module.items()}
    return reports, flat({"kl": coefficients, **{name: state[name] for name in ("rl_module", "optimizer")}}), learner


def flat(state: Any) -> dict[Any, Any]:
    return dict(tree.flatten_with_path(state))


def assert_same(ours: dict[Any, Any], theirs: dict[Any, Any]) -> None:
    assert ours.keys() == theirs.keys()
    for path, value in theirs.items():
        np.testing.assert_array_equal(ours[path], value, err_msg=str(path), strict=isinstance(value, np.ndarray))


def compare(make: Any, ours: type = ReactorPPOTorchLearner, theirs: type = PPOTorchLearner, **update: Any) -> tuple[Any, Any]:
    """Both learn of the same episodes; the learners are returned."""
    batches = episodes_of(make(theirs))
    (reports, state, one), (expected, expected_state, other) = (learned(make(kind), batches, **update) for kind in (ours, theirs))
    for report, expected_report in zip(reports, expected, strict=True):
        assert_same(report, expected_report)
    assert_same(state, expected_state)
    return one, other


@pytest.fixture
def cut_by_rllib(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each update whose minibatches RLlib's iterator has made."""
    found: list[int] = []
    rllibs = MiniBatchCyclicIterator.__iter__
    monkeypatch.setattr(MiniBatchCyclicIterator, "__iter__", lambda self: found.append(1) or rllibs(self))
    return found


@pytest.mark.parametrize("name", UPDATES)
def test_updates_are_those_of_rllib(name: str, cut_by_rllib: list[int]) -> None:
    training, update = UPDATES[name]
    compare(lambda kind: config(kind=kind, **training), **update)
    assert len(cut_by_rllib) == (2 if update else 0), "RLlib's learner has its own iterator, and ours has not"


def test_continuous_actions() -> None:
    compare(lambda kind: config("Pendulum-v1", kind), **SPLIT)


def test_two_policies_whose_batches_differ_in_size(cut_by_rllib: list[int]) -> None:
    one, _ = compare(lambda kind: of_many(config(kind=kind)), **SPLIT)
    assert set(one.curr_kl_coeffs_per_module) == {"even", "odd"} and len(cut_by_rllib) == 2


def test_one_of_two_policies_is_trained() -> None:
    compare(lambda kind: of_many(config(kind=kind)).multi_agent(policies_to_train=["odd"]), **SPLIT)


def test_a_module_with_state_is_cut_by_rllib(cut_by_rllib: list[int]) -> None:
    def make(kind: type) -> Any:
        return config(kind=kind).rl_module(
            model_config=DefaultModelConfig(fcnet_hiddens=[8], use_lstm=True, lstm_cell_size=8, max_seq_len=5)
        )

    compare(make, **SPLIT)
    assert len(cut_by_rllib) == 4


def test_torchs_own_schedules_and_logged_gradients() -> None:
    def make(kind: type) -> Any:
        return config(kind=kind, grad_clip=0.1).experimental(_torch_lr_scheduler_classes=[DECAY]).reporting(log_gradients=True)

    compare(make, **SPLIT)


class Spoiled:
    """The loss of the fourth minibatch is not finite."""

    by = float("nan")
    minibatches = 0

    def compute_loss_for_module(self, **kwargs: Any) -> Any:
        self.minibatches += 1
        loss = super().compute_loss_for_module(**kwargs)  # type: ignore[misc]
        return loss * self.by if self.minibatches == 4 else loss


@pytest.mark.parametrize("by", [float("nan"), float("inf")])
@pytest.mark.parametrize("skip", [False, True])
def test_gradients_that_are_not_finite(by: float, skip: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Spoiled, "by", by)

    def make(kind: type) -> Any:
        settings = config(kind=kind)
        settings.torch_skip_nan_gradients = skip
        return settings

    kinds = [type("Kind", (Spoiled, base), {}) for base in (ReactorPPOTorchLearner, PPOTorchLearner)]
    one, _ = compare(make, *kinds, **SPLIT)
    weights = [value for value in flat(one.get_state()["rl_module"]).values() if value.size]
    assert all(np.isfinite(value).all() for value in weights) is not skip


class Own:
    """Overrides what a user may, and logs in every way."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.calls: list[str] = []

    def compute_loss_for_module(self, *, module_id: str, batch: Any, **kwargs: Any) -> Any:
        self.calls.append("loss")
        loss = super().compute_loss_for_module(module_id=module_id, batch=batch, **kwargs)  # type: ignore[misc]
        squared = batch["obs"].pow(2).mean()
        for reduce in ("sum", "mean", "ema", "max", "lifetime_sum", "item"):
            self.metrics.log_value((module_id, "own", reduce), squared.item(), reduce=reduce)  # type: ignore[attr-defined]
            self.metrics.log_value(f"tensor {reduce}", squared, reduce=reduce)  # type: ignore[attr-defined]
        self.metrics.log_value("last three", len(self.calls), reduce="sum", window=3)  # type: ignore[attr-defined]
        self.metrics.log_value("not a number", float("nan") if len(self.calls) % 2 else 3, reduce="sum")  # type: ignore[attr-defined]
        self.metrics.log_dict({"a": {"b": 1.0, "c": len(self.calls)}}, key="nested", window=2)  # type: ignore[attr-defined]
        return loss + 0.01 * squared

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        self.calls.append("gradients")
        return super().compute_gradients(*args, **kwargs)  # type: ignore[misc]

    def postprocess_gradients(self, gradients_dict: Any) -> Any:
        self.calls.append("postprocessed")
        return {ref: gradient * 0.5 for ref, gradient in super().postprocess_gradients(gradients_dict).items()}  # type: ignore[misc]

    def apply_gradients(self, gradients_dict: Any) -> None:
        self.calls.append("applied")
        super().apply_gradients(gradients_dict)  # type: ignore[misc]

    def after_gradient_based_update(self, *, timesteps: Any) -> None:
        self.calls.append("after")
        super().after_gradient_based_update(timesteps=timesteps)  # type: ignore[misc]


def test_what_a_user_overrides_and_logs() -> None:
    kinds = [type("Kind", (Own, base), {}) for base in (ReactorPPOTorchLearner, PPOTorchLearner)]
    one, other = compare(lambda kind: config(kind=kind), *kinds, **SPLIT)
    assert one.calls == other.calls and set(one.calls) == {"loss", "gradients", "postprocessed", "applied", "after"}


def test_modules_that_a_user_has_left_in_evaluation_mode_are_put_into_training_mode() -> None:
    class Left:
        def compute_loss_for_module(self, **kwargs: Any) -> Any:
            loss = super().compute_loss_for_module(**kwargs)  # type: ignore[misc]
            self.found = [*getattr(self, "found", []), self.module["default_policy"].training]  # type: ignore[attr-defined]
            self.module["default_policy"].eval()  # type: ignore[attr-defined]
            return loss

    kinds = [type("Kind", (Left, base), {}) for base in (ReactorPPOTorchLearner, PPOTorchLearner)]
    one, _ = compare(lambda kind: config(kind=kind), *kinds, **SPLIT)
    assert all(one.found)
