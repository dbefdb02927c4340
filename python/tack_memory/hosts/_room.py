"""Room for what a host allocates by itself: within the budget first, and on the device where the host's own allocation fails."""

from __future__ import annotations

from math import prod

from .._control import call_json
from .._devices import resolve
from .._errors import DeviceMemoryError, memory_error
from .._native import _fast
from .._report import info_from

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from ._pointer_buffers import Thread

    Result = TypeVar("Result")


def with_room(call: Callable[[], Result], nbytes: int, device: str, is_full: Callable[[BaseException], bool], thread: Thread, *, more: int = 0) -> Result:
    """Call a function of the host that allocates so many bytes, spilling until they fit.

    `is_full` tells whether an error of the host means that the device has no room. What the host's call makes is adopted inside it (`thread`), with the
    room that was reserved for it. `more`: bytes that the call may need on the device, but for which no room is reserved.
    """
    reservation = None
    outer = thread.reservation
    nothing_left = False
    try:
        thread.reservation = reservation = _fast.reserve(nbytes, device)  # in the block: Ctrl-C may come as soon as it has returned
        while True:
            try:
                return call()
            except Exception as error:
                if isinstance(error, DeviceMemoryError) or not is_full(error):
                    raise  # ours: from adopting under a strict budget
                # Inside the handler: an error kept in a variable would keep the frames of all callers, and their arrays, as garbage.
                if nothing_left:
                    raise out_of_memory(device, nbytes + more, error) from error
                # Where nothing is left to spill, once more: what the host's collection dropped was not back when the host tried, and is now.
                nothing_left = not _fast.make_room(nbytes + more, device)
    finally:
        thread.reservation = outer
        if reservation is not None:
            reservation.close()  # where the buffer was adopted, nothing is left to give back


def bytes_of(dtype: Any, shape: Any) -> int:
    """The size of an array; `dtype` is NumPy's, or a host's own that has it as `numpy_dtype`, or None: single precision, which is what a GPU's hosts mean."""
    import numpy

    itemsize: int = numpy.dtype("f4" if dtype is None else getattr(dtype, "numpy_dtype", dtype)).itemsize
    return itemsize * prod(int(length) for length in (shape if isinstance(shape, (tuple, list)) else (shape,)))


def out_of_memory(device: str, nbytes: int, cause: BaseException) -> DeviceMemoryError:
    """Our error for a device that has no room for the host, with the figures of one moment."""
    told = call_json("Report", resolve(device))
    info = info_from(told)
    total = info.device_total
    figures = {name: getattr(info, name) for name in ("in_use", "cached", "spilled", "budget", "device_free", "device_total")}
    reason = "too_large" if total is not None and nbytes > total else "device"
    held = {name: told[name] for name in ("unspillable", "holders")}
    return memory_error({**figures, **held, "device": device, "requested": nbytes, "reason": reason, "cause": str(cause)})
