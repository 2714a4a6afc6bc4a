"""Whatever stands in a file: it is refused, or loads the weights and transitions that were saved.

Nothing is executed, imported or made large for it.
"""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import sys
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Discrete
from hypothesis import given, settings
from hypothesis import strategies as st
from test_checkpoint import Locked
from trainers import EVALUATED, new

from reactor_rl.pickling import Pickled
from reactor_sb3 import PQN, SyncDQN, SyncSAC
from reactor_sb3.checkpoints.archive import CorruptError, RefusedError
from reactor_sb3.checkpoints.run_state import saved_env

Entries = dict[str, bytes]
Node = tuple[Any, Any]
MANIFEST = "manifest.json"
DEEP = "(deep)"


class Evil:
    """Leaves a trace when it is unpickled."""

    def __init__(self, flag: Path) -> None:
        self.flag = flag

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.flag),)


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    gymnasium.register("Fuzzed-v0", "test_checkpoint:Locked")
    yield
    del gymnasium.registry["Fuzzed-v0"]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the shortest kind: one actor, one layer."""
    path = tmp_path_factory.mktemp("small") / "run.zip"
    with PQN(
        "MlpPolicy", "Fuzzed-v0", 1e-3, n_steps=4, n_minibatches=1, n_epochs=1, n_actors=1, executor="inline", seed=0,
        policy_kwargs={"net_arch": []},
    ) as model:  # fmt: skip
        model.learn(12)
        model.save_checkpoint(path)
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the longest kind: replay buffer, evaluator, values under way."""
    path = tmp_path_factory.mktemp("whole") / "run.zip"
    with new("dqn", "Fuzzed-v0", n_actors=2, pipeline=1, policy_kwargs={"net_arch": [8]}, **EVALUATED) as model:
        model.learn(400)
        model.save_checkpoint(path)
    return path


def read(path: Path) -> Entries:
    with zipfile.ZipFile(path) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def write(path: Path, entries: Entries, compressed: str | None = None) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in entries.items():
            archive.writestr(name, data, zipfile.ZIP_DEFLATED if name == compressed else zipfile.ZIP_STORED)
    return path


def with_manifest(entries: Entries, manifest: Any) -> Entries:
    text = json.dumps(manifest).replace(f'"{DEEP}"', "[" * 100_000 + "]" * 100_000)
    return {**entries, MANIFEST: text.encode()}


def npy(array: Any, allow_pickle: bool = False) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=allow_pickle)
    return file.getvalue()


def nodes(tree: Any) -> Iterator[Node]:
    """Every place in a document: what holds it, and its key or number there."""
    for key, part in list(tree.items()) if isinstance(tree, dict) else list(enumerate(tree)):
        yield tree, key
        if isinstance(part, (dict, list)):
            yield from nodes(part)


def of(tree: Any, name: str) -> Any:
    """The value of a key of the state."""
    for part in name.split("."):
        (tree,) = [value for key, value in tree["dict"] if key == part]
    return tree


def peak(reset: bool = False) -> int:
    """The most memory that this process has had since the last reset, kB."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])


def attempt(algorithm: Any, path: Path) -> dict[str, Any] | None:
    """What was loaded, or None if it was refused in the way that is promised."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # other versions
            model = algorithm.resume(path, allow_pickle=False, executor="inline", workers=1)
    except (CorruptError, RefusedError, gymnasium.error.Error):
        return None
    with model:
        state = [column for _, column in sorted(vars(getattr(model, "replay_buffer", None) or model.policy).items())]
        columns = [column.tobytes() for column in state if isinstance(column, np.ndarray)]
        return {"weights": model.fingerprint(), "columns": columns}


OTHERS: list[Any] = [
    None, True, -1, 10**30, 2**63, 1e300, float("nan"), "", "x", [], {}, [[]], {"is": [1]}, {"list": []}, {"dict": []},
    {"array": "evil"}, {"tensor": "evil"}, {"pickle": "evil"}, {"pickled": "evil"}, {"pickle": "nothing"}, DEEP,
]  # fmt: skip


