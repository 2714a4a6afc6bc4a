"""Who evaluates and who differentiates the networks of a trainer, and why it is not the extension: ``model.explain()``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from reactor_gymnasium.plugin import Table
from reactor_torch import Networks, differentiating

__all__ = ["Explained", "Explanation", "explanation_of"]


class Explained(NamedTuple):
    """How it goes with a network.

    Attributes:
        network: Its name.
        acts: What evaluates it where actors act: ``"extension"`` or ``"torch"``; empty if no actor has it.
        learns: What differentiates it: ``"extension"`` or ``"autograd"``; empty if it does not learn.
        why: Why it is not the extension; empty where it is.
    """

    network: str
    acts: str
    learns: str
    why: str


class Explanation(tuple[Explained, ...]):
    """A row for each network, in a nice form where it is printed."""

    def __str__(self) -> str:
        rows = [[part or "-" for part in row] for row in self]
        return str(Table("", ("network", "acts by", "learns by", "why"), rows))

    __repr__ = __str__


def explanation_of(nets: Networks, acting: Mapping[str, str | None], learning: str | None) -> Explanation:
    """The explanation of networks.

    Args:
        nets: Those that learn, and those that losses read.
        acting: By the names of those that act why torch evaluates them; ``None`` if the extension does.
        learning: The reason why autograd learns, ``None`` if the extension does.
    """
    missing = None if differentiating() != "torch" else "there is no extension: see `python -m reactor_rl doctor`"
    rows = []
    for name in dict.fromkeys((*acting, *nets)):
        learns = name in nets and nets.parts[name].optimizer is not None
        of_acting, of_learning = acting.get(name) or missing if name in acting else None, learning if learns else None
        why = dict.fromkeys(one.removeprefix(f"{name!r}: ") for one in (of_acting, of_learning) if one)
        acts = ("torch" if of_acting else "extension") if name in acting else ""
        rows.append(Explained(name, acts, ("autograd" if learning else "extension") if learns else "", "; ".join(why)))
    return Explanation(rows)
