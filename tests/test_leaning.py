"""What other packages do not promise and we rely on is as we know it: a new version that differs fails here, by name.

``docs/reference/leaning.md`` says where each thing is used, and what happens without it.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import dis
import gc
import importlib
import io
import multiprocessing
import os
import pickle
import platform
import random
import re
import sys
import threading
import tomllib
from collections import deque
from collections.abc import Callable, Iterator
from copy import deepcopy
from enum import Enum
from functools import cache, partial
from importlib.machinery import SourceFileLoader
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import ale_py  # noqa: F401
import cv2  # noqa: F401
import gymnasium
import mujoco
import numpy as np
import optuna
import pytest
import torch
from cloudpickle import cloudpickle
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.envs.mujoco.mujoco_rendering import MujocoRenderer
from gymnasium.vector import VectorEnv
from gymnasium.wrappers import OrderEnforcing, TimeLimit
from pettingzoo.utils.env import AECEnv
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.callbacks import EventCallback
from stable_baselines3.common.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from stable_baselines3.her import HerReplayBuffer
from threadpoolctl import ThreadpoolController
from torch import nn

ROOT = Path(__file__).parent.parent
FORKSERVER = pytest.mark.skipif("forkserver" not in multiprocessing.get_all_start_methods(), reason="there is no fork server")


def other(package: str, file: str, what: str) -> str:
    """The message of a failure.

    Args:
        package: Whose it is, as packages are installed.
        file: Ours that relies on it.
        what: What is not as it was.
    """
    release = platform.python_version() if package == "CPython" else version(package)
    return f"{package} {release}: {what}. {file} relies on it, see docs/reference/leaning.md"


@contextlib.contextmanager
def naming(told: str) -> Iterator[None]:
    """Let whatever is raised, such as an ``AttributeError``, be a failure with this message."""
    try:
        yield
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(told) from error


def ours(name: str) -> Any:
    """A module of ours, imported late: what it takes of others when it is imported may be what is gone."""
    return importlib.import_module(name)


# ---------------------------------------------------------------------- CPython


class Asking:
    def ask(self) -> tuple[bool, bool, bool]:
        return self.answer()

    def answer(self) -> tuple[bool, bool, bool]:
        caller: Any = sys._getframe(1)
        here: Any = sys._current_frames()[threading.get_ident()]
        own = caller.f_locals.get("self") is self
        return own, caller.f_globals["__name__"] == __name__ and caller.f_code.co_name == "ask", here.f_back is caller


def test_frames_tell_of_their_callers() -> None:
    told = other(
        "CPython", "reactor_gymnasium/arguments.py", "frames do not show the self of a caller, its module, or other threads"
    )
    assert Asking().ask() == (True, True, True), told


PROBE = """
import sys
frame, files = sys._getframe(), []
while frame:
    files.append(frame.f_code.co_filename)
    frame = frame.f_back
