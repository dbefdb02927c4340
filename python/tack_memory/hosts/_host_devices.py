"""Which device each backend of a host has; the rest of the package is told the host's context and stream there."""

from __future__ import annotations

from _thread import RLock

from .._devices import resolve
from .._native import _fast

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ._protocol import HostDevice


class HostDevices:
    """The devices of one host, by backend. May be used from any thread.

    Memory is adopted in one context of a device. A host that makes a second backend for the same device (its `init` was called again) may give that another
    context. Then the new one is what is used from now on, and what lies in the other one is the host's again: counted, and never moved."""

    def __init__(self, ask: Callable[[Any], HostDevice], current: Callable[[], Any], leave: Callable[[Any, str], None]) -> None:
        self._ask = ask  # a backend tells of its device
        self._current = current  # the backend that the host uses now
        self._leave = leave  # gives back what was adopted of a backend, and counts it
        self._lock = RLock()  # guards what follows; nothing of the host is called under it
        self._known: dict[int, tuple[Any, HostDevice]] = {}  # id of a backend -> itself (so that the id stays its own), what it told
        self._taken: set[str] = set()  # devices that the rest of the package was told of

    def all(self) -> list[tuple[Any, HostDevice]]:
        """The backends that are known, each with its device."""
        return list(self._known.values())

    def backends(self) -> list[Any]:
        """The backends that are known."""
        return [backend for backend, _ in self.all()]

    def known(self, backend: Any) -> HostDevice | None:
        """A backend's device, where it has told that already."""
        known = self._known.get(id(backend))
        return None if known is None else known[1]

    def of(self, backend: Any) -> HostDevice:
        """A backend's device."""
        return self.known(backend) or self._found(backend)

    def _found(self, backend: Any) -> HostDevice:
        device = self._ask(backend)
        index = resolve(device.name)
        others = [(other, told) for other, told in self.all() if told.name == device.name and told.context != device.context]
        if others and backend is not self._current():
            device = _only_counted(device)
        elif device.how != "host":
            for other, told in others:
                self._leave(other, told.name)
                with self._lock:
                    self._known[id(other)] = other, _only_counted(told)
        with self._lock:
            known = self._known.get(id(backend))
            if known is None:
                if device.how != "host":
                    self._taken.add(device.name)  # first: `forget` takes back what a signal leaves half done
                    _fast.set_stream(device.name, device.context, device.stream)
                    _fast.set_relief(index, device.empty_cache)
                known = self._known[id(backend)] = backend, device
        return known[1]

    def forget(self) -> None:
        """The host is plugged out: each device has our own stream again. Where a signal ends it, it is called again for the rest."""
        with self._lock:
            for name in list(self._taken):
                _fast.set_relief(resolve(name), None)
                _fast.set_stream(name, 0, 0)
                self._taken.discard(name)
            self._known.clear()


def _only_counted(device: HostDevice) -> HostDevice:
    return device._replace(how="host", empty_cache=None)
