"""The CUDA driver's C interface, through ctypes.

Signatures are those of NVIDIA's documentation of the driver API; names with `_v2` are the current ones (the names without it still
exist, with 32-bit sizes). ctypes releases the GIL around each call.
"""

import ctypes
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p

from ..errors import DeviceMemoryError, DriverError

OUT_OF_MEMORY = 2
DEINITIALIZED = 4
MEMORY_POOLS_SUPPORTED = 115  # device attribute
NON_BLOCKING = 1  # stream flag: not ordered against the legacy default stream

_SIGNATURES: dict[str, tuple[object, ...]] = {
    "cuInit": (c_uint,),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDevicePrimaryCtxRetain": (POINTER(c_void_p), c_int),
    "cuCtxSetCurrent": (c_void_p,),
    "cuStreamCreate": (POINTER(c_void_p), c_uint),
    "cuStreamSynchronize": (c_void_p,),
    "cuDeviceGetDefaultMemPool": (POINTER(c_void_p), c_int),
    "cuMemPoolTrimTo": (c_void_p, c_size_t),
    "cuMemAlloc_v2": (POINTER(c_uint64), c_size_t),
    "cuMemFree_v2": (c_uint64,),
    "cuMemAllocAsync": (POINTER(c_uint64), c_size_t, c_void_p),
    "cuMemFreeAsync": (c_uint64, c_void_p),
    "cuMemcpyHtoDAsync_v2": (c_uint64, c_void_p, c_size_t, c_void_p),
    "cuMemcpyDtoHAsync_v2": (c_void_p, c_uint64, c_size_t, c_void_p),
    "cuMemcpyDtoDAsync_v2": (c_uint64, c_uint64, c_size_t, c_void_p),
    "cuMemsetD8Async": (c_uint64, c_ubyte, c_size_t, c_void_p),
}


class Driver:
    """One loaded driver library. `library` is a path, or None for the system's libcuda.so.1."""

    def __init__(self, library: str | None = None) -> None:
        self.library = library
        try:
            loaded = ctypes.CDLL(library or "libcuda.so.1")
        except OSError as error:
            raise DriverError(f"loading {library or 'libcuda.so.1'}", -1, str(error)) from error
        self._functions = {}
        for name, arguments in _SIGNATURES.items():
            function = getattr(loaded, name)
            function.restype = c_int
            function.argtypes = arguments
            self._functions[name] = function
        self("cuInit", 0)

    def __call__(self, name: str, *arguments: object) -> None:
        """Call one function; raises DeviceMemoryError where the device is full, DriverError on any other failure."""
        code = self._functions[name](*arguments)
        if code == OUT_OF_MEMORY:
            raise DeviceMemoryError(str(DriverError(name, code, self._name(code))))
        if code:
            raise DriverError(name, code, self._name(code))

    def get(self, kind: type, name: str, *arguments: object) -> int:
        """Call a function whose first parameter is where it puts its result."""
        result = kind()
        self(name, ctypes.byref(result), *arguments)
        return result.value or 0

    def _name(self, code: int) -> str:
        text = c_char_p()
        if self._functions["cuGetErrorName"](code, ctypes.byref(text)) or not text.value:
            return "unknown error"
        return text.value.decode()
