"""A run that is resumed from a checkpoint ends as one that was never interrupted, and a damaged file says so."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import re
import signal
import stat
import threading
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from every_other import every_other, in_turn
from gymnasium.utils import EzPickle
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.utils import LinearSchedule
from trainers import (
    ALGORITHMS,
    BUFFERS,
    EVALUATED,
    INLINE,
    PROCESSES,
    SPACES,
    THREADS,
    Remembering,
    Seen,
    Toy,
    alone,
    both,
    each,
    new,
    outcome,
    suited,
)

from reactor_rl import ProgramError
from reactor_sb3 import PQN, SaveCheckpoint, SyncDQN, SyncPPO, resume_run
from reactor_sb3.checkpoints import archive
from reactor_sb3.checkpoints.archive import CorruptError
from reactor_sb3.cli.diff import differences
from reactor_sb3.replacing import replacing
from reactor_torch import differentiating, kernels

HERE = Path(__file__).parents[1]  # where the trainers are
ROUNDS = pytest.mark.parametrize("pipeline", [0, 1])


class Locked(Toy):
    """Holds what nobody can pickle: it has to be replayed."""

    def __init__(self) -> None:
        super().__init__(length=60, rate=0.02)
        self.lock = threading.Lock()


class Rebuilt(EzPickle, Toy):
    """Would be made anew where it is unpickled, as the environments of Box2D are, if its own state were not saved."""

    def __init__(self) -> None:
        EzPickle.__init__(self)
        Toy.__init__(self, length=60, rate=0.02)


class Global(Toy):
    """Draws from numpy's global generator: there is no way back."""

    def info(self) -> dict[str, Any]:
        self.np_random.bit_generator.advance(np.random.randint(1000))  # type: ignore[attr-defined]
        return super().info()


@pytest.fixture
def locked_id() -> Iterator[str]:
    gymnasium.register("Locked-v0", "test_checkpoint:Locked")
    yield "Locked-v0"
    del gymnasium.registry["Locked-v0"]


def resume(algorithm: str, path: Path, **changed: Any) -> Any:
    return ALGORITHMS[algorithm][0].resume(path, **{**INLINE, **changed})


def finished(model: Any) -> dict[str, Any]:
    with model:
        return outcome(model.learn(model.remaining_timesteps, reset_num_timesteps=False))


def stored(model: Any) -> list[Any]:
    return [column for _, column in sorted(vars(model.replay_buffer).items()) if isinstance(column, np.ndarray)]


def sampled(model: Any) -> list[Any]:
    np.random.seed(0)
    batch = model.replay_buffer.sample(300)
    parts = [*(part.values() if isinstance(part, dict) else [part] for part in batch if part is not None)]
    return [tensor.numpy() for part in parts for tensor in part]


def same(ours: list[Any], theirs: list[Any]) -> bool:
    return all(np.array_equal(one, other) for one, other in zip(ours, theirs, strict=True))


# ---------------------------------------------------------------------- the same result

ENVS: dict[str, tuple[Any, str]] = {
    "CartPole": ("CartPole-v1", "state"),
    "FrozenLake": ("FrozenLake-v1", "state"),
    "EzPickle": (Rebuilt, "state"),
    "lock": (Locked, "replay"),
}


@pytest.mark.slow
@every_other(kept=5, algorithm=sorted(ALGORITHMS), pipeline=[0, 1], name=ENVS)
def test_resumed_is_uninterrupted(algorithm: str, pipeline: int, name: str, tmp_path: Path) -> None:
    env, way = ENVS[name]
    path = tmp_path / "run.zip"
    expected = alone(algorithm, pipeline, env=env)
    with new(algorithm, env, pipeline=pipeline, **EVALUATED) as model:
        model.learn(640, callback=SaveCheckpoint(path, every=7))
        assert outcome(model) == expected
    resumed = resume(algorithm, path)
    assert 0 < resumed.remaining_timesteps < 640 and resumed.num_timesteps + resumed.remaining_timesteps == 640
    assert resumed.fingerprint() != expected["weights"]
    assert finished(resumed) == expected
    if algorithm == "dqn":
        assert same(stored(resumed), stored(model))
    manifest = json.loads(zipfile.ZipFile(path).read("manifest.json"))
    assert manifest["environments"] == {way: 5}  # the evaluator's too


