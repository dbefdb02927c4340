"""Launches and allocations of a host of the array generation."""

from __future__ import annotations

from functools import wraps

from .._native import _fast
from . import _ablation
from ._arguments import Argument, Size
from ._attributes import attributes_of, items_of
from ._holds import buffers_of
from ._pointer_buffers import POINTER, ours
from ._room import with_room
from ._within import Within

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from .._native._fast import Reservation
    from ._pointer_buffers import Thread
    from ._protocol import HostDevice

DEVICE_CLASS = ("_device_class", "_data_oriented")
"""How a host marks classes whose objects bring the arrays in their attributes into a launch; objects in the attributes of others need one of these marks."""


_WHERE = ("backend", "self", "device")
"""Parameters of functions that allocate, which may say on which device."""


def launcher(original: Callable[..., Any], array: Any, textures: tuple[type, ...], pin: Callable[[Any], object]) -> _fast.HostLaunch:
    """A launch: all its arrays are resident and stay so, before the host reads any address (to compare spans, to bind).

    `pin` is called with the host's buffer behind a texture."""
    with_templates, with_textures, with_images = (_ablation.wanted(kind) for kind in ("template", "texture", "image"))

    def expand(argument: Any) -> Sequence[Any] | None:
        if isinstance(argument, textures):
            arrays = [value for value in attributes_of(argument) or () if isinstance(value, array)]
            if with_images:
                for one in arrays:
                    pin(one._buffer)
            return arrays if with_textures else ()
        items = items_of(argument)
        if items is not None:
            return items
        attributes = attributes_of(argument)
        if attributes is None:
            return None
        return held_by(argument, attributes, array, textures) if with_templates else ()

    return _fast.HostLaunch(original, array=array, storage=POINTER, expand=expand)


def held_by(thing: Any, attributes: Iterable[Any], array: Any, textures: tuple[type, ...]) -> list[Any]:
    """The arrays and textures that an object holds, by itself and through what its attributes hold: lists, tuples and dicts, and objects of device
    classes (which may hold one another)."""
    found: list[Any] = []
    seen, waiting = {id(thing)}, [attributes]
    while waiting:
        for value in waiting.pop():
            if isinstance(value, (array, *textures)):
                found.append(value)
                continue
            within: Iterable[Any] | None = items_of(value)
            if within is None and any(getattr(type(value), mark, False) for mark in DEVICE_CLASS):
                within = attributes_of(value)
            if within is not None and id(value) not in seen:
                seen.add(id(value))
                waiting.append(within)
    return found


def allocator(
    original: Callable[..., Any],
    thread: Thread,
    current_backend: Callable[[], Any],
    device_of: Callable[[Any], HostDevice],
    host_error: type[BaseException],
    counting: Mapping[str, Callable[..., Any]],
) -> Callable[..., Any]:
    """`_allocate`: room within the budget first; where the host's own tries fail, spill and let it try again while there is progress.

    `counting` has what stands in its place for backends, by kind, whose memory is only counted."""
    backend_in, size = Argument(original, "backend"), Size(original)

    def is_full(error: BaseException) -> bool:
        return isinstance(error, host_error)

    @wraps(original)
    def _allocate(*args: Any, **named: Any) -> Any:
        backend = backend_in.of(args, named)
        if backend is None:
            backend = current_backend()
        counted = counting.get(backend.name)
        if counted is not None:
            return counted(*args, **named)
        nbytes = size.of(args, named)
        if nbytes <= 0 or has_room_of_another(thread, nbytes):
            return original(*args, **named)
        return with_room(lambda: original(*args, **named), nbytes, device_of(backend).name, is_full, thread)

    return _allocate


def has_room_of_another(thread: Thread, nbytes: int) -> bool:
    """Whether a function that allocates beside `_allocate` has asked for the room, and hands it on. It does so for one allocation, the first of its own:
    a finalizer that allocates in between asks for itself, be it for as many bytes."""
    reservation = None if thread.handed_on is None else thread.handed_on.here()
    if reservation is None:
        return False
    thread.handed_on = None
    return reservation.nbytes == nbytes


def allocator_beside(
    original: Callable[..., Any], thread: Thread, device_of: Callable[[Mapping[str, Any]], str], host_error: type[BaseException]
) -> Callable[..., Any]:
    """A function that allocates by other means than `_allocate`, or by that: room first, and again after spilling.

    `device_of` gets those of a call's arguments that may say on which device (`_WHERE`), and tells that one's name."""
    size = Size(original)
    where = {name: Argument(original, name) for name in _WHERE}

    def is_full(error: BaseException) -> bool:
        return isinstance(error, host_error)

    @wraps(original)
    def allocate(*args: Any, **named: Any) -> Any:
        def attempt() -> Any:
            outer = thread.handed_on
            reservation: Reservation | None = thread.reservation
            try:
                thread.handed_on = None if reservation is None else Within(reservation)
                return original(*args, **named)
            finally:
                thread.handed_on = outer

        return with_room(attempt, size.of(args, named), device_of({name: one.of(args, named) for name, one in where.items()}), is_full, thread)

    return allocate


def uploader(original: Callable[..., Any]) -> Callable[..., Any]:
    """A texture image's method that copies an array (or the buffer of one) into the image, on the device."""

    @wraps(original)
    def upload(image: Any, *args: Any, **named: Any) -> Any:
        given = (*args, *named.values())
        held = [*buffers_of(given, ours), *(mine for one in given if POINTER in getattr(one, "__dict__", ()) and (mine := ours(one)) is not None)]
        return _fast.during_launch(held, original, image, *args, **named)

    return upload