"""


def test_modules_are_imported_by_frozen_importlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rrl_leaning_probe.py").write_text(PROBE)
    monkeypatch.syspath_prepend(tmp_path)
    files = importlib.import_module("rrl_leaning_probe").files
    monkeypatch.delitem(sys.modules, "rrl_leaning_probe")
    told = other("CPython", "reactor_gymnasium/traces.py", "modules are not imported by code of <frozen importlib...>")
    assert any(file.startswith("<frozen importlib") for file in files), told


@pytest.mark.parametrize("make", [os.makedirs, Path.mkdir], ids=["makedirs", "Path.mkdir"])
def test_folders_are_made_by_os_mkdir_beside_exist_ok(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def mkdir(*args: Any, **kwargs: Any) -> None:
        caller = sys._getframe(1)
        seen.append((caller.f_code.co_name, caller.f_locals.get("exist_ok")))

    monkeypatch.setattr(os, "mkdir", mkdir)
    make(tmp_path / "new", exist_ok=True)
    told = other("CPython", "reactor_gymnasium/traces.py", f"{make.__name__} does not call os.mkdir from where exist_ok is")
    assert seen == [(make.__name__, True)], told


class Holder:
    env: Any


def test_reference_counts_tell_of_one_reference_more() -> None:
    owning = ours("reactor_gymnasium.environments.owning")
    told = partial(other, "CPython", "reactor_gymnasium/environments/owning.py")
    outer = Holder()
    outer.env = Holder()
    assert owning.ours_alone(outer), told("a reference that is the only one counts as several")
    another = outer.env
    assert not owning.ours_alone(outer), told("a second reference does not count")
    del another
    attributes = vars(outer.env)
    assert not owning.ours_alone(outer), told("a reference to the attributes of an object does not count")
    del attributes
    held = {"array": np.zeros(3)}
    assert not owning.shared(held.values()), told("an array that one container has counts as shared")
    view = held["array"][:1]
    assert owning.shared(held.values()), told("a view of an array is no reference to it")
    del view
    fresh = object()
    count = sys.getrefcount(fresh)
    assert count == owning.SOLE, told("local variables count in several ways")


def test_a_reference_of_a_container_counts_as_one() -> None:
    in_list, in_deque = [np.zeros(1)], deque([np.zeros(1)])
    for file, holder in ("reactor_gymnasium/native/guards.py", in_list), ("reactor_gymnasium/native/wrappers.py", in_deque):
        count = sys.getrefcount(holder[0])  # an assertion of pytest's would keep it
        assert count == 2, other("CPython", file, f"what a container alone refers to has the count {count}, not 2")


def test_a_view_of_a_class_refers_to_its_dict() -> None:
    watching = ours("reactor_gymnasium.native.watching")

    class Own:
        level = 1

    found = gc.get_referents(vars(Own))
    told = other("CPython", "reactor_gymnasium/native/watching.py", "vars() of a class does not refer to its dict alone")
    with naming(told):
        assert [type(one) for one in found] == [dict], told
        Own.level = 2
        assert watching._namespace(Own) is found[0] and found[0]["level"] == 2, told


def test_functions_give_their_parts_to_c() -> None:
    watching = ours("reactor_gymnasium.native.watching")

    def function(a: int = 1, *, b: int = 2) -> None: ...

    told = other(
        "CPython", "reactor_gymnasium/native/watching.py", "PyFunction_GetCode and its like do not give a function's parts"
    )
    with naming(told):
        getters = watching._getters()
        assert getters is not None and len(getters) == len(watching.PARTS), told
        for address, part in zip(getters, watching.PARTS, strict=True):
            borrowed = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(address)(function)
            assert borrowed == id(getattr(function, part)), told


def test_code_is_compiled_by_source_to_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, seen = SourceFileLoader.source_to_code, []

    def source_to_code(self: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(self.name)
        return usual(self, *args, **kwargs)

    (tmp_path / "rrl_leaning_source.py").write_text("VALUE = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(SourceFileLoader, "source_to_code", source_to_code)
    assert importlib.import_module("rrl_leaning_source").VALUE == 3
    monkeypatch.delitem(sys.modules, "rrl_leaning_source")
    told = other(
        "CPython", "reactor_rl/runtime/arithmetic.py", "a module's source is not compiled by SourceFileLoader.source_to_code"
    )
    assert seen == ["rrl_leaning_source"], told


def test_a_lock_knows_whether_its_thread_has_it() -> None:
    lock, told = threading.RLock(), other("CPython", "reactor_rl/runtime/lifetime.py", "RLock._is_owned() does not tell who has it")
    owned: Any = getattr(lock, "_is_owned", None)
    assert owned is not None and not owned(), told
    with lock:
        assert owned(), told


class Reached(Exception):
    """What was put in the place of a function was called."""


def begin_a_server() -> None:
    from multiprocessing.forkserver import ForkServer

    ForkServer().ensure_running()


def begin_a_process() -> None:
    process = multiprocessing.get_context("forkserver").Process(target=abs, args=(1,))
    process.start()
    process.join()


@FORKSERVER
@pytest.mark.parametrize(
    ("begin", "module", "name"),
    [
        (begin_a_server, "connection", "arbitrary_address"),
        (begin_a_process, "spawn", "get_preparation_data"),
        (begin_a_process, "forkserver", "connect_to_new_process"),
    ],
)
def test_processes_begin_through_names_of_multiprocessing(
    begin: Callable[[], None], module: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached = []

    def instead(*args: Any) -> Any:
        reached.append(args)
        raise Reached

    monkeypatch.setattr(importlib.import_module(f"multiprocessing.{module}"), name, instead)
    with contextlib.suppress(Reached):
        begin()
    told = other("CPython", "reactor_rl/runtime/launch.py", f"a process does not begin through multiprocessing.{module}.{name}")
    assert len(reached) == 1, told


def test_children_are_told_where_main_is(monkeypatch: pytest.MonkeyPatch) -> None:
    from multiprocessing import spawn

    told = other("CPython", "reactor_rl/runtime/launch.py", "spawn.get_preparation_data() names __main__ otherwise")
    with naming(told):
        main: Any = ModuleType("__main__")
        main.__file__ = __file__
        monkeypatch.setitem(sys.modules, "__main__", main)
        assert "init_main_from_path" in spawn.get_preparation_data("one"), told
        main.__spec__ = importlib.machinery.ModuleSpec("a_package.__main__", None)
        assert "init_main_from_name" in spawn.get_preparation_data("one"), told


@FORKSERVER
def test_a_fork_server_keeps_its_process_by_that_name() -> None:
    from multiprocessing.forkserver import ForkServer

    server = ForkServer()
    told = partial(other, "CPython", "reactor_rl/runtime/launch.py")
    assert getattr(server, "_forkserver_pid", 0) is None, told("a fork server that has not begun has a _forkserver_pid")
    for name in ("ensure_running", "connect_to_new_process", "set_forkserver_preload"):
        assert callable(getattr(server, name, None)), told(f"a ForkServer has no {name}()")


@pytest.mark.skipif(sys.platform == "win32", reason="semaphores have no names there")
def test_semaphores_are_those_under_multiprocessing() -> None:
    import _multiprocessing

    told = other("CPython", "reactor_rl/runtime/channel.py", "_multiprocessing.SemLock counts, or is found by its name, otherwise")
    with naming(told):
        name = f"/rrl-{os.getpid():x}-leaning"
        one = _multiprocessing.SemLock(1, 0, 2**31 - 1, name, False)
        try:
            same = _multiprocessing.SemLock._rebuild(one.handle, 1, one.maxvalue, name)
        finally:
            _multiprocessing.sem_unlink(name)
        assert not same.acquire(False), told
        one.release()
        assert same.acquire(False) and not one.acquire(False), told
        assert not one.acquire(True, 0.001), told


READ = 1


def reads_and_writes(one: Any) -> Any:
    global WRITTEN
    WRITTEN = READ
    one.stored = one.loaded.called()
    return lambda: len(str(READ))


def test_instructions_name_what_code_uses() -> None:
    told = partial(other, "CPython")
    names = ours("reactor_gymnasium.evaluation.contents")._globals_of(reads_and_writes.__code__)
    assert names == ("READ", "WRITTEN", "len", "str"), told(
        "reactor_gymnasium/evaluation/contents.py", "globals have other instructions"
    )
    found = [(one.opname, one.argval) for one in dis.get_instructions(reads_and_writes)]
    loaded = {value for name, value in found if name.startswith("LOAD_") and isinstance(value, str)}
    stored = [value for name, value in found if name == "STORE_ATTR"]
    attributes = told("reactor_torch/structure.py", "attributes have other instructions")
    assert stored == ["stored"] and loaded >= {"READ", "loaded", "called"}, attributes


def test_an_exception_may_become_one_of_another_class() -> None:
    class One(Exception):
        pass

    class Other(Exception):
        pass

    told = other("CPython", "reactor_rl/pickling.py", "an exception does not take another class")
    error: Any = One("said")
    with contextlib.suppress(TypeError):
        error.__class__ = Other
    caught: list[type] = []
    try:
        raise error
    except Other:
        caught.append(Other)
    except One:
        caught.append(One)
    assert caught == [Other] and error.args == ("said",), told


def test_the_generator_of_random_is_its_inst() -> None:
    told = other("CPython", "reactor_gymnasium/evaluation/contents.py", "random._inst is not whom random's functions draw from")
    assert getattr(random, "_inst", None) is random.random.__self__, told  # type: ignore[attr-defined]


# ---------------------------------------------------------------------- numpy and what it computes with


def test_numpys_ufuncs_have_their_loops_where_its_headers_say() -> None:
    compiled = ours("reactor_gymnasium.native.compiled")
    told = other(
        "numpy", "reactor_gymnasium/native/compiled.py", "a ufunc looks otherwise than PyUFuncObject, so kernels in C are off"
    )
    with naming(told):
        loops = compiled.loops()
        assert loops is not None, told
        called = ctypes.CFUNCTYPE(
            None, *[ctypes.POINTER(kind) for kind in (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_ssize_t)], ctypes.c_void_p
        )
        wanted = [(ufunc, dtype) for dtype in (np.float64, np.float32) for ufunc in (np.sin, np.cos)]
        for (address, given), (ufunc, dtype) in zip(loops, wanted, strict=True):
            angles, found = np.linspace(0, 3, 5, dtype=dtype), np.zeros(5, dtype)
            arrays, step = (ctypes.c_void_p * 2)(angles.ctypes.data, found.ctypes.data), angles.itemsize
            called(address)(arrays, (ctypes.c_ssize_t * 1)(5), (ctypes.c_ssize_t * 2)(step, step), given)
            assert found.tobytes() == ufunc(angles).tobytes(), told


def test_numpy_has_another_object_whenever_its_errors_are_set() -> None:
    kernel = ours("reactor_gymnasium.native.kernel")
    told = other(
        "numpy",
        "reactor_gymnasium/native/kernel.py",
        "numpy._core.umath._extobj_contextvar does not show that np.seterr was called",
    )
    if int(np.__version__.partition(".")[0]) < 2:
        assert kernel._errors is None, told
        return
    assert kernel._errors is not None, told
    before = kernel._errors.get()
    assert kernel._errors.get() is before, told
    with np.errstate(over="raise"):
        assert kernel._errors.get() is not before, told


def test_the_generator_of_numpys_functions_is_its_rand() -> None:
    told = other(
        "numpy", "reactor_gymnasium/evaluation/contents.py", "np.random.mtrand._rand is not whom np.random's functions draw from"
    )
    generator = getattr(np.random.mtrand, "_rand", None)
    assert generator is not None, told
    before = generator.get_state()
    try:
        np.random.seed(3)
        assert np.random.random() == np.random.RandomState(3).random(), told
        assert generator.get_state()[2] == np.random.get_state()[2] != before[2] or generator.get_state()[1][0] == 3, told
    finally:
        generator.set_state(before)


def _openblas() -> Iterator[Any]:
    yield from (one for one in ThreadpoolController().lib_controllers if one.internal_api == "openblas")


def test_threadpoolctl_describes_libraries() -> None:
    told = other("threadpoolctl", "reactor_rl/runtime/numeric_threads.py", "its lib_controllers describe a library otherwise")
    with naming(told):
        libraries = ThreadpoolController().lib_controllers
        assert libraries, told  # torch's OpenMP is there in any case
        for one in libraries:
            assert isinstance(one.internal_api, str) and isinstance(one.dynlib, ctypes.CDLL) and Path(one.filepath).exists(), told
            assert isinstance(one.get_num_threads(), int) and callable(one.set_num_threads), told


def test_openblas_keeps_its_threads_in_blas_cpu_number() -> None:
    numeric_threads = ours("reactor_rl.runtime.numeric_threads")
    libraries = list(_openblas())
    if not libraries:
        pytest.skip("numpy was built without OpenBLAS")
    for one in libraries:
        told = other(
            "numpy", "reactor_rl/runtime/numeric_threads.py", f"OpenBLAS {one.version} has its number of threads elsewhere"
        )
        found = numeric_threads._library(one)
        assert found is not None and found.word is not None, told
        before = one.get_num_threads()
        assert found.word[0] == before, told
        found.word[0] = 1
        try:
            assert one.get_num_threads() == 1, told
        finally:
            found.word[0] = before


# ---------------------------------------------------------------------- cloudpickle


def test_cloudpickle_tracks_classes_by_id() -> None:
    pickling = ours("reactor_rl.pickling")

    class Own:
        pass

    told = other(
        "cloudpickle",
        "reactor_rl/pickling.py",
        "classes that are sent by value are not in _DYNAMIC_CLASS_TRACKER_BY_ID and _BY_CLASS",
    )
    with naming(told):
        data = cloudpickle.dumps(Own)
        number = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS.get(Own)
        assert isinstance(number, str) and cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(number) is Own, told
        with cloudpickle._DYNAMIC_CLASS_TRACKER_LOCK:
            pass
        assert pickling._MARK in data and pickle.loads(data) is Own, told


class _Noting(pickle.Unpickler):
    """Notes how functions of cloudpickle's are called."""

    def __init__(self, file: Any) -> None:
        super().__init__(file)
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        return partial(self._note, name, found) if module == "cloudpickle.cloudpickle" and callable(found) else found

    def _note(self, name: str, function: Any, *args: Any) -> Any:
        self.calls.append((name, args))
        return function(*args)


