"""How fast does a vector environment step? ReactorVectorEnv against everything that people use today.

A step is one ``env.step`` or, after the end of an episode, one ``env.reset``: that is how Gymnasium's NEXT_STEP mode counts.
SB3 resets within the same step, so its resets are counted as steps too; otherwise Blackjack's short episodes would count
against it. The environments are the same for all: ``gymnasium.make(id, disable_env_checker=True)``. Actions are drawn before
anything is timed. EnvPool has one thread or one for each core, whichever is faster. With more than 64 environments nobody has a
process for each. ``LunarLander-v3`` needs Box2D.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from common import Contender, arguments, benchmark, chosen, cores, interleaved, rounds_of, seconds_of, start_ray
from showing import print_table, rate_rows

OURS = "ReactorVectorEnv"
RAY = "Ray actors"
ENVIRONMENTS = ("CartPole-v1", "Blackjack-v1", "Pendulum-v1", "FrozenLake-v1", "ALE/Pong-v5", "HalfCheetah-v5")
SIZES = (8, 16, 64)
MOST_PROCESSES = 64
SPECIAL = {
    8: ("MountainCar-v0", "Acrobot-v1", "LunarLander-v3"),
    16: ("Ant-v5", "Hopper-v5", "Humanoid-v5"),
    64: ("MountainCar-v0", "Acrobot-v1", "LunarLander-v3"),
    1024: ("CartPole-v1", "Blackjack-v1", "Pendulum-v1", "FrozenLake-v1", "MountainCar-v0", "Acrobot-v1"),
}
"""Besides: what kernels step, and what they do not."""
BATCHES = 256
POOL, POOL_OF_ONE = "EnvPool (C++)", "EnvPool (C++), one thread"
SIMULATION = "mj_step, one core"
ENVPOOL: dict[str, tuple[str, dict[str, Any]]] = {
    "CartPole-v1": ("CartPole-v1", {}),
    "Blackjack-v1": ("Blackjack-v1", {}),
    "Pendulum-v1": ("Pendulum-v1", {}),
    "FrozenLake-v1": ("FrozenLake-v1", {}),
    **{
        name: (name, {})
        for name in ("HalfCheetah-v5", "Ant-v5", "Hopper-v5", "Humanoid-v5", "MountainCar-v0", "Acrobot-v1", "LunarLander-v3")
    },
    # The screens of ALE/Pong-v5, with the channels first; of each step's last two frames EnvPool always takes the larger.
    "ALE/Pong-v5": (
        "Pong-v5",
        {
            "img_height": 210, "img_width": 160, "gray_scale": False, "stack_num": 1, "frame_skip": 4, "noop_max": 1,
            "repeat_action_probability": 0.25, "use_fire_reset": False,
        },
    ),
}  # fmt: skip


def make_env(env_id: str) -> Any:
    import gymnasium

    if env_id.startswith("ALE/"):
        import ale_py

        gymnasium.register_envs(ale_py)
    return gymnasium.make(env_id, disable_env_checker=True)


def action_batches(env_id: str, num_envs: int) -> list[np.ndarray[Any, Any]]:
    """Random actions of the action space, ``BATCHES`` steps of them."""
    env = make_env(env_id)
    space = env.action_space
    space.seed(0)
    found = [np.stack([np.asarray(space.sample()) for _ in range(num_envs)]) for _ in range(BATCHES)]
    env.close()
    return found


class Block:
    """Some environments, stepped one after the other by a plain loop; what a Ray actor holds."""

    def __init__(self, env_id: str, first: int, count: int) -> None:
        self.envs = [make_env(env_id) for _ in range(count)]
        self.over = [False] * count
        for index, env in enumerate(self.envs):
            env.reset(seed=first + index)

    def step(self, actions: Any) -> None:
        """Step and forget what came out of it: what the environments themselves cost."""
        over = self.over
        for index, (env, action) in enumerate(zip(self.envs, actions, strict=True)):
            if over[index]:
                env.reset()
                over[index] = False
            else:
                _, _, terminated, truncated, _ = env.step(action)
                over[index] = terminated or truncated

    def batched(self, actions: Any) -> tuple[Any, ...]:
        """Step and give the batch: observations, rewards, terminations, truncations, and the infos that are not empty."""
        over = self.over
        count = len(over)
        rewards, ends, cuts = np.zeros(count), np.zeros(count, bool), np.zeros(count, bool)
        observations: list[Any] = []
        infos: dict[int, Any] = {}
        for index, (env, action) in enumerate(zip(self.envs, actions, strict=True)):
            if over[index]:
                observation, info = env.reset()
                over[index] = False
            else:
                observation, rewards[index], ends[index], cuts[index], info = env.step(action)
                over[index] = bool(ends[index] or cuts[index])
            observations.append(observation)
            if info:
                infos[index] = info
        return np.asarray(observations), rewards, ends, cuts, infos


class Loop(Contender):
    def __init__(self, env_id: str, num_envs: int, batches: list[Any]) -> None:
        self.block, self.batches, self.num_envs = Block(env_id, 0, num_envs), batches, num_envs

    def go(self, count: int) -> float:
        step, batches = self.block.step, self.batches
        for k in range(count):
            step(batches[k % BATCHES])
        return count * self.num_envs

    def close(self) -> None:
        for env in self.block.envs:
            env.close()


class Gymnasium(Contender):
    """Anything with Gymnasium's vector API."""

    def __init__(self, venv: Any, batches: list[Any], seed: bool = True) -> None:
        self.venv, self.batches, self.num_envs = venv, batches, len(batches[0])
        venv.reset(seed=0) if seed else venv.reset()

    def go(self, count: int) -> float:
        step, batches = self.venv.step, self.batches
        for k in range(count):
            step(batches[k % BATCHES])
        return count * self.num_envs

    def close(self) -> None:
        self.venv.close()


