"""Which devices there are and which one is current."""

import contextlib
import contextvars
import threading

from .backend import GPUBackend
from .cuda_backend import CUDABackend
from .driver import Driver
from .hip_backend import HIPBackend
from .level_zero_backend import LevelZeroBackend

_VENDORS: dict[str, type[GPUBackend]] = {vendor.name: vendor for vendor in (CUDABackend, HIPBackend, LevelZeroBackend)}

_lock = threading.Lock()
_drivers: dict[str, Driver] = {}  # by vendor, for all of its devices
_backends: dict[str, GPUBackend] = {}  # by name of the device
_first: GPUBackend | None = None
_current: contextvars.ContextVar[GPUBackend | None] = contextvars.ContextVar("minihost_current", default=None)


class Device(contextlib.AbstractContextManager["Device"]):
    """One device. `with device("cuda:1"):` makes it the current one in the block."""

    def __init__(self, backend: GPUBackend) -> None:
        self.backend = backend
        self._tokens: list[contextvars.Token[GPUBackend | None]] = []

    def __enter__(self) -> "Device":
        self._tokens.append(_current.set(self.backend))
        return self

    def __exit__(self, *error: object) -> None:
        _current.reset(self._tokens.pop())


def init(device_name: str = "cuda:0", library: str | None = None, *, host_readable: bool = False) -> Device:
    """Load the driver of a device's vendor, and make this device the one that new arrays are made on.

    `library` is the path of the driver library, else the system's is loaded. `host_readable`: the host can read and write device memory
    at its addresses, since the driver is a software driver that keeps it in host memory.
    """
    global _first
    kind, _ = _parsed(device_name)
    with _lock:
        if kind not in _drivers:
            _drivers[kind] = Driver(_VENDORS[kind], library, host_readable=host_readable)
        if _drivers[kind].library != library:
            raise ValueError(f"minihost runs on {_drivers[kind].library or 'the system library'} already; one library a vendor")
    chosen = device(device_name)
    _first = chosen.backend
    return chosen


def device(name: "str | Device | None" = None) -> Device:
    """The device of that name ("cuda:N", "hip:N", "level_zero:N"); None is the current one."""
    if isinstance(name, Device):
        return name
    return Device(current_backend() if name is None else _backend(*_parsed(name)))


def _parsed(name: str) -> tuple[str, int]:
    kind, _, number = name.partition(":")
    if kind not in _VENDORS or not (number or "0").isdecimal():
        raise ValueError(f"unknown device {name!r}: minihost has {', '.join(f'{kind}:N' for kind in _VENDORS)}")
    return kind, int(number or 0)


def _backend(kind: str, ordinal: int) -> GPUBackend:
    name = f"{kind}:{ordinal}"
    with _lock:
        if kind not in _drivers:
            raise RuntimeError(f'call minihost.init("{name}") first')
        if name not in _backends:
            _backends[name] = _VENDORS[kind](_drivers[kind], ordinal)
        return _backends[name]


def current_backend() -> GPUBackend:
    """The backend that new arrays are made on."""
    backend = _current.get() or _first
    if backend is None:
        raise RuntimeError("call minihost.init() first")
    return backend


def synchronize() -> None:
    """Wait for the current device."""
    current_backend().synchronize()
