"""Which form carries out the work of a wrapper for all rows, or why none does."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import gymnasium

from reactor_gymnasium.native.forms import RowForm
from reactor_gymnasium.native.functions import form_of_own
from reactor_gymnasium.native.guards import PASSING, unlike
from reactor_gymnasium.native.kernel import found_by_name, name_of
from reactor_gymnasium.native.recorders import RECORDERS
from reactor_gymnasium.native.wrappers import FORMS

__all__ = ["enclosed", "form_of", "known_by_name"]

_FORMS: dict[tuple[str, str], type[RowForm]] = FORMS | {(form.module, form.owner): form for form in RECORDERS}


def known_by_name(wrapper: Any) -> bool:
    """Whether a wrapper is one of those of Gymnasium's and SB3's that there are forms for, whatever its state."""
    return type(wrapper) in PASSING or name_of(type(wrapper)) in _FORMS


def form_of(wrapper: Any, over: bool) -> type[RowForm] | str:
    """The form for a wrapper, or why it has none.

    Args:
        wrapper: The wrapper.
        over: Whether the next step resets it.
    """
    kind = type(wrapper)
    form = _FORMS.get(name_of(kind))
    if form is None or not found_by_name(kind):
        found = form_of_own(wrapper)
        if isinstance(found, str):
            return f"no row form of {kind.__name__}, for {found}"
        return found or f"no row form of {kind.__name__}"
    whys = [unlike(kind, form.written_from), *[unlike(helper, known, "", roots) for helper, roots, known in form.helpers]]
    if why := next(filter(None, whys), None):
        return why
    if overridden := vars(wrapper).keys() & form.comes_to().methods:
        return f"its {kind.__name__} has a {min(overridden)} of its own"
    return form.misfit(wrapper, over) or form


def enclosed(outer: Any) -> int:
    """How many references to a wrapper's environment there are in functions of these two that Gymnasium has made.

    Args:
        outer: The wrapper, or what has its environment as ``env``.
    """
    cells = {
        id(cell): cell
        for holder in (outer, outer.env)
        if isinstance(holder, gymnasium.Wrapper)
        for value in vars(holder).values()
        if type(value) is FunctionType and value.__module__.startswith("gymnasium.wrappers.")
        for cell in value.__closure__ or ()
    }
    return sum(cell.cell_contents is outer.env for cell in cells.values())
