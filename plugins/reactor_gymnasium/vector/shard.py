"""``VectorShard``: the reactor that holds the environments of a vector environment, of whatever kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from reactor_gymnasium.environments.infos import by_row, encode_infos, info_columns, merged_at_once, note_whose_info
from reactor_gymnasium.environments.rows import EnvRows, StepBuffers
from reactor_gymnasium.environments.saving import save_strategy, saved_exactly
from reactor_gymnasium.environments.storage import ObservationLayout
from reactor_rl import Input, Output, Reactor, reaction, shutdown, startup
from reactor_rl.plugin import Failure, Handed, Pickled, decode, dumps, loads

__all__ = ["VectorShard"]


class VectorShard(Reactor):
    """Environments that are stepped together, of whatever kind, between ports.

    Args:
        make_rows: From the index of the first environment to what holds them, without any yet.
        makers: What makes each, encoded by itself: what two of them share must not depend on where they are.
        count: How many rows they have.
        layout: The space that observations are batched by.
        first: Index of the first one.
        row: Row of the first one in its batch.
        owner: Name of the class that the user has made, for messages.
        construct: How to call what makes one, if not just so.
        check: Called once with the environments and the index of the first one; raises if they do not fit.
        reward_dtype: Of the port.
        merging: Where it has every environment, in the caller's process, how the caller wants infos: in ``columns`` or by ``rows``.
            Then it puts them together itself where that is easy, and nothing is pickled.
        watched: Whether to tell at any time which environment is being stepped.
        tried: What makes each where it is tried how it can be saved, encoded; none if all states can be saved.
        strategies: The result of that, if it is known already; see
            :func:`~reactor_gymnasium.environments.saving.probe_save_strategy`.
    """

    actions = Input()
    """Actions as one array, ``(rows, *single_action_space.shape)``."""
    items = Input()
    """Actions as a list, where they are not such an array: one for each row, or for each vector environment."""
    request = Input()
    """Requests besides steps: ``("reset", kwargs)``, or ``(function, args)`` to call ``function(env, *args)``; of each
    environment its own, ``None`` for those that are left alone.
    """

    observations = Output((0,), np.uint8)
    objects = Output()
    rewards = Output((0,), np.float64)
    terminations = Output((0,), np.bool_)
    truncations = Output((0,), np.bool_)
    columns = Output((0,), np.uint8)
    """The columns that :attr:`~reactor_gymnasium.environments.rows.EnvRows.columns` declares, each a field."""
    extras = Output()
    """Further results that only some steps have: packed infos, failures by environment, and who steps them if that is news."""
    at = Output((), np.int64)
    """Which of its environments is being stepped, counted from 1, 0 for none; written only where somebody watches."""
    replies = Output()
    """The pickled result of each environment that was called."""

    def __init__(
        self,
        make_rows: Callable[[int], EnvRows],
        makers: Sequence[Pickled],
        count: int,
        layout: ObservationLayout,
        *,
        first: int,
        row: int,
        owner: str,
        construct: Callable[[Callable[[], Any]], Any] | None = None,
        check: Callable[[Sequence[Any], int], None] | None = None,
        reward_dtype: npt.DTypeLike = np.float64,
        merging: str = "",
        watched: bool = False,
        tried: Sequence[Any] = (),
        strategies: Sequence[str | None] = (),
    ) -> None:
        self.makers, self.layout, self.first, self.row, self.owner = tuple(makers), layout, first, row, owner
        self.construct, self.check, self.watched = construct, check, watched
        self.merging, self.count = merging, count
        self.tried, self.strategies = tuple(tried), tuple(strategies)
        self.rows = make_rows(first)
        self.told = self.rows.stepper
        self.out: StepBuffers | None = None
        if layout.arrays:
            shape, dtype = layout.storage()
            self.observations = Output((count, *shape), dtype)
        self.rewards = Output(count, reward_dtype)
        self.terminations, self.truncations = Output(count, np.bool_), Output(count, np.bool_)
        self.fields = tuple(self.rows.columns)
        if self.fields:
            self.columns = Output(count, np.dtype([(name, *spec) for name, spec in self.rows.columns.items()]))

    # ------------------------------------------------------------------ start and end

    @reaction(startup)
    def build(self) -> None:
        """Make the environments, here where they will live."""
        rows = self.rows
        rows.build(self.makers, self.construct)
        if self.check is not None:
            with rows.opened(changes=False) as envs:
                self.check(envs, self.first)

    @reaction(shutdown)
    def close(self) -> None:
        """Close every environment, even if closing one fails; the first error is raised."""
        self.rows.close()

    # ------------------------------------------------------------------ steps

    @reaction(actions, items, effects=(observations, objects, rewards, terminations, truncations, columns, extras, at))
    def step(self) -> None:
        """Step every environment once."""
        rows = self.rows
        if self.watched:
            rows.mark = self.at.buffer
        observations = self.observations.buffer if self.layout.arrays else None
        rewards, terminations, truncations = self.rewards.buffer, self.terminations.buffer, self.truncations.buffer
        columns = self.columns.buffer if self.fields else None
        out = self.out
        # The slots of all ports take turns together.
        if out is None or out.rewards is not rewards or out.observations is not observations:
            self.out = out = StepBuffers(self.layout, observations, None, rewards, terminations, truncations, _fields(columns))
        rows.step(self.actions.value if self.actions.present else list(map(decode, self.items.value)), out)
        self._send()

    @reaction(request, effects=(observations, objects, columns, extras, replies))
    def answer_request(self) -> None:
        """Reset some environments, or call something with them. What each is given is pickled by itself: what two of them share
        must not depend on where they are.
        """
        rows, (function, of_envs) = self.rows, self.request.value
        asked = {number: arguments for number, arguments in enumerate(of_envs) if arguments is not None}
        if function == "reset":
            observations = self.observations.buffer if self.layout.arrays else None
            columns = self.columns.buffer if self.fields else None
            resets: dict[int, Any] = {}
            failures: list[tuple[int, Exception]] = []
            for number, arguments in asked.items():
                try:
                    resets[number] = decode(arguments)
                except Exception as error:
                    failures.append((number, error))
            rows.reset(resets, StepBuffers(self.layout, observations, columns=_fields(columns)))
            rows.failures += failures
        else:
            results = rows.call(partial(_pickled_result, function), {number: (one,) for number, one in asked.items()})
            self.replies.set(list(results.values()))
        self._send()

    def _send(self) -> None:
        """Send what there is besides arrays."""
        rows = self.rows
        if self.layout.objects:
            self.objects.set(rows.objects(self.layout))
        try:
            if rows.infos or rows.finals or rows.batched or rows.failures or rows.stepper is not self.told:
                self.extras.set(self._extras())
        except Exception as error:
            infos = rows.infos if isinstance(rows.infos, dict) else {}
            of_envs = [(self.first + number, info) for given in (rows.finals, infos) for number, info in given.items()]
            note_whose_info(error, of_envs, rows.unit)
            raise

    def _extras(self) -> Any:
        """Infos as they travel, failures, and index of the first environment and who steps them, if that is news."""
        rows, first, unit, news = self.rows, self.first, self.rows.unit, None
        infos, finals = rows.infos, rows.finals
        failures: list[tuple[int, Failure]] = []
        if rows.failures:
            failures = [(first + at, Failure.of(at, f"{unit} {first + at}", self.tag, error)) for at, error in rows.failures]
        if rows.stepper is not self.told:
            self.told = rows.stepper
            news = first, self.told
        if rows.batched:
            return [(self.row + lo, of_unit, told) for lo, of_unit, told in rows.batched], failures, news
        if not (infos or finals):
            return None, failures, news
        if self.merging and not failures and news is None:
            if self.merging == "columns":
                merged = merged_at_once(finals, infos, self.count)
            else:
                merged = {"ended": finals, "infos": by_row(infos)} if type(infos) is list else None
            if merged is not None:
                return Handed(merged)
        return encode_infos(info_columns(self.row, finals, infos)), failures, news

    # ------------------------------------------------------------------ snapshots

    def __getstate__(self) -> dict[str, Any]:
        rows = self.rows
        if not rows.num_envs:  # before they are made
            return self.__dict__.copy()
        strategies = self.strategies or list(map(save_strategy, self.tried)) or ["state"] * rows.num_envs
        kept = []
        for number, strategy in enumerate(strategies):
            name = f"{rows.unit} {self.first + number} of {self.owner}"
            # Each by itself: what two share must not depend on where they are.
            kept.append(dumps(rows.save(number, partial(saved_exactly, strategy=strategy, name=name))))
        return {"kept": kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "kept" not in state:
            self.__dict__.update(state)
            return
        for number, saved in enumerate(state["kept"]):
            self.rows.load(number, loads(saved))


def _fields(columns: Any) -> dict[str, npt.NDArray[Any]]:
    """The columns of a port, by name."""
    return {} if columns is None else {name: columns[name] for name in columns.dtype.names}


def _pickled_result(function: Callable[..., Any], env: Any, arguments: Pickled) -> bytes:
    return dumps(function(env, *decode(arguments)))
