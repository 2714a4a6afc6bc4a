"""Kernels of users: the examples of the docs in all modes, and what a kernel may not say or do."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit

from reactor_gymnasium import CRows, Kernel, ReactorVectorEnv, kernel_include, register_kernel
from reactor_gymnasium.native import registered, row_kernel
from reactor_gymnasium.native.classic import CartPole
from reactor_gymnasium.native.compiled import missing as not_compiled
from reactor_gymnasium.native.kernel import ROOTS, Taken
from reactor_gymnasium.native.registered import KERNELS, kernel_class
from reactor_gymnasium.placement import StepTimes, step_times
from reactor_gymnasium.testing import check_kernel
from reactor_gymnasium.vector import vector_env
from reactor_rl.plugin import fingerprint
from tests.gymnasium_plugin.native.cases import MODES, Counted, same
from tests.gymnasium_plugin.native.own_kernels import COMPILER, EXAMPLES, NAMES, Board, Maker, env_type, imported, missing

pytestmark = pytest.mark.skipif(not_compiled() is not None, reason=str(not_compiled()))


@pytest.fixture(scope="module", params=NAMES)
def example(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    if why := missing(request.param):
        pytest.skip(why)
    with imported(tmp_path_factory.mktemp("own"), request.param) as module:
        yield module


def compare(make: Any, mode: AutoresetMode, rows: int, steps: int, **options: Any) -> str:
    """Steps with the same bits, and states at their end; who took them at last."""
    theirs = SyncVectorEnv([make] * rows, autoreset_mode=mode)
    with ReactorVectorEnv([make] * rows, autoreset_mode=mode, **options) as ours:
        same(ours.reset(seed=3), theirs.reset(seed=3), "reset")
        random = np.random.default_rng(0)
        for step in range(steps):
            actions = row_kernel.drawn(theirs.single_action_space, random, rows)
            one = theirs.step(actions)
            same(ours.step(actions), one, f"step {step}")
            if mode is AutoresetMode.DISABLED and (over := one[2] | one[3]).any():
                kwargs: dict[str, Any] = {"seed": step} if step % 2 else {}
                kwargs["options"] = {"reset_mask": over}
                same(
                    ours.reset(**kwargs),
                    theirs.reset(seed=kwargs.get("seed"), options={"reset_mask": over.copy()}),
                    f"reset {step}",
                )
        said = repr(ours)
        for name in (*kernel_class(type(theirs.envs[0].unwrapped)).types, "np_random"):  # type: ignore[union-attr]
            same(list(ours.call("get_wrapper_attr", name)), list(theirs.call("get_wrapper_attr", name)), name)
    theirs.close()
    return said


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rows", [1, 7])
def test_an_example_has_the_bits_of_python(
    example: ModuleType, mode: AutoresetMode, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch)
    make = lambda: TimeLimit(env_type(example)(), 30)  # noqa: E731
    said = compare(make, mode, rows, 150, executor="inline")
    assert "stepped by the " in said
    assert counted.taken > 130


@pytest.mark.parametrize("options", [{"executor": "threads", "workers": 2}, {"executor": "processes", "workers": 2}])
def test_an_example_on_workers(example: ModuleType, options: dict[str, Any]) -> None:
    assert "stepped by the " in compare(Maker(example.__name__), AutoresetMode.SAME_STEP, 4, 60, **options)


@pytest.mark.slow
def test_an_example_is_checked(example: ModuleType) -> None:
    kernel = kernel_class(env_type(example))
    report = check_kernel(env_type(example), steps=1, seeds=1, rows=(3,))
    assert (report.cases, report.steps) == (9, 9 * 150 * 3)
    assert report.by_kernel > 0.9 * report.steps
    assert report.ends > 100
    assert report.never_run == ()
    assert f'written_from "{report.fingerprint}", to be added to the kernel' in str(report)
    assert kernel_class(env_type(example)) is kernel  # as before


@pytest.mark.parametrize("name", ["grid.py", "cart.py", "cart.c"])
def test_the_page_has_the_examples(name: str) -> None:
    file = "own-kernel.md" if name == "grid.py" else "own-kernel-c.md"
    page = (EXAMPLES.parents[1] / "docs" / "guide" / file).read_text()
    _, *parts = (EXAMPLES / name).read_text().split("\n\n\n" if name.endswith(".py") else "\n\n")
    for part in parts:
        assert part.strip() in page


def test_the_page_has_the_fingerprint(tmp_path: Path) -> None:
    page = (EXAMPLES.parents[1] / "docs" / "guide" / "own-kernel.md").read_text()
    with imported(tmp_path, "grid") as module:
        assert f'written_from = ("{fingerprint(module.GridEnv, ROOTS)}",)' in page


# ---------------------------------------------------------------------- one class for all that follows


class Counter(gymnasium.Env[Any, Any]):
    """Counts to a limit."""

    def __init__(self, most: int = 9, render_mode: str | None = None) -> None:
        self.most, self.render_mode = most, render_mode
        self.observation_space: Any = spaces.Discrete(100)
        self.action_space: Any = spaces.MultiDiscrete([2, 3])
        self.count = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = int(self.np_random.integers(3))
        return self.count, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += int(action[0] + action[1])
        return self.count, float(action[1]), self.count > self.most, self.count == self.most, {}


class FastCounter:
    state: Any = {"count": int}
    constants: Any = ("most",)

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def step(self, actions: Any) -> None:
        r = self.rows
        r.count += actions[:, 0] + actions[:, 1]
        r.rewards[:] = actions[:, 1]
        r.terminated[:] = r.count > r.env.most
        r.truncated[:] = r.count == r.env.most

    def reset(self, row: int, rng: np.random.Generator) -> None:
        self.rows.count[row] = rng.integers(3)

    def observe(self) -> None:
        self.rows.observations[:] = self.rows.count


@pytest.fixture(autouse=True)
def _registrations() -> Iterator[None]:
    """None is left, and each is warned of anew."""
    before = dict(KERNELS)
    row_kernel._warn.cache_clear()
    yield
    KERNELS.clear()
    KERNELS.update(before)
    for kind in [Counter, *Counter.__subclasses__(), Draws]:
        if registered.MARK in vars(kind):
            delattr(kind, registered.MARK)


def stepped(make: Any, rows: int = 2, actions: Any = None, steps: int = 20) -> str:
    """Who steps environments."""
    with ReactorVectorEnv([make] * rows, executor="inline") as envs:
        envs.reset(seed=0)
        for _ in range(steps):
            envs.step(envs.action_space.sample() if actions is None else actions)
        return repr(envs).rpartition("[")[2].rstrip("])")


def test_ends_of_its_own_and_other_spaces() -> None:
    """Integers for observations, several for actions, and an environment that truncates by itself."""
    register_kernel(Counter, FastCounter)
    assert isinstance(FastCounter, Kernel)
    for mode in MODES:
        assert "stepped by the FastCounter kernel" in compare(Counter, mode, 4, 60, executor="inline")


def no_times(given: Any) -> Any:
    """Without those of episodes, which are the clock's."""
    if isinstance(given, dict):
        return {key: no_times(part) for key, part in given.items() if key not in ("t", "_t")}
    return tuple(map(no_times, given)) if isinstance(given, tuple) else given