@pytest.mark.slow
@every_other(algorithm=sorted(ALGORITHMS), pipeline=[0, 1], place=[THREADS, PROCESSES, PROCESSES | {"workers": 3}])
def test_resumed_elsewhere(algorithm: str, pipeline: int, place: dict[str, Any], tmp_path: Path) -> None:
    """There and back: saved by one executor, resumed and saved by another, resumed by the first."""
    first, second = tmp_path / "first.zip", tmp_path / "second.zip"
    env = Locked if place["workers"] % 2 else "CartPole-v1"
    with new(algorithm, env, pipeline=pipeline, **EVALUATED) as model:
        model.learn(640, callback=[SaveCheckpoint(first, every=4), Seen(stop_at=75)])
    with resume(algorithm, first, **place) as model:
        again = [SaveCheckpoint(second, every=1), Seen(stop_at=20)]
        model.learn(model.remaining_timesteps, callback=again, reset_num_timesteps=False)
    assert finished(resume(algorithm, second)) == alone(algorithm, pipeline, env=env)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "env", "pipeline", "when"),
    [
        ("dqn", "CartPole-v1", 1, "between two rounds"),
        ("pqn", "FrozenLake-v1", 0, "while writing"),
        ("sac", "CartPole-v1", 1, "while writing"),
        ("td3", "CartPole-v1", 0, "between two rounds"),
    ],
)
def test_killed(
    algorithm: str, env: str, pipeline: int, when: str, tmp_path: Path, run_script: Callable[..., tuple[int, str]]
) -> None:
    script, folder = tmp_path / "script.py", tmp_path / "saved"
    folder.mkdir()
    path = folder / "run.zip"
    script.write_text(f"""if True:
        import os, signal, sys
        sys.path.insert(0, {str(HERE)!r})
        from trainers import EVALUATED, PROCESSES, new
        from reactor_sb3 import SaveCheckpoint

        def die(*_):
            os.kill(os.getpid(), signal.SIGKILL)

        class Killed(SaveCheckpoint):
            def _on_rollout_end(self):
                if self.rounds == 5:
                    if {when!r} == "while writing":
                        os.replace = die
                    else:
                        die()
                super()._on_rollout_end()

        model = new({algorithm!r}, {env!r}, pipeline={pipeline}, **EVALUATED, **PROCESSES)
        model.learn(640, callback=Killed({str(path)!r}, every=2))
    """)
    status, said = run_script(script, tmp_path)
    assert status == -signal.SIGKILL, said
    assert len(os.listdir(folder)) == 1 + (when == "while writing")
    resumed = resume(algorithm, path)
    assert resumed.num_timesteps == 4 * resumed.rollout_steps * 4
    resumed.save_checkpoint(path)
    assert os.listdir(folder) == ["run.zip"]  # what the killed one has left is gone
    assert finished(resumed) == alone(algorithm, pipeline, env=env)


class SavedOnStep(BaseCallback):
    """Saves when the first step of a round has been told, and may end the training there."""

    def __init__(self, path: Path, stop: bool) -> None:
        super().__init__()
        self.path, self.stop, self.saved = path, stop, False

    def _on_step(self) -> bool:
        model: Any = self.model
        if self.num_timesteps <= 320 or self.saved:
            return True
        model.save_checkpoint(self.path)
        model.save_checkpoint(self.path)
        self.saved = True
        assert not self.path.exists()  # the round is not over
        return not self.stop

    def _on_rollout_end(self) -> None:
        assert self.path.exists() == self.saved


@pytest.mark.slow
@every_other(algorithm=sorted(ALGORITHMS), pipeline=[0, 1], stop=[False, True])
def test_saved_within_a_round(algorithm: str, pipeline: int, stop: bool, tmp_path: Path) -> None:
    """It is written when the round is over, and is as exact."""
    path = tmp_path / "run.zip"
    with new(algorithm, pipeline=pipeline, **EVALUATED) as model:
        model.learn(640, callback=SavedOnStep(path, stop))
        reached = model.num_timesteps
        assert (reached < 640) == stop
    resumed = resume(algorithm, path)
    assert resumed.num_timesteps == 320 + resumed.rollout_steps * resumed.n_envs
    assert not stop or resumed.num_timesteps == reached
    assert finished(resumed) == alone(algorithm, pipeline)


def test_a_round_that_fails_saves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run.zip"

    def on_step(local: dict[str, Any], _: dict[str, Any]) -> bool:
        local["self"].save_checkpoint(path)
        raise ZeroDivisionError

    with new("dqn") as model:
        with pytest.raises(ZeroDivisionError):
            model.learn(320, callback=on_step)
        assert not path.exists()
        model.save_checkpoint(path)  # and the next one is written at once
        assert path.exists()


