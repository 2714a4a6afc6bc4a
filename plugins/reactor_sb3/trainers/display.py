"""``watch=`` of a trainer: what is asked for, checked before anything is started, and what TensorBoard is given."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy.typing as npt
from stable_baselines3.common.logger import Logger, TensorBoardOutputFormat

from reactor_gymnasium.plugin import FILM_SUFFIXES, check_encoder, checked_number
from reactor_sb3.acting.player import PlayConfig
from reactor_sb3.acting.viewer import Place, Showing, ViewConfig, show_whole
from reactor_sb3.environments.live_vec_env import shown_to_actors
from reactor_sb3.environments.makers import EnvMaker
from reactor_sb3.environments.rendering import check_like, visible
from reactor_sb3.trainers.model import Model

if TYPE_CHECKING:
    from reactor_rl import Run

__all__ = ["WATCHING", "Display", "checked_place"]

WATCHING = ("watch", "watch_every", "watch_episodes", "watch_steps", "watch_env")
"""Arguments of a trainer that are about its viewer. A checkpoint has none of them: who goes on with it says what to show."""
TAG = "watch/film"
FEWER = 16
"""Steps of an actor for each that the viewer takes, unless told otherwise: drawing a picture takes milliseconds (``PICTURE`` in
``placing.py``), and a viewer that is late delays a round.
"""


class Display:
    """The part of a trainer that shows how it plays.

    Args:
        env: Makes the environment to play in, ``None`` for one like the actors'.

    Attributes:
        plan: What the viewer of the trainer's run is made from, ``None`` if it has none.
    """

    def __init__(self, env: EnvMaker | None) -> None:
        self.env = env
        self.plan: ViewConfig | None = None

    def place(self, model: Model) -> Place | None:
        """Where it is shown, ``None`` if nothing is; see :func:`checked_place`."""
        checked_number("watch_every", model.watch_every, 1)
        checked_number("watch_episodes", model.watch_episodes, 1)
        if model.watch_steps is not None:
            checked_number("watch_steps", model.watch_steps, 1)
        return None if model.watch is None else checked_place(model.watch, model.executor)

    def visible(self, model: Model) -> tuple[EnvMaker, float] | None:
        """The maker of the viewer's environment and its pictures a second, ``None`` if there is no viewer.

        Raises:
            ValueError: If there is nothing to be seen of it, or it is not like those of the actors.
        """
        place = self.place(model)
        if place is None:
            return None
        if self.env is not None:
            assert model.env is not None
            check_like(self.env, shown_to_actors(model.env).observation_space, model.action_space, "watch_env")
        mode: Literal["human", "rgb_array"] = "human" if place == "human" else "rgb_array"
        return visible(self.env or model.session.makes, mode, f"watch={str(model.watch)!r}")

    def plan_of(self, model: Model, played: Callable[..., PlayConfig], steps: int) -> ViewConfig | None:
        """The viewer's configuration, ``None`` if there is no viewer.

        Args:
            model: The trainer.
            played: Makes what is played, from what is not the same for everybody who plays.
            steps: That an actor takes in a round.

        Raises:
            ValueError: If it is to show something where nobody would see it.
        """
        place, seen = self.place(model), self.visible(model)
        if place is None or seen is None:
            return None
        if place == "tensorboard" and model.tensorboard_log is None and not _boards(vars(model).get("_logger")):
            raise ValueError('watch="tensorboard" needs a log for TensorBoard: pass tensorboard_log="runs", say')
        makes, fps = seen
        (make,) = makes.pickled(1)
        slice_ = model.watch_steps or max(1, steps // FEWER)
        return ViewConfig(played(make=make, every=model.watch_every, episodes=model.watch_episodes, steps=slice_), place, fps)

    def show_round(self, model: Model, run: Run) -> None:
        """Give TensorBoard the film that was finished in a round, if one was."""
        if self.plan is not None and (showing := run.showing) is not None:
            _write(model.logger, showing)

    def show_trained(self, model: Model, timesteps: int, parameters: npt.NDArray[Any]) -> None:
        """Film what has come of the training. A viewer shows a slice in each round, and there are no more."""
        if self.plan is None or self.plan.where == "human":  # who looks at a window is not made to wait
            return
        try:
            showing = show_whole(self.plan, timesteps, parameters)
        except Exception as error:  # the training has come to its end, and is worth more than a film
            warnings.warn(
                f"watch={str(model.watch)!r}: no film of the trained agent, {type(error).__name__}: {error}", stacklevel=3
            )
            return
        if showing is not None:
            _write(model.logger, showing)


def checked_place(watch: Any, executor: str) -> Place:
    """Where a trainer's viewer is to show what it plays.

    Args:
        watch: The trainer's argument of this name.
        executor: Likewise.

    Raises:
        TypeError: If it is neither a string nor a path.
        ValueError: If nothing can be shown there.
        ModuleNotFoundError: If a package is missing for it.
        NotADirectoryError: If its folder is a file.
    """
    if watch == "human":
        _check_display(executor)
        return "human"
    if watch == "tensorboard":
        check_encoder('watch="tensorboard"')
        return "tensorboard"
    if not isinstance(watch, (str, os.PathLike)):
        raise TypeError(f"watch={watch!r} is neither a string nor a path")
    path = Path(watch).absolute()
    if path.suffix.lower() not in FILM_SUFFIXES:
        raise ValueError(
            f'watch={str(watch)!r}: choose "human", "tensorboard", or a path that ends with {" or ".join(FILM_SUFFIXES)}'
        )
    if path.parent.exists() and not path.parent.is_dir():  # it is made if it does not exist
        raise NotADirectoryError(f"watch={str(watch)!r}: {path.parent} is not a folder")
    check_encoder(f"watch={str(watch)!r}")
    return path


def _check_display(executor: str) -> None:
    if sys.platform == "linux" and not {"DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"} & os.environ.keys():
        raise ValueError('watch="human" needs a display, and DISPLAY is not set: use watch="run.mp4" for films')
    if sys.platform == "darwin" and executor == "threads":
        raise ValueError(
            'watch="human" needs the main thread of a process for its window, and with executor="threads" the viewer has another '
            'one: use executor="processes"'
        )


def _boards(logger: Logger | None) -> list[TensorBoardOutputFormat]:
    return [] if logger is None else [output for output in logger.output_formats if isinstance(output, TensorBoardOutputFormat)]


def _write(logger: Logger, showing: Showing) -> None:
    """Give TensorBoard a film, as SB3's ``Video`` would: torch encodes that by a module that moviepy no longer has."""
    from tensorboard.compat.proto.summary_pb2 import Summary

    for output in _boards(logger):
        writer: Any = output.writer
        width, height = (int.from_bytes(showing.gif[at : at + 2], "little") for at in (6, 8))  # of a GIF's header
        image = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=showing.gif)
        writer.file_writer.add_summary(Summary(value=[Summary.Value(tag=TAG, image=image)]), showing.timesteps)
        writer.flush()
