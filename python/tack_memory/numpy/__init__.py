"""NumPy's array memory: counted, aligned, on huge pages, from an allocator of one's own.

    import tack_memory.numpy

    tack_memory.numpy.install()                      # every thread's arrays are counted from now on
    with tack_memory.memory_peak("numpy") as peak:
        ...
    print(peak.bytes, tack_memory.memory_info("numpy").in_use)

    with tack_memory.numpy.use("aligned", align=4096):
        a = numpy.zeros(1000)                        # begins at a page

    with tack_memory.numpy.use("shared"):
        b = numpy.zeros(1000)
    handle = tack_memory.numpy.share(b)              # for another process, which sees b itself: handle.attach()

What is counted is what NumPy asks for: `nbytes` of each array that owns its memory (one byte where that is 0). Not counted is
what NumPy does not allocate through its handlers: memory maps, buffers of other objects, the objects in object arrays, shapes and strides.

Works in a forked child, too: it goes on counting, beginning with the arrays that it has from its parent.
"""

from __future__ import annotations

try:
    import numpy as _  # noqa: F401
except ImportError as _missing:
    raise ImportError("tack_memory.numpy needs NumPy, which is not installed here: pip install numpy", name="numpy") from _missing

from ._arenas import Arena, arenas
from ._owner import Owner, owner
from ._scopes import install, uninstall, use
from ._statistics import Statistics, statistics

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._event_hooks import event_hook as event_hook
    from .._event_hooks import set_event_hook as set_event_hook
    from ._shared import Handle as Handle
    from ._shared import attach as attach
    from ._shared import share as share
    from ._track import track as track

__all__ = [
    "Arena",
    "Handle",
    "Owner",
    "Statistics",
    "arenas",
    "attach",
    "event_hook",
    "install",
    "owner",
    "set_event_hook",
    "share",
    "statistics",
    "track",
    "uninstall",
    "use",
]


def __getattr__(name: str) -> object:
    value = globals()[name] = _late(name)  # found here the next time
    return value


def _late(name: str) -> object:
    if name in ("Handle", "attach", "share"):
        from . import _shared  # sockets and pickling, which few need

        return getattr(_shared, name)
    if name == "track":
        from ._track import track  # with the core's peaks and reports, for device memory

        return track
    if name not in ("event_hook", "set_event_hook"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .. import _event_hooks  # those of all domains, NumPy's among them

    return getattr(_event_hooks, name)