def test_cloudpickle_makes_classes_by_functions_that_are_told_the_id() -> None:
    pickling = ours("reactor_rl.pickling")

    class Own:
        level = 1

    class Kind(Enum):
        ONE = 1

    sent: dict[str, Any] = {"_make_skeleton_class": Own, "_make_skeleton_enum": Kind, "_make_typevar": TypeVar("Sent")}  # type: ignore[misc]
    assert sent.keys() == pickling._NUMBER.keys()
    for name, value in sent.items():
        told = other("cloudpickle", "reactor_rl/pickling.py", f"{name}() is called otherwise")
        unpickler = _Noting(io.BytesIO(cloudpickle.dumps(value)))
        assert unpickler.load() is value, told
        (args,) = [args for called, args in unpickler.calls if called == name]
        assert args[pickling._NUMBER[name]] == cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS[value], told
        filled = [args[0] for called, args in unpickler.calls if called == "_class_setstate"]
        assert filled == ([] if name == "_make_typevar" else [value]), told


# ---------------------------------------------------------------------- Gymnasium, MuJoCo and ale-py


def test_gymnasiums_environments_and_wrappers_keep_their_states_by_these_names() -> None:
    told = partial(other, "gymnasium", "reactor_gymnasium/environments/bypass.py")
    env: Any = gymnasium.make("CartPole-v1", max_episode_steps=7)
    levels = {type(env): env}
    while isinstance(env, gymnasium.Wrapper):
        env = env.env
        levels[type(env)] = env
    limit, order = levels[TimeLimit], levels[OrderEnforcing]
    assert getattr(order, "_has_reset", None) is False, told("OrderEnforcing has no _has_reset")
    limit.reset(seed=3)
    assert (getattr(limit, "_max_episode_steps", 0), getattr(limit, "_elapsed_steps", 1)) == (7, 0), told(
        "TimeLimit counts otherwise"
    )
    assert vars(env).get("_np_random") is env.np_random, told("Env has no _np_random")
    assert vars(env).get("_np_random_seed") == 3, told("Env has no _np_random_seed")


