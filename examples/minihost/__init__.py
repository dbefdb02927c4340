"""Minihost: a small GPU array framework, in the shape that larger ones have, for examples and tests to run on.

Arrays live on a device of CUDA, HIP or Level Zero, with one stream a device. Kernels are NumPy functions: where the host can read device
memory (a software driver) they run on it directly, elsewhere on a copy that is written back.

    import minihost as mh

    mh.init("cuda:0")

    @mh.kernel(writes="out")
    def scale(a, factor, out):
        out[:] = a * factor

    a = mh.asarray([1.0, 2.0, 3.0])
    out = mh.empty(a.shape, a.dtype)
    scale(a, 10.0, out)
    print(out.numpy())

How another library takes over the memory of these arrays, to count and to spill it: examples/plugged_in.py.
"""

from .lang.array import array, asarray, copyto, empty, full, reduce_max, reduce_min, reduce_sum, wrap_ptr, zeros
from .lang.kernel import kernel
from .runtime.devices import Device, current_backend, device, init, synchronize
from .runtime.driver import DeviceMemoryError, DriverError

__all__ = [
    "Device", "DeviceMemoryError", "DriverError", "array", "asarray", "copyto", "current_backend", "device", "empty", "full",
    "init", "kernel", "reduce_max", "reduce_min", "reduce_sum", "synchronize", "wrap_ptr", "zeros",
]  # fmt: skip
