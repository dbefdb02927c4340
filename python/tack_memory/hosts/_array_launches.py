"""Launches and allocations of a host of the array generation."""

from __future__ import annotations

from functools import wraps
from inspect import signature
from types import MemberDescriptorType

from .._native import _fast
from . import _ablation
from ._holds import buffers_of
from ._pointer_buffers import POINTER, ours
from ._room import bytes_of, with_room

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from inspect import Signature
    from typing import Any

    from ._pointer_buffers import Thread
    from ._protocol import HostDevice

DEVICE_CLASS = ("_device_class", "_data_oriented")
"""How a host marks classes whose objects bring the arrays in their attributes into a launch; objects in the attributes of others need one of these marks."""


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
        if isinstance(argument, (list, tuple)):
            return argument
        if isinstance(argument, dict):
            return list(argument.values())
        attributes = attributes_of(argument)
        if attributes is None:
            return None
        return held_by(argument, attributes, array, textures) if with_templates else ()

    return _fast.HostLaunch(original, array=array, storage=POINTER, expand=expand)


def attributes_of(thing: Any) -> Iterable[Any] | None:
    """The values of an object's attributes; None: objects of its type never have any."""
    attributes = getattr(thing, "__dict__", None)
    members = [member for base in type(thing).__mro__ for member in _slots(base)]
    if members:
        return [*_in_slots(thing, members), *(attributes or {}).values()]
    return None if attributes is None else list(attributes.values())  # at once: another thread may set an attribute meanwhile


def _slots(cls: type) -> list[MemberDescriptorType]:
    """What reads a class's own slots, whatever their names have become (`__private` is `_Class__private`)."""
    return [one for one in list(vars(cls).values()) if type(one) is MemberDescriptorType] if "__slots__" in vars(cls) else []


def _in_slots(thing: Any, members: Iterable[MemberDescriptorType]) -> Iterator[Any]:
    for member in members:
        try:
            yield member.__get__(thing)
        except AttributeError:  # not set
            pass


def held_by(thing: Any, attributes: Iterable[Any], array: Any, textures: tuple[type, ...]) -> list[Any]:
    """The arrays and textures that an object holds, by itself and through objects of device classes in its attributes (which may hold one another)."""
    found: list[Any] = []
    seen, waiting = {id(thing)}, [attributes]
    while waiting:
        for value in waiting.pop():
            if isinstance(value, (array, *textures)):
                found.append(value)
            elif any(getattr(type(value), mark, False) for mark in DEVICE_CLASS) and id(value) not in seen:
                seen.add(id(value))
                waiting.append(attributes_of(value) or ())
    return found


def _arguments(parameters: Signature, args: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """A call's arguments by name, with the defaults of those that it leaves out."""
    bound = parameters.bind(*args, **named)
    bound.apply_defaults()
    return bound.arguments


def bytes_in(arguments: Mapping[str, Any]) -> int:
    """The size of what a call with these arguments allocates; 0: they do not say."""
    dtype = arguments.get("dtype")
    return bytes_of("f4" if dtype is None else dtype, arguments["shape"]) if "shape" in arguments else 0


def allocator(
    original: Callable[..., Any],
    thread: Thread,
    device_of: Callable[[Any], HostDevice],
    host_error: type[BaseException],
    counting: Mapping[str, Callable[..., Any]],
) -> Callable[..., Any]:
    """`_allocate`: room within the budget first; where the host's own tries fail, spill and let it try again while there is progress.

    `counting` has what stands in its place for backends, by kind, whose memory is only counted."""
    parameters = signature(original)

    def is_full(error: BaseException) -> bool:
        return isinstance(error, host_error)

    @wraps(original)
    def _allocate(*args: Any, **named: Any) -> Any:
        bound = _arguments(parameters, args, named)
        counted = counting.get(bound["backend"].name)
        if counted is not None:
            return counted(*args, **named)
        nbytes = bytes_in(bound)
        ready = thread.reservation
        if nbytes <= 0 or (ready is not None and ready.nbytes == nbytes):  # a function that allocates beside this one has asked for the room
            return original(*args, **named)
        return with_room(lambda: original(*args, **named), nbytes, device_of(bound["backend"]).name, is_full, thread)

    return _allocate


def allocator_beside(
    original: Callable[..., Any], thread: Thread, device_of: Callable[[Mapping[str, Any]], str], host_error: type[BaseException]
) -> Callable[..., Any]:
    """A function that allocates by other means than `_allocate`, or by that: room first, and again after spilling.

    `device_of` gets the call's arguments by name, and tells the device's."""
    parameters = signature(original)

    def is_full(error: BaseException) -> bool:
        return isinstance(error, host_error)

    @wraps(original)
    def allocate(*args: Any, **named: Any) -> Any:
        bound = _arguments(parameters, args, named)
        return with_room(lambda: original(*args, **named), bytes_in(bound), device_of(bound), is_full, thread)

    return allocate


def uploader(original: Callable[..., Any]) -> Callable[..., Any]:
    """A texture image's method that copies an array (or the buffer of one) into the image, on the device."""

    @wraps(original)
    def upload(image: Any, *args: Any, **named: Any) -> Any:
        given = (*args, *named.values())
        held = [*buffers_of(given, ours), *(mine for one in given if POINTER in getattr(one, "__dict__", ()) and (mine := ours(one)) is not None)]
        return _fast.during_launch(held, original, image, *args, **named)

    return upload
