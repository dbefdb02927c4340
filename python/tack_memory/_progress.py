"""Long spills and restores tell how far they have come: to a callback, or as a bar of tqdm's."""

from __future__ import annotations

from _thread import get_ident
from contextlib import suppress

from ._native import _fast

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal

    Progress = Callable[[str, str, int, int], object]

AFTER = 0.5
"""Seconds of moving from which a call is told about: what is shorter needs no bar."""


def set_progress(progress: Progress | Literal["tqdm"] | None, /, *, after: float = AFTER) -> Progress | Literal["tqdm"] | None:
    """Have long spills and restores report how far they have come, and return what was set before.

    Parameters
    ----------
    progress : callable, "tqdm" or None
        Called as `progress(device, kind, done, total)`: the name of the device, "spill" or "restore", and bytes. The total is what is known by then, and may
        grow. While the call goes on, `done` is below `total`; the last report of each kind has `done == total`, whatever was moved in the end (also where the
        call failed, or Ctrl-C ended it). "tqdm": a bar, as a widget in notebooks that have ipywidgets, else as text on stderr. None: no reports.
    after : float
        Seconds of moving from which a call is reported; what takes less time is not.

    Returns
    -------
    callable, "tqdm" or None
        What was set before.

    Raises
    ------
    TypeError
        `progress` is neither callable, "tqdm" nor None; `after` is no number.
    ValueError
        `progress` is another string; `after` is negative, or no finite number of seconds.
    ModuleNotFoundError
        For "tqdm": it is not installed.

    Notes
    -----
    May be called from any thread, and holds for calls that begin later, of all threads. The reports of a call come from the thread that made it, up to 20 a
    second, while the memory goes on moving; none of our locks is held. What the callback itself moves is not reported. An Exception that it raises is shown
    (`sys.unraisablehook`), and the rest of that call is not reported; Ctrl-C in it ends the call, as at any other moment. In a forked child there are no
    reports.
    `%load_ext tack_memory` sets "tqdm", if it is installed and nothing is set.
    """
    if isinstance(after, bool) or not isinstance(after, (int, float)):
        raise TypeError(f"after must be a number of seconds, not {type(after).__name__}")
    if not 0 <= after <= 1e9:
        raise ValueError(f"after must be a number of seconds from 0 to 1e9, not {after!r}")
    if isinstance(progress, str):
        if progress != "tqdm":
            raise ValueError(f'progress can be a callable, "tqdm" or None, not {progress!r}')
        callback: Progress | None = Bars()
    elif progress is None or callable(progress):
        callback = progress
    else:
        raise TypeError(f'progress must be callable as progress(device, kind, done, total), or "tqdm", or None, not {type(progress).__name__}')
    return _told(_fast.set_progress(callback, float(after)))  # one step, whoever else sets it: no lock is needed


def get_progress() -> Progress | Literal["tqdm"] | None:
    """What is set now."""
    return _told(_fast.get_progress())


def _told(callback: Progress | None) -> Progress | Literal["tqdm"] | None:
    """A callback as it was given to `set_progress`."""
    return "tqdm" if isinstance(callback, Bars) else callback


def tqdm_is_there() -> bool:
    """Whether a bar is possible, without importing tqdm."""
    from importlib.util import find_spec

    return find_spec("tqdm") is not None


class Bars:
    """The callback that draws: one bar of tqdm's for each kind of move of each thread, from its first report to its last one."""

    def __init__(self) -> None:
        if not tqdm_is_there():
            raise ModuleNotFoundError('set_progress("tqdm") draws with tqdm, which is not installed: pip install tqdm', name="tqdm")
        self._bars: dict[tuple[int, str, str], Any] = {}

    def __call__(self, device: str, kind: str, done: int, total: int) -> None:
        key = get_ident(), device, kind
        try:
            bar = self._bars.get(key)
            if bar is None:  # miniters: each report is drawn; tqdm guesses how many to leave out, and reports come at most 20 times a second
                bar = _tqdm()(total=total, desc=f"{kind} {device}", unit="B", unit_scale=True, unit_divisor=1024, miniters=1, leave=False)
                self._bars[key] = bar
            if bar.total != total:
                _set_total(bar, total)
            bar.update(done - bar.n)
            if done == total:
                self._bars.pop(key).close()
        except BaseException:  # the rest of this call is not reported: the bar would be the next call's, with the old clock
            bar = self._bars.pop(key, None)
            if bar is not None:
                with suppress(Exception):
                    bar.close()
            raise


def _set_total(bar: Any, total: int) -> None:
    """A widget has the total for itself, and tqdm passes it on only where it begins at 0 again (`reset`)."""
    bar.total = total
    for widget in getattr(getattr(bar, "container", None), "children", ()):
        if hasattr(widget, "max"):
            widget.max = total


def _tqdm() -> Any:
    """tqdm's widget in a notebook that can show it, else its text. (tqdm.auto would warn where ipywidgets is missing.)"""
    import sys
    from importlib import import_module
    from importlib.util import find_spec

    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    widget = shell is not None and "IPKernelApp" in getattr(shell, "config", ()) and find_spec("ipywidgets") is not None
    return import_module("tqdm.notebook" if widget else "tqdm").tqdm
