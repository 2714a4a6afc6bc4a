"""Find out how a policy may be asked, by asking it about a few observations, in other orders and beside other ones."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from reactor_gymnasium.environments.owning import own
from reactor_gymnasium.environments.returned import check_info, explain_returned
from reactor_gymnasium.environments.storage import ObservationLayout
from reactor_gymnasium.evaluation.asking import Asking, noise_of
from reactor_gymnasium.evaluation.contents import Contents, changes, contents, hashed, hashes, only_written, replaced
from reactor_gymnasium.evaluation.policies import (
    AskedPolicy,
    PolicyCall,
    PolicyContext,
    Seeded,
    adapted,
    draws_of,
    has_masks,
    masks_of,
)
from reactor_rl.plugin import changed_generators, generator_states, global_random_state, one_numeric_thread

__all__ = ["Chosen", "choose_batch"]

BATCH = 32
"""Rows that are asked together where nothing else is said. Chosen: small networks cost about as much for 32 rows as for one, and
with more, rows whose episodes have ended are idle at the end of an evaluation.
"""
_SAMPLES = 8
"""Observations by which it is found out whether a policy's answer depends on the rows beside it; the short episodes of
:meth:`_PolicyTrial.orders` are made of them. Chosen.
"""

_Order = list[list[int]]


class Chosen:
    """A policy, and how it is asked.

    Attributes:
        policy: As it is asked.
        batch: Rows of a call.
        alone: Whether an answer does not depend on the rows beside it, as far as it was tried.
        how: The same in words.
        changing: Names of what it was seen to change in itself when it is asked.
    """

    def __init__(self, policy: AskedPolicy, batch: int, alone: bool, how: str) -> None:
        self.policy, self.batch, self.alone, self.how = policy, batch, alone, how
        self.changing: Sequence[str] = ()

    def told(self) -> dict[str, str]:
        """Hashes of what the policy consists of, its code included, but for what it changes when it is asked."""
        return hashes(contents(*self.policy.held(), whole=True), self.changing)


def choose_batch(policy: Any, context: PolicyContext, env: Any, batch_size: int | None) -> Chosen:
    """Find out how a policy is to be asked, by asking it about some observations of an environment that is thrown away.

    Args:
        policy: As the user has passed it.
        context: What it is to act in.
        env: An environment that is thrown away.
        batch_size: Rows of a call; ``None`` for :data:`BATCH`, if an answer does not depend on the rows beside it, else 1.

    Raises:
        TypeError, ValueError: If it is not a policy, or does not fit.
        Exception: What the policy raises.
    """
    asked = adapted(policy, context)
    if asked.masked and not has_masks(env):
        asked.without_masks(env)
    with one_numeric_thread(), global_random_state():
        trial, before = _PolicyTrial(context, env), contents(*asked.held())
        trial.look_around(asked)
        return _chosen(asked, trial, before, batch_size)


def _chosen(asked: AskedPolicy, trial: _PolicyTrial, before: Contents, batch_size: int | None) -> Chosen:
    if asked.by_row:
        trial.answers(asked, 1, [0])
        return Chosen(asked, 1, True, "every row by itself, by construction")
    asked, kept, changing = _tried_twice(asked, trial, before)
    chosen = _chosen_batch(asked, trial, batch_size)
    chosen.changing = changing
    if kept:
        chosen.alone, chosen.how = False, f"{chosen.how}; {kept}"
        warnings.warn(
            f"the policy {asked.named} {kept}: if an answer depends on that, the report depends on num_envs. {asked.remedies}",
            UserWarning, stacklevel=5,
        )  # fmt: skip
    return chosen


def _tried_twice(asked: AskedPolicy, trial: _PolicyTrial, fresh: Contents) -> tuple[AskedPolicy, str, Sequence[str]]:
    """A policy, asked about the same short episodes in several orders: each of them has to be answered the same.

    Args:
        asked: The policy.
        trial: Asks it.
        fresh: What it consisted of before it was asked.

    Returns:
        As it is to be asked; what it was seen to do besides answering, in words, though no answer depended on that; and names of
        what it changes in itself.

    Raises:
        ValueError: If an answer depends on what else has been asked.
    """
    orders = trial.orders()
    before, looked = generator_states(), contents(*asked.held())
    first = trial.play(asked, orders[0])
    own = changes(looked, contents(*asked.held()))[1]
    if own or changed_generators(before):
        asked = Seeded(asked, bool(own))
        first = trial.play(asked, orders[0])
    settled = contents(*asked.held())
    trial.play(asked, [[0]])  # one call: after many of them a queue may look as it did before
    between = contents(*asked.held())
    others = [trial.play(asked, order) for order in orders[1:]]
    after = contents(*asked.held())
    trial.play(asked, [[0]])
    values, drawn = changes(settled, between, after, contents(*asked.held()), overwritten=True)
    same = all(_hashed(other[of]) == _hashed(answer) for other in others for of, answer in first.items())
    if drawn or not (same or (not values and all(_nearly(other[of], answer) for other in others for of, answer in first.items()))):
        raise ValueError(_remembering(asked, values, drawn))
    if not same:
        return asked, "answers otherwise in the last bits when it is asked the same again", ()
    read = [] if trial.remembers else sorted({*values} - only_written(values, *asked.held()))
    how = f"changes {_listed(read)} when it is asked, though no answer was seen to depend on it" if read else ""
    # A cache is full by now, and is to be left out of what tells this policy from another one, too.
    return asked, how, [*values, *(name for name in replaced(fresh, settled) if "." not in name)]


def _remembering(asked: AskedPolicy, values: Sequence[str], drawn: Sequence[str]) -> str:
    if drawn:
        why = f"draws from a generator of its own ({_listed(drawn)})"
    elif values:
        why = f"answers otherwise when it is asked the same again: it remembers earlier calls ({_listed(values)} changes)"
    else:
        why = "answers otherwise when it is asked the same again: it remembers earlier calls, or draws from a generator of its own"
    return (
        f"the policy {asked.named} {why}. Episodes are played side by side, each as if it were alone, which such a policy does not "
        f"know. {asked.remedies}"
    )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f"`{name}`" if name else "itself" for name in names[:3])
    return shown if len(names) <= 3 else f"{shown}, ..."


def _chosen_batch(asked: AskedPolicy, trial: _PolicyTrial, batch_size: int | None) -> Chosen:
    """How many rows are asked together."""
    if isinstance(asked, Seeded):
        whose = "generators of its own" if asked.own else "the process's generators"
        return Chosen(asked, 1, True, f"row by row: it draws from {whose}, which are seeded for each step")
    if trial.remembers:
        return Chosen(asked, 1, True, "row by row: it remembers what it has seen of an episode")
    batch = 1 if asked.single else BATCH if batch_size is None else batch_size
    if batch == 1:
        return Chosen(asked, 1, True, "row by row")
    alone = trial.is_alone(asked, batch)
    if not alone and batch_size is None:
        return Chosen(asked, 1, True, f"row by row: in batches of {batch} its answers depend on the other rows")
    if alone:
        return Chosen(asked, batch, True, f"in batches of {batch} rows, where an answer does not depend on the others (tried)")
    how = f"in batches of {batch} rows, in which answers depend on the other rows: with another num_envs they differ"
    return Chosen(asked, batch, False, how)


class _PolicyTrial:
    """Asks a policy about a few observations.

    Args:
        context: What it is to act in.
        env: An environment that is thrown away.
    """

    def __init__(self, context: PolicyContext, env: Any) -> None:
        self.env, self.layout = env, ObservationLayout(context.observation_space, "unsafe")
        try:
            observation, info = env.reset(seed=0)
        except Exception as error:
            explain_returned(error)
            raise
        check_info(info, "reset")
        self.observations = [_seen(observation, "reset()", env)]
        self.masks = [masks_of(env)] if has_masks(env) else []
        self.remembers = False
        self.seconds = 0.0  # of a call

    def look_around(self, policy: AskedPolicy) -> None:
        """Take a few steps with the policy; fewer if the environment fails, which is to be seen later."""
        while len(self.observations) < _SAMPLES:
            before = len(self.observations)
            ask = self._asked(policy, 1, [before - 1])
            began = time.perf_counter()
            action = ask()[0]
            self.seconds = time.perf_counter() - began
            try:
                observation, _, terminated, truncated, _ = self.env.step(action)
                if terminated or truncated:
                    observation, _ = self.env.reset()
            except Exception:
                return
            self.observations.append(_seen(observation, "step()", self.env))
            if self.masks:
                self.masks.append(masks_of(self.env))

    def orders(self) -> list[_Order]:
        """Orders in which the same short episodes are played; fewer and shorter ones where the policy takes long to answer."""
        # They ask 80, 27 or 8 times: a third of a second at most, unless an answer takes longer than 30 ms. Chosen.
        long = 0 if self.seconds < 5e-4 else 1 if self.seconds < 1e-2 else 2
        rows, steps, count = ((8, 4, 4), (4, 3, 3), (3, 2, 2))[long]
        one_by_one = [[row] for row in range(rows) for _ in range(steps)]
        side_by_side = [list(range(rows)) for _ in range(steps)]
        staggered = [[row for row in range(rows) if 0 <= turn - row < steps] for turn in range(rows + steps)]
        return [one_by_one, side_by_side, one_by_one[::-1], staggered][:count]

    def play(self, policy: AskedPolicy, order: _Order) -> dict[tuple[int, int], Any]:
        """Play short episodes, made of the observations.

        Args:
            policy: The policy, which is asked as it will be.
            order: At each turn, which of the episodes take a step.

        Returns:
            The action for each step of each episode.
        """
        count = 1 + max(row for turn in order for row in turn)
        asking = Asking(policy, 1, self.layout, count, 0)
        write = None if asking.rows is None else self.layout.writer(asking.rows)
        taken, found = [0] * count, {}
        for turn in order:
            seen = [(row + taken[row]) % len(self.observations) for row in range(count)]
            for row in turn:
                if write is not None:
                    write(row, self.observations[seen[row]])
            objects = [self.layout.take_objects(self.observations[number]) for number in seen] if self.layout.objects else None
            playing = [row if row in turn else None for row in range(count)]
            asking.follow(playing, [row for row in turn if not taken[row]])
            actions = asking(objects, [self.masks[number] for number in seen] if policy.masked else None)
            for row in turn:
                found[row, taken[row]] = own(actions[row])
                taken[row] += 1
        self.remembers = any(one is not None for one in asking.memory)
        return found

    def answers(self, policy: AskedPolicy, batch: int, which: Sequence[int]) -> list[Any]:
        """The outputs that it is chosen by, for the observations of these numbers, which fill a batch."""
        return [own(one) for one in self._asked(policy, batch, which, raw=True)()]

    def _asked(self, policy: AskedPolicy, batch: int, which: Sequence[int], raw: bool = False) -> Callable[[], Any]:
        """The policy, to be asked about the observations of these numbers."""
        layout, rows = self.layout, self.layout.memory(batch)
        if rows is not None:
            write = layout.writer(rows)
            for row, number in enumerate(which):
                write(row, self.observations[number])
        objects = [layout.take_objects(self.observations[number]) for number in which] if layout.objects else None
        observations = layout.batched(rows, objects, copy=False)
        masks = np.array([self.masks[number] for number in which]) if policy.masked else None
        turn = PolicyCall(draws_of(policy.noise, [noise_of(0, number) for number in which]), [None] * batch, masks)
        return partial((policy.raw if raw else policy.bind)(observations, batch), turn)

    def is_alone(self, policy: AskedPolicy, batch: int) -> bool:
        """Whether it answers the same for an observation wherever it is in a batch, and beside whichever others."""
        known: dict[int, list[str]] = {}
        n = len(self.observations)
        orders = [[(row * step + shift) % n for row in range(batch)] for shift in range(n) for step in (0, 1, 3)]
        for which in orders:
            for number, answer in zip(which, self.answers(policy, batch, which), strict=True):
                known.setdefault(number, []).append(_hashed(answer))
        return all(len(set(answers)) == 1 for answers in known.values())


def _seen(observation: Any, by: str, env: Any) -> Any:
    """A copy of an observation, if it is one."""
    if observation is None:
        raise TypeError(f"{by} of the environment returned None as the observation, its space is {env.observation_space}")
    return own(observation)


def _hashed(action: Any) -> str:
    """Return a string that differs between different answers, also between different dtypes."""
    try:
        return hashed(action)
    except TypeError:  # an object of the user's
        return repr(action)


def _nearly(action: Any, other: Any) -> bool:
    """Whether two answers differ at most by how sums were rounded."""
    one, two = np.asarray(action), np.asarray(other)
    alike = one.dtype == two.dtype and one.shape == two.shape and one.dtype.kind == "f"
    return alike and np.allclose(one, two, rtol=1e-4, atol=1e-6)
