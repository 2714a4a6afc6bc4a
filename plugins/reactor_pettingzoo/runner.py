"""``MultiAgentRunner``: many agents in many copies of an environment, with one call of each policy a tick."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import numpy.typing as npt

from reactor_gymnasium.arguments import checked_executor, checked_number
from reactor_pettingzoo.assignment import assigned
from reactor_pettingzoo.census import MASK, Agent, Census, EnvFn
from reactor_pettingzoo.choice import choose
from reactor_pettingzoo.copy_shard import BEGIN, CopyShard, Ended, Told
from reactor_pettingzoo.inference import Group, Inference, groups_of
from reactor_pettingzoo.progress import progress, write_movie
from reactor_pettingzoo.report import Episode, Report
from reactor_rl import Program
from reactor_rl.autotune import usable_cores
from reactor_rl.fingerprint import new_hash
from reactor_rl.serialise import encode

if TYPE_CHECKING:
    from reactor_rl.program import ExecutorName
    from reactor_rl.runtime.run import Run
    from reactor_rl.trace import Tracing

__all__ = ["MultiAgentRunner"]

Array = npt.NDArray[Any]
STRETCH = 0.2
"""Seconds after which the shards tell what has happened."""
MOST_TICKS = 4096


class MultiAgentRunner:
    """Lets policies act for the agents of a PettingZoo environment, in many copies of it at once, on all cores.

    At each tick every copy takes a step, in shards on the workers, and every policy is called once for all the rows that it acts
    for, in a fixed order and of a fixed number. Networks of equal architecture (linear layers and activations in a
    ``torch.nn.Sequential``, SB3's ``MlpPolicy``) are stacked and evaluated together. Results never depend on ``workers`` and
    ``executor``.

    Args:
        env_fn: Makes one environment, a ``ParallelEnv`` or an ``AECEnv``.
        policies: By name. A ``torch.nn.Module`` gets a batch of observations (for observations with an ``action_mask`` the part
            besides it) and returns for discrete actions their scores, unnormalised log-probabilities of shape ``(batch,
            actions)``, for continuous ones the actions, or for either a ``torch.distributions`` distribution. An SB3 model acts
            as it has learned to. A :class:`RandomPolicy` acts at random. A function is called with a batch of observations, and
            with the action masks if there are any, and returns actions. Policies are copied when the runner is made.
        policy_of: The name of an agent's policy. By default the agent's own name, or the only policy that there is.
        num_envs: Copies of the environment.
        workers: Number of workers, the calling thread included; ``None`` for the cores that this process may use.
        executor: ``"inline"``, ``"threads"``, ``"processes"``, or ``"auto"``, which times a throw-away environment and chooses.
        deterministic: Whether the best action is taken (the default), or one drawn from the policy's distribution. Each
            environment and agent has a random stream of its own.
        start_method: How helper processes start: ``"forkserver"``, ``"spawn"`` or ``"fork"``.

    Raises:
        TypeError: If ``env_fn`` makes no PettingZoo environment, or a policy is none.
        ValueError: If an agent has no policy, a policy acts for agents whose spaces differ or that it was not made for.

    Example:
        >>> from mpe2 import simple_spread_v3
        >>> from reactor_pettingzoo import MultiAgentRunner, RandomPolicy
        >>> with MultiAgentRunner(simple_spread_v3.parallel_env, {"all": RandomPolicy()}, num_envs=4, workers=2) as runner:
        ...     report = runner.run(episodes=8, seed=0, progress_bar=False)
        >>> len(report.episodes)
        8
    """

    def __init__(
        self,
        env_fn: EnvFn,
        policies: Mapping[str, Any],
        *,
        policy_of: Callable[[Agent], str] | None = None,
        num_envs: int = 1,
        workers: int | None = None,
        executor: ExecutorName = "auto",
        deterministic: bool = True,
        start_method: str | None = None,
    ) -> None:
        checked_number("num_envs", num_envs, 1)
        census = Census.of(env_fn)
        names = assigned(census, policies, policy_of)
        self._open(env_fn, census, policies, [names] * num_envs, workers, executor, deterministic, start_method)
        self.policy_of = names

    def _open(
        self,
        env_fn: EnvFn,
        census: Census,
        policies: Mapping[str, Any],
        acts: list[dict[Agent, str]],
        workers: int | None,
        executor: ExecutorName,
        deterministic: bool,
        start_method: str | None,
    ) -> None:
        self._run: Run | None = None
        checked_executor(executor)
        if workers is not None:
            checked_number("workers", workers, 1)
        self.census, self.num_envs = census, len(acts)
        groups = self._groups = groups_of(census, len(acts), dict(policies), acts, deterministic)
        most = min(workers or usable_cores(), max(len(acts), 1))
        chosen, count, self._why = choose(env_fn, census, len(acts), most, executor)
        program, placement = self._program(encode(env_fn), groups, count)
        self._run = program.start(
            executor=chosen, workers=count, context=start_method, placement=placement, fingerprint="off", spin=1e-3
        )

    def _program(self, env_fn: Any, groups: list[Group], workers: int) -> tuple[Program, dict[str, int]]:
        """Shards of copies -> a reactor for each group of policies -> the shards, a tick later."""
        census, copies = self.census, self.num_envs
        program = Program(f"{census.name} x {copies}")
        placement = {}
        width = -(-max(group.width for group in groups) // 8) * 8
        begin, report = program.input("begin", (), BEGIN), program.input("report")
        inferences = []
        for number, group in enumerate(groups):
            name = f"policies[{', '.join(group.names)}]"
            inferences.append(program.add(Inference, group, census, width, name=name))
            placement[name] = number % workers
            program.connect(begin, inferences[-1].begin)
        source = np.full((copies, len(census.agents)), -1, np.int64)
        for number, group in enumerate(groups):
            source[group.answers >= 0] = number
        cuts = [copies * worker // workers for worker in range(workers + 1)]
        told = program.output("told")
        for worker, (lo, hi) in enumerate(pairwise(cuts)):
            name = f"environments[{lo}:{hi}]"
            shard = program.add(CopyShard, env_fn, lo, hi - lo, census, groups, source[lo:hi], name=name)
            placement[name] = worker
            program.connect(begin, shard.begin)
            program.connect(report, shard.report)
            program.connect(shard.told, told.rows[worker])
            for number, inference in enumerate(inferences):
                program.connect(shard.observations, inference.observations.rows[lo:hi])
                program.connect(inference.actions, shard.actions.rows[number], after=1)
        return program, placement

    # ------------------------------------------------------------------ running

    def run(
        self,
        steps: int | None = None,
        *,
        episodes: int | None = None,
        seed: int | None = None,
        record: bool = False,
        progress_bar: bool = True,
    ) -> Report:
        """Play from new episodes on. The same seed gives the same results, on any number of workers.

        Args:
            steps: Steps to take in all copies together; every copy takes the same number. Where agents take turns, an action is
                a step.
            episodes: In its place: episodes to play in all copies together, each copy its share (so that short episodes are not
                preferred to long ones).
            seed: Copy ``i`` is reset with ``seed + i`` once, at the beginning. ``None`` for one that the report tells.
            record: Whether to keep what was seen and done: ``acted`` (whether an agent acted, ``(ticks, copies, agents)``),
                ``rewards`` (likewise), and for each block of agents with equal spaces ``agents.b``, ``observations.b``
                and ``actions.b``, ``(ticks, copies, agents of the block, ...)``; a single row where agents take turns, ``acting``
                telling whose turn it was.
            progress_bar: Whether to show one, if it takes longer than a second. Needs tqdm.

        Raises:
            ValueError: If neither or both of ``steps`` and ``episodes`` are given.
            Exception: What an environment or a policy raised.
        """
        if (steps is None) == (episodes is None):
            raise ValueError("give either steps= or episodes=")
        checked_number("steps" if episodes is None else "episodes", steps if episodes is None else episodes, 1)
        if seed is None:
            entropy: Any = np.random.SeedSequence().entropy
            seed = int(entropy) % 2**31
        limit = math.inf if steps is None else -(-steps // self.num_envs)
        began = time.perf_counter()
        found = self._play(limit, episodes or 0, seed, record, progress_bar, steps or episodes or 0)
        seconds = time.perf_counter() - began
        return Report(
            seed=seed,
            steps=sum(one.steps for told in found for one in told),
            seconds=seconds,
            episodes=tuple(self._episode(one) for one in _in_order(found)),
            policy_of=self.policy_of,
            fingerprint=_fingerprint(found),
            trajectories=self._trajectories(found) if record else {},
        )

    def render(self, path: str | Path, *, steps: int = 500, seed: int = 0, fps: float | None = None) -> None:
        """Play one episode of the first copy, as :meth:`run` would, and write what it renders to a GIF or MP4.

        Args:
            path: ``.gif``, or ``.mp4`` (which needs imageio's ``ffmpeg`` extra).
            steps: Most steps to take.
            seed: As for :meth:`run`.
            fps: Frames per second; by default what the environment's metadata says, else 15.

        Raises:
            ValueError: If the environment renders no frames: make it with ``render_mode="rgb_array"``.
        """
        frames: list[Array] = []
        for told in self._ticks(0, seed, False, [1] * steps, render=True):
            first = told[0]
            frames += first.frames
            if any(one.copy == 0 for one in first.episodes):
                break
        if any(not isinstance(frame, np.ndarray) for frame in frames):
            raise ValueError('the environment renders no frames; make it with render_mode="rgb_array"')
        write_movie(path, frames, fps or self.census.fps)

    def _play(self, ticks: float, episodes: int, seed: int, record: bool, progress_bar: bool, total: int) -> list[list[Told]]:
        """Run ticks in stretches, after each of which the shards tell what has happened. How long those are changes nothing."""
        found = []
        with progress(total, "episode" if episodes else "step", shown=progress_bar) as advance:
            for told in self._ticks(episodes, seed, record, _stretches(ticks)):
                found.append(told)
                advance(sum(len(one.episodes) for one in told) if episodes else sum(one.steps for one in told))
                if not sum(one.busy for one in told):
                    break
        return found

    def _ticks(
        self, episodes: int, seed: int, record: bool, stretches: Iterable[int], render: bool = False
    ) -> Iterator[list[Told]]:
        """Begin a run, and give what each shard tells after every stretch of ticks."""
        run = self._running()
        run.set(begin=np.array((seed, episodes, self.num_envs, record), BEGIN))
        run.tick()
        for ticks in stretches:
            if ticks > 1:
                run.run(ticks=ticks - 1)
            run.set(report=render)
            run.tick()
            yield run.values("told")

    # ------------------------------------------------------------------ what came of it

    def _episode(self, ended: Ended) -> Episode:
        took_part = [(agent, at) for at, agent in enumerate(self.census.agents) if ended.lengths[at]]
        return Episode(
            ended.copy,
            {agent: ended.returns[at] for agent, at in took_part},
            {agent: ended.lengths[at] for agent, at in took_part},
        )

    def _trajectories(self, found: list[list[Told]]) -> dict[str, Array]:
        def joined(name: str) -> Array:
            return np.concatenate([np.concatenate([one.log[name] for one in told], 1) for told in found])

        seen = joined("seen")
        arrays = {"acted": joined("acted"), "rewards": joined("rewards")}
        if self.census.turns:
            arrays["acting"] = seen["acting"]
        for block in self.census.blocks:
            arrays[f"agents.{block.number}"] = np.array([str(agent) for agent in block.agents])
            for key in block.parts:
                name = f"observations.{block.number}" + (f".{key}" if key else "")
                arrays[name] = np.ascontiguousarray(seen[block.field(f"observation.{key}")])
            if block.mask:
                arrays[f"masks.{block.number}"] = np.ascontiguousarray(seen[block.field(MASK)])
            # Where one group of policies does not act, there are zeros.
            groups = [number for number, group in enumerate(self._groups) if group.block.number == block.number]
            arrays[f"actions.{block.number}"] = sum(joined(f"actions.{number}") for number in groups)  # type: ignore[assignment]
        return arrays

    # ------------------------------------------------------------------ looking at it, and the end

    def draw(self, path: str | None = None, *, format: Literal["mermaid", "dot", "svg"] | None = None) -> str:
        """The program behind it as a picture; see :meth:`reactor_rl.Program.draw`."""
        return self._running().draw(path, format=format)

    def trace(self, path: str) -> AbstractContextManager[Tracing]:
        """Record what each worker does: ``with runner.trace("trace.json"): runner.run(...)`` writes a file for Perfetto."""
        return self._running().trace(path)

    @property
    def workers(self) -> int:
        """Number of workers, the calling thread included."""
        return self._running().workers

    @property
    def executor(self) -> str:
        """Name of the executor."""
        return self._running().executor

    def _running(self) -> Run:
        if self._run is None:
            raise RuntimeError("this MultiAgentRunner has been closed; make a new one")
        return self._run

    def close(self) -> None:
        """Close the environments and end the workers. May be called again."""
        run, self._run = self._run, None
        if run is not None:
            run.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        run = getattr(self, "_run", None)
        if run is not None and not run.foreign:
            run.close(terminate=True)

    def __repr__(self) -> str:
        how = "closed" if self._run is None else f"executor={self.executor!r}, workers={self.workers}"
        why = f" [{self._why}]" if self._why else ""
        agents = f"{len(self.census.agents)} agents"
        return f"{type(self).__name__}({self.census.name}, {agents}, num_envs={self.num_envs}, {how}{why})"


def _stretches(ticks: float) -> Iterator[int]:
    """Numbers of ticks that add up, each chosen so that it takes about a fifth of a second."""
    some = 16
    while ticks > 0:
        some = int(min(some, ticks))
        began = time.perf_counter()
        yield some
        ticks -= some
        if time.perf_counter() - began < STRETCH / 2:
            some = min(2 * some, MOST_TICKS)


def _in_order(found: list[list[Told]]) -> list[Ended]:
    """Episodes by their ends; at one tick, by environment."""
    return sorted((one for told in found for shard in told for one in shard.episodes), key=lambda one: (one.step, one.copy))


def _fingerprint(found: list[list[Told]]) -> str:
    """The hashes that the shards have at the end, in the order of the environments."""
    total = new_hash()
    for shard in found[-1]:
        for digest in shard.digests:
            total.update(digest)
    return str(total.hexdigest())
