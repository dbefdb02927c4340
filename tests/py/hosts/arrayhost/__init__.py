"""Arrayhost: a small host in the shape that Tack's plan gives its array generation, which nobody here has seen.

It is examples/minihost with what that leaves out: views with an offset, device classes, textures, scalar packs, memory for MPI, memory that is handed out,
caches of dropped memory, locks around launches, and backends whose memory is the host's. Each module that is not in this folder is minihost's own, loaded
under this package's name (`__path__` of lang and runtime), so that all of it is one host. Like minihost it knows nothing of tack_memory.
"""

from .lang.array import array, asarray, empty, full, reduce_max, reduce_min, reduce_sum, wrap_ptr, zeros
from .lang.device_class import device_class
from .lang.kernel import kernel
from .lang.texture import Texture3D
from .lang.views import copyto
from .runtime import vendors
from .runtime.devices import Device, current_backend, device, init, synchronize
from .runtime.driver import DeviceMemoryError, DriverError

__all__ = [
    "Device", "DeviceMemoryError", "DriverError", "Texture3D", "array", "asarray", "copyto", "current_backend", "device", "device_class", "empty", "full",
    "init", "kernel", "reduce_max", "reduce_min", "reduce_sum", "synchronize", "vendors", "wrap_ptr", "zeros",
]  # fmt: skip
