"""MuJoCo's kernels give the bits of SyncVectorEnv, and mutants of them are found."""

from __future__ import annotations

import sys
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from reactor_gymnasium import ReactorVectorEnv, make_vec
from reactor_gymnasium.native import guards, kernels, takeover
from reactor_gymnasium.native.kernel import Taken
from reactor_gymnasium.native.registered import KERNELS
from reactor_rl.runtime.limits import usable_cores
from tests.gymnasium_plugin.native.cases import MUJOCO, Counted, in_modes, maker, pair, same, same_states, walk

mujoco = pytest.importorskip("mujoco")
mujoco_v5: Any = pytest.importorskip("reactor_gymnasium.native.mujoco_v5")
simulated: Any = pytest.importorskip("reactor_gymnasium.native.simulated")

pytestmark = [
    pytest.mark.skipif(mujoco_v5.HalfCheetah.unavailable() is not None, reason="the kernels need numpy 2"),
    pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning"),
]

ENDS = {
    "Hopper-v5", "Hopper-v4", "Walker2d-v5", "Walker2d-v4", "InvertedPendulum-v5", "InvertedPendulum-v4",
    "InvertedDoublePendulum-v5", "InvertedDoublePendulum-v4", "Humanoid-v5", "Humanoid-v4", "Walker2d, other arguments",
    "InvertedDoublePendulum, int", "Ant, no contacts", "Ant-v4, contacts", "Humanoid, sees less",
}  # fmt: skip
NO_LIMIT = {"HalfCheetah, other arguments", "Walker2d, other arguments", "InvertedDoublePendulum, int", "Reacher, weights"}


def compare(case: str, mode: AutoresetMode, steps: int, seed: int, monkeypatch: pytest.MonkeyPatch, **kwargs: Any) -> None:
    counted = Counted(monkeypatch)
    ours, theirs = pair(case, mode, **kwargs)
    terminated = truncated = 0
    try:
        for _, (_, _, ended, cut, _) in walk(case, ours, theirs, mode, steps, seed, look=29 if steps < 100 else 97):
            terminated, truncated = terminated + int(ended.sum()), truncated + int(cut.sum())
    finally:
        ours.close()
        theirs.close()
    assert counted.taken > steps // 2
    assert terminated > 0 or case not in ENDS or steps < 300
    assert truncated > 0 or case in NO_LIMIT or steps < 300


