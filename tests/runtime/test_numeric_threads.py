"""Numeric libraries have one thread while reactions run, wherever they run, and the user's number at all other times."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from reactor_rl import Output, Program, Reactor, Timer, reaction, shutdown, startup
from reactor_rl.runtime import launch, numeric_threads
from reactor_rl.runtime.limits import usable_cores
from reactor_rl.runtime.numeric_threads import SingleThreaded, one_numeric_thread

WAYS = [
    {"executor": "inline"},
    *({"executor": "threads", "workers": n} for n in (2, 3, 4)),
    *({"executor": "processes", "workers": n} for n in (2, 3, 4)),
    {"executor": "processes", "workers": 2, "caller_works": False},
    {"executor": "processes", "workers": 2, "start_method": "fork"},
]
FEW = [WAYS[0], WAYS[2], WAYS[4]]


def numbers() -> list[int]:
    """The number of threads of every library that is loaded here."""
    numeric_threads._look()
    return [library.get() for library in numeric_threads._libraries]


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    """Every library of this process has three threads, so that one is not what it has anyway."""
    pytest.importorskip("torch")  # here, so that helpers, which import this file, need not load it
    before = numbers()
    for library in numeric_threads._libraries:
        library.set(3)
    try:
        assert set(numbers()) == {3}
        yield
        assert set(numbers()) == {3}
    finally:
        for library, number in zip(numeric_threads._libraries, before, strict=True):
            library.set(number)


class Multiplies(Reactor):
    """Says what a matrix product comes to, and how many threads there are."""

    each = Timer(period=1)
    product, seen = Output((60, 40), np.float32), Output()

    def __init__(self, bank_index: int) -> None:
        self.seed = bank_index

    @reaction(startup)
    def begin(self) -> None:
        self.numbers = [numbers()]
        generator = np.random.default_rng(self.seed)
        self.a = generator.standard_normal((60, 300)).astype(np.float32)
        self.b = generator.standard_normal((300, 40)).astype(np.float32)

    @reaction(each, effects=(product, seen))
    def go(self) -> None:
        self.numbers.append(numbers())
        self.product.set(self.a @ self.b)
        self.seen.set(self.numbers)

    @reaction(shutdown)
    def end(self) -> None:
        assert set(numbers()) == {1}


def multiplies(kind: type[Reactor] = Multiplies) -> Program:
    program = Program("multiplies")
    bank = program.bank(kind, 4)
    program.connect(bank.product, program.output("products").rows)
    program.connect(bank.seen, program.output("seen").rows)
    return program


@pytest.mark.slow
def test_one_result_and_one_thread_everywhere() -> None:
    with one_numeric_thread():
        expected = []
        for seed in range(4):
            generator = np.random.default_rng(seed)
            a, b = (generator.standard_normal(shape).astype(np.float32) for shape in ((60, 300), (300, 40)))
            expected.append(a @ b)
    for way in WAYS:
        with multiplies().start(**way) as run:
            for stretch in (1, 1, 1, 2):
                run.run(stretch)
                assert set(numbers()) == {3}, way
                np.testing.assert_array_equal(run.products, expected, err_msg=str(way))
            for seen in run.seen:
                assert len(seen) == 6
                assert {number for found in seen for number in found} == {1}, way
        assert set(numbers()) == {3}, way


def test_ticks_in_a_row_without_a_look_in_between_have_one_thread_from_the_first_on() -> None:
    with multiplies().start(executor="inline", fingerprint="off") as run:
        for _ in range(2):
            run.run(3)
            assert set(numbers()) == {3}
        for seen in run.seen:
            assert {number for found in seen for number in found} == {1}


class Sets(Multiplies):
    """Has an idea of its own at tick 1, which lasts until that tick ends."""

    def go(self) -> None:
        self.numbers.append(numbers())
        self.seen.set(self.numbers)
        if self.tag[0] == 1:
            for library in numeric_threads._libraries:
                library.set(4)


def test_what_a_reaction_sets_is_gone_at_the_next_tick() -> None:
    for way in FEW:
        with multiplies(Sets).start(**way) as run:
            run.run(4)
            for seen in run.seen:
                others = seen[:2] + seen[3:]  # somebody may have been before it in the same worker
                assert {number for found in others for number in found} == {1}, way
        with multiplies(Sets).start(**way) as run:  # and nothing is set once there is no tick
            run.run(1)
            for _ in range(3):
                run.tick()
                assert set(numbers()) == {3}
            assert {number for seen in run.seen for number in seen[3]} == {1}, way


class Fails(Reactor):
    each = Timer(period=1)

    def __init__(self, where: str, error: type[BaseException]) -> None:
        self.where, self.error = where, error

    @reaction(startup)
    def begin(self) -> None:
        if self.where == "startup":
            raise self.error

    @reaction(each)
    def go(self) -> None:
        raise self.error


@pytest.mark.parametrize("where", ["startup", "tick"])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("way", [{"executor": "inline"}, {"executor": "threads", "workers": 2}], ids=str)
def test_put_back_however_a_tick_ends(where: str, error: Any, way: Any) -> None:
    program = Program("fails")
    program.add(Fails, where, error, name="fails")
    program.add(Fails, where, ValueError, name="other")
    placement = {} if way["executor"] == "inline" else {"placement": {"fails": 0, "other": 1}}
    with pytest.raises(error), program.start(**way, **placement) as run:
        run.tick()
    assert set(numbers()) == {3}


def test_a_tick_that_was_begun_and_never_waited_for() -> None:
    for way in FEW:
        run = multiplies().start(**way)
        run.tick()
        run.tick_async()
        run.close()
        assert set(numbers()) == {3}


def test_what_threads_share_is_put_back_by_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numeric_threads, "_several", False)
    monkeypatch.setattr(numeric_threads, "_thread", None)
    shared = [library for library in numeric_threads._libraries if not library.by_thread]
    assert shared
    one = SingleThreaded()
    with ThreadPoolExecutor(1) as elsewhere:
        for _ in range(2):  # the first time, nobody knows yet that there will be a second thread
            one.enter()
            other = elsewhere.submit(SingleThreaded).result()
            elsewhere.submit(other.enter).result()
            one.leave(False)
            assert {library.get() for library in shared} == {1}
            elsewhere.submit(other.leave, False).result()
            elsewhere.submit(other.leave, False).result()
            assert {library.get() for library in shared} == {3}
    one.enter()
    one.enter()
    one.leave(False)
    assert set(numbers()) == {3}


def test_a_thread_that_is_the_only_one_puts_everything_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numeric_threads, "_several", False)
    monkeypatch.setattr(numeric_threads, "_thread", None)
    limit = SingleThreaded()
    for _ in range(2):
        limit.enter()
        assert set(numbers()) == {1}
        limit.leave(False)
        assert set(numbers()) == {3}


def test_code_outside_of_reactions_has_one_thread_too() -> None:
    with one_numeric_thread():
        assert set(numbers()) == {1}
    assert set(numbers()) == {3}
    with pytest.raises(ValueError, match="no"), one_numeric_thread():
        raise ValueError("no")


class Library:
    """A library as threadpoolctl describes it."""

    def __init__(self, kind: str, number: int | None, dynlib: Any = None, layer: str = "") -> None:
        self.internal_api, self.filepath, self.dynlib, self.threading_layer = kind, f"lib{kind}.so", dynlib, layer
        self.number, self.sets = number, list[int]()

    def get_num_threads(self) -> int | None:
        return self.number

    def set_num_threads(self, number: int) -> None:
        self.number = number
        self.sets.append(number)


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The libraries that are found from now on, beside torch."""
    found: list[Any] = []
    numbers()  # what is loaded now is known

    def controller() -> Any:
        warnings.warn("these two are slow together", RuntimeWarning, stacklevel=1)
        return SimpleNamespace(lib_controllers=found)

    monkeypatch.setattr("threadpoolctl.ThreadpoolController", controller)
    monkeypatch.setitem(sys.modules, "rrl_comes_with_libraries", ModuleType("rrl_comes_with_libraries"))
    return found


