"""``EnvRows``: environments whose rows are reset and stepped together, into buffers that the caller has.

An environment has one row, or several that are reset together (the agents of a copy, the rows of a vector environment). Whoever
steps environments has an ``EnvRows``: a shard, an actor, an evaluation, a runner. How a step is carried out, in Python, by a kernel
or by a simulator's own loop, is known to the class that carries it out, and to nobody else.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from reactor_gymnasium.environments.owning import own
from reactor_gymnasium.environments.returned import check_made, explain_made, explain_returned
from reactor_gymnasium.environments.saving import save_env
from reactor_gymnasium.environments.storage import ObservationLayout
from reactor_rl.plugin import Pickled, decode

__all__ = [
    "IDLE",
    "ColumnSpec",
    "EnvRows",
    "MakeSeeds",
    "RowLayout",
    "SavedEnv",
    "StepBuffers",
    "close_all",
    "kept_whole",
    "marked",
]

Array = npt.NDArray[Any]
Put = Callable[[int, Any], None]
"""Writes an observation into a row."""
PutAll = Callable[[list[Any]], Any]
MakeSeeds = Callable[[int], Mapping[str, Any] | None]
"""From an environment to the arguments of a reset that follows an episode; ``None`` for no reset."""
ColumnSpec = tuple[npt.DTypeLike, tuple[int, ...]]
"""Dtype and shape of what a column has for each row."""

IDLE = 2
"""In :attr:`EnvRows.pending`: the environment takes no steps until it is reset."""


class RowLayout(Protocol):
    """How observations of one environment become rows of arrays."""

    def writer(self, rows: Any) -> Put:
        """A function that writes an observation into a row, and raises if it does not fit."""

    def batch_writer(self, rows: Any) -> PutAll | None:
        """A function that writes all rows at once, where that is cheaper, and raises if an observation does not fit."""


class StepBuffers:
    """Where the results of a step go: views of a port's slot or of a record. To be made once for each memory that there is.

    Args:
        layout: Of one observation.
        observations: What each row shows after the step, and after an autoreset: rows as ``layout`` has them. ``None`` if nobody
            reads them.
        next_observations: What the step led to, before an autoreset: rows likewise, in arrays by name. ``None`` if nobody reads
            them.
        rewards: ``(rows,)``, of any number type; 0 where a row was reset or is idle. ``None`` for an owner who takes them, and the
            ends, from :attr:`EnvRows.rewards` and :attr:`EnvRows.ended`.
        terminations: ``(rows,)`` bool; with ``rewards``.
        truncations: ``(rows,)`` bool; with ``rewards``.
        columns: ``(rows, ...)`` by name, see :attr:`EnvRows.columns`; those that are left out are not written.
    """

    def __init__(
        self,
        layout: RowLayout,
        observations: Any,
        next_observations: Mapping[str, Array] | None = None,
        rewards: Array | None = None,
        terminations: Array | None = None,
        truncations: Array | None = None,
        columns: Mapping[str, Array] | None = None,
    ) -> None:
        self.layout, self.observations, self.next_observations = layout, observations, next_observations
        self.rewards, self.terminations, self.truncations, self.columns = rewards, terminations, truncations, columns or {}
        rows = next_observations if observations is None else observations
        self.put: Put | None = None if rows is None else layout.writer(rows)
        self.put_all: PutAll | None = None if rows is None else layout.batch_writer(rows)
        self.put_next = None if next_observations is None else layout.writer(next_observations)
        # For kernels: where all is one contiguous array of plain numbers.
        self.shown, self.led_to = _whole_array(observations), _whole_array(next_observations)
        arrays = [array for given, array in ((observations, self.shown), (next_observations, self.led_to)) if given is not None]
        kinds = {None if array is None else (array.dtype, array.shape) for array in arrays}
        self.kind = kinds.pop() if len(kinds) == 1 else None
        self.copies: tuple[tuple[Array, Array], ...] = ()
        if next_observations is not None and observations is not None:
            self.copies = tuple((part, observations[name]) for name, part in next_observations.items())
        self._pack: Callable[..., None] | None = None
        if rewards is not None and rewards.dtype == np.float64 and rewards.flags.c_contiguous:
            self._pack = struct.Struct(f"{len(rewards)}d").pack_into  # three times as fast as numpy with a list of numbers

    def write_each(self, observations: Iterable[tuple[int, Any]], final: bool = False) -> list[tuple[int, Exception]]:
        """Write observations into their rows, one by one, if anybody reads them.

        Args:
            observations: Each with its row; no account is taken of ``None``, which a row shows that was never reset.
            final: Whether they are the last ones of episodes that a step has ended, and go to what it led to.

        Returns:
            Rows whose observations do not fit, and why.
        """
        put = self.put_next if final else self.put
        failures: list[tuple[int, Exception]] = []
        if put is not None:
            for row, observation in observations:
                if observation is not None or final:
                    try:
                        put(row, observation)
                    except Exception as error:
                        failures.append((row, error))
        return failures

    def write_all(self, observations: Sequence[Any], whole: Array | None = None) -> list[tuple[int, Exception]]:
        """Write what all rows show.

        Args:
            observations: One of each row.
            whole: The same as one array, if there is one.

        Returns:
            Rows whose observations do not fit, and why.
        """
        place = self.led_to if self.observations is None else self.shown
        if whole is None or place is None or self.kind != (whole.dtype, whole.shape):
            return self.write_each(enumerate(observations))
        place[...] = whole
        return []

    def write_rewards(self, given: Sequence[Any]) -> list[tuple[int, Exception]]:
        """Write the rewards of all rows, of which there must be an array.

        Returns:
            Rows whose reward is not a number, and why.
        """
        out = self.rewards
        failures: list[tuple[int, Exception]] = []
        assert out is not None
        try:
            if self._pack is not None:
                self._pack(out, 0, *given)
            else:
                out[...] = given
        except (struct.error, TypeError, ValueError, OverflowError):
            # An array of one element is a reward too; anything else is that environment's mistake.
            for row, reward in enumerate(given):
                try:
                    # item() takes an array of one element whatever its shape, and refuses any other.
                    out[row] = np.asarray(reward, np.float64).item()
                except (TypeError, ValueError, OverflowError) as error:
                    error.add_note(f"the reward is {reward!r}")
                    failures.append((row, error))
        return failures

    def write_ends(self, ended: Iterable[tuple[int, bool, bool]]) -> None:
        """Write which rows a step has terminated and truncated, for all rows."""
        terminations, truncations = self.terminations, self.truncations
        assert terminations is not None and truncations is not None
        terminations.fill(False)
        truncations.fill(False)
        for row, terminated, truncated in ended:
            terminations[row], truncations[row] = terminated, truncated


class SavedEnv(NamedTuple):
    """An environment between two steps.

    Attributes:
        state: As :func:`~reactor_gymnasium.environments.saving.save_env` gives it.
        shown: What its rows show.
        pending: Whether the next step resets it, or it is :data:`IDLE`.
    """

    state: bytes
    shown: Any
    pending: int


class EnvRows(ABC):
    """Environments ``first`` to ``first + n - 1``, which are reset and stepped together.

    Args:
        first: Index of the first environment, for messages.
        autoreset: When an environment whose episode is over is reset; ``None`` if each sees to that itself.
        make: Makes what has an environment as its ``env``, of that and its index.
        seeds: From an environment to the arguments of a reset that follows an episode; by default it has no arguments. ``None``
            for no reset: the environment is idle then.

    Attributes:
        bounds: The first row of each environment, and the row after the last one.
        pending: Of each environment: whether the next step resets it (``NEXT_STEP``), or is not for it at all (:data:`IDLE`).
        rewards: Of the last step, a number for each row as the environments gave it; 0.0 where it was a reset. An owner who gives a
            buffer for rewards finds them there, and not here.
        ended: Row, ``terminated`` and ``truncated`` of the episodes that the last step ended.
        finals: By row the last observation of these episodes, a copy, and what :attr:`before_reset` gave, if they were reset in the
            same step.
        infos: By row those infos of the last step or reset that are not empty, copies; those of a reset, where a step had one. An
            owner who gives a buffer for rewards may find them as a kernel has them; see
            :func:`~reactor_gymnasium.environments.infos.info_columns`.
        failures: Environment and exception of what failed in the last step, reset or call, while the others took theirs.
        keep_infos: Whether ``infos`` are wanted.
        before_reset: From the row and the last info of an episode to what is kept of it; called before a reset in the same step.
        mark: If it is set, the environment that is being stepped is written here, counted from 1, and 0 after the step.
        stepper: Who steps them, as it was decided last, in words; empty if there is nothing to decide.
        lives: The environments of which an episode may end with a life, while the game goes on, as far as somebody has asked.
    """

    unit: str = "environment"
    """The word for one of them in messages."""
    batched: Sequence[tuple[int, int, Any]] = ()
    """Of the last step or reset what was told of several rows at once: first row, number of rows, and that."""
    columns: Mapping[str, ColumnSpec] = {}
    """Columns that are written for each row after every step and reset, besides its observation, reward and ends."""

    def __init__(
        self, first: int, autoreset: AutoresetMode | None, make: Callable[[Any, int], Any], seeds: MakeSeeds | None = None
    ) -> None:
        self.first, self.make, self.seeds = first, make, seeds
        self._held: list[Any] = []  # what has each environment
        self.autoreset: AutoresetMode | None = autoreset
        self.bounds: Sequence[int] = (0,)
        self.pending: list[int] = []
        self.mark: Array | None = None
        self.keep_infos = True
        self.before_reset: Callable[[int, Any], Any] = kept_whole
        self.stepper = ""
        self.lives: Collection[int] = ()
        self._lost: Collection[int] = ()  # where the last step ended an episode with a life alone
        self._forget()

    def _forget(self) -> None:
        """Forget the last step."""
        self.rewards: list[Any] = []
        self.ended: list[tuple[int, bool, bool]] = []
        self.finals: dict[int, tuple[Any, Any]] = {}
        self.infos: Any = {}
        self.failures: list[tuple[int, Exception]] = []

    @property
    def num_envs(self) -> int:
        """How many environments there are."""
        return len(self.pending)

    @property
    def over(self) -> list[int]:
        """The environments whose game is over with the last step: of several rows some may end before, or a life alone."""
        return [row for row, _, _ in self.ended if row not in self._lost]

    @property
    def num_rows(self) -> int:
        """How many rows they have."""
        return self.bounds[-1]

    def build(self, makers: Sequence[Pickled], construct: Callable[[Callable[[], Any]], Any] | None = None) -> None:
        """Make the environments, here where they will live.

        Args:
            makers: What makes each of them, encoded by itself: what two of them share must not depend on where they are.
            construct: How to call that, if not just so.

        Raises:
            Exception: What a maker raised, with a note that says which one; those that were made before are to be closed.
        """
        for index, maker in enumerate(makers, self.first):
            try:
                env_fn = _decoded(maker)
                env = env_fn() if construct is None else construct(env_fn)
                check_made(env)
                try:
                    self._held.append(self.make(env, index))
                except BaseException:
                    with suppress(Exception):  # it may be no environment at all
                        env.close()
                    raise
            except Exception as error:
                explain_made(error)
                error.add_note(f"while {self.unit} {index} was constructed")
                raise
        self.pending, self._numbers = [False] * len(makers), range(len(makers))

    def close(self) -> None:
        """Close every environment, even if closing one fails; the first error is raised."""
        held = [*self._held]
        self._held.clear()
        close_all(((index, one.env) for index, one in enumerate(held, self.first)), self.unit)

    # ------------------------------------------------------------------ steps

    @abstractmethod
    def step(self, actions: Array | Sequence[Any], out: StepBuffers | None) -> None:
        """Step each environment that is not idle; reset it where its episode is over, in this step or the next, as the mode says.

        What environments raise is in :attr:`failures`; the others still take their step.

        Args:
            actions: One for each row; an array is copied, and what a list has is given as it is.
            out: Where to write; ``None`` if nothing is to be written.
        """

    @abstractmethod
    def show(self, out: StepBuffers) -> None:
        """Write what every row shows now, and :attr:`columns`."""

    @abstractmethod
    def objects(self, layout: ObservationLayout) -> list[tuple[Any, ...] | None]:
        """The parts of what each row shows that are not arrays; ``None`` before the first reset."""

    @contextmanager
    def opened(self, changes: bool = True) -> Iterator[list[Any]]:
        """Let somebody look at the environments, or change them: they are, and count, as if nothing was left out to step them.

        Args:
            changes: Whether they may be changed.

        Returns:
            A context with the environments. The list is empty afterwards.
        """
        envs = [held.env for held in self._held]
        try:
            yield envs
        finally:
            envs.clear()

    @abstractmethod
    def _reset(self, number: int, env: Any, kwargs: Mapping[str, Any]) -> None:
        """Reset one of :meth:`opened` environments; keep what it shows, and its infos."""

    def reset(self, resets: Mapping[int, Mapping[str, Any]], out: StepBuffers | None) -> None:
        """Reset some environments between steps; the other rows show what they showed.

        What environments raise is in :attr:`failures`.

        Args:
            resets: By environment the arguments of its ``reset()``.
            out: Where to write what all rows show; rewards and ends are not written.
        """
        self._forget()
        failures = self._each(resets, self._reset_one)
        self.failures = failures  # not before the environments are closed to view: an exception refers to them
        if out is not None:
            self.show(out)

    def _reset_one(self, number: int, env: Any, kwargs: Mapping[str, Any]) -> None:
        self.pending[number] = False
        self._reset(number, env, kwargs)

    def end_game(self, env: int) -> None:
        """Let the next reset of one of :attr:`lives` begin a game, within a step as well; else it goes on with the old one."""
        raise NotImplementedError(f"{type(self).__name__} has no lives")

    def look_for_lives(self) -> None:  # noqa: B027
        """Find out :attr:`lives`; does nothing where environments have only whole games."""

    def call(self, function: Callable[..., Any], arguments: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        """Call ``function(env, *args)`` with some environments; what is raised is in :attr:`failures`.

        Args:
            function: The function.
            arguments: By environment what it is given besides.

        Returns:
            Its results, by environment.
        """
        self._forget()
        results: dict[int, Any] = {}

        def call(number: int, env: Any, given: tuple[Any, ...]) -> None:
            results[number] = function(env, *given)

        self.failures = self._each(arguments, call)
        return results

    def _each(self, arguments: Mapping[int, Any], do: Callable[[int, Any, Any], None]) -> list[tuple[int, Exception]]:
        failures: list[tuple[int, Exception]] = []
        with self.opened() as envs:
            for number, given in arguments.items():
                try:
                    do(number, envs[number], given)
                except Exception as error:
                    explain_returned(error)
                    failures.append((number, error))
        return failures

    def raise_failure(self) -> None:
        """Raise what the first of the environments that failed raised, with a note that says which one."""
        if self.failures:
            number, error = min(self.failures, key=lambda failure: failure[0])
            error.add_note(f"raised in {self.unit} {self.first + number}")
            raise error

    @abstractmethod
    def observation(self, row: int) -> Any:
        """Return a copy of what a row shows now."""

    @property
    def in_c(self) -> bool:
        """Whether one call in C steps all of them: a row costs hardly anything then, and one that is idle ends that."""
        return False

    def keep_from_kernels(self, why: str) -> None:  # noqa: B027
        """Let no kernel take the environments over, where there is one: somebody looks at them before or within steps.

        Args:
            why: For :attr:`stepper`.
        """

    # ------------------------------------------------------------------ snapshots

    @abstractmethod
    def replay(self, number: int, kwargs: Mapping[str, Any], actions: Array) -> None:
        """Reset an environment and take steps with it; an episode that ends is followed by another one.

        Args:
            number: Its number here.
            kwargs: The arguments of the first ``reset()``.
            actions: ``(steps, *shape)``; copied.
        """

    @abstractmethod
    def save(self, number: int, saving: Callable[[Any], bytes] = save_env) -> SavedEnv:
        """Save an environment between two steps; it goes on as if nothing had happened.

        Args:
            number: Its number here.
            saving: How to save what has its state.

        Raises:
            Exception: What ``saving`` raises.
        """

    @abstractmethod
    def load(self, number: int, saved: SavedEnv) -> None:
        """Put a saved state into an environment that was made as the saved one was. This executes a pickle."""


def _decoded(maker: Pickled) -> Any:
    try:
        return decode(maker)
    except Exception as error:
        error.add_note(
            "the function was pickled, and its pickle cannot be read: what a script or a notebook defines is pickled with all that "
            "it refers to (a library of ctypes, say). Put it into a module of its own, and import that"
        )
        raise


def kept_whole(row: int, info: Any) -> Any:
    """A copy of the whole last info of an episode."""
    return own(info)


def close_all(envs: Iterable[tuple[int, Any]], unit: str = "environment") -> None:
    """Close every environment, even if closing one fails; the first error is raised.

    Args:
        envs: Each with its index.
        unit: What each is called in messages.
    """
    errors = []
    for index, env in envs:
        try:
            env.close()
        except Exception as error:
            error.add_note(f"while {unit} {index} was closed")
            errors.append(error)
    if errors:
        raise errors[0]


def marked(numbers: Sequence[int], at: Array) -> Iterator[int]:
    """The same numbers; each is written down while it is the current one, counted from 1."""
    for number in numbers:
        at[...] = number + 1
        yield number
    at[...] = 0


def _whole_array(rows: Any) -> Array | None:
    if isinstance(rows, Mapping):
        rows = next(iter(rows.values())) if len(rows) == 1 else None
    if isinstance(rows, np.ndarray) and rows.dtype.fields and rows.flags.c_contiguous:
        kind, *others = {field[0] for field in rows.dtype.fields.values()}
        count = len(rows.dtype.fields)
        if not others and kind.names is None and kind.shape == () and kind.itemsize * count == rows.itemsize:
            rows = rows.view(kind).reshape(-1, count)  # numbers of one kind, side by side
    return rows if isinstance(rows, np.ndarray) and rows.dtype.names is None and rows.flags.c_contiguous else None
