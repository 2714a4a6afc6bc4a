"""``python -m reactor_rl doctor MODEL.zip``: who evaluates the policy of a saved model, and why it is not the extension."""

from __future__ import annotations

from collections.abc import Iterator

from reactor_rl.plugin import UsageError
from reactor_sb3.exporting.export import loaded_policy
from reactor_sb3.policies import read_policy
from reactor_torch import differentiating

__all__ = ["model"]


def model(path: str) -> Iterator[tuple[str, str, str | None]]:
    """Report who evaluates a policy where actors, ``evaluate`` and runners ask it.

    Args:
        path: A file that ``model.save()`` has written. Parts of it are unpickled.

    Raises:
        UsageError: If it is something else.
    """
    try:
        policy = loaded_policy(path)
    except (OSError, ValueError, ModuleNotFoundError) as error:
        raise UsageError(str(error)) from error
    why = read_policy(policy).policy.why_torch
    yield "policy", type(policy).__name__, None
    yield "networks", differentiating(), None
    yield "acts by", "the extension, wherever there is one" if why is None else f"torch: {why}", None
    yield "learns by", "model.explain() of a trainer says that of each network", None
