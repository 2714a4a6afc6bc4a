"""Shortages, the quick ones; all of them by hand (``python benchmarks/faults.py``)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

resource = pytest.importorskip("resource")
starving = pytest.importorskip("starving")
torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("one_thread")]


def test_64_workers() -> None:
    starving.CASES["64 threads"]()


def test_too_few_descriptors_name_the_limit() -> None:
    said = starving.limited(partial(resource.setrlimit, resource.RLIMIT_NOFILE, (64, 64)), "compare", "processes", 16)
    assert said.startswith("RunError: cannot start the workers: Too many open files") and "ulimit -n, here 64" in said


@pytest.mark.parametrize("on_error", ["warn", "raise"])
def test_a_file_that_finds_no_room(on_error: str) -> None:
    starving.small_files("SaveRun", on_error)


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    tmp_path.chmod(0o500)
    with contextlib.ExitStack() as stack:
        folder = tmp_path
        if os.access(tmp_path, os.W_OK):  # as root, for whom a disk must be read-only
            try:
                folder = stack.enter_context(starving.small_disk(",ro"))
            except starving.UnavailableError as error:
                pytest.skip(str(error))
        yield folder
    tmp_path.chmod(0o700)


def test_a_read_only_folder(read_only: Path) -> None:
    starving.check_read_only(read_only)
