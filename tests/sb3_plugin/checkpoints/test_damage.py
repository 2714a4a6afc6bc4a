"""A file that is damaged is said to be damaged, by its name, whoever reads it; what the machine lacks is not put down to it."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from trainers import INLINE, new

from reactor_sb3 import PQN, ReactorVecEnv, SaveRun, SyncDQN, resume_run
from reactor_sb3.checkpoints import archive
from reactor_sb3.checkpoints.archive import CorruptError, RefusedError
from reactor_sb3.cli.diff import differences

READERS: dict[str, tuple[str, Callable[[Path, Path], Any]]] = {
    "resume": ("run", lambda path, whole: PQN.resume(path, **INLINE).close()),
    "resume, without pickles": ("run", lambda path, whole: PQN.resume(path, allow_pickle=False, **INLINE).close()),
    "load": ("run", lambda path, whole: PQN.load(path)),
    "load, of save()": ("model", lambda path, whole: PQN.load(path)),
    "diff, first": ("run", lambda path, whole: list(differences(str(path), str(whole)))),
    "diff, second": ("run", lambda path, whole: list(differences(str(whole), str(path)))),
    "resume_run": ("sb3", lambda path, whole: resume_run(path, **INLINE).close()),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file of each kind."""
    folder = tmp_path_factory.mktemp("whole")
    paths = {name: folder / f"{name}.zip" for name in ("run", "model", "sb3")}
    small: dict[str, Any] = {"n_minibatches": 1, "n_epochs": 1, "n_actors": 1, "policy_kwargs": {"net_arch": []}, "seed": 0}
    with PQN("MlpPolicy", "CartPole-v1", 1e-3, n_steps=4, **small, **INLINE) as model:
        model.save_checkpoint(paths["run"])
        model.save(paths["model"])
    env = make_vec_env("CartPole-v1", 2, seed=0, vec_env_cls=ReactorVecEnv)
    model = PPO("MlpPolicy", env, n_steps=8, batch_size=8, n_epochs=1, seed=0, device="cpu", policy_kwargs={"net_arch": [2]})
    model.learn(32, callback=SaveRun(paths["sb3"], every=16))
    env.close()
    return paths


def flipped(raw: bytes, place: int, bit: int) -> bytes:
    return raw[:place] + bytes([raw[place] ^ 1 << bit]) + raw[place + 1 :]


def damaged(raw: bytes, seed: int, count: int) -> Iterator[tuple[str, bytes]]:
    """Bits that are flipped in the directory, in the headers of entries and anywhere; and files that begin or end early."""
    draw = random.Random(seed)
    heads = [place for place in range(len(raw)) if raw.startswith(b"PK\x03\x04", place)]
    begin = raw.index(b"PK\x01\x02")
    versions = {f"field {field} of the directory": (begin + field, bit) for field in range(4, 46, 2) for bit in (0, 6)}
    flips = {
        **versions,
        **{f"directory {number}": (draw.randrange(begin, len(raw)), draw.randrange(8)) for number in range(2 * count)},
        **{f"header {number}": (draw.choice(heads) + draw.randrange(30), draw.randrange(8)) for number in range(count)},
        **{f"anywhere {number}": (draw.randrange(len(raw)), draw.randrange(8)) for number in range(count)},
    }
    for name, (place, bit) in flips.items():
        yield f"{name}: bit {bit} at {place}", flipped(raw, place, bit)
    for number in range(count):
        cut = draw.randrange(len(raw))
        yield f"ends at {cut}", raw[:cut]
        if number % 4 == 0:
            yield f"begins at {cut}", raw[cut:]
    yield "nothing", b""
    yield "no zip", b"no zip at all"
    yield "an empty zip", b"PK\x05\x06" + bytes(18)


