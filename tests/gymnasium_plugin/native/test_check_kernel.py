"""``check-kernel`` and the lines of ``doctor``: which kernels are true for this release."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from reactor_gymnasium.cli.check_kernel import main
from reactor_gymnasium.cli.doctor import kernels
from reactor_gymnasium.native import guards
from reactor_gymnasium.native.classic import CartPole
from reactor_gymnasium.native.compiled import missing
from reactor_gymnasium.native.kernels import choose_kernel
from reactor_gymnasium.native.registered import KERNELS
from reactor_rl.plugin import UsageError
from tests.gymnasium_plugin.native.cases import OTHERS

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))
QUICK = "--steps", "600"


@pytest.mark.slow
def test_the_same_bits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["FrozenLake-v1", "is_slippery=False", *QUICK]) == 0
    said = capsys.readouterr().out.splitlines()
    assert re.fullmatch("FrozenLake for FrozenLakeEnv: 8,100 steps, [78],... of them by the kernel, .*: the same bits", said[0])
    assert said[-1] == 'FrozenLake: written_from "bf25682da0ef", which it has'
    assert "never run, so not compared: FrozenLakeEnv.step: self.render()" in said


@pytest.mark.slow
def test_code_that_it_was_not_written_from(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is compared all the same; what is not compared is named."""
    monkeypatch.setattr(CartPole, "written_from", ())
    monkeypatch.setattr(guards, "_known", set())
    assert main(["CartPole-v1", "sutton_barto_reward=True", *QUICK]) == 0
    said = capsys.readouterr().out
    assert said.endswith('CartPole: written_from "16ee44652d69", to be added to the kernel\n')
    assert "never run, so not compared: CartPoleEnv.step: theta_dot = theta_dot + self.tau * thetaacc" in said
    assert "CartPoleEnv.step: terminated" not in said
    guards._warn.cache_clear()
    with pytest.warns(RuntimeWarning, match="is not the one that the CartPole kernel was written from"):  # it is trusted no more
        assert guards.unlike(CartPoleEnv, ("0" * 12,), "CartPole")


def test_another_bit(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    floats = CartPole.floats

    def other(self: CartPole) -> tuple[float, ...]:
        gravity, *rest = floats(self)
        return float(np.nextafter(gravity, 10.0)), *rest

    monkeypatch.setattr(CartPole, "floats", other)
    assert main(["CartPole-v1", *QUICK]) == 1
    said = capsys.readouterr().out
    assert re.match(
        r"autoreset \w+, time limit \w+, \d rows, seed 0, (after )?step \d+: \w+ of row \d: .* in Python, .* by the kernel", said
    )


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["Nothing-v0"], "cannot be made"),
        (["CartPole-v1", "size=3"], "cannot be made: .*size"),
        (["CartPole-v1", "size"], "'size' is no NAME=VALUE"),
        (["GymV21Environment-v0"], "cannot be made"),
        (["nowhere:Env"], "'nowhere:Env' cannot be made: No module named 'nowhere'"),
        (["gymnasium.envs.toy_text:Nothing-v0"], "cannot be made"),
        (["CartPole-v1", "--steps", "0"], "at least 1"),
    ],
)
def test_what_cannot_be_compared(argv: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        main(argv)


def test_what_no_kernel_may_step(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    assert main(["CartPole-v1", "render_mode=human"]) == 1
    assert capsys.readouterr().out == "the CartPole kernel cannot be used: it is rendered for a human at every step\n"


def test_an_environment_without_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reactor_gymnasium.testing.kernel_class", lambda kind: None)
    with pytest.raises(UsageError, match="there is no kernel for CartPoleEnv"):
        main(["CartPole-v1"])


@pytest.mark.slow
def test_a_class_of_a_module(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gymnasium.envs.toy_text.frozen_lake:FrozenLakeEnv", "is_slippery=False", *QUICK]) == 0
    assert capsys.readouterr().out.startswith("FrozenLake for FrozenLakeEnv: ")


@pytest.mark.slow
def test_the_doctor_has_a_line_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mujoco")
    assert isinstance(choose_kernel(CartPoleEnv), type)
    guards._warn.cache_clear()
    monkeypatch.setattr(guards, "_known", set())
    monkeypatch.setattr(CartPole, "written_from", ("0" * 12,))
    lines = list(kernels())
    assert len(lines) == len(KERNELS)
    said: dict[str, Any] = {value: warning for _, value, warning in lines}
    assert said["PendulumEnv of pendulum (b9ac5c3d0823): stepped by the Pendulum kernel"] is None
    unknown = "CartPoleEnv of cartpole (16ee44652d69): no kernel: it was not written from this CartPoleEnv (16ee44652d69)"
    assert "check-kernel CartPole-v1" in said[unknown]
    assert sum(warning is not None for warning in said.values()) == 1 + len(OTHERS)
