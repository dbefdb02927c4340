"""What runs in a worker. It is sent there by value (`_carried`), so it uses nothing of this package but what it finds there, of whatever version that is."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from distributed.diagnostics.plugin import WorkerPlugin

PLUGIN = "tack_memory"
"""The name of the worker plugin."""

FIGURES = (
    "in_use", "peak", "cached", "spilled", "device_free", "device_total", "budget", "spill_count", "restore_count", "spilled_bytes", "restored_bytes",
)  # fmt: skip
"""What is told of a MemoryInfo."""

PEAKS = ("bytes", "start", "end", "delta", "own", "footprint", "spilled_bytes", "restored_bytes", "seconds")
"""What is told of a MemoryPeak."""

_SCOPES = "_tack_memory_peaks"  # the worker's attribute that has them: they go when it goes


class Unusable(WorkerPlugin):
    """What DeviceMemory is on a worker that cannot have it: it does nothing, and says why."""

    name = PLUGIN

    def __init__(self, problem: str) -> None:
        self.problem = problem
        self.device: str | None = None
        self.sharing: int | None = None


def rebuild(arguments: dict[str, Any]) -> Any:
    """A DeviceMemory of the version that is installed here."""
    try:
        from tack_memory.dask import DeviceMemory

        return DeviceMemory(**arguments)
    except Exception as error:
        return Unusable(f"DeviceMemory cannot be used there: {type(error).__name__}: {error}")


async def figures(dask_worker: Any) -> dict[str, Any]:
    """The devices of this worker and their figures. In a thread, since a device that nobody has used yet is opened for it, which loads its driver."""
    return await asyncio.to_thread(_figures, dask_worker)


def _figures(worker: Any) -> dict[str, Any]:
    plugin = worker.plugins.get(PLUGIN)
    told: dict[str, Any] = {"pid": os.getpid(), "version": None, "problem": getattr(plugin, "problem", None), "devices": []}
    try:
        import tack_memory
    except Exception as error:
        told["problem"] = f"tack_memory cannot be imported there: {type(error).__name__}: {error}"
        return told
    told["version"] = getattr(tack_memory, "__version__", None)
    try:
        names = _devices(plugin)
        for name in names:
            info = tack_memory.memory_info(name)
            used = any(getattr(info, figure, None) for figure in ("in_use", "spilled", "peak"))
            if name == names[0] or used:
                sharing = getattr(plugin, "sharing", None) if name == getattr(plugin, "device", None) else None
                told["devices"].append({"device": name, "sharing": sharing, **{figure: getattr(info, figure, None) for figure in FIGURES}})
        if names == ["cpu"] and not told["problem"]:
            told["problem"] = "has no GPU that can be used: its default device is the CPU, where nothing is spilled"
    except Exception as error:
        told["problem"] = told["problem"] or f"its device cannot be used: {type(error).__name__}: {error}"
    return told


def _devices(plugin: Any) -> list[str]:
    """The plugin's device, else the default one, and others that are open; NumPy's memory is no device."""
    import tack_memory

    first = getattr(plugin, "device", None) or tack_memory.memory_info().device
    try:
        from tack_memory import _devices as known

        others = [name for name in known.open_names() if name != known.NUMPY]
    except (ImportError, AttributeError):  # another version's
        others = []
    return list(dict.fromkeys([first, *others]))


async def begin_peak(token: str, whole: bool, dask_worker: Any) -> dict[str, Any]:
    """Open a scope on each device. A worker that has just come is given time to set its plugins up, of which one says which device it uses."""
    heartbeat = dask_worker.periodic_callbacks.get("heartbeat")
    for _ in range(500):
        if heartbeat is None or heartbeat.is_running():
            break
        await asyncio.sleep(0.01)

    def begin() -> dict[str, Any]:
        import tack_memory

        opened = dask_worker.__dict__.setdefault(_SCOPES, {})
        if token not in opened:
            opened[token] = whole, [tack_memory.memory_peak(name).__enter__() for name in _devices(dask_worker.plugins.get(PLUGIN))]
        return {"pid": os.getpid(), "problem": None}

    try:
        return await asyncio.to_thread(begin)
    except Exception as error:
        return {"pid": os.getpid(), "problem": f"no scope could be opened: {type(error).__name__}: {error}"}


async def read_peak(token: str, whole: bool, dask_worker: Any) -> dict[str, Any] | None:
    """What the scopes tell now; None: there is none of that token."""
    return _told(dask_worker.__dict__.get(_SCOPES, {}).get(token))


async def end_peak(token: str, whole: bool, dask_worker: Any) -> dict[str, Any] | None:
    """Close them, and what they tell then."""
    kept = dask_worker.__dict__.get(_SCOPES, {}).pop(token, None)
    if kept is not None:
        for scope in kept[1]:
            scope.__exit__(None, None, None)
    return _told(kept)


def _told(kept: Any) -> dict[str, Any] | None:
    if kept is None:
        return None
    whole, scopes = kept
    rows = [{"device": scope.device, **{figure: getattr(scope, figure, None) for figure in PEAKS}} for scope in scopes]
    return {"pid": os.getpid(), "whole": whole, "devices": rows}
