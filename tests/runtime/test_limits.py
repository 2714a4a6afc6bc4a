"""Limits of control groups, nested ones of both versions."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from reactor_rl import RunError
from reactor_rl.runtime import limits
from reactor_rl.runtime.limits import usable_cores
from reactor_rl.runtime.shared_memory import available_memory


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(limits, "_SELF", tmp_path / "self")
    monkeypatch.setattr(limits, "_MOUNT", tmp_path / "mount")
    return tmp_path


def write(root: Path, own: str, files: dict[str, str]) -> None:
    (root / "self").write_text(own)
    for name, text in files.items():
        path = root / "mount" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_the_own_group_and_every_one_above_it_count(groups: Path) -> None:
    write(groups, "0::/user/app\n", {
        "user/app/cpu.max": "max 100000\n",
        "user/cpu.max": "150000 100000\n",
        "cpu.max": "400000 100000\n",
        "other/cpu.max": "1000 100000\n",
        "user/app/memory.max": "1000000\n",
        "user/app/memory.current": "400000\n",
        "user/memory.max": "max\n",
        "user/memory.current": "500000\n",
    })  # fmt: skip
    assert limits.group_cores() == 2
    assert limits.group_memory() == 600_000
    assert available_memory() == 600_000
    assert usable_cores() <= 2


def test_the_first_version_has_a_hierarchy_for_each_resource(groups: Path) -> None:
    write(groups, "5:cpu,cpuacct:/jobs/7\n4:memory:/jobs/7\n1:name=systemd:/x\n0::/x\n", {
        "cpu,cpuacct/jobs/7/cpu.cfs_quota_us": "-1\n",
        "cpu,cpuacct/jobs/7/cpu.cfs_period_us": "100000\n",
        "cpu,cpuacct/jobs/cpu.cfs_quota_us": "50000\n",
        "cpu,cpuacct/jobs/cpu.cfs_period_us": "100000\n",
        "memory/jobs/7/memory.limit_in_bytes": "1000\n",
        "memory/jobs/7/memory.usage_in_bytes": "3000\n",
    })  # fmt: skip
    assert limits.group_cores() == 1
    assert limits.group_memory() == 0


def test_in_a_container_the_own_group_has_its_name_outside(groups: Path) -> None:
    write(groups, "0::/docker/0123\n", {"cpu.max": "300000 100000\n", "memory.max": "50\n", "memory.current": "20\n"})
    assert (limits.group_cores(), limits.group_memory()) == (3, 30)


def test_without_limits_and_without_groups(groups: Path) -> None:
    assert (limits.group_cores(), limits.group_memory()) == (None, None)
    write(groups, "0::/\n", {"cpu.max": "max 100000\n", "memory.max": "max\n", "memory.current": "20\n"})
    assert (limits.group_cores(), limits.group_memory()) == (None, None)


SHORTAGES = [
    (OSError(errno.EMFILE, "Too many"), r"Too many. This process has reached its limit of open files \(ulimit -n, here \d"),
    (OSError(errno.EAGAIN, "Try again"), "Try again. The limit of processes and threads is reached"),
    (RuntimeError("can't start new thread"), "can't start new thread. The limit of processes and threads is reached"),
    (OSError(errno.ENOMEM, "Cannot allocate memory"), "Cannot allocate memory. The memory of this machine or container is used up"),
]


@pytest.mark.parametrize(("error", "says"), SHORTAGES)
def test_an_exhausted_limit_is_named(error: Exception, says: str) -> None:
    with pytest.raises(RunError, match=f"cannot start the workers: {says}") as caught, limits.shortages_named("start the workers"):
        raise error
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [OSError(errno.ENOENT, "No such file"), RuntimeError("no"), ValueError("no")])
def test_other_errors_stay_as_they_are(error: Exception) -> None:
    assert limits.shortage(error) is None
    with pytest.raises(type(error)) as caught, limits.shortages_named("start the workers"):
        raise error
    assert caught.value is error
