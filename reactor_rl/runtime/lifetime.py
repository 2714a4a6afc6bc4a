"""The states of a run, and its end, however it comes."""

from __future__ import annotations

import atexit
import contextlib
import time
import weakref
from abc import abstractmethod
from collections.abc import Iterator
from functools import partial
from threading import TIMEOUT_MAX, get_ident
from types import TracebackType
from typing import Any, Literal, Self

from reactor_rl.errors import Failure, RunClosedError, RunError
from reactor_rl.runtime.boundary import Boundary
from reactor_rl.runtime.channel import ControlBlock, Deadline, Event
from reactor_rl.runtime.executor import ABORTED, Executor, HelperCommand, signal_all
from reactor_rl.runtime.guards import FORKED, holding
from reactor_rl.runtime.helpers import Helpers
from reactor_rl.runtime.worker.loop import WorkerLoop
from reactor_rl.runtime.worker.main import Reply

__all__ = ["GRACE", "INTERRUPTED", "RunLifetime", "runs"]

runs: weakref.WeakSet[RunLifetime] = weakref.WeakSet()

GRACE = 1.0
"""Seconds that workers get to end by themselves at an implicit close. Chosen: nobody asked for it, so an interpreter's exit must
not hang, and environments that write a file still get to close it.
"""

PAUSE = 1e-3
"""Seconds between two checks whether another thread has left. There is nothing to be woken by; a shorter pause would take the GIL
from the thread that is waited for.
"""

INTERRUPTED = "it was interrupted"
"""The reason why a run is over after Ctrl-C in the middle of an operation."""

CLOSED_MEANWHILE = "the run was closed by another thread, in the middle of an operation of this one"

State = Literal["ready", "ticking", "busy", "stopped", "failed", "broken", "closing", "closed", "foreign"]
WHOLE = ("ready", "ticking", "stopped", "failed")
"""States in which every worker is where the caller thinks it is. An operation leaves them with its first line and returns to them
with its last. An interrupt in between, at any line, leaves a run in an unknown state, which is torn down."""


class _Within:
    """A lock for :func:`holding` that is waited for until a deadline, and then done without."""

    def __init__(self, lock: Any, deadline: Deadline) -> None:
        # No function of Python: a handler that raises in one, behind the lock's own, would lose the lock.
        self.acquire = partial(lock.acquire, timeout=-1 if deadline.never else deadline.left(TIMEOUT_MAX))
        self.release = lock.release


_NO_COPY = "a run cannot be copied or pickled, because its workers exist only once; start another one, or take its snapshot()"


