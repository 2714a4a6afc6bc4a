"""Films of environments: who is asked for pictures, when each is taken, and the file, by PyAV (FFmpeg within this process)."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import IO, Any

import gymnasium
import numpy as np
import numpy.typing as npt

from reactor_gymnasium.environments.rows import EnvRows
from reactor_rl.plugin import require_extra

__all__ = ["FILM_SUFFIXES", "Camera", "Film", "check_encoder", "checked_fps", "fps_of", "new_file", "told_to_render"]

FILM_SUFFIXES = (".gif", ".mp4")
USUAL_FPS, SLOWEST, FASTEST = 30.0, 0.01, 1000
"""Pictures a second where an environment says nothing (``RecordVideo`` has 30 too), and what may be asked for: slower than a
picture in 100 s or faster than 1000 a second is a mistake.
"""
_FASTEST_GIF = 50
"""Pictures a second: a GIF counts in hundredths of a second, and viewers slow down what has fewer than two for a picture."""

WANTED = "and a film consists of arrays of shape (height, width, 3) and dtype uint8"


def check_encoder(what: str) -> None:
    """See to it that films can be written.

    Raises:
        ModuleNotFoundError: If they cannot.
    """
    with require_extra("watch", what):
        importlib.import_module("av")


def told_to_render(make: Callable[..., Any], mode: str) -> Callable[[], Any] | None:
    """A maker of the same environment with a ``render_mode``, ``None`` if what makes it has no parameter for it."""
    function = make.func if isinstance(make, partial) else make
    if function is not gymnasium.make:
        try:
            parameters = inspect.signature(make).parameters
        except (TypeError, ValueError):
            return None
        if "render_mode" not in parameters:
            return None
    return partial(make, render_mode=mode)


def checked_fps(fps: Any, what: str) -> float:
    """A number of pictures a second, as a float.

    Args:
        fps: The number.
        what: Its name, for the message.

    Raises:
        ValueError: If no film can have as many.
    """
    known = isinstance(fps, int | float | np.number) and not isinstance(fps, bool)
    if not known or not SLOWEST <= float(fps) <= FASTEST:
        raise ValueError(f"{what} must be a number of pictures a second, {SLOWEST} to {FASTEST}, got {fps!r}")
    return float(fps)


def fps_of(env: Any, option: str, name: str) -> float:
    """Pictures a second of an environment, 30 if it does not say.

    Args:
        env: The environment.
        option: What they are for, for the message.
        name: Of the environment, likewise.

    Raises:
        ValueError: If no film can have as many as it says.
    """
    told = env.metadata.get("render_fps") if isinstance(env.metadata, Mapping) else None
    if told is None or (isinstance(told, int | float) and told == 0):
        return USUAL_FPS
    return checked_fps(told, f'{option}: metadata["render_fps"] of {name}')


class Camera:
    """Gives the first environment of rows to somebody who films it: before each step, and after the last one of an episode.

    Args:
        rows: The environments, which are reset in the step that ends an episode. No kernel steps them from now on.
        show: Is given the environment, and does not change it.
    """

    def __init__(self, rows: EnvRows, show: Callable[[Any], None]) -> None:
        rows.keep_from_kernels("it is filmed")
        self.rows, self.show, self.kept = rows, show, rows.before_reset
        rows.before_reset = self._last

    def take(self) -> None:
        """Show the environment as it is; to be called before each step."""
        with self.rows.opened(changes=False) as envs:
            self.show(envs[0])

    def _last(self, row: int, info: Any) -> Any:
        if row == 0:
            self.take()
        return self.kept(row, info)


@contextmanager
def new_file(path: str | Path) -> Iterator[IO[bytes]]:
    """A new file, which is removed if the block fails: it is no film then."""
    with open(path, "wb") as file:
        try:
            yield file
        except BaseException:
            with suppress(OSError):
                Path(path).unlink()
            raise


class Film:
    """A film in the making. Its file is opened for the first picture; as a context it is closed, or abandoned after an error.

    Args:
        file: Opens what it is written to, which need not have the suffix, and is told of an error. FFmpeg opens it once more by its
            name: where it calls back to write, an interrupt would be lost.
        suffix: ``".gif"`` or ``".mp4"`` (H.264, which browsers play).
        fps: Pictures a second.
    """

    def __init__(self, file: AbstractContextManager[Any], suffix: str, fps: float) -> None:
        self.file, self.gif = file, suffix == ".gif"
        self.format = suffix.removeprefix(".")
        self.fps = Fraction(min(fps, _FASTEST_GIF) if self.gif else fps).limit_denominator(1000)
        self.shape: tuple[int, ...] = ()
        self.count = 0
        self._writing = ExitStack()

    def add(self, picture: Any) -> None:
        """Add a picture. After an error nothing is left of the film.

        Args:
            picture: What ``render()`` has given, ``(height, width, 3)``, uint8.

        Raises:
            TypeError: If it is something else.
            ValueError: If it is not as large as the ones before.
            OSError: If it cannot be written.
        """
        try:
            self._add(picture)
        except Exception as error:
            self.abandon(error)
            raise

    def _add(self, picture: Any) -> None:
        if picture is None:
            raise TypeError(f"render() gave NoneType, {WANTED}")
        picture = np.asarray(picture)
        shape: tuple[int, ...] = picture.shape
        if picture.dtype != np.uint8 or len(shape) != 3 or shape[2] != 3:
            raise TypeError(f"render() gave an array of shape {shape} and dtype {picture.dtype}, {WANTED}")
        if not self.shape:
            self._begin(shape)
        if shape != self.shape:
            raise ValueError(f"render() gave a picture of shape {shape} after others of {self.shape}")
        frame = self._av.VideoFrame.from_ndarray(self._even(picture), format="rgb24")
        frame.pts, frame.time_base = self.count, 1 / self.fps
        self.container.mux(self.stream.encode(self._coloured(frame) if self.gif else frame))
        self.count += 1

    def close(self) -> None:
        """Write the rest of the film. No file is left of a film without pictures.

        Raises:
            OSError: If it cannot be written. Nothing is left of it then.
        """
        if not self.count:
            self.abandon(ValueError("no pictures were taken"))
            return
        self.count = 0
        with self._writing:
            self.container.mux(self.stream.encode(None))

    def abandon(self, error: BaseException) -> None:
        """Let go of the file, and tell it why: it is to be removed."""
        self.count = 0
        with suppress(Exception):
            self._writing.__exit__(type(error), error, error.__traceback__)

    def __enter__(self) -> Film:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None:
            self.close()
        else:
            self.abandon(error)

    def _begin(self, shape: tuple[int, ...]) -> None:
        self._av: Any = importlib.import_module("av")
        file = self._writing.enter_context(self.file)
        self.container: Any = self._writing.enter_context(self._av.open(file.name, "w", format=self.format))
        height, width = (length if self.gif else length + length % 2 for length in shape[:2])
        stream = self.stream = self.container.add_stream("gif" if self.gif else "libx264", rate=self.fps)
        stream.width, stream.height, stream.pix_fmt = width, height, "pal8" if self.gif else "yuv420p"
        stream.codec_context.time_base = 1 / self.fps
        stream.codec_context.thread_count = 1  # a core belongs to its worker
        # FFmpeg leaves out what has the same index as in the picture before, though its colour may be another one by now.
        stream.options = {"gifflags": "0"} if self.gif else {"preset": "ultrafast"}
        self.shape = shape
        if self.gif:
            self.graph = self._palettes(width, height)

    def _palettes(self, width: int, height: int) -> Any:
        """FFmpeg's filters that give each picture a palette of its own."""
        graph: Any = self._av.filter.Graph()
        source = graph.add_buffer(width=width, height=height, format=self._av.VideoFormat("rgb24"), time_base=1 / self.fps)
        split, palette = graph.add("split"), graph.add("palettegen", "stats_mode=single:reserve_transparent=0")
        use, sink = graph.add("paletteuse", "new=1:dither=none"), graph.add("buffersink")
        source.link_to(split)
        split.link_to(palette, 0, 0)
        split.link_to(use, 1, 0)
        palette.link_to(use, 0, 1)
        use.link_to(sink)
        graph.configure()
        return graph

    def _even(self, picture: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """With a last row and column more where H.264 wants an even number."""
        height, width, _ = picture.shape
        if self.gif or not (height % 2 or width % 2):
            return np.ascontiguousarray(picture)
        return np.pad(picture, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")

    def _coloured(self, frame: Any) -> Any:
        """A picture in 256 colours of its own. There is one for each: trying for more is an error, in which PyAV drops Ctrl-C."""
        self.graph.push(frame)
        return self.graph.pull()
