"""Device memory of one array."""

import math
from typing import Any

import numpy as np


class Buffer:
    """One block of device memory. Made in one place, the backend's `create_buffer`; freed when it is dropped."""

    def __init__(self, backend: Any, dtype: np.dtype, shape: tuple[int, ...], foreign: int | None = None) -> None:
        """Allocate cleared memory; or (`foreign`) take an address that belongs to somebody else."""
        self._backend = backend
        self._numpy_dtype = dtype
        self._shape = shape
        self._nbytes = math.prod(shape) * dtype.itemsize
        self._owned = foreign is None
        self._device_ptr = int(foreign) if foreign is not None else backend.allocate(self._nbytes)
        if self._owned:
            self.fill_bytes(0)

    def __del__(self) -> None:
        if getattr(self, "_owned", False) and getattr(self, "_device_ptr", 0):
            self._backend.free(self._device_ptr)

    @property
    def device_ptr(self) -> int:
        """The pointer that launches, native reductions and other libraries are given."""
        return self._device_ptr

    def to_numpy(self) -> np.ndarray:
        """The contents, copied to the host."""
        return self._backend.copy_out(self._device_ptr, self._numpy_dtype, self._shape)

    def read_range(self, start: int, count: int) -> np.ndarray:
        """Elements start to start + count, copied to the host."""
        itemsize = self._numpy_dtype.itemsize
        if start < 0 or count < 0 or (start + count) * itemsize > self._nbytes:
            raise IndexError(f"elements {start} to {start + count} of {self._nbytes // itemsize}")
        return self._backend.copy_out(self._device_ptr + start * itemsize, self._numpy_dtype, (count,))

    def from_numpy(self, values: np.ndarray) -> None:
        """Overwrite the contents with the host's."""
        values = np.ascontiguousarray(values, self._numpy_dtype)
        if values.nbytes != self._nbytes:
            raise ValueError(f"{values.nbytes} bytes for a buffer of {self._nbytes}")
        self._backend.copy_in(self._device_ptr, values)

    def fill_bytes(self, value: int) -> None:
        """Set every byte."""
        if self._nbytes:
            self._backend.fill(self._device_ptr, value, self._nbytes)

    def copy_from(self, other: "Buffer") -> None:
        """Copy another buffer's contents, on the device."""
        if (other._nbytes, other._backend) != (self._nbytes, self._backend):
            raise ValueError("buffers of two sizes, or on two devices")
        if self._nbytes:
            self._backend.copy(self._device_ptr, other._device_ptr, self._nbytes)