class RunLifetime:
    """The part of a run that begins and ends operations, and ends the run."""

    _state: State = "closed"  # until there is something to close
    _why = ""  # it is over
    _closer = -1  # the thread that ends it
    _left = True  # whether no other thread is in the middle of something while it ends
    _hurried = False  # whether another thread than the one that ends it has ended its helpers
    _executor: Executor
    _helpers: Helpers
    _words: memoryview
    _closing: Any  # held by the thread that ends it
    _boundary: Boundary
    _loop: WorkerLoop
    _hash: bool
    _ticks: int

    @abstractmethod
    def _resume_tick(self, deadline: Deadline) -> bool:
        """Continue the tick that was begun, and return whether it was done in time."""

    # ------------------------------------------------------------------ the end

    def close(self, timeout: float | None = None, terminate: bool = False) -> None:
        """End the run: shutdown reactions, then the workers. May be called again, and does nothing in a forked child.

        While another thread closes the run, this one waits for that, as long as ``timeout`` says, and ends the workers then.

        Args:
            timeout: Seconds to wait for work in progress, after which workers are terminated; ``None``: no limit.
            terminate: Do not wait at all.

        Raises:
            Exception: The exception of a shutdown reaction.
        """
        if self._state not in ("closed", "foreign"):
            deadline = Deadline(0.0 if terminate else timeout)
            holding(_Within(self._closing, deadline))(self._close)(deadline, terminate)

    def _close(self, deadline: Deadline, terminate: bool) -> None:
        if self._state in ("closed", "foreign"):  # another thread has closed it meanwhile
            return
        if not self._closing._is_owned():
            self._hurry(0.0 if terminate else ABORTED)
            return
        raised: BaseException | None = None
        try:
            self._closer = get_ident()  # before the look at the state: an operation that begins changes that, then looks here
            state, self._state = self._state, "closing"
            # Another thread is in a reaction, unless no operation is in progress or it is this thread's own, interrupted one. An
            # error in __init__ may have left no loop.
            self._left = state != "busy" or "_loop" not in self.__dict__ or self._loop.is_in_this_thread()
            if terminate:
                grace: float | None = 0.0
            elif state in WHOLE:
                raised, grace = self._end_well(state, deadline)
            else:
                grace = ABORTED
            self._tear_down(grace)
        except BaseException:
            self._tear_down(ABORTED)
            raise
        if raised is not None:
            raise raised

    def _end_well(self, state: State, deadline: Deadline) -> tuple[BaseException | None, float | None]:
        """Run the shutdown reactions of a run that is whole.

        Returns:
            The exception of one of them, and how long the helpers have to end after that.
        """
        helpers, words = self._helpers, self._words
        try:
            if state == "ticking":
                if not self._resume_tick(deadline):
                    return None, 0.0
                self._ticks = self._boundary.time = self._ticks + 1
                self._failure()  # nobody waited for that tick, so its errors are dropped
            helpers.deadline = deadline
            failure = self._shut_down()
        except TimeoutError:
            return None, 0.0
        except Exception as error:
            closed = self._hurried or isinstance(error, RunClosedError)  # by a thread, or a handler of a signal, that did not wait
            stops = words[ControlBlock.STOPPED] or helpers.events() & Event.STOP
            return None if closed or (state == "ticking" and not stops) else error, ABORTED
        return None if failure is None else failure.raised(), None if deadline.never else GRACE

    def _hurry(self, grace: float) -> None:
        """End the helpers while another thread ends the run, which takes it too long. What the caller holds is left to that one."""
        self._hurried = True
        self._tell_to_quit()
        self._executor.stop(grace)
        end = time.monotonic() + grace
        while self._state != "closed" and time.monotonic() < end:
            time.sleep(PAUSE)
        self._mark_closed()

    def _tear_down(self, grace: float | None) -> None:
        """End the workers, wherever they are. May be interrupted and called again."""
        self._tell_to_quit()
        if "_boundary" in self.__dict__:
            self._boundary.open = False
        if "_loop" in self.__dict__ and self._is_left(grace):
            self._loop.shut_down_alone()
        self._executor.stop(grace)
        self._mark_closed()

    def _tell_to_quit(self) -> None:
        """Tell all helpers to quit, those between two passes and those within one."""
        words = self._words
        # Before the tokens. A helper looks at both between two passes: who begins one may write its command over QUIT.
        words[ControlBlock.ABORT], words[ControlBlock.COMMAND] = 1, HelperCommand.QUIT
        signal_all(self._executor.channels)

    def _mark_closed(self) -> None:
        runs.discard(self)  # first: a close() that is called again after an interrupt does nothing more once the state says so
        self._state = "closed"

    def _change_state(self, state: State) -> None:
        """Change the state as an operation begins or ends, which is left if another thread closes the run.

        Both threads change the state or :attr:`_closer` before they look at the other one's, so at least one of them knows.

        Raises:
            RunClosedError: If another thread does.
        """
        self._state = state
        self._must_be_open()

    def _must_be_open(self) -> None:
        if self._closer != -1:
            self._state = "closing"
            raise RunClosedError("the run was closed by another thread")

    def _is_left(self, grace: float | None) -> bool:
        """Wait at most ``grace`` until no other thread is in a reaction: its environment must not be closed while it steps."""
        end = time.monotonic() + (grace or 0.0)
        while not self._left and time.monotonic() < end:
            time.sleep(PAUSE)
        return self._left

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        if error is None:
            self.close()
        else:  # do not let the end hide what went wrong
            with contextlib.suppress(Exception):
                self.close(timeout=GRACE)

    def __del__(self) -> None:
        try:
            self.close(timeout=GRACE)
        except Exception:  # at exit the names of this module may be gone, contextlib's too
            return

    def __copy__(self) -> Self:
        raise TypeError(_NO_COPY)

    def __deepcopy__(self, memo: Any) -> Self:
        raise TypeError(_NO_COPY)

    def __reduce__(self) -> Any:
        raise TypeError(_NO_COPY)

    @contextlib.contextmanager
    def _operation(self, what: str, states: tuple[State, ...]) -> Iterator[None]:
        """Wrap an operation between two ticks. An ordinary error changes nothing; an interrupt ends the run."""
        if self._state not in states:
            raise self._unusable(what)
        state = self._state
        try:
            self._change_state("busy")
            yield
            self._change_state(state)
        except Exception as error:
            if self._state == "busy":
                self._state = state
            if self._closer != -1:
                self._state = "closing"
            self._left = True
            if self._closer not in (-1, get_ident()) and isinstance(error, RunError):  # that is why nothing can be done any more
                raise RunClosedError(CLOSED_MEANWHILE) from None
            raise
        except BaseException as error:
            self._mark_broken(error)
            raise

    def _asked(self, request: str, argument: Any) -> list[Reply]:
        try:
            return self._helpers.ask(request, argument)
        except BaseException as error:
            self._mark_broken(error)
            raise

    def _failure(self) -> Failure | None:
        """Collect the failures of reactions and return the first one in program order."""
        if not self._helpers.events() & Event.FAILED:
            return None
        try:
            failures = self._helpers.failures()
        except BaseException as error:
            self._mark_broken(error)
            raise
        return min(failures, key=lambda failure: (failure.reaction, failure.tag))

    def _raise_failures(self) -> None:
        first = self._failure()
        if first is not None:
            self._mark_over("failed", f"reaction {first.where} raised {type(first.error).__name__}")
            raise first.raised()

    def _stop(self) -> None:
        first = self._shut_down()
        self._mark_over("stopped", "the program requested a stop")
        if first is not None:
            self._mark_over("failed", f"reaction {first.where} raised {type(first.error).__name__}")
            raise first.raised()

    def _shut_down(self) -> Failure | None:
        if self._words[ControlBlock.STOPPED]:
            return None
        self._words[ControlBlock.STOPPED] = 1
        self._words[ControlBlock.TIME] = last = max(0, self._ticks - 1)
        number = self._loop.pass_number + 1
        self._boundary.take_back(number)
        self._helpers.begin(HelperCommand.STOP, number)
        self._loop.stop_pass(last, number)
        failure = self._failure()
        if failure is None and self._hash:
            self._boundary.hash(self._loop.pass_number)
        return failure

    def _mark_broken(self, error: BaseException | str) -> None:
        """Mark the run as broken after an error in the middle of an operation, unless that has set another state itself.

        Raises:
            RunClosedError: If the cause is another thread that has closed the run.
        """
        if self._closer not in (-1, get_ident()):
            self._left = True
            if isinstance(error, Exception):
                raise RunClosedError(CLOSED_MEANWHILE) from None
        if self._state in ("ready", "ticking", "busy"):
            interrupted = isinstance(error, (KeyboardInterrupt, GeneratorExit))  # the latter out of a `with` that it struck
            what = error if isinstance(error, str) else f"{type(error).__name__} was raised"
            self._mark_over("broken", INTERRUPTED if interrupted else what)
        if self._closer not in (-1, get_ident()):  # it began between the first look and here, and waits for this thread
            self._left = True

    def _mark_over(self, state: Literal["stopped", "failed", "broken"], why: str) -> None:
        self._state, self._why = state, why
        if "_boundary" in self.__dict__:
            self._boundary.open = False

    def _forked(self) -> None:
        """Mark this copy, in a forked child of the process that started the run, as foreign."""
        if self._state != "closed":
            self._state = "foreign"
            if "_boundary" in self.__dict__:
                self._boundary.open, self._boundary.shut = False, f"because {FORKED}"

    def _unusable(self, what: str, hint: str = "") -> RunError:
        if self._state == "ready":
            return RunError(f"cannot {what}: {hint}")
        if self._state == "ticking":
            return RunError(f"cannot {what} while a tick is going on; call tick_wait() first")
        if self._state == "busy":
            return RunError(f"cannot {what} while another operation is in progress; if it was interrupted, close() the run")
        if self._state == "foreign":
            return RunError(f"cannot {what}, because {FORKED}")
        why = f" because {self._why}" if self._why else ""
        return RunClosedError(f"cannot {what}: the run is over{why}. Start a new one with Program.start()")


@atexit.register
def _close_all() -> None:
    for run in list(runs):
        with contextlib.suppress(Exception, KeyboardInterrupt):
            run.close(timeout=GRACE)
