"""Dask: Tack plugged in on every worker, each with its share of its device, and the memory of a whole cluster in one table.

    import tack_memory.dask

    client.register_plugin(tack_memory.dask.DeviceMemory(budget="80%"))   # on the workers that are there, and on those that come
    with tack_memory.dask.memory_peak(client) as peak:
        ...
    print(peak)                                  # one row a worker and device
    print(tack_memory.dask.memory_info(client))

A task that runs out of device memory raises its DeviceMemoryError at the client, with all its fields. Spilling, restoring and what is in use are among the
metrics that each worker tells the scheduler, and so on the dashboard's page of workers.

Buffers travel between workers by Dask's own serialisation, one frame each (see "Send arrays to another process" in the documentation).

`import tack_memory` imports nothing of Dask.
"""

from __future__ import annotations

try:
    import distributed as _  # noqa: F401
except ImportError as _missing:
    raise ImportError("tack_memory.dask needs distributed, which is not installed here: pip install tack-memory[dask]", name="distributed") from _missing

from ._peak import ClusterPeak, WorkerPeak, memory_peak
from ._plugin import DeviceMemory
from ._table import ClusterMemory, WorkerMemory, memory_info

__all__ = ["ClusterMemory", "ClusterPeak", "DeviceMemory", "WorkerMemory", "WorkerPeak", "memory_info", "memory_peak"]
