"""A kernel is used only where it is known to be true."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.envs.classic_control import cartpole
from gymnasium.envs.toy_text import blackjack

from reactor_gymnasium.native import guards
from reactor_gymnasium.native.classic import CartPole
from reactor_gymnasium.native.compiled import missing
from reactor_gymnasium.native.guards import digest
from reactor_gymnasium.native.takeover import KERNELS, choose_kernel, kernel_class
from reactor_gymnasium.native.toy_text import Blackjack

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


@pytest.fixture(autouse=True)
def _found_out_anew() -> Any:
    guards._untrue.cache_clear()
    yield
    guards._untrue.cache_clear()


@pytest.mark.parametrize(("module", "owner"), KERNELS)
def test_every_source_of_this_gymnasium_is_known(module: str, owner: str) -> None:
    """If this fails, Gymnasium is a new one: compare its files with the kernels, run these tests, and add digests."""
    if ".mujoco." in module:
        pytest.importorskip("mujoco")
    kind = getattr(__import__(module, fromlist=[owner]), owner)
    kernel = kernel_class(kind)
    assert kernel is not None
    unknown = {path.name: digest(path) for path in guards.sources_of(kernel) if digest(path) not in guards.KNOWN.get(path.name, ())}
    assert unknown == {}, "these files are new; native/guards.py says what to do"
    assert isinstance(choose_kernel(kind), type), choose_kernel(kind)


def test_an_unknown_source_means_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(guards.KNOWN, "cartpole.py", ("0" * 16,))
    assert choose_kernel(cartpole.CartPoleEnv) == "it was not written from this version of cartpole.py"


def test_a_kernel_that_differs_means_python(monkeypatch: pytest.MonkeyPatch) -> None:
    floats = CartPole.floats

    def other(self: CartPole) -> tuple[float, ...]:
        gravity, *rest = floats(self)
        return float(np.nextafter(gravity, 10.0)), *rest

    monkeypatch.setattr(CartPole, "floats", other)
    assert "it does not do here what Python does" in str(choose_kernel(cartpole.CartPoleEnv))


def test_a_helper_that_somebody_changed_means_python(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_kernel(blackjack.BlackjackEnv) is Blackjack
    monkeypatch.setattr(blackjack, "deck", [1, 10])
    assert choose_kernel(blackjack.BlackjackEnv) == "somebody has changed deck of gymnasium.envs.toy_text.blackjack"
