"""Plugging in to Tack by itself: `import tack_memory` is enough, before or after `import tack`."""

from __future__ import annotations

from ._imports import when_imported
from ._settings import settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

    from ._imports import Awaited

TACK = "tack"
"""The module that is plugged in by itself."""

_OF_TACK = ("kernel", "field", "empty")
"""Every Tack has one of these at least. Another package of that name has none."""

_awaited: Awaited | None = None  # set once, while the package is being imported


def start() -> None:
    """Plug in to Tack now, or as soon as it is imported, and whenever it is imported anew; where the switch says no, never."""
    global _awaited
    if settings.autoinstall and _awaited is None:  # else the package is loaded anew, and waits already
        _awaited = when_imported(TACK, _plug_in, again=True)


def stop() -> bool:
    """A Tack that comes later, or again, is left alone. Returns whether it would have been plugged in. May be called from any thread."""
    return _awaited is not None and _awaited.cancel()


def _plug_in(module: ModuleType) -> None:
    from ._logging import debug, warn
    from .hosts import HostHasMemoryError, MissingSeamError, install_by_itself

    if not any(hasattr(module, name) for name in _OF_TACK):
        debug("the module %s (%s) is not Tack: left alone", module.__name__, getattr(module, "__file__", None))
        return
    try:
        install_by_itself(module)
    except HostHasMemoryError as error:
        debug("left alone: %s", error)
    except MissingSeamError as error:
        warn(f"{error}. It is left alone: nothing of it is counted or spilled. TACK_MEMORY_AUTOINSTALL=0 turns this warning off")
