"""The GPU buffers of a host of the array generation: what is special about those that share memory, or that others use."""

from __future__ import annotations

import gc
from functools import wraps

from . import _ablation
from ._handed_out import HANDED_OUT
from ._images import ImagedBuffers
from ._in_use import UNINSTALL
from ._pointer_buffers import POINTER, Thread
from ._within import Within

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .._native._fast import Buffer
    from ._protocol import HostDevice


class ArrayThread(Thread):
    """What one thread is doing in the host now."""

    def __init__(self) -> None:
        super().__init__()
        self.counted: Within[str] | None = None  # why what is made now stays the host's, and is only counted


class ArrayBuffers(ImagedBuffers):
    """Adoption for the GPU buffer classes of one host."""

    thread: ArrayThread

    def __init__(self, device_of: Callable[[Any], HostDevice | None], purge: Callable[[int], object]) -> None:
        super().__init__(device_of, purge)
        self.thread = ArrayThread()
        self._follows = _ablation.wanted("wrap")

    def adopt(self, buffer: Any, *, movable: bool = True, reason: str | None = None, label: str | None = None) -> None:
        """As for all. A buffer over a part of another one's memory becomes a view of that, however the host has made it."""
        super().adopt(buffer, movable=movable, reason=reason, label=label)
        if self._follows and not getattr(buffer, "_owned", True):
            self._follow(buffer)

    def _assigned(self, buffer: Any, value: Any) -> Any:
        kept = super()._assigned(buffer, value)
        if kept is value and self._follows and not getattr(buffer, "_owned", True):
            buffer.__dict__[POINTER] = value
            self._follow(buffer)
            kept = buffer.__dict__[POINTER]
        return kept

    def _take(self, buffer: Any, address: int, *, movable: bool = True, reason: str | None = None, label: str | None = None) -> Buffer | None:
        counted = None if self.thread.counted is None else self.thread.counted.here()
        if counted is None:
            return super()._take(buffer, address, movable=movable, reason=reason, label=label)
        device = self._device_of(buffer) if getattr(buffer, "_owned", True) else None
        if device is not None:
            self.counted.count(buffer, address, buffer._nbytes, device.name, counted, self._reservation_for(buffer._nbytes))
        return None

    def give_all_back(self) -> None:
        """As for all, but not while memory is handed out for good: nothing may move it, and only its export sees to that, to the end of the buffer."""
        gc.collect()  # what was handed out of garbage is nobody's any more
        handed_out = [buffer for buffer in self.adopted() if HANDED_OUT in buffer.__dict__]
        if handed_out:
            reasons = sorted({reason for buffer in handed_out for reason in buffer.__dict__[HANDED_OUT]})
            nbytes = sum(buffer._nbytes for buffer in handed_out)
            raise BufferError(
                f"cannot {UNINSTALL}: memory of {len(handed_out)} arrays ({nbytes} bytes) was handed out ({', '.join(reasons)}), and nobody can tell "
                "for how long: it must stay where it is until the arrays end; drop them first"
            )
        super().give_all_back()

    def only_counted(self, original: Callable[..., Any], reason: str) -> Callable[..., Any]:
        """A function whose buffers stay the host's: others have the address, and the host may allocate it in another way than its arrays."""
        thread = self.thread

        @wraps(original)
        def function(*args: Any, **named: Any) -> Any:
            outer = thread.counted
            try:
                thread.counted = Within(reason)
                return original(*args, **named)
            finally:
                thread.counted = outer

        return function
