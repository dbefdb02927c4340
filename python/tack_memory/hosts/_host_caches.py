"""What a host's own caches keep of a device for later use: for the driver that is in use, so the host has to tell."""

from __future__ import annotations

from _thread import RLock

from .._control import call
from .._devices import resolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CACHED_BYTES = "cached_bytes"
"""Attribute of a host's backend: the bytes that its cache of dropped buffers (HIP) or its pool (Metal) keeps."""


class HostCaches:
    """The caches of one host's backends. May be used from any thread."""

    def __init__(self) -> None:
        self._told: dict[str, int] = {}  # device -> the last figure
        self._lock = RLock()  # one thread tells at a time; nothing of the host's runs under it

    def tell(self, backend: Any, device: str) -> None:
        """Tell what a backend's cache keeps now, where it has one and the figure has changed. To be called after whatever changes it."""
        kept = getattr(backend, CACHED_BYTES, None)  # may take a lock of the host's
        if kept is not None and kept != self._told.get(device, 0):
            with self._lock:
                call("SetHostCache", resolve(device), kept)
                self._told[device] = kept

    def forget(self) -> None:
        """The host is plugged out: nothing more will be told."""
        with self._lock:
            for device in [device for device, kept in self._told.items() if kept]:
                call("SetHostCache", resolve(device), 0)
            self._told.clear()
