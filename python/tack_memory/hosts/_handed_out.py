"""Memory of a buffer that the host hands out by its own means (`export_memory`, `share`): it stays where it is while whoever got it can use it."""

from __future__ import annotations

import weakref
from functools import wraps

from ._pointer_buffers import ours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .._native._fast import Exported

HANDED_OUT = "_tack_memory_handed_out"
"""Attribute of what was handed out, or of the buffer itself, where it is for good: our Kept (of a buffer: our Exported by reason)."""


class Kept:
    """Exports that live with somebody's object, as its attribute. So do they with its copies, which have the address, too; what is pickled carries none."""

    __slots__ = ("_exports",)

    def __init__(self) -> None:
        self._exports: list[Exported] = []

    def keep(self, export: Exported) -> None:
        self._exports.append(export)

    def __deepcopy__(self, memo: object) -> Kept:
        return self

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()


def hander(original: Callable[..., Any], reason: str) -> Callable[..., Any]:
    """A method of a buffer that gives its memory to somebody else.

    The buffer stays in its place for as long as the object lives that the method returns (an array or a memoryview: what its views keep alive). Where nobody
    can tell when that ends (a number, a tuple, the buffer itself), it is for as long as the buffer lives."""

    @wraps(original)
    def method(buffer: Any, *args: Any, **named: Any) -> Any:
        mine = ours(buffer)
        if mine is None:
            return original(buffer, *args, **named)
        export = mine.export(reason)  # before the host reads the address
        result = original(buffer, *args, **named)
        user = _kept_alive_by_views(result)
        if user is buffer or not _lives_with(user, export):
            buffer.__dict__.setdefault(HANDED_OUT, {})[reason] = export
        return result

    return method


def _kept_alive_by_views(result: Any) -> Any:
    """The object that lives as long as any view of the result. A view of an array or a memoryview keeps only that alive which lies under them all."""
    import numpy

    while isinstance(result, memoryview) or (isinstance(result, numpy.ndarray) and result.base is not None):
        result = result.obj if isinstance(result, memoryview) else result.base
    return result


def _lives_with(user: Any, export: Exported) -> bool:
    """Let the export end with an object, if that is possible. An attribute, where it takes one: that is there as long as the object is used, in its own
    destructor, too."""
    attributes = getattr(user, "__dict__", None)
    if type(attributes) is dict:
        attributes.setdefault(HANDED_OUT, Kept()).keep(export)
        return True
    try:
        weakref.finalize(user, export.close).atexit = False
    except TypeError:  # no weak references: numbers, tuples, None
        return False
    return True
