"""Search all states of a scenario in breadth: a problem comes with a shortest trace."""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from .closer import Model
from .state import FAULT, Scenario, ViolationError

__all__ = ["Found", "check", "search"]


class Searched(Protocol):
    """A model: its first state, the steps from a state, and whether a state is the end."""

    initial: Callable[[], Any]
    steps: Callable[[Any], Iterator[tuple[str, Any]]]
    is_over: Callable[[Any], bool]


@dataclass
class Found:
    """The outcome of a search.

    Attributes:
        states, steps: How many there are; of a problem, how many were seen until then.
        seconds: How long it took, in seconds of the processor.
        problem: What is wrong, empty if nothing is.
        trace: The labels of the steps that lead there, as few as possible.
    """

    states: int = 0
    steps: int = 0
    seconds: float = 0.0
    problem: str = ""
    trace: list[str] = field(default_factory=list)


def check(scenario: Scenario, most: int = 3_000_000) -> Found:
    """Search a scenario of the tick protocol."""
    return search(Model(scenario), most)


def search(model: Searched, most: int = 3_000_000) -> Found:
    """Search all states: none violates an invariant, nobody is stuck, and each leads to the end if nothing more goes wrong.

    Args:
        model: What is searched.
        most: After how many states it is a problem that there are so many.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _search(model, most)
    finally:
        if collecting:
            gc.enable()


def _search(model: Searched, most: int) -> Found:
    found, began = Found(), time.process_time()
    first = model.initial()
    numbers: dict[Hashable, int] = {first: 0}
    parents, backs, over = [(-1, "")], [[]], []  # type: list[tuple[int, str]], list[list[int]], list[int]
    todo = deque([first])

    def ended(problem: str, number: int) -> Found:
        labels = []
        while number:
            number, label = parents[number]
            labels.append(label)
        found.problem, found.trace = problem, labels[::-1]
        found.states, found.seconds = len(parents), time.process_time() - began
        return found

    while todo:
        state = todo.popleft()
        me, can = numbers[state], False
        try:
            for label, after in model.steps(state):
                if after == state:
                    continue
                found.steps += 1
                number = numbers.get(after)
                if number is None:
                    number = numbers[after] = len(parents)
                    parents.append((me, label))
                    backs.append([])
                    todo.append(after)
                if not label.startswith(FAULT):
                    can = True
                    backs[number].append(me)
        except ViolationError as error:
            return ended(str(error), me)
        if model.is_over(state):
            over.append(me)
        elif not can:
            return ended(f"nobody can go on: {state}", me)
        if len(parents) > most:
            return ended(f"more than {most} states", 0)
    stuck = _without_end(backs, over)
    return ended("", 0) if stuck is None else ended("from here it never ends", stuck)


def _without_end(backs: list[list[int]], over: list[int]) -> int | None:
    """The first state from which the end cannot be reached without a further fault."""
    good, todo = bytearray(len(backs)), list(over)
    for number in over:
        good[number] = 1
    while todo:
        for number in backs[todo.pop()]:
            if not good[number]:
                good[number] = 1
                todo.append(number)
    first = good.find(0)
    return None if first < 0 else first
