"""Exact accounting of a GPU array framework's device memory, and spilling to host memory under a budget.

    import tack_memory

    with tack_memory.memory_peak() as peak:
        ...
    print(peak.bytes)                            # the most device memory that the block held

    tack_memory.set_memory_budget("8 GiB")       # from now on arrays used least recently are spilled
    print(tack_memory.memory_info())

A size is an int of bytes or a string such as "24 MiB", "1.5GB" or "80%". A device is None (the current one), "cuda:0", "cuda", an ordinal,
or a framework's own device object. Everything may be called from any thread.

(PYTEST_DONT_REWRITE: there is nothing to rewrite, and pytest would warn where this is imported before it.)
"""

from __future__ import annotations

from . import _auto, _devices, _errors, _hosts, _logging
from ._accounting import MemoryPeak, format_info, format_info_html, memory_peak
from ._arrays import hold, label, restore, spill
from ._budget import get_memory_budget, memory_budget, set_memory_budget
from ._devices import devices
from ._errors import DeviceLostError, DeviceMemoryError, ForkError, Holder, StreamCaptureError
from ._native import PACKAGE_FOLDER, _fast
from ._version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._event_hooks import _C_API as _C_API
    from ._event_hooks import Event, EventHook, event_counts, event_hook, flush_events, get_include, set_event_hook
    from ._native._fast import (
        Buffer,
        BufferView,
        Exported,
        MemoryInfo,
        Reservation,
        adopt,
        allocate,
        empty_cache,
        empty_host_pool,
        launch,
        memory_info,
        reserve,
        reset_peak_memory,
        set_origins,
        stream,
        synchronize,
        wrap,
    )
    from ._progress import set_progress
    from ._report import MemoryReport, memory_report
    from ._timeline import Timeline, record_timeline
    from ._travel import set_arrival_device
    from .hosts import HostHasMemoryError, MissingSeamError, install, uninstall
else:
    Buffer = _fast.Buffer
    BufferView = _fast.BufferView
    Exported = _fast.Exported
    MemoryInfo = _fast.MemoryInfo
    Reservation = _fast.Reservation
    adopt = _fast.adopt
    allocate = _fast.allocate
    empty_cache = _fast.empty_cache
    empty_host_pool = _fast.empty_host_pool
    launch = _fast.launch
    memory_info = _fast.memory_info
    reserve = _fast.reserve
    reset_peak_memory = _fast.reset_peak_memory
    set_origins = _fast.set_origins
    stream = _fast.stream
    synchronize = _fast.synchronize
    wrap = _fast.wrap

__all__ = [
    "Buffer",
    "BufferView",
    "DeviceLostError",
    "DeviceMemoryError",
    "Event",
    "EventHook",
    "Exported",
    "ForkError",
    "Holder",
    "HostHasMemoryError",
    "MemoryInfo",
    "MemoryPeak",
    "MemoryReport",
    "MissingSeamError",
    "Reservation",
    "StreamCaptureError",
    "Timeline",
    "__version__",
    "adopt",
    "allocate",
    "devices",
    "empty_cache",
    "empty_host_pool",
    "event_counts",
    "event_hook",
    "flush_events",
    "get_include",
    "get_memory_budget",
    "hold",
    "install",
    "label",
    "launch",
    "memory_budget",
    "memory_info",
    "memory_peak",
    "memory_report",
    "record_timeline",
    "reserve",
    "reset_peak_memory",
    "restore",
    "set_arrival_device",
    "set_event_hook",
    "set_memory_budget",
    "set_origins",
    "set_progress",
    "spill",
    "stream",
    "synchronize",
    "uninstall",
    "wrap",
]

# What many programs never use is imported at its first use.
_LAZY = {
    "Event": "_event_hooks",
    "EventHook": "_event_hooks",
    "HostHasMemoryError": "hosts",
    "MemoryReport": "_report",
    "MissingSeamError": "hosts",
    "Timeline": "_timeline",
    "_C_API": "_event_hooks",
    "event_counts": "_event_hooks",
    "event_hook": "_event_hooks",
    "flush_events": "_event_hooks",
    "get_include": "_event_hooks",
    "install": "hosts",
    "memory_report": "_report",
    "record_timeline": "_timeline",
    "set_arrival_device": "_travel",
    "set_event_hook": "_event_hooks",
    "set_progress": "_progress",
    "uninstall": "hosts",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "numpy":
        return import_module(f"{__name__}.numpy")  # ImportError, with what to do, where NumPy is not installed
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value  # the next look-up does not come here
    return value


def load_ipython_extension(ipython: object) -> None:
    """Called by `%load_ext tack_memory`: adds %%memory_peak, %memory_info and %memory_budget, and says after a failed cell what its traceback keeps alive."""
    from ._notebook.extension import load

    load(ipython)


def unload_ipython_extension(ipython: object) -> None:
    """Called by `%unload_ext tack_memory`: takes the magics out again."""
    from ._notebook.extension import unload

    unload(ipython)


def __dir__() -> list[str]:
    """The public names, and what every module has."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


_logging.configure()
_logging.tell_unknown_switches()
_fast.configure(
    resolve_device=_devices.resolve,
    parse_size=_devices.size_on,
    memory_error=_errors.memory_error,
    lost_error=DeviceLostError,
    fork_error=ForkError,
    capture_error=StreamCaptureError,
    format_info=format_info,
    format_info_html=format_info_html,
    notify=_logging.drain,
)
_fast.set_origin_skip((PACKAGE_FOLDER,))
_hosts.watch(_devices.default_device_changed)
_auto.start()