class StableBaselines(Contender):
    def __init__(self, env_id: str, num_envs: int, batches: list[Any]) -> None:
        from stable_baselines3.common.vec_env import SubprocVecEnv

        # "fork" starts in seconds where the default start method imports torch in every process; it steps the same.
        self.venv = SubprocVecEnv([partial(make_env, env_id)] * num_envs, start_method="fork")
        self.batches, self.num_envs = batches, num_envs
        self.venv.seed(0)
        self.venv.reset()

    def go(self, count: int) -> float:
        step, batches, resets = self.venv.step, self.batches, 0
        for k in range(count):
            resets += int(step(batches[k % BATCHES])[2].sum())
        return count * self.num_envs + resets

    def close(self) -> None:
        self.venv.close()


class Simulation(Contender):
    """``frame_skip`` times ``mj_step`` for each environment, and nothing else: the limit of one core."""

    def __init__(self, env_id: str, num_envs: int, batches: list[Any]) -> None:
        import mujoco

        self.step, self.batches, self.num_envs = mujoco.mj_step, batches, num_envs
        self.envs: list[Any] = [make_env(env_id).unwrapped for _ in range(num_envs)]
        for index, env in enumerate(self.envs):
            env.reset(seed=index)

    def go(self, count: int) -> float:
        step, frames = self.step, self.envs[0].frame_skip
        rows = [(env.model, env.data, env.data.ctrl) for env in self.envs]
        for k in range(count):
            for (model, data, ctrl), action in zip(rows, self.batches[k % BATCHES], strict=True):
                ctrl[:] = action
                step(model, data, frames)
        return count * self.num_envs

    def close(self) -> None:
        for env in self.envs:
            env.close()


