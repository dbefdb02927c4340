"""Buffers that travel to other processes: pickle, and with it whatever is built on pickle (Dask, multiprocessing, concurrent.futures, MPI's lower-case calls).

What is sent is one private copy of the contents, made of the copy that is the true one: of a spilled buffer nothing moves to the device, and
the host copy itself stays here. It arrives as the new buffer's host copy, as it is, and comes to the device there when the device first uses it.
"""

from __future__ import annotations

from pickle import PickleBuffer

from . import _devices
from ._native import _fast

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

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
    return arrive, (data, buffer.device, buffer.label)


def arrive(data: Any, device: str, label: str | None) -> _fast.Buffer:
    """What a pickle calls. Its arguments are what the other side's package has sent, perhaps another version: only add to them."""
    return _fast.receive(data, _arrival or _here(device), label=label)


def _here(device: str) -> str:
    try:
        return _devices.resolve_name(device)
    except ValueError as error:
        told = f"a buffer arrives from {device}, which this process does not have; tack_memory.set_arrival_device says where it goes"
        raise ValueError(f"{told}. {error}") from None


def copy(buffer: _fast.Buffer | _fast.BufferView) -> _fast.Buffer:
    """For the module copy: a buffer of its own on the same device, made as `copy_from` does it."""
    made = _fast.allocate(buffer.nbytes, buffer.device, zero=False, label=buffer.label)
    made.copy_from(buffer)
    return made
