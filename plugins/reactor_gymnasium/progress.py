"""How far something is that takes its time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["progress"]


@contextmanager
def progress(total: int, unit: str, *, shown: bool | None) -> Iterator[Callable[[int], object]]:
    """A bar that appears if it takes longer than a second; gives a function to be called with what has been done since.

    Args:
        total: How much is to be done.
        unit: What that is counted in.
        shown: Whether there is one; ``None`` if it is to be on a terminal or in a notebook, and not in a log.
    """
    if shown is None:
        shown = (sys.stderr is not None and sys.stderr.isatty()) or _in_notebook()
    if not shown:
        yield lambda count: None
        return
    from tqdm.auto import tqdm

    with tqdm(total=total, unit=unit, unit_scale=unit == "step", delay=1) as bar:
        yield bar.update


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    kernel = shell.get_ipython() if shell is not None else None
    # Hosted notebooks have a shell of their own, derived from that one.
    return any(cls.__name__ == "ZMQInteractiveShell" for cls in type(kernel).__mro__)
