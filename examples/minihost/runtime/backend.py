"""Memory and launches of one device: what all GPU backends have in common."""

import abc
import collections
import ctypes
import sys
import threading
from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np

from .buffer import Buffer
from .driver import Driver, DriverError

_DEFERRED_LIMIT = 64  # frees that may wait for the device before an allocation makes them happen
_HOST_MEMORY = 1  # kDLCPU of dlpack.h


class GPUBackend(abc.ABC):
    """One device with one stream, on which everything is in order. Any thread may come here."""

    name: str  # of the vendor, as in "cuda:0"
    buffer_class: type[Buffer]
    dlpack_type: int  # DLDeviceType of dlpack.h
    libraries: tuple[str, ...]  # the system's names of the driver library, the best first
    functions: Mapping[str, tuple[type, ...]]  # what is called, and the parameters; pointers and handles of all kinds are c_void_p
    full: Container[int]  # codes that say: there is no room for this allocation

    context = 0  # the driver's handle, where it has contexts
    stream: int  # the driver's handle
    has_pools = False  # memory is allocated and freed in the stream's order

    def __init__(self, driver: Driver, ordinal: int) -> None:
        self.driver = driver
        self.ordinal = ordinal
        self.host_readable = driver.host_readable
        self._deferred: collections.deque[int] = collections.deque()  # without pools: dropped, not yet freed
        self._freeing = threading.Lock()  # who takes from it; destructors only append
        self._open()

    @abc.abstractmethod
    def _open(self) -> None:
        """Make context and stream."""

    @abc.abstractmethod
    def _enter(self) -> None:
        """Make the device current in this thread, where the driver has a current device."""

    def _call(self, name: str, *arguments: object) -> None:
        self._enter()
        self.driver(name, *arguments)

    def _get(self, name: str, *arguments: object) -> int:
        self._enter()
        return self.driver.get(name, *arguments)

    @abc.abstractmethod
    def fill(self, pointer: int, value: int, nbytes: int) -> None:
        """Set each byte. Queued."""

    @abc.abstractmethod
    def copy(self, destination: int, source: int, nbytes: int) -> None:
        """Copy within the device, or between it and the host. Queued."""

    @abc.abstractmethod
    def synchronize_stream(self) -> None:
        """Wait for what is queued."""

    @abc.abstractmethod
    def _allocate(self, nbytes: int) -> int: ...

    @abc.abstractmethod
    def _free(self, pointer: int) -> None:
        """With pools in the stream's order; without at once, and nothing uses the memory any more."""

    @abc.abstractmethod
    def empty_cache(self) -> None:
        """Wait for the device, and give back what a pool keeps."""

    def create_buffer(self, dtype: np.dtype, shape: tuple[int, ...]) -> Buffer:
        return self.buffer_class(self, dtype, shape)

    def wrap_ptr(self, pointer: int, dtype: np.dtype, shape: tuple[int, ...]) -> Buffer:
        """A buffer over memory that somebody else owns."""
        return self.buffer_class(self, dtype, shape, pointer)

    def allocate(self, nbytes: int) -> int:
        if len(self._deferred) >= _DEFERRED_LIMIT:
            self.synchronize()
        return self._allocate(nbytes) if nbytes else 0

    def free(self, pointer: int) -> None:
        """Give memory back, after the work queued before. Called by destructors: it does not wait."""
        if not self.has_pools:
            self._deferred.append(pointer)
            return
        try:
            self._free(pointer)
        except DriverError:
            if not sys.is_finalizing():  # at exit the driver may be gone before the last buffers are, and their memory with it
                raise

    def synchronize(self) -> None:
        """Wait for the device; what was dropped before is free then."""
        with self._freeing:
            dropped = len(self._deferred)
            self.synchronize_stream()
            for _ in range(dropped):
                self._free(self._deferred.popleft())

    def copy_in(self, pointer: int, values: np.ndarray) -> None:
        if values.nbytes:
            self.copy(pointer, values.ctypes.data, values.nbytes)
            self.synchronize_stream()  # from here on the host may change the values

    def copy_out(self, pointer: int, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        values = np.empty(shape, dtype)
        if values.nbytes:
            self.copy(values.ctypes.data, pointer, values.nbytes)
            self.synchronize_stream()
        return values

    def execute(self, variant: Any, args: Sequence[Any]) -> None:
        """Launch a kernel's variant with these arguments. Launches of one variant take turns."""
        with variant.dispatch_lock:
            pointers = {i: args[i]._buffer.device_ptr for i in variant.arrays}
            self._check_disjoint(variant, args, pointers)
            bound = list(args)
            for i, pointer in pointers.items():
                bound[i] = self._values(pointer, args[i])
                bound[i].flags.writeable = i in variant.writes
            variant.function(*bound)
            if not self.host_readable:
                for i in variant.writes:
                    self.copy_in(pointers[i], bound[i])

    def _check_disjoint(self, variant: Any, args: Sequence[Any], pointers: dict[int, int]) -> None:
        """A kernel's threads run in any order: memory that it writes must not be another argument's."""
        spans = sorted((pointer, pointer + args[i].nbytes, i in variant.writes) for i, pointer in pointers.items() if args[i].nbytes)
        for (_, end, written), (start, _, other_written) in zip(spans, spans[1:], strict=False):
            if start < end and (written or other_written):
                raise ValueError(f"{variant.name}: an array that it writes shares memory with another argument")

    def reduce(self, operation: str, source: Any) -> Any:
        """A native reduction over a whole array: reads the input's pointer, then the output's, and launches."""
        from ..lang import array as lang

        # Sums have 64 bits, so that counting flags of one byte does not overflow.
        dtype = source.dtype if operation != "sum" else np.dtype(np.int64 if source.dtype.kind in "biu" else np.float64)
        result = lang._allocate(self, dtype, (1,))
        input_pointer, output_pointer = source._buffer.device_ptr, result.device_ptr
        values = self._values(input_pointer, source)
        found = values.sum(dtype=dtype) if operation == "sum" else getattr(values, operation)()
        self.copy_in(output_pointer, np.array([found], dtype))
        return result.read_range(0, 1)[0]

    def _values(self, pointer: int, a: Any) -> np.ndarray:
        """What kernels run on: the array's memory itself where the host can read and write it, else a copy."""
        if not self.host_readable or not a.nbytes:
            return self.copy_out(pointer, a.dtype, a.shape)
        self.synchronize_stream()  # kernels run here and now: what is queued before comes first
        return np.frombuffer((ctypes.c_char * a.nbytes).from_address(pointer), a.dtype).reshape(a.shape)

    def dlpack_device(self) -> tuple[int, int]:
        """Type and number of the device in DLPack's terms: memory that the host can read is host memory."""
        return (_HOST_MEMORY, 0) if self.host_readable else (self.dlpack_type, self.ordinal)