class RayActors(Contender):
    """One actor per core with its environments batched inside, one ``ray.get`` a step.

    As Ray's documentation advises, a batch of actions goes through the object store once if it is large (over 100 kB); a small one
    is passed to each actor directly, which is faster.
    """

    def __init__(self, env_id: str, num_envs: int, batches: list[Any]) -> None:
        self.ray = start_ray()
        actors = min(cores(), num_envs)
        bounds = [num_envs * k // actors for k in range(actors + 1)]
        self.spans = list(pairwise(bounds))
        self.batches, self.num_envs, self.large = batches, num_envs, batches[0].nbytes > 100_000
        remote = self.ray.remote(num_cpus=1)(Block)
        self.actors = [remote.remote(env_id, lo, hi - lo) for lo, hi in self.spans]

    def go(self, count: int) -> float:
        ray, actors, spans = self.ray, self.actors, self.spans
        for k in range(count):
            batch = self.batches[k % BATCHES]
            if self.large:
                stored = ray.put(batch)
                sent = [actor.batched.remote(stored) for actor in actors]
            else:
                sent = [actor.batched.remote(batch[lo:hi]) for actor, (lo, hi) in zip(actors, spans, strict=True)]
            parts = ray.get(sent)
            for column in range(4):
                np.concatenate([part[column] for part in parts])
        return count * self.num_envs

    def close(self) -> None:
        self.ray.shutdown()


def our_env(env_id: str, num_envs: int, batches: list[Any]) -> Contender:
    from reactor_gymnasium import ReactorVectorEnv

    return Gymnasium(ReactorVectorEnv([partial(make_env, env_id)] * num_envs), batches)


def sync_env(env_id: str, num_envs: int, batches: list[Any]) -> Contender:
    from gymnasium.vector import SyncVectorEnv

    return Gymnasium(SyncVectorEnv([partial(make_env, env_id)] * num_envs), batches)


def async_env(env_id: str, num_envs: int, batches: list[Any]) -> Contender:
    from gymnasium.vector import AsyncVectorEnv

    return Gymnasium(AsyncVectorEnv([partial(make_env, env_id)] * num_envs, shared_memory=True), batches)


def pool_env(env_id: str, num_envs: int, batches: list[Any], threads: int) -> Contender:
    import envpool

    if env_id not in ENVPOOL or ENVPOOL[env_id][0] not in envpool.list_all_envs():
        raise NotImplementedError("EnvPool has no such environment")
    name, options = ENVPOOL[env_id]
    venv = envpool.make_gymnasium(name, num_envs=num_envs, num_threads=threads, seed=0, **options)
    dtype = np.int32 if np.issubdtype(batches[0].dtype, np.integer) else venv.action_space.dtype
    return Gymnasium(venv, [batch.astype(dtype) for batch in batches], seed=False)


def builders_of(env_id: str, num_envs: int) -> dict[str, Callable[[], Contender]]:
    batches = action_batches(env_id, num_envs)
    # Those that fork come first, before anything has started threads.
    kinds: dict[str, Callable[..., Contender]] = {
        "AsyncVectorEnv": async_env,
        "SubprocVecEnv (SB3)": StableBaselines,
        "bare loop, one core": Loop,
        "SyncVectorEnv": sync_env,
        OURS: our_env,
        POOL: partial(pool_env, threads=cores()),
        POOL_OF_ONE: partial(pool_env, threads=1),
        RAY: RayActors,
    }
    if env_id.startswith("HalfCheetah"):  # whose episodes end by nothing but their limit
        kinds[SIMULATION] = Simulation
    if num_envs > MOST_PROCESSES:
        kinds = {name: kind for name, kind in kinds.items() if kind not in (async_env, StableBaselines)}
    return {name: partial(kind, env_id, num_envs, batches) for name, kind in kinds.items()}


def measure(case: str, options: argparse.Namespace) -> dict[str, Any]:
    env_id, _, size = case.partition(" x ")
    builders = chosen(builders_of(env_id, int(size)), options)
    slices = {"rounds": rounds_of(options), "seconds": seconds_of(options)}
    # Ray's servers keep working while others are timed: it has a turn of its own, beside ours, after everybody else's.
    figures = interleaved({name: build for name, build in builders.items() if name != RAY}, **slices)
    found = figures.as_json(OURS)
    if RAY in builders:
        beside_ray = interleaved({OURS: builders[OURS], RAY: builders[RAY]}, **slices).as_json(OURS)
        found["skipped"] |= beside_ray["skipped"]
        if RAY in beside_ray["rates"]:
            found["rates"][RAY], found["ratios"][RAY] = beside_ray["rates"][RAY], beside_ray["ratios"][RAY]
            found["ours_beside_ray"] = beside_ray["rates"][OURS]
    if POOL in figures.rates and POOL_OF_ONE in figures.rates:
        _keep_the_faster_pool(found)
    if SIMULATION in figures.rates:
        found["of_simulation"] = {key: value / cores() for key, value in figures.ratio(OURS, SIMULATION).items()}
    loop = "bare loop, one core"
    if loop in figures.rates and OURS in figures.rates:
        limit = figures.ratio(OURS, loop)
        found["of_limit"] = {key: value / cores() for key, value in limit.items()}
    return found


def _keep_the_faster_pool(found: dict[str, Any]) -> None:
    """Have the faster of both EnvPools be the rival, and the other one by itself."""
    rates, ratios = found["rates"], found["ratios"]
    one = rates[POOL_OF_ONE]["median"] > rates[POOL]["median"]
    if one:
        for of_both in (rates, ratios):
            of_both[POOL], of_both[POOL_OF_ONE] = of_both[POOL_OF_ONE], of_both[POOL]
    found["pool"] = {"threads": 1 if one else cores(), "other": {"rate": rates.pop(POOL_OF_ONE), "ratio": ratios.pop(POOL_OF_ONE)}}


def show(name: str, found: dict[str, Any]) -> None:
    rows = rate_rows(found, OURS)
    if "of_limit" in found:
        limit = found["of_limit"]
        rows.append([f"ours / ({cores()} x bare loop)", "", f"{limit['median']:.2f}", f"{limit['min']:.2f}-{limit['max']:.2f}"])
    if "of_simulation" in found:
        limit = found["of_simulation"]
        rows.append([f"ours / ({cores()} x mj_step)", "", f"{limit['median']:.2f}", f"{limit['min']:.2f}-{limit['max']:.2f}"])
    print_table(name, ["contender", "steps", "ours is", "min-max"], rows)


def main() -> None:
    names = [f"{env_id} x {size}" for env_id in ENVIRONMENTS for size in SIZES]
    panels = names[2::3]
    names += [f"{env_id} x {size}" for size, env_ids in SPECIAL.items() for env_id in env_ids]
    label = "steps per second"
    benchmark(__file__, arguments(__doc__).parse_args(), names, measure, show, "Vector environments", label, panels=panels)


if __name__ == "__main__":
    main()
