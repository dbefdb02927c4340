"""Buffers that keep their device pointer in an attribute: when their memory becomes ours, how the host reads and writes them, how they end.

A PointerSlot takes the attribute's place on the class, and the instance's `__dict__["_device_ptr"]` holds our Buffer (or BufferView) in place of the
pointer. A pointer there means: not ours (yet). A host's code that runs while a buffer is being made uses the pointer without any hold. So it stays what
it is until the buffer's `__init__` is through, and only then is the memory adopted: before that it is invisible to spilling, and on an error it is still
the host's to free.
"""

from __future__ import annotations

import gc
import threading
import weakref
from functools import wraps

from .._logging import warning
from .._native import _fast
from . import _ablation
from ._counted import Counted, stop
from ._in_use import NEW_CONTEXT, UNINSTALL, in_use
from ._room import with_room
from ._within import Within, is_within

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from .._native._fast import Buffer, BufferView, Reservation
    from ._protocol import HostDevice

POINTER = "_device_ptr"
"""The attribute in which a buffer keeps its pointer."""

OURS = frozenset((_fast.Buffer, _fast.BufferView))
"""The types of what stands in a pointer's place where the memory is ours."""

EARLIER_CONTEXT = "in an earlier context of the host's"
"""Why memory is only counted that lies in a context which the host has made anew since."""

launch = _fast.launch


def ours(buffer: Any) -> Buffer | BufferView | None:
    """Our Buffer (or view of one) in a host's buffer; None: no memory of ours."""
    kept = buffer.__dict__.get(POINTER)
    return kept if type(kept) in OURS else None


def address_of(pointer: Any) -> int:
    """The address in what a vendor's binding calls a pointer: a number, an object that becomes one, or one that has it as its value (of ctypes); 0 for none."""
    if pointer is None or type(pointer) in OURS:
        return 0
    return int(pointer) if hasattr(pointer, "__int__") else int(pointer.value or 0)


class Thread(threading.local):
    """What one thread is doing in the host now."""

    def __init__(self) -> None:
        self.building: list[object] = []  # buffers whose __init__ runs
        self.wrapping: Within[bool] | None = None  # a call of wrap_ptr that runs
        self.reservation: Reservation | None = None  # room for the buffer that is being made
        self.handed_on: Within[Reservation] | None = None  # the same, for the next allocation of the host's: room for that was asked for already
        self.holding: list[_fast.launch] | None = None  # launches that a reduction has open on what it allocates, until its end
        self.unmovable: Within[str] | None = None  # why what is made now must stay where it is
        self.backend: Any = None  # of the allocation or reduction that runs, for buffers that do not know their own


