"""Buffers that travel to other processes: pickle, and with it whatever is built on pickle (Dask, multiprocessing, concurrent.futures, MPI's lower-case calls).

What is sent is one private copy of the contents, made of the copy that is the true one: of a spilled buffer nothing moves to the device, and
the host copy itself stays here. It arrives as the new buffer's host copy, as it is, and comes to the device there when the device first uses it.
"""

from __future__ import annotations

import sys
from pickle import PickleBuffer

from . import _devices
from ._native import _fast

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, SupportsIndex

_arrival: str | None = None


def set_arrival_device(device: _devices.Device) -> str | None:
    """Set on which device of this process the buffers arrive that it unpickles.

    Parameters
    ----------
    device : device or None
        None, as it is at first: on the device that has the name of the one on which they were.

    Returns
    -------
    str or None
        The device that was set before.

    Raises
    ------
    ValueError, TypeError
        This process has no such device. Buffers that arrive and find none raise it, too, when they are unpickled.

    Notes
    -----
    For the whole process. May be called from any thread.
    """
    global _arrival
    before, _arrival = _arrival, None if device is None else _devices.resolve_name(device)
    return before


def reduce(buffer: _fast.Buffer | _fast.BufferView, protocol: int) -> tuple[Any, ...]:
    """For pickle. Protocol 5 can take the contents out of band: there they are copied no more; before, pickle copies them into its stream."""
    contents = buffer.copy_to_host()
    data = PickleBuffer(memoryview(contents).toreadonly()) if protocol >= 5 else contents
    return arrive, (data, buffer.device, buffer.label, buffer.nbytes)


def arrive(data: Any, device: str, label: str | None, nbytes: int | None = None) -> _fast.Buffer | InTransit:
    """What a pickle calls. Its arguments are what the other side's package has sent, perhaps another version: only add to them."""
    came = memoryview(data).nbytes
    if nbytes is not None and came != nbytes:
        raise ValueError(
            f"a buffer of {nbytes} bytes was sent from {device}, and {came} bytes have arrived: the message was cut off, or its frames are mixed up"
        )
    here = _arrival
    if here is None:
        try:
            here = _devices.resolve_name(device)
        except ValueError as error:
            if _passes_on():
                return InTransit(data, device, label)
            raise ValueError(f"{_nowhere(device)}. {error}") from None
    return _fast.receive(data, here, label=label)


def _nowhere(device: str) -> str:
    return f"a buffer arrives from {device}, which this process does not have; tack_memory.set_arrival_device says where it goes"


def _passes_on() -> bool:
    """Whether this process is a scheduler of Dask's: it unpickles what a client has submitted, and sends each worker its part of it."""
    scheduler = getattr(sys.modules.get("distributed.scheduler"), "Scheduler", None)
    return bool(getattr(scheduler, "_instances", ()))


class InTransit:
    """A buffer in a process that has no device for it and passes it on: the message as it came, which can be pickled again, and nothing else."""

    __slots__ = ("_data", "device", "label")

    def __init__(self, data: Any, device: str, label: str | None) -> None:
        self._data = data
        self.device = device
        self.label = label

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return memoryview(self._data).nbytes

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return arrive, (PickleBuffer(self._data) if protocol.__index__() >= 5 else bytes(self._data), self.device, self.label, self.nbytes)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"no {name!r} here: {_nowhere(self.device)}")

    def __repr__(self) -> str:
        return f"<Buffer of {self.nbytes} bytes from {self.device}, in transit{f', label {self.label}' if self.label else ''}>"


def copy(buffer: _fast.Buffer | _fast.BufferView) -> _fast.Buffer:
    """For the module copy: a buffer of its own on the same device, made as `copy_from` does it."""
    made = _fast.allocate(buffer.nbytes, buffer.device, zero=False, label=buffer.label)
    made.copy_from(buffer)
    return made
