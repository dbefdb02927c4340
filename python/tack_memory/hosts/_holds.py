"""What holds buffers of a host on the device beside launches: reductions, copies on the device, exports."""

from __future__ import annotations

from functools import wraps

from .._native import _fast
from ._attributes import twin_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from .._native._fast import Buffer, BufferView
    from ._pointer_buffers import Thread

    Ours = Callable[[Any], Buffer | BufferView | None]

EXPORT = "_tack_memory_export"
"""Attribute of the array that a consumer keeps alive: our Exported, which dies with it."""

during_launch = _fast.during_launch


def buffers_of(arguments: Iterable[Any], ours: Ours) -> list[Buffer | BufferView]:
    """Our buffers behind a call's arguments; scalars and memory that is not ours have none."""
    found = []
    for argument in arguments:
        buffer = getattr(argument, "_buffer", None)
        if buffer is not None:
            mine = ours(buffer)
            if mine is not None:
                found.append(mine)
    return found


def reducer(original: Callable[..., Any], thread: Thread, ours: Ours) -> Callable[..., Any]:
    """A native reduction: holds its input, and what it allocates for its output. Restoring one must not spill the other."""

    @wraps(original)
    def reduce(backend: Any, *args: Any, **named: Any) -> Any:
        inputs = buffers_of((*args, *named.values()), ours)
        outputs: list[_fast.launch] = []
        outer = thread.holding
        try:
            thread.holding = outputs
            return during_launch(inputs, original, backend, *args, **named)
        finally:
            thread.holding = outer
            outputs.clear()  # ends the launches: this frame may live on in a traceback

    return reduce


def holder(original: Callable[..., Any], ours: Ours) -> Callable[..., Any]:
    """A method of a buffer that uses its pointer, and that of another buffer if one is an argument: all are resident and held."""

    @wraps(original)
    def method(buffer: Any, *args: Any, **named: Any) -> Any:
        held = [mine for one in (buffer, *args, *named.values()) if hasattr(one, "__dict__") and (mine := ours(one)) is not None]
        return during_launch(held, original, buffer, *args, **named)

    return method


def exporter(original: Callable[..., Any], ours: Ours) -> Callable[..., Any]:
    """DLPack: the buffer stays on the device for as long as the consumer lives.

    The host keeps the array alive until the consumer is done. It is given a twin of the array (same buffer) that carries our export.
    """

    @wraps(original)
    def to_dlpack(array: Any, *args: Any, **named: Any) -> Any:
        mine = ours(array._buffer)
        if mine is not None:
            twin = twin_of(array)
            twin.__dict__[EXPORT] = mine.export("dlpack")
            array = twin
        return original(array, *args, **named)

    return to_dlpack