def test_gymnasiums_vector_environments_add_infos() -> None:
    told = other("gymnasium", "reactor_gymnasium/environments/infos.py", "VectorEnv._add_info() adds otherwise")
    with naming(told):
        envs: Any = VectorEnv()
        envs.num_envs = 2
        infos = envs._add_info({}, {"n": 5}, 1)
        assert {name: value.tolist() for name, value in infos.items()} == {"n": [0, 5], "_n": [False, True]}, told


def test_gymnasium_finds_specifications_of_modules() -> None:
    told = other("gymnasium", "reactor_gymnasium/make.py", "registration._find_spec() does not find module:id")
    find: Any = getattr(gymnasium.envs.registration, "_find_spec", None)
    assert find is not None and find("gymnasium.envs:CartPole-v1") is gymnasium.spec("CartPole-v1"), told


def test_renderers_of_mujoco_keep_their_viewers() -> None:
    model = mujoco.MjModel.from_xml_string("<mujoco/>")
    renderer = MujocoRenderer(model, mujoco.MjData(model))
    told = other(
        "gymnasium", "reactor_gymnasium/native/simulated.py", "MujocoRenderer has no _viewers, or has some from the beginning"
    )
    with naming(told):
        assert getattr(renderer, "_viewers", None) == {} and renderer.viewer is None, told


