"""What is said below a failed cell."""

from __future__ import annotations

from .._cards import card
from .._logging import debug
from .shown import Shown, show
from .stale import Found, live_bytes, look
from .told import html_of, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import weakref
    from typing import Any

WARN_FROM = 2**20
"""Bytes from which the end of a failed cell says something. `%memory_info` and reports name smaller arrays, too."""


class AfterCell:
    """Says after a failed cell which arrays its traceback keeps alive, where these are large; of the same arrays once, however many cells fail after that."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._told: list[weakref.ref[Any]] = []  # the arrays that the last warning was about
        self._untold = 0  # the id of the traceback of which was said that it cannot be told what it keeps

    def __call__(self, result: Any) -> None:
        if result.success:
            return
        try:
            self._tell()
        except Exception as error:  # IPython would show it below each failing cell
            debug("what a stored traceback keeps alive cannot be told", exc_info=error)

    def _tell(self) -> None:
        live = live_bytes()
        if live is not None and live < WARN_FROM:
            return  # it takes time to look, and there is nothing to be found
        seen = look(self._shell)
        stale = [one for one in seen.kept if one.by_error]
        arrays = [array.array for one in stale for array in one.arrays]
        told = {id(array()) for array in self._told}
        if sum(one.nbytes for one in stale) >= WARN_FROM and not {id(array()) for array in arrays} <= told:
            self._told = arrays
            self._show(Found(stale))
        traceback = id(getattr(getattr(self._shell, "InteractiveTB", None), "tb", None))
        if seen.error_untold and traceback != self._untold:
            self._untold = traceback
            self._show(Found([], error_untold=True))

    def _show(self, found: Found) -> None:
        show(Shown(text_of(found, self._shell), card(html_of(found, self._shell))))
