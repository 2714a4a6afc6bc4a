"""Statements without which nothing is wrong that a test on Linux could notice, each with the reason."""

from __future__ import annotations

_OTHER = "never run on Linux: another system's"
_OTHER_NAME = "it is about names of files, which only other systems have"
_NEVER = "never run: it says that a call is a mistake of ours"
_NONE = "None, which is returned instead, is false as well"
_LAST = "the function ends here anyway"
_AT_ONCE = "only the time that passes until the next try is shorter"
_TURN = "only a hint for the scheduler"
_TYPED = "only tells the type checker what is so"
_GONE = "only the name of a semaphore that is gone is looked for once more"
_LATER = "the last reference to it, which goes a moment later, closes it"
_MEMORY = "only the memory that stays in use is more"
_TIME = "only more time passes"
_FREED = "only memory is freed"

EQUIVALENT: dict[str, dict[str, str]] = {
    "reactor_rl/federation/recovery.py": {
        "RecoveringTransport._give_up: notes.requests.clear()": _FREED,
    },
    "reactor_rl/runtime/arithmetic.py": {
        "_c_library: return None": _OTHER,
    },
    "reactor_rl/runtime/boundary.py": {
        "Boundary.writer.write_simple: return": "the value is written, and stamped alike, once more",
    },
    "reactor_rl/runtime/channel.py": {
        "Channel.wait: yield_processor()": _TURN,
        "Channel.unlink: self._named = False": _GONE,
        "Channel._forget: self._named = self._tracked = False": _GONE,
        "Channel.__getstate__: spawning: Any = context.get_spawning_popen()": _OTHER,
        "Channel.__getstate__: handle = spawning.duplicate_for_child(handle)": _OTHER,
    },
    "reactor_rl/runtime/executor.py": {
        'InlineExecutor.send: raise AssertionError("there are no helpers")': _NEVER,
        'InlineExecutor.sent: raise AssertionError("there are no helpers")': _NEVER,
        'InlineExecutor.receive: raise AssertionError("there are no helpers")': _NEVER,
        "InlineExecutor.stopped: return False": _NONE,
        "InlineExecutor.died: return None": _LAST,
    },
    "reactor_rl/runtime/launch.py": {
        "_connect: time.sleep(_AGAIN)": _AT_ONCE,
        "end_server: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)": "a process that was killed ends in a moment anyway",
    },
    "reactor_rl/runtime/lifetime.py": {
        "RunLifetime.__del__: return": _LAST,
        "RunLifetime._hurry: time.sleep(PAUSE)": _AT_ONCE,
    },
    "reactor_rl/runtime/limits.py": {
        "_numbers: return []": "None, which is returned instead, does not have a number either",
        "shortage: return None": _LAST,
    },
    "reactor_rl/runtime/line.py": {
        "Line.send: self._connection.send(message)": _OTHER,
        "Line.send: return": _OTHER,
        "Line.receive: raise TimeoutError": _OTHER,
        "Line.receive: return self._connection.recv()": _OTHER,
        "Line.hang_up: self.close()": _OTHER,
    },
    "reactor_rl/runtime/plan.py": {
        "_arrays: assert inp.shape is not None": _TYPED,
        "_arrays: assert piece.at is not None": _TYPED,
        "_arrays: assert output.shape is not None": _TYPED,
    },
    "reactor_rl/runtime/processes.py": {
        "ProcessesExecutor._exchange: self._lines[worker - 1].close()": _LATER,
        "ProcessesExecutor._release: self._start = None": _MEMORY,
        "ProcessesExecutor._exchange: self.channels[pair].unlink()": _LATER,
    },
    "reactor_rl/runtime/recovery.py": {
        "RecoveringHelpers._give_up: self._history = WorkerHistory()": _MEMORY,
        "RecoveringHelpers._listen_until_revived: self._expect()": "the last look was a moment ago: little is taken for sleep",
    },
    "reactor_rl/runtime/revival.py": {
        "InputLog._object: assert side is not None": _TYPED,
        "apply_notes: assert block is not None": _TYPED,
        "apply_notes: continue": "nobody reads an output before its reaction writes it, and that writes the same again",
        "WorkerRevival._run: told = time.monotonic()": "only the reports of progress are more",
    },
    "reactor_rl/runtime/module_settings.py": {
        "settings_of: return ModuleSettings()": _TIME,
    },
    "reactor_rl/runtime/numeric_threads.py": {
        "_in_child: _helped.clear()": "no run of a child has the number of one of its parent's",
        "_look: _modules = len(sys.modules)": _TIME,
        "_library: return _Library(name, partial(word.__getitem__, 0), write, partial(word.__setitem__, 0), False, word)": _TIME,
        "_word: word[0] = 1": _TIME,
    },
    "reactor_rl/runtime/run.py": {
        'Run.__init__: self._mark_broken(f"it could not be started ({type(error).__name__})")': "busy runs are closed alike",
    },
    "reactor_rl/runtime/shared_memory.py": {
        'SharedMemory.__init__: self._path = str(Path(tempfile.gettempdir()) / f"reactor_rl-{secrets.token_hex(8)}")': _OTHER,
        "SharedMemory.__init__: self._fd = os.open(self._path, _SHARED | os.O_CREAT | os.O_EXCL, 0o600)": _OTHER,
        "SharedMemory.__init__: self._owner = os.getpid()": _OTHER_NAME,
        "SharedMemory._release: self.unlink()": _OTHER_NAME,
        "SharedMemory.grow: os.ftruncate(self._fd, size)": _OTHER,
        "SharedMemory.view: mapped = mmap.mmap(self._fd, end)": _OTHER,
        "SharedMemory.unlink: Path(path).unlink(missing_ok=True)": _OTHER,
        "available_memory: return None": _OTHER,
        "_human: raise AssertionError": _NEVER,
    },
    "reactor_rl/runtime/supervisor.py": {
        '_check_recovery: why = "this system: it needs POSIX, which can exchange pages of memory"': _OTHER,
    },
    "reactor_rl/runtime/threads.py": {
        "ThreadsExecutor.stopped: return False": _NONE,
    },
    "reactor_rl/runtime/worker/ports.py": {
        "OutputHandle._set_row: raise NotImplementedError": _NEVER,
    },
    "reactor_rl/runtime/worker/values.py": {
        '_nothing: raise AssertionError("an input without a source is never present")': _NEVER,
    },
}
"""By file and name of the statement (``function: text``). They are not judged."""
