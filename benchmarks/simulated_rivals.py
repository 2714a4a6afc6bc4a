"""A step of a vector environment on any number of cores, on paper: with a process and a pipe for each environment, and with actors.

The caller sends one message after the other and takes one answer after the other; what lies between runs on the cores there are.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from simulation import Tick

__all__ = ["Actors", "Pipes", "actors_step", "pipes_step"]


@dataclass(frozen=True)
class Pipes:
    """What a pipe for each environment costs, in seconds (``AsyncVectorEnv``, ``SubprocVecEnv``).

    Attributes:
        fixed: The caller, for each step.
        send: The caller, for each message.
        take: The caller, for each answer.
        child: The other process, for each step, beside the environment's own: wake up, unpickle, write, pickle, answer, sleep.
        rise: From the end of a write until the reader goes on.
    """

    fixed: float
    send: float
    take: float
    child: float
    rise: float


def pipes_step(costs: Pipes, environment: float, num_envs: int, cores: int) -> Tick:
    """One process for each environment, on ``cores`` cores, one of which is the caller's while it sends."""
    sent = [costs.fixed + costs.send * (index + 1) for index in range(num_envs)]
    free = [sent[-1], *[0.0] * (cores - 1)]  # when each core is free
    done = []
    for at in sent:
        end = max(heapq.heappop(free), at + costs.rise) + costs.child + environment
        heapq.heappush(free, end)
        done.append(end)
    now = sent[-1]
    for end in done:
        now = max(now, end + costs.rise if end > now else now) + costs.take
    own = costs.fixed + num_envs * (costs.send + costs.take)
    # Its answers are taken on one of these cores, too: no step is shorter than all the work divided by the cores.
    return Tick(max(now, (own + num_envs * (costs.child + environment)) / cores), own)


@dataclass(frozen=True)
class Actors:
    """What actors cost that hold a share of the environments each, in seconds (Ray).

    Attributes:
        call: The caller, for each call.
        take: The caller, for each answer.
        answer: From the end of a call until its answer is there, if the actor has nothing to do.
        row: The actor, for each environment, beside the environment's own.
    """

    call: float
    take: float
    answer: float
    row: float


def actors_step(costs: Actors, environment: float, num_envs: int, cores: int) -> Tick:
    """One actor on each core, with an equal share of the environments."""
    count = min(cores, num_envs)
    shares = [num_envs * (index + 1) // count - num_envs * index // count for index in range(count)]
    done = [costs.call * index + costs.answer + share * (costs.row + environment) for index, share in enumerate(shares, 1)]
    own = count * (costs.call + costs.take)
    return Tick(max(count * costs.call, *done) + count * costs.take, own)
