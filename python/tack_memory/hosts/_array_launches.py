"""What holds buffers of a host of the array generation on the device: launches, reductions, copies, exports; and how it allocates."""

from __future__ import annotations

import copy
from functools import wraps
from inspect import signature

from .._control import call_json
from .._devices import resolve
from .._errors import DeviceMemoryError, memory_error
from .._native import _fast
from ._array_buffers import OURS, ours
from ._array_seams import POINTER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from .._native._fast import Buffer, BufferView
    from ._array_buffers import Thread
    from ._protocol import HostDevice

EXPORT = "_tack_memory_export"
"""Attribute of the array that a consumer keeps alive: our Exported, which dies with it."""

enter, leave = _fast.enter_launch, _fast.leave_launch


def buffers_of(arguments: Iterable[Any]) -> list[Buffer | BufferView]:
    """Our buffers behind a launch's arguments; scalars and memory that is not ours have none."""
    found = []
    for argument in arguments:
        buffer = getattr(argument, "_buffer", None)
        if buffer is not None:
            mine = ours(buffer)
            if mine is not None:
                found.append(mine)
    return found


def executor(original: Callable[..., Any], array: Any) -> Callable[..., Any]:
    """A launch: all its arrays are resident and stay so, before the host reads any address (to compare spans, to bind)."""

    @wraps(original)
    def execute(backend: Any, variant: Any, args: Any, *rest: Any, **named: Any) -> Any:
        # As buffers_of, in one expression: this is on the path of every launch.
        held = [mine for a in args if isinstance(a, array) and type(mine := a._buffer.__dict__[POINTER]) in OURS]
        enter(held)
        try:
            return original(backend, variant, args, *rest, **named)
        finally:
            leave(held)

    return execute


def reducer(original: Callable[..., Any], thread: Thread) -> Callable[..., Any]:
    """A native reduction: holds its input, and what it allocates for its output. Restoring one must not spill the other."""

    @wraps(original)
    def reduce(backend: Any, *args: Any, **named: Any) -> Any:
        inputs = buffers_of((*args, *named.values()))
        enter(inputs)
        outer, thread.holding = thread.holding, []
        try:
            return original(backend, *args, **named)
        finally:
            for mine in thread.holding:
                leave((mine,))
            thread.holding = outer
            leave(inputs)

    return reduce


def copier(original: Callable[..., None]) -> Callable[..., None]:
    """A copy on the device: both ends are resident and held."""

    @wraps(original)
    def copy_from(buffer: Any, other: Any) -> None:
        held = [mine for mine in (ours(buffer), ours(other)) if mine is not None]
        enter(held)
        try:
            original(buffer, other)
        finally:
            leave(held)

    return copy_from


def exporter(original: Callable[..., Any]) -> Callable[..., Any]:
    """DLPack: the buffer stays on the device for as long as the consumer lives.

    The host keeps the array alive until the consumer is done. It is given a twin of the array (same buffer) that carries our export.
    """

    @wraps(original)
    def to_dlpack(array: Any, *args: Any, **named: Any) -> Any:
        mine = ours(array._buffer)
        if mine is not None:
            twin = copy.copy(array)
            setattr(twin, EXPORT, mine.export("dlpack"))
            array = twin
        return original(array, *args, **named)

    return to_dlpack


def allocator(original: Callable[..., Any], thread: Thread, device_of: Callable[[Any], HostDevice], host_error: type[BaseException]) -> Callable[..., Any]:
    """`_allocate`: room within the budget first; where the host's own tries fail, spill and let it try again while there is progress."""
    import numpy

    parameters = signature(original)

    @wraps(original)
    def _allocate(*args: Any, **named: Any) -> Any:
        bound = parameters.bind(*args, **named).arguments
        nbytes = numpy.dtype(bound["dtype"]).itemsize
        for length in bound["shape"]:
            nbytes *= int(length)
        if nbytes <= 0:
            return original(*args, **named)
        device = device_of(bound["backend"]).name
        reservation = _fast.reserve(nbytes, device)
        outer, thread.reservation = thread.reservation, reservation
        nothing_left = False
        try:
            while True:
                try:
                    return original(*args, **named)
                except host_error as error:
                    if isinstance(error, DeviceMemoryError):
                        raise  # from adopting: a strict budget
                    # Inside the handler: an error kept in a variable would keep the frames of all callers, and their arrays, as garbage.
                    if nothing_left:
                        raise _out_of_memory(device, nbytes, error) from error
                    # Where nothing is left to spill, once more: what the host's collection dropped was not back when the host tried, and is now.
                    nothing_left = not _fast.make_room(nbytes, device)
        finally:
            thread.reservation = outer
            reservation.close()  # where the buffer was adopted, nothing is left to give back

    return _allocate


def _out_of_memory(device: str, nbytes: int, cause: BaseException) -> DeviceMemoryError:
    info = _fast.memory_info(device)
    told = call_json("Report", resolve(device))
    total = info.device_total
    figures = {name: getattr(info, name) for name in ("in_use", "cached", "spilled", "budget", "device_free", "device_total")}
    reason = "too_large" if total is not None and nbytes > total else "device"
    held = {name: told[name] for name in ("unspillable", "holders")}
    return memory_error({**figures, **held, "device": device, "requested": nbytes, "reason": reason, "cause": str(cause)})