@pytest.mark.parametrize("mode", MODES)
def test_a_wrapper_that_records_episodes(mode: AutoresetMode) -> None:
    register_kernel(Counter, FastCounter)
    makers = [lambda: RecordEpisodeStatistics(TimeLimit(Counter(), 7))] * 4
    theirs, random = SyncVectorEnv(makers, autoreset_mode=mode), np.random.default_rng(0)
    with ReactorVectorEnv(makers, autoreset_mode=mode, executor="inline") as ours:
        same(ours.reset(seed=0), theirs.reset(seed=0))
        for step in range(80):
            actions = row_kernel.drawn(theirs.single_action_space, random, 4)
            one = theirs.step(actions)
            same(no_times(ours.step(actions)), no_times(one), f"step {step}")
            if mode is AutoresetMode.DISABLED and (over := one[2] | one[3]).any():
                reset = [envs.reset(options={"reset_mask": over.copy()}) for envs in (ours, theirs)]
                same(*reset, f"reset {step}")
        assert "stepped by the FastCounter kernel" in repr(ours)
        for name in ("episode_returns", "episode_lengths", "count"):
            same(list(ours.get_attr(name)), list(theirs.get_attr(name)), name)


def test_an_action_outside_of_the_space_is_pythons() -> None:
    register_kernel(Counter, FastCounter)
    outside = np.array([[0, 0], [1, 3]])
    assert stepped(Counter) == "stepped by the FastCounter kernel"
    with ReactorVectorEnv([Counter] * 2, executor="inline") as ours:
        theirs = SyncVectorEnv([Counter] * 2)
        same(ours.reset(seed=0), theirs.reset(seed=0))
        for _ in range(30):
            same(ours.step(outside), theirs.step(outside))


