"""What somebody changes about a policy after it was made counts from the next round on, as in SB3, or is refused by name."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from contrib_trainers import CONTRIB, make
from every_other import every_other, in_turn
from stable_baselines3 import PPO
from stable_baselines3.common.torch_layers import FlattenExtractor
from torch import nn
from trainers import ALGORITHMS, INLINE, PROCESSES, ROWS, STEPWISE, AfterRounds, new

from reactor_torch import Structure

pytestmark = pytest.mark.usefixtures("small_blocks")
ALL = sorted({*ALGORITHMS, *CONTRIB})
ROUND = 64
"""Steps after which each of them has learned something, from the first round with enough of them."""
_SEQUENCES = (
    "actor.latent_pi", "q_net.q_net", "quantile_net.quantile_net", "mlp_extractor.policy_net", "actor.mu", "action_net",
)  # fmt: skip


def made(algorithm: str, **changed: Any) -> Any:
    more = {"learning_starts": 0} if ROWS[algorithm].kind == "off-policy" else {}
    return (make if algorithm in CONTRIB else new)(algorithm, **{**more, **changed})


def sequence_of(policy: Any) -> nn.Sequential:
    """Layers that decide about actions."""
    for path in _SEQUENCES:
        try:
            found = policy.get_submodule(path)
        except AttributeError:
            continue
        if isinstance(found, nn.Sequential) and any(isinstance(one, nn.Linear) for one in found):
            return found
    raise LookupError(type(policy).__name__)


def layer_of(policy: Any) -> Any:
    return next(one for one in sequence_of(policy) if isinstance(one, nn.Linear))


def owner_of(policy: Any) -> Any:
    """What has the optimiser that steps it."""
    return policy.actor if hasattr(getattr(policy, "actor", None), "optimizer") else policy


def numbers(module: Any) -> torch.Tensor:
    return torch.cat([one.detach().flatten().clone() for one in module.parameters()])


# ---------------------------------------------------------------------- the changes, and what is to come of them

Check = Callable[[], None]


class Calls:
    """A hook of any kind that counts its calls."""

    def __init__(self, gives: Callable[[Any], Any] = lambda given: None) -> None:
        self.count, self.gives = 0, gives

    def __call__(self, *given: Any, **keywords: Any) -> Any:
        self.count += 1
        return self.gives(given[0])

    def check(self) -> None:
        assert self.count


def freeze(model: Any) -> Check:
    layer = layer_of(model.policy).requires_grad_(False)
    before, others = numbers(layer), numbers(model.policy)

    def check() -> None:
        assert torch.equal(numbers(layer), before) and not torch.equal(numbers(model.policy), others)

    return check


def thaw(model: Any) -> Check:
    layer = layer_of(model.policy).requires_grad_(True)
    return moves(layer)


def moves(module: Any) -> Check:
    before = numbers(module)

    def check() -> None:
        assert not torch.equal(numbers(module), before)

    return check


def forward_hook(model: Any) -> Check:
    layer_of(model.policy).register_forward_hook(calls := Calls())
    return calls.check


def forward_pre_hook(model: Any) -> Check:
    layer_of(model.policy).register_forward_pre_hook(calls := Calls())
    return calls.check


def backward_hook(model: Any) -> Check:
    layer_of(model.policy).register_full_backward_hook(calls := Calls())
    return calls.check


def gradient_hook(model: Any) -> Check:
    weight = layer_of(model.policy).weight
    owner_of(model.policy).optimizer = torch.optim.SGD(owner_of(model.policy).parameters(), 0.1)  # of no memory: what is 0 stays
    before = weight.detach().clone()
    weight.register_hook(calls := Calls(torch.zeros_like))

    def check() -> None:
        assert calls.count and torch.equal(weight, before)

    return check


def accumulated_hook(model: Any) -> Check:
    layer_of(model.policy).weight.register_post_accumulate_grad_hook(calls := Calls())
    return calls.check


def optimizer_hook(model: Any) -> Check:
    owner_of(model.policy).optimizer.register_step_pre_hook(calls := Calls())
    return calls.check


def replaced_step(model: Any) -> Check:
    optimizer, calls = owner_of(model.policy).optimizer, Calls()
    step = optimizer.step

    def counted(closure: Any = None) -> Any:
        calls(None)
        return step(closure)

    optimizer.step = counted
    return calls.check


def replaced_forward(model: Any) -> Check:
    layer = layer_of(model.policy)
    forward, calls = layer.forward, Calls()

    def counted(given: torch.Tensor) -> torch.Tensor:
        calls(None)
        return forward(given)

    layer.forward = counted
    return calls.check


def replaced_layer(model: Any) -> Check:
    layers, owner = sequence_of(model.policy), owner_of(model.policy)
    number = next(number for number, one in enumerate(layers) if isinstance(one, nn.Linear))
    old: Any = layers[number]
    layers[number] = other = nn.Linear(old.in_features, old.out_features)
    owner.optimizer = torch.optim.Adam(owner.parameters(), 1e-2)
    check_moves, before = moves(other), numbers(old)

    def check() -> None:
        check_moves()
        assert torch.equal(numbers(old), before)

    return check


def replaced_optimizer(model: Any) -> Check:
    owner = owner_of(model.policy)
    before = owner.optimizer
    owner.optimizer = other = torch.optim.SGD(owner.parameters(), 1e-2, momentum=0.9)
    check_moves, known = moves(layer_of(model.policy)), len(before.state)

    def check() -> None:
        check_moves()
        assert other.state and len(before.state) == known

    return check


def replaced_policy(model: Any) -> Check:
    old, model.policy = model.policy, copy.deepcopy(model.policy)
    check_moves, before = moves(layer_of(model.policy)), numbers(old)

    def check() -> None:
        check_moves()
        assert torch.equal(numbers(old), before)

    return check


CHANGES = [
    freeze, thaw, forward_hook, forward_pre_hook, backward_hook, gradient_hook, accumulated_hook, optimizer_hook, replaced_step,
    replaced_forward, replaced_layer, replaced_optimizer, replaced_policy,
]  # fmt: skip


@contextmanager
def changed(model: Any, change: Callable[[Any], Check], when: str) -> Iterator[None]:
    """Learn, with a change before it, between two trainings, or in a callback; then what comes of it is checked."""
    if change is thaw:
        layer_of(model.policy).requires_grad_(False)
    with model:
        if when == "callback":
            once: list[Check] = []
            model.learn(3 * ROUND, callback=AfterRounds(lambda model: once or once.append(change(model))))
            (check,) = once
        else:
            if when == "between":
                model.learn(ROUND)
            check = change(model)
            model.learn(2 * ROUND)
        yield
        check()


@pytest.mark.filterwarnings("ignore:the policy acts in another way", "ignore:Full backward hook is firing")
@every_other(kept=14, algorithm=STEPWISE, change=CHANGES, when=["before", "between", "callback"])
def test_changes_count_from_the_next_round_on(algorithm: str, change: Any, when: str) -> None:
    with changed(made(algorithm), change, when):
        pass


@pytest.mark.parametrize("when", ["before", "between", "callback"])
@in_turn("change", [freeze, thaw, gradient_hook, optimizer_hook, replaced_step, replaced_layer, replaced_policy], kept=1)
def test_changes_count_in_a_search(change: Any, when: str) -> None:
    """Whose learner calls no module, but steps along a gradient like the others."""
    with changed(made("ars", delta_std=0.3), change, when):
        pass


@pytest.mark.parametrize("change", [freeze, gradient_hook, replaced_layer, replaced_optimizer, replaced_policy, forward_hook])
def test_updates_are_those_of_sb3(change: Any) -> None:
    """Of one minibatch, so that its order does not matter."""
    with new("ppo", n_steps=16, batch_size=ROUND, n_epochs=1, learning_rate=1e-2) as model:
        model.learn(ROUND)
        change(model)
        policy: Any = model.policy
        state, optimizer = copy.deepcopy((policy.state_dict(), policy.optimizer.state_dict()))
        model.train()
        ours = numbers(policy)
        policy.load_state_dict(state)
        policy.optimizer.load_state_dict(optimizer)
        policy.optimizer.zero_grad()
        PPO.train(model)
        torch.testing.assert_close(ours, numbers(policy), rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------------- who executes it


def _doubled(module: Any, given: Any, found: torch.Tensor) -> torch.Tensor:
    return 2 * found


def doubled(model: Any) -> None:
    layer_of(model.policy).register_forward_hook(_doubled)


def deeper(model: Any) -> None:
    layers, owner = sequence_of(model.policy), owner_of(model.policy)
    width = layers[0].in_features
    with torch.random.fork_rng():
        torch.manual_seed(1)
        layers.insert(0, nn.Linear(width, width))
    if hasattr(owner, "q_net_target"):  # which follows parameter by parameter
        model.policy.q_net_target = copy.deepcopy(model.policy.q_net)
    owner.optimizer = torch.optim.Adam(owner.parameters(), 1e-2)


def counted(module: Any) -> None:
    module.outside += 1


class Scaled(FlattenExtractor):
    """A setting of its own, beside numbers in which it keeps count."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.scale, self.rows, self.outside = 1.0, 0, 0

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return self.noted(observations) * self.scale

    def noted(self, observations: torch.Tensor) -> torch.Tensor:
        self.rows = len(observations)
        counted(self)
        features: torch.Tensor = super().forward(observations)
        return features


