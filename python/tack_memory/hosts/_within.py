"""What holds for the code that one call of ours runs, and not for a finalizer that comes in between.

Python runs finalizers wherever something becomes garbage: in the middle of a host's allocation, too (its own tries call `gc.collect()`). What such a
finalizer makes is not what the call was about. Seen are `__del__` and `weakref.finalize`; what nobody can see is taken for the call's own code, since a
buffer that stays in its place without need costs room, and one that moves without leave costs the contents.
"""

from __future__ import annotations

import sys
import weakref
from typing import Generic, TypeVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType

Value = TypeVar("Value")

_FINALIZE = weakref.finalize.__call__.__code__


def is_within(call: CodeType) -> bool:
    """Whether whoever asks runs for the innermost call of a function with this code, and no finalizer is in between. May be called from any thread."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code is call:
            return True
        if code.co_name == "__del__" or code is _FINALIZE:
            return False
        frame = frame.f_back
    return False


class Within(Generic[Value]):
    """A value that holds within the call of the function that makes this."""

    __slots__ = ("_call", "_value")

    def __init__(self, value: Value) -> None:
        self._call = sys._getframe(1).f_code
        self._value = value

    def here(self) -> Value | None:
        """The value; None in a finalizer that came in between."""
        return self._value if is_within(self._call) else None
