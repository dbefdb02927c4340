"""What objects of a host have in them: attributes, be they in `__dict__` or in slots, and what containers in these have."""

from __future__ import annotations

from types import MemberDescriptorType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any


def attributes_of(thing: Any) -> Iterable[Any] | None:
    """The values of an object's attributes; None: objects of its type never have any."""
    attributes = getattr(thing, "__dict__", None)
    members = _members(thing)
    if members:
        return [*(value for _, value in _in_slots(thing, members)), *(attributes or {}).values()]
    return None if attributes is None else list(attributes.values())  # at once: another thread may set an attribute meanwhile


def items_of(container: Any) -> list[Any] | None:
    """What a list, tuple or dict has in it; None: it is no container."""
    if isinstance(container, (list, tuple)):
        return list(container)
    return list(container.values()) if isinstance(container, dict) else None


def twin_of(thing: Any) -> Any:
    """Another object with the same attributes. Not by `copy.copy`: a class may say that its copies have contents of their own."""
    twin = object.__new__(type(thing))
    for member, value in _in_slots(thing, _members(thing)):
        member.__set__(twin, value)
    twin.__dict__.update(getattr(thing, "__dict__", {}))
    return twin


def _members(thing: Any) -> list[MemberDescriptorType]:
    return [member for base in type(thing).__mro__ for member in _slots(base)]


def _slots(cls: type) -> list[MemberDescriptorType]:
    """What reads a class's own slots, whatever their names have become (`__private` is `_Class__private`)."""
    return [one for one in list(vars(cls).values()) if type(one) is MemberDescriptorType] if "__slots__" in vars(cls) else []


def _in_slots(thing: Any, members: Iterable[MemberDescriptorType]) -> Iterator[tuple[MemberDescriptorType, Any]]:
    for member in members:
        try:
            yield member, member.__get__(thing)
        except AttributeError:  # not set
            pass
