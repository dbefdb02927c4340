"""Launches of a host of the field generation: which arrays they use."""

from __future__ import annotations

from . import _ablation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


def expander(field: Any, texture: Any, pin: Callable[[Any], object] | None) -> Callable[[Any], Sequence[Any] | None]:
    """A function that says which arrays an argument brings into a launch that is no array itself; None: an argument of its type never brings any.

    `pin` is called with the host's buffer behind a texture."""
    templates, textures = _ablation.wanted("template"), _ablation.wanted("texture")

    # Lists of the attributes' values, made at once: another thread may set an attribute meanwhile.
    def expand(argument: Any) -> Sequence[Any] | None:
        if isinstance(argument, texture):
            fields = [value for value in list(vars(argument).values()) if isinstance(value, field)]
            if pin is not None:
                for one in fields:
                    pin(one._buffer)
            return fields if textures else ()
        if getattr(argument, "_data_oriented", False):
            return [value for value in list(vars(argument).values()) if isinstance(value, field)] if templates else ()
        return () if hasattr(argument, "__dict__") else None  # an object may be marked later, a number never

    return expand
