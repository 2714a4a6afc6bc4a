"""Vector environments and trainings that lack something: cores, descriptors, processes, room on the disk.

Cases as in ``embedding.py``. What limits a process limits one that is started for it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import secrets
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from embedding import expected, found

CASES: dict[str, Callable[[], None]] = {}
GROUPS = Path("/sys/fs/cgroup")


class UnavailableError(Exception):
    """This machine does not let us make such a shortage."""


def case(name: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Have a function be a case."""

    def known(function: Callable[[], None]) -> Callable[[], None]:
        CASES[name] = function
        return function

    return known


def limited(prepare: Callable[[], object], work: str, *args: object, seconds: float = 120.0) -> str:
    """What a function of this module prints, and what it raises, in a process that is prepared so."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, work, *map(str, args)], preexec_fn=prepare, capture_output=True, text=True,
        timeout=seconds, check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    return done.stdout if done.returncode == 0 else done.stdout + done.stderr[-2000:]


def compare(executor: str, workers: str, count: str = "16") -> None:
    """What a limited process does: step, and say whether the results are right."""
    try:
        same = found(executor, 0, count=int(count), steps=10, workers=int(workers)) == expected(0, int(count), 10)
    except Exception as error:
        sys.stdout.write(f"{type(error).__name__}: {error}")
    else:
        sys.stdout.write("right" if same else "other results")


# ---------------------------------------------------------------------- cores


def check_many(executor: str) -> None:
    """64 workers, each with one environment."""
    assert found(executor, 0, count=64, steps=10, workers=64) == expected(0, 64, 10)


CASES["64 threads"] = partial(check_many, "threads")
CASES["64 processes"] = partial(check_many, "processes")


@contextlib.contextmanager
def group(controller: str, limits: dict[str, str]) -> Iterator[Callable[[], object]]:
    """A control group with limits, by the names of their files; gives what makes a process join it.

    Raises:
        UnavailableError: If there can be none.
    """
    path = (GROUPS / controller if (GROUPS / controller).is_dir() else GROUPS) / f"reactor-rl-{secrets.token_hex(4)}"
    try:
        path.mkdir()
    except OSError as error:
        raise UnavailableError(f"no control group: {error}") from error
    try:
        files = {path / name: value for name, value in limits.items() if (path / name).exists()}
        if not files:
            raise UnavailableError(f"no control group for {controller}")
        for file, value in files.items():
            file.write_text(value)
        yield lambda: (path / "cgroup.procs").write_text(str(os.getpid()))
    finally:
        end = time.monotonic() + 10.0
        while (path / "cgroup.procs").read_text() and time.monotonic() < end:  # a fork server ends a moment after its caller
            time.sleep(0.05)
        path.rmdir()


@case("half a core, by a control group")
def half_a_core() -> None:
    with group("cpu", {"cpu.cfs_quota_us": "50000", "cpu.max": "50000 100000"}) as join:
        for executor in ("threads", "processes"):
            assert limited(join, "compare", executor, 3) == "right"


@case("a quarter of a core, beside a hog")
def beside_a_hog() -> None:
    core = min(os.sched_getaffinity(0))

    def pinned(nice: int) -> None:
        os.sched_setaffinity(0, {core})
        os.nice(nice)

    with subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=partial(pinned, 0)) as hog:
        try:
            assert limited(partial(pinned, 5), "compare", "processes", 3, seconds=300.0) == "right"
        finally:
            hog.kill()


# ---------------------------------------------------------------------- descriptors and processes


@case("64 descriptors")
def descriptors() -> None:
    few = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (64, 64))
    assert limited(few, "compare", "processes", 4) == "right"
    assert limited(few, "compare", "threads", 16) == "right"
    said = limited(few, "compare", "processes", 16)
    assert said.startswith("RunError: cannot start the workers: Too many open files") and "ulimit -n, here 64" in said, said


@contextlib.contextmanager
def few_processes(count: int) -> Iterator[Callable[[], object]]:
    if os.geteuid():
        mine = sum(path.stat().st_uid == os.geteuid() for path in Path("/proc").glob("[0-9]*/task/*"))
        yield partial(resource.setrlimit, resource.RLIMIT_NPROC, (mine + count, mine + count))
        return
    with group("pids", {"pids.max": str(count)}) as join:  # that limit does not hold for root
        yield join


def check_processes(count: int) -> str:
    """What becomes of two executors where there may be so many processes and threads: right, or an error that names the limit."""
    right = 0
    for executor in ("processes", "threads"):
        with few_processes(count) as join:
            said = limited(join, "compare", executor, 4)
        assert said == "right" or "ulimit -u" in said, f"{count} processes, {executor}: {said}"
        right += said == "right"
    return f"{right} of 2 worked"


@case("too few processes")
def processes() -> None:
    assert check_processes(20) == "2 of 2 worked"
    for count in (3, 5, 6, 8):
        check_processes(count)


# ---------------------------------------------------------------------- disks

ROOM = 600_000
"""Bytes of the small disk."""


@contextlib.contextmanager
def small_disk(options: str = "") -> Iterator[Path]:
    """A folder on a disk of its own with little room.

    Raises:
        UnavailableError: If nothing can be mounted.
    """
    with tempfile.TemporaryDirectory() as folder:
        made = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={ROOM}{options}", "tmpfs", folder], capture_output=True, check=False
        )
        if made.returncode:
            raise UnavailableError(f"nothing can be mounted: {made.stderr.decode().strip()}")
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", folder], check=True)


def training(kind: str) -> tuple[Any, Callable[..., Any]]:
    """A small training, and the callback that saves it."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    import reactor_sb3

    common: dict[str, Any] = {"policy_kwargs": {"net_arch": [8]}, "seed": 0, "device": "cpu"}
    if kind == "SaveCheckpoint":
        model: Any = reactor_sb3.SyncDQN(
            "MlpPolicy",
            "CartPole-v1",
            n_actors=2,
            train_freq=16,
            learning_starts=32,
            buffer_size=5000,
            executor="inline",
            **common,
        )
        return model, partial(reactor_sb3.SaveCheckpoint, every=2)
    env = make_vec_env("CartPole-v1", 2, seed=0, vec_env_cls=reactor_sb3.ReactorVecEnv, vec_env_kwargs={"executor": "inline"})
    return PPO("MlpPolicy", env, n_steps=16, batch_size=32, n_epochs=1, **common), partial(reactor_sb3.SaveRun, every=64)


