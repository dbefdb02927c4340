"""Minihost: a small GPU array framework, in the shape that larger ones have.

Arrays live on a CUDA device, kernels are Python functions that the framework launches on one stream a device. It exists so that
examples and tests have a framework to run on. Kernels are NumPy functions: where the host can read device memory (a software driver)
they run on it directly, elsewhere on a copy that is written back.

    import minihost as mh

    mh.init("cuda:0")

    @mh.kernel(writes="out")
    def scale(a, factor, out):
        out[:] = a * factor

    a = mh.asarray([1.0, 2.0, 3.0])
    out = mh.empty(a.shape, a.dtype)
    scale(a, 10.0, out)
    print(out.numpy())
"""

from .errors import DeviceMemoryError, DriverError
from .lang.array import array, asarray, copyto, empty, full, reduce_max, reduce_min, reduce_sum, wrap_ptr, zeros
from .lang.dlpack import from_dlpack
from .lang.kernel import kernel
from .runtime.devices import Device, current_backend, device, init, synchronize

__all__ = [
    "Device",
    "DeviceMemoryError",
    "DriverError",
    "array",
    "asarray",
    "copyto",
    "current_backend",
    "device",
    "empty",
    "from_dlpack",
    "full",
    "init",
    "kernel",
    "reduce_max",
    "reduce_min",
    "reduce_sum",
    "synchronize",
    "wrap_ptr",
    "zeros",
]
