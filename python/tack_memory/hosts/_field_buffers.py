"""The GPU buffers of a host of the field generation: which device they are on, and what is special about them."""

from __future__ import annotations

import re
from functools import wraps

from ._arguments import Size
from ._images import ImagedBuffers
from ._pointer_buffers import OURS, POINTER, address_of
from ._room import with_room

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ._protocol import HostDevice

_FULL = re.compile(r"OUT_OF_(HOST_|DEVICE_)?MEMORY|OutOfMemory|out of memory|0x7000000[23]|0x78000009|\berror: 2\b")
"""How the vendors' bindings say that there is no room: by the name of the code, or by its number."""

_REDUCTION = 2**16  # bytes; more than what a reduction allocates for its result


class TypedPointerSlot:
    """A PointerSlot for classes whose pointer is no number: whoever reads it gets an object of the type that the host puts there."""

    def __init__(self, buffers: GPUBuffers, adopt: Callable[[Any, Any], object]) -> None:
        self._buffers = buffers
        self._adopt = adopt

    def __get__(self, buffer: Any, cls: type | None = None) -> Any:
        if buffer is None:
            return self
        try:
            kept = buffer.__dict__[POINTER]
        except KeyError:
            raise AttributeError(f"this {type(buffer).__name__!r} object has no pointer") from None
        return self._buffers.pointer_for(buffer, kept.device_ptr) if type(kept) in OURS else kept

    def __set__(self, buffer: Any, value: Any) -> None:
        buffer.__dict__[POINTER] = self._adopt(buffer, value)

    def __delete__(self, buffer: Any) -> None:
        del buffer.__dict__[POINTER]


class GPUBuffers(ImagedBuffers):
    """Adoption for the GPU buffer classes of one host."""

    def __init__(self, device_of: Callable[[Any], HostDevice | None], purge: Callable[[int], object]) -> None:
        super().__init__(device_of, purge)
        self._pointer_types: dict[type, Callable[[int], Any]] = {}  # buffer classes whose pointer is no number -> its type

    def address_in(self, buffer: Any, pointer: Any) -> int:
        if pointer is not None and type(pointer) not in OURS and not hasattr(pointer, "__int__"):
            self._pointer_types[type(buffer)] = type(pointer)
        return super().address_in(buffer, pointer)

    def pointer_for(self, buffer: Any, address: int) -> Any:
        """As the host has put it there (Level Zero); CUDA's and HIP's bindings take a number for a pointer, as such a host's own `wrap_ptr` shows."""
        kind = self._pointer_types.get(type(buffer))
        return address if kind is None else kind(address)

    def typed_slot(self) -> TypedPointerSlot:
        """As `slot`, for classes whose pointer is no number."""
        return TypedPointerSlot(self, self._assigned)

    def allocator(self, original: Callable[..., Any], device_of_backend: Callable[[Any], HostDevice]) -> Callable[..., Any]:
        """`allocate_field`: room within the budget first; where the driver has none, spill and let the host try again while there is progress."""
        thread, size = self.thread, Size(original)

        @wraps(original)
        def allocate_field(*args: Any, **named: Any) -> Any:
            backend, nbytes = args[0], size.of(args, named)
            outer = thread.backend
            try:
                thread.backend = backend
                if nbytes <= 0:
                    return original(*args, **named)
                device = device_of_backend(backend).name
                return with_room(lambda: original(*args, **named), nbytes, device, is_full, thread)
            finally:
                thread.backend = outer

        return allocate_field

    def with_room_for_result(self, original: Callable[..., Any], device_of_backend: Callable[[Any], HostDevice]) -> Callable[..., Any]:
        """A reduction, which allocates its result by itself: where the driver has no room, spill and let the host try again."""
        thread = self.thread

        @wraps(original)
        def reduce_field(backend: Any, *args: Any, **named: Any) -> Any:
            outer = thread.backend
            try:
                thread.backend = backend
                device = device_of_backend(backend).name
                return with_room(lambda: original(backend, *args, **named), 0, device, is_full, thread, more=_REDUCTION)
            finally:
                thread.backend = outer

        return reduce_field

    def export_initializer(self, original: Callable[..., None]) -> Callable[..., None]:
        """Memory that the host maps and shares by itself."""

        @wraps(original)
        def __init__(buffer: Any, *args: Any, **named: Any) -> None:
            original(buffer, *args, **named)
            self.count_exportable(buffer)

        return __init__

    def count_exportable(self, buffer: Any) -> None:
        """Memory that the host shares is counted, and never moved: whoever it is shared with knows its place."""
        device = self._device_of(buffer)
        if device is not None:
            nbytes, address = getattr(buffer, "_alloc_size", buffer._nbytes), address_of(buffer.__dict__[POINTER])
            self.counted.count(buffer, address, nbytes, device.name, "exportable memory")


def is_full(error: BaseException) -> bool:
    """Whether an error of the host says that the device has no room."""
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _FULL.search(str(error)) is not None)
