"""What people see of a run: a progress bar, and a film."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy.typing as npt

from reactor_rl.extras import needs

__all__ = ["progress", "write_movie"]


@contextmanager
def progress(total: int, unit: str, *, shown: bool) -> Iterator[Callable[[int], object]]:
    """A bar that appears if it takes longer than a second; gives a function to be called with what has been done since."""
    if not shown:
        yield lambda count: None
        return
    from tqdm.auto import tqdm

    with tqdm(total=total, unit=unit, unit_scale=unit == "step", delay=1) as bar:
        yield bar.update


def write_movie(path: str | Path, frames: Sequence[npt.NDArray[Any]], fps: float) -> None:
    """Write frames, ``(height, width, 3)`` uint8 each, to a GIF or MP4.

    Raises:
        ValueError: If the path has another ending.
    """
    with needs("pettingzoo", "a film"):
        import imageio.v3 as imageio

    match Path(path).suffix:
        case ".gif":
            imageio.imwrite(path, frames, duration=1000 / fps, loop=0)
        case ".mp4":
            imageio.imwrite(path, frames, fps=fps)
        case other:
            raise ValueError(f"cannot write a film with the ending {other!r}; use .gif or .mp4")