def weights(model: Any) -> bytes:
    found = b"".join(value.detach().numpy().tobytes() for value in model.policy.state_dict().values())
    model.close() if hasattr(model, "close") else model.env.close()
    return found


def filled_up(kind: str, on_error: str, path: Path, fill: Callable[[], None], empty: Callable[[], None]) -> None:
    """A disk that is full from the middle of a training to its end: it goes on or ends, and the file that was there is whole."""
    from stable_baselines3.common.callbacks import BaseCallback

    import reactor_sb3

    class Fill(BaseCallback):
        rollouts = 0
        before = b""

        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            self.rollouts += 1
            if self.rollouts == 7:
                self.before = path.read_bytes()
                fill()

    model, save = training(kind)
    filling, said = Fill(), []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model.learn(384, callback=[filling, save(path, on_error=on_error)])
        except OSError as error:
            said.append(str(error))
        finally:
            empty()
    told = said if on_error == "raise" else [str(one.message) for one in caught if "no checkpoint at" in str(one.message)]
    assert told and all(str(path) in one and ("No space left" in one or "File too large" in one) for one in told), (said, told)
    assert bool(said) == (on_error == "raise")
    assert filling.before and path.read_bytes() == filling.before and os.listdir(path.parent) == [path.name]
    ended, whole = weights(model), training(kind)[0]
    uninterrupted = weights(whole.learn(384))
    assert on_error == "raise" or ended == uninterrupted
    if kind == "SaveCheckpoint":
        resumed = reactor_sb3.SyncDQN.resume(path, executor="inline")
        assert weights(resumed.learn(384 - resumed.num_timesteps, reset_num_timesteps=False)) == uninterrupted
        return
    with reactor_sb3.resume_run(path, executor="inline") as run:
        assert weights(run.learn()) == uninterrupted


def full_disk(kind: str, on_error: str) -> None:
    with small_disk() as folder:
        hog = folder / "hog"

        def fill() -> None:
            with contextlib.suppress(OSError):
                hog.write_bytes(bytes(2 * ROOM))

        filled_up(kind, on_error, folder / "run.zip", fill, hog.unlink)


def small_files(kind: str, on_error: str) -> None:
    """The same for files that may not become as large, where nothing can be mounted."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.zip")
        filled_up(
            kind, on_error, path, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size // 2, before[1])),
            lambda: resource.setrlimit(resource.RLIMIT_FSIZE, before),
        )  # fmt: skip


def check_read_only(folder: Path) -> None:
    """Is an error at once, and nothing is learned."""
    for kind in ("SaveCheckpoint", "SaveRun"):
        model, save = training(kind)
        try:
            model.learn(64, callback=save(folder / "run.zip"))
        except OSError as error:
            said = str(error)
        else:
            said = "nothing"
        assert str(folder) in said and "read-only" in said and model.num_timesteps == 0, said
        weights(model)


@case("a read-only folder")
def read_only() -> None:
    with small_disk(",ro") as folder:
        check_read_only(folder)


for _kind in ("SaveCheckpoint", "SaveRun"):
    for _on_error in ("warn", "raise"):
        CASES[f"a full disk, {_kind}, on_error={_on_error!r}"] = partial(full_disk, _kind, _on_error)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
