"""`%load_ext tack_memory` and `%unload_ext tack_memory`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_loaded: dict[int, tuple[Any, Any]] = {}  # id of a shell -> (its magics, what runs after each of its cells)


def load(shell: Any) -> None:
    """Register the magics with this shell. A second time changes nothing."""
    if id(shell) in _loaded:
        return
    from .magics import AfterCell, MemoryMagics

    magics, after_cell = MemoryMagics(shell), AfterCell(shell)
    shell.register_magics(magics)
    shell.events.register("post_run_cell", after_cell)
    _loaded[id(shell)] = magics, after_cell


def unload(shell: Any) -> None:
    """Take the magics out again; magics of the same names that others have registered since stay."""
    found = _loaded.pop(id(shell), None)
    if found is None:
        return
    magics, after_cell = found
    shell.events.unregister("post_run_cell", after_cell)
    for registered in shell.magics_manager.magics.values():
        for name, function in list(registered.items()):
            if getattr(function, "__self__", None) is magics:
                del registered[name]
    shell.magics_manager.registry.pop(type(magics).__name__, None)