def test_screens_are_left_out_of_these_very_classes() -> None:
    unseen, roots = ours("reactor_gymnasium.atari.unseen"), ours("reactor_gymnasium.native.kernel").ROOTS
    packages = {"gymnasium": "gymnasium", "stable_baselines3": "stable-baselines3", "ale_py": "ale-py"}
    for (module, name), known in unseen._WRITTEN_FROM.items():
        if package := packages.get(module.partition(".")[0]):
            why = ours("reactor_rl.plugin").unmodified(getattr(importlib.import_module(module), name), roots, known)
            assert why is None, other(package, "reactor_gymnasium/atari/unseen.py", f"{name} is new code ({why})")


# ---------------------------------------------------------------------- Stable-Baselines3


def _class_of(env: Any) -> str:
    return type(env).__name__


def test_workers_of_stable_baselines3_have_their_environment_in_env() -> None:
    sb3: Any = importlib.import_module("stable_baselines3.common.vec_env.subproc_vec_env")
    live = ours("reactor_sb3.environments.live_vec_env")
    mine, theirs = multiprocessing.Pipe()
    parents, _ = ends = multiprocessing.Pipe()
    thread = threading.Thread(target=sb3._worker, args=(theirs, parents, sb3.CloudpickleWrapper(CartPoleEnv)))
    thread.start()
    try:
        answers = []
        for request in ("set_attr", (live._ATTRIBUTE, live._InWorker(_class_of))), ("env_method", (live._ATTRIBUTE, (), {})):
            mine.send(request)
            answers.append(mine.recv() if mine.poll(10) else None)
        mine.send(("close", None))
    finally:
        thread.join(10)
        for end in (mine, theirs, *ends):
            end.close()
    told = other(
        "stable-baselines3", "reactor_sb3/environments/live_vec_env.py", "its workers do not call methods where env is theirs"
    )
    assert answers == [None, "CartPoleEnv"], told


def test_stable_baselines3_takes_gymnasiums_environments_as_they_are() -> None:
    patch: Any = getattr(importlib.import_module("stable_baselines3.common.vec_env.patch_gym"), "_patch_env", None)
    env: Any = gymnasium.Env()
    told = other("stable-baselines3", "reactor_sb3/environments/makers.py", "patch_gym._patch_env() is gone, or wraps environments")
    assert patch is not None and patch(env) is env, told


def test_noises_of_stable_baselines3_draw_as_ours() -> None:
    noise = ours("reactor_sb3.acting.noise")
    before = np.random.get_state()
    try:
        for kind in (NormalActionNoise, OrnsteinUhlenbeckActionNoise):
            theirs = kind(np.full(2, 0.5), np.full(2, 0.25))
            copied = deepcopy(theirs)
            np.random.seed(3)
            draws = np.random.RandomState(3)
            told = other("stable-baselines3", "reactor_sb3/acting/noise.py", f"{kind.__name__} draws otherwise")
            assert [theirs().tobytes() for _ in range(3)] == [noise._noise(copied, draws).tobytes() for _ in range(3)], told
            assert vars(copied).keys() >= {"_mu", "_sigma", "_dtype"}, told
    finally:
        np.random.set_state(before)


