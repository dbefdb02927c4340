"""Which devices there are and which one is current."""

import contextlib
import contextvars
import threading

from .backend import GPUBackend
from .cuda_backend import CUDABackend
from .driver import Driver

_lock = threading.Lock()
_driver: Driver | None = None
_host_readable = False
_backends: dict[int, GPUBackend] = {}
_first: GPUBackend | None = None
_current: contextvars.ContextVar[GPUBackend | None] = contextvars.ContextVar("minihost_current", default=None)


class Device(contextlib.AbstractContextManager):
    """One device, by name. `with device("cuda:1"):` makes it the current one in the block."""

    def __init__(self, backend: GPUBackend) -> None:
        self.backend = backend
        self.kind = "cuda"
        self.ordinal = backend.ordinal
        self.name = f"cuda:{backend.ordinal}"
        self._tokens: list[contextvars.Token] = []

    def __enter__(self) -> "Device":
        self._tokens.append(_current.set(self.backend))
        return self

    def __exit__(self, *error: object) -> None:
        _current.reset(self._tokens.pop())

    def __repr__(self) -> str:
        return f"minihost.device({self.name!r})"


def init(device_name: str = "cuda:0", library: str | None = None, *, host_readable: bool = False) -> Device:
    """Load the driver and make a device the current one.

    Parameters
    ----------
    device_name
        "cuda", or "cuda:N".
    library
        Path of a CUDA driver library; None is the system's.
    host_readable
        The host can read and write device memory at its device addresses (so it is with a software driver that keeps it in host
        memory): kernels then run on it directly.
    """
    global _driver, _host_readable, _first
    with _lock:
        if _driver is None:
            _driver = Driver(library)
            _host_readable = host_readable
        elif _driver.library != library:
            raise ValueError(f"minihost already runs on {_driver.library or 'libcuda.so.1'}; one driver library a process")
    chosen = device(device_name)
    _first = chosen.backend
    return chosen


def device(name: "str | Device | None" = None) -> Device:
    """The device of that name; None is the current one."""
    if isinstance(name, Device):
        return name
    if name is None:
        return Device(current_backend())
    kind, _, number = name.partition(":")
    if kind != "cuda" or (number and not number.isdecimal()):
        raise ValueError(f"unknown device {name!r}: minihost has cuda:N")
    return Device(_backend(int(number or 0)))


def _backend(ordinal: int) -> GPUBackend:
    with _lock:
        if _driver is None:
            raise RuntimeError("call minihost.init() first")
        if ordinal not in _backends:
            _backends[ordinal] = CUDABackend(_driver, ordinal, host_readable=_host_readable)
        return _backends[ordinal]


def current_backend() -> GPUBackend:
    """The backend that new arrays are made on."""
    backend = _current.get() or _first
    if backend is None:
        raise RuntimeError("call minihost.init() first")
    return backend


def synchronize() -> None:
    """Wait for the current device."""
    current_backend().synchronize()