@pytest.mark.slow
@each
def test_between_two_trainings(algorithm: str, tmp_path: Path) -> None:
    """Before the first one, after one, and when the workers have been ended."""
    path = tmp_path / "run.zip"
    model = new(algorithm, **EVALUATED)
    for number in range(3):
        model.save_checkpoint(path)
        resumed = resume(algorithm, path)
        assert resumed.num_timesteps == 320 * number and resumed.remaining_timesteps == 0
        expected = outcome(model.learn(320, reset_num_timesteps=False))
        with resumed:
            assert outcome(resumed.learn(320, reset_num_timesteps=False)) == expected, number
        if number == 1:
            model.close()
    model.close()


@pytest.mark.slow
@pytest.mark.parametrize("buffer_size", [55 * 4, 17 * 4])
@pytest.mark.parametrize("name", BUFFERS)
def test_replay_buffers(name: str, buffer_size: int, tmp_path: Path) -> None:
    """Partly filled, and after they have begun to overwrite."""
    path = tmp_path / "run.zip"
    policy, space = SPACES[BUFFERS[name][0]]
    with new("dqn", partial(Toy, space), policy, buffer_size=buffer_size, **BUFFERS[name][1]) as model:
        model.learn(192)
        model.save_checkpoint(path)
        resumed = resume("dqn", path)
        assert same(sampled(resumed), sampled(model))
        expected = outcome(model.learn(128, reset_num_timesteps=False))
        with resumed:
            assert outcome(resumed.learn(128, reset_num_timesteps=False)) == expected
        assert same(sampled(resumed), sampled(model))
        assert same(stored(resumed), stored(model))


@ROUNDS
def test_a_replay_buffer_of_your_own(pipeline: int, tmp_path: Path) -> None:
    path = tmp_path / "run.zip"
    with new("dqn", Toy, replay_buffer_class=Remembering, pipeline=pipeline) as model:
        model.learn(320, callback=SaveCheckpoint(path, every=6))
        expected = outcome(model)
    resumed = resume("dqn", path)
    assert type(resumed.replay_buffer) is Remembering and len(resumed.replay_buffer.infos) == 48 - 8 * pipeline
    assert finished(resumed) == expected
    assert resumed.replay_buffer.infos == model.replay_buffer.infos


@both
def test_functions_and_other_arguments(algorithm: str, tmp_path: Path) -> None:
    path = tmp_path / "run.zip"
    factor = 2.0
    with new(
        algorithm, lambda: gymnasium.make("CartPole-v1", max_episode_steps=20), learning_rate=lambda left: 1e-3 * (factor + left),
        epsilon_spread=3.0, envs_per_actor=2, gamma=0.9, policy_kwargs={"net_arch": [16], "optimizer_class": torch.optim.RMSprop},
    ) as model:  # fmt: skip
        model.max_grad_norm = 0.7  # changed since
        model.learn(1280, callback=SaveCheckpoint(path, every=7))
        expected = outcome(model)
    resumed = resume(algorithm, path)
    assert (resumed.max_grad_norm, resumed.gamma, resumed.n_envs) == (0.7, 0.9, 8)
    assert resumed.lr_schedule(0.5) == pytest.approx(2.5e-3)
    assert finished(resumed) == expected


def test_settings_that_were_changed_since(tmp_path: Path) -> None:
    path, saved = tmp_path / "run.zip", tmp_path / "model.zip"
    with new("dqn", gradient_steps=None) as model:
        model.gradient_steps = 3
        model.learn(128).save_checkpoint(path)
    assert resume("dqn", path).gradient_steps == 3
    new("ppo", learning_rate=lambda left: 1e-3 * left).save(saved)
    schedule = LinearSchedule(1e-3, 1e-4, 1.0)
    changed = {"clip_range": 0.1, "clip_range_vf": schedule, "learning_rate": schedule, "target_kl": 0.02, "max_grad_norm": 0.7}
    with SyncPPO.load(saved, "CartPole-v1", custom_objects=changed, **INLINE) as model:
        model.learn(320, callback=SaveCheckpoint(path, every=3))
        expected = outcome(model)
    resumed = resume("ppo", path)
    assert (resumed.clip_range(1), resumed.clip_range_vf(1), resumed.lr_schedule(0)) == (0.1, 1e-3, schedule(0))
    assert (resumed.target_kl, resumed.max_grad_norm) == (0.02, 0.7)
    assert finished(resumed) == expected


def test_steps_that_another_number_of_environments_has_decided(tmp_path: Path) -> None:
    path, saved = tmp_path / "run.zip", tmp_path / "model.zip"
    new("ppo", n_steps=None, n_actors=8).save(saved)
    with SyncPPO.load(saved, make_vec_env("CartPole-v1", 4), **INLINE) as model:
        assert (model.n_steps, model.n_envs) == (256, 4)
        model.learn(2048, callback=SaveCheckpoint(path, every=1))
        expected = outcome(model)
    assert finished(resume("ppo", path)) == expected


