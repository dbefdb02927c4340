"""`%load_ext tack_memory` and `%unload_ext tack_memory`."""

from __future__ import annotations

from .._native import _fast
from .._progress import get_progress, set_progress, tqdm_is_there

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_loaded: dict[int, tuple[Any, Any]] = {}  # id of a shell -> (its magics, what runs after each of its cells)
_progress: object = None  # the callback that `load` has set: the bar of long moves


def load(shell: Any) -> None:
    """Register the magics with this shell, and show bars of long moves where nobody else does. A second time changes nothing."""
    global _progress
    if id(shell) in _loaded:
        return
    from .after_cell import AfterCell
    from .magics import MemoryMagics

    magics, after_cell = MemoryMagics(shell), AfterCell(shell)
    shell.register_magics(magics)
    shell.events.register("post_run_cell", after_cell)
    _loaded[id(shell)] = magics, after_cell
    if get_progress() is None and tqdm_is_there():
        set_progress("tqdm")
        _progress = _fast.get_progress()


def is_loaded(shell: Any) -> bool:
    """Whether this shell has the magics."""
    return id(shell) in _loaded


def unload(shell: Any) -> None:
    """Take the magics out again; magics of the same names that others have registered since stay."""
    global _progress
    found = _loaded.pop(id(shell), None)
    if found is None:
        return
    magics, after_cell = found
    if not _loaded:
        if _progress is not None and _fast.get_progress() is _progress:  # not what the user has set since, which may be a bar, too
            set_progress(None)
        _progress = None
    shell.events.unregister("post_run_cell", after_cell)
    for registered in shell.magics_manager.magics.values():
        for name, function in list(registered.items()):
            if getattr(function, "__self__", None) is magics:
                del registered[name]
    shell.magics_manager.registry.pop(type(magics).__name__, None)
