"""Launching kernels: what all GPU backends have in common."""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

_REDUCTIONS: dict[str, Callable[..., Any]] = {"sum": np.sum, "min": np.min, "max": np.max}


class GPUBackend:
    """One device with one stream. Subclasses bring memory and copies.

    Everything is in order on the stream. Launches of one variant take turns under its `dispatch_lock`.
    """

    name: str
    ordinal: int
    host_readable: bool

    def create_buffer(self, dtype: np.dtype, shape: tuple[int, ...]) -> Any:
        raise NotImplementedError

    def wrap_ptr(self, pointer: int, dtype: np.dtype, shape: tuple[int, ...]) -> Any:
        raise NotImplementedError

    def synchronize(self) -> None:
        raise NotImplementedError

    def empty_cache(self) -> None:
        raise NotImplementedError

    def copy_in(self, pointer: int, values: np.ndarray) -> None:
        raise NotImplementedError

    def copy_out(self, values: np.ndarray, pointer: int) -> None:
        raise NotImplementedError

    def execute(self, variant: Any, args: Sequence[Any]) -> None:
        """Launch a kernel's variant with these arguments."""
        self._check_disjoint(variant, args)
        with variant.dispatch_lock:
            if self.host_readable:
                self._run_in_place(variant, args)
            else:
                self._run_on_copies(variant, args)

    def _check_disjoint(self, variant: Any, args: Sequence[Any]) -> None:
        """A kernel's threads run in any order: memory that it writes must not be another argument's."""
        spans = [(a._buffer.address, a.nbytes, i in variant.writes) for i, a in enumerate(args) if i in variant.arrays and a.nbytes]
        spans.sort()
        for (start, nbytes, written), (other_start, _, other_written) in zip(spans, spans[1:], strict=False):
            if other_start < start + nbytes and (written or other_written):
                raise ValueError(f"{variant.name}: an array that it writes shares memory with another argument")

    def _run_in_place(self, variant: Any, args: Sequence[Any]) -> None:
        bound = list(args)
        for i in variant.arrays:
            bound[i] = device_view(args[i]._buffer.device_ptr, args[i].dtype, args[i].shape, writeable=i in variant.writes)
        self.synchronize_stream()  # the function runs here and now: what is queued before it comes first
        variant.function(*bound)

    def _run_on_copies(self, variant: Any, args: Sequence[Any]) -> None:
        bound = list(args)
        pointers = {i: args[i]._buffer.device_ptr for i in variant.arrays}
        for i, pointer in pointers.items():
            bound[i] = np.empty(args[i].shape, args[i].dtype)
            self.copy_out(bound[i], pointer)
            bound[i].flags.writeable = i in variant.writes
        variant.function(*bound)
        for i in variant.writes:
            self.copy_in(pointers[i], bound[i])

    def reduce(self, operation: str, source: Any) -> Any:
        """A native reduction over a whole array: reads the input's pointer, then the output's, and launches."""
        from ..lang import array as lang_array

        result = lang_array._allocate(self, source.dtype if operation != "sum" else sum_dtype(source.dtype), (1,))
        input_pointer = source._buffer.device_ptr
        output_pointer = result.device_ptr
        if self.host_readable:
            self.synchronize_stream()
            values = device_view(input_pointer, source.dtype, source.shape, writeable=False)
            device_view(output_pointer, result.dtype, (1,), writeable=True)[0] = _REDUCTIONS[operation](values, initial=_initial(operation, source))
        else:
            values = np.empty(source.shape, source.dtype)
            self.copy_out(values, input_pointer)
            self.copy_in(output_pointer, np.array([_REDUCTIONS[operation](values, initial=_initial(operation, source))], result.dtype))
        return result.read_range(0, 1)[0]

    def synchronize_stream(self) -> None:
        raise NotImplementedError


def sum_dtype(dtype: np.dtype) -> np.dtype:
    """What a sum is made in: 64 bits, so that counting flags of one byte does not overflow."""
    return np.dtype(np.int64) if dtype.kind in "biu" else np.dtype(np.float64)


def _initial(operation: str, source: Any) -> Any:
    """What the reduction of no elements gives: 0 for a sum; least and greatest have none."""
    if operation == "sum":
        return 0
    if not source.size:
        raise ValueError(f"reduce_{operation} of an array without elements")
    return np._NoValue


def device_view(pointer: int, dtype: np.dtype, shape: tuple[int, ...], *, writeable: bool) -> np.ndarray:
    """Device memory as a NumPy array, where the host can read its addresses."""
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if not nbytes:
        return np.empty(shape, dtype)
    values = np.frombuffer((ctypes.c_char * nbytes).from_address(pointer), dtype).reshape(shape)
    values.flags.writeable = writeable
    return values