def test_an_environment_that_does_not_fit_is_not_the_files_fault(tmp_path: Path) -> None:
    with new("dqn") as model:
        model.learn(64).save_checkpoint(tmp_path / "run.zip")
    with pytest.raises(ValueError, match="env= is not like the environment of the run that was saved"):
        SyncDQN.resume(tmp_path / "run.zip", "Acrobot-v1", **INLINE)


def test_new_episodes_that_are_due(tmp_path: Path) -> None:
    path = tmp_path / "run.zip"
    with new("dqn") as model:
        model.learn(320)
        model.set_env(model.get_env())  # which begins new ones
        model.save_checkpoint(path)
        with resume("dqn", path) as resumed:
            resumed.learn(192, reset_num_timesteps=False)
            assert outcome(model.learn(192, reset_num_timesteps=False)) == outcome(resumed)


class Noisy(FlattenExtractor):
    """Draws from torch's generator while it learns, and has state that is no parameter."""

    def __init__(self, observation_space: Any) -> None:
        super().__init__(observation_space)
        self.more = torch.nn.Sequential(torch.nn.BatchNorm1d(self.features_dim), torch.nn.Dropout(0.3))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return self.more(super().forward(observations))  # type: ignore[no-any-return]


@pytest.mark.slow
@both
def test_networks_that_draw(algorithm: str, tmp_path: Path) -> None:
    path = tmp_path / "run.zip"
    network = {"net_arch": [16], "features_extractor_class": Noisy}
    with new(algorithm, pipeline=1, policy_kwargs=network, **PROCESSES) as model:
        torch.manual_seed(1)
        model.learn(320, callback=SaveCheckpoint(path, every=3))
        expected = outcome(model)
    torch.manual_seed(2)
    assert finished(resume(algorithm, path)) == expected
    statistics = [tensor for name, tensor in model.policy.state_dict().items() if name.endswith("running_mean")]
    assert len(statistics) == {"dqn": 2, "pqn": 1}[algorithm] and all(tensor.abs().sum() > 0 for tensor in statistics)


@pytest.mark.slow
@each
def test_weights_that_were_put_in(algorithm: str, tmp_path: Path) -> None:
    """A checkpoint after set_parameters() goes on with them."""
    path = tmp_path / "run.zip"
    with new(algorithm, pipeline=1) as model, new(algorithm, seed=1) as other:
        model.learn(320)
        model.set_parameters(other.get_parameters())
        model.save_checkpoint(path)
        with resume(algorithm, path) as resumed:
            assert resumed.fingerprint() == other.fingerprint()
            resumed.learn(192, reset_num_timesteps=False)
            assert outcome(model.learn(192, reset_num_timesteps=False)) == outcome(resumed)


@pytest.mark.slow
@each
def test_another_environment_of_the_same_kind(algorithm: str, tmp_path: Path) -> None:
    path = tmp_path / "run.zip"
    with new(algorithm) as model:
        model.set_env(suited(algorithm, partial(gymnasium.make, "CartPole-v1", max_episode_steps=9)))
        model.learn(320, callback=SaveCheckpoint(path, every=3))
    with resume(algorithm, path) as resumed:  # what set_env() was given has been saved
        assert finished(resumed) == outcome(model)
        assert max(info["l"] for info in resumed.ep_info_buffer) == 9
    with ALGORITHMS[algorithm][0].resume(path, suited(algorithm, "CartPole-v1"), **INLINE) as resumed:
        assert resumed.get_env().envs[0].get_wrapper_attr("spec").max_episode_steps == 500


