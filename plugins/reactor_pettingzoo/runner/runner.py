"""``MultiAgentRunner``: many agents in many copies of an environment, with one call of each policy a step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reactor_gymnasium.plugin import FILM_SUFFIXES, Film, check_encoder, checked_fps, checked_number, new_file
from reactor_pettingzoo.agents import EnvFn, probe_agents
from reactor_pettingzoo.reading import AgentID
from reactor_pettingzoo.runner.multi_agent_program import MultiAgentProgram, RunLog
from reactor_pettingzoo.runner.policies import assigned
from reactor_pettingzoo.runner.report import Episode, Report
from reactor_pettingzoo.runner.shard_log import EpisodeRecord
from reactor_pettingzoo.runner.shards import RunSeeds
from reactor_rl.plugin import Execution

if TYPE_CHECKING:
    from reactor_rl.plugin import ExecutorName

__all__ = ["MultiAgentRunner", "checked_seed"]

Array = npt.NDArray[Any]


class MultiAgentRunner(MultiAgentProgram):
    """Lets policies act for the agents of a PettingZoo environment, in many copies of it at once, on all cores.

    Every copy takes a step, in shards on the workers, and every policy is called once for all the rows that it acts for, in a
    fixed order and of a fixed number. Networks of one kind (dense layers in a ``torch.nn.Sequential``, SB3's ``MlpPolicy`` of any
    algorithm) are evaluated together; if all policies are networks that the extension evaluates, or random ones, each worker asks
    them for its own copies, as what they answer for a row depends on no other row. Results never depend on ``workers`` and
    ``executor``.

    Args:
        env_fn: Makes one environment, a ``ParallelEnv`` or an ``AECEnv``.
        policies: Policies by name, or a single one for all agents. A ``torch.nn.Module`` gets a batch of observations, those in a
            ``Box`` in its own precision (of observations with an ``action_mask`` the part besides it), and returns for discrete
            actions their scores, unnormalised log-probabilities of shape ``(batch, actions)``, for continuous ones the actions, or
            for either a ``torch.distributions`` distribution. An SB3 model acts as it has learned to; one whose environment is a
            ``VecNormalize`` sees what that makes of observations now. A :class:`RandomPolicy` acts at random. A function is called
            with a batch of observations, and with the action masks if there are any, and returns actions. Policies are copied when
            the runner is made.
        policy_of: From an agent to the name of its policy, a function or a dict. By default its own name, also as a string (such as
            ``SyncIPPO`` has for agents that are numbers), or the only policy that there is.
        num_envs: Copies of the environment.
        workers: Number of workers, the calling thread included; ``None`` for the cores that this process may use.
        executor: ``"inline"``, ``"threads"``, ``"processes"``, or ``"auto"``, which times a throw-away environment and chooses.
            ``"ray"`` is for several machines.
        nodes: With ``"ray"``: how many machines of a Ray cluster, this one included, or a ``reactor_ray.RayNodes``; ``None`` for
            all of them. ``workers`` is then the number of workers on each.
        deterministic: Whether the best action is taken (the default), or one drawn from the policy's distribution. Each
            environment and agent has a random stream of its own; what torch draws, for a module that returns a distribution, say,
            comes from a stream of the policy's.
        start_method: How helper processes start: ``"forkserver"``, ``"spawn"`` or ``"fork"``.
        restarts: How often worker processes that die are replaced, with the same results; see :class:`reactor_rl.Recover`.
            The environment is tried with two that are thrown away, and must do the same after the same seed and actions; so must
            the policies, which are not tried.
        timeout: Seconds that the caller waits for a worker process at most, in which its copies take up to 16 steps. After
            that it is a :class:`reactor_rl.WorkerHungError` that names them, or, with ``restarts``, the worker is replaced. The
            copies in the calling process are not timed.

    Raises:
        TypeError: If ``env_fn`` makes something else than a PettingZoo environment, actions are neither numbers nor arrays, or a
            policy cannot be asked or remembers what it has seen.
        ValueError: If an agent has no policy, a policy acts for agents whose spaces differ or that it was not made for, or there
            are ``restarts`` and the environment could not be brought back.
        ProgramError: If ``env_fn`` cannot be pickled.

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
        policies: Mapping[str, Any] | Any,
        *,
        policy_of: Callable[[AgentID], str] | Mapping[AgentID, str] | None = None,
        num_envs: int = 1,
        workers: int | None = None,
        executor: ExecutorName = "auto",
        nodes: Any = None,
        deterministic: bool = True,
        start_method: str | None = None,
        restarts: int = 0,
        timeout: float | None = None,
    ) -> None:
        checked_number("num_envs", num_envs, 1)
        num_envs = int(num_envs)
        execution = Execution(
            workers=workers, executor=executor, nodes=nodes, start_method=start_method, restarts=restarts, timeout=timeout
        )
        specs = probe_agents(env_fn)
        policies, names = assigned(specs, policies, policy_of)
        super().__init__(env_fn, specs, policies, [names] * num_envs, RunSeeds(range(num_envs)), deterministic, execution)
        self.policy_of = names

    # ------------------------------------------------------------------ running

    def run(
        self,
        steps: int | None = None,
        *,
        episodes: int | None = None,
        seed: int | None = None,
        record: bool = False,
        progress_bar: bool | None = None,
    ) -> Report:
        """Play from new episodes on. The same seed gives the same results, on any number of workers.

        Args:
            steps: Steps to take in all copies together; every copy takes the same number. Where agents take turns, an action is
                a step.
            episodes: In its place: episodes to play in all copies together, each copy its share (so that short episodes are not
                preferred to long ones).
            seed: Copy ``i`` is reset with ``seed + i`` once, at the beginning. ``None`` for one that the report tells.
            record: Whether to keep what was seen and done, as arrays ``(ticks, copies, ...)``: ``acted`` (whether an agent acted,
                by agent), ``rewards`` (likewise), ``ends`` (whether the episode ended with that step); for each group ``b`` of
                agents with equal spaces (``agents.b`` names them) ``observations.b`` and ``actions.b``, by agent of the group.
                Where agents take turns a group has a single row, and ``acting`` tells whose turn it was.
            progress_bar: Whether to show one, if it takes longer than a second. By default on a terminal and in notebooks, and not
                where the output goes to a file. Needs tqdm.

        Raises:
            ValueError: If neither or both of ``steps`` and ``episodes`` are given, or a number is not a whole one, or too small.
            ValueError: If a policy answers something that is no action, or numbers that are not finite.
            Exception: What an environment or a policy raised.
        """
        if (steps is None) == (episodes is None):
            raise ValueError("give either steps= or episodes=")
        name, total = ("steps", steps) if episodes is None else ("episodes", episodes)
        checked_number(name, total, 1)
        seed, total = checked_seed(seed), int(total or 0)
        limit = math.inf if steps is None else -(-total // self.num_envs)
        played = self._play(limit, 0 if episodes is None else total, seed, record, progress_bar, total)
        return Report(
            seed=seed,
            steps=played.steps,
            seconds=played.seconds,
            episodes=tuple(self._episode(one) for one in played.episodes),
            policy_of=self.policy_of,
            fingerprint=played.fingerprint,
            trajectories=self._trajectories(played) if record else {},
        )

    def render(self, path: str | Path, *, steps: int = 500, seed: int = 0, fps: float | None = None) -> None:
        """Play one episode of the first copy, as :meth:`run` would, and write what it renders to a GIF or MP4.

        Args:
            path: ``.gif`` or ``.mp4`` (H.264).
            steps: Most steps to take.
            seed: As for :meth:`run`.
            fps: Frames per second; by default what the environment's metadata says, else 15. In a GIF at most 50.

        Raises:
            ValueError: If the environment renders no frames (make it with ``render_mode="rgb_array"``), a number makes no sense, or
                the path has another ending. Nothing is written then.
            TypeError: If frames are no arrays of shape ``(height, width, 3)`` and dtype uint8.
            ModuleNotFoundError: If films cannot be written.
        """
        checked_number("steps", steps, 1)
        seed, suffix = checked_seed(seed), Path(path).suffix.lower()
        if suffix not in FILM_SUFFIXES:
            raise ValueError(f"path must end with {' or '.join(FILM_SUFFIXES)}, got {str(path)!r}")
        check_encoder("MultiAgentRunner.render")
        self._running()
        with self._guard, Film(new_file(path), suffix, checked_fps(fps or self.specs.fps, "fps")) as film:
            for results in self._ticks(0, seed, False, [1] * int(steps), render=True):
                for frame in results[0].frames:
                    if not isinstance(frame, np.ndarray):
                        raise ValueError('the environment renders no frames; make it with render_mode="rgb_array"')
                    film.add(frame)
                if any(one.copy == 0 for one in results[0].episodes):
                    break

    # ------------------------------------------------------------------ what came of it

    def _episode(self, ended: EpisodeRecord) -> Episode:
        took_part = [(agent, at) for at, agent in enumerate(self.specs.agents) if ended.present[at]]
        return Episode(
            ended.copy,
            {agent: ended.returns[at] for agent, at in took_part},
            {agent: ended.lengths[at] for agent, at in took_part},
        )

    def _trajectories(self, played: RunLog) -> dict[str, Array]:
        seen = played.log("seen")
        arrays = {name: played.log(name) for name in ("acted", "rewards", "ends")}
        if self.specs.turns:
            arrays["acting"] = seen["acting"]
        for group in self.specs.groups:
            arrays[f"agents.{group.number}"] = np.array([str(agent) for agent in group.agents])
            for key in group.parts:
                name = f"observations.{group.number}" + ("" if group.single else f".{key}")
                arrays[name] = np.ascontiguousarray(seen[group.field(f"observation.{key}")])
            masks = group.masks(seen)
            if masks is not None:
                arrays[f"masks.{group.number}"] = np.ascontiguousarray(masks)
            # Where one group of policies does not act, there are zeros.
            groups = [number for number, asked in enumerate(self._groups) if asked.agent_group.number == group.number]
            arrays[f"actions.{group.number}"] = sum(played.log(f"actions.{number}") for number in groups)
        return arrays


def checked_seed(seed: int | None) -> int:
    """A seed as a plain number; for ``None`` one from the system's entropy.

    Raises:
        ValueError: If it is not a whole number from 0 on, or has more than 63 bits.
    """
    if seed is None:
        entropy: Any = np.random.SeedSequence().entropy
        return int(entropy) % 2**31
    checked_number("seed", seed, 0)
    if seed >= 2**63:
        raise ValueError(f"`seed` must be below 2**63, got {seed}.")
    return int(seed)
