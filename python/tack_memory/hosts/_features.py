"""Looking into a host: which modules, classes and functions it has, and where a method of it is to be wrapped."""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from inspect import signature

from .._logging import warning
from .._native import _fast

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import ModuleType
    from typing import Any

    from ._patches import Patches

_told: set[str] = set()  # what is said once in a process

_FROZEN_AT_START = 2000
"""Python 3.12 starts with some hundred objects frozen; a program that has called gc.freeze() has many thousands."""


def modules(host: ModuleType) -> Iterator[ModuleType]:
    """The host's modules that are imported now."""
    for name, found in list(sys.modules.items()):
        if found is not None and (name == host.__name__ or name.startswith(f"{host.__name__}.")):
            yield found


def look_up(host: ModuleType, path: str) -> Any:
    """ "lang.array:_allocate" is the attribute of a submodule, which is imported for it; without a colon it is one of the module itself."""
    place, _, name = path.rpartition(":")
    if not place:
        return vars(host).get(name)
    try:
        return vars(import_module(f"{host.__name__}.{place}")).get(name)
    except ImportError:
        return None


def classes(host: ModuleType, name: str) -> list[type]:
    """The classes of that name that the host defines (each once, however many modules import it)."""
    found: dict[int, type] = {}
    for one in modules(host):
        value = vars(one).get(name)
        if isinstance(value, type):
            found[id(value)] = value
    return list(found.values())


def places(classes: Iterable[type], names: Iterable[str]) -> list[tuple[type, str, Any]]:
    """Where methods are to be wrapped, and what is there now: class, name, function.

    A class that defines the method itself, or has it from a base that is not among `classes` (which other classes may share, so it stays
    as it is). What a class has from another of `classes` is wrapped there."""
    among = set(classes)
    found = ((cls, name, definer(cls, name)) for cls in among for name in names)
    return [(cls, name, vars(base)[name]) for cls, name, base in found if base is not None and (base is cls or base not in among)]


def definer(cls: type, name: str) -> type | None:
    """The class that defines a method; `object` does not count."""
    return next((base for base in cls.__mro__[:-1] if name in vars(base)), None)


class Needed:
    """Looks up what a host must have, and remembers what is missing, by the names that an error is to tell."""

    def __init__(self, host: ModuleType) -> None:
        self._host = host
        self.missing: list[str] = []

    def look_up(self, path: str) -> Any:
        """As the function `look_up`; None: it is missing."""
        found = look_up(self._host, path)
        if found is None:
            self.missing.append(f"{self._host.__name__}.{path}")
        return found

    def methods(self, cls: type, names: Iterable[str]) -> None:
        """A class must define these, or have them from a base."""
        self.missing += [f"{cls.__name__}.{name}" for name in names if definer(cls, name) is None]

    def dictionary(self, cls: type, what: str) -> None:
        """Objects of a class must have a `__dict__`. `what`: what is said of the class where they have none."""
        if not cls.__dictoffset__:
            self.missing.append(f"{cls.__name__} {what}")

    def parameters(self, function: Callable[..., Any], name: str, wanted: set[str]) -> None:
        """A function must have these parameters; `name` is what it is called in an error."""
        lacking = wanted - signature(function).parameters.keys()
        self.missing += [f"{name} has no parameter {one!r}" for one in sorted(lacking)]


def subclasses(cls: type) -> list[type]:
    """All classes below, the nearer ones first in each line."""
    direct: list[type] = cls.__subclasses__()
    return [found for one in direct for found in (one, *subclasses(one))]


def instances(classes: Iterable[type]) -> list[Any]:
    """The living objects of these classes and of those below them. Only a host's objects: not the list of all that `gc.get_objects()` makes, which
    other threads' half-made tuples cannot bear."""
    hidden = gc.get_freeze_count()
    if hidden > _FROZEN_AT_START and "frozen" not in _told:
        _told.add("frozen")
        warning("gc.freeze() has hidden %d objects: arrays among them, older than install, are neither counted nor spilled; install first", hidden)
    return _fast.instances_of(tuple(classes))


def replace_functions(patches: Patches, host: ModuleType, replaced: Mapping[Any, Any]) -> None:
    """Put functions in the place of others in every module of the host that has them: "from x import y" makes another reference."""
    for module in modules(host):
        for name, value in list(vars(module).items()):
            for original, replacement in replaced.items():
                if value is original:
                    patches.put(module, name, replacement)


def put_back_functions(host: ModuleType, replaced: Mapping[Any, Any]) -> None:
    """Put the originals back in modules that were imported meanwhile, and so took our functions over; `Patches` does not know of those."""
    for module in modules(host):
        for name, value in list(vars(module).items()):
            for original, replacement in replaced.items():
                if value is replacement:
                    setattr(module, name, original)