def test_libraries_that_are_not_known_are_asked_through_threadpoolctl(libraries: list[Any]) -> None:
    other, none = Library("flexiblas", 4), Library("other", None)
    with_openmp = Library("mkl", 4, layer="openmp")  # it has the number of its OpenMP, which is in the list itself
    libraries += [other, none, with_openmp]
    with one_numeric_thread():
        assert other.number == sys.modules["torch"].get_num_threads() == 1
    assert other.sets == [1, 4] and none.sets == with_openmp.sets == []


def test_each_library_gets_back_its_own_number(libraries: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numeric_threads, "_several", False)
    monkeypatch.setattr(numeric_threads, "_thread", None)
    libraries += [Library("other", 4), Library("another", 5)]
    with one_numeric_thread():
        assert [one.number for one in libraries] == [1, 1]
    assert [one.sets for one in libraries] == [[1, 4], [1, 5]]


def test_an_openblas_whose_word_is_elsewhere_is_asked_by_its_functions(libraries: list[Any]) -> None:
    """The word is not touched unless it has the number that the function tells."""
    known = [library.name for library in numeric_threads._libraries if "openblas" in library.name]
    said, kept = [4], []

    @ctypes.CFUNCTYPE(ctypes.c_int)
    def get() -> int:
        return said[-1]

    @ctypes.CFUNCTYPE(None, ctypes.c_int)
    def put(number: int) -> None:
        said.append(number)

    for path in [None, *known]:  # without such a word, and with one of another library
        loaded = ctypes.CDLL(path)
        dynlib = SimpleNamespace(_handle=loaded._handle, openblas_get_num_threads=get, openblas_set_num_threads=put)
        libraries[:] = [Library("openblas", 4, dynlib)]
        kept.append(loaded)
        numbers()  # which looks for libraries
        with one_numeric_thread():
            assert said[-1] == 1
        assert said == [4, 1, 4]
        del said[1:]


def test_a_helper_has_nothing_to_put_back(libraries: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numeric_threads, "_for_good", False)
    numeric_threads.for_good()
    limit, one = SingleThreaded(), Library("other", 4)
    torch = [library for library in numeric_threads._libraries if library.name == "torch"]
    libraries.append(one)
    limit.enter()  # which looks for what has been loaded since
    limit.leave(False)
    assert one.sets == [1]
    for library in torch:
        library.set(3)


def test_what_is_loaded_meanwhile_gets_the_users_number(libraries: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    before = dict(os.environ)
    here, several = Library("here", 4), Library("several", 4)
    libraries.append(here)
    with numeric_threads.loading():
        assert {os.environ[name] for name in numeric_threads.SINGLE_THREADED} == {"1"}
        new = Library("new", 1)
        libraries += [new, several]
    assert dict(os.environ) == before
    assert (new.sets, here.sets, several.sets) == ([2], [], [])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_in_a_child_nobody_else_is_in_a_tick(libraries: list[Any]) -> None:
    one = Library("other", 4)
    libraries.append(one)
    with ThreadPoolExecutor(1) as elsewhere:
        elsewhere.submit(numeric_threads.in_thread).result()
        other = elsewhere.submit(SingleThreaded).result()
        elsewhere.submit(other.enter).result()
        child = os.fork()
        if not child:
            with one_numeric_thread():
                inside = one.number
            os._exit(0 if (inside, one.number) == (1, 4) else 1)
        assert one.number == 1
        elsewhere.submit(other.leave, False).result()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert one.number == 4


LOADS = """
import json, os, sys
from reactor_rl import Program, Reactor, Timer, reaction, startup

class Loads(Reactor):
    @reaction(startup)
    def begin(self):
        assert "torch" not in sys.modules
        import torch
        from reactor_rl.runtime import numeric_threads
        numeric_threads._look()
        self.numbers = [library.get() for library in numeric_threads._libraries]
        with open(sys.argv[1], "w") as file:
            json.dump(self.numbers + [torch.get_num_threads()], file)

program = Program("loads")
program.add(Loads)
before = dict(os.environ)
with program.start(executor="inline") as run:
    from reactor_rl.runtime import numeric_threads
    numeric_threads._look()
    print(json.dumps([library.get() for library in numeric_threads._libraries]))
    assert dict(os.environ) == before
"""


@pytest.mark.slow
@pytest.mark.skipif(usable_cores() < 2, reason="libraries take one thread on one core")
def test_a_library_that_a_startup_reaction_loads(tmp_path: Any) -> None:
    script, said = tmp_path / "loads.py", tmp_path / "said"
    script.write_text(LOADS.replace("sys.argv[1]", repr(str(said))))
    variables = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**variables, "OMP_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    inside = json.loads(said.read_text())
    assert len(inside) > 2 and set(inside) == {1}
    assert set(json.loads(done.stdout)) == {2}


def interrupts(wanted: int) -> Any:
    """A trace function that raises at a line of ``loading``, counted from 1."""
    lines = 0

    def tracer(frame: Any, event: str, arg: Any) -> Any:
        nonlocal lines
        if frame.f_code.co_name != "loading":
            return None
        if event == "line":
            lines += 1
            if lines == wanted:
                sys.settrace(None)
                raise KeyboardInterrupt
        return tracer

    return tracer


def test_an_interrupt_before_startup_reactions_puts_the_variables_back() -> None:
    before, wanted, entered = dict(os.environ), 0, False
    while not entered:
        wanted += 1
        loading = numeric_threads.loading()
        try:
            sys.settrace(interrupts(wanted))
            with loading:
                sys.settrace(None)
                entered = True
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        assert dict(os.environ) == before, wanted
        assert not numeric_threads._loaders
    assert wanted > 5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.timeout(60)
@pytest.mark.parametrize("lock", [numeric_threads._lock, launch._lock])
def test_a_lock_that_a_thread_holds_is_free_in_a_child(lock: Any) -> None:
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            let_go.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(30)
    child = os.fork()
    if not child:
        os._exit(0 if lock.acquire(timeout=5) else 1)
    let_go.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