def test_stable_baselines3_has_these_names_for_subclasses() -> None:
    venv = DummyVecEnv([partial(gymnasium.make, "CartPole-v1")])
    normalized = VecNormalize(venv)
    every = (
        "_wrap_env", "_setup_lr_schedule", "_update_learning_rate", "_update_current_progress_remaining", "_update_info_buffer",
        "_stats_window_size", "_custom_logger", "_current_progress_remaining", "_n_updates", "_episode_num",
        "_num_timesteps_at_start", "_total_timesteps", "_last_obs", "_last_original_obs", "_last_episode_starts",
        "_vec_normalize_env",
    )  # fmt: skip
    wanted: list[tuple[str, Any, tuple[str, ...]]] = [
        ("trainers/", PPO("MlpPolicy", venv, n_steps=2, batch_size=2, _init_setup_model=False), every),
        (
            "trainers/",
            DQN("MlpPolicy", venv, buffer_size=2, _init_setup_model=False),
            (*every, "_convert_train_freq", "_create_aliases", "_n_calls"),
        ),
        ("environments/", venv, ("_get_indices", "_reset_seeds", "_reset_options", "_seeds", "_options")),
        ("acting/normalization.py", normalized, ("_update_reward",)),
        ("policies.py", ActorCriticPolicy, ("_get_action_dist_from_latent", "_predict")),
        ("algorithms/pqn_policies.py", BasePolicy, ("_dummy_schedule", "_update_features_extractor")),
        ("trainers/hindsight.py", HerReplayBuffer, ("_compute_episode_length",)),
        ("evaluation/callback.py", EventCallback, ("_on_event",)),
    ]
    for file, thing, names in wanted:
        kind = thing if isinstance(thing, type) else type(thing)
        lacking = [name for name in names if not hasattr(thing, name)]
        assert not lacking, other("stable-baselines3", f"reactor_sb3/{file}", f"{kind.__name__} has no {lacking}")
    normalized._update_reward(np.array([2.0]))
    assert normalized.returns.tolist() == [2.0] and normalized.ret_rms.mean > 0, other(
        "stable-baselines3", "reactor_sb3/acting/normalization.py", "VecNormalize._update_reward() does something else"
    )


# ---------------------------------------------------------------------- torch


def test_torch_keeps_hooks_by_these_names() -> None:
    told = partial(other, "torch")
    module, of_modules = nn.Linear(1, 1), "reactor_torch/unmodified.py"
    for name, add in (
        ("_forward_hooks", module.register_forward_hook), ("_forward_pre_hooks", module.register_forward_pre_hook),
        ("_backward_hooks", module.register_full_backward_hook), ("_backward_pre_hooks", module.register_full_backward_pre_hook),
    ):  # fmt: skip
        handle = add(lambda *_: None)
        assert len(getattr(module, name, ())) == 1, told(of_modules, f"the {name} of a module are kept elsewhere")
        of_all = getattr(nn.modules.module, f"_global{name}", None)
        assert isinstance(of_all, dict), told(of_modules, f"there are no _global{name}")
        handle.remove()
    weight = module.weight
    for name, on_parameter in (
        ("_backward_hooks", weight.register_hook), ("_post_accumulate_grad_hooks", weight.register_post_accumulate_grad_hook)
    ):  # fmt: skip
        handle = on_parameter(lambda *_: None)
        assert len(getattr(weight, name, None) or ()) == 1, told("reactor_torch/flat.py", f"a tensor's {name} are kept elsewhere")
        handle.remove()
    optimizer: Any = torch.optim.Adam.__new__(torch.optim.Adam)
    optimizer.__setstate__({"defaults": {}, "state": {}, "param_groups": []})  # the constructor imports torch's compiler
    for own, all_of, add in (
        ("_optimizer_step_pre_hooks", "_global_optimizer_pre_hooks", optimizer.register_step_pre_hook),
        ("_optimizer_step_post_hooks", "_global_optimizer_post_hooks", optimizer.register_step_post_hook),
    ):
        handle = add(lambda *_: None)
        assert len(getattr(optimizer, own, ())) == 1, told("reactor_torch/flat.py", f"the {own} of an optimizer are kept elsewhere")
        handle.remove()
        of_all = getattr(importlib.import_module("torch.optim.optimizer"), all_of, None)
        assert isinstance(of_all, dict), told("reactor_torch/flat.py", f"there are no {all_of}")


def test_torch_has_these_base_classes() -> None:
    normal = getattr(nn.modules.batchnorm, "_BatchNorm", type(None))
    drop = getattr(nn.modules.dropout, "_DropoutNd", type(None))
    for kind in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm, nn.LazyBatchNorm1d):
        assert issubclass(kind, normal), other("torch", "reactor_torch/slicing.py", f"{kind.__name__} is no _BatchNorm")
    for kind in (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout):
        assert issubclass(kind, drop), other("torch", "reactor_torch/streams.py", f"{kind.__name__} is no _DropoutNd")


def test_torch_tells_which_buffers_are_not_saved() -> None:
    module = nn.Module()
    module.register_buffer("saved", torch.zeros(1))
    module.register_buffer("kept", torch.zeros(1), persistent=False)
    told = other("torch", "reactor_torch/structure.py", "a module has no _non_persistent_buffers_set")
    assert getattr(module, "_non_persistent_buffers_set", None) == {"kept"}, told


