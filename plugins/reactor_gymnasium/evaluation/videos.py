"""Videos of chosen episodes: each is played once more, for it is the same again."""

from __future__ import annotations

import contextlib
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from reactor_gymnasium.environments.gym_rows import GymRows
from reactor_gymnasium.environments.player import EndedEpisode
from reactor_gymnasium.environments.storage import ObservationLayout
from reactor_gymnasium.evaluation.choosing import Chosen
from reactor_gymnasium.evaluation.episodes import NumberedPlayer
from reactor_gymnasium.evaluation.policies import PolicyContext
from reactor_gymnasium.film import Film, check_encoder
from reactor_rl.plugin import encode, one_numeric_thread

__all__ = ["check_recording", "record_episodes"]

FPS = 30.0
SLOWEST, FASTEST = 0.01, 1000


def check_recording(env_fn: Callable[[], Any], name: str, folder: Path, episodes: Sequence[int]) -> None:
    """See to it that episodes can be recorded, before any is played: one picture becomes a film that is thrown away.

    Args:
        env_fn: Makes an environment.
        name: Of the environment.
        folder: Where the videos go; made if it is not there.
        episodes: Numbers of those that are to be recorded.

    Raises:
        ValueError: If the environment renders no pictures, or none of which a film can be made.
        OSError: If the folder cannot be made or written to.
        ModuleNotFoundError: If the encoder is not installed.
    """
    check_encoder("evaluate(record=...)")
    env = _rendering(env_fn)()
    try:
        if env.render_mode != "rgb_array":
            raise ValueError(
                f"record: {name} has render_mode={env.render_mode!r}, and a video needs pictures: have the function make it with "
                'render_mode="rgb_array"'
            )
        fps = _fps(env, name)
        env.reset(seed=0)
        picture = env.render()
    finally:
        env.close()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number in episodes:
            if (path := _path(folder, number)).is_dir():
                raise IsADirectoryError(f"{path} is a folder")
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            film = Film(str(Path(scratch) / "film.mp4"), ".mp4", fps)
            try:
                film.add(_picture(picture))
                film.close()
            except Exception as error:
                film.abandon()
                raise ValueError(f"record: of {name} no video can be made: {error}") from error
    except OSError as error:
        raise OSError(f"videos: {folder} cannot take videos: {error}") from error


def record_episodes(
    env_fn: Callable[[], Any],
    chosen: Chosen,
    context: PolicyContext,
    max_steps: int | None,
    seed: int,
    episodes: Sequence[EndedEpisode],
    folder: Path,
) -> dict[int, str]:
    """Play episodes again, and make videos of them.

    Args:
        env_fn: Makes an environment.
        chosen: The policy, and how it is asked.
        context: What it acts in.
        max_steps: As they were played with.
        seed: Of the evaluation.
        episodes: As they were played.
        folder: Where the videos go; made if it is not there.

    Returns:
        Their paths, by number. One that cannot be made is left out, and a warning says why.
    """
    paths: dict[int, str] = {}
    for episode in episodes:
        path = _path(folder, episode.number)
        try:
            _record(env_fn, chosen, context, max_steps, seed, episode, str(path))
            paths[episode.number] = str(path)
        except Exception as error:
            why = f"no video of episode {episode.number}: {type(error).__name__}: {error}"
            warnings.warn(why, RuntimeWarning, stacklevel=4)
        finally:
            if episode.number not in paths:  # what there is of it shows no whole episode, or another one
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
    return paths


def _record(
    env_fn: Callable[[], Any],
    chosen: Chosen,
    context: PolicyContext,
    max_steps: int | None,
    seed: int,
    episode: EndedEpisode,
    path: str,
) -> None:
    """Play an episode again, in an environment of its own, and make a video of it."""
    layout, rows = ObservationLayout(context.observation_space, "unsafe"), GymRows(0, AutoresetMode.SAME_STEP)
    try:
        player = NumberedPlayer(rows, (encode(_rendering(env_fn)),), layout, context.action_space, max_steps)
        with one_numeric_thread():
            player.ask(chosen.policy, chosen.batch, seed)
            player.queue.append(episode.number)
            digest = _film(rows, player, path)
    finally:
        rows.close()
    if digest != episode.digest:
        raise RuntimeError(
            f"episode {episode.number} went otherwise when it was played again for its video: the environment or the policy does "
            "not do the same again after the same seed and actions, or with render_mode='rgb_array'"
        )


def _film(rows: GymRows, player: NumberedPlayer, path: str) -> str:
    """Play an episode, and write what it renders; returns its digest."""
    rows.keep_from_kernels("it is filmed")
    player.begin(player.out)
    with rows.opened(changes=False) as (env,):
        fps = _fps(env, "the environment")
        del env  # it would be referred to as long as this plays
    film = Film(path, ".mp4", fps)
    try:
        _show(film, rows)
        rows.before_reset = partial(_filming, film, rows, rows.before_reset)
        ended: list[EndedEpisode] = []
        while not ended:
            ended = player.step(player.actions(), player.out)
            if not ended:
                _show(film, rows)
        film.close()
    except BaseException:
        film.abandon()
        raise
    return ended[0].digest


def _show(film: Film, rows: GymRows) -> None:
    with rows.opened(changes=False) as envs:
        film.add(_picture(envs[0].render()))


def _filming(film: Film, rows: GymRows, kept: Callable[[int, Any], Any], row: int, info: Any) -> Any:
    if rows.over or rows.ended[0][2]:  # and no life was lost alone
        _show(film, rows)
    return kept(row, info)


def _path(folder: Path, number: int) -> Path:
    return folder / f"episode-{number}.mp4"


def _picture(rendered: Any) -> Any:
    """Convert what ``render()`` returned to an array; keep ``None``, which is not a picture."""
    return None if rendered is None else np.asarray(rendered)


def _fps(env: Any, name: str) -> float:
    """Pictures a second.

    Raises:
        ValueError: If the environment has others than a film can have.
    """
    told = env.metadata.get("render_fps") if isinstance(env.metadata, Mapping) else None
    if told is None or (isinstance(told, int | float) and told == 0):
        return FPS
    known = isinstance(told, int | float | np.number) and not isinstance(told, bool)
    if not known or not SLOWEST <= float(told) <= FASTEST:
        raise ValueError(
            f'record: metadata["render_fps"] of {name} must be a number of pictures a second, {SLOWEST} to {FASTEST}, got {told!r}'
        )
    return float(told)


def _rendering(env_fn: Callable[[], Any]) -> Callable[[], Any]:
    """A maker of the same environment with pictures, where they can be asked for."""
    if isinstance(env_fn, partial) and env_fn.func is gymnasium.make:
        return partial(env_fn.func, *env_fn.args, **{**env_fn.keywords, "render_mode": "rgb_array"})
    return env_fn
