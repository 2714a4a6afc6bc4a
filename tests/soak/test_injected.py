"""Some system calls that fail; the n-th of every kind, for every n, by hand (``python tests/soak/injected.py``)."""

from __future__ import annotations

import errno
from pathlib import Path

import injected
import pytest
from injected import Trial

SOME: dict[tuple[str, str], tuple[int, str]] = {
    ("start", "caller"): (2, "memfd_create,sem_open,socketpair,pthread_create,connect,sendmsg"),
    ("start", "server"): (1, "fork,recvmsg"),
    ("start", "helper"): (2, "sem_open,read,pthread_create"),
    ("tick", "caller"): (2, "sem_wait,write,read"),
    ("tick", "helper"): (2, "posix_fallocate,write,read,sem_wait"),
    ("restart", "caller"): (1, "sem_open,socketpair,pthread_create,connect,sendmsg"),
    ("restart", "helper"): (2, "sem_open,pthread_create,write"),
    ("save_checkpoint", "caller"): (2, "fsync,rename"),
}
"""Calls of each kind in each place."""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = injected.built(tmp_path_factory.mktemp("shim"))
    if built is None:
        pytest.skip("there is no C compiler, or this is no Linux")
    return built


@pytest.mark.parametrize("place", SOME, ids=", ".join)
def test_each_ends_in_a_clear_error_or_changes_nothing(place: tuple[str, str], shim: Path) -> None:
    if place[0] == "save_checkpoint":
        pytest.importorskip("reactor_sb3")
    most, calls = SOME[place]
    pairs = injected.pairs_of(*place, calls)
    found = list(injected.trials(*place, pairs, shim, most))
    assert {trial.kind for trial in found} == set(calls.split(","))  # there is none that was not made at all
    assert not [str(trial) for trial in found if trial.bad]


def test_limits_are_named(shim: Path) -> None:
    found = list(injected.trials("start", "caller", [("memfd_create", errno.EMFILE), ("sem_open", errno.ENOSPC)], shim, 1))
    assert [trial.outcome for trial in found] == ["clear", "clear"]
    assert "ulimit -n" in found[0].said and "/dev/shm" in found[1].said


def test_what_goes_wrong_is_noticed(shim: Path) -> None:
    pairs = [(kind, errno.EMFILE) for kind in ("open", "mmap", "pipe", "socketpair", "memfd_create")]
    found = list(injected.trials("careless", "caller", pairs, shim, 1, patience=4.0))
    assert [(trial.kind, trial.outcome) for trial in found] == [
        ("open", "clear"), ("mmap", "hung"), ("pipe", "wrong"), ("socketpair", "torn"), ("memfd_create", "unclear"),
    ]  # fmt: skip
    assert all(trial.bad for trial in found)
    assert [trial.left for trial in found] == [["1 descriptors of /memfd"], [], *[["1 descriptors of /memfd"]] * 2, []]
    assert str(Trial("pipe", errno.EMFILE, 1, "wrong", "that", ["it"])) == "pipe EMFILE 1: wrong | that | LEFT it"