def test_torchs_distributions_say_whether_they_check() -> None:
    kind = torch.distributions.Distribution
    before = getattr(kind, "_validate_args", None)
    told = other(
        "torch", "reactor_sb3/checkpoints/made_from.py", "set_default_validate_args() sets something else than _validate_args"
    )
    assert isinstance(before, bool), told
    kind.set_default_validate_args(not before)
    try:
        assert kind._validate_args is not before, told
    finally:
        kind.set_default_validate_args(before)


def test_torchs_operations_tell_what_they_take() -> None:
    told = other("torch", "reactor_torch/streams.py", "operations (OpOverload) describe themselves otherwise")
    with naming(told):
        normal, dropout = torch.ops.aten.normal_.default, torch.ops.aten.dropout.default
        assert (normal.name(), torch.ops.aten.rand.generator.name()) == ("aten::normal_", "aten::rand.generator"), told
        assert [one.name for one in normal._schema.arguments] == ["self", "mean", "std", "generator"], told
        composite = torch._C.DispatchKey.CompositeImplicitAutograd
        made = [torch._C._dispatch_has_kernel_for_dispatch_key(one.name(), composite) for one in (dropout, normal)]
        assert made == [True, False], told
        assert dropout._op_dk(composite, torch.ones(3), 0.0, True).tolist() == [1.0, 1.0, 1.0], told


def test_torch_can_be_asked_about_a_plain_tensor() -> None:
    images_of: Any = ours("reactor_torch.images").Images
    told = other("torch", "reactor_torch/images.py", "DisableTorchFunctionSubclass, or _pytree.tree_map_only, does something else")
    with naming(told):
        tree = importlib.import_module("torch.utils._pytree").tree_map_only
        assert tree(int, lambda number: number + 1, (1, [2.5, {"a": 3}])) == (2, [2.5, {"a": 4}]), told
        assert hasattr(torch._C, "DisableTorchFunctionSubclass") and hasattr(torch._C, "DisableTorchFunction"), told
        images = images_of.of(torch.arange(4, dtype=torch.uint8).reshape(1, 1, 2, 2))
        assert type(images) is images_of and type(images.bytes) is torch.Tensor, told
        total: Any = torch.cat([images, images])
        assert type(total) is torch.Tensor and total.flatten().tolist() == [0, 1, 2, 3] * 2, told


# ---------------------------------------------------------------------- PettingZoo and Optuna


def test_pettingzoo_keeps_what_agents_were_paid_in_cumulative_rewards() -> None:
    env: Any = AECEnv()
    env.agents, env.agent_selection, env.rewards, env._cumulative_rewards = ["a"], "a", {"a": 1.5}, {"a": 1.0}
    env.terminations, env.truncations, env.infos = {"a": False}, {"a": False}, {"a": {}}
    told = other("pettingzoo", "reactor_pettingzoo/copies.py", "last() does not tell what is in _cumulative_rewards")
    with naming(told):
        env._accumulate_rewards()
        assert env._cumulative_rewards == {"a": 2.5} and env.last(observe=False)[1] == 2.5, told


def test_optuna_tells_of_storages_studies_and_generators() -> None:
    study_of_ours = ours("reactor_sb3.sweeping.study")
    told = partial(other, "optuna", "reactor_sb3/sweeping/study.py")
    sampler = optuna.samplers.TPESampler(seed=3)
    with study_of_ours.silenced():
        study = optuna.create_study(sampler=sampler)
    assert isinstance(getattr(study, "_storage", None), optuna.storages.InMemoryStorage), told("a Study has no _storage")
    assert study_of_ours._unseeded(optuna.samplers.RandomSampler()), told("a sampler without a seed has one")
    assert not study_of_ours._unseeded(optuna.samplers.RandomSampler(seed=3)), told("a sampler with a seed has none")
    assert not study_of_ours._used(sampler), told("a sampler that has seen no study has a _study_id")
    study.ask({"x": optuna.distributions.FloatDistribution(0, 1)})
    assert study_of_ours._used(sampler), told("a sampler that has seen a study has no _study_id")


# ---------------------------------------------------------------------- the page


WORDS = re.compile(
    r"_getframe|_current_frames|\.f_locals|getrefcount\b|import ctypes|\.__class__ = |_at_fork_reinit|_DYNAMIC_CLASS|source_to_code"
    r"|MAP_FIXED|get_referents|get_instructions|\bco_code\b"
)
"""Whoever has one of these is named itself on the page; for other private names its folder will do."""
DOCUMENTED = {"_exit", "_is_gil_enabled"}
AS_A_WHOLE = (
    "reactor_ray/rllib/", "reactor_gymnasium/native/mujoco_v", "reactor_gymnasium/native/wrappers.py",
    "reactor_gymnasium/atari/unseen.py",
)  # fmt: skip
"""Files whose names are held by fingerprints, or by comparisons with what is subclassed, and not listed."""