def test_a_registration_by_name() -> None:
    """As an entry point or a package for classes of others has it; the last one counts."""
    name = f"{__name__}:Counter"
    register_kernel(name, "nowhere:Nothing")
    assert "no kernel: it cannot be imported: ModuleNotFoundError" in stepped(Counter)
    register_kernel(name, f"{__name__}:FastCounter")
    assert stepped(Counter) == "stepped by the FastCounter kernel"


def test_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint(f"{__name__}:Counter", f"{__name__}:FastCounter", registered.GROUP)
    monkeypatch.setattr(registered, "entry_points", lambda group: [entry] if group == "reactor_rl.kernels" else [])
    registered._of_packages.cache_clear()
    try:
        assert stepped(Counter) == "stepped by the FastCounter kernel"
    finally:
        registered._of_packages.cache_clear()


def test_a_class_of_the_same_name_is_another() -> None:
    register_kernel(type("Counter", (), {"__module__": __name__, "__qualname__": "Counter"}), FastCounter)
    assert "no kernel: none steps Counter" in stepped(Counter)


@pytest.mark.parametrize(
    ("env", "kernel", "words"),
    [
        (3, FastCounter, "env must be a class or 'module:Class', got 3"),
        ("module", FastCounter, "env must be a class or 'module:Class', got 'module'"),
        (Counter, None, "kernel must be a class or 'module:Class', got None"),
        (Counter, Counter, "Counter must have state"),
        (Counter, type("Half", (), {"state": {}, "step": None, "reset": None}), "Half must have observe"),
        (Counter, type("InC", (CRows,), {"prefix": "x"}), "InC must have library"),
        (Counter, type("InC", (CRows,), {"prefix": "x", "library": "y", "actions": ("f4", "f8")}), "InC.actions must be one dtype"),
        (
            Counter,
            type("Odd", (FastCounter,), {"state": {"count": str}}),
            r"Odd.state\['count'\] must be int, float, bool, a dtype",
        ),
        (Counter, type("Odd", (FastCounter,), {"infos": {"count": "what"}}), r"Odd.infos\['count'\] must be int, float"),
    ],
)
def test_what_cannot_be_registered(env: Any, kernel: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        register_kernel(env, kernel)


class _Kept(Counter):
    """Keeps what it was."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.before = self.count
        return super().step(action)


class _Mutated(Counter):
    """Changes a list, which no assignment says."""

    def __init__(self) -> None:
        super().__init__()
        self.trail: list[int] = []

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.trail.append(self.count)
        return super().step(action)


class _Hidden(Counter):
    """Likewise, and its code does not name the list."""

    def __init__(self) -> None:
        super().__init__()
        self.trail: list[int] = []

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        getattr(self, "tra" + "il").append(1)
        return super().step(action)


class _Told(Counter):
    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return *super().step(action)[:4], {"even": self.count % 2} if self.count < 5 else {}


class _Typed(Counter):
    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        seen, reward, *ends, info = super().step(action)
        return seen, np.float32(reward), *ends, info  # type: ignore[return-value]


class _Function(Counter):
    def __init__(self) -> None:
        super().__init__()
        self.pay = lambda action: float(action[1])

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        seen, _, *ends, info = super().step(action)
        return seen, self.pay(action), *ends, info  # type: ignore[return-value]


class _Seen(Counter):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Dict({"count": spaces.Discrete(100)})

    def reset(self, **kwargs: Any) -> Any:
        return {"count": super().reset(**kwargs)[0]}, {}

    def step(self, action: Any) -> Any:
        seen, *rest = super().step(action)
        return {"count": seen}, *rest


class _Uncopied(Counter):
    def __deepcopy__(self, memo: Any) -> Any:
        raise ValueError("there is only one")


class _Wrong(FastCounter):
    def reset(self, row: int, rng: np.random.Generator) -> None:
        self.rows.count[row] = rng.integers(2)


class _Failing(FastCounter):
    def step(self, actions: Any) -> None:
        raise ValueError("oh")


class _Needless(FastCounter):
    constants = ()


@pytest.mark.parametrize(
    ("env", "kernel", "words"),
    [
        (_Kept, FastCounter, "_Kept writes self.before, which is not in FastCounter.state"),
        (Counter, _Needless, "Counter reads self.most, which is neither in _Needless.state nor in its constants"),
        (
            _Mutated,
            type("Fast", (FastCounter,), {"constants": ("most", "trail")}),
            "a step changes one of the constants most, trail",
        ),
        (_Hidden, FastCounter, "Python does: the trail after step 9"),
        (_Told, FastCounter, r"Python does: .*'even'"),
        (Counter, type("Fast", (FastCounter,), {"constants": ("most", "least")}), "Counter has no least, which Fast names"),
        (Counter, type("Fast", (FastCounter,), {"infos": {"x": (int, ("size",))}}), "Counter has no size, which Fast names"),
        (_Typed, FastCounter, "rewards are of the types float32"),
        (Counter, _Wrong, "it does not do here what Python does: "),
        (Counter, _Failing, r"ValueError\('oh'\) was raised"),
        (
            Counter,
            type("InC", (CRows,), {"library": "/no/where.so", "prefix": "x", "state": {"count": int}}),
            "library cannot be used",
        ),
    ],
)
def test_a_kernel_that_is_wrong_is_told(env: Any, kernel: Any, words: str) -> None:
    """Python steps, a warning says why, and so does ``repr``."""
    register_kernel(env, kernel)
    with pytest.warns(
        RuntimeWarning, match=f"the {kernel.__name__} kernel is not used, Python steps with the same results: .*{words}"
    ):
        said = stepped(env)
    assert said.startswith("no kernel: ")


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (_Function, "no kernel: its pay is a function"),
        (_Seen, "no kernel: its observation space is a Dict"),
        (_Uncopied, r"no kernel: it cannot be copied, to be compared: ValueError('there is only one'"),
    ],
)
def test_what_no_kernel_may_step(env: Any, words: str) -> None:
    register_kernel(env, FastCounter)
    assert words.rstrip(")") in stepped(env)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_kernel_that_takes_longer_than_python(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the executor is not named it is not used, as far as its number of rows goes."""
    register_kernel(Counter, FastCounter)
    monkeypatch.setattr(vector_env, "step_times", lambda env, kernels=True: StepTimes(1e-6, 20e-6, 0.2e-6))
    said = {}
    for rows in (4, 40):
        with ReactorVectorEnv([Counter] * rows, workers=workers) as envs:
            forecast = repr(envs)
            envs.reset(seed=0)
            for _ in range(10):
                envs.step(envs.action_space.sample())
            said[rows] = repr(envs)
            assert said[rows] == forecast
    assert "no kernel: it takes longer than Python for 4 rows" in said[4]
    assert "stepped by the FastCounter kernel" in said[40]
    with ReactorVectorEnv([Counter] * 4, executor="inline") as envs:
        assert "stepped by the FastCounter kernel" in repr(envs)


def test_times() -> None:
    register_kernel(Counter, FastCounter)
    times = step_times(TimeLimit(Counter(), 5))
    assert times.python is not None
    assert times.row is not None
    assert step_times(Counter(), kernels=False).row is None
    assert StepTimes(2.0, 10.0, 1.0).of_row(5) == 2.0
    assert StepTimes(2.0, 10.0, 1.0).of_row(20) == 1.5
    assert StepTimes(None, 0.0, 1.0).of_row(1) == 1.0  # of ours
    assert step_times(gymnasium.make("CartPole-v1")).python is None


def test_rows_that_differ() -> None:
    register_kernel(Counter, FastCounter)
    with ReactorVectorEnv([lambda: Counter(9), lambda: Counter(8)], executor="inline") as envs:
        envs.reset(seed=0)
        for _ in range(20):
            envs.step(envs.action_space.sample())
        assert "no kernel: their constants differ" in repr(envs)


def test_a_state_of_another_type() -> None:
    register_kernel(Counter, FastCounter)
    with ReactorVectorEnv([Counter] * 2, executor="inline") as envs:
        envs.reset(seed=0)
        envs.set_attr("count", [np.int64(1), 1])
        for _ in range(6):
            envs.step(np.zeros((2, 2), np.int64))
        assert "no kernel: its count is " in repr(envs)


def test_another_release(monkeypatch: pytest.MonkeyPatch) -> None:
    register_kernel(Counter, type("Older", (FastCounter,), {"written_from": ("0" * 12,)}))
    with pytest.warns(RuntimeWarning, match="Counter of .* is not the one that the Older kernel was written from"):
        assert "no kernel: it was not written from this Counter" in stepped(Counter)


@pytest.mark.parametrize("executor", ["inline", "processes"])
def test_a_class_that_is_sent_by_value(executor: Any) -> None:
    """As those of a script or a notebook are: its kernel goes with it."""
    made: dict[str, Any] = {"FastCounter": FastCounter, "Counter": Counter, "__name__": "__main__"}
    exec("class Made(Counter):\n    pass\n\nclass Fast(FastCounter):\n    pass\n", made)
    register_kernel(made["Made"], made["Fast"])
    with ReactorVectorEnv([made["Made"]] * 4, executor=executor, workers=2) as envs:
        envs.reset(seed=0)
        for _ in range(10):
            envs.step(envs.action_space.sample())
        assert "stepped by the Fast kernel" in repr(envs)


def test_no_source_text() -> None:
    names: dict[str, Any] = {"gymnasium": gymnasium, "spaces": spaces, "Counter": Counter, "__name__": "made_up"}
    exec("class Made(Counter):\n    def reset(self, **kwargs):\n        return super().reset(**kwargs)\n", names)
    register_kernel(names["Made"], FastCounter)
    assert stepped(names["Made"]) == "stepped by the FastCounter kernel, compared only: Made has no source text"


def test_an_error_in_a_kernel_ends_the_run() -> None:
    class Breaks(FastCounter):
        left = 500

        def step(self, actions: Any) -> None:
            super().step(actions)
            Breaks.left -= 1
            if not Breaks.left:
                raise ValueError("it breaks")

    register_kernel(Counter, Breaks)
    with pytest.raises(ValueError, match="it breaks") as caught:
        stepped(Counter, steps=1000)
    assert "step" in "".join(caught.value.__notes__)


@pytest.mark.slow
def test_arrays() -> None:
    report = check_kernel(lambda: Board(size=2), steps=1, seeds=1, rows=(2,))
    assert report.never_run == ()
    assert "stepped by the FastBoard kernel" in compare(Board, AutoresetMode.SAME_STEP, 3, 60, executor="inline")


def test_rows_that_have_shown_nothing() -> None:
    """Wrappers may have shown something else: only rows that fail to step would show the zeros."""
    envs, twins = [Board(), Board()], [Board(), Board()]
    for seed, one in enumerate((*envs, *twins)):
        one.reset(seed=seed % 2)
    kernel = kernel_class(Board)
    assert kernel is not None
    assert kernel.misfit(envs[0]) is None
    assert kernel.strange_constants(envs[0]) is None
    rows = kernel(Taken(envs, [9, 9], [9, 9], [False] * 2, [None] * 2, AutoresetMode.NEXT_STEP))
    assert not rows.observations.any()
    actions = np.array([1, 3])
    assert rows.step(actions, None, None) == 0
    same(list(rows.observations), [one.step(action)[0] for one, action in zip(twins, actions, strict=True)])


def test_the_checker_refuses() -> None:
    with pytest.raises(ValueError, match="there is no kernel for Counter"):
        check_kernel(Counter)
    with pytest.raises(ValueError, match="must be at least 1, got 0, 2 and"):
        check_kernel(Counter, steps=0)
    register_kernel(_Kept, FastCounter)
    with pytest.raises(AssertionError, match=r"the FastCounter kernel cannot be used: _Kept writes self\.before"):
        check_kernel(_Kept)


def test_a_kernel_that_refuses_every_step_is_no_kernel() -> None:
    """All would be equal, for Python took them."""
    register_kernel(Counter, type("Wide", (FastCounter,), {"actions": (np.int32,)}))
    with pytest.raises(AssertionError, match=r"the kernel took 0 of 150 steps: .*other actions than a kernel takes"):
        check_kernel(Counter, steps=1, seeds=1, rows=(1,))


@pytest.mark.slow
def test_a_policy_of_ones_own() -> None:
    register_kernel(Counter, FastCounter)
    still = lambda random, space, n: np.zeros((n, 2), np.int64)  # noqa: E731
    report = check_kernel(Counter, steps=1, seeds=1, rows=(1,), draw=still)
    assert report.ends > 0  # by limits


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")
def test_the_header_has_numpys_draws(tmp_path: Path) -> None:
    source = tmp_path / "draws.c"
    source.write_text(DRAWS)
    library = tmp_path / "libdraws.so"
    flags = ["-O2", "-fPIC", "-shared", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", f"-I{kernel_include()}"]
    subprocess.run([str(COMPILER), *flags, str(source), "-o", str(library)], check=True, timeout=120)
    names = {"library": library, "prefix": "d", "state": {"drawn": float, "number": int}, "constants": ("most",)}
    register_kernel(Draws, type("Drawn", (CRows,), names))
    assert check_kernel(Draws, steps=1, seeds=2, rows=(2,)).ends > 0


DRAWS = """
#include "reactor_kernel.h"

void d_step(reactor_rows *r)
{
    REACTOR_COLUMN(double, drawn, r, 0);
    REACTOR_COLUMN(int64_t, number, r, 1);

    for (int64_t i = 0; i < r->n; i++) {
        if (r->moving[i]) {
            const reactor_rng *rng = r->rngs[i];
            drawn[i] = reactor_uniform(rng, -2.0, 5.0);
            drawn[i] += reactor_random(rng);
            number[i] = reactor_integers(rng, -3, (int64_t)r->constants[0]);
            number[i] += reactor_integers(rng, 4, 5);
            r->terminated[i] = 8 * (number[i] == 6);
            r->rewards[i] = (double)number[i];
        }
    }
}

void d_reset(reactor_rows *r, int64_t i)
{
    ((int64_t *)r->state[1])[i] = reactor_integers(r->rngs[i], 0, 3000000000);
}

void d_observe(reactor_rows *r)
{
    for (int64_t i = 0; i < r->n; i++) {
        ((double *)r->observations)[i] = ((double *)r->state[0])[i];
    }
}
"""


class Draws(gymnasium.Env[Any, Any]):
    def __init__(self) -> None:
        self.most, self.drawn, self.number = 9, 0.0, 0
        self.observation_space: Any = spaces.Box(-9, 9, (1,), np.float64)
        self.action_space: Any = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.number = int(self.np_random.integers(0, 3_000_000_000))
        return np.array([self.drawn]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.drawn = self.np_random.uniform(-2.0, 5.0) + self.np_random.random()
        self.number = int(self.np_random.integers(-3, self.most)) + int(self.np_random.integers(4, 5))
        return np.array([self.drawn]), float(self.number), self.number == 6, False, {}


def test_ours_are_registered_alike() -> None:
    name = ("gymnasium.envs.classic_control.cartpole", "CartPoleEnv")
    assert KERNELS[name] == "reactor_gymnasium.native.classic:CartPole"
    assert kernel_class(gymnasium.make("CartPole-v1").unwrapped.__class__) is CartPole