@pytest.mark.parametrize("case", [case for case in MUJOCO if case.endswith("-v5")])
def test_steps(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(case, AutoresetMode.SAME_STEP, 32, 3, monkeypatch, rows=2)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_modes(mode: AutoresetMode, monkeypatch: pytest.MonkeyPatch) -> None:
    compare("Hopper-v5", mode, 80, 3, monkeypatch, rows=3)


@pytest.mark.slow
@pytest.mark.parametrize(("case", "mode", "seed"), in_modes(MUJOCO))
def test_many_steps(case: str, mode: AutoresetMode, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(case, mode, 400, seed, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("place", [{"executor": "threads", "workers": 2}, {"executor": "processes", "workers": 2}])
def test_on_helpers(place: dict[str, Any]) -> None:
    mode = AutoresetMode.SAME_STEP
    ours, theirs = pair("Hopper-v5", mode, **place)
    try:
        for _ in walk("Hopper-v5", ours, theirs, mode, 150, 1):
            pass
    finally:
        ours.close()
        theirs.close()


@pytest.mark.slow
@pytest.mark.skipif(usable_cores() < 2, reason="there is one core")
def test_auto_times_what_kernels_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """MuJoCo's environments are shared out among all cores; compiled ones are not worth it."""
    monkeypatch.setattr("reactor_gymnasium.placement.tick_cost", lambda *_, **__: 20e-6)
    with make_vec("HalfCheetah-v5", 64, workers=2) as envs:
        assert (envs.workers, envs.executor) == (2, "processes")  # type: ignore[attr-defined]
        assert "stepped by the HalfCheetah-v5 kernel" in repr(envs)
    with make_vec("CartPole-v1", 64, workers=2) as envs:
        assert envs.executor == "inline"  # type: ignore[attr-defined]


@pytest.mark.filterwarnings("ignore:.*invalid value:RuntimeWarning", "ignore:.*overflow:RuntimeWarning")
def test_numbers_that_are_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo logs what it warns of
    counted = Counted(monkeypatch)
    ours, theirs = pair("HalfCheetah-v5", AutoresetMode.NEXT_STEP, rows=2)
    random = np.random.default_rng(0)
    try:
        same(ours.reset(seed=0), theirs.reset(seed=0))
        for step in range(40):
            actions = random.uniform(-1, 1, (2, 6)).astype(np.float32)
            if step > 10:
                actions[step % 2, step % 6] = [np.nan, np.inf, 1e30, -1e30][step % 4]
            same(ours.step(actions), theirs.step(actions), f"step {step}")
        same_states(ours, theirs, "at the end")
    finally:
        ours.close()
        theirs.close()
    assert counted.taken > 20


def test_a_reset_of_all_after_that_of_some() -> None:
    ours, theirs = pair("Hopper-v5", AutoresetMode.NEXT_STEP, rows=3)
    try:
        for _ in walk("Hopper-v5", ours, theirs, AutoresetMode.NEXT_STEP, 12, 0):
            pass
        for mask in ([False, False, True], [True, False, True], [True, True, False]):
            options = {"reset_mask": np.array(mask)}
            same(ours.reset(seed=5, options=dict(options)), theirs.reset(seed=5, options=dict(options)), str(mask))
        same(ours.reset(seed=1), theirs.reset(seed=1))
    finally:
        ours.close()
        theirs.close()


def heavier(k: int) -> Any:
    env: Any = maker("Hopper-v5")()
    model = env.unwrapped.model
    model.opt.timestep = 0.002 + 0.001 * k
    model.body_mass[:] *= 1.0 + 0.1 * k
    return env


def test_each_row_is_simulated_by_its_own_model(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    makers = [partial(heavier, k) for k in range(3)]
    ours, theirs = ReactorVectorEnv(makers, workers=1, autoreset_mode="SameStep"), SyncVectorEnv(makers, autoreset_mode="SameStep")
    try:
        for _ in walk("Hopper-v5", ours, theirs, AutoresetMode.SAME_STEP, 50, 2):
            pass
    finally:
        ours.close()
        theirs.close()
    assert counted.taken > 25


def test_a_model_that_somebody_else_refers_to_means_python() -> None:
    env: Any = gymnasium.make("Swimmer-v5").unwrapped
    env.reset(seed=0)
    row = Taken([env], [9], [9], [False], [np.zeros(8)], AutoresetMode.SAME_STEP)
    held = env.model.opt
    assert kernels.take_over(row) == "somebody else refers to its model"
    del held
    assert not isinstance(kernels.take_over(row), str)


@pytest.mark.parametrize(
    ("kwargs", "says"),
    [
        ({"healthy_reward": Fraction(1, 2)}, "its _healthy_reward is a Fraction"),
        ({"healthy_z_range": [0.7, 2.0]}, "somebody else refers to its _healthy_z_range"),
        ({"healthy_angle_range": np.array([-0.2, 0.2])}, "somebody else refers to its _healthy_angle_range"),
    ],
)
def test_arguments_that_are_not_taken(kwargs: dict[str, Any], says: str) -> None:
    env: Any = gymnasium.make("Hopper-v5", **kwargs).unwrapped
    env.reset(seed=0)
    assert says in str(kernels.take_over(Taken([env], [9], [9], [False], [np.zeros(11)], AutoresetMode.SAME_STEP)))


def test_a_row_that_fails_leaves_the_others_their_step(monkeypatch: pytest.MonkeyPatch) -> None:
    with ReactorVectorEnv([maker("HalfCheetah-v5")] * 3, workers=1) as envs:
        envs.reset(seed=0)
        actions = np.zeros((3, 6), np.float32)
        for _ in range(9):
            envs.step(actions)
        moved: list[Any] = []

        def step(model: Any, data: Any, frames: int) -> None:
            moved.append(data)
            if len(moved) == 2:
                raise mujoco.FatalError("the arena is full")

        fake = SimpleNamespace(mj_step=step, mj_rnePostConstraint=lambda model, data: None)
        monkeypatch.setattr(simulated, "mujoco", fake)
        with pytest.warns(UserWarning, match="environment 1 raised FatalError"), pytest.raises(mujoco.FatalError, match="arena"):
            envs.step(actions)
        assert len(moved) == 3


FILES = {"simulated": "simulated", "v5": "mujoco_v5", "v4": "mujoco_v4"}
MUTANTS = [
    ("v5", "Hopper-v5", "(left < angle) & (angle < right)", "(left - 0.01 < angle) & (angle < right)"),
    ("v5", "HalfCheetah, other arguments", "self.env._forward_reward_weight * self.velocity", "self.velocity"),
    ("v5", "Walker2d-v5", "np.clip(fast, -10, 10, out=fast)", "np.clip(fast, -10, 9.99, out=fast)"),
    ("v5", "InvertedDoublePendulum-v5", "number**2 for number", "number * number * 1.0000000000000002 for number"),
    ("v5", "InvertedPendulum-v5", "> 0.2)", "> 0.21)"),
    ("v5", "Ant-v5", "self.velocities[:, 0] * self.env._f", "self.velocities[:, 1] * self.env._f"),
    ("v5", "Humanoid-v5", "mass[:, :, None] * self", "mass[:, :, None] * 1.0000000000000002 * self"),
    ("v5", "Pusher-v5", "np.sqrt(np.vecdot(vectors, vectors))", "np.sqrt((vectors[:, ::-1] ** 2).sum(axis=1))"),
    ("v5", "HumanoidStandup, sees less", ", *env._impact_cost_range", ", 0, 10"),
    ("v4", "Hopper-v4, goes on", "healthy | self.env._terminate_when_unhealthy", "~healthy"),
    ("v4", "Reacher-v4", "self.both.now()\n", "pass\n"),
    ("simulated", "Hopper-v5", "mujoco.mj_rnePostConstraint(model, data)", "pass"),
    ("simulated", "Swimmer-v5", "self.limits[row], False, True", "self.limits[row] + 1, False, True"),
    ("simulated", "Humanoid-v5", "self._told = self._all_told()  # before", "pass  # before"),
]


def mutated(which: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have kernels come from sources in which an operation was changed."""
    for short, file in FILES.items():
        path = Path(str(simulated.__file__)).with_name(f"{file}.py")
        text = path.read_text()
        if short == which:
            assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {file}.py"
            text = text.replace(old, new)
        for name in FILES.values():
            text = text.replace(f"reactor_gymnasium.native.{name} import", f"mutant_{name} import")
        text = text.replace("from reactor_gymnasium.native import mujoco_v5 as v5", "import mutant_mujoco_v5 as v5")
        module = ModuleType(f"mutant_{file}")
        monkeypatch.setitem(sys.modules, f"mutant_{file}", module)
        exec(compile(text, str(path), "exec"), vars(module))

    def kernel_class(kind: type) -> Any:
        file, _, name = str(KERNELS[kind.__module__, kind.__qualname__]).partition(":")
        return getattr(sys.modules[f"mutant_{file.rpartition('.')[2]}"], name)

    monkeypatch.setattr(kernels, "kernel_class", kernel_class)


@pytest.mark.slow
@pytest.mark.parametrize(("which", "case", "old", "new"), MUTANTS)
def test_a_mutant_is_found(which: str, case: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutated(which, old, new, monkeypatch)
    monkeypatch.setattr(guards, "compared", lambda *args: None)  # or it would not be used at all
    monkeypatch.setattr(takeover, "AT_ONCE", 1)  # a kernel takes over again soon after states were compared
    ours, theirs = pair(case, AutoresetMode.SAME_STEP)
    try:
        with pytest.raises(AssertionError):
            for _ in walk(case, ours, theirs, AutoresetMode.SAME_STEP, 300, 3, look=7):
                pass
    finally:
        ours.close()
        theirs.close()
