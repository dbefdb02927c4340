"""Level Zero, over Intel's (and others') loader.

The stream is an immediate command list that executes in order: what is appended to it runs at once, one after the other, so there is
no queue to submit to and no fence to wait for. Memory has no order of its own: it may be freed once nothing on the list uses it.
"""

import ctypes
import threading
from ctypes import c_size_t, c_ubyte, c_uint32, c_uint64, c_void_p

from .backend import GPUBackend
from .buffer import Buffer
from .driver import RESULT, DriverError

GPU_ONLY = 1  # flag of zeInit
CONTEXT, QUEUE, DEVICE_MEMORY = 0xD, 0xE, 0x15  # types of descriptions
IN_ORDER, ASYNCHRONOUS = 2, 2  # flag and mode of a command list
FOR_EVER = 2**64 - 1  # a time to wait

_BYTES = (c_ubyte * 256)(*range(256))  # patterns to fill with: the driver may read one after the call


class _Description(ctypes.Structure):
    """Any of the descriptions above: each begins so, and what follows are at most five numbers."""

    _fields_ = [("type", c_uint32), ("next", c_void_p), ("numbers", c_uint32 * 5)]


class L0Buffer(Buffer):
    """Memory of a Level Zero device."""


class LevelZeroBackend(GPUBackend):
    """One Level Zero device, with a context and a command list."""

    name, buffer_class, dlpack_type = "level_zero", L0Buffer, 14
    libraries = ("libze_loader.so.1",)
    full = (0x70000003, 0x78000009)  # ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, ..._UNSUPPORTED_SIZE
    functions = {
        "zeInit": (c_uint32,), "zeDriverGet": (c_void_p, c_void_p), "zeDeviceGet": (c_void_p, c_void_p, c_void_p),
        "zeContextCreate": (c_void_p, c_void_p, c_void_p), "zeCommandListCreateImmediate": (c_void_p, c_void_p, c_void_p, c_void_p),
        "zeCommandListAppendMemoryCopy": (c_void_p, c_void_p, c_void_p, c_size_t, c_void_p, c_uint32, c_void_p),
        "zeCommandListAppendMemoryFill": (c_void_p, c_void_p, c_void_p, c_size_t, c_size_t, c_void_p, c_uint32, c_void_p),
        "zeCommandListHostSynchronize": (c_void_p, c_uint64), "zeMemAllocDevice": (c_void_p, c_void_p, c_size_t, c_size_t, c_void_p, c_void_p),
        "zeMemFree": (c_void_p, c_void_p),
    }  # fmt: skip

    def _open(self) -> None:
        self.driver("zeInit", GPU_ONLY)
        devices = [(parent, device) for parent in self._handles("zeDriverGet") for device in self._handles("zeDeviceGet", parent)]
        if self.ordinal >= len(devices):
            raise DriverError(f"there is no level_zero:{self.ordinal}; Level Zero has {len(devices)} devices")
        parent, self._device = devices[self.ordinal]
        self.context = self._get("zeContextCreate", parent, _described(CONTEXT), RESULT)
        list_like = _described(QUEUE, 0, 0, IN_ORDER, ASYNCHRONOUS)
        self.stream = self._get("zeCommandListCreateImmediate", self.context, self._device, list_like, RESULT)
        self._launch_lock = threading.Lock()  # two threads must not append to one command list at a time

    def _enter(self) -> None:
        """The driver has no current device."""

    def _handles(self, name: str, *parent: int) -> list[int]:
        """What a function lists: it is asked how many, then which."""
        count = c_uint32()
        self.driver(name, *parent, ctypes.byref(count), None)
        found = (c_void_p * count.value)()
        self.driver(name, *parent, ctypes.byref(count), found)
        return list(found)

    def fill(self, pointer: int, value: int, nbytes: int) -> None:
        self._append("zeCommandListAppendMemoryFill", pointer, ctypes.addressof(_BYTES) + value, 1, nbytes)

    def copy(self, destination: int, source: int, nbytes: int) -> None:
        self._append("zeCommandListAppendMemoryCopy", destination, source, nbytes)

    def _append(self, name: str, *arguments: int) -> None:
        with self._launch_lock:
            self.driver(name, self.stream, *arguments, None, 0, None)  # the list's order is all it needs: no events

    def synchronize_stream(self) -> None:
        self.driver("zeCommandListHostSynchronize", self.stream, FOR_EVER)

    def _allocate(self, nbytes: int) -> int:
        return self._get("zeMemAllocDevice", self.context, _described(DEVICE_MEMORY), nbytes, 0, self._device, RESULT)

    def _free(self, pointer: int) -> None:
        self.driver("zeMemFree", self.context, pointer)

    def empty_cache(self) -> None:
        self.synchronize()


def _described(kind: int, *numbers: int) -> object:
    return ctypes.byref(_Description(kind, None, (c_uint32 * 5)(*numbers)))
