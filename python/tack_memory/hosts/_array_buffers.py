"""The buffers of a host of the array generation: when their memory becomes ours, how the host reads and writes them, how they end.

A host's code that runs while a buffer is being made uses the pointer without any hold. So the pointer stays a plain number until the
buffer's `__init__` is through, and only then is the memory adopted: before that it is invisible to spilling, and on an error it is
still the host's to free.
"""

from __future__ import annotations

import threading
import weakref
from functools import wraps

from .._native import _fast
from ._array_seams import POINTER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .._native._fast import Buffer, BufferView, Reservation
    from ._protocol import HostDevice

enter = _fast.enter_launch
OURS = frozenset((_fast.Buffer, _fast.BufferView))
"""The types of what stands in a pointer's place where the memory is ours."""


def ours(buffer: Any) -> Buffer | BufferView | None:
    """Our Buffer (or view of one) in a host's buffer; None: no memory of ours."""
    kept = buffer.__dict__.get(POINTER)
    return kept if type(kept) in OURS else None


class Thread(threading.local):
    """What one thread is doing in the host now."""

    def __init__(self) -> None:
        self.building: list[object] = []  # buffers whose __init__ runs
        self.wrapping = 0  # calls of wrap_ptr that run
        self.reservation: Reservation | None = None  # room for the buffer that _allocate is making
        self.holding: list[Buffer] | None = None  # where a reduction collects what it allocates, to hold it until its end


