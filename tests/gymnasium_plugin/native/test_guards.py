"""A kernel is used only where it is known to be true."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control import cartpole
from gymnasium.envs.toy_text import blackjack
from gymnasium.vector import SyncVectorEnv

from reactor_gymnasium import ReactorVectorEnv
from reactor_gymnasium.environments import bypass
from reactor_gymnasium.native import guards
from reactor_gymnasium.native.classic import CartPole
from reactor_gymnasium.native.compiled import missing
from reactor_gymnasium.native.kernels import choose_kernel
from reactor_gymnasium.native.registered import KERNELS, kernel_class
from reactor_gymnasium.native.toy_text import Blackjack
from reactor_rl.plugin import code_of, fingerprint
from tests.gymnasium_plugin.native.cases import OTHERS, of_another_release

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


@pytest.fixture(autouse=True)
def _found_out_anew(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(guards, "_known", set())
    for found in (guards._untrue, guards._warn):
        found.cache_clear()
    yield
    guards._untrue.cache_clear()


@pytest.mark.parametrize(("module", "owner"), KERNELS)
def test_a_kernel_steps_each_class_of_this_gymnasium(module: str, owner: str) -> None:
    """If this fails, Gymnasium is a new one: native/guards.py says what to do."""
    if ".mujoco." in module:
        pytest.importorskip("mujoco")
    kind = getattr(__import__(module, fromlist=[owner]), owner)
    kernel = kernel_class(kind)
    assert kernel is not None
    found = fingerprint(kind, ("step", "reset"))
    if kernel.title in OTHERS or any(other.startswith(f"{kernel.title}-v") for other in OTHERS):
        assert choose_kernel(kind) == f"it was not written from this {owner} ({found})"
    else:
        assert found in kernel.written_from, "this code is new; native/guards.py says what to do"
        assert isinstance(choose_kernel(kind), type), choose_kernel(kind)


@pytest.mark.parametrize(("module", "owner"), KERNELS)
def test_whatever_a_user_gives_an_environment_a_kernel_sees_or_refuses(module: str, owner: str) -> None:
    """Each number, text or flag that steps and resets read."""
    if ".mujoco." in module:
        pytest.importorskip("mujoco")
    kernel = kernel_class(getattr(__import__(module, fromlist=[owner]), owner))
    assert kernel is not None
    (env,), code, seen = kernel.make(1), kernel.comes_to(), 0
    if hasattr(env, "data"):
        code = code_of(type(env), ("step",))  # resets are its own
    env.reset(seed=0)
    for name in sorted(code.names - code.methods - code.written):
        value = getattr(env, name, None)
        if name.startswith("__") or not isinstance(value, bool | int | float | str):
            continue
        before, there, seen = kernel.constants(env), name in vars(env), seen + 1
        setattr(env, name, not value if isinstance(value, bool) else value + "x" if isinstance(value, str) else value * 1.5 + 1)
        assert kernel.misfit(env) is not None or kernel.constants(env) != before, name
        setattr(env, name, value) if there else delattr(env, name)
    assert seen or owner in ("FrozenLakeEnv", "CliffWalkingEnv"), seen


def test_how_many_kernels_there_are_for_this_gymnasium() -> None:
    pytest.importorskip("mujoco")
    kinds = [getattr(__import__(module, fromlist=[owner]), owner) for module, owner in KERNELS]
    used = [kind for kind in kinds if isinstance(choose_kernel(kind), type)]
    assert (len(kinds), len(used)) == (30, 30 - len(OTHERS))


def test_another_release_means_python_and_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CartPole, "written_from", ("0" * 12,))
    words = (
        rf"CartPoleEnv of gymnasium {gymnasium.__version__} is not the one that the CartPole kernel was written from "
        r"\(16ee44652d69\): Python steps it, with the same results. `python -m reactor_rl check-kernel CartPole-v1` compares them"
    )
    with pytest.warns(RuntimeWarning, match=words) as warned:
        envs = ReactorVectorEnv([partial(gymnasium.make, "CartPole-v1")] * 2, executor="inline")
    assert [one.filename for one in warned] == [__file__]
    assert "no kernel: it was not written from this CartPoleEnv (16ee44652d69)" in repr(envs)
    assert choose_kernel(cartpole.CartPoleEnv) == "it was not written from this CartPoleEnv (16ee44652d69)"
    envs.close()


def test_a_class_without_source_means_python(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(function: Any) -> str:
        raise OSError("could not get source code")

    kind = type("CartPoleEnv", (cartpole.CartPoleEnv,), {"__module__": cartpole.__name__})
    monkeypatch.setattr(cartpole, "CartPoleEnv", kind)
    monkeypatch.setattr("inspect.getsource", missing)
    assert choose_kernel(kind) == "the source of CartPoleEnv cannot be read: could not get source code"


@pytest.mark.parametrize("kind", guards.PASSING)
def test_wrappers_of_another_release_are_called(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    held = bypass.WrapperBypass(gymnasium.make("CartPole-v1"))
    held.env.reset(seed=0)
    for _ in range(3):  # the first ones are checked
        held.env.step(0)
    held.engage()
    assert held.engaged
    monkeypatch.setitem(guards.PASSING, kind, ("0" * 12,))
    bypass._as_written.cache_clear()
    with pytest.warns(RuntimeWarning, match=rf"{kind.__name__} of gymnasium .* \(\w{{12}}\): it is called, with the same results"):
        held.engage()
    assert not held.engaged
    monkeypatch.undo()
    bypass._as_written.cache_clear()
    held.engage()
    assert held.engaged


def test_a_kernel_that_differs_means_python(monkeypatch: pytest.MonkeyPatch) -> None:
    floats = CartPole.floats

    def other(self: CartPole) -> tuple[float, ...]:
        gravity, *rest = floats(self)
        return float(np.nextafter(gravity, 10.0)), *rest

    monkeypatch.setattr(CartPole, "floats", other)
    assert "it does not do here what Python does" in str(choose_kernel(cartpole.CartPoleEnv))


@pytest.mark.skipif(of_another_release("Blackjack-v1"), reason="it has other code")
def test_a_helper_that_somebody_changed_means_python(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_kernel(blackjack.BlackjackEnv) is Blackjack
    monkeypatch.setattr(blackjack, "deck", [1, 10])
    assert choose_kernel(blackjack.BlackjackEnv) == "somebody has changed deck of gymnasium.envs.toy_text.blackjack"


def test_states_of_another_length_are_left_to_python() -> None:
    envs = ReactorVectorEnv([cartpole.CartPoleEnv] * 4, executor="inline")
    envs.reset(seed=0)
    envs.set_attr("state", [np.zeros(3)] * 4)
    with pytest.raises(ValueError, match="not enough values to unpack"), pytest.warns(UserWarning, match="ValueError"):
        envs.step(np.zeros(4, np.int64))
    envs.close()


@pytest.mark.skipif(of_another_release("Taxi-v4"), reason="it has other code")
def test_passengers_who_are_not_fickle_any_more() -> None:
    fns = [partial(gymnasium.make, "Taxi-v4", fickle_passenger=True, fickle_probability=1.0)] * 4
    ours, theirs = ReactorVectorEnv(fns, executor="inline"), SyncVectorEnv(fns)
    random = np.random.default_rng(0)
    for envs in (ours, theirs):
        envs.reset(seed=0)
        envs.set_attr("fickle_passenger", False)
    for _ in range(600):
        actions = random.integers(0, 6, 4)
        np.testing.assert_array_equal(ours.step(actions)[0], theirs.step(actions)[0])
    ours.close()


def test_actions_of_another_shape_are_left_to_python() -> None:
    envs = ReactorVectorEnv([partial(gymnasium.make, "CartPole-v1")] * 2, executor="inline")
    envs.reset(seed=0)
    for _ in range(6):
        envs.step(np.zeros(2, np.int64))
    with pytest.raises(AssertionError, match="invalid"), pytest.warns(UserWarning, match="AssertionError"):
        envs.step([np.array([0]), np.array([1])])
    envs.close()