def edit(manifest: Any, place: int, how: Any) -> None:
    """Replace, remove or double a node of the document."""
    every = list(nodes(manifest))
    if not every:
        return
    holder, key = every[place % len(every)]
    if how == "remove":
        del holder[key]
    elif how != "double":
        holder[key] = how
    elif isinstance(holder, dict):
        holder[f"{key}'"] = holder[key]
    else:
        holder.insert(key, copy.deepcopy(holder[key]))


EDITS = st.lists(st.tuples(st.integers(0, 2**16), st.sampled_from(["remove", "double", *OTHERS])), min_size=1, max_size=2)


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="measures memory as Linux does")
@pytest.mark.parametrize("name", ["small", "whole"])
def test_every_node(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    path, flag = request.getfixturevalue(name), tmp_path / "flag"
    algorithm: Any = PQN if name == "small" else SyncDQN
    entries = read(path)
    expected = attempt(algorithm, path)
    assert expected is not None
    evil = {"arrays/evil.npy": npy(np.frombuffer(pickle.dumps(Evil(flag)), np.uint8))}
    refused = loaded = 0

    @settings(max_examples=150)
    @given(EDITS)
    def refused_or_as_saved(edits: list[tuple[int, Any]]) -> None:
        nonlocal refused, loaded
        manifest = json.loads(entries[MANIFEST])
        for place, how in edits:
            edit(manifest, place, copy.deepcopy(how))
        edited = with_manifest(entries, manifest)
        if b'"evil"' in edited[MANIFEST]:
            edited |= evil
        found = attempt(algorithm, write(tmp_path / "edited.zip", edited))
        refused += found is None
        loaded += found is not None
        assert found in (None, expected)
        assert not flag.exists()

    before = peak(reset=True)
    refused_or_as_saved()
    assert refused > 5 * loaded > 0
    assert peak() - before < 300_000


@pytest.mark.slow
@pytest.mark.parametrize("name", ["small", "whole"])
def test_every_entry(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    path, flag = request.getfixturevalue(name), tmp_path / "flag"
    algorithm: Any = PQN if name == "small" else SyncDQN
    entries = read(path)
    other = npy(np.zeros((3, 2, 1)))
    huge = npy(np.zeros(1, np.uint8)).replace(b"(1,), }" + 10 * b" ", b"(10000000000,), }")
    assert huge != npy(np.zeros(1, np.uint8))
    objects = np.empty(1, object)
    objects[0] = Evil(flag)
    for number, (entry, data) in enumerate(entries.items()):
        array = None if entry == MANIFEST else np.load(io.BytesIO(data))
        changed = [
            {**entries, entry: data[: len(data) // 2]}, {**entries, entry: b""}, {**entries, entry: data + b" 1"},
            {**entries, entry: other}, {**entries, entry: huge}, {**entries, entry: npy(objects, allow_pickle=True)},
            {**entries, entry: pickle.dumps(Evil(flag))}, {key: value for key, value in entries.items() if key != entry},
            {**entries, f"{entry}2": data}, {**entries, f"pickles/{number}": pickle.dumps(Evil(flag))},
        ]  # fmt: skip
        if array is not None and array.dtype != np.uint8:
            changed.append({**entries, entry: npy(array.reshape(-1).view(np.uint8))})
        if array is not None:
            changed += [{**entries, entry: npy(array[None])}, {**entries, entry: npy(np.stack([array, array]))}]
        for edited in changed if name == "small" else changed[number % 3 :: 3]:
            assert attempt(algorithm, write(tmp_path / "edited.zip", edited)) is None, entry
        assert attempt(algorithm, write(tmp_path / "edited.zip", entries, compressed=entry)) is None
        assert not flag.exists()


def test_an_optimizer_remembers_all_of_a_parameter(small: Path, tmp_path: Path) -> None:
    entries = read(small)
    manifest = json.loads(entries[MANIFEST])
    found = [holder[key] for holder, key in nodes(manifest) if key == "dict"]
    (state,) = [pairs for pairs in found if [name for name, _ in pairs] == [0, 1] and "exp_avg" in str(pairs)]
    state[1][1]["dict"].pop()
    assert attempt(PQN, write(tmp_path / "edited.zip", with_manifest(entries, manifest))) is None


def test_a_model_that_cannot_go_on_is_closed(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Any] = []

    def fails(*_: Any) -> None:
        raise ArithmeticError("cannot go on")

    monkeypatch.setattr("reactor_sb3.checkpoints.checkpoint.go_on", fails)
    monkeypatch.setattr(PQN, "close", lambda model: closed.append(model))
    with pytest.raises(ArithmeticError, match="cannot go on"):
        PQN.resume(small, executor="inline", workers=1)
    assert len(closed) == 1


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("kind", ["pickle", "pickled", None])
def test_a_pickle_hides_nowhere(kind: str | None, listed: bool, whole: Path, tmp_path: Path) -> None:
    """In the place of a value or of an environment's state, or where nothing refers to it, listed or not."""
    flag = tmp_path / "flag"
    entries = {**read(whole), "pickles/evil": pickle.dumps(Evil(flag))}
    manifest = json.loads(entries[MANIFEST])
    manifest["pickles"] = ["evil"] * listed
    for pair in of(manifest["state"], "run")["dict"][0][1]["dict"][0][1]["dict"]:
        if kind is not None and pair[0] == "envs":
            values = [["way", "state"], ["episode", 0], ["length", 0], ["total", 0.0], ["logged", 0]]
            pair[1] = {"list": [{"dict": [*([name, {"is": value}] for name, value in values), ["state", {kind: "evil"}]]}]}
    path = write(tmp_path / "edited.zip", with_manifest(entries, manifest))
    with pytest.raises(RefusedError, match=r"edited\.zip holds pickles, which execute code when they are loaded: evil\."):
        SyncDQN.resume(path, allow_pickle=False)
    assert not flag.exists()


@pytest.mark.slow
def test_an_entry_that_nobody_reads_is_not_unpacked(whole: Path, tmp_path: Path) -> None:
    entries = {**read(whole), "arrays/more.npy": bytes(200_000_000)}
    path = write(tmp_path / "bomb.zip", entries, compressed="arrays/more.npy")
    assert path.stat().st_size < 2_000_000
    before = peak(reset=True)
    with pytest.raises(CorruptError, match=r"arrays/more\.npy is compressed"):
        SyncDQN.resume(path, allow_pickle=False)
    assert peak() - before < 50_000
    entries["arrays/more.npy"] = npy(np.zeros(3))
    with pytest.raises(CorruptError, match=r"nothing in manifest\.json belongs to arrays/more\.npy"):
        SyncDQN.resume(write(tmp_path / "more.zip", entries), allow_pickle=False)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("policy_kwargs", {"dict": [["net_arch", {"list": [{"is": 10**5}, {"is": 10**5}]}]]}), ("n_actors", {"is": 10**7}),
        ("envs_per_actor", {"is": 10**7}), ("batch_size", {"is": 10**9}), ("n_steps", {"is": 10**9}),
        ("learner_threads", {"is": 10**6}), ("n_learners", {"is": 10**6}), ("buffer_size", {"is": 10**15}),
        ("stats_window_size", {"is": 10**30}),
    ],
)  # fmt: skip
def test_nothing_is_made_larger_than_the_file_says(argument: str, value: Any, whole: Path, tmp_path: Path) -> None:
    entries = read(whole)
    manifest = json.loads(entries[MANIFEST])
    of(manifest["state"], f"arguments.{argument}")
    for pair in of(manifest["state"], "arguments")["dict"]:
        if pair[0] == argument:
            pair[1] = value
    before = peak(reset=True)
    with pytest.raises((CorruptError, RefusedError), match=r"must be|more memory than there is|Error|at most"):
        SyncDQN.resume(write(tmp_path / "edited.zip", with_manifest(entries, manifest)), allow_pickle=False, executor="inline")
    assert peak() - before < 100_000


def with_arguments(entries: Entries, **arguments: Any) -> Entries:
    manifest = json.loads(entries[MANIFEST])
    pairs = of(manifest["state"], "arguments")["dict"]
    pairs[:] = [pair for pair in pairs if pair[0] not in arguments] + [[name, value] for name, value in arguments.items()]
    return with_manifest(entries, manifest)


@pytest.mark.timeout(120)
def test_the_file_says_neither_where_to_run_nor_where_to_write(small: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    plain = {
        "tensorboard_log": str(there / "logs"), "watch": str(there / "film.gif"), "watch_every": 1, "executor": "federated",
        "nodes": 2, "workers": 3, "restarts": 5, "start_method": "spawn", "timeout": 0.001, "verbose": 1,
    }  # fmt: skip
    path = write(tmp_path / "edited.zip", with_arguments(read(small), **{name: {"is": value} for name, value in plain.items()}))
    with PQN.resume(path, allow_pickle=False) as model:
        found = {name: getattr(model, name) for name in plain}
        assert found == {
            "tensorboard_log": None, "watch": None, "watch_every": 100, "executor": "auto", "nodes": None, "workers": None,
            "restarts": 0, "start_method": None, "timeout": None, "verbose": 0,
        }  # fmt: skip
        model.learn(8, reset_num_timesteps=False)
    assert not list(there.iterdir())
    with PQN.resume(path, allow_pickle=False, tensorboard_log=str(tmp_path / "mine"), executor="inline") as model:
        assert (model.tensorboard_log, model.executor) == (str(tmp_path / "mine"), "inline")
    with PQN.resume(path, executor="inline") as model:  # whoever trusts it has all but what is to be seen
        assert (model.workers, model.tensorboard_log, model.watch) == (3, plain["tensorboard_log"], None)


@pytest.mark.parametrize(
    "argument", [{"n_epochs": 10**9}, {"learner_threads": 1024}, {"n_learners": 1000}, {"evaluate_steps": 10**9}], ids=str
)
def test_no_more_work_than_ends_some_day(argument: dict[str, int], small: Path, tmp_path: Path) -> None:
    ((name, value),) = argument.items()
    path = write(tmp_path / "edited.zip", with_arguments(read(small), **{name: {"is": value}}))
    with pytest.raises(RefusedError, match=rf"edited\.zip wants {name}={value}: with allow_pickle=False it may be [0-9]+ at most"):
        PQN.resume(path, allow_pickle=False)


@pytest.mark.parametrize(
    ("argument", "value", "said"),
    [("gamma", "x", "gamma must be a number, got 'x'"), ("n_epochs", 1.5, "n_epochs must be a whole number .*, got 1.5"),
     ("q_lambda", float("nan"), "q_lambda must be a number, got nan"), ("unknown", 1, "unexpected keyword argument 'unknown'")],
)  # fmt: skip
@pytest.mark.parametrize("allow_pickle", [True, False])
def test_arguments_of_other_kinds(allow_pickle: bool, argument: str, value: Any, said: str, small: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "edited.zip", with_arguments(read(small), **{argument: {"is": value}}))
    with pytest.raises(CorruptError, match=rf"edited\.zip is damaged or no checkpoint \(.*{said}"):
        PQN.resume(path, allow_pickle=allow_pickle, executor="inline")


def test_no_more_critics_than_there_are_weights(tmp_path: Path) -> None:
    with SyncSAC("MlpPolicy", "Pendulum-v1", buffer_size=100, n_actors=1, executor="inline") as model:
        model.save_checkpoint(tmp_path / "run.zip")
    kwargs = {"dict": [["n_critics", {"is": 10**12}]]}
    path = write(tmp_path / "edited.zip", with_arguments(read(tmp_path / "run.zip"), policy_kwargs=kwargs))
    with pytest.raises(CorruptError, match=r"the number of critics must be a whole number from 1 to [0-9]+, got 1000000000000"):
        SyncSAC.resume(path, allow_pickle=False)


def test_nothing_is_imported(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "module_of_a_file.py").write_text("import gymnasium\ngymnasium.register('Filed-v0', 'test_checkpoint:Locked')")
    monkeypatch.syspath_prepend(tmp_path)
    entries = read(whole)
    manifest = json.loads(entries[MANIFEST])
    of(manifest["state"], "environment")["dict"][0][1] = {"is": "module_of_a_file:Filed-v0"}
    path = write(tmp_path / "edited.zip", with_manifest(entries, manifest))
    try:
        with pytest.raises(RefusedError, match=r"'module_of_a_file:Filed-v0'.*import module_of_a_file first, or pass env="):
            SyncDQN.resume(path, allow_pickle=False)
        assert "module_of_a_file" not in sys.modules
        SyncDQN.resume(path, "Fuzzed-v0", allow_pickle=False, executor="inline").close()
        SyncDQN.resume(path, executor="inline").close()  # whoever trusts it has it imported
        assert "module_of_a_file" in sys.modules
        SyncDQN.resume(path, allow_pickle=False, executor="inline").close()
    finally:
        sys.modules.pop("module_of_a_file", None)
        gymnasium.registry.pop("Filed-v0", None)
    of(manifest["state"], "environment")["dict"][0][1] = {"is": "Fuzzed-v0"}
    for pair in of(manifest["state"], "arguments")["dict"]:
        if pair[0] == "evaluate_env":
            pair[1] = {"is": "module_of_a_file:Filed-v0"}
    with pytest.raises(CorruptError, match="evaluate_env must be what makes an environment, got 'module_of_a_file:Filed-v0'"):
        SyncDQN.resume(write(path, with_manifest(entries, manifest)), allow_pickle=False)
    assert "module_of_a_file" not in sys.modules


REPLAYED: dict[str, Any] = {"way": "replay", "episode": 0, "length": 3, "total": 1.0, "seed": 1, "actions": np.array([1, 0])}
SAVED: dict[str, Any] = {"way": "state", "episode": 0, "length": 3, "total": 1.0, "state": Pickled(b""), "logged": 5}
NEITHER: dict[str, Any] = {"way": None, "episode": -1, "length": 0, "total": 0.0}


def test_what_an_environment_is_put_back_from() -> None:
    template = saved_env(Discrete(2), np.dtype(np.int64))
    for good in REPLAYED, SAVED, NEITHER, {**NEITHER, "episode": 3}, {**NEITHER, "episode": 3, "length": 2}:
        template(good, "env")
    changed: list[tuple[Any, str]] = [
        ({**SAVED, "state": b"bytes"}, "env.state must be a Pickled, got b'bytes'"),
        ({**SAVED, "state": np.zeros(3, np.uint8)}, "env.state must be a Pickled, got a uint8 array of shape (3,)"),
        ({**SAVED, "way": "replay"}, "env must be a dict of way, episode, length, total, seed, actions, got a dict of way,"),
        ({**SAVED, "episode": -1}, "env.episode must be a whole number from 0 on, got -1"),
        ({**SAVED, "length": True}, "env.length must be a whole number from 0 on, got True"),
        ({**SAVED, "more": 1}, "env must be a dict of way, episode, length, total, state, logged, got a dict of way,"),
        ({**SAVED, "logged": -1}, "env.logged must be a whole number from 0 on, got -1"),
        ({**SAVED, "logged": True}, "env.logged must be a whole number from 0 on, got True"),
        ({**SAVED, "logged": 2**62}, "env.logged must be a whole number from 0 on, got 4611686018427387904"),
        ({**REPLAYED, "way": "state"}, "env must be a dict of way, episode, length, total, state, logged, got a dict of way,"),
        ({**REPLAYED, "actions": np.array([2])}, "env.actions must be actions of Discrete(2), got an int64 array of shape (1,)"),
        ({**REPLAYED, "seed": 2**31}, "env.seed must be a whole number from 0 to 2147483647, got 2147483648"),
        ({**REPLAYED, "actions": np.array([0.5])}, "env.actions must be an int64 array of shape (1,), got a float64 array"),
        ({**REPLAYED, "actions": [1]}, "env.actions must be an int64 array of shape (0,), got [1]"),
        ({**REPLAYED, "seed": -1}, "env.seed must be a whole number from 0 to 2147483647, got -1"),
        ({**NEITHER, "way": "else"}, "env.way must be None, 'state' or 'replay', got 'else'"),
        ({**NEITHER, "way": ["state"]}, "env.way must be None, 'state' or 'replay', got ['state']"),
        ({**NEITHER, "total": "1"}, "env.total must be a number, got '1'"),
        ({**NEITHER, "length": 3}, "env.length must be 0 before the first episode, got 3"),
        ({"way": None}, "env must be a dict of way, episode, length, total, got a dict of way"),
        (None, "env must be a dict, got None"),
    ]  # fmt: skip
    for wrong, said in changed:
        with pytest.raises(CorruptError) as refused:
            template(wrong, "env")
        assert str(refused.value).startswith(said)
    assert Locked  # the environment of these files, by its name
