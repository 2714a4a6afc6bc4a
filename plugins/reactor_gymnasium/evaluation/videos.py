"""Videos of chosen episodes: each is played once more, for it is the same again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from reactor_gymnasium.environments.block import EnvBlock
from reactor_gymnasium.environments.bound_rows import BoundRows
from reactor_gymnasium.environments.storage import ObservationLayout
from reactor_gymnasium.evaluation.asking import Asking, Chosen
from reactor_gymnasium.evaluation.episodes import Played, Player
from reactor_gymnasium.evaluation.policies import PolicyContext
from reactor_gymnasium.film import Film, check_encoder
from reactor_rl.plugin import encode, one_numeric_thread

__all__ = ["check_recording", "record_episodes"]

FPS = 30


def check_recording(env_fn: Callable[[], Any], name: str) -> None:
    """See to it that episodes can be recorded, before any is played.

    Raises:
        ValueError: If the environment renders no pictures.
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
    finally:
        env.close()


def record_episodes(
    env_fn: Callable[[], Any],
    chosen: Chosen,
    context: PolicyContext,
    max_steps: int | None,
    seed: int,
    episodes: Sequence[Played],
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
        Their paths, by number.

    Raises:
        RuntimeError: If an episode is not the same again.
    """
    paths: dict[int, str] = {}
    if not episodes:
        return paths
    folder.mkdir(parents=True, exist_ok=True)
    layout = ObservationLayout(context.observation_space, "unsafe")
    player = Player((encode(_rendering(env_fn)),), 0, layout, context.action_space, max_steps)
    player.seed = seed
    player.build()
    try:
        rows = player.rows()
        out = None if rows is None else BoundRows(layout, rows)
        with one_numeric_thread():
            asking = Asking(chosen.policy, chosen.batch, layout, rows, 1, context.action_space, seed)
            for episode in episodes:
                paths[episode.number] = str(folder / f"episode-{episode.number}.mp4")
                _film(player, asking, out, episode, paths[episode.number])
    finally:
        player.block.close()
    return paths


def _film(player: Player, asking: Asking, out: BoundRows | None, episode: Played, path: str) -> None:
    """Play an episode, and write what it renders."""
    block = player.block
    block.keep_from_kernels("it is filmed")
    player.queue.append(episode.number)
    player.wake(out)
    with block.opened(changes=False) as (env,):
        fps = float(env.metadata.get("render_fps") or FPS)
        del env  # it would be referred to as long as this plays
    film = Film(path, ".mp4", fps)
    _show(film, block)
    block.last_info, kept = partial(_filming, film, block, block.last_info), block.last_info
    while not player.idle:
        asking.follow(player.playing, player.begun)
        player.step(asking(player.objects(), player.masks() if asking.policy.masked else None), out)
        if not player.idle:
            _show(film, block)
    block.last_info = kept
    player.note()
    film.close()
    ended = player.ended.pop()
    if ended.digest != episode.digest:
        raise RuntimeError(
            f"episode {episode.number} went otherwise when it was played again for its video: the environment or the policy does "
            "not do the same again after the same seed and actions, or with render_mode='rgb_array'"
        )


def _show(film: Film, block: EnvBlock) -> None:
    with block.opened(changes=False) as envs:
        film.add(np.asarray(envs[0].render()))


def _filming(film: Film, block: EnvBlock, kept: Callable[[int, Any], Any], row: int, info: Any) -> Any:
    _show(film, block)
    return kept(row, info)


def _rendering(env_fn: Callable[[], Any]) -> Callable[[], Any]:
    """A maker of the same environment with pictures, where they can be asked for."""
    if isinstance(env_fn, partial) and env_fn.func is gymnasium.make:
        return partial(env_fn.func, *env_fn.args, **{**env_fn.keywords, "render_mode": "rgb_array"})
    return env_fn
