"""A vendor's driver library, through ctypes."""

import ctypes
import itertools
import os
from ctypes import c_int, c_void_p
from typing import Any

RESULT = object()
"""Stands where a function takes the place for its result."""


class DriverError(RuntimeError):
    """A call of the driver failed."""


class DeviceMemoryError(RuntimeError):
    """The device has no room for an array."""


class Driver:
    """One loaded library. Calling it calls one of its functions, by name; ctypes releases the GIL around each call."""

    def __init__(self, vendor: Any, library: str | None, *, host_readable: bool) -> None:
        """Load the library at this path, or the system's."""
        self.library = library
        self.host_readable = host_readable  # the host can use the addresses of device memory
        self._full = vendor.full
        self._loaded = _load((library,) if library else vendor.libraries)
        for name, parameters in vendor.functions.items():
            if hasattr(self._loaded, name):  # old drivers lack some; they are missed when they are called
                function = getattr(self._loaded, name)
                function.argtypes, function.restype = parameters, c_int

    def __call__(self, name: str, *arguments: object) -> None:
        """Raises DeviceMemoryError where the device is full, DriverError on any other failure."""
        code = getattr(self._loaded, name)(*arguments)
        if code:
            raise (DeviceMemoryError if code in self._full else DriverError)(f"{name} failed with {code:#x}")

    def get(self, name: str, *arguments: object, kind: type = c_void_p) -> int:
        """Call a function that has a result besides its code, and return that."""
        result = kind()
        self(name, *(ctypes.byref(result) if one is RESULT else one for one in arguments))
        return result.value or 0


def _load(names: tuple[str, ...]) -> ctypes.CDLL:
    """The first that this process has loaded already, so that all in it share one; else the first that can be loaded."""
    for mode, name in itertools.product((os.RTLD_NOW | os.RTLD_NOLOAD, os.RTLD_NOW), names):
        try:
            return ctypes.CDLL(name, mode)
        except OSError as error:
            problem = error
    raise DriverError(f"cannot load {' or '.join(names)}: {problem}")