class Buffers:
    """Adoption and host access for the buffer classes of one host."""

    def __init__(self, device_of: Callable[[Any], HostDevice]) -> None:
        self._device_of = device_of  # of a backend
        self.thread = Thread()
        self._adopted: dict[int, weakref.ref[Any]] = {}  # id of a host's buffer with memory of ours; its end takes it out

    def adopted(self) -> list[Any]:
        """The host's buffers that have memory of ours."""
        alive = [reference() for reference in list(self._adopted.values())]
        return [buffer for buffer in alive if buffer is not None]

    def slot(self) -> _fast.PointerSlot:
        """The descriptor that takes the pointer's place on a buffer class."""
        return _fast.PointerSlot(POINTER, self._assigned)

    def _assigned(self, buffer: Any, value: Any) -> Any:
        """A pointer is put into a buffer: what to keep in its place."""
        thread = self.thread
        if not value or thread.wrapping or any(one is buffer for one in thread.building):
            return value
        return self._take(buffer, value) or value

    def adopt(self, buffer: Any, *, movable: bool = True, reason: str | None = None) -> None:
        """Take over the memory of a buffer that is fully built. On an error it stays the host's."""
        pointer = buffer.__dict__.get(POINTER)
        if type(pointer) is int and pointer:
            mine = self._take(buffer, pointer, movable=movable, reason=reason)
            if mine is not None:
                buffer.__dict__[POINTER] = mine

    def give_back(self, buffer: Any, pointer: int) -> None:
        """The opposite of adopt: the host's buffer has its own pointer again."""
        buffer.__dict__[POINTER] = pointer
        self._adopted.pop(id(buffer), None)

    def _take(self, buffer: Any, pointer: int, *, movable: bool = True, reason: str | None = None) -> Buffer | None:
        if not buffer._nbytes or not getattr(buffer, "_owned", True):
            return None
        thread = self.thread
        reservation = thread.reservation
        if reservation is not None and reservation.nbytes == buffer._nbytes:
            thread.reservation = None
        else:
            reservation = None  # somebody else's: a finalizer that allocates may run inside an allocation
        device = self._device_of(buffer._backend)
        mine = _fast.adopt(
            pointer, buffer._nbytes, device.name,
            how=device.how, stream=device.stream, reserved=reservation, movable=movable, reason=reason,
        )  # fmt: skip
        self._adopted[id(buffer)] = weakref.ref(buffer)
        if thread.holding is not None:
            try:
                enter((mine,))
            except BaseException:
                # Another thread may have moved the memory already, and the host's number be stale: it stays ours, and ends with the buffer.
                buffer.__dict__[POINTER] = mine
                raise
            thread.holding.append(mine)
        return mine

    def wrap(self, buffer: Any) -> None:
        """A buffer over memory that it does not own: inside memory of ours it becomes a view of that, which follows it."""
        pointer = buffer.__dict__.get(POINTER)
        if type(pointer) is int and pointer and buffer._nbytes:
            view = _fast.wrap(pointer, buffer._nbytes, self._device_of(buffer._backend).name, None)
            if view.base is not None:
                buffer.__dict__[POINTER] = view
                self._adopted[id(buffer)] = weakref.ref(buffer)

    def initializer(self, original: Callable[..., None]) -> Callable[..., None]:
        @wraps(original)
        def __init__(buffer: Any, *args: Any, **named: Any) -> None:
            building = self.thread.building
            building.append(buffer)
            try:
                original(buffer, *args, **named)
            finally:
                building.pop()
            if not any(one is buffer for one in building):  # else the __init__ of a subclass still runs
                self.adopt(buffer)

        return __init__

    def finalizer(self, original: Callable[[Any], None]) -> Callable[[Any], None]:
        @wraps(original)
        def __del__(buffer: Any) -> None:
            if type(buffer.__dict__.get(POINTER)) in OURS:
                del buffer.__dict__[POINTER]  # frees the memory, where no view or export of it is left
                self._adopted.pop(id(buffer), None)
            else:
                original(buffer)

        return __del__

    def wrapper_of_foreign(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def wrap_ptr(*args: Any, **named: Any) -> Any:
            thread = self.thread
            thread.wrapping += 1
            try:
                buffer = original(*args, **named)
            finally:
                thread.wrapping -= 1
            self.wrap(buffer)
            return buffer

        return wrap_ptr

    # Host access. Whatever is unusual (wrong sizes, memory that is not ours) is left to the host's own method: it raises what its users
    # expect, and reads a valid pointer through the slot if it goes on.

    @staticmethod
    def reader(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @wraps(original)
        def to_numpy(buffer: Any) -> Any:
            mine = ours(buffer)
            if mine is None:
                return original(buffer)
            return _read(mine, buffer._shape, buffer._numpy_dtype, 0)

        return to_numpy

    @staticmethod
    def range_reader(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def read_range(buffer: Any, start: int, count: int) -> Any:
            mine = ours(buffer)
            itemsize = buffer._numpy_dtype.itemsize
            if mine is None or start < 0 or count < 0 or (start + count) * itemsize > buffer._nbytes:
                return original(buffer, start, count)
            return _read(mine, (count,), buffer._numpy_dtype, start * itemsize)

        return read_range

    @staticmethod
    def writer(original: Callable[..., None]) -> Callable[..., None]:
        import numpy

        @wraps(original)
        def from_numpy(buffer: Any, values: Any) -> None:
            mine = ours(buffer)
            if mine is not None:
                values = numpy.ascontiguousarray(values, buffer._numpy_dtype)
                if values.nbytes == buffer._nbytes:
                    mine.copy_from_host(values.reshape(-1).view(numpy.uint8))
                    return
            original(buffer, values)

        return from_numpy

    @staticmethod
    def filler(original: Callable[..., None]) -> Callable[..., None]:
        @wraps(original)
        def fill_bytes(buffer: Any, value: int) -> None:
            mine = ours(buffer)
            if mine is None:
                original(buffer, value)
            else:
                mine.fill(value)

        return fill_bytes


def _read(mine: Buffer | BufferView, shape: tuple[int, ...], dtype: Any, offset: int) -> Any:
    import numpy

    values = numpy.empty(shape, dtype)
    mine.copy_to_host(values.reshape(-1).view(numpy.uint8), offset, values.nbytes)
    return values
