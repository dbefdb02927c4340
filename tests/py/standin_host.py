"""A small host in the shape of a CPU backend: arrays whose buffer keeps an ndarray, and a backend that launches kernels on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

from tack_memory import Buffer, BufferView, allocate, set_memory_budget
from tack_memory._native import _fast
from tack_memory.hosts._simulate import DEVICE, configure

STORAGE = "_data"


def set_up() -> None:
    """The device of the host's arrays: nothing is ever at an address that was freed."""
    configure("1 GiB", mode="fresh")
    set_memory_budget(None, DEVICE)


def make(array: _fast.HostArray, owner: _fast.HostArrayOwner) -> Any:
    return numpy.ndarray(array.info, numpy.uint8, owner)


class HostBuffer:
    _data = _fast.HostArraySlot(STORAGE, lambda _, value: value)

    def __init__(self, data: Any) -> None:
        self._data = data


class Array:
    def __init__(self, data: Any) -> None:
        self._buffer = HostBuffer(data)

    @property
    def memory(self) -> Buffer:
        """Our Buffer under it."""
        kept = self._buffer.__dict__[STORAGE]
        under = kept.buffer if isinstance(kept, _fast.HostArray) else kept
        return under if isinstance(under, Buffer) else under.base


class Special(Array):
    """A host's own subclass."""


def array_over(memory: Buffer | BufferView, make: Callable[[Any, Any], Any] = make, kind: type[Array] = Array) -> Array:
    return kind(_fast.HostArray(memory, make, memory.nbytes))


def array(nbytes: int, device: str = DEVICE, fill: int = 0, kind: type[Array] = Array) -> Array:
    memory = allocate(nbytes, device, zero=False)
    memory.fill(fill)
    return array_over(memory, kind=kind)


def raw(nbytes: int, device: str = DEVICE, fill: int = 0) -> Array:
    """An array whose buffer keeps a Buffer itself, as on a GPU."""
    memory = allocate(nbytes, device, zero=False)
    memory.fill(fill)
    return Array(memory)


class Stock:
    """The host's backend as it is without us."""

    def execute(self, kernel: Callable[..., Any], args: Any, kwargs: Any = None) -> Any:
        """Launches a kernel."""
        return kernel(*args, **(kwargs or {}))


def backend(**options: Any) -> Any:
    """One whose launches are ours."""
    options = {"array": Array, "storage": STORAGE, **options}
    return type("Backend", (Stock,), {"execute": _fast.HostLaunch(Stock.execute, **options)})()


class Memory:
    """Arrays on one device, as a host of that kind of device has them."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._make: Callable[..., Array] = array if device == DEVICE else raw

    def __call__(self, nbytes: int, fill: int = 0) -> Array:
        return self._make(nbytes, self.device, fill)


def states(*arrays: Array) -> list[str]:
    return [one.memory.state for one in arrays]


def free_to_move(*arrays: Array) -> bool:
    """Whether nothing holds them any more. Spills them."""
    return all(one.memory.holds == {} and one.memory.spill() == one.memory.nbytes for one in arrays)


class Texture:
    """What `expand` of a test takes for several things that are arguments."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts
