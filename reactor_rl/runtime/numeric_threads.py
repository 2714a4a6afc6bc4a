"""One thread for numeric libraries while reactions run: with another number of threads, the same sums give other bits.

BLAS, OpenMP and torch split a matrix product among as many threads as they are told, and the split decides in which order
numbers are added. Helper processes have one thread from the start. The caller has as many as the user wants, so it is limited
to one while a tick runs and gets the user's number back when the tick ends. The number is read at every tick and written only
where it is not one, so a reaction that changes it does so until the end of the tick, whichever worker it runs on.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, cast

from reactor_rl.runtime.guards import holding
from reactor_rl.runtime.limits import usable_cores

__all__ = [
    "SINGLE_THREADED",
    "SingleThreaded",
    "ended",
    "for_good",
    "hold",
    "in_thread",
    "loading",
    "one_numeric_thread",
    "release",
]

SINGLE_THREADED = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
"""Environment variables from which libraries take their number of threads when they are loaded."""

_AFFIXES = [(prefix, suffix) for prefix in ("", "scipy_") for suffix in ("", "64_", "_64")]
_NAMES = {
    "openblas": [(f"{p}openblas_get_num_threads{s}", f"{p}openblas_set_num_threads{s}") for p, s in _AFFIXES],
    "blis": [("bli_thread_get_num_threads", "bli_thread_set_num_threads")],
    "mkl": [("MKL_Get_Max_Threads", "MKL_Set_Num_Threads_Local")],
    "openmp": [("omp_get_max_threads", "omp_set_num_threads")],
}
_BY_THREAD = ("mkl", "openmp")


class _Library(NamedTuple):
    """Functions that read and write the number of threads of one library, for the process or for the calling thread.

    ``put`` sets it to one, and back to its old value, in the fastest way; ``word`` is the memory where it lies, if known.
    """

    name: str
    get: Callable[[], int]
    set: Callable[[int], Any]
    put: Callable[[int], Any]
    by_thread: bool
    word: memoryview | None = None


_modules = 0
"""Number of modules imported at the last search: a library comes with a module."""
_libraries: tuple[_Library, ...] = ()
_words: tuple[tuple[memoryview, Callable[[int], Any]], ...] = ()
_calls: tuple[_Library, ...] = ()
"""The libraries, split: those whose number lies at a known address, and those that have to be called."""
_lock = threading.RLock()
_holders: set[int] = set()
_helped: set[int] = set()  # those with helpers in this process
_thread: int | None = None
"""The thread that runs reactions, if it is the only one."""
_several = False
"""Whether more than one thread runs reactions here. Until then no lock is needed, which is most of the cost."""
_for_good = False
_shared: list[tuple[Callable[[int], Any], int]] = []
"""Numbers shared by all threads of this process, to be restored when the last run has left its tick."""


def _in_child() -> None:
    """After a fork: no other thread is there that could release the lock, or leave its tick."""
    _lock._at_fork_reinit()  # type: ignore[attr-defined]
    _holders.clear()
    _helped.clear()


if hasattr(os, "register_at_fork"):  # other systems cannot fork
    os.register_at_fork(after_in_child=_in_child)


@holding(_lock)
def _look() -> None:
    """Find the libraries loaded by now. Takes a millisecond, so it is only done when modules have been imported since."""
    from threadpoolctl import ThreadpoolController

    global _modules, _libraries, _words, _calls
    # Before the search: what another thread imports meanwhile is then found by the next one.
    _modules = len(sys.modules)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its warnings are about slow combinations of libraries
        libraries = [library for one in ThreadpoolController().lib_controllers if (library := _library(one)) is not None]
    torch: Any = sys.modules.get("torch")
    if hasattr(torch, "set_num_threads"):
        # First, because torch sets its OpenMP's number too.
        libraries.insert(0, _Library("torch", torch.get_num_threads, torch.set_num_threads, torch.set_num_threads, True))
    _libraries = tuple(libraries)
    _words = tuple((library.word, library.put) for library in libraries if library.word is not None)
    _calls = tuple(library for library in libraries if library.word is None)


def _library(controller: Any) -> _Library | None:
    """Look up a library's functions, for the most direct call that Python has."""
    kind, name = str(controller.internal_api), str(controller.filepath)
    if getattr(controller, "threading_layer", "") == "openmp":
        return None  # it uses the number of its OpenMP, which is in the list itself
    for get, put in _NAMES.get(kind, ()):
        if hasattr(controller.dynlib, get) and hasattr(controller.dynlib, put):
            # PYFUNCTYPE keeps the GIL. To release it and to take it again would cost more than the call.
            read = ctypes.PYFUNCTYPE(ctypes.c_int)(_address(controller.dynlib, get))
            write = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int)(_address(controller.dynlib, put))
            if kind == "openblas" and (word := _word(controller.dynlib, read)) is not None:
                return _Library(name, partial(word.__getitem__, 0), write, partial(word.__setitem__, 0), False, word)
            return _Library(name, read, write, write, kind in _BY_THREAD)
    if controller.get_num_threads() is None:
        return None
    return _Library(name, controller.get_num_threads, controller.set_num_threads, controller.set_num_threads, False)


def _word(dynlib: Any, read: Callable[[], int]) -> memoryview | None:
    """Find the word in which OpenBLAS keeps its number: writing it takes a fraction of a call through ctypes.

    The number may be lowered there and restored. Raising it further takes the function, because the threads must exist.
    """
    try:
        word = memoryview(ctypes.c_int.in_dll(dynlib, "blas_cpu_number")).cast("B").cast("i")
    except ValueError:
        return None
    before = read()
    if word[0] != before:
        return None
    word[0] = 1
    follows = read() == 1
    word[0] = before
    return word if follows else None


def _address(dynlib: Any, name: str) -> int:
    return cast(int, ctypes.cast(getattr(dynlib, name), ctypes.c_void_p).value)


def for_good() -> None:
    """Declare this process a helper, where no other number of threads has to be restored."""
    global _for_good
    _for_good = True


def hold() -> None:
    """Let every library that is loaded use one thread, here and now."""
    if len(sys.modules) > _modules:
        _look()
    for word, _ in _words:
        if word[0] > 1:
            word[0] = 1
    for library in _calls:
        if library.get() > 1:
            library.put(1)


def _keep(late: bool) -> None:
    """Do nothing: a helper process has nothing to restore."""


class SingleThreaded:
    """The limit of one worker: entered and left any number of times.

    Args:
        group: Number that all workers of a run have in common.
        helper: Whether it is a helper. The caller restores what all threads of the process share, once every helper is done;
            settings of a helper's own thread are not restored.

    Attributes:
        enter: Let every library use one thread, until :attr:`leave`. May be repeated.
        leave: Restore the user's numbers; ``leave(True)`` leaves out those shared with helpers, which are still at work.
    """

    def __init__(self, group: int = 0, helper: bool = False) -> None:
        self._group, self._helper = group or id(self), helper
        self._own: list[tuple[Callable[[int], Any], int]] = []  # to be restored in this thread alone
        self._all: list[tuple[Callable[[int], Any], int]] = []  # to be restored for the process, if no other run holds it
        # Called at every tick, so looked up once.
        self.enter: Callable[[], None] = hold if _for_good else self._enter
        self.leave: Callable[[bool], None] = _keep if _for_good else self._leave
        in_thread()

    def _enter(self) -> None:
        if len(sys.modules) > _modules:
            _look()
        if _several:
            self._enter_beside_others()
            return
        for word, put in _words:
            number = word[0]
            if number > 1:
                # Noted before it is changed, so that an interrupt in between loses nothing.
                self._all.append((put, number))
                word[0] = 1
        for library in _calls:
            number = library.get()
            if number > 1:
                (self._own if library.by_thread else self._all).append((library.put, number))
                library.put(1)

    @holding(_lock)
    def _enter_beside_others(self) -> None:
        _holders.add(self._group)
        if self._helper:
            _helped.add(self._group)
        for library in _libraries:
            number = library.get()
            if number > 1:
                if not library.by_thread:
                    _shared.append((library.put, number))
                elif not self._helper:
                    self._own.append((library.put, number))
                library.put(1)

    def _leave(self, late: bool) -> None:
        if self._own:
            _put_back(self._own)
        if not _several:
            if self._all:
                _put_back(self._all)
            return
        if self._all:  # others have come meanwhile
            self._share()
        if not (self._helper or (late and self._group in _helped)):
            release(self._group)

    @holding(_lock)
    def _share(self) -> None:
        _shared.extend(self._all)
        self._all.clear()


def in_thread() -> None:
    """Note that reactions run in this thread."""
    global _thread, _several
    if _thread is None:
        _thread = threading.get_ident()
    elif _thread != threading.get_ident():
        _several = True


@holding(_lock)
def release(group: int) -> None:
    """Note that a run has left its tick; the last one restores what all threads of this process share."""
    _holders.discard(group)
    if _shared and not _holders:
        _put_back(_shared)


def ended(group: int) -> None:
    """Note that a run with helpers in this process is over: none of them will enter any more."""
    _helped.discard(group)
    release(group)


def _put_back(numbers: list[tuple[Callable[[int], Any], int]]) -> None:
    while numbers:  # the first one last: it is the user's
        put, number = numbers[-1]
        # Forgotten only after it was put: after an interrupt in between it is put twice, which does no harm.
        put(number)
        del numbers[-1]


@contextlib.contextmanager
def one_numeric_thread() -> Iterator[None]:
    """Use one thread for code outside of reactions that must compute the same bits as they do, such as initial weights."""
    limit = SingleThreaded()
    try:
        limit.enter()
        yield
    finally:
        limit.leave(False)


_loaders: set[object] = set()
"""Those whose startup reactions run at the moment."""
_usual: dict[str, str | None] = {}
_known: set[str] = set()


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Run startup reactions so that libraries that they load have one thread from the first moment.

    Afterwards those libraries get the number they would have had: that of the user's variables, or the cores of this process.
    """
    if _for_good:  # the variables are set
        yield
        return
    loader = object()
    try:
        _load(loader)
        yield
    finally:
        _loaded(loader)


@holding(_lock)
def _load(loader: object) -> None:
    if not _loaders:
        _look()
        _known.update(library.name for library in _libraries)
        _usual.update({name: os.environ.get(name) for name in SINGLE_THREADED})
        # Libraries read these when they are loaded, and some start their threads at that moment.
        os.environ.update(dict.fromkeys(SINGLE_THREADED, "1"))
    _loaders.add(loader)


@holding(_lock)
def _loaded(loader: object) -> None:
    _loaders.discard(loader)
    if _loaders or not _usual:  # an interrupt may have come before anything was saved
        return
    for name, value in _usual.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    setting = _usual["OPENBLAS_NUM_THREADS"] or _usual["OMP_NUM_THREADS"] or ""
    usual = int(setting) if setting.isdigit() else usable_cores()
    _look()
    for library in _libraries:
        if library.name not in _known and library.get() == 1:
            library.set(usual)
    _known.clear()
    _usual.clear()