class PointerBuffers:
    """Adoption and host access for the buffer classes of one host."""

    def __init__(self, device_of: Callable[[Any], HostDevice | None]) -> None:
        self._device_of = device_of  # of a buffer; None: nobody can tell
        self.thread = Thread()
        self.counted = Counted(lambda buffer: self.address_in(buffer, buffer.__dict__.get(POINTER)))  # what stays the host's
        self._adopted: dict[int, weakref.ref[Any]] = {}  # id of a host's buffer that may have memory of ours; its end takes it out

    def address_in(self, buffer: Any, pointer: Any) -> int:
        """The address in a pointer that the host has put into a buffer."""
        return address_of(pointer)

    def pointer_for(self, buffer: Any, address: int) -> Any:
        """An address as the buffer's class keeps it."""
        return address

    def adopted(self) -> list[Any]:
        """The host's buffers that have memory of ours."""
        alive = [reference() for reference in list(self._adopted.values())]
        return [buffer for buffer in alive if buffer is not None and ours(buffer) is not None]

    def slot(self) -> _fast.PointerSlot:
        """The descriptor that takes the pointer's place on a buffer class."""
        return _fast.PointerSlot(POINTER, self._assigned)

    def _assigned(self, buffer: Any, value: Any) -> Any:
        """A pointer is put into a buffer: what to keep in its place."""
        thread = self.thread
        if any(one is buffer for one in thread.building) or (thread.wrapping is not None and thread.wrapping.here()):
            return value
        address = self.address_in(buffer, value)
        mine = ours(buffer)
        if mine is not None and mine.state == "resident" and mine.device_ptr == address:
            return mine  # what it has already, put back by whoever saves and restores attributes
        return (address and self._take(buffer, address)) or value

    def adopt(self, buffer: Any, *, movable: bool = True, reason: str | None = None, label: str | None = None) -> None:
        """Take over the memory of a buffer that is fully built. On an error it stays the host's, or is ours and ends with the buffer."""
        address = self.address_in(buffer, buffer.__dict__.get(POINTER))
        if address:
            self._take(buffer, address, movable=movable, reason=reason, label=label)

    def give_back(self, buffer: Any, mine: Buffer) -> None:
        """The opposite of adopt: the host's buffer has its own pointer again."""
        self.end_view(buffer, _fast.disown(mine, into=(buffer.__dict__, POINTER)))

    def end_view(self, buffer: Any, address: int) -> None:
        """The same for a view: its base has been given back, or is nobody's array."""
        buffer.__dict__[POINTER] = self.pointer_for(buffer, address)
        self._adopted.pop(id(buffer), None)

    def _take(self, buffer: Any, address: int, *, movable: bool = True, reason: str | None = None, label: str | None = None) -> Buffer | None:
        if not buffer._nbytes or not getattr(buffer, "_owned", True):
            return None
        device = self._device_of(buffer)
        if device is None:
            return None
        if device.how == "host":
            self.counted.count(buffer, address, buffer._nbytes, device.name, EARLIER_CONTEXT, self._reservation_for(buffer._nbytes))
            return None
        thread = self.thread
        fixed = None if thread.unmovable is None else thread.unmovable.here()
        if fixed is not None:
            movable, reason = False, fixed
        reservation = self._reservation_for(buffer._nbytes)
        # Ctrl-C may come between any two lines. So the buffer is listed before its memory is ours, and ours stands in it as soon as it is.
        self._adopted[id(buffer)] = weakref.ref(buffer)
        try:
            mine = _fast.adopt(
                address, buffer._nbytes, device.name,
                how=device.how, stream=device.stream or None, reserved=reservation, movable=movable, reason=reason, label=label,
                into=(buffer.__dict__, POINTER),
            )  # fmt: skip
        except BaseException:
            if ours(buffer) is None:
                self._adopted.pop(id(buffer), None)
            raise
        if thread.holding is not None:
            # Where this fails, another thread may have moved the memory already, and the host's number be stale: it stays ours, and ends with the buffer.
            held = launch(mine)
            thread.holding.append(held)
            held.__enter__()
        return mine

    def _reservation_for(self, nbytes: int) -> Reservation | None:
        """The room that was reserved for the buffer that is being made; none where it is another's: of a call in which a finalizer makes buffers."""
        reservation = self.thread.reservation
        if reservation is None or reservation.nbytes != nbytes or not is_within(with_room.__code__):
            return None
        self.thread.reservation = None
        return reservation

    def _follow(self, buffer: Any) -> None:
        """A buffer over memory that it does not own: inside memory of ours it becomes a view of that, which follows it."""
        address = self.address_in(buffer, buffer.__dict__.get(POINTER))
        device = self._device_of(buffer) if address and buffer._nbytes else None
        if device is not None:
            view = _fast.wrap(address, buffer._nbytes, device.name, None)
            if view.base is not None:
                self._adopted[id(buffer)] = weakref.ref(buffer)
                buffer.__dict__[POINTER] = view

    def adopt_all(self, buffers: Sequence[Any], unmovable: Callable[[Any], str | None]) -> list[Any]:
        """Take over what the host made before us; `unmovable` says why one must stay where it is. Returns those that are not counted: their range
        overlaps memory that is known already, so it cannot be their own."""
        left = []
        for buffer in buffers:
            reason = unmovable(buffer)
            try:
                self.adopt(buffer, movable=reason is None, reason=reason)
            except ValueError:
                left.append(buffer)
        for buffer in buffers:
            if not getattr(buffer, "_owned", True):
                self._follow(buffer)
        return left

    def give_all_back(self) -> None:
        """Every buffer's memory is the host's again, on the device. All or none."""
        gc.collect()  # garbage need not come back to the device
        self._give_back(self.adopted(), UNINSTALL)
        for buffer in self.adopted():  # what is left are views of buffers that are no host's
            self.end_view(buffer, address_of(buffer._device_ptr))

    def leave_backend(self, backend: Any, device: str) -> None:
        """The host has made its context on this backend's device anew: what lies in the old one is the host's again, and counted where it is."""
        gc.collect()
        left = [buffer for buffer in self.adopted() if getattr(buffer, "_backend", backend) is backend]
        self._give_back(left, NEW_CONTEXT)
        for buffer in left:
            if getattr(buffer, "_owned", True):
                self.counted.count(buffer, address_of(buffer._device_ptr), buffer._nbytes, device, EARLIER_CONTEXT)

    def _give_back(self, buffers: Sequence[Any], wanted: str) -> None:
        """The memory of these is the host's again. All or none: else a BufferError says that what is `wanted` cannot be."""
        done: dict[int, tuple[Any, Buffer, dict[str, Any]]] = {}  # id of our Buffer -> the host's buffer, ours (so that the id stays its own), how to adopt it
        try:
            for buffer in buffers:
                mine = ours(buffer)
                if isinstance(mine, _fast.Buffer):
                    done[id(mine)] = buffer, mine, {"label": mine.label, **_fixed(mine)}
                    try:
                        self.give_back(buffer, mine)
                    except BufferError as error:
                        raise (in_use(wanted, mine) or error) from error
        except BaseException:
            for buffer, _, options in done.values():
                try:
                    self.adopt(buffer, **options)
                except Exception as error:  # it is the host's own now: valid, and not counted. What ended the giving back is what counts
                    warning("%d bytes at %#x are not counted any more: %s", buffer._nbytes, address_of(buffer._device_ptr), error)
            self._follow_bases(done)
            raise
        self._follow_bases(done)

    def _follow_bases(self, done: dict[int, tuple[Any, Buffer, dict[str, Any]]]) -> None:
        """The host's views of buffers that were given back: pointers, too, or views of what is ours again."""
        for buffer in self.adopted():
            view = ours(buffer)
            if isinstance(view, _fast.BufferView) and id(view.base) in done:
                base = done[id(view.base)][0]
                mine = ours(base)
                if mine is None:
                    self.end_view(buffer, address_of(base._device_ptr) + view.offset)
                else:
                    buffer.__dict__[POINTER] = mine.view(view.offset, view.nbytes)

    def initializer(self, original: Callable[..., None]) -> Callable[..., None]:
        if not _ablation.wanted("building"):
            return original

        @wraps(original)
        def __init__(buffer: Any, *args: Any, **named: Any) -> None:
            building = self.thread.building
            depth = len(building)
            try:
                building.append(buffer)  # in the block: Ctrl-C may come as soon as it has returned
                original(buffer, *args, **named)
            finally:
                del building[depth:]
            if not any(one is buffer for one in building):  # else the __init__ of a subclass still runs
                self.adopt(buffer)

        return __init__

    def finalizer(self, original: Callable[[Any], None]) -> Callable[[Any], None]:
        @wraps(original)
        def __del__(buffer: Any) -> None:
            # Memory of ours goes with the buffer's __dict__, and not before: of a reference cycle, another finalizer may run after this one and still
            # use the array.
            stop(buffer)  # what is only counted is not any more, before the address can be somebody else's
            if type(buffer.__dict__.get(POINTER)) not in OURS:
                original(buffer)
            self._adopted.pop(id(buffer), None)

        return __del__

    def wrapper_of_foreign(self, original: Callable[..., Any]) -> Callable[..., Any]:
        wanted = _ablation.wanted("wrap")

        @wraps(original)
        def wrap_ptr(backend: Any, *args: Any, **named: Any) -> Any:
            thread = self.thread
            outer, outer_wrapping = thread.backend, thread.wrapping
            try:
                thread.backend, thread.wrapping = backend, Within(True)
                buffer = original(backend, *args, **named)
                if wanted:
                    self._follow(buffer)
            finally:
                thread.backend, thread.wrapping = outer, outer_wrapping
            return buffer

        return wrap_ptr

    def unmovable(self, original: Callable[..., Any], reason: str) -> Callable[..., Any]:
        """A function that makes buffers which no launch's arguments name: they are counted as all others, and stay where they are."""
        thread = self.thread

        @wraps(original)
        def function(*args: Any, **named: Any) -> Any:
            outer = thread.unmovable
            try:
                thread.unmovable = Within(reason)
                return original(*args, **named)
            finally:
                thread.unmovable = outer

        return function


def _fixed(mine: Buffer) -> dict[str, Any]:
    """What `adopt` was told of a buffer that must not move."""
    for hold in mine.holds:
        kind, _, reason = hold.partition(": ")
        if kind == "unmovable":
            return {"movable": False, "reason": reason or None}
    return {}
