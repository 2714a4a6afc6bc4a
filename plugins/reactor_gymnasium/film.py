"""Films of an environment, written as their pictures come, by PyAV (FFmpeg within this process, on one thread)."""

from __future__ import annotations

import contextlib
import importlib
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from reactor_rl.plugin import require_extra

__all__ = ["FILM_SUFFIXES", "Film", "check_encoder"]

FILM_SUFFIXES = (".gif", ".mp4")
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


class Film:
    """A film in the making.

    Args:
        path: Of the file that it is written to, which need not have the suffix. FFmpeg opens it: where it calls back to write, an
            interrupt would be lost.
        suffix: ``".gif"`` or ``".mp4"`` (H.264, which browsers play).
        fps: Pictures a second.
    """

    def __init__(self, path: str, suffix: str, fps: float) -> None:
        import av

        self._av: Any = av
        self.container: Any = av.open(path, "w", format=suffix.removeprefix("."))
        self.fps = Fraction(min(fps, _FASTEST_GIF) if suffix == ".gif" else fps).limit_denominator(1000)
        self.gif = suffix == ".gif"
        self.shape: tuple[int, ...] = ()
        self.count = 0

    def add(self, picture: Any) -> None:
        """Add a picture.

        Args:
            picture: What ``render()`` has given, ``(height, width, 3)``, uint8.

        Raises:
            TypeError: If it is something else.
            ValueError: If it is not as large as the ones before.
        """
        if not isinstance(picture, np.ndarray):
            raise TypeError(f"render() gave {type(picture).__name__}, {WANTED}")
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
        """Write what is left of the film.

        Raises:
            ValueError: If no frames were recorded.
        """
        if not self.count:
            raise ValueError("no frames were recorded")
        self.container.mux(self.stream.encode(None))
        self.container.close()

    def abandon(self) -> None:
        """Let go of the file, whatever is in it."""
        with contextlib.suppress(Exception):
            self.container.close()

    def _begin(self, shape: tuple[int, ...]) -> None:
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