@cache
def page() -> str:
    return (ROOT / "docs" / "reference" / "leaning.md").read_text()


@cache
def rows() -> list[list[str]]:
    cells = [line.strip("| ").split(" | ") for line in page().splitlines() if line.startswith("| ") and "`" in line]
    assert all(len(row) == 4 for row in cells)
    return cells


@cache
def sources() -> dict[str, str]:
    """The product, file by file, without the folder of plugins."""
    found = sorted(path for folder in ("reactor_rl", "plugins") for path in (ROOT / folder).rglob("*.py"))
    return {path.relative_to(ROOT).as_posix().removeprefix("plugins/"): path.read_text() for path in found}


def private(name: Any) -> bool:
    return isinstance(name, str) and re.fullmatch(r"_[a-zA-Z]\w*", name) is not None and name not in DOCUMENTED


def made_and_taken(tree: ast.Module) -> tuple[set[str], set[str]]:
    """Names that code gives to something, and those that it imports from others or asks of anything."""
    made, taken = set[str](), set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                made.add(name)
            case ast.Attribute(attr=name, ctx=ast.Store()) | ast.Name(id=name, ctx=ast.Store()):
                made.add(name)
            case ast.Attribute(attr=name):
                taken.add(name)
            case ast.ImportFrom(module=str(module), names=names) if not module.startswith("reactor_"):
                taken |= {name.name for name in names} | {part for part in module.split(".") if private(part)}
            case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[_, ast.Constant(value=str(name)), *_]):
                taken.add(name)
    return made, taken


@cache
def names_of_others() -> dict[str, set[str]]:
    """By file the private names that nothing of ours has."""
    own, taken = set[str](), dict[str, set[str]]()
    for file, text in sources().items():
        made, taken[file] = made_and_taken(ast.parse(text))
        own |= made
    found = {file: set(filter(private, names - own)) for file, names in taken.items()}
    assert sum(map(len, found.values())) > 100, "nothing is found any more"
    return found


def test_each_row_names_tests_that_are_there_and_each_test_here_has_a_row() -> None:
    named = set()
    for what, _, _, tests in rows():
        found = re.findall(r"`(?:(tests/[\w/]+\.py)::)?(test_\w+)`", tests)
        assert found, f"docs/reference/leaning.md names no test in the row of {what}"
        for file, test in found:
            named.add(test)
            text = (ROOT / (file or "tests/test_leaning.py")).read_text()
            assert f"\ndef {test}(" in text, f"docs/reference/leaning.md names {file}::{test}, which is gone"
    here = Path(__file__).read_text().partition("# " + "-" * 70 + " the page")[0]
    assert set(re.findall(r"^def (test_\w+)", here, re.MULTILINE)) <= named


def test_files_of_the_page_are_there() -> None:
    files = {file for what, *_ in rows() for file in re.findall(r"`(reactor_\w+/[\w/.]*)`", what)}
    assert len(files) > 30
    for file in files:
        assert any(one == file or (file.endswith("/") and one.startswith(file)) for one in sources()), f"{file} is gone"


@pytest.mark.slow
def test_whoever_leans_on_something_is_on_the_page() -> None:
    named = set(re.findall(r"`(reactor_\w+/[\w/.]*)`", page()))
    folders = tuple(file for file in named if file.endswith("/"))
    for file, text in sources().items():
        words = sorted(set(WORDS.findall(text)))
        assert not words or file in named, f"docs/reference/leaning.md does not name {file}, which has {words}"
        names = sorted(names_of_others()[file])
        assert not names or file in named or file.startswith(folders), (
            f"docs/reference/leaning.md does not name {file}, with {names}"
        )


def test_private_names_of_others_are_on_the_page_or_tested_here() -> None:
    known = page() + Path(__file__).read_text()
    named = {file: names for file, names in names_of_others().items() if not file.startswith(AS_A_WHOLE)}
    unknown = [(file, name) for file in named for name in named[file] if not re.search(rf"\b{re.escape(name)}\b", known)]
    assert not unknown, f"neither docs/reference/leaning.md nor tests/test_leaning.py has {unknown}"


def test_headings_have_the_versions_that_are_accepted_and_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    pythons = [one.rpartition(" ")[2] for one in project["classifiers"] if re.fullmatch(r".*Python :: 3\.\d+", one)]
    headings = re.findall(r"^## (\S+) `(\S+)`, seen (.*)$", page(), re.MULTILINE)
    assert len(headings) == page().count("\n## ") >= 8
    for package, accepted, seen in headings:
        versions = re.findall(r"`([^`]+)`", seen)
        if package == "CPython":
            assert (accepted, versions) == (project["requires-python"], pythons)
            continue
        assert f"{package}{accepted}" in wanted, f"pyproject.toml does not say {package}{accepted}"
        assert versions == ([pinned[package]] if package in pinned else []), f"constraints.txt has another {package} than {seen}"
