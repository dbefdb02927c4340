"""The frameworks that are plugged in: a small registry that knows none of them by name.

`tack_memory.hosts` adapts a framework and registers it here; devices, arrays, errors and reports only ask this registry. It imports
nothing, so that plugging in costs nothing at import and no import cycle can arise.
"""

from __future__ import annotations

TYPE_CHECKING = False  # what typing.TYPE_CHECKING is, without importing typing
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Protocol

    from ._native._fast import Buffer, BufferView

    class Host(Protocol):
        """What a plugged-in framework tells the rest of the package. All of it may be called from any thread."""

        @property
        def name(self) -> str:
            """Name of the framework for people, "tack"."""
            ...

        @property
        def module(self) -> ModuleType:
            """The framework's module."""
            ...

        @property
        def memory_error(self) -> type[BaseException] | None:
            """The framework's own out-of-memory error, or None where it has none."""

        def current_device(self) -> str:
            """Name of the device that the framework uses now, in our words: "cuda:0"."""
            ...

        def device_of(self, obj: object) -> str | None:
            """The name of a device object of this framework, in our words; None: not one of its device objects."""

        def buffers_of(self, array: object) -> list[Buffer | BufferView] | None:
            """The buffers that an array of this framework lies in; None: not one of its arrays.

            The list is empty for an array without memory of ours (size zero, somebody else's pointer)."""


# Rebound as a whole, never changed in place: readers take no lock.
_hosts: tuple[Host, ...] = ()
_watchers: list[Callable[[], object]] = []


def register(host: Host) -> None:
    """Add a framework; registering the same object twice changes nothing. Registering is done under the installer's own lock."""
    global _hosts
    if not any(known is host for known in _hosts):
        _hosts = (*_hosts, host)
        _tell()


def unregister(host: Host) -> None:
    """Take a framework out again; one that is not registered is not an error."""
    global _hosts
    _hosts = tuple(known for known in _hosts if known is not host)
    _tell()


def registered() -> list[Host]:
    """The plugged-in frameworks, oldest first (a copy)."""
    return list(_hosts)


def watch(changed: Callable[[], object]) -> None:
    """Call `changed` after each change of the registry (what None means as a device depends on it)."""
    _watchers.append(changed)


def _tell() -> None:
    for changed in _watchers:
        changed()
