"""Environments that kernels step, policies that bring about every kind of end, and comparisons to the bit."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from functools import cache, partial
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from reactor_gymnasium import ReactorVectorEnv
from reactor_gymnasium.native.kernel import GENERATOR
from reactor_gymnasium.native.registered import kernel_class
from reactor_gymnasium.native.takeover import Takeover

Array = npt.NDArray[Any]

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "CartPole-v1": ("CartPole-v1", {"max_episode_steps": 60}),
    "CartPole-v0": ("CartPole-v0", {}),
    "CartPole, sutton_barto_reward": ("CartPole-v1", {"sutton_barto_reward": True}),
    "MountainCar-v0": ("MountainCar-v0", {"max_episode_steps": 150}),
    "MountainCarContinuous-v0": ("MountainCarContinuous-v0", {"max_episode_steps": 140}),
    "Pendulum-v1": ("Pendulum-v1", {"max_episode_steps": 70}),
    "Pendulum, g=9.81": ("Pendulum-v1", {"g": 9.81, "max_episode_steps": 50}),
    "Acrobot-v1": ("Acrobot-v1", {"max_episode_steps": 130}),
    "FrozenLake-v1": ("FrozenLake-v1", {"max_episode_steps": 9}),
    "FrozenLake, not slippery": ("FrozenLake-v1", {"is_slippery": False}),
    "FrozenLake8x8-v1": ("FrozenLake8x8-v1", {"max_episode_steps": 40}),
    "CliffWalking-v1": ("CliffWalking-v1", {"max_episode_steps": 30}),
    "CliffWalkingSlippery-v1": ("CliffWalkingSlippery-v1", {"max_episode_steps": 90}),
    "Taxi-v4": ("Taxi-v4", {"max_episode_steps": 60}),
    "Taxi, rainy and fickle": ("Taxi-v4", {"max_episode_steps": 60, "is_rainy": True, "fickle_passenger": True}),
    "Blackjack-v1": ("Blackjack-v1", {}),
    "Blackjack, natural": ("Blackjack-v1", {"natural": True}),
    "Blackjack, sab": ("Blackjack-v1", {"sab": True, "max_episode_steps": 2}),
}

MUJOCO: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        f"{name}-{version}": (f"{name}-{version}", {"max_episode_steps": limit})
        for version in ("v5", "v4")
        for name, limit in {
            "HalfCheetah": 23, "Hopper": 40, "Walker2d": 40, "Swimmer": 30, "InvertedPendulum": 9, "InvertedDoublePendulum": 12,
            "Reacher": 15, "Pusher": 20, "Ant": 20, "Humanoid": 30, "HumanoidStandup": 15,
        }.items()
        if (name, version) != ("Pusher", "v4")
    },
    "HalfCheetah, other arguments": (
        "HalfCheetah-v5",
        {"forward_reward_weight": 2, "ctrl_cost_weight": 1, "frame_skip": 3, "exclude_current_positions_from_observation": False},
    ),
    "Hopper, goes on": ("Hopper-v5", {"terminate_when_unhealthy": False, "healthy_reward": 3, "max_episode_steps": 50}),
    "Hopper-v4, goes on": ("Hopper-v4", {"terminate_when_unhealthy": False, "max_episode_steps": 50}),
    "Walker2d, other arguments": (
        "Walker2d-v5", {"healthy_reward": 2, "healthy_z_range": (1, 1.26), "exclude_current_positions_from_observation": False}
    ),
    "Swimmer, observed": ("Swimmer-v5", {"exclude_current_positions_from_observation": False, "max_episode_steps": 20}),
    "InvertedDoublePendulum, int": ("InvertedDoublePendulum-v5", {"healthy_reward": 7}),
    "Reacher, weights": ("Reacher-v5", {"reward_dist_weight": 0.5, "reward_control_weight": 3}),
    "Ant, no contacts": (
        "Ant-v5",
        {"include_cfrc_ext_in_observation": False, "main_body": "aux_1", "healthy_z_range": (0.5, 0.8), "max_episode_steps": 30},
    ),
    "Ant-v4, contacts": ("Ant-v4", {"use_contact_forces": True, "healthy_z_range": (0.5, 0.8), "max_episode_steps": 30}),
    "Humanoid, sees less": (
        "Humanoid-v5", {"include_cvel_in_observation": False, "include_cfrc_ext_in_observation": False, "max_episode_steps": 20}
    ),
    "HumanoidStandup, sees less": (
        "HumanoidStandup-v5", {"include_cinert_in_observation": False, "impact_cost_range": (0.0, 1e-3), "max_episode_steps": 12}
    ),
}  # fmt: skip

_OTHERS = {
    "1.2.0": ("Humanoid-v4", "Humanoid-v5", "HumanoidStandup-v5", "Blackjack-v1", "Taxi-v3"),
    "1.2.": ("Humanoid-v5", "HumanoidStandup-v5", "Taxi-v3"),
    "1.3.": ("Humanoid-v5", "HumanoidStandup-v5"),
}
OTHERS = next((found for release, found in _OTHERS.items() if gymnasium.__version__.startswith(release)), ())
"""Environments whose code of this release no kernel was written from."""


def of_another_release(case: str) -> bool:
    """Whether Python steps a case, or an environment, here."""
    return (CASES | MUJOCO).get(case, (case,))[0].replace("Taxi-v4", "Taxi-v3") in OTHERS


HELD: list[Any] = []
"""What makers of environments keep."""

SOLVER = ("efc_", "efm_", "iefc_", "ifrc_", "iacc", "island_", "map_", "solver_")

MODES = list(AutoresetMode)


def in_modes(cases: Iterable[str]) -> list[tuple[str, AutoresetMode, int]]:
    """Each case in one of the modes, with a seed for each: modes, which no kernel knows of, take turns."""
    seeds = [0, 7, 123]
    return [(case, MODES[number % 3], seeds[number % 3]) for number, case in enumerate(cases)]


ROWS = 5


def maker(case: str) -> partial[Any]:
    env_id, kwargs = (CASES | MUJOCO)[case]
    return partial(gymnasium.make, env_id, **kwargs)


def same(ours: Any, theirs: Any, where: str = "") -> None:
    """Equal to the bit; types, dtypes and the order of keys, too."""
    assert type(ours) is type(theirs), f"{where}: {type(ours)} is not {type(theirs)}"
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs), f"{where}: keys {list(ours)} are not {list(theirs)}"
        for key in theirs:
            same(ours[key], theirs[key], f"{where}[{key!r}]")
    elif isinstance(theirs, (tuple, list)):
        assert len(ours) == len(theirs), f"{where}: length {len(ours)} is not {len(theirs)}"
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            same(a, b, f"{where}[{i}]")
    elif isinstance(theirs, (np.ndarray, np.generic)):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), f"{where}: {ours.dtype}{ours.shape}"
        if theirs.dtype == object:
            same(ours.tolist(), theirs.tolist(), where)
        else:
            assert ours.tobytes() == theirs.tobytes(), f"{where}: {ours!r} is not {theirs!r}"
    elif type(theirs).__name__ == "MjData":
        theirs = pickle.loads(pickle.dumps(theirs))  # as ours was: what says how the solver went is lost by that
        for name in fields():
            same(getattr(ours, name), getattr(theirs, name), f"{where}.{name}")
    elif isinstance(theirs, np.random.Generator):
        same(ours.bit_generator.state, theirs.bit_generator.state, where)
    else:
        assert ours == theirs, f"{where}: {ours!r} is not {theirs!r}"


@cache
def fields() -> tuple[str, ...]:
    """What MuJoCo keeps of a simulation, but for its solver's memory, of which parts are never written."""
    import mujoco

    data = mujoco.MjData(mujoco.MjModel.from_xml_string("<mujoco/>"))
    arrays = sorted(name for name in dir(data) if isinstance(getattr(data, name), np.ndarray))
    return ("time", *(name for name in arrays if not name.startswith(SOLVER)))


