"""The names that a host gets: tack_memory's functions, with the host's device for None and the host's own names for devices."""

from __future__ import annotations

from .._accounting import MemoryPeak
from .._budget import get_memory_budget as _get_memory_budget
from .._budget import memory_budget as _memory_budget
from .._budget import set_memory_budget as _set_memory_budget
from .._native import _fast
from .._report import memory_report as _memory_report
from ._protocol import CurrentDevice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .._native._fast import MemoryInfo
    from .._report import MemoryReport
    from .._sizes import Size
    from ._protocol import HostAdapter

OWN_ACCOUNTING = ("memory_info", "set_memory_budget")
"""A host that has one of these before we came counts by itself."""


def functions(host: HostAdapter) -> dict[str, Callable[..., Any]]:
    """The functions by name. Each takes the host's devices and means the host's current one where none is given."""

    current = CurrentDevice(host)  # found when it is used: a decorator at a module's top runs before the host is initialised

    def device_of(device: object) -> object:
        if device is None:
            return current
        if isinstance(device, str):  # a full name needs no look at the host's current device
            return host.own_name(device) if ":" in device else CurrentDevice(host, device)
        is_ordinal = hasattr(type(device), "__index__") and not isinstance(device, bool)
        return CurrentDevice(host, device) if is_ordinal else device  # type: ignore[arg-type]

    def memory_info(device: object = None) -> MemoryInfo:
        host.refresh()
        return _fast.memory_info(device_of(device))

    def reset_peak_memory(device: object = None) -> None:
        _fast.reset_peak_memory(device_of(device))

    def memory_peak(device: object = None, label: str | None = None, on_exit: Callable[[Any], object] | None = None) -> MemoryPeak:
        return MemoryPeak(device_of(device), label, on_exit)

    def set_memory_budget(size: Size | None, /, device: object = None, *, strict: bool = False) -> int | None:
        return _set_memory_budget(size, device_of(device), strict=strict)

    def get_memory_budget(device: object = None) -> int | None:
        return _get_memory_budget(device_of(device))

    def memory_budget(size: Size | None, /, device: object = None, *, strict: bool = False) -> _memory_budget:
        return _memory_budget(size, device_of(device), strict=strict)

    def memory_report(device: object = None) -> MemoryReport:
        host.refresh()
        return _memory_report(device_of(device))

    originals: dict[str, object] = {
        "memory_info": _fast.memory_info,
        "reset_peak_memory": _fast.reset_peak_memory,
        "memory_peak": MemoryPeak,
        "set_memory_budget": _set_memory_budget,
        "get_memory_budget": _get_memory_budget,
        "memory_budget": _memory_budget,
        "memory_report": _memory_report,
    }
    added = (memory_info, reset_peak_memory, memory_peak, set_memory_budget, get_memory_budget, memory_budget, memory_report)
    for function in added:
        function.__qualname__ = function.__name__
        function.__module__ = "tack_memory"
        function.__doc__ = originals[function.__name__].__doc__
    return {function.__name__: function for function in added}
