"""Seats, in which trainings are carried out: a program of one reactor for each worker, one training at a time."""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, Protocol

from reactor_gymnasium.plugin import repeat_registrations
from reactor_rl import Input, NodeDiedError, Output, Program, Reactor, Run, WorkerDiedError, reaction, shutdown
from reactor_rl.plugin import Handed
from reactor_sb3.sweeping.training import Ask, Ended, Job, Reported, carried_out

__all__ = ["InlineSeat", "ProcessSeat", "Seat", "close_all"]

LEFT = 1.0
"""Seconds that a worker has to end when all trainings have ended. One may have left threads or processes that never do."""

Event = Reported | Ended | BaseException
"""A report or the end of a training; an exception where the caller is to be interrupted."""


class _Background:
    """A training in a thread of its own, which waits while a report of it is judged."""

    def __init__(self, train: Callable[..., Any], job: Job) -> None:
        self.events: SimpleQueue[Event] = SimpleQueue()
        self.answers: SimpleQueue[bool] = SimpleQueue()
        threading.Thread(target=self._run, args=(train, job), name=f"trial {job.trial}", daemon=True).start()

    def _run(self, train: Callable[..., Any], job: Job) -> None:
        try:
            self.events.put(carried_out(train, job, self._ask))
        except BaseException as error:
            self.events.put(error)

    def _ask(self, report: Reported) -> bool:
        self.events.put(report)
        return self.answers.get()


class TrainingReactor(Reactor):
    """Carries out one training at a time: a tick goes to its next report, or to its end.

    Args:
        own_process: Whether the process is a worker of the search, which has no children but those of its trainings.
    """

    train = Input()
    """The user's function."""
    job = Input()
    """A training that begins."""
    judge = Input()
    """A function that answers reports at once; if it is absent, they are answered at the next tick."""
    answer = Input()
    """Whether the training that has reported last is to stop."""
    event = Output()

    def __init__(self, own_process: bool) -> None:
        self.own_process = own_process
        self.training: _Background | None = None

    @reaction(job, answer, uses=(train, judge), effects=event)
    def go_on(self) -> None:
        if self.judge.present:
            self.event.set(carried_out(self.train.value, self.job.value, self.judge.value))
            return
        if self.job.present:
            self.training = _Background(self.train.value, self.job.value)
        training = self.training
        assert training is not None
        if self.answer.present:
            training.answers.put(self.answer.value)
        event = training.events.get()
        if isinstance(event, BaseException):
            raise event
        self.event.set(event)

    @reaction(shutdown)
    def leave(self) -> None:
        """End processes that trainings have left, which Python would wait for."""
        for child in multiprocessing.active_children() if self.own_process else ():
            child.terminate()


def _program(own_process: bool) -> Program:
    program = Program("search")
    program.worker_setup(repeat_registrations())
    training = program.add(TrainingReactor, name="training", own_process=own_process)
    for port in ("train", "job", "judge", "answer"):
        program.connect(program.input(port), getattr(training, port))
    program.connect(training.event, program.output("event"))
    return program


class Seat(Protocol):
    """A place where one training at a time is carried out."""

    def begin(self, job: Job) -> None:
        """Begin a training."""

    def answer(self, stops: bool) -> None:
        """Tell the training whether it is to stop."""

    def poll(self, seconds: float) -> Reported | Ended | WorkerDiedError | NodeDiedError | None:
        """The next report of the training, or its end; ``None`` if nothing comes within that time."""

    def close(self) -> None:
        """End it, whatever it does."""


class InlineSeat(Seat):
    """Trainings in the caller's thread: one is over when it has begun, and its reports are judged on the way."""

    def __init__(self, train: Callable[..., Any], judge: Callable[[Job, Reported], bool]) -> None:
        self.train, self.judge = train, judge
        self.run: Run = _program(False).start(executor="inline", workers=1, fingerprint="off")
        self.event: Ended | None = None

    def begin(self, job: Job) -> None:
        ask: Ask = lambda report: self.judge(job, report)  # noqa: E731
        self.run.set(train=self.train, job=job, judge=Handed(ask))
        self.run.tick()
        (self.event,) = self.run.values("event")

    def answer(self, stops: bool) -> None:
        raise AssertionError("reports are judged at once")

    def poll(self, seconds: float) -> Ended | None:
        event, self.event = self.event, None
        return event

    def close(self) -> None:
        self.run.close()


class ProcessSeat(Seat):
    """Trainings in a process of their own, which is started when it is needed."""

    def __init__(self, train: Any, start_method: str | None) -> None:
        self.train, self.start_method = train, start_method
        self.run: Run | None = None
        self.busy = False

    def begin(self, job: Job) -> None:
        if self.run is not None:
            try:
                self.run.tick()  # nothing happens in it, but a worker that has died since its last training is noticed
            except WorkerDiedError:
                self.close()
        run = self.run
        if run is None:
            run = self.run = _program(True).start(
                executor="processes", workers=1, caller_works=False, context=self.start_method, fingerprint="off", spin=0.0
            )
        run.set(train=self.train, job=job)
        self.busy = True
        run.tick_async()

    def answer(self, stops: bool) -> None:
        assert self.run is not None
        self.run.set(answer=stops)
        self.run.tick_async()

    def poll(self, seconds: float) -> Reported | Ended | WorkerDiedError | None:
        assert self.run is not None
        try:
            self.run.tick_wait(seconds)
        except TimeoutError:
            return None
        except WorkerDiedError as error:
            self.close()
            return error
        event: Reported | Ended
        (event,) = self.run.values("event")
        self.busy = isinstance(event, Reported)
        return event

    def close(self) -> None:
        run, self.run = self.run, None
        if run is not None:
            with contextlib.suppress(WorkerDiedError):  # what its trainings have come to is known
                run.close(timeout=LEFT, terminate=self.busy)


def close_all(seats: Iterable[Seat]) -> None:
    """Close seats at the same time: each may take a while."""
    seats = list(seats)
    if len(seats) == 1:
        seats[0].close()
    elif seats:
        with ThreadPoolExecutor(len(seats)) as pool:
            list(pool.map(lambda seat: seat.close(), seats))