def same_states(ours: Any, theirs: Any, where: str) -> None:
    """Everything that steps change in the environments, their generators and their time limits."""
    kernel = kernel_class(type(theirs.envs[0].unwrapped))
    assert kernel is not None
    simulated = hasattr(theirs.envs[0].unwrapped, "data")
    states = ("data", "init_qpos") if simulated else sorted(kernel.comes_to().written - GENERATOR)
    for name in (*states, "np_random", "np_random_seed"):
        same(list(ours.call("get_wrapper_attr", name)), list(theirs.call("get_wrapper_attr", name)), f"{where}: {name}")
    if "_elapsed_steps" in vars(theirs.envs[0]):
        same(list(ours.get_attr("_elapsed_steps")), list(theirs.get_attr("_elapsed_steps")), f"{where}: elapsed steps")


class Policy:
    """Random actions, and for some stretches those that lead to the ends which random ones do not find."""

    def __init__(self, case: str, space: gymnasium.Space[Any], seed: int) -> None:
        self.case, self.space, self.random = case, space, np.random.default_rng(seed)

    def __call__(self, step: int, shown: Any, rows: int = ROWS) -> Array:
        clever = step % 250 < 170
        if not isinstance(self.space, gymnasium.spaces.Discrete):
            space: Any = self.space
            actions: Array = self.random.uniform(space.low * 1.4, space.high * 1.4, (rows, *space.shape))
            if self.case in MUJOCO and step // 40 % 3 == 1:
                actions *= 0.1  # they stand longer
            if clever and self.case.startswith("MountainCar"):
                actions = np.sign(shown[:, 1:] + 1e-9) * self.random.uniform(0.9, 1.2, (rows, 1))
            wide = (self.case.startswith("Pendulum") and step // 25 % 9 == 3) or (self.case in MUJOCO and step // 20 % 3 == 2)
            return actions.astype(np.float64 if wide else np.float32)
        actions = self.random.integers(0, self.space.n, rows)
        if clever and self.case.startswith("CartPole"):
            lean = np.linspace(-0.1, 0.1, rows) if self.case == "CartPole-v0" else 0.0  # and so off to either side
            actions = (shown[:, 2] + 0.5 * shown[:, 3] > lean).astype(np.int64)
        if clever and self.case.startswith("MountainCar"):
            actions = np.where(shown[:, 1] >= 0, 2, 0)
        if clever and self.case.startswith("Acrobot"):
            actions = np.where(shown[:, 4] >= 0, 0, 2)
        if clever and self.case.startswith("CliffWalking"):  # up, along the cliff, and down
            row, column = shown // 12, shown % 12
            actions = np.where(column == 11, 2, np.where(row == 3, 0, 1))
        if clever and self.case.startswith("Taxi"):
            actions = taxi()[shown]
        return actions


@cache
def taxi() -> Array:
    """The best action in each state."""
    table: Any = gymnasium.make("Taxi-v4").unwrapped.P  # type: ignore[attr-defined]
    (after, rewards, over) = np.array([[table[s][a][0][1:] for a in range(6)] for s in range(500)]).transpose(2, 0, 1)
    values = np.zeros(500)
    for _ in range(40):
        gains = rewards + np.where(over, 0, values[after])
        values = gains.max(axis=1)
    best: Array = gains.argmax(axis=1)
    return best


class Counted:
    """How many steps kernels took."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken = 0
        original = Takeover.step

        def counting(takeover: Takeover, actions: Any, out: Any) -> bool:
            took = original(takeover, actions, out)
            self.taken += took
            return took

        monkeypatch.setattr(Takeover, "step", counting)


class Doubled(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper that no kernel knows."""

    def step(self, action: Any) -> Any:
        observation, reward, *others = super().step(action)
        return observation, 2 * float(reward), *others


def doubled(case: str) -> Any:
    return Doubled(maker(case)())


def pair(
    case: str, mode: AutoresetMode, rows: int = ROWS, foreign: int = 0, **kwargs: Any
) -> tuple[ReactorVectorEnv, SyncVectorEnv]:
    """Ours and Gymnasium's; so many of the rows have a foreign wrapper."""
    makers = [maker(case)] * (rows - foreign) + [partial(doubled, case)] * foreign
    options: dict[str, Any] = {"workers": 1, **kwargs}
    ours = ReactorVectorEnv(makers, autoreset_mode=mode, **options)
    return ours, SyncVectorEnv(makers, autoreset_mode=mode)


def walk(
    case: str, ours: ReactorVectorEnv, theirs: SyncVectorEnv, mode: AutoresetMode, steps: int, seed: int, look: int = 97
) -> Iterator[tuple[int, Any]]:
    """Step both and compare all that they return; states every ``look`` steps. Yields each step and its results."""
    policy = Policy(case, theirs.single_action_space, seed)
    first = theirs.reset(seed=seed)
    same(ours.reset(seed=seed), first, "reset")
    shown = first[0]
    for step in range(steps):
        actions = policy(step, shown, theirs.num_envs)
        expected = theirs.step(actions)
        same(ours.step(actions), expected, f"step {step}")
        shown, over = expected[0], expected[2] | expected[3]
        if mode is AutoresetMode.DISABLED and over.any():
            one = int(policy.random.integers(1 << 30)) if policy.random.random() < 0.2 else None
            again = theirs.reset(seed=one, options={"reset_mask": over.copy()})
            same(ours.reset(seed=one, options={"reset_mask": over.copy()}), again, f"reset after step {step}")
            shown = again[0]
        if step % look == look - 1:
            same_states(ours, theirs, f"after step {step}")
        yield step, expected
