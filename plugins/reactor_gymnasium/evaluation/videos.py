"""Videos of chosen episodes: each is played once more, for it is the same again."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gymnasium.vector import AutoresetMode

from reactor_gymnasium.environments.gym_rows import GymRows
from reactor_gymnasium.environments.player import EndedEpisode
from reactor_gymnasium.environments.storage import ObservationLayout
from reactor_gymnasium.evaluation.choosing import Chosen
from reactor_gymnasium.evaluation.episodes import NumberedPlayer
from reactor_gymnasium.evaluation.policies import PolicyContext
from reactor_gymnasium.film import Camera, Film, check_encoder, fps_of, new_file, told_to_render
from reactor_rl.plugin import encode, one_numeric_thread

__all__ = ["check_recording", "record_episodes"]


def check_recording(env_fn: Callable[[], Any], name: str, folder: Path, episodes: Sequence[int]) -> float:
    """See to it that episodes can be recorded, before any is played: one picture becomes a film that is thrown away.

    Args:
        env_fn: Makes an environment.
        name: Of the environment.
        folder: Where the videos go; made if it is not there.
        episodes: Numbers of those that are to be recorded.

    Returns:
        Pictures a second of the videos.

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
        fps = fps_of(env, "record", name)
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
            try:
                with Film(new_file(Path(scratch) / "film.mp4"), ".mp4", fps) as film:
                    film.add(picture)
            except Exception as error:
                raise ValueError(f"record: of {name} no video can be made: {error}") from error
    except OSError as error:
        raise OSError(f"videos: {folder} cannot take videos: {error}") from error
    return fps


def record_episodes(
    env_fn: Callable[[], Any],
    chosen: Chosen,
    context: PolicyContext,
    max_steps: int | None,
    seed: int,
    episodes: Sequence[EndedEpisode],
    folder: Path,
    fps: float,
) -> dict[int, str]:
    """Play episodes again, and make videos of them.

    Args:
        env_fn: Makes an environment.
        chosen: The policy, and how it is asked.
        context: What it acts in.
        max_steps: As they were played with.
        seed: Of the evaluation.
        episodes: As they were played.
        folder: Where the videos go.
        fps: Pictures a second.

    Returns:
        Their paths, by number. One that cannot be made is left out, and a warning says why.
    """
    paths: dict[int, str] = {}
    for episode in episodes:
        path = _path(folder, episode.number)
        try:
            path.unlink(missing_ok=True)  # an old one of another evaluation
            with Film(new_file(path), ".mp4", fps) as film:
                _record(env_fn, chosen, context, max_steps, seed, episode, film)
            paths[episode.number] = str(path)
        except Exception as error:
            why = f"no video of episode {episode.number}: {type(error).__name__}: {error}"
            warnings.warn(why, RuntimeWarning, stacklevel=4)
    return paths


def _record(
    env_fn: Callable[[], Any],
    chosen: Chosen,
    context: PolicyContext,
    max_steps: int | None,
    seed: int,
    episode: EndedEpisode,
    film: Film,
) -> None:
    """Play an episode again, in an environment of its own, and film it."""
    layout, rows = ObservationLayout(context.observation_space, "unsafe"), GymRows(0, AutoresetMode.SAME_STEP)
    try:
        player = NumberedPlayer(rows, (encode(_rendering(env_fn)),), layout, context.action_space, max_steps)
        camera = Camera(rows, lambda env: film.add(env.render()))
        with one_numeric_thread():
            player.ask(chosen.policy, chosen.batch, seed)
            player.queue.append(episode.number)
            player.begin(player.out)
            ended: list[EndedEpisode] = []
            while not ended:
                camera.take()
                ended = player.step(player.actions(), player.out)
    finally:
        rows.close()
    if ended[0].digest != episode.digest:
        raise RuntimeError(
            f"episode {episode.number} went otherwise when it was played again for its video: the environment or the policy does "
            "not do the same again after the same seed and actions, or with render_mode='rgb_array'"
        )


def _path(folder: Path, number: int) -> Path:
    return folder / f"episode-{number}.mp4"


def _rendering(env_fn: Callable[[], Any]) -> Callable[[], Any]:
    """A maker of the same environment with pictures, where they can be asked for."""
    return told_to_render(env_fn, "rgb_array") or env_fn