class OfThat(Scaled):
    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return super().forward(observations)


class Hooked(Scaled):
    """Counts where no method of its own does."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.calls = 0
        self.flatten.register_forward_hook(self.called)

    def called(self, *given: Any) -> None:
        self.calls += 1


def of_own(algorithm: str, extractor: type, **more: Any) -> Any:
    model = made(algorithm, **more)
    named = {"features_extractor_class": extractor, "net_arch": [16]}
    return model.close() or made(algorithm, policy_kwargs={**model.policy_kwargs, **named}, **more)


def scale(model: Any) -> None:
    for one in model.policy.modules():
        if isinstance(one, Scaled):
            one.scale = 3.0


@pytest.mark.filterwarnings("ignore:the policy acts in another way")
@every_other(kept=3, algorithm=STEPWISE, when=["between", "callback"])
def test_settings_of_own_modules_reach_the_actors(algorithm: str, when: str) -> None:
    with of_own(algorithm, OfThat) as model:
        if when == "between":
            model.learn(ROUND)
            run = model._run
            scale(model)
            model.learn(ROUND, reset_num_timesteps=False)
        else:
            runs: list[Any] = []
            model.learn(3 * ROUND, callback=AfterRounds(lambda model: runs.append(model._run) or scale(model)))
            run = runs[0]
        assert model._run is not run


@pytest.mark.slow
@pytest.mark.parametrize("extractor", [Scaled, OfThat, Hooked])
@in_turn("algorithm", STEPWISE, kept=2)
def test_what_own_modules_count_is_theirs(algorithm: str, extractor: Any, tmp_path: Any) -> None:
    with of_own(algorithm, extractor) as model:
        run = model.learn(ROUND)._run
        model.predict(model.observation_space.sample())
        model.learn(2 * ROUND, reset_num_timesteps=False).save_checkpoint(tmp_path / "run.zip")
        assert model._run is run
        model.learn(ROUND, reset_num_timesteps=False)
        with type(model).resume(tmp_path / "run.zip") as resumed:
            assert resumed.learn(ROUND, reset_num_timesteps=False).fingerprint() == model.fingerprint()
        scale(model)
        with pytest.raises(ValueError, match="has other settings"):
            model.save_checkpoint(tmp_path / "other.zip")


SHARED: dict[str, Any] = {"executor": "threads", "workers": 2, "n_learners": 2}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the policy acts in another way")
@every_other(kept=1, algorithm=["dqn", "ppo", "sac"], change=[freeze, doubled, deeper], when=["between", "callback"])
def test_whoever_executes_it(algorithm: str, change: Any, when: str) -> None:
    found = []
    for place in (INLINE, PROCESSES, SHARED):
        with made(algorithm, **place) as model:
            if when == "between":
                model.learn(ROUND)
                change(model)
            callback = AfterRounds(lambda model: model.num_timesteps == ROUND and change(model)) if when == "callback" else None
            found.append(model.learn(2 * ROUND, callback=callback, reset_num_timesteps=when == "callback").fingerprint())
    assert len(set(found)) == 1


def test_episodes_that_are_cut_off_are_not_cut_off_silently() -> None:
    with new("dqn") as model:
        model.learn(ROUND)
        doubled(model)
        with pytest.warns(UserWarning, match=r"acts in another way than its actors \(q_net.q_net.0 has other hooks\)"):
            model.learn(ROUND, reset_num_timesteps=False)
        freeze(model)
        model.learn(ROUND, reset_num_timesteps=False)  # actors need not know of it


# ---------------------------------------------------------------------- what is refused


@in_turn("algorithm", ALL)
def test_policies_of_other_numbers_are_refused(algorithm: str) -> None:
    with made(algorithm) as model:
        model.learn(ROUND)
        model.policy.double()
        with pytest.raises(TypeError, match="learners want float32"):
            model.learn(ROUND)


@pytest.mark.parametrize("policy", [None, nn.Linear(4, 2)])
def test_what_is_no_policy_is_refused(policy: Any) -> None:
    with new("ppo") as model:
        model.learn(ROUND).policy = policy
        with pytest.raises(TypeError, match=r"model\.policy must be a policy of Stable-Baselines3, got (None|Linear)"):
            model.learn(ROUND)


@pytest.mark.parametrize("algorithm", ["dqn", "sac", "td3"])
def test_networks_of_the_model_alone_are_refused(algorithm: str) -> None:
    name = "q_net" if algorithm == "dqn" else "actor"
    with made(algorithm) as model:
        setattr(model, name, copy.deepcopy(getattr(model, name)))
        with pytest.raises(ValueError, match=rf"model\.{name} was replaced, and model\.policy\.{name} is another network"):
            model.learn(ROUND)
        setattr(model.policy, name, getattr(model, name))
        if algorithm == "dqn":
            model.policy.optimizer = torch.optim.Adam(model.policy.q_net.parameters())
        model.learn(ROUND)


def test_hooks_of_all_modules_are_refused() -> None:
    with new("ppo") as model:
        handle = nn.modules.module.register_module_forward_hook(Calls())
        try:
            with pytest.raises(ValueError, match="global module hooks"):
                model.learn(ROUND)
        finally:
            handle.remove()
        model.learn(ROUND)


@pytest.mark.parametrize("algorithm", ["dqn", "td3"])
def test_targets_of_other_layers_are_refused(algorithm: str) -> None:
    with made(algorithm, **({"target_update_interval": 4} if algorithm == "dqn" else {})) as model:
        layers = sequence_of(model.policy)
        layers[2 if algorithm == "dqn" else 0] = nn.Sequential(nn.Linear(layers[0].in_features, 32), nn.Linear(32, 32))
        if algorithm == "dqn":
            layers[2] = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 2))
        owner = owner_of(model.policy)
        owner.optimizer = torch.optim.Adam(owner.parameters(), 1e-2)
        with pytest.raises(ValueError, match=r"the target '\w+' follows '\w+' parameter by parameter"):
            model.learn(2 * ROUND)


def test_what_learns_nothing_is_refused() -> None:
    with new("ppo") as model:
        model.policy.requires_grad_(False)
        with pytest.raises(ValueError, match="all are frozen"):
            model.learn(ROUND)


def test_a_parameter_of_two_networks_is_refused() -> None:
    with made("sac") as model:
        policy: Any = model.policy
        policy.critic_target.qf0[0].weight = policy.critic.qf0[0].weight
        with pytest.raises(ValueError, match="'critic' and 'critic_target' share a parameter"):
            model.learn(ROUND)
    with made("td3") as model:
        policy = model.policy
        policy.critic.qf0[2].bias = policy.actor.mu[0].bias = nn.Parameter(torch.zeros(32))
        with pytest.raises(ValueError, match=r"critic\.qf0\.2\.bias|critic.qf0.0.bias"):
            model.learn(ROUND)


# ---------------------------------------------------------------------- checkpoints


@every_other(
    kept=4, algorithm=ALL, change=[freeze, forward_hook, gradient_hook, optimizer_hook, replaced_optimizer, replaced_forward]
)
def test_checkpoints_of_what_would_be_made_otherwise_are_refused(algorithm: str, change: Any, tmp_path: Any) -> None:
    with made(algorithm) as model:
        model.learn(ROUND)
        model.save_checkpoint(tmp_path / "first.zip")
        change(model)
        with pytest.raises(ValueError, match="no longer as the constructor makes it"):
            model.save_checkpoint(tmp_path / "second.zip")
        assert not (tmp_path / "second.zip").exists()


@pytest.mark.slow
def test_a_policy_that_was_exchanged_for_a_like_one_is_resumed(tmp_path: Any) -> None:
    with new("sac", learning_starts=0) as model:
        model.learn(ROUND)
        model.policy = copy.deepcopy(model.policy)
        model.learn(ROUND, reset_num_timesteps=False).save_checkpoint(tmp_path / "run.zip")
        model.learn(ROUND, reset_num_timesteps=False)
        with type(model).resume(tmp_path / "run.zip") as resumed:
            assert resumed.learn(ROUND, reset_num_timesteps=False).fingerprint() == model.fingerprint()


# ---------------------------------------------------------------------- what is compared


def test_nothing_is_made_anew_where_nothing_has_changed() -> None:
    with new("sac", learning_starts=0) as model:
        nets, run = model.nets, model.learn(ROUND)._run
        model.policy.load_state_dict(copy.deepcopy(model.policy.state_dict()))
        layer_of(model.policy).weight.data = layer_of(model.policy).weight.data.clone()
        optimizer: Any = model.policy.actor.optimizer
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        model.learn(ROUND, reset_num_timesteps=False)
        assert model.nets is nets and model._run is run


def test_differences_are_told_in_words() -> None:
    first, other = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)), nn.Sequential(nn.Linear(2, 2))
    before = Structure({"policy": first}, {})
    assert before.difference(Structure({"policy": other}, {})) == ["policy is replaced"]
    first[1].weight.requires_grad_(False)
    first[0] = nn.Linear(2, 2)
    now = Structure({"policy": first}, {})
    assert before.difference(now)[0].startswith("0 is replaced") and "1.weight is frozen" in before.difference(now)
