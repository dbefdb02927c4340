"""Modules of a host that may be imported after it was plugged in: each is looked at when it comes, until the host is unplugged."""

from __future__ import annotations

import sys
from _thread import RLock

from .._imports import when_imported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from .._imports import Awaited


class LateModules:
    """What one host waits for. `with` it, no module is looked at: whoever imports one in another thread waits until the block has ended, and gets it as
    it is if the host was unplugged in it (`stop`). Nothing may be imported in the block: the other thread has that module's import lock."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._awaited: list[Awaited] = []
        self._one_at_a_time = RLock()  # a module is looked at, or the host is unplugged: one after the other
        self._stopped = False  # guarded by _one_at_a_time

    def watch(self, path: str, came: Callable[[ModuleType], None]) -> None:
        """Call `came` with a module of the host: now, or when it is imported. What is wrong with it is an error now, and a warning later."""

        def unless_stopped(module: ModuleType) -> None:
            with self._one_at_a_time:
                if not self._stopped:
                    came(module)

        name = f"{self._host}.{path}"
        self._awaited.append(when_imported(name, unless_stopped, strict=name in sys.modules))

    def stop(self) -> None:
        """Look at no module any more. May be called again, where a signal ended it."""
        self._stopped = True
        for awaited in self._awaited:
            awaited.cancel()
        self._awaited.clear()

    def __enter__(self) -> None:
        self._one_at_a_time.acquire()

    def __exit__(self, *_: object) -> None:
        self._one_at_a_time.release()
