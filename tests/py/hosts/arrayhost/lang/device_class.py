"""Device classes: objects that hold arrays and are arguments of kernels themselves, with the arrays as their attributes."""

from types import SimpleNamespace
from typing import Any, TypeVar

from .array import array
from .texture import Texture3D

Class = TypeVar("Class", bound=type)


def device_class(cls: Class) -> Class:
    """Mark a class whose objects may be arguments of kernels."""
    cls._device_class = True
    return cls


def held_arrays(argument: Any) -> list[array]:
    """The arrays that an argument holds, if it is of a device class; through others of such classes, and in lists, tuples and dicts, too."""
    if isinstance(argument, array) or not getattr(type(argument), "_device_class", False):
        return []
    return [one for value in vars(argument).values() for one in _arrays_in(value)]


def _arrays_in(value: Any) -> list[array]:
    if isinstance(value, array):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [one for item in value for one in _arrays_in(item)] if isinstance(value, (list, tuple)) else held_arrays(value)


def bound(argument: Any, values: dict[int, Any]) -> Any:
    """What a kernel sees in the place of an object: the same attributes, with memory in the place of arrays."""
    if isinstance(argument, array):
        return values[id(argument)]
    if isinstance(argument, dict):
        return {name: bound(value, values) for name, value in argument.items()}
    if isinstance(argument, (list, tuple)):
        return type(argument)(bound(value, values) for value in argument)
    if getattr(type(argument), "_device_class", False):
        return SimpleNamespace(**{name: bound(value, values) for name, value in vars(argument).items()})
    return values[id(argument)] if isinstance(argument, Texture3D) else argument
