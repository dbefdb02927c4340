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
        self._done.append((owner, name, vars(owner).get(name, ABSENT), value))  # first, so that a signal cannot leave it there for good
        setattr(owner, name, value)

    def disturbed(self) -> list[str]:
        """The attributes that are not ours any more: somebody replaced them after us. One that is as it was before us is put back already."""
        last = {(id(owner), name): (owner, name, before, value) for owner, name, before, value in self._done}
        found = ((owner, name, vars(owner).get(name, ABSENT), before, value) for owner, name, before, value in last.values())
        return [f"{owner.__name__}.{name}" for owner, name, now, before, value in found if now is not value and now is not before]

    def undo(self) -> None:
        """Put everything back, the last change first. What somebody else replaced after us stays as it is. Where a signal ends it, undo the rest."""
        while self._done:
            owner, name, before, value = self._done[-1]
            if vars(owner).get(name, ABSENT) is value:
                if before is ABSENT:
                    delattr(owner, name)
                else:
                    setattr(owner, name, before)
            self._done.pop()