@pytest.mark.slow
@pytest.mark.parametrize("place", [INLINE, PROCESSES], ids=["inline", "processes"])
def test_what_can_neither_be_saved_nor_replayed(place: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "run.zip"
    with new("dqn", Global, **place) as model:
        model.learn(320)
        with pytest.warns(
            UserWarning, match="4 environment.s. can neither be saved nor replayed exactly: a resumed run begins new"
        ):
            model.save_checkpoint(path)
        assert json.loads(zipfile.ZipFile(path).read("manifest.json"))["environments"] == {"not at all": 4}
        with resume("dqn", path, **place) as resumed:
            assert resumed.fingerprint() == model.fingerprint()
            resumed.learn(320, reset_num_timesteps=False)
            assert resumed.num_timesteps == 640 and resumed.n_episodes > model.n_episodes


# ---------------------------------------------------------------------- the file


def saved(algorithm: str, path: Path, env: Any = "FrozenLake-v1", **arguments: Any) -> Path:
    with new(algorithm, env, **arguments) as model:
        model.learn(192)
        model.save_checkpoint(path)
    return path


def test_it_is_an_ordinary_zip(tmp_path: Path) -> None:
    path = saved("dqn", tmp_path / "folder" / "run.zip")
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        manifest = json.loads(archive.read("manifest.json"))
        names = set(archive.namelist())
    assert manifest["format"] == 10 and manifest["algorithm"] == "SyncDQN" and manifest["timesteps"] == 192
    assert manifest["versions"]["torch"] == torch.__version__
    assert manifest["pickles"] and {f"pickles/{name}" for name in manifest["pickles"]} == {
        n for n in names if n.startswith("pickles/")
    }
    model = resume("dqn", path)
    with np.load(path, allow_pickle=False) as arrays:
        for name, tensor in model.policy.state_dict().items():
            assert np.array_equal(arrays[f"arrays/state.policy.{name}"], tensor.numpy()), name
        assert all(isinstance(arrays[name], np.ndarray) for name in arrays.files if name.startswith("arrays/"))
    model.close()
    assert [one.name for one in path.parent.iterdir()] == ["run.zip"]


def test_pickles_are_refused(tmp_path: Path) -> None:
    path = saved("dqn", tmp_path / "run.zip", "CartPole-v1")
    with pytest.raises(ValueError, match=r"holds pickles, which execute code .*: .*state\.run\.reactors.*allow_pickle=True"):
        SyncDQN.resume(path, allow_pickle=False)


@pytest.mark.slow
@ROUNDS
def test_no_pickles_where_none_are_needed(locked_id: str, pipeline: int, tmp_path: Path) -> None:
    """What is replayed needs none; nor does what has not begun."""
    path = tmp_path / "run.zip"
    with new("dqn", locked_id, pipeline=pipeline, **EVALUATED) as model:
        model.learn(640, callback=SaveCheckpoint(path, every=7))
        expected = outcome(model)
    assert json.loads(zipfile.ZipFile(path).read("manifest.json"))["pickles"] == []
    assert finished(resume("dqn", path, allow_pickle=False)) == expected
    with new("dqn", "CartPole-v1") as model:
        model.save_checkpoint(path)
    resume("dqn", path, allow_pickle=False).close()


@pytest.mark.slow
def test_an_evaluation_env_that_cannot_be_pickled(locked_id: str, tmp_path: Path) -> None:
    """It can be made again, and that is enough for learning."""
    with new("dqn", locked_id, evaluate_env=gymnasium.make(locked_id), **EVALUATED) as model:
        model.learn(640, callback=SaveCheckpoint(tmp_path / "run.zip", every=7))
        expected = outcome(model)
        model.save(tmp_path / "model.zip")
    assert finished(resume("dqn", tmp_path / "run.zip")) == expected


@pytest.mark.parametrize("where", ["write_array", "replace", "fsync"])
def test_a_failure_leaves_the_old_file(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.zip"
    with new("dqn", "FrozenLake-v1") as model:
        model.learn(192)
        model.save_checkpoint(path)
        before = path.read_bytes()
        calls: list[Any] = []

        def full(*args: Any, **kwargs: Any) -> Any:
            calls.append(args)
            if len(calls) == 3 or where != "write_array":
                raise OSError("disk full")
            return write(*args, **kwargs)

        write = np.lib.format.write_array
        monkeypatch.setattr(np.lib.format if where == "write_array" else os, where, full)
        model.learn(192, reset_num_timesteps=False)
        with pytest.raises(OSError, match="disk full"):
            model.save_checkpoint(path)
        monkeypatch.undo()
        assert path.read_bytes() == before and os.listdir(tmp_path) == ["run.zip"]
        model.save_checkpoint(path)  # and works again
        assert path.read_bytes() != before and os.listdir(tmp_path) == ["run.zip"]


@pytest.mark.slow
@pytest.mark.parametrize("on_error", ["warn", "raise"])
@pytest.mark.parametrize("how", ["no space", "limit"])
def test_a_full_disk(how: str, on_error: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The training goes on or ends, as the user says, and the old file is whole."""
    path, files = tmp_path / "run.zip", []

    def no_space(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    class Full(SaveCheckpoint):
        def _on_rollout_end(self) -> None:
            if self.rounds != 11:  # the second one finds no room
                super()._on_rollout_end()
                files.append(path.read_bytes() if path.exists() else b"")
                return
            with monkeypatch.context() as patched:
                if how == "no space":
                    patched.setattr(os, "fsync", no_space)
                else:
                    resource = pytest.importorskip("resource")
                    before = resource.getrlimit(resource.RLIMIT_FSIZE)
                    resource.setrlimit(resource.RLIMIT_FSIZE, (len(files[-1]) // 2, before[1]))
                try:
                    super()._on_rollout_end()
                finally:
                    if how == "limit":
                        resource.setrlimit(resource.RLIMIT_FSIZE, before)
                    assert path.read_bytes() == files[-1] and os.listdir(tmp_path) == ["run.zip"]

    said = {"no space": "No space left", "limit": "File too large"}[how]
    model = new("dqn", "FrozenLake-v1", pipeline=1, **EVALUATED)
    callback = Full(path, every=6, on_error=on_error)
    with model:
        if on_error == "raise":
            with pytest.raises(OSError, match=said):
                model.learn(640, callback=callback)
        else:
            with pytest.warns(
                UserWarning, match=rf"no checkpoint at 384 steps: .*run\.zip could not be written .*{said}.* in 6 rounds"
            ):
                model.learn(640, callback=callback)
            assert outcome(model) == alone("dqn", 1, env="FrozenLake-v1")
    assert (path.read_bytes() == files[5]) == (on_error == "raise")
    assert finished(resume("dqn", path)) == alone("dqn", 1, env="FrozenLake-v1")


def test_a_folder_that_there_cannot_be(tmp_path: Path) -> None:
    """Is an error at once, and not a warning after hours."""
    (tmp_path / "file").write_bytes(b"")
    with new("dqn") as model:
        with pytest.raises(OSError, match="file"):
            model.learn(320, callback=SaveCheckpoint(tmp_path / "file" / "run.zip"))
        assert model.num_timesteps == 0
    with pytest.raises(ValueError, match=r'on_error=.skip.: choose "warn" or "raise"'):
        SaveCheckpoint(tmp_path / "run.zip", on_error="skip")  # type: ignore[arg-type]


@pytest.mark.skipif(os.name != "posix", reason="permissions as POSIX has them")
def test_permissions_are_those_of_any_file(tmp_path: Path) -> None:
    model = new("dqn")
    before = os.umask(0o022)
    try:
        for mask, mode in (0o022, 0o644), (0o077, 0o600), (0o002, 0o664):
            os.umask(mask)
            path = tmp_path / f"{mask}.zip"
            model.save_checkpoint(path)
            assert path.stat().st_mode & 0o777 == mode
            path.chmod(0o640)
            model.save_checkpoint(path)
            assert path.stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(before)


@pytest.mark.skipif(os.name != "posix", reason="links as POSIX has them")
@pytest.mark.parametrize("there", [True, False], ids=["a file", "nothing yet"])
def test_a_symbolic_link_stays_one(there: bool, tmp_path: Path) -> None:
    (tmp_path / "big").mkdir()
    link, target = tmp_path / "run.zip", tmp_path / "big" / "run.zip"
    if there:
        target.write_bytes(b"old")
    link.symlink_to(Path("big") / "run.zip")
    with replacing(link) as file:
        file.write(b"new")
        assert target.exists() == there and Path(file.name).parent == target.parent
    assert link.is_symlink() and target.read_bytes() == link.read_bytes() == b"new"
    assert os.listdir(tmp_path / "big") == ["run.zip"]


@pytest.mark.skipif(os.name != "posix", reason="links as POSIX has them")
def test_a_symbolic_link_to_itself_is_an_error_and_stays(tmp_path: Path) -> None:
    (tmp_path / "run.zip").symlink_to("run.zip")
    with pytest.raises(OSError, match=r"(?i)symbolic links"), replacing(tmp_path / "run.zip"):
        raise AssertionError("never begun")
    assert (tmp_path / "run.zip").is_symlink() and os.listdir(tmp_path) == ["run.zip"]


@pytest.mark.skipif(os.name != "posix", reason="locks files")
def test_leftovers_are_removed_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "run.zip"
    left = tmp_path / ".run.zip.0123456789abcdef.tmp"
    others = [tmp_path / name for name in (".run.zip.mine.tmp", ".more.run.zip.0123456789abcdef.tmp", ".zip.0123456789abcdef.tmp")]
    for one in (left, *others):
        one.write_bytes(b"left")
    with replacing(path) as first:
        assert not left.exists()
        first.write(b"first")
        (writing,) = {one.name for one in tmp_path.iterdir()} - {one.name for one in others}
        with replacing(path) as second:  # another process would find the same
            second.write(b"second")
        assert path.read_bytes() == b"second" and (tmp_path / writing).exists()
    assert path.read_bytes() == b"first"
    assert {one.name for one in tmp_path.iterdir()} == {path.name, *(one.name for one in others)}


@pytest.mark.skipif(os.name != "posix", reason="folders are files on POSIX")
@pytest.mark.parametrize("call", ["open", "fsync"])
def test_a_folder_that_fails_before_or_after_the_new_file_is_there(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, done = tmp_path / "run.zip", getattr(os, call)
    path.write_bytes(b"old")

    def fails(what: Any, *more: Any) -> Any:
        if stat.S_ISDIR(os.stat(what).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return done(what, *more)

    @contextlib.contextmanager
    def failing() -> Iterator[None]:
        with monkeypatch.context() as patched, replacing(path) as file:
            file.write(b"new")
            patched.setattr(os, call, fails)
            yield

    before = os.listdir("/dev/fd")
    with pytest.raises(OSError, match="Input/output error") as raised, failing():
        pass
    assert os.listdir(tmp_path) == [path.name] and len(os.listdir("/dev/fd")) == len(before)
    assert raised.value.filename == str(path)
    assert path.read_bytes() == (b"old" if call == "open" else b"new")
    assert ("The new file is there and whole" in str(raised.value)) == (call == "fsync")


@each
def test_the_other_kind_of_file(algorithm: str, tmp_path: Path) -> None:
    kind = ALGORITHMS[algorithm][0]
    with new(algorithm) as model:
        model.save(tmp_path / "model.zip")
        model.save_checkpoint(tmp_path / "run.zip")
    with pytest.raises(ValueError, match=rf"model\.zip was written by save\(\): .*Use {kind.__name__}\.load\(\)"):
        kind.resume(tmp_path / "model.zip")
    for path in tmp_path / "run.zip", str(tmp_path / "run"):
        with pytest.raises(ValueError, match=rf"run is a checkpoint|run\.zip is a checkpoint: .*Use {kind.__name__}\.resume\(\)"):
            kind.load(path)
    kind.load(str(tmp_path / "model"))


@pytest.mark.slow
def test_flipped_bytes(tmp_path: Path) -> None:
    """Either it is noticed, or what is read is what was written."""
    path, broken = tmp_path / "run.zip", tmp_path / "broken.zip"
    archive.write(path, {"a": 1}, {"x": np.arange(6), "y": np.ones((2, 2), np.float32)}, {"p": b"pickled"})
    whole = path.read_bytes()

    def content(path: Path) -> str:
        with archive.opened(path, allow_pickle=True) as found:
            content = found.document, found.array("x"), found.array("y"), found.pickled("p")
            found.check_all_read()
        return str(content)

    expected = content(path)
    noticed = 0
    for place in range(len(whole)):
        for bit in (0, 3, 7):
            broken.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
            try:
                found = content(broken)
            except CorruptError:
                noticed += 1
            else:
                assert found == expected, (place, bit)
    assert noticed > len(whole)


@pytest.mark.parametrize("part", ["manifest", "array", "pickle"])
def test_a_part_is_missing(part: str, tmp_path: Path) -> None:
    path, broken = saved("dqn", tmp_path / "run.zip"), tmp_path / "broken.zip"
    with zipfile.ZipFile(path) as whole, zipfile.ZipFile(broken, "w") as archive:
        names = whole.namelist()
        names.remove(next(name for name in names if name.startswith(part)))
        for name in names:
            archive.writestr(name, whole.read(name))
    with pytest.raises(CorruptError, match=r"broken\.zip is damaged"):
        SyncDQN.resume(broken)


def changed_manifest(path: Path, **changes: Any) -> Path:
    broken = path.parent / "changed.zip"
    with zipfile.ZipFile(path) as whole, zipfile.ZipFile(broken, "w") as archive:
        for name in whole.namelist():
            data = whole.read(name)
            archive.writestr(name, json.dumps({**json.loads(data), **changes}) if name == "manifest.json" else data)
    return broken


def test_other_files(tmp_path: Path) -> None:
    path = saved("dqn", tmp_path / "run.zip")
    with pytest.raises(ValueError, match=r"run\.zip is a checkpoint of SyncDQN: use SyncDQN\.resume\(\)"):
        PQN.resume(path)
    older = r"changed\.zip has the checkpoint format 8 of reactor_rl [0-9.]+, and this version reads 10: finish the run with that"
    for reader in (SyncDQN.resume, PQN.resume, resume_run, partial(differences, str(path))):
        with pytest.raises(ValueError, match=older):
            list(reader(str(changed_manifest(path, format=8))))
    manifest = json.loads(zipfile.ZipFile(path).read("manifest.json"))
    versions, machine = ({**manifest["versions"], "torch": "1.0"}, {**manifest["machine"], "learner's layers": "a slide rule"})
    with pytest.warns(UserWarning, match="was written with") as given:
        resume("dqn", changed_manifest(path, versions=versions, machine=machine)).close()
    (warning,) = given
    assert re.search(r"was written with torch 1\.0 \(now .*learner's layers a slide rule \(now .*last bits", str(warning.message))
    assert warning.filename == __file__
    resume("dqn", path).close()  # without one


def test_what_computes_is_recorded(tmp_path: Path) -> None:
    manifest = json.loads(zipfile.ZipFile(saved("pqn", tmp_path / "run.zip")).read("manifest.json"))
    assert manifest["versions"]["numpy"] == np.__version__
    assert manifest["machine"] == {
        "processor": platform.machine(), "vector instructions (torch)": torch.backends.cpu.get_cpu_capability(),
        "learner's layers": differentiating(),
    }  # fmt: skip
    assert (differentiating() == "torch") == (kernels.compiled is None)


def test_what_resume_may_change(tmp_path: Path) -> None:
    path = saved("dqn", tmp_path / "run.zip")
    with pytest.raises(TypeError, match=r"resume\(\) cannot change gamma, seed: the run would no longer be the same"):
        SyncDQN.resume(path, gamma=0.5, seed=1)
    with SyncDQN.resume(path, workers=3, executor="threads", verbose=1) as model:
        assert (model.workers, model.verbose) == (3, 1) and "executor='threads', workers=3" in repr(model)


@pytest.mark.slow
@pytest.mark.timeout(120)
@in_turn("place", [{"executor": "inline"}, {"executor": "processes", "workers": 2}, {"executor": "auto"}], ids=str, kept=1)
def test_nodes_do_not_go_to_another_executor(place: dict[str, Any], tmp_path: Path) -> None:
    path = saved("dqn", tmp_path / "run.zip", executor="federated", nodes=2, workers=1)
    with SyncDQN.resume(path, **place) as model:
        assert model.nodes is None
        model.learn(64, reset_num_timesteps=False)
    for same in ({}, {"executor": "federated"}):
        with SyncDQN.resume(path, **same) as model:
            assert model.nodes == 2
    with SyncDQN.resume(path, executor="federated", nodes=1) as model:
        assert model.nodes == 1


def test_what_is_wrong_with_the_call_is_not_the_files_fault(tmp_path: Path) -> None:
    path = saved("dqn", tmp_path / "run.zip", learner_threads=2)
    for changed, said in (
        ({"nodes": 2}, "nodes=2 needs an executor with several machines"),
        ({"executor": "threads"}, "needs learner_threads=1"),
        ({"watch": "film.txt"}, r"choose .*a path that ends with"),
    ):
        with pytest.raises((ValueError, ProgramError), match=rf"^(?!.*damaged).*{said}") as raised:
            SyncDQN.resume(path, **changed)
        assert type(raised.value) is not CorruptError


def test_a_model_without_an_environment(tmp_path: Path) -> None:
    with new("dqn") as model:
        model.save(tmp_path / "model.zip")
    with pytest.raises(ValueError, match="without an environment"):
        SyncDQN.load(tmp_path / "model.zip").save_checkpoint(tmp_path / "run.zip")


def test_every_so_many_rounds(tmp_path: Path) -> None:
    path = tmp_path / "run.zip"
    with pytest.raises(ValueError, match="`every` must be positive"):
        SaveCheckpoint(path, every=0)
    with new("dqn") as model:
        model.learn(192, callback=SaveCheckpoint(path, every=7))
        assert not path.exists()
        model.learn(320, callback=SaveCheckpoint(path, every=4), reset_num_timesteps=False)
    assert json.loads(zipfile.ZipFile(path).read("manifest.json"))["timesteps"] == 192 + 8 * 32


def test_a_checkpoint_of_a_last_round_that_went_past_the_end_resumes(tmp_path: Path) -> None:
    """Rounds of 16 steps and 40 asked for: 48 were taken, and less than nothing remains."""
    with SyncDQN("MlpPolicy", "CartPole-v1", n_actors=2, train_freq=8, learning_starts=8, seed=0, executor="inline") as model:
        model.learn(40)
        assert model.num_timesteps == 48
        model.save_checkpoint(tmp_path / "run.zip")
    with SyncDQN.resume(tmp_path / "run.zip", executor="inline") as again:
        assert (again.num_timesteps, again.remaining_timesteps) == (48, 0)
