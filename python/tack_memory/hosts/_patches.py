"""Attributes of a host that were replaced, and how to put them back."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ABSENT = object()
"""Stands for: the object itself (not a base class of it) has no such attribute."""


class Patches:
    """What was replaced on modules and classes, in order. Not for several threads at once: `install` holds its lock."""

    def __init__(self) -> None:
        self._done: list[tuple[Any, str, object, object]] = []  # owner, name, what was there, what we put there

    def put(self, owner: Any, name: str, value: object) -> None:
        """Set an attribute and remember what the owner itself had under that name."""
        before = vars(owner).get(name, ABSENT)
        setattr(owner, name, value)
        self._done.append((owner, name, before, value))

    def disturbed(self) -> list[str]:
        """The attributes that are not ours any more: somebody replaced them after us."""
        last = {(id(owner), name): (owner, name, value) for owner, name, _, value in self._done}
        return [f"{owner.__name__}.{name}" for owner, name, value in last.values() if vars(owner).get(name, ABSENT) is not value]

    def undo(self) -> None:
        """Put everything back, the last change first. What somebody else replaced after us stays as it is."""
        while self._done:
            owner, name, before, value = self._done.pop()
            if vars(owner).get(name, ABSENT) is not value:
                continue
            if before is ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
