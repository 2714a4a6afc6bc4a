"""The program of an evaluation: shards of environments, and who gives them episodes, by ticks alone."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from reactor_gymnasium.environments.player import EndedEpisode
from reactor_gymnasium.environments.storage import ObservationLayout
from reactor_gymnasium.evaluation.asking import Asking
from reactor_gymnasium.evaluation.choosing import Chosen
from reactor_gymnasium.evaluation.policies import PolicyContext
from reactor_gymnasium.evaluation.shard import STEPS, AskingShard, ToldShard
from reactor_gymnasium.registry import repeat_registrations
from reactor_rl import Program
from reactor_rl.plugin import encode, one_numeric_thread

if TYPE_CHECKING:
    from reactor_rl import Run
    from reactor_rl.plugin import Execution

__all__ = ["EpisodeProgram"]

LONG = 100_000
"""Steps of each environment in which no episode ends, after which the user is told of ``max_steps``: about the longest limit of an
Atari game (108,000 frames) in steps of one frame.
"""


class EpisodeProgram:
    """A running program whose environments play episodes.

    Args:
        make: What makes an environment, encoded.
        num_envs: How many there are.
        context: What policies act in.
        max_steps: After how many steps an episode is cut off; ``None`` for never.
        execution: Where it runs, with the workers and the executor that were chosen.
        in_workers: Whether workers ask the policy, or the caller.
    """

    def __init__(
        self,
        make: Any,
        num_envs: int,
        context: PolicyContext,
        max_steps: int | None,
        execution: Execution,
        in_workers: bool,
    ) -> None:
        workers = execution.workers or 1
        self.num_envs, self.in_workers, self.max_steps = num_envs, in_workers, max_steps
        self.layout = ObservationLayout(context.observation_space, "unsafe")
        self.since = 0  # steps since an episode has ended
        program = Program(f"evaluation in {num_envs}")
        program.worker_setup(repeat_registrations())
        cuts = [num_envs * shard // workers for shard in range(workers + 1)]
        self.sizes = [hi - lo for lo, hi in pairwise(cuts)]
        outputs = {} if in_workers else {"playing": program.output("playing")}
        if not in_workers and self.layout.arrays:
            outputs["observations"] = program.output("observations")
        placement = {}
        for number, (lo, hi) in enumerate(pairwise(cuts)):
            name = f"environments[{lo}:{hi}]"
            placement[name] = number
            shard = program.add(
                AskingShard if in_workers else ToldShard, (make,) * (hi - lo), lo, self.layout, context.action_space, max_steps,
                name=name,
            )  # fmt: skip
            for port in ("begin", "episodes"):
                program.connect(program.input(f"{port}_{number}"), getattr(shard, port))
            program.connect(shard.done, program.output(f"done_{number}"))
            if not in_workers:
                program.connect(program.input(f"actions_{number}"), shard.actions)
                for port, output in outputs.items():
                    program.connect(getattr(shard, port), output.rows[lo:hi])
                for port in ("objects", "masks"):
                    program.connect(getattr(shard, port), program.output(f"{port}_{number}"))
        self.cuts = cuts
        self.run: Run = program.start(
            executor=execution.executor, workers=workers, start_method=execution.start_method, fingerprint="off",
            placement=placement, timeout=execution.timeout,
        )  # fmt: skip

    def play(self, chosen: Chosen, seed: int, episodes: Iterable[int], ended: Callable[[Sequence[EndedEpisode]], object]) -> None:
        """Play episodes.

        Args:
            chosen: The policy, and how it is asked.
            seed: Of the evaluation.
            episodes: Their numbers.
            ended: Called after each tick with those that have ended.

        Raises:
            Exception: What an environment or the policy raised.
            WorkerDiedError: If a worker died.
            WorkerHungError: If one did not finish a tick in time.
        """
        policy = encode(chosen.policy) if self.in_workers else None
        begin: Any = (seed, policy, chosen.batch, chosen.policy.masked)
        self.run.set(**{f"begin_{number}": begin for number in range(len(self.sizes))})
        dealer = _Dealer(deque(episodes), self.sizes)
        if self.in_workers:
            while dealer.busy:
                self._tick(dealer, ended)
        else:
            with one_numeric_thread():
                self._tell(chosen, seed, dealer, ended)

    def _tick(self, dealer: _Dealer, ended: Callable[[Sequence[EndedEpisode]], object]) -> None:
        run = self.run
        given = dealer.deal()
        run.set(**{f"episodes_{number}": numbers for number, numbers in given.items()})
        run.tick()
        before, self.since = self.since, self.since + (STEPS if self.in_workers else 1)
        for number in given:
            done = run.values(f"done_{number}")[0]
            dealer.count(number, len(done))
            ended(done)
            if done:
                self.since = 0
        if before < LONG <= self.since and self.max_steps is None:
            warnings.warn(
                f"no episode has ended in {LONG:,} steps of each environment: pass max_steps= if they never end", UserWarning,
                stacklevel=6,
            )  # fmt: skip

    def _tell(self, chosen: Chosen, seed: int, dealer: _Dealer, ended: Callable[[Sequence[EndedEpisode]], object]) -> None:
        """Play, with a policy that is asked here."""
        run = self.run
        asking = Asking(chosen.policy, chosen.batch, self.layout, self.num_envs, seed)
        if asking.rows is not None:
            seen = run.view("observations")
        playing = run.view("playing")
        objects: list[Any] = [()] * self.num_envs
        masks: list[Any] = [None] * self.num_envs
        self._tick(dealer, ended)
        while dealer.busy:
            asking.follow([None if number < 0 else number for number in playing.tolist()])
            if asking.rows is not None:
                asking.rows[...] = seen
            for number, (lo, hi) in enumerate(pairwise(self.cuts)):
                for port, kept in (("objects", objects), ("masks", masks)):
                    if found := run.values(f"{port}_{number}"):
                        kept[lo:hi] = found[0]
            actions = asking(objects if self.layout.objects else None, masks if chosen.policy.masked else None)
            for number, (lo, hi) in enumerate(pairwise(self.cuts)):
                if dealer.load[number]:
                    run.set(**{f"actions_{number}": actions[lo:hi].copy()})
            self._tick(dealer, ended)


class _Dealer:
    """Deals episodes to shards, in order, by what they have finished: the same every time, whatever anything takes.

    Args:
        left: Numbers of episodes that are to be dealt.
        sizes: How many rows each shard has.

    Attributes:
        load: How many episodes each shard has, those that wait included.
    """

    def __init__(self, left: deque[int], sizes: Sequence[int]) -> None:
        self.left, self.sizes = left, sizes
        self.load, self.finished = [0] * len(sizes), [0] * len(sizes)

    @property
    def busy(self) -> bool:
        """Whether there is something to play."""
        return bool(self.left) or any(self.load)

    def deal(self) -> dict[int, list[int]]:
        """The numbers for each shard that has, or gets, something to play.

        Besides those for its rows a shard gets some that wait, as many as it has finished last, lest a row stand idle within a
        tick; towards the end fewer, lest others stand idle then.
        """
        given: dict[int, list[int]] = {number: [] for number, load in enumerate(self.load) if load}
        spare = len(self.left) // (2 * len(self.sizes))
        wanted = [size + min(done, spare) for size, done in zip(self.sizes, self.finished, strict=True)]
        while self.left:
            room = [(self.load[at] / self.sizes[at], at) for at in range(len(wanted)) if self.load[at] < wanted[at]]
            if not room:
                break
            number = min(room)[1]
            given.setdefault(number, []).append(self.left.popleft())
            self.load[number] += 1
        return given

    def count(self, number: int, done: int) -> None:
        """A shard has finished so many."""
        self.load[number] -= done
        self.finished[number] = done