def complaints(reader: str, whole: dict[str, Path], folder: Path, count: int) -> list[str]:
    kind, read = READERS[reader]
    raw, path = whole[kind].read_bytes(), folder / "broken.zip"
    found, refused = [], 0
    for what, data in damaged(raw, sorted(READERS).index(reader), count):
        path.write_bytes(data)
        try:
            read(path, whole[kind])
        except Exception as error:
            refused += 1
            right = isinstance(error, ValueError) and str(path) in str(error)
            if not right or not any(word in str(error) for word in ("is damaged", "is a checkpoint")):
                found.append(f"{what}: {type(error).__name__}: {error}")
    assert refused > 2 * count
    return found


@pytest.mark.parametrize("reader", READERS)
def test_damage_is_named(reader: str, whole: dict[str, Path], tmp_path: Path) -> None:
    assert complaints(reader, whole, tmp_path, 8) == []


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("reader", READERS)
def test_damage_is_named_wherever_it_is(reader: str, whole: dict[str, Path], tmp_path: Path) -> None:
    assert complaints(reader, whole, tmp_path, 150) == []


def test_the_damaged_one_of_two_is_named(whole: dict[str, Path], tmp_path: Path) -> None:
    """Also if the damage is found after both were opened."""
    raw, broken = whole["run"].read_bytes(), tmp_path / "broken.zip"
    broken.write_bytes(flipped(raw, raw.index(b"NUMPY") + 200, 3))  # in the numbers of the first array
    for pair in ((broken, whole["run"]), (whole["run"], broken)):
        with pytest.raises(CorruptError, match=r"broken\.zip is damaged") as raised:
            list(differences(*map(str, pair)))
        assert "run.zip" not in str(raised.value)


@pytest.mark.parametrize("reader", READERS)
def test_a_file_that_is_not_there(reader: str, whole: dict[str, Path], tmp_path: Path) -> None:
    kind, read = READERS[reader]
    with pytest.raises(FileNotFoundError, match=r"nothing\.zip"):
        read(tmp_path / "nothing.zip", whole[kind])


@pytest.mark.parametrize("error", [MemoryError("no more"), PermissionError(13, "not permitted"), OSError(5, "a bad disk")], ids=str)
def test_what_the_machine_says_is_not_the_files_fault(
    error: Exception, whole: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise error

    for reader in ("resume", "diff, first", "resume_run"):
        kind, read = READERS[reader]
        with monkeypatch.context() as patched:
            patched.setattr(archive.Archive, "array", fails)
            patched.setattr(archive.Archive, "pickled", fails)
            with pytest.raises(type(error), match=f"^{re.escape(str(error))}$"):
                read(whole[kind], whole[kind])


def test_no_memory_for_a_file_that_nobody_vouches_for(whole: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise MemoryError("no more")

    monkeypatch.setattr(PQN, "_setup_model", fails)
    with pytest.raises(RefusedError, match=r"run\.zip wants more memory than there is: no more"):
        PQN.resume(whole["run"], allow_pickle=False, **INLINE)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="permissions as POSIX has them, and no superuser")
@pytest.mark.parametrize("reader", READERS)
def test_a_file_that_may_not_be_read(reader: str, whole: dict[str, Path], tmp_path: Path) -> None:
    kind, read = READERS[reader]
    path = tmp_path / "closed.zip"
    path.write_bytes(whole[kind].read_bytes())
    path.chmod(0)
    with pytest.raises(PermissionError):
        read(path, whole[kind])


def test_what_older_versions_trained_with_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers that constructors refuse by now."""
    with new("dqn") as model:
        model.learning_starts, model.tau = -1, 1.5  # as their constructors took them
        model.learn(128).save_checkpoint(tmp_path / "run.zip")
        expected = model.fingerprint()
    with pytest.raises(ValueError, match="learning_starts must be a whole number from 0 on, got -1"):
        new("dqn", learning_starts=-1)
    with SyncDQN.resume(tmp_path / "run.zip", **INLINE) as again:
        assert (again.learning_starts, again.tau) == (-1, 1.5)
        assert again.fingerprint() == expected
